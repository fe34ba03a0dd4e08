// Parts of messages: counted nouns, articles, and "did you mean".
#pragma once

#include <span>
#include <string>

#include "base/export.h"

namespace cudaexec {

/// "1 input", "2 inputs".
CUDAEXEC_API std::string count_str(size_t count, const char* noun);

/// "a str", "an int": a class name with its article.
CUDAEXEC_API std::string with_article(const std::string& name);

/// `; did you mean 'decode'?` for the candidate that `name` is a likely misspelling of, else
/// nothing.
CUDAEXEC_API std::string closest_hint(const std::string& name,
                                      std::span<const std::string> candidates);

}  // namespace cudaexec

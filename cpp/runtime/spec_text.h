// Specs in words, for messages: "float32[s0 in 2..64, 64]".
#pragma once

#include <string>

#include "base/export.h"
#include "format/manifest.h"
#include "runtime/module.h"

namespace cudaexec {

/// Infix, with the symbols' names: "2*s0 + 1".
CUDAEXEC_API std::string expression_text(const Expression& expression, const MethodSpec& method);
/// A symbol's range: "2..64", "at least 2" or "exactly 4".
CUDAEXEC_API std::string range_text(const Symbol& symbol);
/// "float32[s0 in 2..64, 64]"
CUDAEXEC_API std::string tensor_text(const TensorShape& tensor, const MethodSpec& method);
/// As Python writes it: True, 3, 2.5, 'text', None.
CUDAEXEC_API std::string scalar_text(const Scalar& value);
/// "float32[2, 64]", or a scalar with its type: "the int 3".
CUDAEXEC_API std::string value_text(const Value& value);

}  // namespace cudaexec

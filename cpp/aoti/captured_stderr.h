// What generated code writes to std::cerr. Our library defines an object of that name, which
// generated code binds to; the text is kept per thread and never reaches the process's stderr.
#pragma once

#include <string>

namespace cudaexec {

/// Forgets what this thread captured.
void clear_captured_stderr() noexcept;
/// What generated code wrote on this thread since then (at most the first 16 KiB); clears it.
std::string take_captured_stderr();

}  // namespace cudaexec

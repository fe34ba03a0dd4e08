// What generated code writes to std::cerr. Our library defines an object of that name, which
// generated code binds to; while generated code runs, the text is kept for the error message and
// never reaches the process's stderr.
#pragma once

#include <string>

namespace cudaexec {
namespace capture_detail {
extern constinit thread_local int depth __attribute__((tls_model("initial-exec")));
}  // namespace capture_detail

/// Lives while this thread runs generated code.
class StderrCapture {
 public:
  StderrCapture() noexcept {
    if (capture_detail::depth++ == 0) forget();
  }
  ~StderrCapture() { --capture_detail::depth; }
  StderrCapture(const StderrCapture&) = delete;
  StderrCapture& operator=(const StderrCapture&) = delete;

  /// The text since the outermost capture of this thread began, at most the first 16 KiB; clears
  /// it.
  static std::string take();

 private:
  static void forget() noexcept;
};

}  // namespace cudaexec

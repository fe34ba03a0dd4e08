#include "aoti/captured_stderr.h"

#include <unistd.h>

#include <algorithm>
#include <new>
#include <ostream>
#include <streambuf>
#include <string_view>
#include <utility>

#include "base/export.h"

namespace cudaexec {
namespace capture_detail {
constinit thread_local int depth __attribute__((tls_model("initial-exec"))) = 0;
}  // namespace capture_detail

namespace {

constexpr size_t kMaxCaptured = size_t{16} << 10;  // bytes per thread

constinit thread_local bool has_text __attribute__((tls_model("initial-exec"))) = false;
thread_local std::string captured;

void put(std::string_view text) {
  if (capture_detail::depth == 0) {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
    return;
  }
  has_text = true;
  captured.append(text.substr(0, kMaxCaptured - std::min(captured.size(), kMaxCaptured)));
}

// Unbuffered, so that threads share no state.
class CapturingBuffer final : public std::streambuf {
 protected:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    const char single = traits_type::to_char_type(c);
    put({&single, 1});
    return c;
  }
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    put({text, static_cast<size_t>(count)});
    return count;
  }
};

}  // namespace

void StderrCapture::forget() noexcept {
  if (!has_text) return;
  has_text = false;
  captured.clear();
}

std::string StderrCapture::take() {
  if (!has_text) return {};
  has_text = false;
  return std::exchange(captured, {});
}

}  // namespace cudaexec

// libstdc++'s name for std::cerr, for those that look it up here; our own initialiser uses the
// object itself, since a program may have a copy under that name. Neither it nor its buffer is ever
// destroyed: generated code may write while the process ends.
extern "C" {
alignas(std::ostream) unsigned char cudaexec_cerr[sizeof(std::ostream)];
CUDAEXEC_API extern unsigned char cudaexec_cerr_exported[sizeof(std::ostream)] asm("_ZSt4cerr")
    __attribute__((alias("cudaexec_cerr")));
}

namespace {

alignas(cudaexec::CapturingBuffer) unsigned char cerr_buffer[sizeof(cudaexec::CapturingBuffer)];

// Before any library that could use it is opened, and before our own initialisers.
__attribute__((constructor(101))) void make_cerr() {
  auto* made = ::new (static_cast<void*>(cerr_buffer)) cudaexec::CapturingBuffer;
  ::new (static_cast<void*>(cudaexec_cerr)) std::ostream(made);
}

}  // namespace

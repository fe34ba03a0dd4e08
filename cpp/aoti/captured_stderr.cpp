#include "aoti/captured_stderr.h"

#include <algorithm>
#include <new>
#include <ostream>
#include <streambuf>
#include <string_view>
#include <utility>

#include "base/export.h"

namespace cudaexec {
namespace {

constexpr size_t kMaxCaptured = size_t{16} << 10;  // bytes per thread

constinit thread_local bool has_text __attribute__((tls_model("initial-exec"))) = false;
thread_local std::string captured;

void capture(std::string_view text) {
  has_text = true;
  captured.append(text.substr(0, kMaxCaptured - std::min(captured.size(), kMaxCaptured)));
}

// Unbuffered, so that threads share no state.
class CapturingBuffer final : public std::streambuf {
 protected:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    const char single = traits_type::to_char_type(c);
    capture({&single, 1});
    return c;
  }
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    capture({text, static_cast<size_t>(count)});
    return count;
  }
};

}  // namespace

void clear_captured_stderr() noexcept {
  if (!has_text) return;
  has_text = false;
  captured.clear();
}

std::string take_captured_stderr() {
  if (!has_text) return {};
  has_text = false;
  return std::exchange(captured, {});
}

}  // namespace cudaexec

// libstdc++'s name for std::cerr. Neither it nor its buffer is ever destroyed: generated code may
// write while the process ends.
extern "C" {
alignas(std::ostream) CUDAEXEC_API extern unsigned char cudaexec_cerr[] asm("_ZSt4cerr");
alignas(std::ostream) unsigned char cudaexec_cerr[sizeof(std::ostream)];
}

namespace {

alignas(cudaexec::CapturingBuffer) unsigned char cerr_buffer[sizeof(cudaexec::CapturingBuffer)];

// Before any library that could use it is opened, and before our own initialisers.
__attribute__((constructor(101))) void make_cerr() {
  auto* made = ::new (static_cast<void*>(cerr_buffer)) cudaexec::CapturingBuffer;
  ::new (static_cast<void*>(cudaexec_cerr)) std::ostream(made);
}

}  // namespace

#include "aoti/captured_stderr.h"

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
  has_text = true;
  // Outside of a capture there is nobody to read it: the next one begins by forgetting it.
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

// What generated code finds in place of std::cerr (see elf_prepare.cpp). Neither it nor its buffer
// is ever destroyed: generated code may write while the process ends.
extern "C" {
CUDAEXEC_API extern unsigned char cxec_cerr[];
alignas(std::ostream) unsigned char cxec_cerr[sizeof(std::ostream)];
}

namespace {

alignas(cudaexec::CapturingBuffer) unsigned char cerr_buffer[sizeof(cudaexec::CapturingBuffer)];

// Before our own initialisers, and before any library that uses it is opened.
__attribute__((constructor(101))) void make_cerr() {
  auto* made = ::new (static_cast<void*>(cerr_buffer)) cudaexec::CapturingBuffer;
  ::new (static_cast<void*>(cxec_cerr)) std::ostream(made);
}

}  // namespace

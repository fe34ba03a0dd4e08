#include "aoti/call_scope.h"

#include <utility>

#include "device/region_error.h"

namespace cudaexec {
namespace {

constinit thread_local CallScope* innermost __attribute__((tls_model("initial-exec"))) = nullptr;

}  // namespace

CallScope::CallScope(Device device, StreamRef stream, Allocator& allocator) noexcept
    : device_(device), stream_(stream), allocator_(allocator), previous_(innermost) {
  if (region_failed()) (void)take_region_error();  // of code that ran outside any scope
  innermost = this;
}

CallScope::~CallScope() {
  innermost = previous_;
  if (region_failed()) (void)take_region_error();
}

CallScope* CallScope::current() noexcept { return innermost; }

int32_t CallScope::store_current_exception() noexcept {
  if (innermost != nullptr && innermost->pending_ == nullptr) {
    innermost->pending_ = std::current_exception();
  }
  return 1;
}

void CallScope::rethrow_if_pending() {
  if (region_failed()) {
    if (std::exception_ptr error = take_region_error()) std::rethrow_exception(error);
  }
  if (pending_ != nullptr) std::rethrow_exception(std::exchange(pending_, nullptr));
}

OpContext current_op_context() noexcept {
  if (innermost == nullptr) return {cpu_allocator(), StreamRef()};
  return {innermost->allocator(), innermost->stream()};
}

OpContext op_context_for(Device device) noexcept {
  if (innermost == nullptr || innermost->device().type != device.type) {
    return {cpu_allocator(), StreamRef()};
  }
  return {innermost->allocator(), innermost->stream()};
}

}  // namespace cudaexec

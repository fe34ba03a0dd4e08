#include "runtime/stream_uses.h"

#include <algorithm>

#include "base/cleanup_report.h"
#include "base/error.h"

namespace cudaexec {
namespace {

constexpr size_t kMost = 8;  // streams remembered before they are ordered behind each other

}  // namespace

void StreamUses::begin(StreamRef stream, bool after_all) {
  covers_all_ = false;
  if (uses_.empty() || (uses_.size() == 1 && uses_.front().stream == stream)) return;
  if (!after_all && !settled_) {
    settled_ =
        std::all_of(uses_.begin(), uses_.end(), [](const Use& use) { return use.event.is_done(); });
  }
  if (!after_all && settled_ && uses_.size() < kMost) return;
  for (const Use& use : uses_) {
    if (use.stream != stream) use.event.make_wait(device_, stream);
  }
  covers_all_ = true;
}

void StreamUses::end(StreamRef stream) {
  if (covers_all_) {
    uses_.erase(uses_.begin() + 1, uses_.end());
    uses_.front().stream = stream;
  }
  auto use = std::find_if(uses_.begin(), uses_.end(),
                          [stream](const Use& each) { return each.stream == stream; });
  if (use == uses_.end()) {
    uses_.push_back({stream, CudaEvent(device_)});
    use = uses_.end() - 1;
  }
  use->event.record(stream);
}

void StreamUses::wait() noexcept {
  // In a forked child, say, there is nothing to wait for.
  if (cuda::driver_if_initialised() == nullptr) uses_.clear();
  for (const Use& use : uses_) {
    try {
      use.event.synchronize();
    } catch (const Error& error) {
      report_cleanup_failure("waiting for calls in flight", error.what());
    }
  }
  uses_.clear();
}

StreamUse::~StreamUse() {
  if (finished_) return;
  try {
    uses_.end(stream_);
  } catch (const std::exception&) {
    try {
      uses_.device().synchronize(stream_);
    } catch (const Error& error) {
      report_cleanup_failure("waiting for a failed call", error.what());
    }
  }
}

}  // namespace cudaexec

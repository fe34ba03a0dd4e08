// The streams on which something of ours (a container, a session's buffers) is still in use, so
// that it can be ordered behind that use and is not freed under it.
#pragma once

#include <vector>

#include "base/export.h"
#include "device/cuda/stream.h"

namespace cudaexec {

/// Used by one thread at a time. Events are recorded in it, so a caller's stream may be gone later.
class StreamUses {
 public:
  explicit StreamUses(CudaDevice& device) noexcept : device_(device) {}
  StreamUses(const StreamUses&) = delete;
  StreamUses& operator=(const StreamUses&) = delete;
  ~StreamUses() { wait(); }

  /// Before work on `stream`. `after_all`: it follows every use on other streams, as something that
  /// is written needs; otherwise it only follows the first use, which made what is read later.
  void begin(StreamRef stream, bool after_all);
  /// After it.
  void end(StreamRef stream);
  /// Waits for all uses. A failure is reported as one of a destructor.
  void wait() noexcept;
  [[nodiscard]] CudaDevice& device() const noexcept { return device_; }

 private:
  struct Use {
    StreamRef stream;
    CudaEvent event;
  };

  CudaDevice& device_;
  std::vector<Use> uses_;    // at most kMost; without entries nothing is in use
  bool settled_ = false;     // the first use is done
  bool covers_all_ = false;  // the use that has begun follows all others
};

/// begin() now, and end() with finish() or, if the scope is left before, in the destructor.
class StreamUse {
 public:
  StreamUse(StreamUses& uses, StreamRef stream, bool after_all) : uses_(uses), stream_(stream) {
    uses.begin(stream, after_all);
  }
  ~StreamUse();
  StreamUse(const StreamUse&) = delete;
  StreamUse& operator=(const StreamUse&) = delete;
  void finish() {
    uses_.end(stream_);
    finished_ = true;
  }

 private:
  StreamUses& uses_;
  StreamRef stream_;
  bool finished_ = false;
};

}  // namespace cudaexec

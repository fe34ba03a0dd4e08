// Streams and events that we own.
#pragma once

#include <memory>
#include <vector>

#include "base/export.h"
#include "base/fork_mutex.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/handles.h"

namespace cudaexec {

/// A stream that does not wait for the legacy default stream. Destroying it does not wait for its
/// work.
class CUDAEXEC_API CudaStream {
 public:
  explicit CudaStream(CudaDevice& device);
  [[nodiscard]] StreamRef ref() const noexcept { return StreamRef(handle_.get()); }
  [[nodiscard]] CudaDevice& device() const noexcept { return *device_; }
  void synchronize() const { device_->synchronize(ref()); }

 private:
  CudaDevice* device_;
  cuda::StreamHandle handle_;
};

/// A point in the work of a stream. Recording it again forgets the point before.
class CUDAEXEC_API CudaEvent {
 public:
  enum class Timing { kOff, kOn };
  explicit CudaEvent(CudaDevice& device, Timing timing = Timing::kOff);

  /// Marks the end of what is on `stream` (of this event's device) now.
  void record(StreamRef stream);
  /// Work put on `stream` of `device` from now on waits for the recorded point.
  void make_wait(CudaDevice& device, StreamRef stream) const;
  /// Whether the recorded point has been reached; never waits.
  [[nodiscard]] bool is_done() const;
  void synchronize() const;
  /// Milliseconds from `start` to this event; both timed and reached.
  [[nodiscard]] float milliseconds_since(const CudaEvent& start) const;

 private:
  CudaDevice* device_;
  cuda::EventHandle handle_;
};

/// Streams of threads, lent for the life of a thread. Shared by the device and by the threads that
/// have one, since either may end first.
class ThreadStreams {
 public:
  struct Entry {
    explicit Entry(CudaDevice& device) : stream(device), event(device) {}
    CudaStream stream;
    CudaEvent event;  // for ordering other streams
  };

  /// The calling thread's entry for `device`, which owns `streams`.
  static Entry& current(CudaDevice& device, const std::shared_ptr<ThreadStreams>& streams);
  /// Waits for all of them, but for those that are being captured.
  void synchronize(CudaDevice& device);

 private:
  class Lease;
  Entry* take(CudaDevice& device);
  void give_back(Entry* entry) noexcept;

  ForkMutex mutex_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<Entry*> free_;  // capacity for all entries
};

}  // namespace cudaexec

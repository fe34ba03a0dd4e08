// One call on a GPU: the stream that it runs on, and its order with the streams of its tensors.
#pragma once

#include <span>

#include "base/export.h"
#include "base/inline_list.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/host_work.h"
#include "runtime/module.h"

namespace cudaexec {

class CUDAEXEC_API GpuCall {
 public:
  /// Work of the call follows what is on the inputs' streams now: the one of `wanted`, and those of
  /// tensors that are ordered on another stream. `outputs`: memory of the caller's that the call
  /// writes, ordered in the same way.
  /// @throws DeviceError if a stream belongs to another GPU, CaptureError if the call's stream is
  /// being captured.
  GpuCall(CudaDevice& device, const CallStream& wanted, std::span<const Value> inputs,
          std::span<const Value> outputs = {});
  /// Where the call failed before finish(): orders as well, or waits.
  ~GpuCall();
  GpuCall(const GpuCall&) = delete;
  GpuCall& operator=(const GpuCall&) = delete;

  [[nodiscard]] CudaDevice& device() const noexcept { return device_; }
  [[nodiscard]] StreamRef stream() const noexcept { return stream_; }
  /// Whether every tensor input is on the host (also if there is none): outputs go there then.
  [[nodiscard]] bool host_only() const noexcept { return host_only_; }
  /// What is put on those streams from now on follows the call.
  void finish();

 private:
  struct Other {
    CudaDevice* device = nullptr;
    StreamRef stream;
  };
  void choose_stream(const CallStream& wanted);
  void run_on(StreamRef stream);
  void add(CudaDevice& device, StreamRef stream);
  void follow(const Tensor& tensor);

  CudaDevice& device_;
  StreamRef stream_;
  bool host_only_ = true;
  bool finished_ = false;
  InlineList<Other, 8> others_;
};

struct BoundOutputs;

/// Where the tensors of a call come from.
struct CallMemory {
  Allocator& device;  // of the program's device
  Allocator& host;
  StreamRef stream;
  GpuCall* gpu = nullptr;               // null on the CPU
  HostWork* host_work = nullptr;        // on a GPU: host memory that copies of this call use
  const BoundOutputs* bound = nullptr;  // of a Binding: where its outputs go
};

}  // namespace cudaexec

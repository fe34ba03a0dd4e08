// Capturing work into a CUDA graph: begun and ended by one owner, on a stream of its own.
#pragma once

#include "base/export.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/handles.h"
#include "device/cuda/stream.h"

namespace cudaexec {

/// While it lives, the calling thread may allocate, load code and so on without breaking captures,
/// its own included. What is put on a captured stream is still recorded.
class CUDAEXEC_API RelaxedCaptureMode {
 public:
  RelaxedCaptureMode();
  ~RelaxedCaptureMode();
  RelaxedCaptureMode(const RelaxedCaptureMode&) = delete;
  RelaxedCaptureMode& operator=(const RelaxedCaptureMode&) = delete;

 private:
  cuda::CUstreamCaptureMode previous_ = cuda::CU_STREAM_CAPTURE_MODE_RELAXED;
};

/// The node of what was put last on a stream that is being captured. @throws CaptureError if that
/// was not one node.
[[nodiscard]] CUDAEXEC_API cuda::CUgraphNode last_captured_node(CudaDevice& device,
                                                                StreamRef stream);

/// The arguments (one struct) of a kernel node for later launches; the rest as it was captured. The
/// device is current.
CUDAEXEC_API void set_kernel_node(cuda::CUgraphExec exec, cuda::CUgraphNode node,
                                  cuda::CUfunction function, unsigned blocks, unsigned block_x,
                                  unsigned block_y, const void* args);

/// Other threads may do anything meanwhile; this one may not wait, allocate or load code but in
/// RelaxedCaptureMode. Used by the thread that made it.
class CUDAEXEC_API StreamCapture {
 public:
  /// Makes the stream; nothing is captured yet.
  explicit StreamCapture(CudaDevice& device) : device_(device), stream_(device) {}
  /// A capture that has begun ends, whatever state it is in, and its graph is dropped.
  ~StreamCapture();
  StreamCapture(const StreamCapture&) = delete;
  StreamCapture& operator=(const StreamCapture&) = delete;

  [[nodiscard]] StreamRef stream() const noexcept { return stream_.ref(); }
  void begin();
  [[nodiscard]] cuda::CUgraphNode last_node() const {
    return last_captured_node(device_, stream());
  }
  /// @throws CaptureError if something in the capture was not allowed.
  [[nodiscard]] cuda::GraphHandle end();

 private:
  CudaDevice& device_;
  CudaStream stream_;
  bool active_ = false;
};

/// A graph that can be launched, and how its nodes change between launches.
class CUDAEXEC_API GraphExec {
 public:
  /// Instantiates. @throws OutOfMemory, InternalError.
  GraphExec(CudaDevice& device, cuda::GraphHandle graph);

  [[nodiscard]] cuda::CUgraphExec get() const noexcept { return exec_.get(); }
  /// The device is current.
  void launch(StreamRef stream);
  [[nodiscard]] size_t node_count() const noexcept { return node_count_; }

 private:
  cuda::GraphHandle graph_;
  cuda::GraphExecHandle exec_;
  size_t node_count_ = 0;
};

}  // namespace cudaexec

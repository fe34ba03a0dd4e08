#include "device/cuda/graph_capture.h"

#include <utility>

#include "base/cleanup_report.h"
#include "base/error.h"
#include "base/str.h"
#include "device/cuda/check.h"

namespace cudaexec {

using namespace cuda;

RelaxedCaptureMode::RelaxedCaptureMode() {
  CUDAEXEC_CU(cuThreadExchangeStreamCaptureMode, &previous_);
}

RelaxedCaptureMode::~RelaxedCaptureMode() {
  const DriverApi* api = driver_if_initialised();
  if (api == nullptr) return;
  CUresult result = api->cuThreadExchangeStreamCaptureMode(&previous_);
  // The thread must not stay in the other mode: captures of others would break unnoticed.
  if (result != CUDA_SUCCESS) result = api->cuThreadExchangeStreamCaptureMode(&previous_);
  report_cleanup_result("cuThreadExchangeStreamCaptureMode", result);
}

void StreamCapture::begin() {
  const CudaGuard guard(device_);
  CUDAEXEC_CU(cuStreamBeginCapture, cu_stream(stream()), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  active_ = true;
}

CUgraphNode last_captured_node(CudaDevice& device, StreamRef stream) {
  const CudaGuard guard(device);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUgraphNode* nodes = nullptr;
  size_t count = 0;
  CUDAEXEC_CU(cuStreamGetCaptureInfo, cu_stream(stream), &status, nullptr, nullptr, &nodes, &count);
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE || count != 1) {
    throw CaptureError(str("what was captured last on ", to_string(device.device()), " is ", count,
                           " nodes of a graph, not one"));
  }
  return nodes[0];
}

GraphHandle StreamCapture::end() {
  const CudaGuard guard(device_);
  CUgraph graph = nullptr;
  const CUresult result = driver().cuStreamEndCapture(cu_stream(stream()), &graph);
  GraphHandle owner(graph, device_.context());
  check(result, "cuStreamEndCapture", CUDAEXEC_FILE, __LINE__);
  active_ = false;
  if (!owner) throw CaptureError("a capture ended without a graph");
  return owner;
}

StreamCapture::~StreamCapture() {
  if (!active_) return;
  const CleanupContext current(device_.context_if_retained(), "cuStreamEndCapture");
  const DriverApi* api = current.driver();
  if (api == nullptr) return;
  // A capture that broke ends with an error, which is what is wanted; one that goes on is asked to
  // end once more.
  for (int attempt = 0; attempt < 2; ++attempt) {
    CUgraph graph = nullptr;
    const CUresult result = api->cuStreamEndCapture(cu_stream(stream()), &graph);
    if (graph != nullptr) report_cleanup_result("cuGraphDestroy", api->cuGraphDestroy(graph));
    if (result == CUDA_SUCCESS) return;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult asked = api->cuStreamIsCapturing(cu_stream(stream()), &status);
    if (asked == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE) return;
  }
  report_cleanup_failure("cuStreamEndCapture", "the capture did not end");
}

GraphExec::GraphExec(CudaDevice& device, GraphHandle graph) : graph_(std::move(graph)) {
  const CudaGuard guard(device);
  CUDAEXEC_CU(cuGraphGetNodes, graph_.get(), nullptr, &node_count_);
  CUgraphExec exec = nullptr;
  CUDAEXEC_CU(cuGraphInstantiateWithFlags, &exec, graph_.get(), 0);
  exec_ = GraphExecHandle(exec, device.context());
}

void set_kernel_node(CUgraphExec exec, CUgraphNode node, CUfunction function, unsigned blocks,
                     unsigned block_x, unsigned block_y, const void* args) {
  void* arguments[] = {const_cast<void*>(args)};
  CUDA_KERNEL_NODE_PARAMS parameters{};
  parameters.func = function;
  parameters.gridDimX = blocks;
  parameters.gridDimY = parameters.gridDimZ = 1;
  parameters.blockDimX = block_x;
  parameters.blockDimY = block_y;
  parameters.blockDimZ = 1;
  parameters.kernelParams = arguments;
  CUDAEXEC_CU(cuGraphExecKernelNodeSetParams, exec, node, &parameters);
}

void GraphExec::launch(StreamRef stream) {
  CUDAEXEC_CU(cuGraphLaunch, exec_.get(), cu_stream(stream));
}

}  // namespace cudaexec

#include "device/cuda/cuda_device.h"

#include <cstdio>

#include "base/error.h"
#include "base/str.h"
#include "device/cuda/check.h"
#include "device/cuda/stream.h"

namespace cudaexec {

using namespace cuda;

namespace {

std::string uuid_text(const CUuuid& uuid) {
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof uuid.bytes; ++i) {
    char digits[4];
    const char* separator = i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
    std::snprintf(digits, sizeof digits, "%s%02x", separator,
                  static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
    text += digits;
  }
  return text;
}

CudaFacts ask_facts(CUdevice device) {
  const auto attribute = [device](CUdevice_attribute which) {
    int value = 0;
    CUDAEXEC_CU(cuDeviceGetAttribute, &value, which, device);
    return value;
  };
  CudaFacts facts;
  char name[256] = {};
  CUDAEXEC_CU(cuDeviceGetName, name, static_cast<int>(sizeof name), device);
  facts.name = name;
  CUuuid uuid{};
  CUDAEXEC_CU(cuDeviceGetUuid, &uuid, device);
  facts.uuid = uuid_text(uuid);
  facts.sm = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
             attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  facts.sm_count = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  CUDAEXEC_CU(cuDeviceTotalMem, &facts.total_nbytes, device);
  facts.l2_nbytes = static_cast<size_t>(attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
  facts.max_shared_nbytes = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  facts.virtual_memory = attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0;
  facts.memory_pools = attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) != 0;
  facts.integrated = attribute(CU_DEVICE_ATTRIBUTE_INTEGRATED) != 0;
  return facts;
}

bool is_default_stream(StreamRef stream) noexcept {
  return stream.get() == nullptr || cu_stream(stream) == legacy_stream();
}

}  // namespace

CudaDevice::CudaDevice(int index)
    : index_(index), thread_streams_(std::make_shared<ThreadStreams>()) {
  CUDAEXEC_CU(cuDeviceGet, &handle_, index);
  facts_ = ask_facts(handle_);
}

CudaDevice::~CudaDevice() {
  thread_streams_.reset();
  kernels_.unload();
  const DriverApi* api = driver_if_initialised();
  if (api == nullptr || context_.load() == nullptr) return;
  report_cleanup_result("cuDevicePrimaryCtxRelease", api->cuDevicePrimaryCtxRelease(handle_));
}

CUcontext CudaDevice::retain_context() {
  const std::lock_guard lock(mutex_);
  CUcontext context = context_.load(std::memory_order_acquire);
  if (context == nullptr) {
    CUDAEXEC_CU(cuDevicePrimaryCtxRetain, &context, handle_);
    context_.store(context, std::memory_order_release);
  }
  return context;
}

void CudaDevice::copy(void* dst, Device dst_device, const void* src, Device src_device,
                      size_t nbytes, StreamRef stream) {
  const bool dst_here = dst_device == device();
  const bool src_here = src_device == device();
  if (!dst_here && !src_here) {
    throw DeviceError(str(to_string(device()), " cannot copy from ", to_string(src_device), " to ",
                          to_string(dst_device), ": one side must be on it"));
  }
  if (nbytes == 0) return;
  const CudaGuard guard(*this);
  if (dst_here && src_here) {
    CUDAEXEC_CU(cuMemcpyDtoDAsync, cu_pointer(dst), cu_pointer(src), nbytes, cu_stream(stream));
  } else if (dst_here && src_device.is_cpu()) {
    CUDAEXEC_CU(cuMemcpyHtoDAsync, cu_pointer(dst), src, nbytes, cu_stream(stream));
  } else if (dst_device.is_cpu()) {
    CUDAEXEC_CU(cuMemcpyDtoHAsync, dst, cu_pointer(src), nbytes, cu_stream(stream));
  } else {
    CudaDevice& peer = cuda_device(dst_here ? src_device.index : dst_device.index);
    const CUcontext dst_context = dst_here ? context() : peer.context();
    const CUcontext src_context = src_here ? context() : peer.context();
    CUDAEXEC_CU(cuMemcpyPeerAsync, cu_pointer(dst), dst_context, cu_pointer(src), src_context,
                nbytes, cu_stream(stream));
  }
}

void CudaDevice::zero(void* dst, size_t nbytes, StreamRef stream) {
  if (nbytes == 0) return;
  const CudaGuard guard(*this);
  CUDAEXEC_CU(cuMemsetD8Async, cu_pointer(dst), 0, nbytes, cu_stream(stream));
}

void CudaDevice::synchronize(StreamRef stream) {
  const CudaGuard guard(*this);
  CUDAEXEC_CU(cuStreamSynchronize, cu_stream(stream));
}

void CudaDevice::synchronize_all() {
  const CudaGuard guard(*this);
  CUDAEXEC_CU(cuCtxSynchronize);
}

void CudaDevice::order(StreamRef later, StreamRef earlier, CudaDevice& earlier_device) {
  if (&earlier_device == this &&
      (later == earlier || (is_default_stream(later) && is_default_stream(earlier)))) {
    return;
  }
  // The wait takes the point recorded now, so the next call may record the same event again.
  CudaEvent& event = ThreadStreams::current(earlier_device, earlier_device.thread_streams_).event;
  event.record(earlier);
  event.make_wait(*this, later);
}

StreamRef CudaDevice::thread_stream() {
  return ThreadStreams::current(*this, thread_streams_).stream.ref();
}

void CudaDevice::synchronize_thread_streams() {
  if (driver_if_initialised() == nullptr) return;  // a forked child
  thread_streams_->synchronize(*this);
}

bool CudaDevice::is_capturing(StreamRef stream) {
  const CudaGuard guard(*this);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = driver().cuStreamIsCapturing(cu_stream(stream), &status);
  // The legacy stream would join the capture of another stream: nothing can be put on it now.
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  check(result, "cuStreamIsCapturing", CUDAEXEC_FILE, __LINE__);
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

size_t CudaDevice::free_nbytes() {
  const CudaGuard guard(*this);
  size_t free = 0;
  size_t total = 0;
  CUDAEXEC_CU(cuMemGetInfo, &free, &total);
  return free;
}

}  // namespace cudaexec

#include "runtime/gpu_call.h"

#include <algorithm>

#include "base/cleanup_report.h"
#include "base/error.h"
#include "base/str.h"

namespace cudaexec {

GpuCall::GpuCall(CudaDevice& device, const CallStream& wanted, std::span<const Value> inputs,
                 std::span<const Value> outputs)
    : device_(device) {
  choose_stream(wanted);
  if (device.is_capturing(stream_)) {
    throw CaptureError(str("the call's stream on ", to_string(device.device()),
                           " is being captured into a CUDA graph; call the method outside of the "
                           "capture"));
  }
  for (const Value& value : inputs) {
    const auto* tensor = std::get_if<Tensor>(&value);
    if (tensor == nullptr || tensor->device().is_cpu()) continue;
    host_only_ = false;
    follow(*tensor);
  }
  for (const Value& value : outputs) {
    const auto* tensor = std::get_if<Tensor>(&value);
    if (tensor != nullptr && !tensor->device().is_cpu()) follow(*tensor);
  }
  for (const Other& other : others_) device_.order(stream_, other.stream, *other.device);
}

void GpuCall::choose_stream(const CallStream& wanted) {
  if (wanted.chosen) {
    CudaDevice* owner = cuda_device_of_stream(*wanted.chosen);
    if (owner != nullptr && owner != &device_) {
      throw DeviceError(str("the stream of the call is of ", to_string(owner->device()),
                            ", the program runs on ", to_string(device_.device()),
                            "; pass a stream of that GPU"));
    }
    run_on(*wanted.chosen);
  }
  if (!wanted.inputs) {
    if (!wanted.chosen) stream_ = device_.thread_stream();
    return;
  }
  CudaDevice* owner = cuda_device_of_stream(*wanted.inputs);
  const bool is_here = owner == nullptr || owner == &device_;
  if (!wanted.chosen && is_here) {
    run_on(*wanted.inputs);
    return;
  }
  if (!wanted.chosen) stream_ = device_.thread_stream();
  add(is_here ? device_ : *owner, *wanted.inputs);
}

/// As `stream`, but by a handle that means the same stream in every thread, since the memory of the
/// call is ordered on it: CUDA's per-thread default stream is ordered with one of ours.
void GpuCall::run_on(StreamRef stream) {
  if (cu_stream(stream) == cuda::per_thread_stream()) {
    stream_ = device_.thread_stream();
    add(device_, stream);
  } else {
    stream_ = cu_stream(stream) == cuda::legacy_stream() ? StreamRef() : stream;
  }
}

/// Memory that somebody lent us without naming a stream is ordered by CallStream::inputs.
void GpuCall::follow(const Tensor& tensor) {
  const Storage& storage = *tensor.storage();
  if (storage.is_owned() || storage.stream().get() != nullptr) add(device_, storage.stream());
}

void GpuCall::add(CudaDevice& device, StreamRef stream) {
  if (cu_stream(stream) == cuda::legacy_stream()) stream = StreamRef();
  if (&device == &device_ && stream == stream_) return;
  const bool known = std::any_of(others_.begin(), others_.end(), [&](const Other& other) {
    return other.device == &device && other.stream == stream;
  });
  if (!known) others_.push_back({&device, stream});
}

void GpuCall::finish() {
  for (const Other& other : others_) other.device->order(other.stream, stream_, device_);
  finished_ = true;
}

GpuCall::~GpuCall() {
  if (finished_ || others_.empty()) return;
  try {
    finish();
  } catch (const std::exception&) {
    try {
      device_.synchronize(stream_);
    } catch (const Error& error) {
      report_cleanup_failure("waiting for a failed call", error.what());
    }
  }
}

}  // namespace cudaexec

#include "python/gpu_inputs.h"

#include <pybind11/pybind11.h>

#include <utility>

#include "base/cleanup_report.h"
#include "base/error.h"
#include "base/str.h"
#include "device/cuda/cuda_device.h"
#include "python/bind_errors.h"
#include "python/gil.h"
#include "python/streams.h"

namespace cudaexec::python {
namespace {

/// The stream on which a library works on `device` now.
StreamRef current_stream(const dlpack::DLPackExchangeApi& api, int device) {
  void* handle = nullptr;
  if (api.current_work_stream(dlpack::kDLCuda, device, &handle) != 0) {
    throw_from_pending_error(ErrorKind::kDevice,
                             str("the inputs' library does not tell its stream on cuda:", device));
  }
  return stream_from_number(reinterpret_cast<uintptr_t>(handle));
}

}  // namespace

void GpuInputs::add_current(const dlpack::DLPackExchangeApi* api, int device) {
  if (api->current_work_stream == nullptr) {
    add_owned(device, StreamRef(), false);  // nothing better is known than the default stream
  } else if (api_ == nullptr) {
    api_ = api;
    api_device_ = device;
  } else if (api_ != api || api_device_ != device) {
    add_owned(device, current_stream(*api, device), false);
  }
}

void GpuInputs::hold(PyObject* object) {
  held_.objects.push_back(object);
  Py_INCREF(object);
}

StreamRef GpuInputs::handover_stream(int device) const {
  if (chosen_ && device_ && device_->index == device) return *chosen_;
  return cuda_device(device).thread_stream();
}

void GpuInputs::follow(int device, StreamRef stream) const {
  std::vector<StreamRef> earlier;
  if (api_ != nullptr && api_device_ == device) earlier.push_back(current_stream(*api_, device));
  for (const Source& source : sources_) {
    if (source.device == device) earlier.push_back(source.stream);
  }
  without_gil([&] {
    for (const StreamRef one : earlier) cuda_device(device).order(stream, one);
  });
}

std::optional<StreamRef> GpuInputs::stream_now(const dlpack::DLPackExchangeApi* preferred) {
  if (!device_ || device_->is_cpu()) return std::nullopt;
  const bool prefers = preferred != nullptr && preferred->current_work_stream != nullptr;
  const auto* api = prefers ? preferred : api_;
  if (api != nullptr) return current_stream(*api, device_->index);
  for (const Source& source : sources_) {
    if (source.owner_follows && source.device == device_->index) return source.stream;
  }
  return std::nullopt;
}

CallStream GpuInputs::prepare(const dlpack::DLPackExchangeApi* preferred) {
  if (!device_ || device_->is_cpu()) return {};  // the runtime refuses inputs on a GPU
  if (held_count() > 0) release_finished();
  const bool prefers = preferred != nullptr && preferred->current_work_stream != nullptr;
  const auto* api = prefers ? preferred : api_;
  if (api_ != nullptr && api != api_)
    add_owned(api_device_, current_stream(*api_, api_device_), false);
  if (api != nullptr) {
    owner_ = current_stream(*api, device_->index);
  } else {
    for (const Source& source : sources_) {
      if (!source.owner_follows || source.device != device_->index) continue;
      owner_ = source.stream;
      break;
    }
  }
  return {chosen_, owner_};
}

// The runtime itself orders the call before and after the owner's stream and the streams that
// storages name.
void GpuInputs::order_before() {
  if (!device_ || device_->is_cpu()) return;
  CudaDevice& device = cuda_device(device_->index);
  run_ = chosen_ ? *chosen_ : owner_ ? *owner_ : device.thread_stream();
  for (const Source& source : sources_) {
    if (is_ordered_here(source)) device.order(run_, source.stream);
  }
  ordered_ = true;
}

void GpuInputs::wait() {
  if (api_ != nullptr) add_owned(api_device_, current_stream(*api_, api_device_), false);
  if (sources_.empty()) return;
  without_gil([this] {
    for (const Source& source : sources_) cuda_device(source.device).synchronize(source.stream);
  });
}

void GpuInputs::order_after() noexcept {
  if (!ordered_) return;
  ordered_ = false;
  try {
    without_gil([this] {
      CudaDevice& device = cuda_device(device_->index);
      for (const Source& source : sources_) {
        if (source.owner_follows && is_ordered_here(source)) device.order(source.stream, run_);
      }
    });
  } catch (const std::exception& error) {
    report_cleanup_failure("ordering the owners of inputs after a call", error.what());
  }
  if (!held_.empty()) hold_until_done(device_->index, run_, std::move(held_));
}

void GpuInputs::clear() noexcept {
  device_.reset();
  chosen_.reset();
  owner_.reset();
  api_ = nullptr;
  sources_.clear();
  copies_.clear();
  held_.release();
  ordered_ = false;
}

}  // namespace cudaexec::python

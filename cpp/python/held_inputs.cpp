#include "python/held_inputs.h"

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "base/cleanup_report.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/stream.h"
#include "python/gil.h"

namespace cudaexec::python {
namespace {

struct Entry {
  std::unique_ptr<CudaEvent> event;
  HeldObjects held;
};

/// Guarded by the GIL; never destroyed, since the driver may be gone before statics are.
std::deque<Entry>& waiting() noexcept {
  static auto& entries = *new std::deque<Entry>;
  return entries;
}

/// A driver that cannot be asked any more (a forked child) will not read anything either.
bool is_done(const CudaEvent& event) noexcept {
  if (cuda::driver_if_initialised() == nullptr) return true;
  try {
    return event.is_done();
  } catch (const std::exception& error) {
    report_cleanup_failure("asking whether inputs are still in use", error.what());
    return true;
  }
}

void wait_for(int device, StreamRef stream) noexcept {
  try {
    without_gil([&] { cuda_device(device).synchronize(stream); });
  } catch (const std::exception& error) {
    report_cleanup_failure("waiting for the work that uses inputs", error.what());
  }
}

}  // namespace

void HeldObjects::release() noexcept {
  for (PyObject* object : objects) Py_DECREF(object);
  for (dlpack::DLManagedTensor* tensor : legacy) {
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  }
  for (dlpack::DLManagedTensorVersioned* tensor : versioned) {
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  }
  objects.clear();
  legacy.clear();
  versioned.clear();
}

void hold_until_done(int device, StreamRef stream, HeldObjects held) noexcept {
  try {
    auto event = std::make_unique<CudaEvent>(cuda_device(device));
    event->record(stream);
    waiting().push_back({std::move(event), std::move(held)});
  } catch (const std::exception&) {
    wait_for(device, stream);
  }
}

void release_finished() noexcept {
  std::deque<Entry>& entries = waiting();
  std::vector<Entry> finished;  // let go of at the end: that may run Python code, and calls
  for (size_t i = 0; i < entries.size();) {
    if (!is_done(*entries[i].event)) {
      ++i;
      continue;
    }
    try {
      finished.push_back(std::move(entries[i]));
    } catch (...) {
      return;  // no memory: later
    }
    entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void wait_and_release_held() {
  while (!waiting().empty()) {
    Entry first = std::move(waiting().front());
    waiting().pop_front();
    without_gil([&] { first.event->synchronize(); });
  }
}

size_t held_count() noexcept { return waiting().size(); }

}  // namespace cudaexec::python

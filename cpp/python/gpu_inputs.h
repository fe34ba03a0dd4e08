// What the inputs of a call that lie on GPUs need besides their addresses: the streams on which
// they are ready and on which their owners go on working.
#pragma once

#include <Python.h>

#include <optional>
#include <utility>
#include <vector>

#include "device/device.h"
#include "python/held_inputs.h"
#include "runtime/module.h"
#include "tensor/dlpack_abi.h"

namespace cudaexec::python {

/// One call's. Filled while the inputs are converted, with the GIL; the order of use is then
/// prepare(), order_before(), the call, order_after().
class GpuInputs {
 public:
  /// The device that the program runs on, and the stream that the caller chose.
  void set_call(Device device, std::optional<StreamRef> chosen) noexcept {
    device_ = device;
    chosen_ = chosen;
  }
  /// Whether the program is known to run on the CPU, which takes no memory of GPUs.
  [[nodiscard]] bool refused() const noexcept { return device_ && device_->is_cpu(); }
  /// The GPU that the program runs on, or nothing.
  [[nodiscard]] std::optional<Device> device() const noexcept { return device_; }

  /// An input of a library that works on its current stream, which its table of functions tells.
  void add_current(const dlpack::DLPackExchangeApi* api, int device);
  /// Memory that was made on `stream` and that its owner gives back there. `named`: the tensor's
  /// storage tells the stream, so that the runtime orders the call before and after it.
  void add_owned(int device, StreamRef stream, bool named) {
    sources_.push_back({device, stream, true, named});
  }
  /// Memory that is ready on `stream`; where its owner gives it back is not known, so hold() what
  /// keeps it.
  void add_ready(int device, StreamRef stream) {
    sources_.push_back({device, stream, false, false});
  }
  /// Memory of our own.
  void add(const Storage& storage) {
    const bool named = storage.is_owned() || storage.stream() != StreamRef();
    add_owned(storage.device().index, storage.stream(), named);
  }
  /// A copy of an input, kept until the call has been ordered.
  void add_copy(StoragePtr storage) {
    add(*storage);
    copies_.push_back(std::move(storage));
  }
  /// Keeps an object until the work of the call is done.
  void hold(PyObject* object);
  void hold(dlpack::DLManagedTensor* tensor) { held_.legacy.push_back(tensor); }
  void hold(dlpack::DLManagedTensorVersioned* tensor) { held_.versioned.push_back(tensor); }

  /// The stream that foreign producers make their memory ready on.
  [[nodiscard]] StreamRef handover_stream(int device) const;
  /// Makes `stream` follow what makes the inputs of `device` that are known so far. With the GIL.
  void follow(int device, StreamRef stream) const;
  [[nodiscard]] bool any() const noexcept { return api_ != nullptr || !sources_.empty(); }
  /// The stream of the library whose tensors the outputs become, or nothing.
  [[nodiscard]] std::optional<StreamRef> owner() const noexcept { return owner_; }

  /// The stream that the owner of the inputs works on now, for calls that use them again and again;
  /// with the GIL. Nothing if none is known.
  [[nodiscard]] std::optional<StreamRef> stream_now(const dlpack::DLPackExchangeApi* preferred);
  /// Asks for the streams; with the GIL. `preferred` is the table of the outputs' library, or null.
  CallStream prepare(const dlpack::DLPackExchangeApi* preferred);
  /// Makes the call's stream follow what makes the inputs. Without the GIL.
  void order_before();
  /// Makes the host wait until the inputs are ready, instead of all of the above. With the GIL.
  void wait();
  /// Makes the owners' streams follow the call, and holds the inputs of unknown owners until it is
  /// done. Does nothing where order_before() was not reached. With the GIL.
  void order_after() noexcept;
  /// As new, with the room it has, for the next call. With the GIL.
  void clear() noexcept;

 private:
  struct Source {
    int device;
    StreamRef stream;
    bool owner_follows;
    bool named;
  };
  [[nodiscard]] bool is_ordered_here(const Source& source) const noexcept {
    return source.device == device_->index && !source.named && owner_ != source.stream;
  }

  std::optional<Device> device_;  // nothing: not known
  std::optional<StreamRef> chosen_;
  const dlpack::DLPackExchangeApi* api_ = nullptr;
  int api_device_ = 0;
  std::vector<Source> sources_;
  std::vector<StoragePtr> copies_;
  HeldObjects held_;
  std::optional<StreamRef> owner_;
  StreamRef run_;  // where the call's work is put
  bool ordered_ = false;
};

}  // namespace cudaexec::python

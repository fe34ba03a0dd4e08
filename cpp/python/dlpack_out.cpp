// DLPack from cudaexec.Tensor: capsules, and the table of C functions for consumers that look for
// it.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "device/cuda/cuda_device.h"
#include "memory/cuda_pool_allocator.h"
#include "python/bind_errors.h"
#include "python/bind_tensor.h"
#include "python/bindings.h"
#include "python/device_copy.h"
#include "python/gil.h"
#include "python/streams.h"
#include "tensor/dlpack.h"
#include "tensor/strided_copy.h"

namespace cudaexec::python {
namespace {

using dlpack::DLManagedTensor;
using dlpack::DLManagedTensorVersioned;
using dlpack::DLTensor;

constexpr const char* kLegacy = "dltensor";
constexpr const char* kVersioned = "dltensor_versioned";

/// Frees what nobody took: a consumer renames the capsule.
template <typename Managed>
void destroy_capsule(PyObject* capsule, const char* name) noexcept {
  if (PyCapsule_IsValid(capsule, name) == 0) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  managed->deleter(managed);
}

py::object capsule_for(void* managed, const char* name, PyCapsule_Destructor destroy) {
  PyObject* capsule = PyCapsule_New(managed, name, destroy);
  if (capsule == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(capsule);
}

/// The stream on which this thread's work with our tensors on `device` goes.
StreamRef work_stream(Device device) {
  return device.is_cpu() ? StreamRef() : cuda_device(device.index).thread_stream();
}

int set_error_and_fail() noexcept {
  set_python_error_from_current_exception();
  return -1;
}

int allocate(DLTensor* prototype, DLManagedTensorVersioned** out, void* context,
             dlpack::SetErrorFn set_error) {
  try {
    const auto dtype = dtype_from_dlpack(prototype->dtype);
    const Device device = device_from_dlpack(prototype->device);
    if (!dtype) throw NotSupported("cudaexec allocates tensors of its own dtypes only");
    const Dims sizes(prototype->shape, static_cast<size_t>(prototype->ndim));
    Allocator& allocator = device.is_cpu() ? cpu_allocator() : cuda_allocator(device.index);
    *out = export_dlpack_versioned(
        Tensor::empty(sizes, *dtype, device, allocator, work_stream(device)), 0);
    return 0;
  } catch (const Error& error) {
    set_error(context, error_class_name(error.kind()), error.what());
  } catch (const std::exception& error) {
    set_error(context, "MemoryError", error.what());
  }
  return -1;
}

int from_object(void* object, DLManagedTensorVersioned** out) {
  try {
    const Tensor& tensor = tensor_of(static_cast<PyObject*>(object));
    const StreamRef stream = work_stream(tensor.device());
    make_ready_on(tensor, stream);
    *out = export_dlpack_versioned(used_on(tensor, stream), 0);
    return 0;
  } catch (...) {
    return set_error_and_fail();
  }
}

int to_object(DLManagedTensorVersioned* managed, void** out) {
  try {
    const std::shared_ptr<void> owner(managed, [](void* pointer) {
      auto* taken = static_cast<DLManagedTensorVersioned*>(pointer);
      if (taken->deleter != nullptr) taken->deleter(taken);
    });
    const Device device = device_from_dlpack(managed->dl_tensor.device);
    const StreamRef stream = work_stream(device);
    *out = make_tensor(tensor_from_dlpack(managed->dl_tensor, owner, stream)).release().ptr();
    return 0;
  } catch (...) {
    return set_error_and_fail();
  }
}

int view_object(void* object, DLTensor* out) {
  try {
    auto& self = self_cast<TensorObject>(static_cast<PyObject*>(object));
    if (!self.tensor.device().is_cpu()) {
      const StreamRef stream = work_stream(self.tensor.device());
      make_ready_on(self.tensor, stream);
      const bool known =
          std::find(self.users.begin(), self.users.end(), stream) != self.users.end();
      if (!known && stream != self.tensor.storage()->stream()) self.users.push_back(stream);
    }
    view_as_dlpack(self.tensor, *out);
    return 0;
  } catch (...) {
    return set_error_and_fail();
  }
}

int current_stream(int32_t device_type, int32_t device_id, void** out) {
  try {
    *out = work_stream(device_from_dlpack({device_type, device_id})).get();
    return 0;
  } catch (...) {
    return set_error_and_fail();
  }
}

py::object capsule_of(const Tensor& tensor, bool versioned, bool copied) {
  if (versioned) {
    DLManagedTensorVersioned* managed =
        export_dlpack_versioned(tensor, copied ? dlpack::kFlagIsCopied : 0);
    return capsule_for(managed, kVersioned, [](PyObject* capsule) {
      destroy_capsule<DLManagedTensorVersioned>(capsule, kVersioned);
    });
  }
  return capsule_for(export_dlpack_legacy(tensor), kLegacy,
                     [](PyObject* capsule) { destroy_capsule<DLManagedTensor>(capsule, kLegacy); });
}

/// The consumer's stream of __dlpack__ for GPU memory; nothing if it wants no ordering (-1).
std::optional<StreamRef> consumer_stream(const py::object& stream) {
  if (stream.is_none()) return StreamRef();  // the legacy default stream, by the standard
  if (PyLong_Check(stream.ptr()) != 0 && PyBool_Check(stream.ptr()) == 0) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(stream.ptr(), &overflow);
    if (overflow == 0 && number == -1) return std::nullopt;
    if (overflow == 0 && number > 0) return stream_from_number(static_cast<uint64_t>(number));
  }
  throw InputError(
      str("__dlpack__: stream is ", std::string(py::repr(stream)),
          "; expected None, -1, 1, 2 or the handle of a CUDA stream (0 is ambiguous)"));
}

void refuse_device(const Tensor& tensor, const std::pair<int32_t, int32_t>& device) {
  throw py::buffer_error(str("__dlpack__: a tensor on ", to_string(tensor.device()),
                             " cannot be exported to DLPack device (", device.first, ", ",
                             device.second, "); copy it there with the library in use"));
}

/// Memory of a GPU for a consumer that works on `stream`.
Tensor for_consumer(const Tensor& tensor, std::optional<StreamRef> stream, bool copy) {
  return without_gil([&] {
    const Tensor shared = copy ? copy_on_device(tensor, tensor.storage()->stream()) : tensor;
    if (!stream) return shared;
    make_ready_on(shared, *stream);
    return used_on(shared, *stream);
  });
}

}  // namespace

py::object export_dlpack(const Tensor& source, const DlpackRequest& request) {
  const Tensor tensor = source;  // the GIL is released below
  const bool on_cpu = tensor.device().is_cpu();
  const bool versioned = request.max_version && request.max_version->first >= 1;
  const bool copy = request.copy.value_or(false);
  if (!request.stream.is_none() && on_cpu) {
    throw InputError(str("__dlpack__: stream must be None for a tensor on the cpu, found ",
                         std::string(py::repr(request.stream))));
  }
  const std::optional<StreamRef> stream = on_cpu ? std::nullopt : consumer_stream(request.stream);
  const dlpack::DLDevice own = device_to_dlpack(tensor.device());
  const auto wanted = request.device.value_or(std::pair(int32_t{own.device_type}, own.device_id));
  if (wanted == std::pair(int32_t{own.device_type}, own.device_id)) {
    if (!on_cpu) return capsule_of(for_consumer(tensor, stream, copy), versioned, copy);
    if (!copy) return capsule_of(tensor, versioned, false);
    return capsule_of(
        without_gil([&] { return contiguous_copy(tensor, cpu_allocator(), StreamRef{}); }),
        versioned, true);
  }
  if (on_cpu || wanted.first != dlpack::kDLCpu) refuse_device(tensor, wanted);
  if (request.copy == false) {
    throw py::buffer_error(str("__dlpack__: a tensor on ", to_string(tensor.device()),
                               " has to be copied to the host, but copy=False"));
  }
  return capsule_of(without_gil([&] { return copy_to_host(tensor); }), versioned, true);
}

py::object make_exchange_capsule() {
  static dlpack::DLPackExchangeApi table{
      {{dlpack::kMajorVersion, dlpack::kMinorVersion}, nullptr},
      allocate,
      from_object,
      to_object,
      view_object,
      current_stream,
  };
  return capsule_for(&table, "dlpack_exchange_api", nullptr);
}

}  // namespace cudaexec::python

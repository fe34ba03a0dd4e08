// DLPack from cudaexec.Tensor: capsules, and the table of C functions for consumers that look for
// it.
#include <memory>

#include "base/error.h"
#include "base/str.h"
#include "python/bind_errors.h"
#include "python/bind_tensor.h"
#include "python/bindings.h"
#include "tensor/dlpack.h"

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

int set_error_and_fail() noexcept {
  set_python_error_from_current_exception();
  return -1;
}

int allocate(DLTensor* prototype, DLManagedTensorVersioned** out, void* context,
             dlpack::SetErrorFn set_error) {
  try {
    const auto dtype = dtype_from_dlpack(prototype->dtype);
    const Device device = device_from_dlpack(prototype->device);
    if (!dtype || !device.is_cpu()) {
      throw NotSupported("cudaexec allocates host tensors of its own dtypes only");
    }
    const Dims sizes(prototype->shape, static_cast<size_t>(prototype->ndim));
    *out = export_dlpack_versioned(
        Tensor::empty(sizes, *dtype, device, cpu_allocator(), StreamRef{}), 0);
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
    *out = export_dlpack_versioned(tensor_of(static_cast<PyObject*>(object)), 0);
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
    *out = make_tensor(tensor_from_dlpack(managed->dl_tensor, owner)).release().ptr();
    return 0;
  } catch (...) {
    return set_error_and_fail();
  }
}

int view_object(void* object, DLTensor* out) {
  try {
    view_as_dlpack(tensor_of(static_cast<PyObject*>(object)), *out);
    return 0;
  } catch (...) {
    return set_error_and_fail();
  }
}

int current_stream(int32_t device_type, int32_t /*device_id*/, void** out) {
  if (device_type != dlpack::kDLCpu) {
    set_python_error(ErrorKind::kDevice, "cudaexec has no stream on that device");
    return -1;
  }
  *out = nullptr;
  return 0;
}

}  // namespace

py::object make_dlpack_capsule(const Tensor& tensor, bool versioned, bool copied) {
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

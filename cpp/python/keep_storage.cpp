#include "python/keep_storage.h"

#include "python/gil.h"

namespace cudaexec::python {
namespace {

constexpr const char* kCapsuleName = "cudaexec.storage";
constexpr size_t kLargeStorage = size_t{1} << 20;  // bytes

void destroy_capsule(PyObject* capsule) noexcept {
  auto* storage = static_cast<Storage*>(PyCapsule_GetPointer(capsule, kCapsuleName));
  if (storage != nullptr) release_storage(StoragePtr(storage));
}

}  // namespace

pybind11::object keep_storage(const StoragePtr& storage) {
  PyObject* capsule = PyCapsule_New(storage.get(), kCapsuleName, destroy_capsule);
  if (capsule == nullptr) throw pybind11::error_already_set();
  storage->add_ref();
  return pybind11::reinterpret_steal<pybind11::object>(capsule);
}

void release_storage(StoragePtr storage) noexcept {
  if (storage && storage->nbytes() >= kLargeStorage) {
    without_gil([&] { storage = StoragePtr(); });
  }
}

}  // namespace cudaexec::python

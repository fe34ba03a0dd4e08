// A Python object that keeps a storage alive, for views made by others (numpy's base object).
#pragma once

#include <pybind11/pybind11.h>

#include "tensor/storage.h"

namespace cudaexec::python {

/// A capsule that holds one reference to `storage`.
pybind11::object keep_storage(const StoragePtr& storage);

/// Drops `storage`; without the GIL where freeing is likely to take long (large memory is
/// unmapped).
void release_storage(StoragePtr storage) noexcept;

}  // namespace cudaexec::python

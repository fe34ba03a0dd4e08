// Weights that are alive in the process, by content: the same weight is mapped or copied once
// however many methods, sessions and Modules use it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/export.h"
#include "tensor/storage.h"

namespace cudaexec {

struct WeightKey {
  Device device;
  std::string fqn;
  std::string digest;  // of the whole storage, as in the manifest
};

/// Returns the live storage of `key`, or makes one over `bytes`: used in place, kept alive by
/// `mapping`, or copied where they are not aligned to `alignment`. Marked constant. The entry
/// vanishes with the storage's last user. An empty digest is never shared. Thread-safe.
/// @throws OutOfMemory
CUDAEXEC_API StoragePtr shared_weight(const WeightKey& key, std::span<const std::byte> bytes,
                                      size_t alignment, std::shared_ptr<const void> mapping);

/// Entries alive: leak tests compare it.
CUDAEXEC_API size_t shared_weight_count();

}  // namespace cudaexec

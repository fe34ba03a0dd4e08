// Weights that are alive in the process, by content and device: the same weight is mapped or copied
// once however many methods, sessions and Modules use it.
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

/// The live storage of `key`, or null.
CUDAEXEC_API StoragePtr find_shared_weight(const WeightKey& key);

/// Makes `filled`, memory of key.device with the weight's bytes, the storage of `key`, marked
/// constant; gives the live one instead if there is one by now. An empty digest is never shared.
CUDAEXEC_API StoragePtr share_weight(const WeightKey& key, StoragePtr filled);

/// Entries alive: leak tests compare it.
CUDAEXEC_API size_t shared_weight_count();

}  // namespace cudaexec

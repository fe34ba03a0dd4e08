// The constants of a program's methods, resolved to the storages behind them: pure data, no bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "format/manifest.h"
#include "tensor/tensor.h"

namespace cudaexec {

/// The size of a weight whose program does not record it.
inline constexpr uint64_t kUnrecordedSize = ~uint64_t{0};

/// One storage: a blob of the data file.
struct WeightEntry {
  std::string fqn;  // the name that owns it; tied weights share it
  std::string storage_key;
  uint64_t nbytes = 0;   // kUnrecordedSize: whatever the file has
  std::string digest;    // tree hash, hex; empty where the file records none
  size_t alignment = 1;  // bytes; of the widest dtype it is viewed as
  bool state = false;    // some method writes it: every session has its own copy
  bool on_gpu = false;   // its bytes are on the program's GPU
};

/// A strided view of an entry.
struct WeightView {
  size_t entry = 0;  // index into WeightTable::entries
  Dtype dtype = Dtype::kFloat32;
  Dims sizes, strides;  // elements
  int64_t offset = 0;   // elements

  [[nodiscard]] Tensor over(const StoragePtr& storage) const {
    return {storage, offset, sizes, strides, dtype};
  }
};

struct MethodConstant {
  std::string name;  // as the container calls it; empty: found by `fqn`
  std::string fqn;   // empty: one blob that holds all constants
  WeightView view;
};

struct WeightTable {
  std::vector<WeightEntry> entries;
  std::vector<std::vector<MethodConstant>> methods;  // as the specs they were made from
  std::map<std::string, WeightView> by_fqn;          // tied names too

  /// Whether method `index` reads or writes session state.
  [[nodiscard]] bool uses_state(size_t index) const;
};

/// What the file says of its blobs; `methods` may be a subset of a file's.
struct WeightSource {
  std::vector<const MethodSpec*> methods;
  std::map<std::string, BlobDigest> blobs;     // by storage key; empty digest: not recorded
  std::map<std::string, std::string> aliases;  // FQN -> FQN whose storage it shares
  bool all_state = false;  // the file does not say what is written, so everything may be
  bool on_gpu = false;     // constants that are meant for a GPU go there
  std::string path;        // for messages
};

/// @throws FormatError if a constant leaves its storage or contradicts another method's.
WeightTable build_weight_table(const WeightSource& source);

}  // namespace cudaexec

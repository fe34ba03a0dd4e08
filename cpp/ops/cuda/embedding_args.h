// Arguments of the kernels in cuda/embedding.cu, included by both compilers: plain data only.
#pragma once

#include <cstdint>

namespace cudaexec::cuda {

inline constexpr unsigned kBagThreads = 256;

/// One thread per bag and column. Everything contiguous; int32 or int64 numbers by `wide_*`.
struct EmbeddingBagArgs {
  const void* weight;  // [rows, width]
  const void* indices;
  const void* offsets;
  const void* samples;  // factors of rows, or null
  void* out;            // [bags, width]
  void* bag_of_index;   // dtype of indices, as all that follow
  void* bag_sizes;
  void* max_rows;  // [bags, width] or null
  int64_t bags, width, rows, count;
  int64_t padding;  // a row that does not count, or -1
  int32_t mode;     // 0 sum, 1 mean, 2 max
  int32_t last_offset;
  int32_t wide_indices, wide_offsets;
};

}  // namespace cudaexec::cuda

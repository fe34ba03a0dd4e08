// Arguments of the kernels in cuda/sort.cu, included by both compilers: plain data only.
#pragma once

#include <cstdint>

namespace cudaexec::cuda {

inline constexpr unsigned kSortThreads = 256;
inline constexpr int64_t kSortChunk = 2048;  // entries that one block sorts; a power of two

/// Lines of `length` elements become entries: keys whose order as unsigned numbers is the order
/// wanted (NaN is the largest value, -0 equals 0), and where they were.
struct SortKeysArgs {
  const void* values;  // [lines, length]
  uint64_t* keys;
  int32_t* places;
  int64_t count;   // lines * length
  int64_t length;  // below 2^31
  int32_t descending;
};

/// places[i] = i
struct SortNumberArgs {
  int32_t* places;
  int64_t count;
};

/// Sorts each chunk of each line: one block per chunk.
struct SortChunksArgs {
  uint64_t* keys;
  int32_t* places;
  int64_t length;
  int64_t chunks;  // of a line
};

/// Merges pairs of neighbouring sorted runs; equal keys keep their order.
struct SortMergeArgs {
  const uint64_t* keys;
  const int32_t* places;
  uint64_t* to_keys;
  int32_t* to_places;
  int64_t count;
  int64_t length;
  int64_t run;  // entries of a sorted run
};

/// values[line, i] = source[line, places[line, i]] for the first `kept` places of each line;
/// indices are the places as int64.
struct SortGatherArgs {
  const void* source;
  const int32_t* places;
  void* values;
  int64_t* indices;
  int64_t count;  // lines * kept
  int64_t length;
  int64_t kept;
};

/// out = the lower median of `count` > 0 sorted elements; a NaN if there is one, unless ignored.
struct SortMedianArgs {
  const void* source;
  const uint64_t* keys;
  const int32_t* places;
  void* out;
  int64_t count;
  int32_t floating;
  int32_t ignore_nan;
};

}  // namespace cudaexec::cuda

// Arguments of the kernels in cuda/index.cu and cuda/nonzero.cu, included by both compilers: plain
// data only. Strides of memory in bytes.
#pragma once

#include <cstdint>

namespace cudaexec::cuda {

inline constexpr int kMaxIndexRank = 8;
inline constexpr unsigned kIndexThreads = 256;
inline constexpr int64_t kCompactChunk = 2048;  // elements of a block that compacts

struct IndexShape {
  int32_t rank = 0;
  int64_t sizes[kMaxIndexRank] = {};
};

/// offsets[i] (+)= bounds-checked index[i] * stride, over the positions of the index block.
struct IndexOffsetsArgs {
  const void* index;
  int64_t* offsets;
  int64_t count;
  IndexShape shape;
  int64_t index_strides[kMaxIndexRank];
  int64_t size;    // of the dimension indexed
  int64_t stride;  // of it, bytes
  int32_t wide;    // int64 indices, else int32
  int32_t add;     // to what is there
};

/// Places in self of all elements of self[indices]: offsets[block position] plus the other
/// dimensions. Written to `places` (bytes from self's first element), or read into `result`.
struct IndexPlacesArgs {
  const int64_t* offsets;
  const void* self;
  void* result;     // contiguous over `result_strides`
  int64_t* places;  // int64 [count]
  int64_t count;
  IndexShape shape;
  int64_t self_strides[kMaxIndexRank];
  int64_t result_strides[kMaxIndexRank];
  int64_t block_strides[kMaxIndexRank];  // positions; 0 outside of the block
};

/// places[i] of index[i] in dimension `dim` of out, other coordinates as in index; index
/// contiguous.
struct ScatterPlacesArgs {
  const void* index;
  int64_t* places;
  int64_t count;
  IndexShape shape;
  int64_t out_strides[kMaxIndexRank];
  int64_t size;  // of out's dimension
  int32_t dim;
  int32_t wide;
};

/// out[places[i]] = values[i], or values[0] for all. Of equal places any one stays.
struct WriteAtArgs {
  void* out;
  const int64_t* places;
  const void* values;
  int64_t count;
  int32_t single;
};

enum class Combine : int32_t { kSum, kProd, kMean, kMax, kMin };

/// out[places[i]] += values[i] by atomic additions.
struct AddAtArgs {
  void* out;
  const int64_t* places;
  const void* values;
  int64_t count;
};

/// Runs of equal places (sorted): out[place] combined with values[order[i]] of the run in order.
struct CombineRunsArgs {
  void* out;
  const int64_t* places;
  const int32_t* order;
  const void* values;
  int64_t count;
  Combine combine;
  int32_t include_self;
};

/// counts[block] = elements of the block's chunk that are not 0.
struct CountNonzeroArgs {
  const void* values;
  int64_t* counts;
  int64_t count;
};

/// Exclusive sums in place, the total behind the last; one block.
struct ScanCountsArgs {
  int64_t* counts;
  int64_t count;
};

/// Positions of the elements that are not 0, in order; or for each element its rank among them, -1
/// for the others.
struct CompactArgs {
  const void* values;
  const int64_t* starts;  // of blocks
  int64_t* positions;
  int64_t* ranks;
  int64_t count;
};

/// coordinates[dim * count + i] of positions[i]. Entries beyond `found` are `fill`.
struct UnravelArgs {
  const int64_t* positions;
  int64_t* coordinates;
  int64_t count;
  IndexShape shape;
  int64_t row_stride;  // elements, of coordinates
  int64_t dim_stride;
  const int64_t* found;  // on the device; null: all
  int64_t fill;
};

/// out[i] = source[positions[i]]; contiguous.
struct TakeArgs {
  const void* source;
  const int64_t* positions;
  void* out;
  int64_t count;
};

/// out[i] = the first j with sums[j] > i; sums of counts that are not negative.
struct RepeatArgs {
  const int64_t* sums;
  void* out;
  int64_t length;  // of sums
  int64_t count;   // of out
  int32_t wide;    // int64 results, else int32
};

/// out[i] = ranks[i] < 0 ? self[i] : source[ranks[i]]; contiguous.
struct MaskedScatterArgs {
  const void* self;
  const void* source;
  const int64_t* ranks;
  void* out;
  int64_t count;
  int64_t source_count;
};

}  // namespace cudaexec::cuda

// Arguments of the kernels in cuda/kv_*.cu, included by both compilers: plain data only.
#pragma once

#include <cstdint>

#include "ops/kv_words.h"

namespace cudaexec::cuda {

inline constexpr unsigned kKvThreads = 128;  // of a block that attends
inline constexpr int kKvWarps = kKvThreads / 32;
inline constexpr unsigned kKvAppendThreads = 256;
inline constexpr unsigned kKvCombineThreads = 256;
inline constexpr int kKvMostSplits = 512;
inline constexpr int kKvTokenTile = 16;   // tokens that lie in one page
inline constexpr int kKvMatrixRows = 16;  // query rows of a warp that multiplies matrices
inline constexpr int kKvPlainRows = 8;    // of a block that does not
inline constexpr int kKvPlainDim = 512;   // the largest head_dim of the latter

/// Where the tokens of one layer are (KvLayerView).
struct KvCacheArgs {
  void* base;
  int64_t page_nbytes;
  int64_t key_offset, value_offset;
  int64_t slots;
  int64_t window;  // 0: all
  int32_t block_shift;
  int32_t batch, heads, head_dim;
};

/// Stores the tokens of a step. One thread an element of k or v.
struct KvAppendArgs {
  KvCacheArgs cache;
  KvDeviceWord* word;
  KvFault* fault;
  const int64_t* index;  // [tokens]
  int64_t index_stride;
  const void* k;
  const void* v;
  int64_t k_strides[4], v_strides[4];  // elements
  int64_t count;                       // elements of k
  int32_t tokens;
  // Attention stores the tokens itself, where each token of a kv head is one warp's alone.
  int32_t fused;
};

/// A unit of work is some query rows of a kv head over a part of its tokens; row r of a kv head is
/// token r / group of the step, of the group's head r % group.
struct KvAttendArgs : KvAppendArgs {
  const void* q;
  int64_t q_strides[4];  // elements
  void* out;             // [batch, tokens, heads * group, head_dim]
  float* sums;           // [splits, batch * heads * rows, head_dim]; null: one split, the result
  float* largest;        // [splits, batch * heads * rows, 2]: largest score, sum of exponentials
  float scale;           // of scores, in powers of two
  int32_t group;
  int32_t rows;       // group * tokens
  int32_t tile_rows;  // of a unit
  int32_t row_tiles;
  int32_t splits;
  // Whether a unit of kv_matrix.cu is a block, whose warps share its tokens out among them. If not,
  // it is a warp, and neighbouring ones are row tiles of a head: they read the same tokens.
  int32_t together;
};

}  // namespace cudaexec::cuda

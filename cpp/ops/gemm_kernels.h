// The innermost loops of matrix products, one table for each element type and instruction set. The
// files that define them are compiled for that instruction set, so this header holds plain data
// only: an inline function here could be emitted with instructions that the machine lacks.
#pragma once

#include <cstdint>

namespace cudaexec::ops {

/// What a tile of the product becomes: out = alpha * product + beta * add.
template <typename Acc>
struct TileOutput {
  Acc* out;  // row-major with `ld` elements between rows
  int64_t ld;
  const Acc* add;  // null: nothing is added; may be `out`
  int64_t add_ld;  // 0: the same row for all
  Acc alpha;
  Acc beta;
};

/// The general form of the above: converts a tile of accumulators to the dtype of `out`.
template <typename Acc>
struct FinishArgs {
  const Acc* tile;
  int64_t tile_ld;
  int64_t rows;
  int64_t cols;
  void* out;  // strides in elements of the kernel's dtype
  int64_t out_row_stride;
  int64_t out_col_stride;
  const void* add;  // null: nothing is added; may be `out`
  int64_t add_row_stride;
  int64_t add_col_stride;
  Acc alpha;
  Acc beta;
};

inline constexpr int kMaxTileRows = 14;
inline constexpr int kMaxPanelCols = 32;

/// Strides count elements of the unpacked dtype. A is packed in tiles of r <= mr rows as [k][r] and
/// B in panels of nr columns as [k][nr], where k counts groups of `k_group` steps kept together;
/// missing columns and steps are zero.
template <typename Acc>
struct GemmKernel {
  int mr;            // rows of a full tile
  int nr;            // columns of a panel
  int k_group;       // consecutive k packed side by side in B
  int a_group_size;  // bytes of one row's entry of one group in packed A
  int b_group_size;  // bytes of one column's entry of one group in packed B
  bool b_in_place;   // whether row-major B can be read as it lies

  /// out[0:rows][0:nr]; `b_step`: bytes from one group of B to the next.
  using Tile = void (*)(int64_t groups, const void* a, const void* b, int64_t b_step,
                        const TileOutput<Acc>& output);
  Tile tile[kMaxTileRows + 1];  // by rows, from 1 to mr

  /// Writes rows * groups entries; may touch kPackSlack bytes behind them.
  void (*pack_a)(void* dst, const void* src, int64_t rows, int64_t k, int64_t row_stride,
                 int64_t k_stride);
  /// Writes one panel from `cols` <= nr columns.
  void (*pack_b)(void* dst, const void* src, int64_t k, int64_t cols, int64_t k_stride,
                 int64_t col_stride);
  void (*finish)(const FinishArgs<Acc>& args);
  /// Elements of any stride to accumulator type.
  void (*widen)(Acc* dst, const void* src, int64_t count, int64_t stride);
  /// result[c] = sum of a[i] * b[c * col_stride + i]: columns contiguous in k.
  void (*dot)(Acc* result, const Acc* a, const void* b, int64_t k, int64_t cols,
              int64_t col_stride);
  /// result[c] = sum of a[i] * b[i * k_stride + c]: rows contiguous in c.
  void (*axpy)(Acc* result, const Acc* a, const void* b, int64_t k, int64_t cols, int64_t k_stride);
};

inline constexpr int64_t kPackSlack = 64;  // bytes

/// One instruction set's kernels.
struct GemmKernelSet {
  const char* name;
  GemmKernel<float> f32;
  GemmKernel<float> bf16;
  GemmKernel<float> f16;
  GemmKernel<double> f64;
  GemmKernel<int32_t> i8;  // int8 operands, int32 result
};

extern const GemmKernelSet kGemmPortable;
extern const GemmKernelSet kGemmAvx2;
extern const GemmKernelSet kGemmAvx512;
/// Replaces kGemmAvx512.bf16 where AVX512_BF16 is there.
extern const GemmKernel<float> kGemmBf16Pairs;

}  // namespace cudaexec::ops

// Rows without packing, the general store of a tile, and the table of one element type. Included by
// a file that is compiled for one instruction set.
#include "ops/gemm_tile.inl"

namespace cudaexec::ops {
namespace {

template <typename V>
inline auto sum_lanes(V v) {
  auto total = v[0];
  for (int i = 1; i < static_cast<int>(sizeof(V) / sizeof(v[0])); ++i) total += v[i];
  return total;
}
#if defined(__AVX512F__)
inline float sum_lanes(VecF v) { return _mm512_reduce_add_ps((__m512)v); }
inline double sum_lanes(VecD v) { return _mm512_reduce_add_pd((__m512d)v); }
#endif

/// `Cols` columns that are contiguous in k.
template <class E, int Cols>
inline void dot_columns(typename E::Acc* result, const typename E::Acc* a,
                        const typename E::Elem* b, int64_t k, int64_t col_stride) {
  using Acc = typename E::Acc;
  using V = typename E::V;
  constexpr int64_t kStep = kLanes<Acc>;
  V first[Cols] = {}, second[Cols] = {};
  int64_t i = 0;
  for (; i + 2 * kStep <= k; i += 2 * kStep) {
    const V a0 = load(a + i), a1 = load(a + i + kStep);
#pragma GCC unroll 8
    for (int c = 0; c < Cols; ++c) {
      const auto* column = b + c * col_stride + i;
      first[c] += a0 * E::load_wide(column);
      second[c] += a1 * E::load_wide(column + kStep);
    }
  }
  if (i + kStep <= k) {
    const V a0 = load(a + i);
    for (int c = 0; c < Cols; ++c) first[c] += a0 * E::load_wide(b + c * col_stride + i);
    i += kStep;
  }
  for (int c = 0; c < Cols; ++c) {
    Acc total = sum_lanes(first[c] + second[c]);
    for (int64_t j = i; j < k; ++j) total += a[j] * E::widen(b[c * col_stride + j]);
    result[c] = total;
  }
}

template <class E>
void dot(typename E::Acc* result, const typename E::Acc* a, const void* b_raw, int64_t k,
         int64_t cols, int64_t col_stride) {
  const auto* b = static_cast<const typename E::Elem*>(b_raw);
  int64_t c = 0;
  for (; c + 4 <= cols; c += 4) dot_columns<E, 4>(result + c, a, b + c * col_stride, k, col_stride);
  for (; c < cols; ++c) dot_columns<E, 1>(result + c, a, b + c * col_stride, k, col_stride);
}

/// `Vectors` * lanes columns of rows that are contiguous in c.
template <class E, int Vectors>
inline void axpy_block(typename E::Acc* result, const typename E::Acc* a, const typename E::Elem* b,
                       int64_t k, int64_t k_stride) {
  using V = typename E::V;
  constexpr int64_t kStep = kLanes<typename E::Acc>;
  V acc[Vectors] = {};
  for (int64_t i = 0; i < k; ++i) {
    const V x = a[i] - V{};
    const auto* row = b + i * k_stride;
#pragma GCC unroll 16
    for (int v = 0; v < Vectors; ++v) {
      // PF __builtin_prefetch(row + 16 * k_stride + v * kStep);
      acc[v] += x * E::load_wide(row + v * kStep);
    }
  }
  for (int v = 0; v < Vectors; ++v) store(result + v * kStep, acc[v]);
}

template <class E>
void axpy(typename E::Acc* result, const typename E::Acc* a, const void* b_raw, int64_t k,
          int64_t cols, int64_t k_stride) {
  constexpr int64_t kStep = kLanes<typename E::Acc>;
  const auto* b = static_cast<const typename E::Elem*>(b_raw);
  int64_t c = 0;
  for (; c + 16 * kStep <= cols; c += 16 * kStep)
    axpy_block<E, 16>(result + c, a, b + c, k, k_stride);
  for (; c + 8 * kStep <= cols; c += 8 * kStep) axpy_block<E, 8>(result + c, a, b + c, k, k_stride);
  for (; c + 2 * kStep <= cols; c += 2 * kStep) axpy_block<E, 2>(result + c, a, b + c, k, k_stride);
  for (; c + kStep <= cols; c += kStep) axpy_block<E, 1>(result + c, a, b + c, k, k_stride);
  for (; c < cols; ++c) {
    typename E::Acc total = 0;
    for (int64_t i = 0; i < k; ++i) total += a[i] * E::widen(b[i * k_stride + c]);
    result[c] = total;
  }
}

template <class E>
void finish_tile(const FinishArgs<typename E::Acc>& args) {
  using Acc = typename E::Acc;
  using Out = typename E::Out;
  for (int64_t r = 0; r < args.rows; ++r) {
    const Acc* tile = args.tile + r * args.tile_ld;
    Out* out = static_cast<Out*>(args.out) + r * args.out_row_stride;
    const Out* add = static_cast<const Out*>(args.add);
    if (add != nullptr) add += r * args.add_row_stride;
    if (args.out_col_stride == 1 && add == nullptr) {
      for (int64_t c = 0; c < args.cols; ++c) out[c] = E::narrow(args.alpha * tile[c]);
    } else if (args.out_col_stride == 1 && args.add_col_stride == 1) {
      for (int64_t c = 0; c < args.cols; ++c) {
        out[c] = E::narrow(args.alpha * tile[c] + args.beta * E::widen(add[c]));
      }
    } else {
      for (int64_t c = 0; c < args.cols; ++c) {
        Acc value = args.alpha * tile[c];
        if (add != nullptr) value += args.beta * E::widen(add[c * args.add_col_stride]);
        out[c * args.out_col_stride] = E::narrow(value);
      }
    }
  }
}

template <class E>
void widen_elements(typename E::Acc* dst, const void* src_raw, int64_t count, int64_t stride) {
  const auto* src = static_cast<const typename E::Elem*>(src_raw);
  for (int64_t i = 0; i < count; ++i) dst[i] = E::widen(src[i * stride]);
}

template <class S, int MR>
constexpr void fill_tiles(GemmKernel<typename S::Acc>& kernel) {
  kernel.tile[MR] = compute_tile<S, MR>;
  if constexpr (MR > 1) fill_tiles<S, MR - 1>(kernel);
}

template <class S>
constexpr GemmKernel<typename S::Acc> make_kernel() {
  using E = typename S::Element;
  GemmKernel<typename S::Acc> kernel{};
  kernel.mr = kTileRows;
  kernel.nr = kPanelVectors * kLanes<typename S::Acc>;
  kernel.k_group = S::kGroup;
  kernel.a_group_size = static_cast<int>(sizeof(typename S::PackedA));
  kernel.b_group_size = static_cast<int>(sizeof(typename S::PackedB));
  kernel.b_in_place = S::kGroup == 1 && sizeof(typename S::PackedB) == sizeof(typename E::Elem);
  fill_tiles<S, kTileRows>(kernel);
  kernel.pack_a = pack_a_tile<S>;
  kernel.pack_b = pack_b_panel<S>;
  kernel.finish = finish_tile<E>;
  kernel.widen = widen_elements<E>;
  kernel.dot = dot<E>;
  kernel.axpy = axpy<E>;
  return kernel;
}

}  // namespace
}  // namespace cudaexec::ops

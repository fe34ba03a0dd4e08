// Scatter of whole rows, as message passing in graphs makes it: the index is expanded over
// features.
#include <algorithm>

#include "device/thread_pool.h"
#include "ops/operand.h"
#include "ops/row_math.h"
#include "ops/scatter_reduce.h"

namespace cudaexec::ops {
namespace {

struct Rows {
  const int64_t* index;
  int64_t count;
  int64_t width;
  int64_t out_stride;  // elements between rows of out
};

void check_index(const Rows& rows, int64_t limit) {
  for (int64_t i = 0; i < rows.count; ++i) {
    if (rows.index[i] < 0 || rows.index[i] >= limit) {
      throw InputError(str("scatter_reduce: index ", rows.index[i],
                           " is out of range for dimension 0 of size ", limit, "; expected 0 to ",
                           limit - 1));
    }
  }
}

// Threads share the columns, so that each element is combined by one of them, in order.
template <typename Body>
void for_columns(const Rows& rows, Body body) {
  constexpr int64_t kLeast = 16;
  const int64_t grain = std::max(kLeast, kGrain / std::max<int64_t>(rows.count, 1));
  parallel_for(rows.width, grain, body);
}

template <typename T>
void combine_row(Reduce reduce, T* to, const T* from, int64_t count) {
  if constexpr (std::is_floating_point_v<T>) {
    if (reduce == Reduce::kSum || reduce == Reduce::kMean) {
      add_scaled<T>(to, from, T{1}, count);
      return;
    }
  }
  for (int64_t i = 0; i < count; ++i) combine(reduce, to[i], from[i]);
}

template <typename T>
void divide_rows(const Rows& rows, T* out, int64_t out_rows, bool include_self,
                 const OpContext& context) {
  const Tensor counts = empty(Dims{out_rows}, Dtype::kInt64, context);
  auto* count = counts.data_as<int64_t>();
  std::fill_n(count, out_rows, include_self ? 1 : 0);
  for (int64_t i = 0; i < rows.count; ++i) ++count[rows.index[i]];
  for_columns(rows, [&](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < out_rows; ++row) {
      if (count[row] < 2) continue;
      T* to = out + row * rows.out_stride;
      for (int64_t c = begin; c < end; ++c) to[c] = divide(to[c], count[row]);
    }
  });
}

}  // namespace

void scatter_rows(const Tensor& out, const Tensor& index, const Tensor& src, Reduce reduce,
                  bool include_self, const OpContext& context) {
  const Rows rows{index.data_as<const int64_t>(), index.numel(), src.numel() / index.numel(),
                  out.stride(0)};
  check_index(rows, out.size(0));
  dispatch_dtype(out.dtype(), [&]<typename T>(T) {
    if constexpr (!kIsReduced<T>) {
      T* to = out.data_as<T>();
      const T* from = src.data_as<const T>();
      for_columns(rows, [&](int64_t begin, int64_t end) {
        for (int64_t i = 0; !include_self && i < rows.count; ++i) {
          T* row = to + rows.index[i] * rows.out_stride;
          std::fill(row + begin, row + end, identity_of<T>(reduce));
        }
        for (int64_t i = 0; i < rows.count; ++i) {
          combine_row(reduce, to + rows.index[i] * rows.out_stride + begin,
                      from + i * rows.width + begin, end - begin);
        }
      });
      if (reduce == Reduce::kMean) divide_rows(rows, to, out.size(0), include_self, context);
    }
  });
}

}  // namespace cudaexec::ops

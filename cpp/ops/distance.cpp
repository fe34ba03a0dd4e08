#include "ops/distance.h"

#include <algorithm>
#include <cmath>

#include "device/thread_pool.h"
#include "ops/gemm.h"
#include "ops/operand.h"
#include "ops/sort_keys.h"

namespace cudaexec::ops {
namespace {

constexpr int64_t kLanes = 16;         // independent sums, so that the compiler can use vectors
constexpr int64_t kProductRows = 25;   // above this torch uses a matrix product
constexpr int64_t kProductWidth = 16;  // below this the product does not pay

// A norm: of the differences' magnitudes d, the state is step(state, d), finally finish(state).
struct CountNonzero {
  template <typename T>
  T step(T state, T d) const {
    return state + (d == T{} ? T{} : T{1});
  }
  template <typename T>
  T finish(T state) const {
    return state;
  }
};
struct SumNorm {
  template <typename T>
  T step(T state, T d) const {
    return state + d;
  }
  template <typename T>
  T finish(T state) const {
    return state;
  }
};
struct EuclideanNorm {
  template <typename T>
  T step(T state, T d) const {
    return state + d * d;
  }
  template <typename T>
  T finish(T state) const {
    return std::sqrt(state);
  }
};
struct PowerNorm {
  double p;
  template <typename T>
  T step(T state, T d) const {
    return state + std::pow(d, static_cast<T>(p));
  }
  template <typename T>
  T finish(T state) const {
    return std::pow(state, static_cast<T>(1 / p));
  }
};
struct MaxNorm {
  // NaN stays: a NaN state wins every comparison below.
  template <typename T>
  T step(T state, T d) const {
    return d > state || d != d ? d : state;
  }
  template <typename T>
  T finish(T state) const {
    return state;
  }
};

template <typename Norm>
inline constexpr bool kIsMax = std::is_same_v<Norm, MaxNorm>;

template <typename T, typename Norm>
T row_distance(const T* a, const T* b, int64_t width, const Norm& norm) {
  T sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] = norm.step(sums[lane], std::abs(a[i + lane] - b[i + lane]));
    }
  }
  T total{};
  for (; i < width; ++i) total = norm.step(total, std::abs(a[i] - b[i]));
  for (const T sum : sums) {
    if constexpr (kIsMax<Norm>) {
      total = norm.step(total, sum);
    } else {
      total += sum;
    }
  }
  return norm.finish(total);
}

template <typename Body>
void dispatch_norm(const char* op, double p, Body body) {
  if (!(p >= 0)) throw InputError(str(op, ": p is ", p, "; expected 0 or more"));
  if (p == 0) return body(CountNonzero{});
  if (p == 1) return body(SumNorm{});
  if (p == 2) return body(EuclideanNorm{});
  if (std::isinf(p)) return body(MaxNorm{});
  return body(PowerNorm{p});
}

template <typename Body>
void dispatch_real(Dtype dtype, Body body) {
  if (dtype == Dtype::kFloat32) {
    body(float{});
  } else {
    body(double{});
  }
}

Dims with_tail(const Dims& batch, int64_t rows, int64_t columns) {
  Dims sizes(batch.size() + 2);
  std::copy(batch.begin(), batch.end(), sizes.begin());
  sizes[batch.size()] = rows;
  sizes[batch.size() + 1] = columns;
  return sizes;
}

struct Rows {
  Tensor a, b;  // contiguous [batch, rows, width]
  int64_t batch, a_rows, b_rows, width;
};

template <typename T>
Tensor squared_norms(const Tensor& rows, int64_t count, int64_t width, const OpContext& context) {
  Tensor result = empty(Dims{count}, rows.dtype(), context);
  const T* data = rows.data_as<const T>();
  T* out = result.data_as<T>();
  parallel_for(count, std::max<int64_t>(1, kGrain / std::max<int64_t>(width, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   T sum{};
                   for (int64_t c = 0; c < width; ++c) {
                     sum += data[i * width + c] * data[i * width + c];
                   }
                   out[i] = sum;
                 }
               });
  return result;
}

// |a - b|^2 = |a|^2 + |b|^2 - 2 a.b
template <typename T>
void product_distances(const Rows& rows, const Tensor& out, const OpContext& context) {
  GemmProblem problem;
  problem.dtype = rows.a.dtype();
  problem.batch = rows.batch;
  problem.m = rows.a_rows;
  problem.n = rows.b_rows;
  problem.k = rows.width;
  problem.alpha = -2;
  problem.a = {rows.a.data(), rows.a_rows * rows.width, rows.width, 1, nullptr, 0};
  problem.b = {rows.b.data(), rows.b_rows * rows.width, 1, rows.width, nullptr, 0};
  problem.out = {out.data(), rows.a_rows * rows.b_rows, rows.b_rows, 1, nullptr, 0};
  gemm(problem, context);
  const Tensor a_norms = squared_norms<T>(rows.a, rows.batch * rows.a_rows, rows.width, context);
  const Tensor b_norms = squared_norms<T>(rows.b, rows.batch * rows.b_rows, rows.width, context);
  const T* a_norm = a_norms.data_as<const T>();
  const T* b_norm = b_norms.data_as<const T>();
  T* to = out.data_as<T>();
  parallel_for(rows.batch * rows.a_rows, std::max<int64_t>(1, kGrain / rows.b_rows),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const T* norms = b_norm + i / rows.a_rows * rows.b_rows;
                   T* line = to + i * rows.b_rows;
                   for (int64_t j = 0; j < rows.b_rows; ++j) {
                     const T square = line[j] + a_norm[i] + norms[j];
                     line[j] = std::sqrt(square < T{} ? T{} : square);
                   }
                 }
               });
}

template <typename T, typename Norm>
void direct_distances(const Rows& rows, const Tensor& out, const Norm& norm) {
  const T* a = rows.a.data_as<const T>();
  const T* b = rows.b.data_as<const T>();
  T* to = out.data_as<T>();
  const int64_t work = std::max<int64_t>(1, rows.b_rows * rows.width);
  parallel_for(rows.batch * rows.a_rows, std::max<int64_t>(1, kGrain / work),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const T* others = b + i / rows.a_rows * rows.b_rows * rows.width;
                   for (int64_t j = 0; j < rows.b_rows; ++j) {
                     to[i * rows.b_rows + j] = row_distance(
                         a + i * rows.width, others + j * rows.width, rows.width, norm);
                   }
                 }
               });
}

Rows prepare(const Tensor& x1, const Tensor& x2, Dims& batch, const OpContext& context) {
  require_dtype("cdist", "x1", x1, {Dtype::kFloat32, Dtype::kFloat64});
  require_same_dtype("cdist", "x1", x1, "x2", x2);
  const size_t rank1 = x1.sizes().size();
  const size_t rank2 = x2.sizes().size();
  if (rank1 < 2 || rank2 < 2 || x1.size(rank1 - 1) != x2.size(rank2 - 1)) {
    throw ShapeError(str("cdist: x1 ", describe(x1), " and x2 ", describe(x2),
                         "; expected 2 dimensions or more, the last ones equal"));
  }
  batch = broadcast_sizes("cdist", std::vector<Dims>{Dims(x1.sizes().data(), rank1 - 2),
                                                     Dims(x2.sizes().data(), rank2 - 2)});
  Rows rows;
  rows.width = x1.size(rank1 - 1);
  rows.a_rows = x1.size(rank1 - 2);
  rows.b_rows = x2.size(rank2 - 2);
  rows.batch = 1;
  for (const int64_t size : batch) rows.batch *= size;
  rows.a = contiguous(expand("cdist", x1, with_tail(batch, rows.a_rows, rows.width)), context);
  rows.b = contiguous(expand("cdist", x2, with_tail(batch, rows.b_rows, rows.width)), context);
  return rows;
}

}  // namespace

Tensor cdist(const Tensor& x1, const Tensor& x2, double p, CdistMode mode,
             const OpContext& context) {
  Dims batch;
  const Rows rows = prepare(x1, x2, batch, context);
  Tensor out = empty(with_tail(batch, rows.a_rows, rows.b_rows), x1.dtype(), context);
  const bool large =
      std::max(rows.a_rows, rows.b_rows) > kProductRows && rows.width >= kProductWidth;
  const bool product =
      p == 2 && rows.width > 0 && out.numel() > 0 &&
      (mode == CdistMode::kProduct || (mode == CdistMode::kProductIfLarge && large));
  dispatch_real(x1.dtype(), [&]<typename T>(T) {
    if (product) return product_distances<T>(rows, out, context);
    dispatch_norm("cdist", p, [&](const auto& norm) { direct_distances<T>(rows, out, norm); });
  });
  return out;
}

Tensor pdist(const Tensor& x, double p, const OpContext& context) {
  require_dtype("pdist", "self", x, {Dtype::kFloat32, Dtype::kFloat64});
  require_rank("pdist", "self", x, 2);
  const Tensor rows = contiguous(x, context);
  const int64_t count = x.size(0);
  const int64_t width = x.size(1);
  Tensor out = empty(Dims{count < 2 ? 0 : count * (count - 1) / 2}, x.dtype(), context);
  dispatch_real(x.dtype(), [&]<typename T>(T) {
    const T* data = rows.data_as<const T>();
    T* to = out.data_as<T>();
    dispatch_norm("pdist", p, [&](const auto& norm) {
      const int64_t work = std::max<int64_t>(1, count * width);
      parallel_for(count, std::max<int64_t>(1, kGrain / work), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          int64_t at = i * count - i * (i + 1) / 2;
          for (int64_t j = i + 1; j < count; ++j) {
            to[at++] = row_distance(data + i * width, data + j * width, width, norm);
          }
        }
      });
    });
  });
  return out;
}

}  // namespace cudaexec::ops

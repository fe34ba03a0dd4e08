#include "ops/misc.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "device/thread_pool.h"
#include "ops/operand.h"
#include "tensor/convert.h"
#include "tensor/rows.h"

namespace cudaexec::ops {
namespace {

template <typename T>
using Compute = std::conditional_t<kIsReduced<T>, float, T>;

template <typename T>
void norm_row(const T* in, const T* weight, int64_t width, Compute<T> eps, T* out,
              Compute<T>& root) {
  using C = Compute<T>;
  C sum{};
  for (int64_t i = 0; i < width; ++i) {
    sum += static_cast<C>(in[i]) * static_cast<C>(in[i]);
  }
  root = C{1} / std::sqrt(sum / static_cast<C>(width) + eps);
  for (int64_t i = 0; i < width; ++i) {
    const C value = static_cast<C>(in[i]) * root;
    out[i] = static_cast<T>(weight != nullptr ? value * static_cast<C>(weight[i]) : value);
  }
}

}  // namespace

std::pair<Tensor, Tensor> rms_norm(const Tensor& input, std::span<const int64_t> normalized,
                                   const Tensor* weight, std::optional<double> eps,
                                   const OpContext& context) {
  require_floating("rms_norm", "input", input);
  const size_t rank = input.sizes().size();
  const size_t count = normalized.size();
  if (count == 0 || count > rank ||
      !std::equal(normalized.begin(), normalized.end(), input.sizes().end() - count)) {
    throw ShapeError(str("rms_norm: normalized_shape ", list_str(normalized), " for input ",
                         describe(input), "; expected its last sizes"));
  }
  Tensor scale;
  if (weight != nullptr) {
    if (!std::equal(normalized.begin(), normalized.end(), weight->sizes().begin(),
                    weight->sizes().end())) {
      throw ShapeError(
          str("rms_norm: weight ", describe(*weight), "; expected sizes ", list_str(normalized)));
    }
    scale = contiguous_as(*weight, input.dtype(), context);
  }
  Dims root_sizes = input.sizes();
  int64_t width = 1;
  for (size_t i = rank - count; i < rank; ++i) {
    width *= input.size(i);
    root_sizes[i] = 1;
  }
  const Tensor packed = contiguous(input, context);
  Tensor out = empty(input.sizes(), input.dtype(), context);
  const bool wide = input.dtype() == Dtype::kFloat64;
  Tensor roots = empty(root_sizes, wide ? Dtype::kFloat64 : Dtype::kFloat32, context);
  dispatch_dtype(input.dtype(), [&]<typename T>(T) {
    if constexpr (kIsFloating<T>) {
      using C = Compute<T>;
      const C least = static_cast<C>(eps.value_or(std::numeric_limits<C>::epsilon()));
      const T* factors = scale.defined() ? scale.data_as<const T>() : nullptr;
      parallel_for(roots.numel(), std::max<int64_t>(1, kGrain / std::max<int64_t>(width, 1)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t row = begin; row < end; ++row) {
                       norm_row(packed.data_as<const T>() + row * width, factors, width, least,
                                out.data_as<T>() + row * width, roots.data_as<C>()[row]);
                     }
                   });
    }
  });
  return {std::move(out), std::move(roots)};
}

Tensor hann_window(int64_t length, Dtype dtype, const OpContext& context) {
  if (length < 0) {
    throw InputError(str("hann_window: length is ", length, "; expected 0 or more"));
  }
  Tensor result = empty(Dims{length}, dtype, context);
  require_floating("hann_window", "the result", result);
  dispatch_dtype(dtype, [&]<typename T>(T) {
    T* out = result.data_as<T>();
    for (int64_t i = 0; i < length; ++i) {
      const double angle =
          2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(length);
      out[i] = convert_value<T>(length == 1 ? 1.0 : 0.5 - 0.5 * std::cos(angle));
    }
  });
  return result;
}

namespace {

// A view with dimensions of size 1 inserted.
Tensor unsqueezed(const TrilinearOperand& operand) {
  std::vector<int64_t> sizes(operand.tensor.sizes().begin(), operand.tensor.sizes().end());
  std::vector<int64_t> strides(operand.tensor.strides().begin(), operand.tensor.strides().end());
  for (const int64_t dim : operand.expand) {
    if (dim < 0 || dim > static_cast<int64_t>(sizes.size())) {
      throw ShapeError(str("trilinear: expand dimension ", dim, " does not exist"));
    }
    sizes.insert(sizes.begin() + dim, 1);
    strides.insert(strides.begin() + dim, 0);
  }
  return {operand.tensor.storage(), operand.tensor.offset(), Dims(sizes.data(), sizes.size()),
          Dims(strides.data(), strides.size()), operand.tensor.dtype()};
}

// The same dimensions of three tensors.
struct TripleAxis {
  int64_t size;
  std::array<int64_t, 3> stride;
};

using Offsets = std::array<int64_t, 3>;

void add_offsets(const std::vector<TripleAxis>& axes, int64_t index, Offsets& offsets) {
  for (size_t i = axes.size(); i-- > 0;) {
    const int64_t at = index % axes[i].size;
    index /= axes[i].size;
    for (size_t k = 0; k < 3; ++k) offsets[k] += at * axes[i].stride[k];
  }
}

float dot(const float* a, const float* b, int64_t count) {
  return row_kernels().dot_f32(a, b, count);
}
double dot(const double* a, const double* b, int64_t count) {
  return row_kernels().dot_f64(a, b, count);
}

template <typename T>
Compute<T> triple_sum(const std::array<const T*, 3>& data, const Offsets& start,
                      const std::vector<TripleAxis>& outer, int64_t outer_count,
                      const TripleAxis& inner) {
  using C = Compute<T>;
  C sum{};
  for (int64_t i = 0; i < outer_count; ++i) {
    Offsets at = start;
    add_offsets(outer, i, at);
    if constexpr (!kIsReduced<T>) {
      if (inner.stride == Offsets{0, 1, 1}) {
        sum += data[0][at[0]] * dot(data[1] + at[1], data[2] + at[2], inner.size);
        continue;
      }
    }
    for (int64_t j = 0; j < inner.size; ++j) {
      sum += static_cast<C>(data[0][at[0] + j * inner.stride[0]]) *
             static_cast<C>(data[1][at[1] + j * inner.stride[1]]) *
             static_cast<C>(data[2][at[2] + j * inner.stride[2]]);
    }
  }
  return sum;
}

}  // namespace

Tensor trilinear(const TrilinearOperand& i1, const TrilinearOperand& i2, const TrilinearOperand& i3,
                 std::span<const int64_t> sum, const OpContext& context) {
  require_floating("trilinear", "i1", i1.tensor);
  require_same_dtype("trilinear", "i1", i1.tensor, "i2", i2.tensor);
  require_same_dtype("trilinear", "i1", i1.tensor, "i3", i3.tensor);
  std::array<Tensor, 3> operands{unsqueezed(i1), unsqueezed(i2), unsqueezed(i3)};
  const Dims sizes = broadcast_sizes(
      "trilinear",
      std::vector<Dims>{operands[0].sizes(), operands[1].sizes(), operands[2].sizes()});
  for (Tensor& operand : operands) operand = expand("trilinear", operand, sizes);
  std::vector<TripleAxis> kept;
  std::vector<TripleAxis> summed;
  std::vector<int64_t> out_sizes;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    const TripleAxis axis{
        sizes[dim], {operands[0].stride(dim), operands[1].stride(dim), operands[2].stride(dim)}};
    const bool is_summed =
        std::find(sum.begin(), sum.end(), static_cast<int64_t>(dim)) != sum.end();
    (is_summed ? summed : kept).push_back(axis);
    if (!is_summed) out_sizes.push_back(sizes[dim]);
  }
  TripleAxis inner{1, {0, 0, 0}};
  if (!summed.empty()) {
    inner = summed.back();
    summed.pop_back();
  }
  int64_t outer_count = 1;
  for (const TripleAxis& axis : summed) outer_count *= axis.size;
  Tensor result = empty(out_sizes, i1.tensor.dtype(), context);
  dispatch_dtype(result.dtype(), [&]<typename T>(T) {
    if constexpr (kIsFloating<T>) {
      const std::array<const T*, 3> data{operands[0].data_as<const T>(),
                                         operands[1].data_as<const T>(),
                                         operands[2].data_as<const T>()};
      const int64_t work = std::max<int64_t>(1, outer_count * inner.size);
      parallel_for(result.numel(), std::max<int64_t>(1, kGrain / work),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       Offsets start{};
                       add_offsets(kept, i, start);
                       result.data_as<T>()[i] =
                           static_cast<T>(triple_sum<T>(data, start, summed, outer_count, inner));
                     }
                   });
    }
  });
  return result;
}

}  // namespace cudaexec::ops

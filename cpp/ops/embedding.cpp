#include "ops/embedding.h"

#include <algorithm>

#include "device/thread_pool.h"
#include "ops/operand.h"
#include "ops/row_math.h"
#include "tensor/convert.h"

namespace cudaexec::ops {
namespace {

constexpr const char* kOp = "embedding_bag";

struct Bags {
  Tensor weight;   // contiguous
  Tensor indices;  // int64, contiguous, checked
  Tensor starts;   // int64 [bags + 1], checked
  Tensor samples;  // contiguous, or undefined
  int64_t count = 0;
  int64_t width = 0;
};

void check_indices(const Tensor& indices, int64_t rows) {
  const auto* index = indices.data_as<const int64_t>();
  for (int64_t i = 0; i < indices.numel(); ++i) {
    if (index[i] < 0 || index[i] >= rows) {
      throw InputError(str(kOp, ": indices[", i, "] is ", index[i], "; expected 0 to ", rows - 1,
                           ", the rows of weight"));
    }
  }
}

Tensor bag_starts(const Tensor& offsets, int64_t bags, int64_t indices, const OpContext& context) {
  const Tensor packed = contiguous_as(offsets, Dtype::kInt64, context);
  const auto* offset = packed.data_as<const int64_t>();
  Tensor starts = empty(Dims{bags + 1}, Dtype::kInt64, context);
  auto* start = starts.data_as<int64_t>();
  std::copy_n(offset, bags, start);
  start[bags] = packed.numel() > bags ? offset[bags] : indices;
  if (bags > 0 && start[0] != 0) {
    throw InputError(str(kOp, ": offsets[0] is ", start[0], "; expected 0"));
  }
  for (int64_t i = 0; i < bags; ++i) {
    if (start[i + 1] < start[i] || start[i + 1] > indices) {
      throw InputError(str(kOp, ": offsets[", i, "] is ", start[i], " and the bag ends at ",
                           start[i + 1], "; expected offsets in order, up to the ", indices,
                           " indices"));
    }
  }
  return starts;
}

Bags prepare(const Tensor& weight, const Tensor& indices, const Tensor& offsets,
             const EmbeddingBagOptions& options, const OpContext& context) {
  require_floating(kOp, "weight", weight);
  require_rank(kOp, "weight", weight, 2);
  require_index(kOp, "indices", indices);
  require_rank(kOp, "indices", indices, 1);
  require_index(kOp, "offsets", offsets);
  require_rank(kOp, "offsets", offsets, 1);
  if (options.include_last_offset && offsets.numel() == 0) {
    throw ShapeError(str(kOp, ": offsets is empty; expected the last offset at least"));
  }
  Bags bags;
  bags.weight = contiguous(weight, context);
  bags.width = weight.size(1);
  bags.indices = contiguous_as(indices, Dtype::kInt64, context);
  check_indices(bags.indices, weight.size(0));
  bags.count = offsets.numel() - (options.include_last_offset ? 1 : 0);
  bags.starts = bag_starts(offsets, bags.count, indices.numel(), context);
  if (options.per_sample_weights != nullptr) {
    const Tensor& samples = *options.per_sample_weights;
    require_same_dtype(kOp, "weight", weight, "per_sample_weights", samples);
    if (options.mode != BagMode::kSum || !(samples.sizes() == indices.sizes())) {
      throw ShapeError(str(kOp, ": per_sample_weights ", describe(samples), " for indices ",
                           describe(indices), "; expected equal sizes, and the mode sum"));
    }
    bags.samples = contiguous(samples, context);
  }
  return bags;
}

// One bag of sum or mean; returns the rows that count.
template <typename T, typename Sum>
int64_t sum_bag(const Bags& bags, int64_t bag, int64_t padding, bool mean, Sum* sums, T* out) {
  const auto* start = bags.starts.data_as<const int64_t>();
  const auto* index = bags.indices.data_as<const int64_t>();
  const auto* table = bags.weight.data_as<const T>();
  const T* samples = bags.samples.defined() ? bags.samples.data_as<const T>() : nullptr;
  std::fill_n(sums, bags.width, Sum{});
  int64_t rows = 0;
  for (int64_t i = start[bag]; i < start[bag + 1]; ++i) {
    if (index[i] == padding) continue;
    ++rows;
    const Sum factor = samples != nullptr ? static_cast<Sum>(samples[i]) : Sum{1};
    add_scaled(sums, table + index[i] * bags.width, factor, bags.width);
  }
  const Sum divisor = mean && rows > 0 ? static_cast<Sum>(rows) : Sum{1};
  for (int64_t c = 0; c < bags.width; ++c) out[c] = static_cast<T>(sums[c] / divisor);
  return rows;
}

template <typename T>
int64_t max_bag(const Bags& bags, int64_t bag, int64_t padding, T* out, int64_t* max_rows) {
  const auto* start = bags.starts.data_as<const int64_t>();
  const auto* index = bags.indices.data_as<const int64_t>();
  const auto* table = bags.weight.data_as<const T>();
  int64_t rows = 0;
  std::fill_n(out, bags.width, T(0));
  std::fill_n(max_rows, bags.width, 0);
  for (int64_t i = start[bag]; i < start[bag + 1]; ++i) {
    if (index[i] == padding) continue;
    const T* row = table + index[i] * bags.width;
    for (int64_t c = 0; c < bags.width; ++c) {
      if (rows == 0 || row[c] > out[c]) {
        out[c] = row[c];
        max_rows[c] = index[i];
      }
    }
    ++rows;
  }
  return rows;
}

template <typename T>
void run_bags(const Bags& bags, const EmbeddingBagOptions& options, const Tensor& out,
              int64_t* sizes, int64_t* max_rows, const OpContext& context) {
  using Sum = RowSum<T>;
  const int64_t work =
      std::max<int64_t>(1, bags.indices.numel() / std::max<int64_t>(bags.count, 1)) *
      std::max<int64_t>(bags.width, 1);
  parallel_for(bags.count, std::max<int64_t>(1, kGrain / work), [&](int64_t begin, int64_t end) {
    const Tensor scratch =
        empty(Dims{bags.width * static_cast<int64_t>(sizeof(Sum))}, Dtype::kUint8, context);
    for (int64_t bag = begin; bag < end; ++bag) {
      T* to = out.data_as<T>() + bag * bags.width;
      if (options.mode == BagMode::kMax) {
        sizes[bag] = max_bag(bags, bag, options.padding_idx, to, max_rows + bag * bags.width);
        continue;
      }
      const bool mean = options.mode == BagMode::kMean;
      const int64_t rows =
          sum_bag<T, Sum>(bags, bag, options.padding_idx, mean, scratch.data_as<Sum>(), to);
      sizes[bag] = mean ? rows : 0;
    }
  });
}

Tensor bag_of_each_index(const Bags& bags, bool wanted, const OpContext& context) {
  Tensor result = empty(Dims{wanted ? bags.indices.numel() : 0}, Dtype::kInt64, context);
  if (!wanted) return result;
  const auto* start = bags.starts.data_as<const int64_t>();
  auto* out = result.data_as<int64_t>();
  for (int64_t bag = 0; bag < bags.count; ++bag) {
    std::fill(out + start[bag], out + start[bag + 1], bag);
  }
  std::fill(out + (bags.count > 0 ? start[bags.count] : 0), out + result.numel(), bags.count);
  return result;
}

}  // namespace

std::array<Tensor, 4> embedding_bag(const Tensor& weight, const Tensor& indices,
                                    const Tensor& offsets, const EmbeddingBagOptions& options,
                                    const OpContext& context) {
  const Bags bags = prepare(weight, indices, offsets, options, context);
  const bool is_sum = options.mode == BagMode::kSum;
  // Sizes of the by-products are torch's: its fast path for sums leaves the first one empty.
  const bool fast_sum = is_sum && options.padding_idx < 0 && weight.dtype() != Dtype::kFloat64 &&
                        weight.stride(1) == 1;
  const int64_t listed = is_sum && options.forward_only ? offsets.numel() : bags.count;

  Tensor out = empty(Dims{bags.count, bags.width}, weight.dtype(), context);
  Tensor sizes = empty(Dims{listed}, Dtype::kInt64, context);
  std::fill_n(sizes.data_as<int64_t>(), listed, 0);
  const bool is_max = options.mode == BagMode::kMax;
  Tensor max_rows = is_max ? empty(Dims{bags.count, bags.width}, Dtype::kInt64, context) : Tensor();
  dispatch_dtype(weight.dtype(), [&]<typename T>(T) {
    if constexpr (kIsFloating<T>) {
      run_bags<T>(bags, options, out, sizes.data_as<int64_t>(),
                  is_max ? max_rows.data_as<int64_t>() : nullptr, context);
    }
  });
  if (!is_max) {
    max_rows = empty(sizes.sizes(), Dtype::kInt64, context);
    std::copy_n(sizes.data_as<const int64_t>(), listed, max_rows.data_as<int64_t>());
  }
  return {std::move(out), bag_of_each_index(bags, !fast_sum, context), std::move(sizes),
          std::move(max_rows)};
}

}  // namespace cudaexec::ops

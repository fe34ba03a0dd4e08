#include "ops/index.h"

#include <cstring>

#include "device/thread_pool.h"
#include "ops/index_plan.h"
#include "ops/operand.h"
#include "tensor/convert.h"
#include "tensor/strided_copy.h"

namespace cudaexec::ops {
namespace {

// The region as loops: `a` is self, `b` the other tensor (result or values), strides in bytes.
struct Region {
  std::vector<PairAxis> before, block, after;
  PairAxis row;  // innermost of `after`, one call of the row function
  int64_t before_count = 1;
  int64_t block_count = 1;
  int64_t after_count = 1;  // rows
  bool elements = false;    // nothing after the block: single elements
  bool block_linear = false;
  int64_t block_step = 0;  // b's stride along a linear block
  char* self = nullptr;
  char* other = nullptr;
  const int64_t* offsets = nullptr;
  int64_t itemsize = 1;
};

int64_t count_of(const std::vector<PairAxis>& axes) {
  int64_t count = 1;
  for (const PairAxis& axis : axes) count *= axis.size;
  return count;
}

Region make_region(const IndexPlan& plan, const Tensor& self, const Tensor& other) {
  Region region;
  region.itemsize = static_cast<int64_t>(self.itemsize());
  const auto axes = [&](size_t first, size_t last) {
    return pair_axes(plan.sizes, plan.self_strides, region.itemsize, other.strides(),
                     region.itemsize, first, last);
  };
  region.before = axes(0, plan.block_first);
  region.block = axes(plan.block_first, plan.block_last);
  region.after = axes(plan.block_last, plan.sizes.size());
  region.before_count = count_of(region.before);
  region.block_count = count_of(region.block);
  region.elements = region.after.empty();
  if (!region.elements) {
    region.row = region.after.back();
    region.after.pop_back();
  }
  region.after_count = count_of(region.after);
  region.block_linear = region.block.size() <= 1;
  region.block_step = region.block.empty() ? 0 : region.block.back().b;
  region.self = self.data_as<char>();
  region.other = other.data_as<char>();
  region.offsets = plan.offset_data();
  return region;
}

// Positions [begin, end) of the block; `other` at the position `index` of it.
int64_t block_other(const Region& region, int64_t index) {
  if (region.block_linear) return index * region.block_step;
  int64_t unused = 0;
  int64_t offset = 0;
  pair_offsets(region.block, index, unused, offset);
  return offset;
}

// Calls row(count, self, self_stride, other, other_stride) for the rows of block positions
// [begin, end) at one index of `before`, limited to row elements [from, to).
template <typename Row>
void walk_rows(const Region& region, int64_t before, int64_t begin, int64_t end, int64_t from,
               int64_t to, Row row) {
  int64_t self_at = from * region.row.a;
  int64_t other_at = from * region.row.b;
  pair_offsets(region.before, before, self_at, other_at);
  for (int64_t at = begin; at < end; ++at) {
    char* self = region.self + self_at + region.offsets[at] * region.itemsize;
    char* other = region.other + other_at + block_other(region, at);
    if (region.after.empty()) {
      row(to - from, self, region.row.a, other, region.row.b);
      continue;
    }
    for (int64_t i = 0; i < region.after_count; ++i) {
      int64_t self_row = 0;
      int64_t other_row = 0;
      pair_offsets(region.after, i, self_row, other_row);
      row(to - from, self + self_row, region.row.a, other + other_row, region.row.b);
    }
  }
}

// Calls element(self, other) for single elements.
template <typename Element>
void walk_elements(const Region& region, int64_t before, int64_t begin, int64_t end,
                   Element element) {
  int64_t self_at = 0;
  int64_t other_at = 0;
  pair_offsets(region.before, before, self_at, other_at);
  char* self = region.self + self_at;
  char* other = region.other + other_at;
  for (int64_t at = begin; at < end; ++at) {
    element(self + region.offsets[at] * region.itemsize, other + block_other(region, at));
  }
}

template <typename T>
struct CopyElement {
  void operator()(const char* from, char* to) const { std::memcpy(to, from, sizeof(T)); }
};

void gather_range(const Region& region, RowConverter copy, int64_t before, int64_t begin,
                  int64_t end) {
  if (!region.elements) {
    walk_rows(region, before, begin, end, 0, region.row.size,
              [copy](int64_t count, const char* self, int64_t self_step, char* other,
                     int64_t other_step) { copy(count, other, other_step, self, self_step); });
    return;
  }
  switch (region.itemsize) {
    case 1:
      return walk_elements(region, before, begin, end, CopyElement<uint8_t>{});
    case 2:
      return walk_elements(region, before, begin, end, CopyElement<uint16_t>{});
    case 4:
      return walk_elements(region, before, begin, end, CopyElement<uint32_t>{});
    default:
      return walk_elements(region, before, begin, end, CopyElement<uint64_t>{});
  }
}

template <typename T>
void add_to(char* to, const char* from) {
  T sum;
  T value;
  std::memcpy(&sum, to, sizeof(T));
  std::memcpy(&value, from, sizeof(T));
  if constexpr (std::is_same_v<T, bool>) {
    sum = sum || value;
  } else if constexpr (kIsReduced<T>) {
    sum = T(static_cast<float>(sum) + static_cast<float>(value));
  } else if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    sum = static_cast<T>(static_cast<Unsigned>(sum) + static_cast<Unsigned>(value));
  } else {
    sum += value;
  }
  std::memcpy(to, &sum, sizeof(T));
}

// Each destination is written by one thread and in order: threads share `before`, or columns.
template <typename Range>
void split_put(const Region& region, Range range) {
  const int64_t total =
      region.before_count * region.block_count * region.after_count * region.row.size;
  const bool by_columns = !region.elements && region.before_count < region.row.size;
  const int64_t count = by_columns ? region.row.size : region.before_count;
  const int64_t grain = std::max<int64_t>(1, count * kGrain / std::max<int64_t>(total, 1));
  parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    const int64_t from = by_columns ? begin : 0;
    const int64_t to = by_columns ? end : region.row.size;
    const int64_t first = by_columns ? 0 : begin;
    const int64_t last = by_columns ? region.before_count : end;
    for (int64_t before = first; before < last; ++before) range(before, from, to);
  });
}

template <typename T>
void put(const Region& region, bool accumulate, RowConverter copy) {
  split_put(region, [&](int64_t before, int64_t from, int64_t to) {
    const int64_t last = region.block_count;
    if (region.elements && accumulate) {
      walk_elements(region, before, 0, last, add_to<T>);
    } else if (region.elements) {
      walk_elements(region, before, 0, last,
                    [](char* self, const char* other) { std::memcpy(self, other, sizeof(T)); });
    } else if (accumulate) {
      walk_rows(
          region, before, 0, last, from, to,
          [](int64_t count, char* self, int64_t self_step, const char* other, int64_t other_step) {
            for (int64_t i = 0; i < count; ++i) {
              add_to<T>(self + i * self_step, other + i * other_step);
            }
          });
    } else {
      walk_rows(region, before, 0, last, from, to,
                [copy](int64_t count, char* self, int64_t self_step, const char* other,
                       int64_t other_step) { copy(count, self, self_step, other, other_step); });
    }
  });
}

}  // namespace

Tensor index(const Tensor& self, std::span<const Tensor* const> indices, const OpContext& context) {
  const IndexPlan plan = plan_index("index", self, indices, context);
  const Dims strides = ordered_strides(plan.sizes, plan.operands);
  Tensor result = empty_strided(plan.sizes, strides, self.dtype(), context);
  if (result.numel() == 0) return result;
  const Region region = make_region(plan, self, result);
  const RowConverter copy = row_converter(self.dtype(), self.dtype());
  const int64_t per_unit = region.after_count * region.row.size;
  const int64_t grain = std::max<int64_t>(1, kGrain / per_unit);
  parallel_for(region.before_count * region.block_count, grain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t before = begin / region.block_count;
      const int64_t first = begin % region.block_count;
      const int64_t last = std::min(region.block_count, first + end - begin);
      gather_range(region, copy, before, first, last);
      begin += last - first;
    }
  });
  return result;
}

void index_put(const Tensor& self, std::span<const Tensor* const> indices, const Tensor& values,
               bool accumulate, const OpContext& context) {
  require_same_dtype("index_put", "self", self, "values", values);
  const IndexPlan plan = plan_index("index_put", self, indices, context);
  const Tensor expanded = expand("index_put", values, plan.sizes);
  if (expanded.numel() == 0) return;
  const Region region = make_region(plan, self, expanded);
  const RowConverter copy = row_converter(self.dtype(), self.dtype());
  dispatch_dtype(self.dtype(), [&]<typename T>(T) { put<T>(region, accumulate, copy); });
}

}  // namespace cudaexec::ops

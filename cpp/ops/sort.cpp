#include "ops/sort.h"

#include <algorithm>
#include <array>

#include "device/thread_pool.h"
#include "ops/operand.h"
#include "ops/sort_keys.h"
#include "ops/sort_lines.h"

namespace cudaexec::ops {
namespace {

constexpr int64_t kRadixLength = 384;  // shorter lines are sorted by comparison
constexpr size_t kBins = 256;

template <typename Entry>
size_t digit(const Entry& entry, size_t byte) {
  return static_cast<size_t>(entry.key() >> (8 * byte)) & (kBins - 1);
}

// Least significant byte first. Entries start in index order, so equal keys stay in it. Bytes that
// all keys share cost one pass over the counts. Returns the buffer that holds the result.
template <typename Entry>
Entry* radix_sort(Entry* entries, Entry* scratch, int64_t count, size_t key_bytes) {
  std::array<std::array<int64_t, kBins>, 8> counts{};
  for (int64_t i = 0; i < count; ++i) {
    for (size_t byte = 0; byte < key_bytes; ++byte) ++counts[byte][digit(entries[i], byte)];
  }
  for (size_t byte = 0; byte < key_bytes; ++byte) {
    auto& starts = counts[byte];
    if (starts[digit(entries[0], byte)] == count) continue;
    int64_t sum = 0;
    for (int64_t& start : starts) sum += std::exchange(start, sum);
    for (int64_t i = 0; i < count; ++i) scratch[starts[digit(entries[i], byte)]++] = entries[i];
    std::swap(entries, scratch);
  }
  return entries;
}

template <typename T, typename Entry>
void sort_line(const T* line, int64_t count, bool descending, Entry* entries, T* values,
               int64_t* indices) {
  for (int64_t i = 0; i < count; ++i) entries[i] = make_entry<Entry>(line[i], i, descending);
  const Entry* sorted = entries;
  if (count < kRadixLength) {
    std::sort(entries, entries + count);
  } else {
    sorted = radix_sort(entries, entries + count, count, sizeof(T));
  }
  for (int64_t i = 0; i < count; ++i) {
    indices[i] = sorted[i].index();
    values[i] = line[indices[i]];
  }
}

// Keeps the first `k` entries of the order in `best`, sorted: a heap where k is small, else a
// selection over all entries.
template <typename T, typename Entry>
void select_line(const T* line, int64_t count, int64_t k, bool descending, Entry* best) {
  if (k * 8 > count) {
    for (int64_t i = 0; i < count; ++i) best[i] = make_entry<Entry>(line[i], i, descending);
    if (k < count) std::nth_element(best, best + k, best + count);
  } else {
    for (int64_t i = 0; i < k; ++i) best[i] = make_entry<Entry>(line[i], i, descending);
    std::make_heap(best, best + k);
    for (int64_t i = k; i < count; ++i) {
      const Entry entry = make_entry<Entry>(line[i], i, descending);
      if (!(entry < best[0])) continue;
      std::pop_heap(best, best + k);
      best[k - 1] = entry;
      std::push_heap(best, best + k);
    }
  }
  std::sort(best, best + k);
}

struct Lines {
  Tensor packed;  // lines of the input, contiguous
  int64_t count;  // lines
  int64_t length;
};

Lines input_lines(const Tensor& self, int64_t dim, const OpContext& context) {
  Tensor packed = contiguous(dim_last(self, dim), context);
  const int64_t length = packed.size(packed.sizes().size() - 1);
  const int64_t count = length == 0 ? 0 : packed.numel() / length;
  return {std::move(packed), count, length};
}

// Runs body(line, scratch) for each line, with `scratch_entries` entries per thread.
template <typename T, typename Entry, typename Body>
void for_lines(const Lines& lines, int64_t scratch_entries, const OpContext& context, Body body) {
  const int64_t grain = std::max<int64_t>(1, kGrain / 8 / std::max<int64_t>(lines.length, 1));
  const auto nbytes = static_cast<int64_t>(sizeof(Entry)) * scratch_entries;
  parallel_for(lines.count, grain, [&](int64_t begin, int64_t end) {
    const Tensor scratch = empty(Dims{nbytes}, Dtype::kUint8, context);
    for (int64_t line = begin; line < end; ++line) {
      body(line, lines.packed.data_as<const T>() + line * lines.length, scratch.data_as<Entry>());
    }
  });
}

Dims sizes_with(const Tensor& self, int64_t dim, int64_t size) {
  Dims sizes = self.sizes();
  if (!sizes.empty()) sizes[static_cast<size_t>(dim)] = size;
  return sizes;
}

Dims sizes_reduced(const Tensor& self, int64_t dim, bool keepdim) {
  if (keepdim || self.dim() == 0) return sizes_with(self, dim, 1);
  Dims sizes(self.sizes().size() - 1);
  for (size_t i = 0; i < sizes.size(); ++i) {
    sizes[i] = self.size(i + (static_cast<int64_t>(i) >= dim ? 1 : 0));
  }
  return sizes;
}

}  // namespace

ValuesAndIndices sort(const Tensor& self, int64_t dim, bool descending, const OpContext& context) {
  dim = wrap_dim("sort", dim, self.dim());
  const Dims strides = strides_like(self);
  Tensor values = empty_strided(self.sizes(), strides, self.dtype(), context);
  Tensor indices = empty_strided(self.sizes(), strides, Dtype::kInt64, context);
  const Lines lines = input_lines(self, dim, context);
  const ResultLines value_lines(values, dim, context);
  const ResultLines index_lines(indices, dim, context);
  dispatch_entries(self.dtype(), lines.length, [&]<typename T, typename Entry>() {
    for_lines<T, Entry>(lines, 2 * lines.length, context,
                        [&](int64_t line, const T* data, Entry* scratch) {
                          const int64_t at = line * lines.length;
                          sort_line(data, lines.length, descending, scratch,
                                    value_lines.data<T>() + at, index_lines.data<int64_t>() + at);
                        });
  });
  value_lines.finish();
  index_lines.finish();
  return {std::move(values), std::move(indices)};
}

ValuesAndIndices topk(const Tensor& self, int64_t k, int64_t dim, bool largest,
                      const OpContext& context) {
  dim = wrap_dim("topk", dim, self.dim());
  const Lines lines = input_lines(self, dim, context);
  if (k < 0 || k > lines.length) {
    throw InputError(str("topk: k is ", k, "; expected 0 to ", lines.length,
                         ", the size of dimension ", dim, " of ", describe(self)));
  }
  const Dims sizes = sizes_with(self, dim, k);
  Tensor values = empty(sizes, self.dtype(), context);
  Tensor indices = empty(sizes, Dtype::kInt64, context);
  if (k == 0) return {std::move(values), std::move(indices)};
  const ResultLines value_lines(values, dim, context);
  const ResultLines index_lines(indices, dim, context);
  const int64_t scratch = k * 8 > lines.length ? lines.length : k;
  dispatch_entries(self.dtype(), lines.length, [&]<typename T, typename Entry>() {
    for_lines<T, Entry>(lines, scratch, context, [&](int64_t line, const T* data, Entry* best) {
      select_line(data, lines.length, k, largest, best);
      T* value = value_lines.data<T>() + line * k;
      int64_t* index = index_lines.data<int64_t>() + line * k;
      for (int64_t i = 0; i < k; ++i) {
        index[i] = best[i].index();
        value[i] = data[index[i]];
      }
    });
  });
  value_lines.finish();
  index_lines.finish();
  return {std::move(values), std::move(indices)};
}

ValuesAndIndices kthvalue(const Tensor& self, int64_t k, int64_t dim, bool keepdim,
                          const OpContext& context) {
  dim = wrap_dim("kthvalue", dim, self.dim());
  const Lines lines = input_lines(self, dim, context);
  if (k < 1 || k > lines.length) {
    throw InputError(str("kthvalue: k is ", k, "; expected 1 to ", lines.length,
                         ", the size of dimension ", dim, " of ", describe(self)));
  }
  const Dims sizes = sizes_reduced(self, dim, keepdim);
  Tensor values = empty(sizes, self.dtype(), context);
  Tensor indices = empty(sizes, Dtype::kInt64, context);
  dispatch_entries(self.dtype(), lines.length, [&]<typename T, typename Entry>() {
    for_lines<T, Entry>(lines, lines.length, context,
                        [&](int64_t line, const T* data, Entry* scratch) {
                          for (int64_t i = 0; i < lines.length; ++i) {
                            scratch[i] = make_entry<Entry>(data[i], i, false);
                          }
                          std::nth_element(scratch, scratch + k - 1, scratch + lines.length);
                          indices.data_as<int64_t>()[line] = scratch[k - 1].index();
                          values.data_as<T>()[line] = data[scratch[k - 1].index()];
                        });
  });
  return {std::move(values), std::move(indices)};
}

namespace {

// The last entry of the longest run of equal keys; NaN does not equal NaN.
template <typename T, typename Entry>
int64_t mode_of(const T* data, const Entry* sorted, int64_t count) {
  int64_t best = 0;
  int64_t best_run = 0;
  int64_t run = 0;
  for (int64_t i = 0; i < count; ++i) {
    ++run;
    const bool ends =
        i == count - 1 || sorted[i].key() != sorted[i + 1].key() || is_nan(data[sorted[i].index()]);
    if (!ends) continue;
    if (run > best_run) {
      best_run = run;
      best = sorted[i].index();
    }
    run = 0;
  }
  return best;
}

}  // namespace

ValuesAndIndices mode(const Tensor& self, int64_t dim, bool keepdim, const OpContext& context) {
  dim = wrap_dim("mode", dim, self.dim());
  const Dims sizes = sizes_reduced(self, dim, keepdim);
  Tensor values = empty(sizes, self.dtype(), context);
  Tensor indices = empty(sizes, Dtype::kInt64, context);
  const Lines lines = input_lines(self, dim, context);
  if (lines.length == 0 && values.numel() != 0) {
    throw ShapeError(str("mode: dimension ", dim, " of ", describe(self), " is empty"));
  }
  dispatch_entries(self.dtype(), lines.length, [&]<typename T, typename Entry>() {
    for_lines<T, Entry>(lines, lines.length, context,
                        [&](int64_t line, const T* data, Entry* scratch) {
                          for (int64_t i = 0; i < lines.length; ++i) {
                            scratch[i] = make_entry<Entry>(data[i], i, false);
                          }
                          std::sort(scratch, scratch + lines.length);
                          const int64_t at = mode_of(data, scratch, lines.length);
                          indices.data_as<int64_t>()[line] = at;
                          values.data_as<T>()[line] = data[at];
                        });
  });
  return {std::move(values), std::move(indices)};
}

Tensor median(const Tensor& self, bool ignore_nan, const OpContext& context) {
  Tensor result = empty(Dims{}, self.dtype(), context);
  const Tensor packed = contiguous(self, context);
  const int64_t count = packed.numel();
  dispatch_entries(self.dtype(), count, [&]<typename T, typename Entry>() {
    const T* data = packed.data_as<const T>();
    T* out = result.data_as<T>();
    const auto nbytes = count * static_cast<int64_t>(sizeof(Entry));
    const Tensor scratch = empty(Dims{nbytes}, Dtype::kUint8, context);
    auto* entries = scratch.data_as<Entry>();
    int64_t kept = 0;
    int64_t nan_at = -1;
    for (int64_t i = 0; i < count; ++i) {
      if (is_nan(data[i])) {
        nan_at = i;
      } else {
        entries[kept++] = make_entry<Entry>(data[i], i, false);
      }
    }
    if (kept == 0 || (nan_at >= 0 && !ignore_nan)) {
      *out = nan_at >= 0 ? data[nan_at] : convert_value<T>(std::numeric_limits<float>::quiet_NaN());
      return;
    }
    Entry* middle = entries + (kept - 1) / 2;
    std::nth_element(entries, middle, entries + kept);
    *out = data[middle->index()];
  });
  return result;
}

}  // namespace cudaexec::ops

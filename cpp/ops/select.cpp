// What masks and counts select: nonzero, masked_select, masked_scatter, repeat_interleave.
#include <cstring>
#include <numeric>

#include "device/thread_pool.h"
#include "ops/index.h"
#include "ops/operand.h"
#include "tensor/convert.h"
#include "tensor/strided_copy.h"

namespace cudaexec::ops {
namespace {

constexpr int64_t kChunk = 1 << 16;  // elements that one pass of a thread looks at

template <typename T>
bool is_set(T value) {
  if constexpr (kIsReduced<T>) {
    return (value.bits & 0x7fffU) != 0;
  } else if constexpr (std::is_same_v<T, bool>) {
    // A mask's byte may hold any value.
    uint8_t byte;
    std::memcpy(&byte, &value, 1);
    return byte != 0;
  } else {
    return value != T{};
  }
}

// Row-major positions of the non-zero elements: int64 [count].
template <typename T>
Tensor set_positions(const Tensor& packed, const OpContext& context) {
  // A bool is read as a byte.
  using Read = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
  const auto* data = packed.data_as<const Read>();
  const int64_t numel = packed.numel();
  const int64_t chunks = (numel + kChunk - 1) / kChunk;
  const Tensor starts = empty(Dims{chunks + 1}, Dtype::kInt64, context);
  auto* start = starts.data_as<int64_t>();
  start[0] = 0;
  parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      int64_t count = 0;
      const int64_t last = std::min(numel, (chunk + 1) * kChunk);
      for (int64_t i = chunk * kChunk; i < last; ++i) count += is_set(data[i]) ? 1 : 0;
      start[chunk + 1] = count;
    }
  });
  std::partial_sum(start, start + chunks + 1, start);
  Tensor positions = empty(Dims{start[chunks]}, Dtype::kInt64, context);
  auto* out = positions.data_as<int64_t>();
  parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      int64_t at = start[chunk];
      const int64_t last = std::min(numel, (chunk + 1) * kChunk);
      for (int64_t i = chunk * kChunk; i < last; ++i) {
        if (is_set(data[i])) out[at++] = i;
      }
    }
  });
  return positions;
}

Tensor positions_of(const Tensor& packed, const OpContext& context) {
  return dispatch_dtype(packed.dtype(),
                        [&]<typename T>(T) { return set_positions<T>(packed, context); });
}

// Splits row-major positions into coordinates; column `dim` of the result has `step` between
// columns.
void write_coordinates(const Tensor& positions, std::span<const int64_t> sizes, int64_t count,
                       int64_t* out, int64_t row_step, int64_t column_step) {
  const auto* data = positions.data_as<const int64_t>();
  parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t rest = data[row];
      for (size_t dim = sizes.size(); dim-- > 0;) {
        out[row * row_step + static_cast<int64_t>(dim) * column_step] = rest % sizes[dim];
        rest /= sizes[dim];
      }
    }
  });
}

Tensor packed_mask(const char* op, const Tensor& mask, std::span<const int64_t> sizes,
                   const OpContext& context) {
  require_dtype(op, "mask", mask, {Dtype::kBool, Dtype::kUint8});
  return contiguous(expand(op, mask, sizes), context);
}

}  // namespace

Tensor nonzero(const Tensor& self, const OpContext& context) {
  const Tensor packed = contiguous(self, context);
  const Tensor positions = positions_of(packed, context);
  const int64_t count = positions.size(0);
  if (self.dim() == 1) {
    return {positions.storage(), 0, Dims{count, 1}, Dims{1, count}, Dtype::kInt64};
  }
  const Dims sizes{count, self.dim()};
  Tensor result = empty_strided(sizes, Dims{1, count}, Dtype::kInt64, context);
  write_coordinates(positions, self.sizes(), count, result.data_as<int64_t>(), 1, count);
  return result;
}

Tensor nonzero_static(const Tensor& self, int64_t size, int64_t fill, const OpContext& context) {
  if (size < 0) {
    throw InputError(str("nonzero_static: size is ", size, "; expected 0 or more"));
  }
  const Tensor packed = contiguous(self, context);
  const Tensor positions = positions_of(packed, context);
  Tensor result = empty(Dims{size, self.dim()}, Dtype::kInt64, context);
  const int64_t count = std::min(size, positions.size(0));
  auto* out = result.data_as<int64_t>();
  write_coordinates(positions, self.sizes(), count, out, self.dim(), 1);
  std::fill(out + count * self.dim(), out + size * self.dim(), fill);
  return result;
}

Tensor masked_select(const Tensor& self, const Tensor& mask, const OpContext& context) {
  const Dims sizes =
      broadcast_sizes("masked_select", std::vector<Dims>{self.sizes(), mask.sizes()});
  const Tensor flags = packed_mask("masked_select", mask, sizes, context);
  const Tensor values = contiguous(expand("masked_select", self, sizes), context);
  const Tensor positions = positions_of(flags, context);
  const int64_t count = positions.size(0);
  Tensor result = empty(Dims{count}, self.dtype(), context);
  const auto* at = positions.data_as<const int64_t>();
  dispatch_dtype(self.dtype(), [&]<typename T>(T) {
    const auto* from = values.data_as<const T>();
    auto* to = result.data_as<T>();
    parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) std::memcpy(to + i, from + at[i], sizeof(T));
    });
  });
  return result;
}

Tensor masked_scatter(const Tensor& self, const Tensor& mask, const Tensor& source,
                      const OpContext& context) {
  require_same_dtype("masked_scatter", "self", self, "source", source);
  const Dims sizes =
      broadcast_sizes("masked_scatter", std::vector<Dims>{self.sizes(), mask.sizes()});
  const Tensor flags = packed_mask("masked_scatter", mask, sizes, context);
  const Tensor positions = positions_of(flags, context);
  const int64_t count = positions.size(0);
  if (count > source.numel()) {
    throw ShapeError(str("masked_scatter: the mask selects ", count, " elements, but source ",
                         describe(source), " has ", source.numel()));
  }
  Tensor result =
      contiguous_copy(expand("masked_scatter", self, sizes), context.allocator, context.stream);
  const Tensor values = contiguous(source, context);
  const auto* at = positions.data_as<const int64_t>();
  dispatch_dtype(self.dtype(), [&]<typename T>(T) {
    const auto* from = values.data_as<const T>();
    auto* to = result.data_as<T>();
    parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) std::memcpy(to + at[i], from + i, sizeof(T));
    });
  });
  return result;
}

Tensor repeat_interleave(const Tensor& repeats, const int64_t* output_size,
                         const OpContext& context) {
  require_index("repeat_interleave", "repeats", repeats);
  require_rank("repeat_interleave", "repeats", repeats, 1);
  const Tensor counts = contiguous_as(repeats, Dtype::kInt64, context);
  const auto* count = counts.data_as<const int64_t>();
  int64_t total = 0;
  for (int64_t i = 0; i < counts.numel(); ++i) {
    if (count[i] < 0) {
      throw InputError(
          str("repeat_interleave: repeats[", i, "] is ", count[i], "; expected 0 or more"));
    }
    if (__builtin_add_overflow(total, count[i], &total)) {
      throw InputError("repeat_interleave: the sum of repeats overflows 64 bits");
    }
  }
  if (output_size != nullptr && *output_size != total) {
    throw ShapeError(
        str("repeat_interleave: repeats add up to ", total, ", but output_size is ", *output_size));
  }
  Tensor result = empty(Dims{total}, repeats.dtype(), context);
  const auto fill = [&]<typename T>(T* out) {
    for (int64_t i = 0; i < counts.numel(); ++i)
      out = std::fill_n(out, count[i], static_cast<T>(i));
  };
  if (repeats.dtype() == Dtype::kInt64) {
    fill(result.data_as<int64_t>());
  } else {
    fill(result.data_as<int32_t>());
  }
  return result;
}

}  // namespace cudaexec::ops

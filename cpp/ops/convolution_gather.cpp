// Convolutions as matrix products of gathered input values (rows: output positions; columns: kernel
// taps by channels) and weights. Slower than a convolution library, but for every dtype and layout.
#include <cstring>
#include <memory>

#include "device/thread_pool.h"
#include "ops/convolution.h"
#include "ops/gemm_integer.h"
#include "ops/gemm_plan.h"
#include "ops/pack_cache.h"
#include "ops/scratch.h"

namespace cudaexec::ops {
namespace {

constexpr int64_t kGatherBytes = int64_t{256} << 10;  // of one block of rows

/// The weight as [groups][taps][channels in][channels out], in a storage of its own.
class ArrangedWeight : public PackedForm {
 public:
  explicit ArrangedWeight(StoragePtr storage)
      : PackedForm(storage->nbytes()), storage_(std::move(storage)) {
    storage_->mark_constant();
  }
  [[nodiscard]] Storage* storage() const noexcept { return storage_.get(); }

 private:
  StoragePtr storage_;
};

template <typename T>
void arrange(const ConvolutionProblem& p, T* dst) {
  const auto& s = p.weight_strides;
  for (int64_t g = 0; g < p.groups; ++g) {
    for (int64_t tap = 0; tap < p.taps(); ++tap) {
      const int64_t d = tap / (p.kernel[1] * p.kernel[2]);
      const int64_t h = tap / p.kernel[2] % p.kernel[1], w = tap % p.kernel[2];
      const T* src = static_cast<const T*>(p.weight) + d * s[2] + h * s[3] + w * s[4];
      for (int64_t c = 0; c < p.group_in(); ++c) {
        for (int64_t o = 0; o < p.group_out(); ++o) {
          const int64_t first = p.transposed ? g * p.group_in() + c : g * p.group_out() + o;
          *dst++ = src[first * s[0] + (p.transposed ? o : c) * s[1]];
        }
      }
    }
  }
}

/// The input index of an output index and a tap, or -1 if there is none.
int64_t source_index(const ConvolutionProblem& p, size_t axis, int64_t out, int64_t tap) {
  int64_t at = 0;
  if (p.transposed) {
    at = out + p.padding[axis] - tap * p.dilation[axis];
    if (at % p.stride[axis] != 0) return -1;
    at /= p.stride[axis];
  } else {
    at = out * p.stride[axis] - p.padding[axis] + tap * p.dilation[axis];
  }
  return at >= 0 && at < p.in[axis] ? at : -1;
}

/// The row of one output position: [taps][channels of a group].
template <typename T>
void gather_row(const ConvolutionProblem& p, const T* input, int64_t position, T* row) {
  const int64_t channels = p.group_in(), step = p.in_strides[1];
  const int64_t d_out = position / (p.out[1] * p.out[2]);
  const int64_t h_out = position / p.out[2] % p.out[1], w_out = position % p.out[2];
  for (int64_t d = 0; d < p.kernel[0]; ++d) {
    const int64_t d_in = source_index(p, 0, d_out, d);
    for (int64_t h = 0; h < p.kernel[1]; ++h) {
      const int64_t h_in = source_index(p, 1, h_out, h);
      for (int64_t w = 0; w < p.kernel[2]; ++w, row += channels) {
        const int64_t w_in = source_index(p, 2, w_out, w);
        if (d_in < 0 || h_in < 0 || w_in < 0) {
          std::memset(row, 0, static_cast<size_t>(channels) * sizeof(T));
          continue;
        }
        const T* src =
            input + d_in * p.in_strides[2] + h_in * p.in_strides[3] + w_in * p.in_strides[4];
        if (step == 1) {
          std::memcpy(row, src, static_cast<size_t>(channels) * sizeof(T));
        } else {
          for (int64_t c = 0; c < channels; ++c) row[c] = src[c * step];
        }
      }
    }
  }
}

template <typename T>
class GatheredConvolution {
 public:
  GatheredConvolution(const ConvolutionProblem& problem, const OpContext& context)
      : p_(problem), context_(context), depth_(p_.taps() * p_.group_in()) {
    const int64_t row_bytes = std::max<int64_t>(1, depth_ * static_cast<int64_t>(sizeof(T)));
    rows_ = std::clamp<int64_t>(kGatherBytes / row_bytes, 1, p_.positions_out());
    blocks_ = divide_up(p_.positions_out(), rows_);
  }

  void run() {
    const StoragePtr temporary =
        p_.constant == nullptr ? arranged(context_.allocator) : StoragePtr();
    Storage* weight = p_.constant == nullptr ? temporary.get() : cached();
    const int64_t parts = p_.batch * p_.groups * blocks_;
    const auto room = static_cast<size_t>(rows_ * depth_) * sizeof(T);
    parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
      Scratch scratch(room, context_);
      for (int64_t part = begin; part < end; ++part) {
        run_block(part / blocks_ / p_.groups, part / blocks_ % p_.groups, part % blocks_, weight,
                  reinterpret_cast<T*>(scratch.data()));
      }
    });
  }

 private:
  [[nodiscard]] StoragePtr arranged(Allocator& allocator) const {
    const int64_t count = p_.groups * depth_ * p_.group_out();
    StoragePtr storage = Storage::allocate(static_cast<size_t>(count) * sizeof(T), Device{},
                                           allocator, context_.stream);
    arrange(p_, static_cast<T*>(storage->data()));
    return storage;
  }

  [[nodiscard]] Storage* cached() const {
    const auto& s = p_.weight_strides;
    const int64_t key[] = {static_cast<int64_t>(PackKind::kGatheredConvolution),
                           static_cast<int64_t>(p_.dtype),
                           p_.weight_offset,
                           p_.transposed,
                           p_.groups,
                           p_.group_in(),
                           p_.group_out(),
                           p_.kernel[0],
                           p_.kernel[1],
                           p_.kernel[2],
                           s[0],
                           s[1],
                           s[2],
                           s[3],
                           s[4]};
    PackedForm& form = PackCache::of(*p_.constant).get(key, [&] {
      return std::make_unique<ArrangedWeight>(arranged(cpu_allocator()));
    });
    return static_cast<ArrangedWeight&>(form).storage();
  }

  void run_block(int64_t item, int64_t group, int64_t block, Storage* weight, T* rows) const {
    const int64_t first = block * rows_;
    const int64_t count = std::min(rows_, p_.positions_out() - first);
    const T* input = static_cast<const T*>(p_.input) + item * p_.in_strides[0] +
                     group * p_.group_in() * p_.in_strides[1];
    for (int64_t r = 0; r < count; ++r) gather_row(p_, input, first + r, rows + r * depth_);
    const int64_t outputs = p_.group_out(), step = p_.out_strides[4];
    GemmProblem g;
    g.dtype = p_.dtype;
    g.m = count;
    g.n = outputs;
    g.k = depth_;
    g.a = {rows, 0, depth_, 1};
    const int64_t offset = group * depth_ * outputs;
    // A packed form for each of many groups would cost more to find than to make.
    Storage* constant = p_.constant != nullptr && p_.groups == 1 ? weight : nullptr;
    g.b = {static_cast<T*>(weight->data()) + offset, 0, outputs, 1, constant, offset};
    g.out = {static_cast<T*>(p_.output) + item * p_.out_strides[0] +
                 group * outputs * p_.out_strides[1] + first * step,
             0, step, p_.out_strides[1]};
    if (p_.bias != nullptr) {
      g.add = {const_cast<T*>(static_cast<const T*>(p_.bias)) + group * outputs, 0, 0, 1};
    }
    multiply_matrices(g, context_);
  }

  const ConvolutionProblem& p_;
  const OpContext& context_;
  int64_t depth_;   // of the product: taps by channels
  int64_t rows_;    // output positions gathered at a time
  int64_t blocks_;  // of rows in an image
};

}  // namespace

void convolve_gathered(const ConvolutionProblem& problem, const OpContext& context) {
  switch (dtype_size(problem.dtype)) {
    case 1:
      return GatheredConvolution<uint8_t>(problem, context).run();
    case 2:
      return GatheredConvolution<uint16_t>(problem, context).run();
    case 4:
      return GatheredConvolution<uint32_t>(problem, context).run();
    default:
      return GatheredConvolution<uint64_t>(problem, context).run();
  }
}

}  // namespace cudaexec::ops

#include "ops/onednn/prepared.h"

#include <list>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "base/fork_mutex.h"
#include "device/thread_pool.h"

namespace cudaexec::ops::onednn {
namespace {

using dnnl::memory;

/// The numbers of a problem; pointers are not part of it.
using Key = std::array<int64_t, 42>;

struct KeyHash {
  size_t operator()(const Key& key) const noexcept {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const int64_t number : key) {
      hash = (hash ^ static_cast<uint64_t>(number)) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

Key key_of(const ConvolutionProblem& p) {
  Key key{};
  size_t at = 0;
  for (const int64_t number :
       {int64_t{current_threads()}, static_cast<int64_t>(p.dtype), int64_t{p.transposed}, p.spatial,
        p.batch, p.groups, p.in_channels, p.out_channels, int64_t{p.bias != nullptr}}) {
    key[at++] = number;
  }
  for (const auto* axes : {&p.in, &p.out, &p.kernel, &p.stride, &p.dilation, &p.padding}) {
    for (const int64_t number : *axes) key[at++] = number;
  }
  for (const auto* strides : {&p.in_strides, &p.out_strides, &p.weight_strides}) {
    for (const int64_t number : *strides) key[at++] = number;
  }
  return key;
}

/// The last `spatial` of three axes.
memory::dims spatial(const ConvolutionProblem& p, const ConvolutionProblem::Axes& axes) {
  return {axes.end() - p.spatial, axes.end()};
}

memory::dims with_spatial(memory::dims first, const memory::dims& rest) {
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

memory::dims strides_of(const ConvolutionProblem& p, const std::array<int64_t, 5>& strides) {
  memory::dims all{strides[0], strides[1]};
  all.insert(all.end(), strides.end() - p.spatial, strides.end());
  return all;
}

memory::format_tag channels_last(const ConvolutionProblem& p) {
  using tag = memory::format_tag;
  return p.spatial == 1 ? tag::nwc : (p.spatial == 2 ? tag::nhwc : tag::ndhwc);
}

/// Padding behind the last element, which may be negative where the kernel does not reach it.
memory::dims padding_behind(const ConvolutionProblem& p) {
  memory::dims result;
  for (size_t axis = static_cast<size_t>(3 - p.spatial); axis < 3; ++axis) {
    const int64_t reach = p.dilation[axis] * (p.kernel[axis] - 1) + 1;
    const int64_t larger = p.transposed ? p.out[axis] : p.in[axis];
    const int64_t smaller = p.transposed ? p.in[axis] : p.out[axis];
    result.push_back((smaller - 1) * p.stride[axis] + reach - larger - p.padding[axis]);
  }
  return result;
}

template <typename Primitive>
bool make_primitive(const ConvolutionProblem& p, dnnl::algorithm algorithm, memory::format_tag tag,
                    PreparedConvolution& prepared) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  memory::dims dilation = spatial(p, p.dilation);
  for (auto& step : dilation) --step;
  const memory::data_type type = data_type(p.dtype);
  const memory::desc source(prepared.source_given.get_dims(), type, tag);
  const memory::desc weights(weight_as_given(p).get_dims(), type, memory::format_tag::any);
  const memory::desc result(prepared.result_given.get_dims(), type, tag);
  // A missing kernel is an answer here, not an error.
  const typename Primitive::primitive_desc desc(
      cpu_engine(), dnnl::prop_kind::forward_inference, algorithm, source, weights, prepared.bias,
      result, spatial(p, p.stride), dilation, spatial(p, p.padding), padding_behind(p), attributes,
      /*allow_empty=*/true);
  if (!desc) return false;
  // Its reference loops are far slower than our matrix products.
  if (std::string_view(desc.impl_info_str()).starts_with("ref")) return false;
  prepared.convolution = Primitive(desc);
  prepared.source = desc.src_desc();
  prepared.weights = desc.weights_desc();
  prepared.result = desc.dst_desc();
  prepared.scratchpad = desc.scratchpad_desc();
  return true;
}

bool make_primitive(const ConvolutionProblem& p, memory::format_tag tag,
                    PreparedConvolution& prepared) {
  return p.transposed ? make_primitive<dnnl::deconvolution_forward>(
                            p, dnnl::algorithm::deconvolution_direct, tag, prepared)
                      : make_primitive<dnnl::convolution_forward>(
                            p, dnnl::algorithm::convolution_direct, tag, prepared);
}

std::optional<dnnl::reorder> reorder_between(const memory::desc& from, const memory::desc& to) {
  if (from == to) return std::nullopt;
  return dnnl::reorder(dnnl::reorder::primitive_desc(cpu_engine(), from, cpu_engine(), to));
}

std::shared_ptr<const PreparedConvolution> make(const ConvolutionProblem& p) {
  auto prepared = std::make_shared<PreparedConvolution>();
  const memory::data_type type = data_type(p.dtype);
  prepared->source_given = memory::desc(with_spatial({p.batch, p.in_channels}, spatial(p, p.in)),
                                        type, strides_of(p, p.in_strides));
  prepared->result_given = memory::desc(with_spatial({p.batch, p.out_channels}, spatial(p, p.out)),
                                        type, strides_of(p, p.out_strides));
  if (p.bias != nullptr) {
    prepared->bias = memory::desc({p.out_channels}, type, memory::format_tag::a);
  }
  // Fast kernels want channels last or in blocks; to and from planes, blocks are cheaper to
  // convert.
  const bool planes = p.out_strides[1] != 1;
  if (!(planes && make_primitive(p, memory::format_tag::any, *prepared)) &&
      !make_primitive(p, channels_last(p), *prepared)) {
    return nullptr;
  }
  prepared->source_reorder = reorder_between(prepared->source_given, prepared->source);
  prepared->result_reorder = reorder_between(prepared->result, prepared->result_given);
  return prepared;
}

/// Primitives by key, the last used first.
class PrimitiveCache {
 public:
  std::shared_ptr<const PreparedConvolution> get(const ConvolutionProblem& problem) {
    const Key key = key_of(problem);
    {
      const std::lock_guard lock(mutex_);
      const auto found = by_key_.find(key);
      if (found != by_key_.end()) {
        entries_.splice(entries_.begin(), entries_, found->second);
        return found->second->second;
      }
    }
    auto made = make(problem);  // two threads may make the same; both are right
    const std::lock_guard lock(mutex_);
    if (by_key_.find(key) != by_key_.end()) return made;
    entries_.emplace_front(key, made);
    by_key_.emplace(key, entries_.begin());
    if (entries_.size() > kMaxPrimitives) {
      by_key_.erase(entries_.back().first);
      entries_.pop_back();
    }
    return made;
  }
  int64_t size() {
    const std::lock_guard lock(mutex_);
    return static_cast<int64_t>(entries_.size());
  }

 private:
  using Entry = std::pair<Key, std::shared_ptr<const PreparedConvolution>>;
  ForkMutex mutex_;
  std::list<Entry> entries_;
  std::unordered_map<Key, std::list<Entry>::iterator, KeyHash> by_key_;
};

/// Never destroyed: threads may still run programs while the process exits.
PrimitiveCache& cache() {
  static PrimitiveCache& instance = *new PrimitiveCache;
  return instance;
}

}  // namespace

const dnnl::engine& cpu_engine() {
  static const dnnl::engine& engine = *new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

memory::data_type data_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBfloat16:
      return memory::data_type::bf16;
    case Dtype::kFloat16:
      return memory::data_type::f16;
    default:
      return memory::data_type::f32;
  }
}

memory::desc weight_as_given(const ConvolutionProblem& p) {
  const auto& s = p.weight_strides;
  const int64_t out_stride = p.transposed ? s[1] : s[0];
  const int64_t in_stride = p.transposed ? s[0] : s[1];
  memory::dims sizes{p.group_out(), p.group_in()}, strides{out_stride, in_stride};
  if (p.groups != 1) {
    sizes.insert(sizes.begin(), p.groups);
    strides.insert(strides.begin(), p.transposed ? p.group_in() * s[0] : p.group_out() * s[0]);
  }
  sizes = with_spatial(sizes, spatial(p, p.kernel));
  strides.insert(strides.end(), s.end() - p.spatial, s.end());
  return {sizes, data_type(p.dtype), strides};
}

std::shared_ptr<const PreparedConvolution> prepare(const ConvolutionProblem& problem) {
  return cache().get(problem);
}

int64_t cached_primitives() { return cache().size(); }

}  // namespace cudaexec::ops::onednn

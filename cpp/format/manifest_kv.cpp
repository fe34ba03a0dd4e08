// "kv_cache" of the program and "kv" of its methods.
#include <algorithm>

#include "base/checked_math.h"
#include "base/str.h"
#include "format/format_fault.h"
#include "format/manifest_parse.h"

namespace cudaexec {
namespace {

constexpr int64_t kKvVersion = 1;
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kMaxCount = int64_t{1} << 20;         // batch items, heads, ids
constexpr int64_t kMaxTokens = (int64_t{1} << 31) - 1;  // positions are 32 bits on a device
constexpr int64_t kMaxCacheBytes = int64_t{1} << 46;    // of address space
constexpr size_t kMaxLayers = 4096;

KvDtype parse_kv_dtype(const JsonCursor& json) {
  constexpr KvDtype kAll[] = {KvDtype::kFloat32, KvDtype::kFloat16, KvDtype::kBfloat16,
                              KvDtype::kFloat8E4m3};
  for (const KvDtype dtype : kAll) {
    if (json.text() == kv_dtype_name(dtype)) return dtype;
  }
  json.fail(str("unknown KV dtype ", quote(json.text()),
                "; float32, float16, bfloat16 or float8_e4m3fn expected"));
}

KvLayerSpec parse_layer(const JsonCursor& json) {
  const auto number = [](int64_t min, int64_t max) {
    return [=](const JsonCursor& n) { return n.integer(min, max); };
  };
  KvLayerSpec layer;
  layer.id = json.at("id", number(0, kMaxCount));
  layer.batch = json.at("batch", number(1, kMaxCount));
  layer.heads = json.at("heads", number(1, kMaxCount));
  layer.head_dim = json.at("head_dim", number(1, kMaxHeadDim));
  layer.capacity = json.at("capacity", number(1, kMaxTokens));
  json.at("policy", [&](const JsonCursor& policy) {
    if (policy.text() == "ring") {
      layer.window = json.at("window", number(1, kMaxTokens));
      if (layer.window > layer.capacity)
        json.fail(str("window ", layer.window, " does not fit capacity ", layer.capacity));
    } else if (policy.text() != "flat") {
      policy.fail(str("unknown policy ", quote(policy.text()), "; 'flat' or 'ring' expected"));
    }
  });
  return layer;
}

/// Bytes of all tokens of a layer; more than any machine has where it overflows.
int64_t layer_nbytes(const KvLayerSpec& layer, KvDtype dtype) {
  std::optional<int64_t> total = static_cast<int64_t>(2 * kv_dtype_size(dtype));
  for (const int64_t factor : {layer.batch, layer.heads, layer.head_dim, layer.capacity}) {
    total = total ? checked_mul<int64_t>(*total, factor) : std::nullopt;
  }
  return std::min(total.value_or(kMaxCacheBytes), kMaxCacheBytes);
}

}  // namespace

KvCacheSpec parse_kv_cache(const JsonCursor& json) {
  json.at("version", [](const JsonCursor& version) {
    if (version.integer(1, INT64_MAX) != kKvVersion)
      version.fail(str("version ", version.integer(1, INT64_MAX), "; this cudaexec reads version ",
                       kKvVersion, ": update cudaexec or export the model again"));
  });
  KvCacheSpec cache;
  cache.dtype = json.at("dtype", parse_kv_dtype);
  json.at("layers", [&](const JsonCursor& layers) {
    int64_t total = 0;
    layers.each([&](const JsonCursor& item) {
      const KvLayerSpec layer = parse_layer(item);
      const auto same_id = [&](const KvLayerSpec& other) { return other.id == layer.id; };
      if (std::ranges::any_of(cache.layers, same_id))
        item.fail(str("layer ", layer.id, " occurs twice"));
      if (cache.layers.size() == kMaxLayers) layers.fail(str("more than ", kMaxLayers, " layers"));
      total += layer_nbytes(layer, cache.dtype);
      if (total >= kMaxCacheBytes)
        item.fail(str("the cache takes more than ", kMaxCacheBytes, " bytes of address space"));
      cache.layers.push_back(layer);
    });
    if (cache.layers.empty()) layers.fail("a cache without layers");
  });
  return cache;
}

KvMethodSpec parse_kv_method(const JsonCursor& json, const KvCacheSpec* cache,
                             const MethodSpec& method) {
  if (cache == nullptr) json.fail("the method uses a KV cache and the program describes none");
  KvMethodSpec kv;
  json.at("layers", [&](const JsonCursor& layers) {
    std::vector<int64_t> ids;
    layers.each([&](const JsonCursor& id) { ids.push_back(id.integer(0, kMaxCount)); });
    std::vector<int64_t> all;
    for (const KvLayerSpec& layer : cache->layers) all.push_back(layer.id);
    std::ranges::sort(ids);
    std::ranges::sort(all);
    if (ids != all)
      layers.fail(str("layers ", list_str(ids), "; all of ", list_str(all), " expected"));
  });
  kv.max_width = json.at("max_width", [](const JsonCursor& n) { return n.integer(1, kMaxTokens); });
  kv.width = json.at(
      "width", [&](const JsonCursor& width) { return parse_expression(width, method.symbols); });
  for (const KvLayerSpec& layer : cache->layers) {
    if (layer.window != 0 && layer.capacity < layer.window + kv.max_width - 1) {
      json.fail(str("steps of ", kv.max_width, " tokens do not fit layer ", layer.id,
                    ": a ring of ", layer.capacity, " tokens with a window of ", layer.window));
    }
  }
  json.if_there("position_input", [&](const JsonCursor& index) {
    const size_t input = index.count();
    const bool holds_positions = input < method.inputs.size() &&
                                 method.inputs[input].kind == InputSpec::Kind::kTensor &&
                                 (method.inputs[input].tensor.dtype == Dtype::kInt64 ||
                                  method.inputs[input].tensor.dtype == Dtype::kInt32);
    if (!holds_positions) index.fail(str("input ", input, " is no tensor of integers"));
    kv.position_input = input;
  });
  json.if_there("position_states", [&](const JsonCursor& states) {
    states.each([&](const JsonCursor& state) {
      const std::string& fqn = state.nonempty_text();
      const auto counts = [&](const ConstantSpec& constant) {
        return constant.fqn == fqn && constant.dtype == Dtype::kInt64 &&
               std::ranges::all_of(constant.sizes, [](int64_t size) { return size == 1; });
      };
      if (!std::ranges::any_of(method.constants, counts))
        state.fail(str(quote(fqn), " is no int64 constant of one element"));
      kv.position_states.push_back(fqn);
    });
  });
  return kv;
}

}  // namespace cudaexec

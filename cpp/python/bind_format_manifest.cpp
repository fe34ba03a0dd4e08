// Decoded payloads and manifests, as Python values.
#include <pybind11/stl.h>

#include <optional>

#include "format/delegate_payload.h"
#include "format/manifest.h"
#include "python/bind_format.h"

namespace cudaexec::python {
namespace {

namespace py = pybind11;
using namespace py::literals;

py::dict describe(const Tree& tree) {
  constexpr const char* kNames[] = {"leaf",       "tuple",       "list",
                                    "dict",       "ordereddict", "defaultdict",
                                    "namedtuple", "dataclass",   "custom"};
  py::list children, keys;
  for (const Tree& child : tree.children) children.append(describe(child));
  for (const Scalar& key : tree.keys) keys.append(py::cast(key));
  return py::dict("type"_a = kNames[static_cast<size_t>(tree.kind)], "children"_a = children,
                  "keys"_a = keys, "class"_a = tree.class_name, "num_leaves"_a = tree.num_leaves);
}

py::list describe(const std::vector<Expression>& expressions) {
  py::list result;
  for (const Expression& expression : expressions) {
    py::list items;
    for (const ExpressionItem& item : expression.items())
      items.append(py::make_tuple(static_cast<int>(item.op), item.value));
    result.append(items);
  }
  return result;
}

py::dict describe(const TensorShape& tensor) {
  return py::dict("dtype"_a = dtype_name(tensor.dtype), "sizes"_a = describe(tensor.sizes),
                  "strides"_a = describe(tensor.strides), "device_type"_a = tensor.device_type);
}

py::object describe(const std::optional<KvMethodSpec>& kv) {
  if (!kv) return py::none();
  return py::dict("width"_a = describe(std::vector<Expression>{kv->width})[0],
                  "max_width"_a = kv->max_width, "position_input"_a = kv->position_input,
                  "position_states"_a = kv->position_states);
}

py::object describe(const std::optional<KvCacheSpec>& cache) {
  if (!cache) return py::none();
  py::list layers;
  for (const KvLayerSpec& l : cache->layers)
    layers.append(py::make_tuple(l.id, l.batch, l.heads, l.head_dim, l.window, l.capacity));
  return py::dict("dtype"_a = kv_dtype_name(cache->dtype), "layers"_a = layers);
}

py::dict describe(const MethodSpec& method) {
  py::list variants, symbols, inputs, outputs, guards, constants;
  for (const CodeVariant& v : method.variants)
    variants.append(py::make_tuple(v.target, v.isa, v.sm, v.ptx, v.code, v.cpu_flags, v.callouts));
  for (const Symbol& s : method.symbols)
    symbols.append(py::make_tuple(s.name, s.min, s.max, s.input, s.dim));
  for (const InputSpec& input : method.inputs)
    inputs.append(py::dict("name"_a = input.name, "kind"_a = static_cast<int>(input.kind),
                           "tensor"_a = describe(input.tensor), "mutated"_a = input.mutated,
                           "graph_input"_a = input.graph_input, "value"_a = py::cast(input.value)));
  for (const OutputSpec& output : method.outputs)
    outputs.append(
        py::dict("kind"_a = static_cast<int>(output.kind), "tensor"_a = describe(output.tensor),
                 "graph_output"_a = output.graph_output, "value"_a = py::cast(output.value),
                 "expression"_a = describe(std::vector<Expression>{output.expression})[0]));
  for (const Guard& guard : method.guards)
    guards.append(
        py::make_tuple(guard.text, describe(std::vector<Expression>{guard.expression})[0]));
  for (const ConstantSpec& c : method.constants)
    constants.append(py::make_tuple(c.name, c.fqn, c.storage_key, dtype_name(c.dtype), c.sizes,
                                    c.strides, c.offset, c.device_type, c.mutated, c.kv));
  return py::dict("name"_a = method.name, "variants"_a = variants, "symbols"_a = symbols,
                  "inputs"_a = inputs, "outputs"_a = outputs, "guards"_a = guards,
                  "constants"_a = constants, "in_tree"_a = describe(method.in_tree),
                  "out_tree"_a = describe(method.out_tree), "kv"_a = describe(method.kv));
}

py::dict describe(const std::map<std::string, BlobDigest>& blobs) {
  py::dict result;
  for (const auto& [key, blob] : blobs)
    result[py::cast(key)] = py::make_tuple(blob.nbytes, blob.digest);
  return result;
}

}  // namespace

py::dict describe_payload(const std::string& processed, const std::string& method_name) {
  const DelegatePayload payload =
      decode_delegate_payload(std::as_bytes(std::span(processed)), method_name, "payload", 0);
  constexpr const char* kLayouts[] = {"fqn0", "fqn3", "keys", "empty"};
  py::list variants, constants;
  for (const PayloadVariant& v : payload.variants)
    variants.append(py::make_tuple(v.target_sm, v.ptx_compute, v.fallback_only, v.so_key));
  for (const PayloadConstant& c : payload.constants)
    constants.append(py::make_tuple(c.fqn, c.storage_key, c.storage_nbytes, c.dtype, c.device,
                                    c.offset, c.sizes, c.strides));
  return py::dict("layout"_a = kLayouts[static_cast<size_t>(payload.layout)],
                  "variants"_a = variants, "constants"_a = constants,
                  "weights_key"_a = payload.weights_key);
}

py::dict describe_manifest(const std::string& text) {
  const Manifest manifest = parse_manifest(text, "manifest.json");
  py::list methods;
  for (const MethodSpec& method : manifest.methods) methods.append(describe(method));
  return py::dict("version"_a = manifest.version, "producer"_a = manifest.producer,
                  "platform"_a = manifest.platform, "code"_a = describe(manifest.code),
                  "weights"_a = describe(manifest.weights),
                  "weights_digest"_a = manifest.weights_digest, "aliases"_a = manifest.aliases,
                  "kv_cache"_a = describe(manifest.kv_cache), "methods"_a = methods);
}

}  // namespace cudaexec::python

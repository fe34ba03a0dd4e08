// The parsed manifest (docs/format.md): plain data, validated, independent of JSON.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/export.h"
#include "format/expression.h"
#include "tensor/dtype.h"
#include "tensor/kv_dtype.h"

namespace cudaexec {

/// A scalar that the file carries: null, bool, int, float or string.
using Scalar = std::variant<std::monostate, bool, int64_t, double, std::string>;

struct Tree {
  enum class Kind : uint8_t {
    kLeaf,
    kTuple,
    kList,
    kDict,
    kOrderedDict,
    kDefaultDict,
    kNamedTuple,
    kDataclass,
    kCustom
  };
  Kind kind = Kind::kLeaf;
  std::vector<Tree> children;
  std::vector<Scalar> keys;  // one per child, for the kinds with keys or field names
  std::string class_name;    // "module:QualName", may be empty
  size_t num_leaves = 0;
};

struct Symbol {
  std::string name;
  int64_t min = 0;
  std::optional<int64_t> max;
  size_t input = 0;  // leaf and dimension that define it
  size_t dim = 0;
};

struct TensorShape {
  Dtype dtype = Dtype::kFloat32;
  std::vector<Expression> sizes;
  std::vector<Expression> strides;  // elements
  int32_t device_type = 0;
};

struct InputSpec {
  enum class Kind : uint8_t { kTensor, kConstant };
  std::string name;
  Kind kind = Kind::kTensor;
  TensorShape tensor;
  bool mutated = false;  // the program writes it: the runtime passes a copy
  size_t graph_input = 0;
  Scalar value;  // kConstant
};

/// A parameter that was left out at export: its default value was compiled in.
struct OmittedInput {
  std::string name;
  std::optional<size_t> position;  // none: by keyword only
  Scalar value;
};

struct OutputSpec {
  enum class Kind : uint8_t { kTensor, kInt, kFloat, kBool, kConstant, kExpression };
  Kind kind = Kind::kTensor;
  TensorShape tensor;
  size_t graph_output = 0;
  Scalar value;           // kConstant
  Expression expression;  // kExpression
};

struct Guard {
  std::string text;
  Expression expression;
};

struct ConstantSpec {
  std::string name, fqn, storage_key;
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;  // elements
  int32_t device_type = 0;
  bool mutated = false;
  bool kv = false;
};

struct CodeVariant {
  std::string target;  // "cpu" or "cuda"
  std::string isa;     // CPU: "x86-64-v3"
  std::vector<std::string> cpu_flags;
  int32_t sm = 0, ptx = 0, sm_count = 0;
  bool fallback_only = false;  // CUDA: serves only through its PTX
  std::string code;            // named-data key
  std::vector<std::string> callouts;
};

/// One layer of the off-graph KV cache.
struct KvLayerSpec {
  int64_t id = 0;
  int64_t batch = 1, heads = 1, head_dim = 1;
  int64_t window = 0;    // of a ring: tokens that a query sees; 0: flat, all of them
  int64_t capacity = 0;  // tokens; of a ring: window + the widest step - 1
};

struct KvCacheSpec {
  KvDtype dtype = KvDtype::kBfloat16;
  std::vector<KvLayerSpec> layers;  // ids differ
};

/// How a method uses the cache: every call is a step of all layers.
struct KvMethodSpec {
  Expression width;  // tokens that a call adds
  int64_t max_width = 1;
  std::optional<size_t> position_input;      // leaf that holds the tokens' positions
  std::vector<std::string> position_states;  // FQNs of int64 state that counts the tokens seen
};

struct MethodSpec {
  std::string name;
  std::vector<CodeVariant> variants;
  std::vector<Symbol> symbols;
  std::vector<InputSpec> inputs;
  std::vector<OmittedInput> omitted;
  std::vector<OutputSpec> outputs;
  size_t num_graph_inputs = 0, num_graph_outputs = 0;
  std::vector<Guard> guards;
  Tree in_tree, out_tree;
  std::vector<ConstantSpec> constants;
  std::optional<KvMethodSpec> kv;
};

struct BlobDigest {
  uint64_t nbytes = 0;
  std::string digest;
};

struct Manifest {
  int64_t version = 1;
  std::map<std::string, std::string> producer, platform;
  std::map<std::string, BlobDigest> code;     // SHA-256, hex
  std::string weights_digest;                 // empty if there are no weights
  std::map<std::string, BlobDigest> weights;  // by storage key; tree hash, hex
  std::map<std::string, std::string> aliases;
  std::optional<KvCacheSpec> kv_cache;
  std::vector<MethodSpec> methods;
};

/// @throws FormatError (with `path` and the JSON path of the fault) or VersionError.
CUDAEXEC_API Manifest parse_manifest(std::string_view json, const std::string& path);

}  // namespace cudaexec

#include <algorithm>
#include <limits>
#include <set>

#include "base/checked_math.h"
#include "base/str.h"
#include "format/format_fault.h"
#include "format/manifest_parse.h"

namespace cudaexec {
namespace {

constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();
constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
constexpr size_t kMaxRank = 64;
constexpr size_t kMaxGraphTensors = size_t{1} << 20;

/// Reads one method; members are filled in the order in which later ones refer to earlier ones.
class MethodSpecParser {
 public:
  MethodSpecParser(const JsonCursor& json, const Manifest& manifest)
      : json_(json), manifest_(manifest) {}

  MethodSpec parse() {
    json_.at("name", [&](const JsonCursor& name) { spec_.name = name.nonempty_text(); });
    json_.at("variants", [&](const JsonCursor& variants) {
      variants.each([&](const JsonCursor& item) { spec_.variants.push_back(variant(item)); });
      if (spec_.variants.empty()) variants.fail("a method without code");
    });
    json_.if_there("symbols", [&](const JsonCursor& symbols) {
      symbols.each([&](const JsonCursor& item) { add_symbol(item); });
    });
    spec_.num_graph_inputs = json_.at("num_graph_inputs", graph_count);
    spec_.num_graph_outputs = json_.at("num_graph_outputs", graph_count);
    parse_inputs();
    json_.if_there("omitted", [&](const JsonCursor& omitted) {
      omitted.each([&](const JsonCursor& item) { add_omitted(item); });
    });
    parse_outputs();
    check_symbols();
    parse_guards();
    parse_trees();
    parse_constants();
    json_.if_there("kv", [&](const JsonCursor& kv) {
      spec_.kv = parse_kv_method(kv, manifest_.kv_cache ? &*manifest_.kv_cache : nullptr, spec_);
    });
    return std::move(spec_);
  }

 private:
  static size_t graph_count(const JsonCursor& json) { return json.count(kMaxGraphTensors); }

  CodeVariant variant(const JsonCursor& json) const {
    CodeVariant variant;
    variant.target = json.at("target", [](const JsonCursor& target) { return target.text(); });
    if (variant.target == "cpu") {
      variant.isa = json.at("isa", [](const JsonCursor& isa) { return isa.nonempty_text(); });
      json.if_there("cpu_flags",
                    [&](const JsonCursor& flags) { variant.cpu_flags = flags.texts(); });
    } else if (variant.target == "cuda") {
      const auto number = [](const JsonCursor& n) {
        return static_cast<int32_t>(n.integer(0, kInt32Max));
      };
      variant.sm = json.at("sm", number);
      json.if_there("ptx", [&](const JsonCursor& n) { variant.ptx = number(n); });
      json.if_there("sm_count", [&](const JsonCursor& n) { variant.sm_count = number(n); });
    } else {
      json.fail(str("target ", quote(variant.target), "; 'cpu' or 'cuda' expected"));
    }
    json.at("code", [&](const JsonCursor& code) {
      variant.code = code.nonempty_text();
      if (!manifest_.code.contains(variant.code))
        code.fail(str(quote(variant.code), " is not among the manifest's code"));
    });
    json.if_there("callouts",
                  [&](const JsonCursor& callouts) { variant.callouts = callouts.texts(); });
    return variant;
  }

  void add_symbol(const JsonCursor& json) {
    Symbol symbol;
    symbol.name = json.at("name", [](const JsonCursor& name) { return name.nonempty_text(); });
    const auto same_name = [&](const Symbol& other) { return other.name == symbol.name; };
    if (is_operator_name(symbol.name) || std::ranges::any_of(spec_.symbols, same_name))
      json.fail(str("symbol ", quote(symbol.name), " is an operator's name or occurs twice"));
    symbol.min = json.at("min", [](const JsonCursor& min) { return min.integer(0, kInt64Max); });
    json.if_there("max",
                  [&](const JsonCursor& max) { symbol.max = max.integer(symbol.min, kInt64Max); });
    symbol.input = json.at("input", [](const JsonCursor& input) { return input.count(); });
    symbol.dim = json.at("dim", [](const JsonCursor& dim) { return dim.count(kMaxRank); });
    spec_.symbols.push_back(std::move(symbol));
  }

  void check_symbols() const {
    for (const Symbol& symbol : spec_.symbols) {
      const bool there = symbol.input < spec_.inputs.size() &&
                         spec_.inputs[symbol.input].kind == InputSpec::Kind::kTensor &&
                         symbol.dim < spec_.inputs[symbol.input].tensor.sizes.size();
      if (!there)
        json_.fail(str("symbol ", quote(symbol.name), " is size ", symbol.dim, " of input ",
                       symbol.input, ", which is no such tensor"));
    }
  }

  /// `open` allows null: a size that only the run can tell, an expression without a value.
  std::vector<Expression> dimensions(const JsonCursor& json, bool open) const {
    std::vector<Expression> result;
    json.each([&](const JsonCursor& item) {
      if (open && item.is_null()) {
        result.emplace_back();
        return;
      }
      result.push_back(parse_expression(item, spec_.symbols));
      const auto constant = result.back().constant();
      if (constant && *constant < 0) item.fail(str("negative: ", *constant));
    });
    if (result.size() > kMaxRank) json.fail(str("rank ", result.size(), "; at most ", kMaxRank));
    return result;
  }

  TensorShape tensor(const JsonCursor& json, bool open) const {
    TensorShape shape;
    shape.dtype = json.at("dtype", parse_dtype);
    shape.sizes =
        json.at("shape", [&](const JsonCursor& sizes) { return dimensions(sizes, open); });
    shape.strides = json.at("strides", [&](const JsonCursor& s) { return dimensions(s, open); });
    shape.device_type = json.at("device", parse_device);
    if (shape.sizes.size() != shape.strides.size())
      json.fail(str(shape.sizes.size(), " sizes and ", shape.strides.size(), " strides"));
    return shape;
  }

  static size_t graph_index(const JsonCursor& json, size_t count) {
    const size_t index = json.count();
    if (index >= count) json.fail(str("graph tensor ", index, " of ", count));
    return index;
  }

  void parse_inputs() {
    std::set<size_t> fed;
    json_.at("inputs", [&](const JsonCursor& inputs) {
      inputs.each([&](const JsonCursor& json) {
        spec_.inputs.push_back(input(json));
        const InputSpec& spec = spec_.inputs.back();
        if (spec.kind == InputSpec::Kind::kTensor && !fed.insert(spec.graph_input).second)
          json.fail(str("graph input ", spec.graph_input, " is fed twice"));
      });
      if (fed.size() != spec_.num_graph_inputs)
        inputs.fail(str(fed.size(), " of ", spec_.num_graph_inputs, " graph inputs are fed"));
    });
  }

  InputSpec input(const JsonCursor& json) const {
    InputSpec spec;
    spec.name = json.at("name", [](const JsonCursor& name) { return name.text(); });
    const std::string kind = json.at("kind", [](const JsonCursor& k) { return k.text(); });
    if (kind == "constant") {
      spec.kind = InputSpec::Kind::kConstant;
      spec.value = json.at("value", parse_scalar);
    } else if (kind == "tensor") {
      spec.tensor = tensor(json, false);
      json.if_there("mutated", [&](const JsonCursor& m) { spec.mutated = m.boolean(); });
      spec.graph_input = json.at("graph_input", [&](const JsonCursor& index) {
        return graph_index(index, spec_.num_graph_inputs);
      });
    } else {
      json.fail(str("kind ", quote(kind), "; 'tensor' or 'constant' expected"));
    }
    return spec;
  }

  void add_omitted(const JsonCursor& json) {
    OmittedInput omitted;
    omitted.name = json.at("name", [](const JsonCursor& name) { return name.nonempty_text(); });
    json.if_there("position",
                  [&](const JsonCursor& position) { omitted.position = position.count(); });
    omitted.value = json.at("value", parse_scalar);
    const auto same = [&](const OmittedInput& other) {
      return other.name == omitted.name ||
             (omitted.position.has_value() && other.position == omitted.position);
    };
    if (std::ranges::any_of(spec_.omitted, same))
      json.fail(str("omitted input ", quote(omitted.name), " or its position occurs twice"));
    spec_.omitted.push_back(std::move(omitted));
  }

  void parse_outputs() {
    json_.at("outputs", [&](const JsonCursor& outputs) {
      outputs.each([&](const JsonCursor& json) { spec_.outputs.push_back(output(json)); });
    });
  }

  OutputSpec output(const JsonCursor& json) const {
    static constexpr std::pair<std::string_view, OutputSpec::Kind> kKinds[] = {
        {"tensor", OutputSpec::Kind::kTensor},     {"int", OutputSpec::Kind::kInt},
        {"float", OutputSpec::Kind::kFloat},       {"bool", OutputSpec::Kind::kBool},
        {"constant", OutputSpec::Kind::kConstant}, {"expression", OutputSpec::Kind::kExpression}};
    OutputSpec spec;
    json.at("kind", [&](const JsonCursor& kind) {
      const auto* found =
          std::ranges::find(kKinds, kind.text(), [](const auto& k) { return k.first; });
      if (found == std::end(kKinds)) kind.fail(str("unknown kind ", quote(kind.text())));
      spec.kind = found->second;
    });
    if (spec.kind == OutputSpec::Kind::kConstant) {
      spec.value = json.at("value", parse_scalar);
      return spec;
    }
    if (spec.kind == OutputSpec::Kind::kExpression) {
      spec.expression = json.at(
          "value", [&](const JsonCursor& value) { return parse_expression(value, spec_.symbols); });
      return spec;
    }
    if (spec.kind == OutputSpec::Kind::kTensor) spec.tensor = tensor(json, true);
    spec.graph_output = json.at("graph_output", [&](const JsonCursor& index) {
      return graph_index(index, spec_.num_graph_outputs);
    });
    return spec;
  }

  void parse_guards() {
    json_.if_there("guards", [&](const JsonCursor& guards) {
      guards.each([&](const JsonCursor& json) {
        Guard guard;
        guard.text = json.at("text", [](const JsonCursor& text) { return text.text(); });
        guard.expression = json.at("expr", [&](const JsonCursor& expression) {
          return parse_expression(expression, spec_.symbols);
        });
        spec_.guards.push_back(std::move(guard));
      });
    });
  }

  void parse_trees() {
    spec_.in_tree = json_.at("in_spec", [&](const JsonCursor& json) {
      Tree tree = parse_tree(json);
      const bool valid = tree.kind == Tree::Kind::kTuple && tree.children.size() == 2 &&
                         tree.children[0].kind == Tree::Kind::kTuple &&
                         tree.children[1].kind == Tree::Kind::kDict;
      if (!valid) json.fail("a tuple of a tuple (args) and a dict (kwargs) expected");
      if (tree.num_leaves != spec_.inputs.size())
        json.fail(str(tree.num_leaves, " leaves for ", spec_.inputs.size(), " inputs"));
      return tree;
    });
    spec_.out_tree = json_.at("out_spec", [&](const JsonCursor& json) {
      Tree tree = parse_tree(json);
      if (tree.num_leaves != spec_.outputs.size())
        json.fail(str(tree.num_leaves, " leaves for ", spec_.outputs.size(), " outputs"));
      return tree;
    });
  }

  void parse_constants() {
    std::set<std::string_view> names;
    std::set<std::string_view> fqns;
    json_.if_there("constants", [&](const JsonCursor& constants) {
      spec_.constants.reserve(constants.array().size());  // the sets keep views of the names
      constants.each([&](const JsonCursor& json) {
        const ConstantSpec& spec = spec_.constants.emplace_back(constant(json));
        if (!names.insert(spec.name).second)
          json.fail(str("constant ", quote(spec.name), " occurs twice"));
        if (!fqns.insert(spec.fqn).second)
          json.fail(str("the FQN ", quote(spec.fqn), " occurs twice"));
      });
    });
  }

  ConstantSpec constant(const JsonCursor& json) const {
    const auto text = [](const JsonCursor& name) { return name.nonempty_text(); };
    const auto number = [](const JsonCursor& n) { return n.integer(0, kInt64Max); };
    const auto numbers = [&](const JsonCursor& list) {
      std::vector<int64_t> result;
      list.each([&](const JsonCursor& n) { result.push_back(number(n)); });
      if (result.size() > kMaxRank) list.fail(str("rank ", result.size(), "; at most ", kMaxRank));
      return result;
    };
    ConstantSpec spec;
    spec.name = json.at("name", text);
    spec.fqn = json.at("fqn", text);
    spec.storage_key = json.at("storage_key", text);
    spec.dtype = json.at("dtype", parse_dtype);
    spec.sizes = json.at("shape", numbers);
    spec.strides = json.at("strides", numbers);
    spec.offset = json.at("offset", number);
    spec.device_type = json.at("device", parse_device);
    json.if_there("mutated", [&](const JsonCursor& flag) { spec.mutated = flag.boolean(); });
    json.if_there("kv", [&](const JsonCursor& flag) { spec.kv = flag.boolean(); });
    if (spec.sizes.size() != spec.strides.size())
      json.fail(str(spec.sizes.size(), " sizes and ", spec.strides.size(), " strides"));
    check_storage(json, spec);
    return spec;
  }

  /// KV storage has no bytes in the file; everything else must lie inside its entry.
  void check_storage(const JsonCursor& json, const ConstantSpec& spec) const {
    const auto entry = manifest_.weights.find(spec.storage_key);
    if (entry == manifest_.weights.end()) {
      if (!spec.kv)
        json.fail(str("storage key ", quote(spec.storage_key), " has no weights entry"));
      return;
    }
    std::optional<int64_t> end = checked_add<int64_t>(spec.offset, 1);
    for (size_t i = 0; i < spec.sizes.size(); ++i) {
      if (spec.sizes[i] == 0) return;
      const auto step = checked_mul<int64_t>(spec.sizes[i] - 1, spec.strides[i]);
      end = end && step ? checked_add<int64_t>(*end, *step) : std::nullopt;
    }
    const auto nbytes =
        end ? checked_mul<uint64_t>(static_cast<uint64_t>(*end), dtype_size(spec.dtype))
            : std::nullopt;
    if (!nbytes || *nbytes > entry->second.nbytes)
      json.fail(str("sizes ", list_str(spec.sizes), ", strides ", list_str(spec.strides),
                    ", offset ", spec.offset, " do not fit the ", entry->second.nbytes,
                    " bytes of ", quote(spec.storage_key)));
  }

  const JsonCursor& json_;
  const Manifest& manifest_;
  MethodSpec spec_;
};

}  // namespace

MethodSpec parse_method_spec(const JsonCursor& json, const Manifest& manifest) {
  return MethodSpecParser(json, manifest).parse();
}

}  // namespace cudaexec

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/str.h"
#include "format/format_fault.h"
#include "format/manifest_parse.h"

namespace cudaexec {
namespace {

constexpr int64_t kInt64Min = std::numeric_limits<int64_t>::min();
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

constexpr std::pair<std::string_view, Op> kOperators[] = {
    {"add", Op::kAdd}, {"sub", Op::kSub}, {"mul", Op::kMul}, {"floordiv", Op::kFloorDiv},
    {"mod", Op::kMod}, {"neg", Op::kNeg}, {"pow", Op::kPow}, {"min", Op::kMin},
    {"max", Op::kMax}, {"eq", Op::kEq},   {"ne", Op::kNe},   {"lt", Op::kLt},
    {"le", Op::kLe},   {"gt", Op::kGt},   {"ge", Op::kGe},   {"and", Op::kAnd},
    {"or", Op::kOr},   {"not", Op::kNot}};

constexpr std::pair<std::string_view, Tree::Kind> kNodeTypes[] = {
    {"tuple", Tree::Kind::kTuple},
    {"list", Tree::Kind::kList},
    {"dict", Tree::Kind::kDict},
    {"ordereddict", Tree::Kind::kOrderedDict},
    {"defaultdict", Tree::Kind::kDefaultDict},
    {"namedtuple", Tree::Kind::kNamedTuple},
    {"dataclass", Tree::Kind::kDataclass},
    {"custom", Tree::Kind::kCustom}};

ExpressionItem parse_item(const JsonCursor& json, const std::vector<Symbol>& symbols) {
  if (const auto* name = std::get_if<std::string>(&json.value().data)) {
    for (const auto& [operator_name, op] : kOperators) {
      if (*name == operator_name) return {op, 0};
    }
    for (size_t i = 0; i < symbols.size(); ++i) {
      if (symbols[i].name == *name) return {Op::kSymbol, static_cast<int64_t>(i)};
    }
    json.fail(str(quote(*name), " is no symbol of this method and no operator"));
  }
  return {Op::kConstant, json.integer(kInt64Min, kInt64Max)};
}

double parse_special_float(const JsonCursor& json) {
  return json.at("float", [](const JsonCursor& word) {
    if (word.text() == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (word.text() == "inf") return std::numeric_limits<double>::infinity();
    if (word.text() == "-inf") return -std::numeric_limits<double>::infinity();
    word.fail(str(quote(word.text()), "; 'nan', 'inf' or '-inf' expected"));
  });
}

/// ["s", "a"], ["i", 3], ["b", true], ["n"] or ["f", 1.5]
Scalar parse_key(const JsonCursor& json) {
  const auto& parts = json.array();
  const auto* code = parts.empty() ? nullptr : std::get_if<std::string>(&parts[0].data);
  if (code == nullptr) json.fail("a key as [\"s\", \"text\"] expected");
  if (*code == "n" && parts.size() == 1) return std::monostate{};
  if (parts.size() != 2) json.fail("a key of a code and a value expected");
  Scalar key;
  json.each([&](const JsonCursor& part) {
    if (&part.value() == &parts[1]) key = parse_scalar(part);
  });
  const bool matches = (*code == "s" && std::holds_alternative<std::string>(key)) ||
                       (*code == "i" && std::holds_alternative<int64_t>(key)) ||
                       (*code == "b" && std::holds_alternative<bool>(key)) ||
                       (*code == "f" && std::holds_alternative<double>(key));
  if (!matches) json.fail(str("key code ", quote(*code), " does not fit its value"));
  // NaN has no order and equals no key of a call.
  const auto* number = std::get_if<double>(&key);
  if (number != nullptr && std::isnan(*number)) json.fail("NaN as a key");
  return key;
}

bool has_dict_keys(Tree::Kind kind) noexcept {
  return kind == Tree::Kind::kDict || kind == Tree::Kind::kOrderedDict ||
         kind == Tree::Kind::kDefaultDict;
}

bool has_fields(Tree::Kind kind) noexcept {
  return kind == Tree::Kind::kNamedTuple || kind == Tree::Kind::kDataclass ||
         kind == Tree::Kind::kCustom;
}

void parse_keys(const JsonCursor& json, Tree& tree) {
  if (!has_dict_keys(tree.kind) && !has_fields(tree.kind)) {
    if (json.find("keys") != nullptr) json.fail("keys in a node that has none");
    return;
  }
  json.at("keys", [&](const JsonCursor& keys) {
    keys.each([&](const JsonCursor& key) {
      tree.keys.push_back(has_fields(tree.kind) ? Scalar(key.text()) : parse_key(key));
    });
    if (tree.keys.size() != tree.children.size())
      keys.fail(str(tree.keys.size(), " keys for ", tree.children.size(), " children"));
    std::vector<Scalar> sorted = tree.keys;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
      keys.fail("a key occurs twice");
  });
}

Tree::Kind parse_node_type(const JsonCursor& json) {
  for (const auto& [name, kind] : kNodeTypes) {
    if (json.text() == name) return kind;
  }
  json.fail(str("unknown node type ", quote(json.text())));
}

}  // namespace

bool is_operator_name(std::string_view name) noexcept {
  return std::ranges::any_of(kOperators, [&](const auto& entry) { return entry.first == name; });
}

Scalar parse_scalar(const JsonCursor& json) {
  const auto& data = json.value().data;
  if (const auto* value = std::get_if<bool>(&data)) return *value;
  if (const auto* value = std::get_if<int64_t>(&data)) return *value;
  if (const auto* value = std::get_if<double>(&data)) return *value;
  if (const auto* value = std::get_if<std::string>(&data)) return *value;
  if (json.is_null()) return std::monostate{};
  return parse_special_float(json);
}

Expression parse_expression(const JsonCursor& json, const std::vector<Symbol>& symbols) {
  std::vector<ExpressionItem> items;
  if (std::holds_alternative<JsonValue::Array>(json.value().data)) {
    json.each([&](const JsonCursor& item) { items.push_back(parse_item(item, symbols)); });
  } else {
    items.push_back(parse_item(json, symbols));
  }
  try {
    return Expression(std::move(items), symbols.size());
  } catch (const FormatError& error) {
    json.fail(error.what());
  }
}

Tree parse_tree(const JsonCursor& json) {
  Tree tree;
  if (json.find("leaf") != nullptr) {
    json.at("leaf", [](const JsonCursor& leaf) {
      if (!leaf.boolean()) leaf.fail("true expected");
    });
    if (json.find("type") != nullptr || json.find("children") != nullptr)
      json.fail("a node that is a leaf and has a type or children");
    tree.num_leaves = 1;
    return tree;
  }
  tree.kind = json.at("type", parse_node_type);
  json.at("children", [&](const JsonCursor& children) {
    children.each([&](const JsonCursor& child) { tree.children.push_back(parse_tree(child)); });
  });
  for (const Tree& child : tree.children) tree.num_leaves += child.num_leaves;
  parse_keys(json, tree);
  json.if_there("class", [&](const JsonCursor& name) {
    tree.class_name = name.text();
    if (!tree.class_name.empty() && tree.class_name.find(':') == std::string::npos)
      name.fail(str(quote(tree.class_name), "; 'module:QualName' expected"));
  });
  return tree;
}

Dtype parse_dtype(const JsonCursor& json) {
  const auto dtype = dtype_from_name(json.text());
  if (!dtype) json.fail(str("unknown dtype ", quote(json.text())));
  return *dtype;
}

int32_t parse_device(const JsonCursor& json) {
  if (json.text() == "cpu") return 0;
  if (json.text() == "cuda") return 1;
  json.fail(str(quote(json.text()), "; 'cpu' or 'cuda' expected"));
}

}  // namespace cudaexec

#include "python/specs.h"

#include <string>
#include <vector>

#include "base/str.h"
#include "runtime/spec_text.h"

namespace cudaexec::python {
namespace {

namespace py = pybind11;

py::object scalar_object(const Scalar& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return py::bool_(*flag);
  if (const auto* integer = std::get_if<int64_t>(&value)) return py::int_(*integer);
  if (const auto* number = std::get_if<double>(&value)) return py::float_(*number);
  if (const auto* text = std::get_if<std::string>(&value)) return py::str(*text);
  return py::none();
}

py::object dim_object(const Expression& dim, const MethodSpec& method) {
  if (const auto constant = dim.constant()) return py::int_(*constant);
  return py::str(expression_text(dim, method));
}

py::tuple dim_tuple(const std::vector<Expression>& dims, const MethodSpec& method) {
  py::tuple items(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) items[i] = dim_object(dims[i], method);
  return items;
}

/// The smallest or largest value of a size; None where it is unbounded or an expression.
py::object bound(const Expression& dim, const MethodSpec& method, bool largest) {
  if (const auto constant = dim.constant()) return py::int_(*constant);
  if (const auto index = dim.symbol()) {
    const Symbol& symbol = method.symbols[*index];
    if (!largest) return py::int_(symbol.min);
    if (symbol.max) return py::int_(*symbol.max);
  }
  return py::none();
}

void add_tensor(py::dict& fields, const TensorShape& tensor, const MethodSpec& method) {
  const size_t rank = tensor.sizes.size();
  py::tuple smallest(rank);
  py::tuple largest(rank);
  for (size_t i = 0; i < rank; ++i) {
    smallest[i] = bound(tensor.sizes[i], method, false);
    largest[i] = bound(tensor.sizes[i], method, true);
  }
  fields["dtype"] = dtype_name(tensor.dtype);
  fields["shape"] = dim_tuple(tensor.sizes, method);
  fields["strides"] = dim_tuple(tensor.strides, method);
  fields["min_shape"] = smallest;
  fields["max_shape"] = largest;
  fields["device"] = tensor.device_type == 0 ? "cpu" : "cuda";
}

py::object make_spec(const py::dict& fields) {
  return py::module_::import("cudaexec.specs").attr("TensorSpec")(**fields);
}

/// How a user reaches each leaf: "output", "output[0]", "output['a'].b".
void leaf_paths(const Tree& tree, const std::string& path, std::vector<std::string>& paths) {
  if (tree.kind == Tree::Kind::kLeaf) {
    paths.push_back(path);
    return;
  }
  const bool has_fields = tree.kind == Tree::Kind::kNamedTuple ||
                          tree.kind == Tree::Kind::kDataclass || tree.kind == Tree::Kind::kCustom;
  for (size_t i = 0; i < tree.children.size(); ++i) {
    std::string step = str("[", i, "]");
    if (i < tree.keys.size()) {
      const auto* field = std::get_if<std::string>(&tree.keys[i]);
      step = has_fields && field != nullptr ? str(".", *field)
                                            : str("[", scalar_text(tree.keys[i]), "]");
    }
    leaf_paths(tree.children[i], path + step, paths);
  }
}

const char* kind_name(OutputSpec::Kind kind) noexcept {
  switch (kind) {
    case OutputSpec::Kind::kTensor:
      return "tensor";
    case OutputSpec::Kind::kInt:
      return "int";
    case OutputSpec::Kind::kFloat:
      return "float";
    case OutputSpec::Kind::kBool:
      return "bool";
    case OutputSpec::Kind::kConstant:
      return "constant";
    case OutputSpec::Kind::kExpression:
      return "expression";
  }
  return "";
}

std::string output_text(const OutputSpec& output, const MethodSpec& method) {
  if (output.kind == OutputSpec::Kind::kTensor) return tensor_text(output.tensor, method);
  if (output.kind == OutputSpec::Kind::kConstant) return scalar_text(output.value);
  if (output.kind == OutputSpec::Kind::kExpression) {
    return expression_text(output.expression, method);
  }
  return kind_name(output.kind);
}

}  // namespace

py::list input_specs(const MethodSpec& method) {
  py::list specs;
  for (const InputSpec& input : method.inputs) {
    py::dict fields;
    fields["name"] = input.name;
    if (input.kind == InputSpec::Kind::kTensor) {
      fields["kind"] = "tensor";
      add_tensor(fields, input.tensor, method);
    } else {
      fields["kind"] = "constant";
      fields["value"] = scalar_object(input.value);
    }
    specs.append(make_spec(fields));
  }
  return specs;
}

py::list output_specs(const MethodSpec& method) {
  std::vector<std::string> paths;
  leaf_paths(method.out_tree, "output", paths);
  py::list specs;
  for (size_t i = 0; i < method.outputs.size(); ++i) {
    const OutputSpec& output = method.outputs[i];
    py::dict fields;
    fields["name"] = paths.at(i);
    fields["kind"] = kind_name(output.kind);
    if (output.kind == OutputSpec::Kind::kTensor) add_tensor(fields, output.tensor, method);
    if (output.kind == OutputSpec::Kind::kConstant) fields["value"] = scalar_object(output.value);
    if (output.kind == OutputSpec::Kind::kExpression) {
      fields["value"] = expression_text(output.expression, method);
    }
    specs.append(make_spec(fields));
  }
  return specs;
}

std::string method_text(const MethodSpec& method) {
  std::string inputs;
  for (const InputSpec& input : method.inputs) {
    const bool constant = input.kind == InputSpec::Kind::kConstant;
    inputs += str(inputs.empty() ? "" : ", ", input.name, constant ? "=" : ": ",
                  constant ? scalar_text(input.value) : tensor_text(input.tensor, method));
  }
  std::string outputs;
  for (const OutputSpec& output : method.outputs) {
    outputs += str(outputs.empty() ? "" : ", ", output_text(output, method));
  }
  const bool single = method.out_tree.kind == Tree::Kind::kLeaf;
  return str(method.name, "(", inputs, ") -> ", single ? outputs : str("(", outputs, ")"));
}

}  // namespace cudaexec::python

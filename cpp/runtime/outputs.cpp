#include "runtime/outputs.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "runtime/spec_text.h"
#include "tensor/convert.h"
#include "tensor/strided_copy.h"

namespace cudaexec {

Tensor clone_preserving_strides(const Tensor& tensor, Allocator& allocator, StreamRef stream) {
  Tensor copy = Tensor::empty_strided(tensor.sizes(), tensor.strides(), tensor.dtype(), Device{},
                                      allocator, stream);
  const size_t nbytes = copy.storage()->nbytes();
  if (nbytes == 0) return copy;
  // Without gaps between elements the whole range is copied at once; so it is where elements share
  // memory (stride 0), which an element-wise copy must not write twice.
  const auto repeats = [&tensor](size_t dim) {
    return tensor.stride(dim) == 0 && tensor.size(dim) > 1;
  };
  bool shares = false;
  for (size_t dim = 0; dim < tensor.sizes().size(); ++dim) shares = shares || repeats(dim);
  if (shares || nbytes == tensor.nbytes()) {
    std::memcpy(copy.data(), tensor.data(), nbytes);
  } else {
    strided_copy(copy, tensor);
  }
  return copy;
}

OutputPlan::OutputPlan(const MethodSpec& spec, const std::string& path) : spec_(spec) {
  std::vector<bool> used(spec.num_graph_outputs, false);
  leaves_.resize(spec.outputs.size());
  for (size_t i = spec.outputs.size(); i-- > 0;) {
    const OutputSpec& output = spec.outputs[i];
    leaves_[i] = {&output, true, i};
    if (output.kind == OutputSpec::Kind::kConstant ||
        output.kind == OutputSpec::Kind::kExpression) {
      continue;
    }
    if (output.graph_output >= used.size()) {
      throw FormatError(str(path, ": method '", spec.name, "': output ", i,
                            " is the code's output ", output.graph_output, " of ", used.size(),
                            "; the file is damaged"));
    }
    leaves_[i].last_use = !used[output.graph_output];
    used[output.graph_output] = true;
  }
}

std::vector<Value> OutputPlan::take(std::vector<Tensor>& graph_outputs,
                                    const std::vector<const Storage*>& inputs, const Dims& symbols,
                                    Allocator& allocator, StreamRef stream) const {
  std::vector<Value> values;
  values.reserve(leaves_.size());
  for (const Leaf& leaf : leaves_) {
    const OutputSpec& spec = *leaf.spec;
    switch (spec.kind) {
      case OutputSpec::Kind::kTensor: {
        Tensor& tensor = graph_outputs[spec.graph_output];
        check(leaf, tensor);
        values.emplace_back(
            own(leaf.last_use ? std::move(tensor) : tensor, inputs, allocator, stream));
        break;
      }
      case OutputSpec::Kind::kInt:
      case OutputSpec::Kind::kFloat:
      case OutputSpec::Kind::kBool:
        values.push_back(scalar(leaf, graph_outputs[spec.graph_output]));
        break;
      case OutputSpec::Kind::kConstant:
        std::visit([&values](const auto& value) { values.emplace_back(value); }, spec.value);
        break;
      case OutputSpec::Kind::kExpression: {
        const auto value = spec.expression.evaluate(symbols);
        if (!value) {
          throw ShapeError(str("method '", spec_.name, "': output ", leaf.index, ", ",
                               expression_text(spec.expression, spec_),
                               ", has no value for these sizes"));
        }
        values.emplace_back(*value);
        break;
      }
    }
  }
  return values;
}

Tensor OutputPlan::own(Tensor tensor, const std::vector<const Storage*>& inputs,
                       Allocator& allocator, StreamRef stream) const {
  const Storage* storage = tensor.storage().get();
  const bool is_own = storage->is_owned() && !storage->is_constant() &&
                      std::find(inputs.begin(), inputs.end(), storage) == inputs.end();
  if (is_own) [[likely]]
    return tensor;
  return clone_preserving_strides(tensor, allocator, stream);
}

void OutputPlan::check(const Leaf& leaf, const Tensor& tensor) const {
  const TensorShape& expected = leaf.spec->tensor;
  if (tensor.defined() && tensor.dtype() == expected.dtype &&
      tensor.sizes().size() == expected.sizes.size()) [[likely]] {
    return;
  }
  throw InternalError(str("method '", spec_.name, "': output ", leaf.index, ": expected ",
                          tensor_text(expected, spec_), ", the program returned ",
                          tensor.defined() ? describe(tensor) : "nothing",
                          "; the code does not belong to this manifest"));
}

Value OutputPlan::scalar(const Leaf& leaf, const Tensor& tensor) const {
  if (!tensor.defined() || tensor.numel() != 1 || !tensor.device().is_cpu()) {
    throw InternalError(str("method '", spec_.name, "': output ", leaf.index,
                            ": expected one number, the program returned ",
                            tensor.defined() ? describe(tensor) : "nothing"));
  }
  const auto* data = static_cast<const char*>(tensor.data());
  const auto read = [&](Dtype dtype, auto value) -> Value {
    row_converter(dtype, tensor.dtype())(1, reinterpret_cast<char*>(&value), 0, data, 0);
    return value;
  };
  if (leaf.spec->kind == OutputSpec::Kind::kInt) return read(Dtype::kInt64, int64_t{});
  if (leaf.spec->kind == OutputSpec::Kind::kBool) return read(Dtype::kBool, bool{});
  return read(Dtype::kFloat64, double{});
}

}  // namespace cudaexec

#include "runtime/outputs.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "runtime/spec_text.h"
#include "tensor/convert.h"
#include "tensor/device_copy.h"

namespace cudaexec {

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

void OutputPlan::take(std::vector<Tensor>& graph_outputs, const std::vector<const Storage*>& inputs,
                      const Dims& symbols, const CallMemory& memory,
                      std::vector<Value>& values) const {
  values.reserve(leaves_.size());
  for (const Leaf& leaf : leaves_) {
    const OutputSpec& spec = *leaf.spec;
    switch (spec.kind) {
      case OutputSpec::Kind::kTensor: {
        Tensor& tensor = graph_outputs[spec.graph_output];
        check(leaf, tensor);
        values.emplace_back(own(leaf.last_use ? std::move(tensor) : tensor, inputs, memory));
        break;
      }
      case OutputSpec::Kind::kInt:
      case OutputSpec::Kind::kFloat:
      case OutputSpec::Kind::kBool:
        values.push_back(scalar(leaf, graph_outputs[spec.graph_output], memory));
        break;
      case OutputSpec::Kind::kConstant:
      case OutputSpec::Kind::kExpression:
        values.push_back(computed(leaf, symbols));
        break;
    }
  }
}

Value OutputPlan::computed(const Leaf& leaf, const Dims& symbols) const {
  const OutputSpec& spec = *leaf.spec;
  if (spec.kind == OutputSpec::Kind::kConstant) {
    Value result;
    std::visit([&result](const auto& value) { result = value; }, spec.value);
    return result;
  }
  const auto value = spec.expression.evaluate(symbols);
  if (!value) {
    throw ShapeError(str("method '", spec_.name, "': output ", leaf.index, ", ",
                         expression_text(spec.expression, spec_),
                         ", has no value for these sizes"));
  }
  return *value;
}

bool OutputPlan::is_own(const Storage& storage,
                        const std::vector<const Storage*>& inputs) noexcept {
  return storage.is_owned() && !storage.is_constant() &&
         std::find(inputs.begin(), inputs.end(), &storage) == inputs.end();
}

std::vector<OutputPlan::Captured> OutputPlan::captured(const std::vector<Tensor>& graph_outputs,
                                                       const std::vector<const Storage*>& inputs,
                                                       const Dims& symbols) const {
  std::vector<Captured> result;
  result.reserve(leaves_.size());
  for (const Leaf& leaf : leaves_) {
    const OutputSpec& spec = *leaf.spec;
    switch (spec.kind) {
      case OutputSpec::Kind::kTensor: {
        const Tensor& tensor = graph_outputs[spec.graph_output];
        check(leaf, tensor);
        result.push_back({tensor.device().is_cpu(), is_own(*tensor.storage(), inputs), tensor});
        break;
      }
      case OutputSpec::Kind::kInt:
      case OutputSpec::Kind::kFloat:
      case OutputSpec::Kind::kBool: {
        const Tensor& number = graph_outputs[spec.graph_output];
        check_number(leaf, number);
        if (!number.device().is_cpu()) {
          throw CaptureError(str("method '", spec_.name, "': output ", leaf.index,
                                 " is a number that the host reads from the GPU"));
        }
        result.push_back({true, false, number_on_host(leaf, number)});
        break;
      }
      case OutputSpec::Kind::kConstant:
      case OutputSpec::Kind::kExpression:
        result.push_back({true, false, computed(leaf, symbols)});
        break;
    }
  }
  return result;
}

Tensor OutputPlan::own(Tensor tensor, const std::vector<const Storage*>& inputs,
                       const CallMemory& memory) {
  const Storage* storage = tensor.storage().get();
  const bool on_host = tensor.device().is_cpu();
  if (!on_host && memory.gpu->host_only()) {
    Tensor delivered = Tensor::empty_strided(tensor.sizes(), tensor.strides(), tensor.dtype(),
                                             Device{}, memory.host, {});
    memory.host_work->begin();
    copy_extent(delivered, tensor, memory.stream);
    return delivered;
  }
  if (is_own(*storage, inputs)) [[likely]]
    return tensor;
  return clone_strided(tensor, on_host ? memory.host : memory.device,
                       on_host ? StreamRef() : memory.stream);
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

void OutputPlan::check_number(const Leaf& leaf, const Tensor& number) const {
  if (number.defined() && number.numel() == 1) return;
  throw InternalError(str("method '", spec_.name, "': output ", leaf.index,
                          ": expected one number, the program returned ",
                          number.defined() ? describe(number) : "nothing"));
}

Value OutputPlan::number_on_host(const Leaf& leaf, const Tensor& number) const {
  const auto* data = static_cast<const char*>(number.data());
  const auto read = [&](Dtype dtype, auto value) -> Value {
    row_converter(dtype, number.dtype())(1, reinterpret_cast<char*>(&value), 0, data, 0);
    return value;
  };
  if (leaf.spec->kind == OutputSpec::Kind::kInt) return read(Dtype::kInt64, int64_t{});
  if (leaf.spec->kind == OutputSpec::Kind::kBool) return read(Dtype::kBool, bool{});
  return read(Dtype::kFloat64, double{});
}

Value OutputPlan::scalar(const Leaf& leaf, const Tensor& number, const CallMemory& memory) const {
  check_number(leaf, number);
  if (number.device().is_cpu()) return number_on_host(leaf, number);
  return number_on_host(leaf, host_copy(number, cpu_allocator(), memory.device, memory.stream));
}

}  // namespace cudaexec

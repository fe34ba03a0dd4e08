#include "runtime/input_check.h"

#include <bit>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "base/words.h"
#include "device/cuda/pointer_info.h"
#include "runtime/spec_text.h"
#include "tensor/device_copy.h"
#include "tensor/strided_copy.h"

namespace cudaexec {
namespace {

constexpr size_t kGpuAlignment = 16;  // bytes

std::string input_place(const MethodSpec& method, size_t input) {
  return str("method '", method.name, "': input '", method.inputs[input].name, "'");
}

std::string expected_text(const MethodSpec& method, size_t input) {
  return str("expected ", tensor_text(method.inputs[input].tensor, method));
}

/// Equal as Python objects of the same type; NaN equals NaN, and 0.0 differs from -0.0.
bool same_scalar(const Scalar& expected, const Value& found) {
  if (const auto* real = std::get_if<double>(&expected)) {
    const auto* other = std::get_if<double>(&found);
    if (other == nullptr) return false;
    if (std::isnan(*real)) return std::isnan(*other);
    return std::bit_cast<uint64_t>(*real) == std::bit_cast<uint64_t>(*other);
  }
  if (const auto* truth = std::get_if<bool>(&expected)) {
    const auto* other = std::get_if<bool>(&found);
    return other != nullptr && *other == *truth;
  }
  if (const auto* integer = std::get_if<int64_t>(&expected)) {
    const auto* other = std::get_if<int64_t>(&found);
    return other != nullptr && *other == *integer;
  }
  if (const auto* text = std::get_if<std::string>(&expected)) {
    const auto* other = std::get_if<std::string>(&found);
    return other != nullptr && *other == *text;
  }
  return std::holds_alternative<std::monostate>(found);
}

bool is_aligned(const void* data, size_t alignment) noexcept {
  return reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

}  // namespace

InputCheck::InputCheck(const MethodSpec& spec, const std::string& path, Device device)
    : spec_(spec) {
  std::vector<bool> seen(spec.num_graph_inputs, false);
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const InputSpec& input = spec.inputs[i];
    if (input.kind == InputSpec::Kind::kConstant) {
      constants_.push_back(i);
      continue;
    }
    const bool fits = input.graph_input < seen.size() && !seen[input.graph_input] &&
                      input.tensor.sizes.size() == input.tensor.strides.size();
    if (!fits) {
      throw FormatError(str(path, ": ", input_place(spec, i), " contradicts the ", seen.size(),
                            " inputs of its code; the file is damaged"));
    }
    seen[input.graph_input] = true;
    TensorRule rule;
    rule.input = i;
    rule.graph_input = input.graph_input;
    rule.dtype = input.tensor.dtype;
    if (input.tensor.device_type != 0) rule.device = device;
    rule.mutated = input.mutated;
    for (const Expression& size : input.tensor.sizes) rule.sizes.push_back(make_rule(size));
    for (const Expression& stride : input.tensor.strides) rule.strides.push_back(make_rule(stride));
    tensors_.push_back(std::move(rule));
  }
  for (const bool used : seen) {
    if (!used) {
      throw FormatError(str(path, ": method '", spec.name, "' names ", tensors_.size(),
                            " tensor inputs; its code takes ", seen.size(),
                            "; the file is damaged"));
    }
  }
  for (const Symbol& symbol : spec.symbols) {
    const bool fits = symbol.input < spec.inputs.size() &&
                      spec.inputs[symbol.input].kind == InputSpec::Kind::kTensor &&
                      symbol.dim < spec.inputs[symbol.input].tensor.sizes.size();
    if (!fits) {
      throw FormatError(str(path, ": method '", spec.name, "': no input defines the size ",
                            symbol.name, "; the file is damaged"));
    }
  }
}

InputCheck::DimRule InputCheck::make_rule(const Expression& expression) {
  DimRule rule;
  if (const auto constant = expression.constant()) {
    rule.constant = *constant;
  } else if (const auto symbol = expression.symbol()) {
    rule.symbol = static_cast<int32_t>(*symbol);
  } else {
    rule.expression = &expression;
  }
  return rule;
}

int64_t InputCheck::value_of(const DimRule& rule, const Dims& symbols,
                             const TensorRule& tensor) const {
  if (rule.expression == nullptr) [[likely]] {
    return rule.symbol < 0 ? rule.constant : symbols[static_cast<size_t>(rule.symbol)];
  }
  const auto value = rule.expression->evaluate(symbols);
  if (!value) {
    throw ShapeError(str(input_place(spec_, tensor.input), ": ",
                         expression_text(*rule.expression, spec_),
                         " has no value for these sizes; ", expected_text(spec_, tensor.input)));
  }
  return *value;
}

void InputCheck::check(std::span<const Value> inputs, Dims& symbols) const {
  if (inputs.size() != spec_.inputs.size()) {
    std::vector<std::string> names;
    for (const InputSpec& input : spec_.inputs) names.push_back(input.name);
    throw InputError(str("method '", spec_.name, "': expected ",
                         count_str(spec_.inputs.size(), "input"), " ", list_str(names), ", found ",
                         inputs.size()));
  }
  for (const size_t input : constants_) check_constant(input, inputs[input]);
  for (const TensorRule& rule : tensors_) check_kind(rule, inputs[rule.input]);
  if (!spec_.symbols.empty()) check_symbols(inputs, symbols);
  for (const TensorRule& rule : tensors_) {
    check_sizes(rule, std::get<Tensor>(inputs[rule.input]), symbols);
  }
  for (const Guard& guard : spec_.guards) {
    const auto value = guard.expression.evaluate(symbols);
    if (value && *value != 0) continue;
    std::string sizes;
    for (size_t i = 0; i < spec_.symbols.size(); ++i) {
      const Symbol& symbol = spec_.symbols[i];
      sizes += str(i == 0 ? "" : ", ", symbol.name, " = ", symbols[i], " (dimension ", symbol.dim,
                   " of '", spec_.inputs[symbol.input].name, "')");
    }
    throw ShapeError(str("method '", spec_.name, "': the sizes break the condition ", guard.text,
                         " under which the program was exported: ", sizes,
                         "; use sizes that fit, or export with other dynamic shapes"));
  }
}

void InputCheck::check_constant(size_t input, const Value& value) const {
  const Scalar& expected = spec_.inputs[input].value;
  if (!same_scalar(expected, value)) check_compiled_in(input_place(spec_, input), expected, value);
}

void check_compiled_in(const std::string& place, const Scalar& expected, const Value& value) {
  if (same_scalar(expected, value)) return;
  Value wanted;
  std::visit([&wanted](const auto& scalar) { wanted = scalar; }, expected);
  throw InputError(str(place, " was compiled in: expected ", value_text(wanted), ", found ",
                       value_text(value), "; pass the same value, or export again with this one"));
}

void InputCheck::check_kind(const TensorRule& rule, const Value& value) const {
  const auto* tensor = std::get_if<Tensor>(&value);
  if (tensor == nullptr || !tensor->defined()) [[unlikely]] {
    throw InputError(str(input_place(spec_, rule.input), ": ", expected_text(spec_, rule.input),
                         ", found ", tensor == nullptr ? value_text(value) : "an empty handle",
                         "; pass an array"));
  }
  if (tensor->dtype() != rule.dtype) [[unlikely]] {
    throw DtypeError(str(input_place(spec_, rule.input), ": ", expected_text(spec_, rule.input),
                         ", found ", describe(*tensor), "; convert it to ", dtype_name(rule.dtype),
                         " first"));
  }
  if (tensor->sizes().size() != rule.sizes.size()) [[unlikely]] {
    throw ShapeError(str(input_place(spec_, rule.input), ": ", expected_text(spec_, rule.input),
                         ", found ", describe(*tensor), ": rank ", tensor->dim(), ", not ",
                         rule.sizes.size()));
  }
  if (!tensor->device().is_cpu() && !(tensor->device() == rule.device)) [[unlikely]] {
    check_device(rule, *tensor);
  }
}

void InputCheck::check_device(const TensorRule& rule, const Tensor& tensor) const {
  const bool on_host = rule.device.is_cpu();
  throw DeviceError(str(input_place(spec_, rule.input), ": expected a tensor on the cpu",
                        on_host ? "" : str(" or ", to_string(rule.device)), ", found ",
                        describe(tensor), " on ", to_string(tensor.device()), "; copy it to ",
                        on_host ? "the host" : to_string(rule.device), " first"));
}

void InputCheck::check_symbols(std::span<const Value> inputs, Dims& symbols) const {
  symbols.assign(spec_.symbols.size(), 0);
  for (size_t i = 0; i < symbols.size(); ++i) {
    const Symbol& symbol = spec_.symbols[i];
    const auto& tensor = std::get<Tensor>(inputs[symbol.input]);
    const int64_t size = tensor.size(symbol.dim);
    if (size < symbol.min || (symbol.max && size > *symbol.max)) [[unlikely]] {
      throw ShapeError(str(
          input_place(spec_, symbol.input), ": ", expected_text(spec_, symbol.input), ", found ",
          describe(tensor), ": dimension ", symbol.dim, " is ", size, ", outside ",
          range_text(symbol), "; export with a wider range for ", symbol.name,
          size == 1 && symbol.min == 2 ? " (if it was: the export's report says why it has no 1)"
                                       : ""));
    }
    symbols[i] = size;
  }
}

void InputCheck::check_sizes(const TensorRule& rule, const Tensor& tensor,
                             const Dims& symbols) const {
  for (size_t dim = 0; dim < rule.sizes.size(); ++dim) {
    const int64_t expected = value_of(rule.sizes[dim], symbols, rule);
    if (tensor.size(dim) == expected) [[likely]]
      continue;
    const bool fixed = spec_.inputs[rule.input].tensor.sizes[dim].constant().has_value();
    throw ShapeError(str(input_place(spec_, rule.input), ": ", expected_text(spec_, rule.input),
                         ", found ", describe(tensor), ": dimension ", dim, " is ",
                         tensor.size(dim), ", not ", expected,
                         fixed ? "; export with dynamic_shapes to vary it"
                               : "; it follows from the sizes of the other inputs"));
  }
}

void InputCheck::bind(std::span<Value> inputs, const Dims& symbols,
                      std::vector<Tensor>& graph_inputs, const CallMemory& memory) const {
  graph_inputs.resize(tensors_.size());
  for (const TensorRule& rule : tensors_) {
    graph_inputs[rule.graph_input] =
        in_layout(rule, std::move(std::get<Tensor>(inputs[rule.input])), symbols, memory);
  }
}

InputCheck::Fit InputCheck::fit_of(const TensorRule& rule, const Tensor& tensor,
                                   const Dims& symbols) const {
  Fit fit;
  for (size_t dim = 0; dim < rule.strides.size(); ++dim) {
    const int64_t size = tensor.size(dim);
    const int64_t stride = value_of(rule.strides[dim], symbols, rule);
    fit.empty = fit.empty || size == 0;
    fit.repeats = fit.repeats || (size > 1 && stride == 0);
    if (stride == tensor.stride(dim)) continue;
    fit.same = false;
    if (size > 1) {
      fit.usable = false;
      fit.overlaps = fit.overlaps || stride == 0;
    }
  }
  fit.usable = fit.usable || fit.empty;
  fit.overlaps =
      (fit.overlaps || (fit.repeats && !fit.usable && !rule.device.is_cpu())) && !fit.empty;
  return fit;
}

bool InputCheck::is_usable(const TensorRule& rule, const Tensor& tensor, bool empty) {
  // GPU code copies what is not aligned to 16 bytes itself, with a warning each time.
  const size_t alignment = rule.device.is_cpu() ? tensor.itemsize() : kGpuAlignment;
  const bool aligned = empty || is_aligned(tensor.data(), alignment);
  return aligned && !rule.mutated && tensor.device() == rule.device;
}

Dims InputCheck::strides_of(const TensorRule& rule, const Dims& symbols) const {
  Dims strides(rule.strides.size());
  for (size_t dim = 0; dim < strides.size(); ++dim) {
    strides[dim] = value_of(rule.strides[dim], symbols, rule);
  }
  return strides;
}

void InputCheck::refuse_overlap(const TensorRule& rule, const Tensor& tensor,
                                const Dims& strides) const {
  throw ShapeError(str(input_place(spec_, rule.input),
                       " was exported as a broadcast tensor with "
                       "strides ",
                       list_str(strides), ", found ", describe(tensor), " with strides ",
                       list_str(tensor.strides()),
                       "; export again with a contiguous example input"));
}

Tensor InputCheck::in_layout(const TensorRule& rule, Tensor tensor, const Dims& symbols,
                             const CallMemory& memory) const {
  const Fit fit = fit_of(rule, tensor, symbols);
  const bool in_place = is_usable(rule, tensor, fit.empty);
  if (fit.same && in_place) [[likely]]
    return tensor;

  Dims strides = strides_of(rule, symbols);
  if (fit.usable && in_place) {
    return {tensor.storage(), tensor.offset(), tensor.sizes(), std::move(strides), rule.dtype};
  }
  if (fit.overlaps) refuse_overlap(rule, tensor, strides);
  return copy_in(rule, tensor, strides, fit.repeats && fit.usable, memory);
}

Tensor InputCheck::copy_in(const TensorRule& rule, const Tensor& tensor, const Dims& strides,
                           bool whole, const CallMemory& memory) const {
  const bool to_host = rule.device.is_cpu();
  Tensor copy = Tensor::empty_strided(tensor.sizes(), strides, rule.dtype, rule.device,
                                      to_host ? memory.host : memory.device,
                                      to_host ? StreamRef() : memory.stream);
  copy_into(copy, tensor, whole, memory);
  return copy;
}

void InputCheck::copy_into(const Tensor& copy, const Tensor& tensor, bool whole,
                           const CallMemory& memory) {
  if (tensor.numel() == 0) return;
  Tensor source = tensor;
  if (!copy.device().is_cpu() && tensor.device().is_cpu()) {
    // Page-locked memory is read after the call has returned, unless the call waits at its end.
    if (memory.gpu->host_only()) {
      memory.host_work->begin();
    } else if (pointer_info(tensor.data()).kind != MemoryKind::kPageable) {
      source = clone_strided(tensor, cpu_allocator(), {});
    }
  }
  if (whole) {
    copy_extent(copy, source, memory.stream);
  } else {
    copy_elements(copy, source, memory.device, memory.stream);
  }
}

std::vector<InputCheck::Place> InputCheck::places(std::span<const Value> inputs,
                                                  const Dims& symbols, bool in_place,
                                                  Allocator& memory, StreamRef stream) const {
  std::vector<Place> result;
  result.reserve(tensors_.size());
  for (const TensorRule& rule : tensors_) {
    const auto& tensor = std::get<Tensor>(inputs[rule.input]);
    const Fit fit = fit_of(rule, tensor, symbols);
    const Dims strides = strides_of(rule, symbols);
    if (fit.overlaps) refuse_overlap(rule, tensor, strides);
    const bool stays = in_place && fit.usable && is_usable(rule, tensor, fit.empty);
    Tensor target =
        stays ? Tensor(tensor.storage(), tensor.offset(), tensor.sizes(), strides, rule.dtype)
              : Tensor::empty_strided(tensor.sizes(), strides, rule.dtype, rule.device, memory,
                                      stream);
    result.push_back({rule.input, rule.graph_input, std::move(target), fit.usable, stays});
  }
  return result;
}

void InputCheck::copy_to(const Place& place, const Tensor& tensor, const CallMemory& memory) const {
  const Tensor source = place.whole ? Tensor(tensor.storage(), tensor.offset(), tensor.sizes(),
                                             place.target.strides(), tensor.dtype())
                                    : tensor;
  copy_into(place.target, source, place.whole, memory);
}

const std::string* InputCheck::host_input() const noexcept {
  for (const TensorRule& rule : tensors_) {
    if (rule.device.is_cpu()) return &spec_.inputs[rule.input].name;
  }
  return nullptr;
}

}  // namespace cudaexec

#include "runtime/bound_outputs.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/str.h"
#include "runtime/spec_text.h"
#include "tensor/device_copy.h"

namespace cudaexec {
namespace {

struct Range {
  uintptr_t first = 0, last = 0;  // bytes
  std::string name;
};

Range range_of(const Tensor& tensor, std::string name) {
  const auto first = reinterpret_cast<uintptr_t>(tensor.data());
  const auto nbytes =
      static_cast<uintptr_t>(extent(tensor.sizes(), tensor.strides())) * tensor.itemsize();
  return {first, first + nbytes, std::move(name)};
}

bool overlap(const Range& a, const Range& b) noexcept {
  return a.first < b.last && b.first < a.last;
}

/// Whether every element has a place of its own: each stride steps over all that smaller ones
/// reach.
bool is_injective(const Tensor& tensor) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t i = 0; i < tensor.sizes().size(); ++i) {
    if (tensor.size(i) > 1) dims.emplace_back(tensor.stride(i), tensor.size(i));
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return false;
    reach += stride * (size - 1);
  }
  return true;
}

void check_tensor(const MethodSpec& spec, size_t leaf, const Dims& symbols, Device device,
                  const Tensor& tensor) {
  const TensorShape& expected = spec.outputs[leaf].tensor;
  const std::string found = str("method '", spec.name, "': bind: output ", leaf, ": expected ",
                                tensor_text(expected, spec), ", found ", describe(tensor));
  if (tensor.dtype() != expected.dtype) throw DtypeError(found + "; pass memory of that dtype");
  bool fits = tensor.sizes().size() == expected.sizes.size();
  for (size_t dim = 0; fits && dim < expected.sizes.size(); ++dim) {
    const auto size = expected.sizes[dim].evaluate(symbols);
    if (!size) {
      throw NotSupported(str("method '", spec.name, "': bind: the shape of output ", leaf,
                             " is not known before a call"));
    }
    fits = tensor.size(dim) == *size;
  }
  if (!fits) throw ShapeError(found + "; its sizes follow from the inputs");
  if (!tensor.device().is_cpu() && !(tensor.device() == device)) {
    throw DeviceError(str(found, " on ", to_string(tensor.device()), "; the program runs on ",
                          to_string(device)));
  }
  if (tensor.numel() != 0 && !is_injective(tensor)) {
    throw InputError(str(found, " with strides ", list_str(tensor.strides()),
                         ": elements share memory; pass memory of its own for each"));
  }
}

}  // namespace

void BoundOutputs::fill(const std::vector<Value>& values, const CallMemory& memory) const {
  if (memory.host_work != nullptr) memory.host_work->wait();  // for what was copied to the host
  for (size_t i = 0; i < values.size(); ++i) {
    const Tensor* const target = place(i);
    if (target == nullptr) continue;
    copy_elements(*target, std::get<Tensor>(values[i]), memory.device, memory.stream);
  }
}

void check_bound_outputs(const MethodSpec& spec, const Dims& symbols, Device device,
                         std::span<const Value> inputs, std::span<const Value> outputs) {
  if (outputs.size() != spec.outputs.size()) {
    throw InputError(str("method '", spec.name, "': bind: expected memory for ",
                         spec.outputs.size(), " outputs, found ", outputs.size()));
  }
  std::vector<Range> ranges;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto* tensor = std::get_if<Tensor>(&inputs[i]);
    if (tensor != nullptr && tensor->numel() != 0) {
      ranges.push_back(range_of(*tensor, str("input '", spec.inputs[i].name, "'")));
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto* tensor = std::get_if<Tensor>(&outputs[i]);
    const bool wanted = spec.outputs[i].kind == OutputSpec::Kind::kTensor;
    if (wanted != (tensor != nullptr)) {
      throw InputError(
          str("method '", spec.name, "': bind: output ", i,
              wanted ? " is a tensor, found no memory for it" : " is no tensor: pass None for it"));
    }
    if (tensor == nullptr) continue;
    check_tensor(spec, i, symbols, device, *tensor);
    if (tensor->numel() == 0) continue;
    Range range = range_of(*tensor, str("output ", i));
    for (const Range& other : ranges) {
      if (!overlap(range, other)) continue;
      throw InputError(str("method '", spec.name, "': bind: output ", i, " shares memory with ",
                           other.name, "; pass memory of its own"));
    }
    ranges.push_back(std::move(range));
  }
}

}  // namespace cudaexec

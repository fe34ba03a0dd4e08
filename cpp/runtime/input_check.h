// Checks the inputs of every call against what the program was exported for, and brings them into
// the compiled layout. Generated code checks nothing by itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "format/manifest.h"
#include "runtime/gpu_call.h"
#include "runtime/module.h"
#include "tensor/dims.h"

namespace cudaexec {

/// @throws InputError that begins with `place` unless `value` is the one that was compiled in.
CUDAEXEC_API void check_compiled_in(const std::string& place, const Scalar& expected,
                                    const Value& value);

class InputCheck {
 public:
  /// `spec` must outlive it. `device` is the program's. @throws FormatError if the spec contradicts
  /// itself; `path` is for messages.
  InputCheck(const MethodSpec& spec, const std::string& path, Device device);

  /// Checks count, kinds, scalars, dtypes, ranks, devices, sizes and guards; `symbols` gets the
  /// value of each symbol. Nothing is changed or copied.
  /// @throws InputError, DtypeError, ShapeError, DeviceError naming method, input, expected, found.
  void check(std::span<const Value> inputs, Dims& symbols) const;

  /// After check(): moves the tensors into `graph_inputs`, in the program's order. Copies, from
  /// `memory`, those with other strides than the compiled ones, misaligned ones, those that the
  /// program writes, and host tensors that a GPU takes. @throws OutOfMemory; ShapeError where the
  /// compiled layout overlaps itself and the tensor has another one.
  void bind(std::span<Value> inputs, const Dims& symbols, std::vector<Tensor>& graph_inputs,
            const CallMemory& memory) const;

 private:
  /// A size or stride: a constant, a symbol, or an expression.
  struct DimRule {
    int64_t constant = 0;
    int32_t symbol = -1;
    const Expression* expression = nullptr;
  };
  struct TensorRule {
    size_t input = 0;  // leaf
    size_t graph_input = 0;
    Dtype dtype = Dtype::kFloat32;
    Device device;  // where the program takes it
    bool mutated = false;
    std::vector<DimRule> sizes, strides;
  };

  [[nodiscard]] const MethodSpec& spec() const noexcept { return spec_; }
  static DimRule make_rule(const Expression& expression);
  [[nodiscard]] int64_t value_of(const DimRule& rule, const Dims& symbols,
                                 const TensorRule& tensor) const;
  void check_constant(size_t input, const Value& value) const;
  void check_kind(const TensorRule& rule, const Value& value) const;
  void check_device(const TensorRule& rule, const Tensor& tensor) const;
  void check_symbols(std::span<const Value> inputs, Dims& symbols) const;
  void check_sizes(const TensorRule& rule, const Tensor& tensor, const Dims& symbols) const;
  [[nodiscard]] Tensor in_layout(const TensorRule& rule, Tensor tensor, const Dims& symbols,
                                 const CallMemory& memory) const;
  [[nodiscard]] Tensor copy_in(const TensorRule& rule, const Tensor& tensor, const Dims& strides,
                               bool whole, const CallMemory& memory) const;

  const MethodSpec& spec_;
  std::vector<TensorRule> tensors_;
  std::vector<size_t> constants_;  // leaves
};

}  // namespace cudaexec

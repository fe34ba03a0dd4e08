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

  /// Where a captured call takes a tensor input from.
  struct Place {
    size_t input = 0;        // leaf
    size_t graph_input = 0;  // of the code
    Tensor target;           // in the compiled layout
    bool whole = false;      // the caller's has that layout: one run of bytes
    bool in_place = false;   // `target` is the caller's own memory
  };
  /// After check(): for every tensor input, memory that calls with inputs like these are copied
  /// to; `in_place`: or the input's own, where the code can take that. @throws as bind().
  [[nodiscard]] std::vector<Place> places(std::span<const Value> inputs, const Dims& symbols,
                                          bool in_place, Allocator& memory, StreamRef stream) const;
  /// Copies an input to its place; `memory` as for bind(). The layout is one that places() saw.
  void copy_to(const Place& place, const Tensor& tensor, const CallMemory& memory) const;
  /// The name of an input that the program's host code reads; null if there is none.
  [[nodiscard]] const std::string* host_input() const noexcept;

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

  /// A tensor beside the compiled layout.
  struct Fit {
    bool same = true;      // every stride is the compiled one
    bool usable = true;    // the elements lie where the compiled strides expect them
    bool repeats = false;  // the compiled layout shows elements several times
    bool empty = false;
    bool overlaps = false;  // it would have to be copied into a layout that overlaps itself
  };

  static DimRule make_rule(const Expression& expression);
  [[nodiscard]] int64_t value_of(const DimRule& rule, const Dims& symbols,
                                 const TensorRule& tensor) const;
  void check_constant(size_t input, const Value& value) const;
  void check_kind(const TensorRule& rule, const Value& value) const;
  void check_device(const TensorRule& rule, const Tensor& tensor) const;
  void check_symbols(std::span<const Value> inputs, Dims& symbols) const;
  void check_sizes(const TensorRule& rule, const Tensor& tensor, const Dims& symbols) const;
  /// Whether code can take it as it lies, once its layout fits.
  [[nodiscard]] static bool is_usable(const TensorRule& rule, const Tensor& tensor, bool empty);
  [[nodiscard]] Fit fit_of(const TensorRule& rule, const Tensor& tensor, const Dims& symbols) const;
  [[nodiscard]] Dims strides_of(const TensorRule& rule, const Dims& symbols) const;
  [[noreturn]] void refuse_overlap(const TensorRule& rule, const Tensor& tensor,
                                   const Dims& strides) const;
  static void copy_into(const Tensor& copy, const Tensor& tensor, bool whole,
                        const CallMemory& memory);
  [[nodiscard]] Tensor in_layout(const TensorRule& rule, Tensor tensor, const Dims& symbols,
                                 const CallMemory& memory) const;
  [[nodiscard]] Tensor copy_in(const TensorRule& rule, const Tensor& tensor, const Dims& strides,
                               bool whole, const CallMemory& memory) const;

  const MethodSpec& spec_;
  std::vector<TensorRule> tensors_;
  std::vector<size_t> constants_;  // leaves
};

}  // namespace cudaexec

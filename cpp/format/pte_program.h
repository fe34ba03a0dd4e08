// The content of a .pte program as plain C++ data. Strings and spans are views into the mapped file
// and live as long as the PteFile. Every index was checked when the file was opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "base/export.h"
#include "format/mapped_file.h"

namespace cudaexec {

enum class ShapeDynamism : int8_t { kStatic = 0, kDynamicBound = 1, kDynamicUnbound = 2 };

struct PteTensor {
  struct Planned {
    uint32_t memory_id = 0;  // index into PteMethod::buffer_sizes
    uint64_t offset = 0;     // bytes
  };

  int32_t scalar_type = 0;  // torch's code; may be one that tensor/dtype.h lacks
  int32_t storage_offset = 0;
  std::span<const int32_t> sizes;  // upper bounds unless dynamism is kStatic
  std::span<const uint8_t>
      dim_order;  // a permutation of the dimensions, outermost first; may be empty
  bool requires_grad = false;
  int8_t layout = 0;  // 0: strided
  ShapeDynamism dynamism = ShapeDynamism::kStatic;
  uint32_t data_buffer_idx = 0;  // > 0: index into the constant (or mutable) segment's offsets
  std::optional<Planned> planned;
  uint64_t mutable_data_segments_idx = 0;
  std::string_view fully_qualified_name;  // of an external or mutable tensor
  bool external = false;                  // the data lie in the .ptd, under the name above
  int32_t device_type = 0;                // 0 CPU, 1 CUDA
  int32_t device_index = 0;
};

struct PteIntList {
  std::span<const int64_t> items;
};  // indices into PteMethod::values
struct PteDoubleList {
  std::span<const double> items;
};
struct PteBoolList {
  std::span<const uint8_t> items;
};
struct PteTensorList {
  std::span<const int32_t> items;
};  // indices into PteMethod::values
struct PteOptionalTensorList {
  std::span<const int32_t> items;
};  // the same; -1: none

/// std::monostate is Null. The order is that of the file's type codes, from 1.
using PteValue =
    std::variant<std::monostate, int64_t, bool, double, PteTensor, std::string_view, PteIntList,
                 PteDoubleList, PteBoolList, PteTensorList, PteOptionalTensorList>;

struct PteKernelCall {
  size_t op = 0;                  // index into PteMethod::operators
  std::span<const int32_t> args;  // indices into PteMethod::values
};
struct PteDelegateCall {
  size_t delegate = 0;            // index into PteMethod::delegates
  std::span<const int32_t> args;  // the inputs, then the outputs
};
struct PteMove {
  size_t from = 0, to = 0;
};
struct PteJumpFalse {
  size_t condition = 0, destination = 0;
};  // a value; an instruction (may be the end)
struct PteFree {
  size_t value = 0;
};

using PteInstruction = std::variant<PteKernelCall, PteDelegateCall, PteMove, PteJumpFalse, PteFree>;

struct PteOperator {
  std::string_view name;      // "aten::add"
  std::string_view overload;  // "out"
};

struct PteCompileSpec {
  std::string_view key;
  std::span<const std::byte> value;
};

struct PteDelegate {
  std::string_view id;  // the backend that runs it
  FileBlob processed;   // the payload; may be empty
  bool is_inline = false;
  std::vector<PteCompileSpec> compile_specs;

  /// The value of a compile spec as text, or nothing.
  [[nodiscard]] CUDAEXEC_API std::optional<std::string_view> spec(
      std::string_view key) const noexcept;
};

struct PteBufferDevice {
  size_t memory_id = 0;  // as PteTensor::Planned
  int32_t device_type = 0;
  int32_t device_index = 0;
};

struct PteMethod {
  std::string_view name;
  std::string_view encoded_inputs, encoded_outputs;  // ExecuTorch's pytree specs
  std::vector<PteValue> values;
  std::span<const int32_t> inputs, outputs;         // indices into values
  std::vector<std::vector<PteInstruction>> chains;  // one as a rule; empty for a constant method
  std::vector<PteOperator> operators;
  std::vector<PteDelegate> delegates;
  std::span<const int64_t> buffer_sizes;  // bytes of planned memory; entry 0 is reserved
  std::vector<PteBufferDevice> buffer_devices;
};

/// Several tensors in one segment: tensor k starts at offsets[data_buffer_idx], in bytes.
struct PteSubsegments {
  uint32_t segment_index = 0;
  std::span<const uint64_t> offsets;
};

}  // namespace cudaexec

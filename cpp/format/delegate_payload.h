// The `processed` bytes of an AOTInductor delegate: which code and which constants a method uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/export.h"

namespace cudaexec {

enum class PayloadLayout : uint8_t {
  kFqn0,   // ETCUDAFQN0: code variants and constants; what cudaexec writes
  kFqn3,   // ETCUDAFQN3: one code blob and constants
  kKeys,   // "<so key>\n<weights key>"
  kEmpty,  // no bytes: the keys follow from the method's name
};

struct PayloadVariant {
  uint32_t target_sm = 0;    // 90 for sm_90; 0: not tied to a GPU architecture
  uint32_t ptx_compute = 0;  // 0: no PTX
  bool fallback_only = false;
  std::string so_key;  // named data of the .pte
};

struct PayloadConstant {
  std::string fqn;
  std::string storage_key;  // named data of the .ptd
  uint64_t storage_nbytes = 0;
  int32_t dtype = 0;                    // torch's code; may be one that tensor/dtype.h lacks
  int32_t device = 0;                   // 0 CPU, 1 CUDA
  int64_t offset = 0;                   // elements into the storage
  std::vector<int64_t> sizes, strides;  // elements
};

struct DelegatePayload {
  PayloadLayout layout = PayloadLayout::kEmpty;
  std::vector<PayloadVariant> variants;    // at least one
  std::vector<PayloadConstant> constants;  // kFqn0 and kFqn3 only
  std::string weights_key;  // kKeys and kEmpty: one dense blob, named data of the .ptd
};

/// @param processed   the delegate's bytes. Nothing in the result points into them.
/// @param method_name the delegate's `method_name` compile spec; needed for the empty layout only.
/// @param path, file_offset  where the bytes lie, for messages.
/// @throws FormatError for an unknown layout, a length or count that does not fit, a bad variant
/// set, a constant outside its storage, a repeated name, or bytes that follow the end.
CUDAEXEC_API DelegatePayload decode_delegate_payload(std::span<const std::byte> processed,
                                                     std::string_view method_name,
                                                     const std::string& path, uint64_t file_offset);

}  // namespace cudaexec

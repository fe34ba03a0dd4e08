// How a copy or fill of arbitrary strides is best done: fewer dimensions, larger elements, and
// which kernel. Pure arithmetic; no driver call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/export.h"

namespace cudaexec {

struct StridedDim {
  int64_t size;
  int64_t dst_stride;  // bytes
  int64_t src_stride;  // bytes; may be 0
  friend bool operator==(const StridedDim&, const StridedDim&) = default;
};

struct StridedPlan {
  enum class Method {
    kNothing,    // no elements
    kFlat,       // one run of bytes
    kElements,   // one thread per element
    kTranspose,  // tiles: dims.back() is contiguous in dst, dims[transposed] in src
  };
  Method method = Method::kNothing;
  size_t itemsize = 1;           // bytes a thread moves at once: 1, 2, 4, 8 or 16
  std::vector<StridedDim> dims;  // outermost first, sizes > 1 but for a single element
  size_t transposed = 0;
  [[nodiscard]] int64_t count() const noexcept {
    int64_t elements = 1;
    for (const StridedDim& dim : dims) elements *= dim.size;
    return elements;
  }
};

/// Plans dst[i] = src[i]. `itemsize`: 1, 2, 4, 8 or 16; `dims` in any order. The addresses matter
/// for how many bytes can be moved at once.
CUDAEXEC_API StridedPlan plan_strided_copy(std::vector<StridedDim> dims, size_t itemsize,
                                           uintptr_t dst, uintptr_t src);

}  // namespace cudaexec

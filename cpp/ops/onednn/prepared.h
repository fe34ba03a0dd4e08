// Convolution primitives of oneDNN, kept by everything they depend on.
#pragma once

#include <dnnl.hpp>
#include <memory>
#include <optional>

#include "ops/convolution.h"

namespace cudaexec::ops::onednn {

/// The one engine of the process.
const dnnl::engine& cpu_engine();

/// One convolution compiled by oneDNN and what surrounds it. Immutable, so threads may share it.
struct PreparedConvolution {
  dnnl::primitive convolution;
  dnnl::memory::desc source, weights, bias, result, scratchpad;  // as the primitive takes them
  dnnl::memory::desc source_given, result_given;                 // as the caller's tensors lie
  std::optional<dnnl::reorder> source_reorder, result_reorder;   // where the two differ
};

/// The primitive for this problem and for the number of threads that a region has now; null where
/// oneDNN has none. Makes and keeps it on first use; the least recently used one goes beyond
/// kMaxPrimitives. Thread-safe.
std::shared_ptr<const PreparedConvolution> prepare(const ConvolutionProblem& problem);

inline constexpr size_t kMaxPrimitives = 256;
int64_t cached_primitives();

/// The weight as oneDNN sees it: [groups,] out, in, kernel, with the strides of torch's tensor.
dnnl::memory::desc weight_as_given(const ConvolutionProblem& problem);

dnnl::memory::data_type data_type(Dtype dtype);

}  // namespace cudaexec::ops::onednn

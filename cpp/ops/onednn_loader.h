// libcudaexec_onednn.so, which lies beside this library and is opened when the first convolution
// needs it. It stays open: its threads and caches outlive any program.
#pragma once

#include "ops/convolution.h"

namespace cudaexec::ops {

/// What the library offers. It is built with this one; `version` tells a stray copy of another
/// build.
struct OnednnFunctions {
  const char* version;  // of cudaexec
  /// Computes the problem and returns true, or returns false, having done nothing, where oneDNN has
  /// no kernel for it. @throws OutOfMemory, InternalError.
  bool (*convolve)(const ConvolutionProblem& problem, const OpContext& context);
  /// Primitives kept for further calls.
  int64_t (*cached_primitives)();
};

/// Name of the one function that the library exports: `const OnednnFunctions* (*)()`.
inline constexpr const char* kOnednnEntry = "cudaexec_onednn_functions";

/// The library's functions, or null where it is not installed (convolve_gathered() serves instead).
/// @throws NotSupported if it is there but cannot be opened or is of another version. Thread-safe.
CUDAEXEC_API const OnednnFunctions* onednn_functions();

}  // namespace cudaexec::ops

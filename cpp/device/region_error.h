// Errors inside an OpenMP region of generated code. The compiler ends the process when an exception
// leaves such a region, so a check that fails there jumps to the region's entry point instead, and
// the exception waits here, on the thread that started the region, until the run is over.
#pragma once

#include <exception>

#include "base/export.h"

namespace cudaexec {
namespace region_detail {
/// Whether this thread has an exception waiting.
extern constinit thread_local bool failed __attribute__((tls_model("initial-exec")));
}  // namespace region_detail

/// True from the failure of a region until take_region_error(): further work is pointless.
inline bool region_failed() noexcept { return region_detail::failed; }

/// Inside an OpenMP region: ends the region for its whole team and does not return (memory that the
/// region's body holds is lost). Elsewhere: returns at once.
void fail_region(std::exception_ptr error) noexcept;

/// Keeps `error` on this thread, unless one is waiting already.
void set_region_error(std::exception_ptr error) noexcept;

/// The exception of the last failed region of this thread, or null; clears it.
CUDAEXEC_API std::exception_ptr take_region_error() noexcept;

}  // namespace cudaexec

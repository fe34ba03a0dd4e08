// Shared by the files that bind cudaexec._core._testing.cuda.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

#include "device/device.h"

namespace cudaexec::python {

inline void* pointer(uintptr_t address) noexcept { return reinterpret_cast<void*>(address); }
inline StreamRef stream_ref(uintptr_t handle) noexcept { return StreamRef(pointer(handle)); }
inline uintptr_t address(StreamRef stream) noexcept {
  return reinterpret_cast<uintptr_t>(stream.get());
}

void bind_cuda_memory_testing(pybind11::module_& m);
void bind_cuda_code_testing(pybind11::module_& m);
void bind_cuda_ops_testing(pybind11::module_& m);
void bind_cuda_echo_testing(pybind11::module_& m);
void bind_cuda_program_testing(pybind11::module_& m);

}  // namespace cudaexec::python

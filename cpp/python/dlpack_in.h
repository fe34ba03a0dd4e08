// Tensors of other libraries through DLPack: the table of C functions on their type, __dlpack__,
// and capsules.
#pragma once

#include "python/convert_in.h"

namespace cudaexec::python {

Tensor tensor_from_exchange_api(PyObject* object, const TypeInfo& info, Borrowed& borrowed);
/// Memory on a GPU is asked for on the stream of the call, as the DLPack standard says.
Tensor tensor_from_dlpack_method(PyObject* object, Borrowed& borrowed);
/// Takes the tensor out of a capsule, which others then find used. Memory on a GPU is taken to be
/// ready on the legacy default stream.
Tensor tensor_from_capsule(PyObject* capsule, Borrowed& borrowed);

/// The refusal of `what` (on GPU `device`) by a program that runs on the CPU.
[[noreturn]] void refuse_gpu_memory(const std::string& what, int device);

}  // namespace cudaexec::python

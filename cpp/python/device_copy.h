// Copies of tensors on GPUs that Python asks for.
#pragma once

#include "tensor/tensor.h"

namespace cudaexec::python {

/// The elements in host memory; waits for what makes them and for the copy. Strides are kept where
/// the elements are dense, else row-major. The tensor itself if it is on the CPU. Without the GIL.
/// @throws OutOfMemory, NotSupported (no GPU code in this build, for elements that lie apart).
Tensor copy_to_host(const Tensor& tensor);

/// A row-major copy on the same GPU, ordered on `stream`, which must follow what makes the tensor.
Tensor copy_on_device(const Tensor& tensor, StreamRef stream);

}  // namespace cudaexec::python

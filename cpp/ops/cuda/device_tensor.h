// Tensors in GPU memory: what the operators of ops/cuda share.
#pragma once

#include <initializer_list>
#include <span>
#include <utility>

#include "device/cuda/cuda_device.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::gpu {

/// A named operand, for messages.
using NamedTensor = std::pair<const char*, const Tensor*>;

/// The GPU that all operands are on. @throws DeviceError if one is elsewhere.
CudaDevice& common_device(const char* op, std::initializer_list<NamedTensor> operands);

/// Uninitialised memory of the device.
Tensor empty(CudaDevice& device, std::span<const int64_t> sizes, Dtype dtype,
             const OpContext& context);
Tensor empty_strided(CudaDevice& device, std::span<const int64_t> sizes,
                     std::span<const int64_t> strides, Dtype dtype, const OpContext& context);

/// dst = src; one dtype, sizes and device, any strides, no overlap. Ordered on the stream.
void copy(CudaDevice& device, const Tensor& dst, const Tensor& src, StreamRef stream);
/// Every element of `dst` becomes 0.
void fill_zero(CudaDevice& device, const Tensor& dst, StreamRef stream);

/// The tensor itself if it is row-major contiguous, else a copy that is.
Tensor contiguous(CudaDevice& device, const Tensor& tensor, const OpContext& context);
/// A copy with torch's strides for torch.empty_like.
Tensor clone(CudaDevice& device, const Tensor& tensor, const OpContext& context);

/// The view with dimension `dim` moved to the end; a scalar becomes [1].
Tensor dim_last(const Tensor& self, size_t dim);
/// The tensor itself if it has that dtype, else a contiguous copy converted as Tensor.to does.
Tensor convert(CudaDevice& device, const Tensor& tensor, Dtype dtype, const OpContext& context);

/// Whether elements of the two may share memory.
bool may_overlap(const Tensor& a, const Tensor& b);

}  // namespace cudaexec::gpu

#include "tensor/device_copy.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/host_work.h"
#include "device/cuda/strided_copy.h"
#include "tensor/strided_copy.h"

namespace cudaexec {
namespace {

Dims byte_strides(const Tensor& tensor) {
  Dims strides = tensor.strides();
  for (size_t i = 0; i < strides.size(); ++i) {
    strides[i] *= static_cast<int64_t>(tensor.itemsize());
  }
  return strides;
}

int64_t extent_of(const Tensor& tensor) { return extent(tensor.sizes(), tensor.strides()); }

size_t extent_nbytes(const Tensor& tensor) {
  return static_cast<size_t>(extent_of(tensor)) * tensor.itemsize();
}

bool has_repeats(const Tensor& tensor) {
  for (size_t i = 0; i < tensor.sizes().size(); ++i) {
    if (tensor.stride(i) == 0 && tensor.size(i) > 1) return true;
  }
  return false;
}

/// Neither gaps nor repetitions: one run of bytes.
bool is_packed(const Tensor& tensor) {
  return extent_of(tensor) == tensor.numel() && !has_repeats(tensor);
}

bool same_strides(const Tensor& a, const Tensor& b) {
  for (size_t i = 0; i < a.sizes().size(); ++i) {
    if (a.size(i) > 1 && a.stride(i) != b.stride(i)) return false;
  }
  return true;
}

CudaDevice& gpu_of(const Tensor& dst, const Tensor& src) {
  const Device device = dst.device().is_cpu() ? src.device() : dst.device();
  if (!dst.device().is_cpu() && !src.device().is_cpu() && !(dst.device() == src.device())) {
    throw DeviceError(str("elements cannot be copied from ", to_string(src.device()), " to ",
                          to_string(dst.device()), "; copy the tensor to one GPU first"));
  }
  return cuda_device(device.index);
}

void copy_on_gpu(CudaDevice& gpu, const Tensor& dst, const Tensor& src, StreamRef stream) {
  cuda_strided_copy(gpu, dst.data(), byte_strides(dst), src.data(), byte_strides(src), dst.sizes(),
                    dst.itemsize(), stream);
}

void refuse_capture(CudaDevice& gpu, StreamRef stream, const Tensor& tensor) {
  if (!gpu.is_capturing(stream)) return;
  throw CaptureError(str("a copy of ", describe(tensor), " between the host and ",
                         to_string(gpu.device()),
                         " cannot be part of a CUDA graph; run the method without a graph"));
}

void copy_raw(CudaDevice& gpu, const Tensor& dst, const Tensor& src, StreamRef stream) {
  gpu.copy(dst.data(), dst.device(), src.data(), src.device(), src.nbytes(), stream);
}

void to_gpu(CudaDevice& gpu, const Tensor& dst, const Tensor& src, Allocator& memory,
            StreamRef stream) {
  if (is_packed(dst) && is_packed(src) && same_strides(dst, src)) {
    copy_raw(gpu, dst, src, stream);
    return;
  }
  const bool direct = is_packed(dst);
  const Dims strides = direct ? dst.strides() : contiguous_strides(dst.sizes());
  const Tensor packed =
      Tensor::empty_strided(src.sizes(), strides, src.dtype(), Device{}, cpu_allocator(), {});
  strided_copy(packed, src);
  if (direct) {
    copy_raw(gpu, dst, packed, stream);
    return;
  }
  const Tensor there =
      Tensor::empty_strided(src.sizes(), strides, src.dtype(), dst.device(), memory, stream);
  copy_raw(gpu, there, packed, stream);
  copy_on_gpu(gpu, dst, there, stream);
}

void to_host(CudaDevice& gpu, const Tensor& dst, const Tensor& src, Allocator& memory,
             StreamRef stream) {
  Tensor packed = src;
  if (!is_packed(src)) {
    packed = Tensor::empty(src.sizes(), src.dtype(), src.device(), memory, stream);
    copy_on_gpu(gpu, packed, src, stream);
  }
  const bool direct = is_packed(dst) && same_strides(dst, packed);
  const Tensor here = direct ? dst
                             : Tensor::empty_strided(packed.sizes(), packed.strides(),
                                                     packed.dtype(), Device{}, cpu_allocator(), {});
  HostWork work(gpu, stream);
  work.begin();
  copy_raw(gpu, here, packed, stream);
  work.wait();
  if (!direct) strided_copy(dst, here);
}

void check_same(const Tensor& dst, const Tensor& src) {
  if (!(dst.sizes() == src.sizes())) {
    throw ShapeError(str("a copy from ", describe(src), " to ", describe(dst)));
  }
  if (dst.dtype() != src.dtype()) {
    throw DtypeError(str("a copy from ", describe(src), " to ", describe(dst)));
  }
}

}  // namespace

DeviceInterface& device_interface(Device device) {
  if (device.is_cpu()) return cpu_device();
  return cuda_device(device.index);
}

void copy_elements(const Tensor& dst, const Tensor& src, Allocator& memory, StreamRef stream) {
  if (dst.device().is_cpu() && src.device().is_cpu()) {
    strided_copy(dst, src);
    return;
  }
  check_same(dst, src);
  CudaDevice& gpu = gpu_of(dst, src);
  if (dst.numel() == 0) return;
  if (dst.device() == src.device()) {
    copy_on_gpu(gpu, dst, src, stream);
    return;
  }
  refuse_capture(gpu, stream, src);
  if (src.device().is_cpu()) {
    to_gpu(gpu, dst, src, memory, stream);
  } else {
    to_host(gpu, dst, src, memory, stream);
  }
}

void copy_extent(const Tensor& dst, const Tensor& src, StreamRef stream) {
  check_same(dst, src);
  const size_t nbytes = extent_nbytes(src);
  if (nbytes == 0) return;
  if (dst.device().is_cpu() && src.device().is_cpu()) {
    std::memcpy(dst.data(), src.data(), nbytes);
    return;
  }
  CudaDevice& gpu = gpu_of(dst, src);
  if (!(dst.device() == src.device())) refuse_capture(gpu, stream, src);
  gpu.copy(dst.data(), dst.device(), src.data(), src.device(), nbytes, stream);
}

Tensor clone_strided(const Tensor& src, Allocator& memory, StreamRef stream) {
  Tensor copy =
      Tensor::empty_strided(src.sizes(), src.strides(), src.dtype(), src.device(), memory, stream);
  // The whole range at once where there are no gaps, and where elements share memory, which an
  // element-wise copy must not write twice.
  if (has_repeats(src) || is_packed(src)) {
    copy_extent(copy, src, stream);
  } else {
    copy_elements(copy, src, memory, stream);
  }
  return copy;
}

Tensor host_copy(const Tensor& src, Allocator& host, Allocator& memory, StreamRef stream) {
  Tensor copy = Tensor::empty(src.sizes(), src.dtype(), Device{}, host, {});
  copy_elements(copy, src, memory, stream);
  return copy;
}

void zero_elements(const Tensor& dst, StreamRef stream) {
  if (dst.numel() == 0) return;
  if (is_packed(dst)) {
    device_interface(dst.device()).zero(dst.data(), dst.nbytes(), stream);
    return;
  }
  uint64_t zero[2] = {};
  if (!dst.device().is_cpu()) {
    cuda_strided_fill(cuda_device(dst.device().index), dst.data(), byte_strides(dst), dst.sizes(),
                      zero, dst.itemsize(), stream);
    return;
  }
  const Tensor source(Storage::borrow(zero, sizeof(zero), {}, nullptr), 0, dst.sizes(),
                      Dims(dst.sizes().size(), 0), dst.dtype());
  strided_copy(dst, source);
}

}  // namespace cudaexec

#include "tensor/dlpack.h"

#include <array>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/object_cache.h"
#include "base/str.h"

namespace cudaexec {
namespace {

using dlpack::DLDataType;

struct TypePair {
  Dtype dtype;
  DLDataType type;
};

constexpr std::array<TypePair, 10> kTypes{{
    {Dtype::kFloat32, {dlpack::kDLFloat, 32, 1}},
    {Dtype::kInt64, {dlpack::kDLInt, 64, 1}},
    {Dtype::kBfloat16, {dlpack::kDLBfloat, 16, 1}},
    {Dtype::kFloat16, {dlpack::kDLFloat, 16, 1}},
    {Dtype::kBool, {dlpack::kDLBool, 8, 1}},
    {Dtype::kInt32, {dlpack::kDLInt, 32, 1}},
    {Dtype::kUint8, {dlpack::kDLUint, 8, 1}},
    {Dtype::kFloat64, {dlpack::kDLFloat, 64, 1}},
    {Dtype::kInt8, {dlpack::kDLInt, 8, 1}},
    {Dtype::kInt16, {dlpack::kDLInt, 16, 1}},
}};

/// Distance in elements from the lowest element to the first, and from the first to one past the
/// highest.
struct Span {
  int64_t below = 0;
  int64_t above = 0;
};

Span element_span(const Dims& sizes, const Dims& strides) {
  Span span;
  bool empty = false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0) throw ShapeError(str("negative size in ", list_str(sizes)));
    if (sizes[i] == 0) empty = true;
  }
  if (empty) return span;
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t& side = strides[i] < 0 ? span.below : span.above;
    const auto reach = checked_mul(sizes[i] - 1, strides[i]);
    const auto sum = !reach ? std::nullopt : checked_add(side, *reach < 0 ? -*reach : *reach);
    // A quarter of the range, so that bytes and the sum of both sides cannot overflow later.
    if (!sum || *sum > (int64_t{1} << 59)) {
      throw ShapeError(str("sizes ", list_str(sizes), " with strides ", list_str(strides),
                           " do not fit an address space"));
    }
    side = *sum;
  }
  span.above += 1;
  return span;
}

/// One allocation that holds the struct handed out and everything it points to.
template <typename Managed>
struct Exported {
  Managed managed{};
  Tensor tensor;

  static void* operator new(size_t) { return ObjectCache<sizeof(Exported)>::take(); }
  static void operator delete(void* exported) noexcept {
    ObjectCache<sizeof(Exported)>::give(exported);
  }

  explicit Exported(const Tensor& source) : tensor(source) {
    view_as_dlpack(tensor, managed.dl_tensor);
    managed.manager_ctx = this;
    managed.deleter = [](Managed* self) {
      const std::unique_ptr<Exported> owner(static_cast<Exported*>(self->manager_ctx));
    };
  }
};

}  // namespace

std::optional<Dtype> dtype_from_dlpack(DLDataType type) noexcept {
  for (const TypePair& pair : kTypes) {
    if (pair.type.code == type.code && pair.type.bits == type.bits && type.lanes == 1) {
      return pair.dtype;
    }
  }
  return std::nullopt;
}

DLDataType dtype_to_dlpack(Dtype dtype) noexcept {
  for (const TypePair& pair : kTypes) {
    if (pair.dtype == dtype) return pair.type;
  }
  return {dlpack::kDLUint, 8, 1};
}

Device device_from_dlpack(dlpack::DLDevice device) {
  switch (device.device_type) {
    case dlpack::kDLCpu:
    case dlpack::kDLCudaHost:
    case dlpack::kDLRocmHost:
      return {DeviceType::kCpu, 0};
    case dlpack::kDLCuda:
    case dlpack::kDLCudaManaged:
      return {DeviceType::kCuda, device.device_id};
    default:
      throw DeviceError(str("a tensor on DLPack device type ", device.device_type,
                            " cannot be used; expected the CPU (1) or CUDA (2): copy it there"));
  }
}

dlpack::DLDevice device_to_dlpack(Device device) noexcept {
  return {device.is_cpu() ? dlpack::kDLCpu : dlpack::kDLCuda, device.index};
}

Tensor borrow_strided(void* first, Dims sizes, Dims strides, Dtype dtype, Device device,
                      std::shared_ptr<void> owner, StreamRef stream) {
  const Span span = element_span(sizes, strides);
  const auto itemsize = static_cast<int64_t>(dtype_size(dtype));
  std::byte* lowest = static_cast<std::byte*>(first) - span.below * itemsize;
  const auto nbytes = static_cast<size_t>((span.below + span.above) * itemsize);
  StoragePtr storage = Storage::borrow(lowest, nbytes, device, std::move(owner), stream);
  return {std::move(storage), span.below, std::move(sizes), std::move(strides), dtype};
}

Tensor tensor_from_dlpack(const dlpack::DLTensor& source, std::shared_ptr<void> owner,
                          StreamRef stream) {
  const auto dtype = dtype_from_dlpack(source.dtype);
  if (!dtype) {
    throw DtypeError(str("DLPack type (code ", int{source.dtype.code}, ", bits ",
                         int{source.dtype.bits}, ", lanes ", source.dtype.lanes,
                         ") is not supported; expected bool, uint8, int8 to int64, float16, "
                         "bfloat16, float32 or float64"));
  }
  const Device device = device_from_dlpack(source.device);
  if (source.ndim < 0 || (source.ndim > 0 && source.shape == nullptr)) {
    throw ShapeError(str("a DLPack tensor with ", source.ndim, " dimensions and no shape"));
  }
  const auto rank = static_cast<size_t>(source.ndim);
  Dims sizes(source.shape, rank);
  Dims strides = source.strides != nullptr ? Dims(source.strides, rank) : contiguous_strides(sizes);
  std::byte* first = static_cast<std::byte*>(source.data);
  if (first != nullptr) {
    first += source.byte_offset;
  } else if (std::find(sizes.begin(), sizes.end(), 0) == sizes.end()) {
    throw InputError(
        "the tensor has elements but no memory (a fake, meta or wrapper tensor); pass a "
        "plain tensor with data");
  }
  return borrow_strided(first, std::move(sizes), std::move(strides), *dtype, device,
                        std::move(owner), stream);
}

void view_as_dlpack(const Tensor& tensor, dlpack::DLTensor& out) noexcept {
  out.data = tensor.data();
  out.device = device_to_dlpack(tensor.device());
  out.ndim = static_cast<int32_t>(tensor.dim());
  out.dtype = dtype_to_dlpack(tensor.dtype());
  out.shape = const_cast<int64_t*>(tensor.sizes().data());
  out.strides = const_cast<int64_t*>(tensor.strides().data());
  out.byte_offset = 0;
}

dlpack::DLManagedTensorVersioned* export_dlpack_versioned(const Tensor& tensor, uint64_t flags) {
  auto holder = std::make_unique<Exported<dlpack::DLManagedTensorVersioned>>(tensor);
  holder->managed.version = {dlpack::kMajorVersion, dlpack::kMinorVersion};
  holder->managed.flags = flags;
  return &holder.release()->managed;
}

dlpack::DLManagedTensor* export_dlpack_legacy(const Tensor& tensor) {
  auto holder = std::make_unique<Exported<dlpack::DLManagedTensor>>(tensor);
  return &holder.release()->managed;
}

}  // namespace cudaexec

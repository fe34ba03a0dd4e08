// Single numbers out of tensors and into tensors.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "aoti/abi.h"
#include "aoti/shims/fence.h"
#include "base/error.h"
#include "base/str.h"
#include "tensor/device_copy.h"
#include "tensor/half.h"

using cudaexec::AtenTensorHandle;
using cudaexec::Dtype;
using cudaexec::str;
using cudaexec::Tensor;
using cudaexec::tensor_from;

namespace {

// A number as the tensor holds it: integers exact, anything else as double (exact for every dtype
// here).
struct Number {
  bool is_integer = false;
  int64_t integer = 0;
  double real = 0;
};

template <typename T>
T load(const Tensor& tensor) {
  T value;
  std::memcpy(&value, tensor.data(), sizeof(T));
  return value;
}

template <typename T>
Number integer(const Tensor& tensor) {
  return {true, static_cast<int64_t>(load<T>(tensor)), 0};
}

Number real(double value) { return {false, 0, value}; }

// From a GPU: waits for the stream of the run; refused inside a capture.
Tensor on_host(const Tensor& tensor) {
  if (tensor.device().is_cpu()) return tensor;
  const cudaexec::OpContext context = cudaexec::current_op_context();
  return cudaexec::host_copy(tensor, cudaexec::cpu_allocator(), context.allocator, context.stream);
}

Number read(const Tensor& source) {
  if (source.numel() != 1) {
    throw cudaexec::ShapeError(
        str("a tensor of ", source.numel(), " elements is read as one number (item())"));
  }
  const Tensor tensor = on_host(source);
  switch (tensor.dtype()) {
    case Dtype::kBool:
      return {true, load<uint8_t>(tensor) != 0 ? 1 : 0, 0};
    case Dtype::kUint8:
      return integer<uint8_t>(tensor);
    case Dtype::kInt8:
      return integer<int8_t>(tensor);
    case Dtype::kInt16:
      return integer<int16_t>(tensor);
    case Dtype::kInt32:
      return integer<int32_t>(tensor);
    case Dtype::kInt64:
      return integer<int64_t>(tensor);
    case Dtype::kFloat16:
      return real(static_cast<double>(cudaexec::half_bits_to_float(load<uint16_t>(tensor))));
    case Dtype::kBfloat16:
      return real(static_cast<double>(cudaexec::bfloat_bits_to_float(load<uint16_t>(tensor))));
    case Dtype::kFloat32:
      return real(static_cast<double>(load<float>(tensor)));
    case Dtype::kFloat64:
      return real(load<double>(tensor));
  }
  throw cudaexec::InternalError("a number is read from a tensor of unknown dtype");
}

[[noreturn]] void refuse(const Number& number, const char* type) {
  throw cudaexec::DtypeError(
      str("the value ",
          number.is_integer ? std::to_string(number.integer) : std::to_string(number.real),
          " does not fit ", type));
}

template <typename T>
T to_integer(const Number& number, const char* type) {
  if (number.is_integer) {
    if (!std::in_range<T>(number.integer)) refuse(number, type);
    return static_cast<T>(number.integer);
  }
  // Rounded towards zero, as a C cast; the limits as doubles: the upper one is exclusive.
  const double whole = std::trunc(number.real);
  const double low = static_cast<double>(std::numeric_limits<T>::min());
  const double high = std::ldexp(1.0, std::numeric_limits<T>::digits);
  if (!(whole >= low && whole < high)) refuse(number, type);
  return static_cast<T>(whole);
}

double to_double(const Number& number) {
  return number.is_integer ? static_cast<double>(number.integer) : number.real;
}

// A finite value that becomes infinite does not fit.
float to_float(const Number& number, const char* type) {
  const double value = to_double(number);
  const auto narrow = static_cast<float>(value);
  if (std::isfinite(value) && !std::isfinite(narrow)) refuse(number, type);
  return narrow;
}

template <typename Convert>
uint16_t to_half(const Number& number, const char* type, Convert convert, float largest) {
  const float value = to_float(number, type);
  if (std::isfinite(value) && std::fabs(value) > largest) refuse(number, type);
  return convert(value);
}

template <typename T>
Tensor scalar(T value, Dtype dtype) {
  // On the host, whatever the run's device.
  Tensor tensor =
      Tensor::empty({}, dtype, cudaexec::Device{},
                    cudaexec::op_context_for(cudaexec::Device{}).allocator, cudaexec::StreamRef());
  std::memcpy(tensor.data(), &value, sizeof(T));
  return tensor;
}

}  // namespace

#define CUDAEXEC_ITEM(NAME, TYPE, VALUE)                                              \
  CUDAEXEC_SHIM int32_t aoti_torch_item_##NAME(AtenTensorHandle self, TYPE* result) { \
    CUDAEXEC_SHIM_BEGIN                                                               \
    const Number number = read(tensor_from(self));                                    \
    *result = VALUE;                                                                  \
    CUDAEXEC_SHIM_END                                                                 \
  }

CUDAEXEC_ITEM(bool, bool, number.is_integer ? number.integer != 0 : number.real != 0.0)
CUDAEXEC_ITEM(uint8, uint8_t, to_integer<uint8_t>(number, "uint8"))
CUDAEXEC_ITEM(uint16, uint16_t, to_integer<uint16_t>(number, "uint16"))
CUDAEXEC_ITEM(uint32, uint32_t, to_integer<uint32_t>(number, "uint32"))
CUDAEXEC_ITEM(uint64, uint64_t, to_integer<uint64_t>(number, "uint64"))
CUDAEXEC_ITEM(int8, int8_t, to_integer<int8_t>(number, "int8"))
CUDAEXEC_ITEM(int16, int16_t, to_integer<int16_t>(number, "int16"))
CUDAEXEC_ITEM(int32, int32_t, to_integer<int32_t>(number, "int32"))
CUDAEXEC_ITEM(int64, int64_t, to_integer<int64_t>(number, "int64"))
CUDAEXEC_ITEM(float32, float, to_float(number, "float32"))
CUDAEXEC_ITEM(float64, double, to_double(number))
CUDAEXEC_ITEM(float16, uint16_t, to_half(number, "float16", cudaexec::float_to_half_bits, 65504.0f))
CUDAEXEC_ITEM(bfloat16, uint16_t,
              to_half(number, "bfloat16", cudaexec::float_to_bfloat_bits, 3.38953139e38f))

#define CUDAEXEC_SCALAR(NAME, TYPE, DTYPE)                                                         \
  CUDAEXEC_SHIM int32_t aoti_torch_scalar_to_tensor_##NAME(TYPE value, AtenTensorHandle* result) { \
    CUDAEXEC_SHIM_BEGIN                                                                            \
    *result = cudaexec::new_handle(scalar(value, Dtype::DTYPE));                                   \
    CUDAEXEC_SHIM_END                                                                              \
  }

// The unsigned types above 8 bits and the complex ones are no dtypes here.
CUDAEXEC_SCALAR(bool, bool, kBool)
CUDAEXEC_SCALAR(uint8, uint8_t, kUint8)
CUDAEXEC_SCALAR(int8, int8_t, kInt8)
CUDAEXEC_SCALAR(int16, int16_t, kInt16)
CUDAEXEC_SCALAR(int32, int32_t, kInt32)
CUDAEXEC_SCALAR(int64, int64_t, kInt64)
CUDAEXEC_SCALAR(float32, float, kFloat32)
CUDAEXEC_SCALAR(float64, double, kFloat64)

// Arguments and results of operator shims.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "aoti/abi.h"
#include "base/error.h"
#include "base/str.h"

namespace cudaexec::shims {

/// An optional tensor argument: a null pointer, or one to a handle.
inline const Tensor* optional_tensor(const AtenTensorHandle* handle) noexcept {
  return handle == nullptr || *handle == nullptr ? nullptr : &tensor_from(*handle);
}

template <typename T>
std::optional<T> optional_value(const T* value) noexcept {
  return value == nullptr ? std::nullopt : std::optional<T>(*value);
}

inline std::span<const int64_t> int_list(const int64_t* values, int64_t count) noexcept {
  return {values, static_cast<size_t>(count)};
}

/// A list of tensors, some of which may be absent.
inline std::vector<const Tensor*> tensor_list(const AtenTensorHandle* handles, int64_t count) {
  std::vector<const Tensor*> tensors;
  for (int64_t i = 0; i < count; ++i) {
    tensors.push_back(handles[i] == nullptr ? nullptr : &tensor_from(handles[i]));
  }
  return tensors;
}
inline std::vector<const Tensor*> tensor_list(const AtenTensorHandle** handles, int64_t count) {
  std::vector<const Tensor*> tensors;
  for (int64_t i = 0; i < count; ++i) tensors.push_back(optional_tensor(handles[i]));
  return tensors;
}

/// @throws DtypeError for a dtype that the core does not know.
inline std::optional<Dtype> optional_dtype(const int32_t* code) {
  if (code == nullptr) return std::nullopt;
  const auto dtype = dtype_from_code(*code);
  if (!dtype) throw DtypeError(str("dtype code ", *code, " is not supported"));
  return dtype;
}

/// The device argument of a factory. @throws DeviceError unless absent or the CPU.
inline void require_cpu(const int32_t* device_type) {
  if (device_type != nullptr && *device_type != static_cast<int32_t>(DeviceType::kCpu)) {
    throw DeviceError(str("a CPU program asks for a tensor on device type ", *device_type));
  }
}

/// Hands results over as new handles; on failure none.
template <typename... Tensors>
void give(std::array<AtenTensorHandle*, sizeof...(Tensors)> targets, Tensors... tensors) {
  std::array<AtenTensorHandle, sizeof...(Tensors)> handles{};
  try {
    size_t at = 0;
    ((handles[at] = new_handle(std::move(tensors)), ++at), ...);
  } catch (...) {
    for (const AtenTensorHandle handle : handles) {
      if (handle != nullptr) delete_handle(handle);
    }
    throw;
  }
  for (size_t i = 0; i < handles.size(); ++i) *targets[i] = handles[i];
}

}  // namespace cudaexec::shims

// cuBLASLt as opened, its errors, and owners of its objects.
#pragma once

#include <memory>
#include <string>
#include <type_traits>

#include "ops/cuda/cublas_abi.h"

namespace cudaexec::gpu::cublas {

struct Api {
#define CUDAEXEC_CUBLAS_MEMBER(name, parameters) Status(*name) parameters = nullptr;
  CUDAEXEC_CUBLAS_ENTRIES(CUDAEXEC_CUBLAS_MEMBER)
#undef CUDAEXEC_CUBLAS_MEMBER
};

struct Library {
  Library() = default;
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  Api api;
  std::string path;
  void* handle = nullptr;
};

/// @throws NotSupported if there is none, or it lacks a function.
std::unique_ptr<Library> open_library();

/// Throws the error that `status` stands for unless it is success.
void check(const Library& library, Status status, const char* call);

template <auto Destroy>
struct Destroyer {
  const Api* api = nullptr;
  template <typename T>
  void operator()(T* object) const noexcept {
    (api->*Destroy)(object);
  }
};
template <typename Handle, auto Destroy>
using Owner = std::unique_ptr<std::remove_pointer_t<Handle>, Destroyer<Destroy>>;
using LayoutOwner = Owner<Layout, &Api::MatrixLayoutDestroy>;
using MatmulOwner = Owner<MatmulDesc, &Api::MatmulDescDestroy>;
using PreferenceOwner = Owner<Preference, &Api::MatmulPreferenceDestroy>;

}  // namespace cudaexec::gpu::cublas

// `_core._ops_misc`: what the tests need to call shims of operators as generated code does, and the
// vector functions on arrays.
#include <pybind11/stl.h>

#include <optional>
#include <string>

#include "aoti/call_scope.h"
#include "base/error.h"
#include "base/str.h"
#include "memory/allocator.h"
#include "memory/cuda_pool_allocator.h"
#include "ops/random_state.h"
#include "python/bindings.h"

bool sleef_floats_avx2(const char* name, const float* x, const float* y, float* out, size_t count);
bool sleef_doubles_avx2(const char* name, const double* x, const double* y, double* out,
                        size_t count);
bool sleef_floats_avx512(const char* name, const float* x, const float* y, float* out,
                         size_t count);
bool sleef_doubles_avx512(const char* name, const double* x, const double* y, double* out,
                          size_t count);

namespace cudaexec::python {
namespace {

template <typename T>
using Probe = bool (*)(const char*, const T*, const T*, T*, size_t);

template <typename T>
bool probe(Probe<T> function, const std::string& name, const py::buffer_info& x,
           const std::optional<py::buffer_info>& y, const py::buffer_info& out) {
  return function(name.c_str(), static_cast<const T*>(x.ptr),
                  y ? static_cast<const T*>(y->ptr) : nullptr, static_cast<T*>(out.ptr),
                  static_cast<size_t>(out.size));
}

void sleef(const std::string& level, const std::string& name, const py::buffer& x,
           const std::optional<py::buffer>& y, const py::buffer& out) {
  const py::buffer_info x_info = x.request();
  const py::buffer_info out_info = out.request(true);
  std::optional<py::buffer_info> y_info;
  if (y) y_info = y->request();
  if (x_info.size != out_info.size || (y_info && y_info->size != out_info.size)) {
    throw ShapeError(str("sleef: operands of ", x_info.size, " elements for ", out_info.size));
  }
  const bool wide = level == "avx512";
  if (!wide && level != "avx2") throw InputError(str("sleef: no level '", level, "'"));
  const bool known = out_info.format == "f"
                         ? probe<float>(wide ? sleef_floats_avx512 : sleef_floats_avx2, name,
                                        x_info, y_info, out_info)
                         : probe<double>(wide ? sleef_doubles_avx512 : sleef_doubles_avx2, name,
                                         x_info, y_info, out_info);
  if (!known) throw InputError(str("sleef: no function '", name, "' with these operands"));
}

/// A CallScope of the calling thread, so that a shim's exception can be had.
class Scope {
 public:
  Scope() : scope_(Device{}, StreamRef(), cpu_allocator()) {}
  Scope(int device_index, uintptr_t stream)
      : scope_({DeviceType::kCuda, device_index}, StreamRef(reinterpret_cast<void*>(stream)),
               cuda_allocator(device_index)) {}
  void check() { scope_.rethrow_if_pending(); }

 private:
  CallScope scope_;
};

}  // namespace

void register_ops_misc(py::module_& m) {
  py::module_ ops = m.def_submodule("_ops_misc", "Calls of shims and vector functions; for tests.");
  py::class_<Scope>(ops, "Scope", "The scope of a run on this thread; delete it where it was made.")
      .def(py::init<>())
      .def(py::init<int, uintptr_t>(), py::arg("device_index"), py::arg("stream"),
           "A run on a GPU, with memory of the device's pool.")
      .def("check", &Scope::check, "Raises what a shim stopped with since the last check.");
  ops.def("sleef", &sleef, py::arg("level"), py::arg("name"), py::arg("x"), py::arg("y"),
          py::arg("out"),
          "out = Sleef_<name>(x, y) of 'avx2' or 'avx512' over contiguous float32 or float64.");
  ops.def(
      "set_seed", [](uint64_t seed) { RandomState::current().set_seed(seed); }, py::arg("seed"),
      "Restarts the random numbers of operators that run outside a Module.");
}

}  // namespace cudaexec::python

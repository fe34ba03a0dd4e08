// Matrix products in `_core._ops`.
#include <optional>

#include "base/error.h"
#include "base/str.h"
#include "device/thread_pool.h"
#include "ops/gemm.h"
#include "ops/matmul.h"
#include "ops/pack_cache.h"
#include "python/bind_ops.h"
#include "python/gil.h"

namespace cudaexec::python {
namespace {

using NoGil = py::call_guard<GilRelease>;

/// `with threads(n):` limits the regions that this thread starts.
class ThreadScope {
 public:
  explicit ThreadScope(int threads) : threads_(threads) {}
  void enter() { limit_.emplace(threads_); }
  void exit(const py::args&) { limit_.reset(); }

 private:
  int threads_;
  std::optional<ThreadLimit> limit_;
};

/// out = alpha * a @ b with the kernels of one instruction set.
void gemm_with(const char* kernels, const Tensor& out, const Tensor& a, const Tensor& b,
               double alpha) {
  const ops::GemmKernelSet* set = ops::find_gemm_kernels(kernels);
  if (set == nullptr) throw NotSupported(str("no kernels '", kernels, "' on this machine"));
  ops::GemmProblem p;
  p.dtype = a.dtype();
  p.m = a.size(0);
  p.k = a.size(1);
  p.n = b.size(1);
  p.alpha = alpha;
  const auto operand = [](const Tensor& t) {
    Storage* constant = t.storage()->is_constant() ? t.storage().get() : nullptr;
    return ops::GemmOperand{t.data(), 0, t.stride(0), t.stride(1), constant, t.offset()};
  };
  p.out = operand(out);
  p.a = operand(a);
  p.b = operand(b);
  ops::gemm(p, ops_context(), *set);
}

}  // namespace

void register_linear_ops(py::module_& m) {
  py::class_<ThreadScope>(m, "threads")
      .def(py::init<int>())
      .def("__enter__", &ThreadScope::enter)
      .def("__exit__", &ThreadScope::exit);
  m.def("kernels", [] { return ops::gemm_kernels().name; }, "The instruction set in use.");
  m.def("has_kernels", [](const char* name) { return ops::find_gemm_kernels(name) != nullptr; });
  m.def("gemm_with", &gemm_with, py::arg("kernels"), py::arg("out"), py::arg("a"), py::arg("b"),
        py::arg("alpha") = 1.0, NoGil());
  m.def("packed_bytes", &ops::packed_bytes);
  m.def("packed_count", &ops::packed_count);
  m.def(
      "mm_out",
      [](const Tensor& out, const Tensor& a, const Tensor& b) {
        ops::mm_out(out, a, b, ops_context());
      },
      NoGil());
  m.def(
      "addmm_out",
      [](const Tensor& out, const Tensor& self, const Tensor& a, const Tensor& b, double beta,
         double alpha) { ops::addmm_out(out, self, a, b, beta, alpha, ops_context()); },
      py::arg("out"), py::arg("self"), py::arg("a"), py::arg("b"), py::arg("beta") = 1.0,
      py::arg("alpha") = 1.0, NoGil());
  m.def(
      "bmm_out",
      [](const Tensor& out, const Tensor& a, const Tensor& b) {
        ops::bmm_out(out, a, b, ops_context());
      },
      NoGil());
  m.def(
      "baddbmm_out",
      [](const Tensor& out, const Tensor& self, const Tensor& a, const Tensor& b, double beta,
         double alpha) { ops::baddbmm_out(out, self, a, b, beta, alpha, ops_context()); },
      py::arg("out"), py::arg("self"), py::arg("a"), py::arg("b"), py::arg("beta") = 1.0,
      py::arg("alpha") = 1.0, NoGil());
  m.def(
      "int_mm_out",
      [](const Tensor& out, const Tensor& a, const Tensor& b) {
        ops::int_mm_out(out, a, b, ops_context());
      },
      NoGil());
  m.def(
      "addmv",
      [](const Tensor& self, const Tensor& mat, const Tensor& vec, double beta, double alpha) {
        return ops::addmv(self, mat, vec, beta, alpha, ops_context());
      },
      py::arg("self"), py::arg("mat"), py::arg("vec"), py::arg("beta") = 1.0,
      py::arg("alpha") = 1.0, NoGil());
  m.def(
      "addbmm",
      [](const Tensor& self, const Tensor& a, const Tensor& b, double beta, double alpha) {
        return ops::addbmm(self, a, b, beta, alpha, ops_context());
      },
      py::arg("self"), py::arg("a"), py::arg("b"), py::arg("beta") = 1.0, py::arg("alpha") = 1.0,
      NoGil());
}

}  // namespace cudaexec::python

// Allocators and strided copies of cudaexec._core._testing.cuda.
#include <pybind11/stl.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda/strided_copy.h"
#include "device/cuda/strided_copy_plan.h"
#include "memory/cuda_pinned_allocator.h"
#include "memory/cuda_pool_allocator.h"
#include "memory/limiting_allocator.h"
#include "memory/statistics_allocator.h"
#include "python/bind_cuda_testing.h"
#include "python/bindings.h"
#include "python/gil.h"

namespace cudaexec::python {
namespace {

/// An allocator behind a limit and counters, as a Module uses it.
struct CountedAllocator {
  CountedAllocator(Allocator& upstream, size_t limit)
      : source(upstream), limiting(upstream, limit), counting(limiting) {}
  Allocator& source;
  LimitingAllocator limiting;
  StatisticsAllocator counting;
};

std::unique_ptr<CountedAllocator> counted(const std::string& kind, int index, size_t limit) {
  Allocator& source =
      kind == "pool" ? static_cast<Allocator&>(cuda_allocator(index)) : cuda_pinned_allocator();
  return std::make_unique<CountedAllocator>(source, limit);
}

uintptr_t allocate(CountedAllocator& allocator, size_t nbytes, uintptr_t stream) {
  return reinterpret_cast<uintptr_t>(allocator.counting.allocate(nbytes, stream_ref(stream)));
}

void deallocate(CountedAllocator& allocator, uintptr_t data, size_t nbytes, uintptr_t stream) {
  allocator.counting.deallocate(pointer(data), nbytes, stream_ref(stream));
}

py::dict pool_usage(int index) {
  const CudaPoolAllocator::Usage usage = cuda_allocator(index).usage();
  py::dict result;
  result["used"] = usage.used;
  result["reserved"] = usage.reserved;
  result["used_peak"] = usage.used_peak;
  return result;
}

void strided_copy(int index, uintptr_t dst, const std::vector<int64_t>& dst_strides, uintptr_t src,
                  const std::vector<int64_t>& src_strides, const std::vector<int64_t>& sizes,
                  size_t itemsize, uintptr_t stream) {
  cuda_strided_copy(cuda_device(index), pointer(dst), dst_strides, pointer(src), src_strides, sizes,
                    itemsize, stream_ref(stream));
}

void strided_fill(int index, uintptr_t dst, const std::vector<int64_t>& dst_strides,
                  const std::vector<int64_t>& sizes, const std::string& value, uintptr_t stream) {
  cuda_strided_fill(cuda_device(index), pointer(dst), dst_strides, sizes, value.data(),
                    value.size(), stream_ref(stream));
}

py::dict plan(const std::vector<int64_t>& sizes, const std::vector<int64_t>& dst_strides,
              const std::vector<int64_t>& src_strides, size_t itemsize, uintptr_t dst,
              uintptr_t src) {
  std::vector<StridedDim> dims;
  for (size_t i = 0; i < sizes.size(); ++i) {
    dims.push_back({sizes[i], dst_strides[i], src_strides[i]});
  }
  const StridedPlan made = plan_strided_copy(std::move(dims), itemsize, dst, src);
  constexpr const char* kMethods[] = {"nothing", "flat", "elements", "transpose"};
  py::list listed;
  for (const StridedDim& dim : made.dims) {
    listed.append(py::make_tuple(dim.size, dim.dst_stride, dim.src_stride));
  }
  py::dict result;
  result["method"] = kMethods[static_cast<size_t>(made.method)];
  result["itemsize"] = made.itemsize;
  result["dims"] = listed;
  result["transposed"] = made.transposed;
  return result;
}

}  // namespace

void bind_cuda_memory_testing(py::module_& m) {
  const py::call_guard<GilRelease> no_gil;
  py::class_<CountedAllocator>(m, "Allocator", py::release_gil_before_calling_cpp_dtor())
      .def(py::init([](const std::string& kind, int index, size_t limit) {
             return without_gil([&] { return counted(kind, index, limit); });
           }),
           py::arg("kind"), py::arg("index") = 0,
           py::arg("limit") = std::numeric_limits<size_t>::max())
      .def("allocate", &allocate, py::arg("nbytes"), py::arg("stream") = 0, no_gil)
      .def("deallocate", &deallocate, py::arg("data"), py::arg("nbytes"), py::arg("stream") = 0,
           no_gil)
      .def(
          "trim", [](CountedAllocator& a) { return a.counting.trim(); }, no_gil)
      .def_property_readonly("current", [](CountedAllocator& a) { return a.counting.current(); })
      .def_property_readonly("peak", [](CountedAllocator& a) { return a.counting.peak(); })
      .def_property_readonly("live_blocks",
                             [](CountedAllocator& a) { return a.counting.live_blocks(); });
  m.def("pool_usage", &pool_usage);
  m.def("strided_copy", &strided_copy, no_gil);
  m.def("strided_fill",
        [](int index, uintptr_t dst, const std::vector<int64_t>& dst_strides,
           const std::vector<int64_t>& sizes, const py::bytes& value, uintptr_t stream) {
          const std::string element = value;
          without_gil([&] { strided_fill(index, dst, dst_strides, sizes, element, stream); });
        });
  m.def("plan_strided_copy", &plan);
}

}  // namespace cudaexec::python

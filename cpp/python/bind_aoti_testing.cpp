// cudaexec._core._testing: generated libraries and containers by hand, and the thread pool's
// settings.
#include <pybind11/stl.h>

#include <optional>

#include "aoti/bound_symbols.h"
#include "aoti/container.h"
#include "base/error.h"
#include "base/str.h"
#include "device/cpu_limits.h"
#include "device/thread_pool.h"
#include "device/thread_pool_detail.h"
#include "python/bindings.h"
#include "python/gil.h"

namespace cudaexec::python {
namespace {

using Plain = std::tuple<std::string, std::vector<int64_t>, py::bytes>;  // dtype, sizes, contents
using Library = std::shared_ptr<SharedObject>;

std::span<const std::byte> bytes_of(const py::bytes& data) {
  const std::string_view view(data);
  return {reinterpret_cast<const std::byte*>(view.data()), view.size()};
}

Library open_library(const py::bytes& image, const std::string& name) {
  const std::span<const std::byte> bytes = bytes_of(image);
  return without_gil([&] { return SharedObject::open(bytes, name); });
}

Tensor from_plain(const Plain& plain) {
  const auto& [name, sizes, data] = plain;
  const auto dtype = dtype_from_name(name);
  if (!dtype) throw InputError(str("no dtype '", name, "'"));
  Tensor tensor = Tensor::empty(sizes, *dtype, Device{}, cpu_allocator(), StreamRef{});
  const std::span<const std::byte> bytes = bytes_of(data);
  if (bytes.size() != tensor.nbytes()) throw InputError("contents and sizes differ");
  std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(tensor.data()));
  return tensor;
}

// Contents are those of the storage from the first element on: row-major if the tensor is.
py::object to_plain(const Tensor& tensor) {
  if (!tensor.defined()) return py::none();
  const py::bytes data(static_cast<const char*>(tensor.data()), tensor.nbytes());
  return py::make_tuple(dtype_name(tensor.dtype()),
                        std::vector<int64_t>(tensor.sizes().begin(), tensor.sizes().end()),
                        std::vector<int64_t>(tensor.strides().begin(), tensor.strides().end()),
                        data);
}

py::list run(Container& container, const std::vector<Plain>& plain, int threads) {
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  for (const Plain& each : plain) inputs.push_back(from_plain(each));
  without_gil([&] {
    const ThreadLimit limit(threads);
    container.run(inputs, outputs, StreamRef{}, cpu_allocator());
  });
  py::list results;
  for (const Tensor& output : outputs) results.append(to_plain(output));
  return results;
}

void bind(Container& container, const std::map<std::string, Plain>& constants) {
  std::vector<ConstantBinding> bindings;
  for (const auto& [name, plain] : constants) bindings.push_back({name, from_plain(plain)});
  container.bind(std::move(bindings));
}

void bind_blob(Container& container, const py::bytes& blob) {
  auto owner = std::make_shared<std::vector<std::byte>>();
  const std::span<const std::byte> bytes = bytes_of(blob);
  owner->assign(bytes.begin(), bytes.end());
  container.bind_blob(*owner, owner);
}

void register_containers(py::module_& testing) {
  py::class_<SharedObject, Library>(testing, "Library")
      .def(
          "symbol",
          [](const SharedObject& self, const char* name) {
            return reinterpret_cast<uintptr_t>(self.symbol(name));
          },
          "Address of a symbol, 0 if there is none.")
      .def_property_readonly("path", &SharedObject::path)
      .def("bound_symbol_owners", py::overload_cast<const SharedObject&>(&bound_symbol_owners),
           "(symbol, file it is bound to) for every symbol that it does not define.");
  testing.def("bound_symbol_owners", py::overload_cast<const std::string&>(&bound_symbol_owners),
              py::arg("path"), "The same of a library that is loaded already.");
  testing.def("open_library", &open_library, py::arg("image"), py::arg("name") = "<test>");
  py::class_<Container, std::shared_ptr<Container>>(testing, "Container")
      .def(py::init(
          [](const Library& library) { return std::make_shared<Container>(library, Device{}); }))
      .def_property_readonly("constants",
                             [](const Container& self) {
                               std::vector<std::tuple<std::string, std::string, size_t>> all;
                               for (const ContainerConstant& c : self.constants()) {
                                 all.emplace_back(c.name, c.fqn, c.nbytes);
                               }
                               return all;
                             })
      .def("bind", &bind)
      .def("bind_blob", &bind_blob)
      .def("run", &run, py::arg("inputs"), py::arg("threads") = 0);
}

}  // namespace

void register_aoti_testing(py::module_& m) {
  py::module_ testing = m.attr("_testing");
  register_containers(testing);
  testing.def("worker_count", &worker_count, "Threads of the pool that are alive.");
  testing.def("default_threads", &default_threads, "Threads that a region may use.");
  testing.def("override_allowed_threads", &override_allowed_threads, py::arg("threads"),
              "Pretends that so many CPUs are allowed; 0 restores what the system says.");
  testing.def("cgroup_cpus", &cgroup_cpus, py::arg("root"),
              "CPUs that the quotas under another root directory amount to; 0 without a quota.");
}

}  // namespace cudaexec::python

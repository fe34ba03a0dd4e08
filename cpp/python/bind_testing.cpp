// cudaexec._core._testing: live counts, fault injection, and a method without a program, for the
// tests.
#include <pybind11/stl.h>

#include <chrono>
#include <thread>

#include "aoti/abi.h"
#include "aoti/container.h"
#include "aoti/shared_object.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/str.h"
#include "python/bindings.h"
#include "python/gil.h"
#include "python/method_call.h"
#include "tensor/strided_copy.h"

namespace cudaexec::python {
namespace {

Value to_value(const Scalar& scalar) {
  return std::visit([](const auto& value) { return Value(value); }, scalar);
}

/// Returns copies of its inputs: tensor output k is graph input k, numbers are read from it. Checks
/// nothing, so that it shows what the binding hands over.
class EchoMethod final : public Method {
 public:
  EchoMethod(MethodSpec spec, int delay_ms) : spec_(std::move(spec)), delay_ms_(delay_ms) {}

  const MethodSpec& spec() const noexcept override { return spec_; }

  void call(std::span<Value> inputs, const CallStream&, std::vector<Value>& outputs) override {
    outputs.clear();
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms_));
    std::vector<Tensor> tensors(spec_.num_graph_inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (const auto* tensor = std::get_if<Tensor>(&inputs[i])) {
        tensors.at(spec_.inputs[i].graph_input) = contiguous_copy(*tensor, cpu_allocator(), {});
      }
    }
    for (const OutputSpec& output : spec_.outputs) outputs.push_back(make(output, tensors));
  }

 private:
  static Value make(const OutputSpec& output, const std::vector<Tensor>& tensors) {
    switch (output.kind) {
      case OutputSpec::Kind::kTensor:
        return tensors.at(output.graph_output);
      case OutputSpec::Kind::kInt:
        return *tensors.at(output.graph_output).data_as<int64_t>();
      case OutputSpec::Kind::kFloat:
        return *tensors.at(output.graph_output).data_as<double>();
      case OutputSpec::Kind::kBool:
        return *tensors.at(output.graph_output).data_as<bool>();
      case OutputSpec::Kind::kConstant:
        return to_value(output.value);
      case OutputSpec::Kind::kExpression:
        return output.expression.evaluate({}).value_or(0);
    }
    return std::monostate{};
  }

  MethodSpec spec_;
  int delay_ms_;
};

std::shared_ptr<PyMethod> echo_method(const std::string& manifest, int delay_ms) {
  Manifest parsed = parse_manifest(manifest, "<test>");
  if (parsed.methods.empty()) throw InputError("the manifest has no method");
  return std::make_shared<PyMethod>(
      std::make_shared<EchoMethod>(std::move(parsed.methods[0]), delay_ms));
}

py::dict live_counts() {
  py::dict counts;
  counts["storages"] = Storage::live_count();
  counts["handles"] = live_handles();
  counts["containers"] = Container::live_count();
  counts["shared_objects"] = SharedObject::live_count();
  return counts;
}

uint32_t fault_sites(const std::vector<std::string>& names) {
  uint32_t mask = 0;
  for (const std::string& name : names) {
    if (name == "allocate") {
      mask |= static_cast<uint32_t>(FaultSite::kAllocate);
    } else if (name == "file") {
      mask |= static_cast<uint32_t>(FaultSite::kFile);
    } else if (name == "dlopen") {
      mask |= static_cast<uint32_t>(FaultSite::kDlopen);
    } else if (name == "shim") {
      mask |= static_cast<uint32_t>(FaultSite::kShim);
    } else if (name == "container") {
      mask |= static_cast<uint32_t>(FaultSite::kContainer);
    } else {
      throw InputError(
          str("no fault site '", name, "'; expected allocate, file, dlopen, shim or container"));
    }
  }
  return mask;
}

}  // namespace

void register_testing(py::module_& m) {
  py::module_ testing =
      m.def_submodule("_testing", "What the tests need beyond the public surface.");
  testing.def("live_counts", &live_counts, "Objects of the core that are alive in the process.");
  testing.def("echo_method", &echo_method, py::arg("manifest"), py::arg("delay_ms") = 0,
              "The first method of a manifest, running no code: tensor output k is graph input k.");
  testing.def(
      "arm_fault",
      [](const std::vector<std::string>& sites, int64_t k) { arm_fault(fault_sites(sites), k); },
      py::arg("sites"), py::arg("k"),
      "Makes the k-th operation (from 1) at these sites fail once.");
  testing.def("disarm_fault", &disarm_fault, "Number of operations seen since arm_fault().");
}

}  // namespace cudaexec::python

// A KV cache without a program, for the tests: cudaexec._core._testing.KvCache.
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/str.h"
#include "device/cuda/cuda_device.h"
#include "ops/kv_attention.h"
#include "python/bind_cuda_testing.h"
#include "python/bind_ops.h"
#include "python/bindings.h"
#include "python/gil.h"
#include "runtime/kv_cache.h"

namespace cudaexec::python {
namespace {

constexpr const char* kWhat = "test";

/// (id, batch, heads, head_dim, window, capacity)
using Layer = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>;

KvDtype dtype_of(const std::string& name) {
  for (const KvDtype dtype :
       {KvDtype::kFloat32, KvDtype::kFloat16, KvDtype::kBfloat16, KvDtype::kFloat8E4m3}) {
    if (name == kv_dtype_name(dtype)) return dtype;
  }
  throw InputError(str("no KV dtype '", name, "'"));
}

KvCacheSpec spec_of(const std::vector<Layer>& layers, const std::string& dtype) {
  KvCacheSpec spec;
  spec.dtype = dtype_of(dtype);
  for (const auto& [id, batch, heads, head_dim, window, capacity] : layers) {
    spec.layers.push_back({id, batch, heads, head_dim, window, capacity});
  }
  return spec;
}

class TestCache {
 public:
  TestCache(const std::vector<Layer>& layers, const std::string& dtype, int gpu)
      : program_(std::make_shared<KvProgram>(spec_of(layers, dtype),
                                             gpu < 0 ? nullptr : &cuda_device(gpu))),
        cache_(std::make_unique<KvCache>(program_)) {}
  TestCache(std::shared_ptr<KvProgram> program, std::unique_ptr<KvCache> cache)
      : program_(std::move(program)), cache_(std::move(cache)) {}

  void prepare(int64_t width, uintptr_t stream) {
    step_.reset();
    step_ = cache_->prepare(width, stream_ref(stream), kWhat);
  }
  void map_ahead() { cache_->map_ahead(); }
  void commit() { cache_->commit(); }
  void check_fault() { cache_->check_fault(kWhat); }
  void rewind(int64_t position) { cache_->rewind(position); }
  void reset() { cache_->reset(); }
  std::unique_ptr<TestCache> fork() {
    return std::make_unique<TestCache>(program_, cache_->fork(kWhat));
  }
  /// Another session of the same program.
  std::unique_ptr<TestCache> session() {
    return std::make_unique<TestCache>(program_, std::make_unique<KvCache>(program_));
  }
  [[nodiscard]] int64_t position() const { return cache_->position(); }
  [[nodiscard]] KvBytes usage() const { return cache_->usage(); }
  [[nodiscard]] const KvLayout& layout() const { return program_->layout(); }
  [[nodiscard]] const KvStep* step() const { return step_ ? &*step_ : nullptr; }

  /// Where a token's row is.
  [[nodiscard]] uintptr_t address(int64_t layer, bool values, int64_t item, int64_t head,
                                  int64_t token) {
    const KvStep& step = cache_->step();
    for (const KvLayerView& view : *step.layers) {
      if (view.id != layer) continue;
      const int64_t slot = view.is_ring() ? token % view.slots : token;
      const int64_t row = (item * view.block() + slot % view.block()) * view.heads + head;
      return reinterpret_cast<uintptr_t>(view.base) +
             static_cast<uintptr_t>(slot / view.block() * view.page_nbytes +
                                    (values ? view.value_offset : view.key_offset) +
                                    row * view.head_dim *
                                        static_cast<int64_t>(kv_dtype_size(step.dtype)));
    }
    throw InputError(str("no layer ", layer));
  }

 private:
  std::shared_ptr<KvProgram> program_;
  std::unique_ptr<KvCache> cache_;
  std::optional<KvStep> step_;
};

py::list describe(const KvLayout& layout) {
  py::list groups;
  for (const KvGroup& group : layout.groups) {
    py::dict entry;
    entry["ring"] = group.ring;
    entry["capacity"] = group.capacity;
    entry["slots"] = group.slots;
    entry["token_nbytes"] = group.token_nbytes;
    entry["page_nbytes"] = group.page_nbytes;
    entry["block"] = group.block();
    entry["layers"] = group.layers;
    groups.append(entry);
  }
  return groups;
}

/// The step of a cache as the current one of this thread; delete it where it was made.
class StepScope {
 public:
  explicit StepScope(const TestCache& cache) : scope_(cache.step()) {}

 private:
  KvScope scope_;
};

}  // namespace

void register_kv_testing(py::module_& m) {
  const py::call_guard<GilRelease> no_gil;
  py::module_ testing = m.attr("_testing");
  py::class_<TestCache>(testing, "KvCache", py::release_gil_before_calling_cpp_dtor())
      .def(py::init<const std::vector<Layer>&, const std::string&, int>(), py::arg("layers"),
           py::arg("dtype"), py::arg("gpu") = -1, no_gil)
      .def("prepare", &TestCache::prepare, py::arg("width"), py::arg("stream") = 0, no_gil)
      .def("map_ahead", &TestCache::map_ahead, no_gil)
      .def("commit", &TestCache::commit, no_gil)
      .def("check_fault", &TestCache::check_fault, no_gil)
      .def("rewind", &TestCache::rewind, py::arg("position"), no_gil)
      .def("reset", &TestCache::reset, no_gil)
      .def("fork", &TestCache::fork, no_gil)
      .def("session", &TestCache::session, no_gil)
      .def("address", &TestCache::address, py::arg("layer"), py::arg("values"), py::arg("item"),
           py::arg("head"), py::arg("token"), no_gil)
      .def(
          "attend",
          [](const TestCache& self, const Tensor& q, const Tensor& k, const Tensor& v,
             const Tensor& index, int64_t layer, double scale) {
            return ops::kv_attention(self.step(), q, k, v, index, layer, scale, ops_context());
          },
          no_gil)
      .def_property_readonly("position", &TestCache::position)
      .def_property_readonly("usage",
                             [](const TestCache& self) {
                               const KvBytes usage = self.usage();
                               return std::tuple(usage.reserved, usage.mapped, usage.used);
                             })
      .def_property_readonly("groups",
                             [](const TestCache& self) { return describe(self.layout()); });
  py::class_<StepScope>(testing, "KvStepScope").def(py::init<const TestCache&>());
  testing.def(
      "plan_kv",
      [](const std::vector<Layer>& layers, const std::string& dtype, int64_t granularity) {
        return describe(plan_kv(spec_of(layers, dtype), granularity));
      },
      py::arg("layers"), py::arg("dtype"), py::arg("granularity"));
}

}  // namespace cudaexec::python

// Reading and replacing weights and state by name.
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "device/cuda/host_work.h"
#include "memory/cuda_pool_allocator.h"
#include "runtime/module_state.h"
#include "tensor/device_copy.h"

namespace cudaexec {
namespace {

std::string view_text(const WeightView& view) {
  return dtype_name(view.dtype) + list_str(view.sizes);
}

/// Copies between weights, on a stream of the calling thread where a GPU takes part.
class Copies {
 public:
  explicit Copies(CudaDevice* gpu)
      : gpu_(gpu),
        memory_(gpu != nullptr ? static_cast<Allocator&>(cuda_allocator(gpu->index()))
                               : cpu_allocator()),
        stream_(gpu != nullptr ? gpu->thread_stream() : StreamRef()) {
    if (gpu != nullptr) work_.emplace(*gpu, stream_);
  }

  void copy(const Tensor& dst, const Tensor& src) {
    if (work_) work_->begin();
    copy_elements(dst, src, memory_, stream_);
  }
  [[nodiscard]] Tensor to_host(const Tensor& tensor) const {
    return host_copy(tensor, cpu_allocator(), memory_, stream_);
  }
  /// The bytes that both tensors show are equal (NaNs too).
  [[nodiscard]] bool same_bytes(const Tensor& a, const Tensor& b) const {
    const Tensor left = to_host(a);
    const Tensor right = to_host(b);
    return left.nbytes() == 0 || std::memcmp(left.data(), right.data(), left.nbytes()) == 0;
  }
  /// Work on the stream follows what is on the one that a tensor's owner named.
  void follow(const Tensor& tensor) const {
    if (gpu_ == nullptr || tensor.device().is_cpu()) return;
    gpu_->order(stream_, tensor.storage()->stream());
  }
  void wait() {
    if (work_) work_->wait();
  }
  /// A copy of a storage on its own device.
  [[nodiscard]] StoragePtr copy_of(const Storage& source) {
    if (work_) work_->begin();
    const Device device = source.device();
    StoragePtr copy = device.is_cpu()
                          ? Storage::allocate(source.nbytes(), device, cpu_allocator(), {})
                          : Storage::allocate(source.nbytes(), device, memory_, stream_);
    device_interface(device).copy(copy->data(), device, source.data(), device, source.nbytes(),
                                  stream_);
    return copy;
  }

 private:
  CudaDevice* gpu_;
  Allocator& memory_;
  StreamRef stream_;
  std::optional<HostWork> work_;  // on a GPU; its destructor waits for the copies
};

class Update {
 public:
  explicit Update(ModuleState& state)
      : state_(state),
        table_(state.program->table),
        copies_(state.program->gpu),
        old_(state.weights.get()) {}

  /// Everything that can fail and changes nothing.
  void prepare(const std::vector<std::pair<std::string, Tensor>>& values) {
    for (const auto& [fqn, value] : values) {
      const WeightView& view = find(fqn, value);
      const bool is_new = !prepared_.contains(view.entry);
      if (is_new) prepared_[view.entry] = copies_.copy_of(*old_->storages[view.entry]);
      copies_.follow(value);
      const Tensor target = view.over(prepared_[view.entry]);
      const auto earlier = written_.find(view.entry);
      if (earlier == written_.end()) {
        copies_.copy(target, value);
        written_[view.entry].emplace_back(fqn, &view, &value);
        continue;
      }
      write_shared(fqn, view, value, target, earlier->second);
    }
    copies_.wait();
    others_ = state_.sessions.all();
    fresh_ = std::make_shared<WeightSet>(*old_);
    for (auto& [entry, storage] : prepared_) {
      storage->mark_constant();
      fresh_->storages[entry] = storage;
    }
  }

  /// Waits for calls that use the own session's state, then switches; then for those of each other
  /// session, whose containers hold the old weights.
  void commit() {
    SessionState& session = *state_.session;
    {
      const SessionLock lock(session);
      if (session.uses() != nullptr) session.uses()->wait();  // its buffers are read below
      std::vector<std::pair<size_t, StoragePtr>> buffers;     // the session's new ones, by entry
      for (const auto& [entry, writes] : written_) {
        const StoragePtr& buffer = session.buffer(entry);
        if (!buffer) continue;
        StoragePtr fresh = clone_buffer(*buffer, buffer->device().is_cpu() ? nullptr : gpu());
        for (const Write& write : writes) copies_.copy(write.view->over(fresh), *write.value);
        buffers.emplace_back(entry, std::move(fresh));
      }
      copies_.wait();
      // Nothing below fails.
      session.drop_containers();
      for (auto& [entry, buffer] : buffers) session.set_buffer(entry, std::move(buffer));
      state_.weights.set(std::move(fresh_));
    }
    for (const auto& method : state_.methods) {
      if (method->pool != nullptr) method->pool->shrink(1);
    }
    for (const auto& session : others_) session->drop_outdated();
  }

 private:
  struct Write {
    Write(const std::string& name, const WeightView* where, const Tensor* what)
        : fqn(name), view(where), value(what) {}
    const std::string& fqn;
    const WeightView* view;
    const Tensor* value;
  };

  [[nodiscard]] CudaDevice* gpu() const noexcept { return state_.program->gpu; }
  [[nodiscard]] std::string place(const std::string& fqn) const {
    return str(state_.program->pte_path, ": weight '", fqn, "'");
  }

  [[nodiscard]] const WeightView& find(const std::string& fqn, const Tensor& value) const {
    const auto found = table_.by_fqn.find(fqn);
    if (found == table_.by_fqn.end()) {
      throw WeightsError(str(place(fqn), " is unknown; the program has ", table_.by_fqn.size(),
                             table_.by_fqn.empty()
                                 ? std::string()
                                 : str(", for example '", table_.by_fqn.begin()->first, "'"),
                             "; nothing was changed"));
    }
    const WeightView& view = found->second;
    const bool usable =
        value.defined() &&
        (value.device().is_cpu() || (gpu() != nullptr && value.device() == gpu()->device()));
    if (!usable) {
      throw DeviceError(
          str(place(fqn), ": expected an array on the cpu",
              gpu() != nullptr ? str(" or ", to_string(gpu()->device())) : "",
              value.defined() ? str(", found one on ", to_string(value.device())) : "",
              "; nothing was changed"));
    }
    if (value.dtype() != view.dtype) {
      throw DtypeError(str(place(fqn), ": expected ", view_text(view), ", found ", describe(value),
                           "; convert it first; nothing was changed"));
    }
    if (!(value.sizes() == view.sizes)) {
      throw ShapeError(str(place(fqn), ": expected ", view_text(view), ", found ", describe(value),
                           "; nothing was changed"));
    }
    return view;
  }

  /// Another name of the same storage came before: its elements must not end up different.
  void write_shared(const std::string& fqn, const WeightView& view, const Tensor& value,
                    const Tensor& target, std::vector<Write>& writes) {
    copies_.copy(target, value);
    for (const Write& write : writes) {
      if (copies_.same_bytes(write.view->over(target.storage()), *write.value)) continue;
      throw WeightsError(str(place(fqn), " shares its memory with '", write.fqn,
                             "' (tied weights), but the two values differ; pass one of them, or "
                             "equal ones; nothing was changed"));
    }
    writes.emplace_back(fqn, &view, &value);
  }

  ModuleState& state_;
  const WeightTable& table_;
  Copies copies_;
  std::shared_ptr<const WeightSet> old_;
  std::shared_ptr<WeightSet> fresh_;
  std::vector<std::shared_ptr<SessionState>> others_;
  std::map<size_t, StoragePtr> prepared_;         // by entry
  std::map<size_t, std::vector<Write>> written_;  // by entry
};

}  // namespace

void replace_weights(ModuleState& state,
                     const std::vector<std::pair<std::string, Tensor>>& values) {
  const std::lock_guard lock(state.update);
  Update update(state);
  update.prepare(values);
  update.commit();
}

std::vector<std::pair<std::string, Tensor>> snapshot(ModuleState& state, SessionState& session) {
  const Copies copies(state.program->gpu);
  const SessionLock lock(session);
  if (session.uses() != nullptr) session.uses()->wait();
  const auto weights = state.weights.get();
  std::vector<std::pair<std::string, Tensor>> values;
  for (const auto& [fqn, view] : state.program->table.by_fqn) {
    const StoragePtr& buffer = session.buffer(view.entry);
    const Tensor current = view.over(buffer ? buffer : weights->storages[view.entry]);
    values.emplace_back(fqn, copies.to_host(current));
  }
  return values;
}

}  // namespace cudaexec

// Reading and replacing weights and state by name.
#include <cstring>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "runtime/module_state.h"
#include "tensor/strided_copy.h"

namespace cudaexec {
namespace {

std::string view_text(const WeightView& view) {
  return dtype_name(view.dtype) + list_str(view.sizes);
}

/// The bytes that both tensors show are equal (NaNs too).
bool same_bytes(const Tensor& a, const Tensor& b) {
  const Tensor left = contiguous_copy(a, cpu_allocator(), {});
  const Tensor right = contiguous_copy(b, cpu_allocator(), {});
  return left.nbytes() == 0 || std::memcmp(left.data(), right.data(), left.nbytes()) == 0;
}

class Update {
 public:
  explicit Update(ModuleState& state)
      : state_(state), table_(state.program->table), old_(state.weights.get()) {}

  /// Everything that can fail and changes nothing.
  void prepare(const std::vector<std::pair<std::string, Tensor>>& values) {
    for (const auto& [fqn, value] : values) {
      const WeightView& view = find(fqn, value);
      const bool is_new = !prepared_.contains(view.entry);
      if (is_new) prepared_[view.entry] = copy_of(*old_->storages[view.entry]);
      const Tensor target = view.over(prepared_[view.entry]);
      const auto earlier = written_.find(view.entry);
      if (earlier == written_.end()) {
        strided_copy(target, value);
        written_[view.entry].emplace_back(fqn, &view, &value);
        continue;
      }
      write_shared(fqn, view, value, target, earlier->second);
    }
    fresh_ = std::make_shared<WeightSet>(*old_);
    for (auto& [entry, storage] : prepared_) {
      storage->mark_constant();
      fresh_->storages[entry] = storage;
    }
  }

  /// Waits for calls that use the session's state, then switches.
  void commit() {
    SessionState& session = *state_.session;
    {
      const std::lock_guard lock(session.mutex());
      std::vector<std::pair<StoragePtr, StoragePtr>> images;  // new content, session's buffer
      for (const auto& [entry, writes] : written_) {
        const StoragePtr& buffer = session.buffer(entry);
        if (!buffer) continue;
        StoragePtr image = copy_of(*buffer);
        for (const Write& write : writes) strided_copy(write.view->over(image), *write.value);
        images.emplace_back(std::move(image), buffer);
      }
      // Nothing below fails.
      for (const auto& [image, buffer] : images) {
        if (buffer->nbytes() != 0) std::memcpy(buffer->data(), image->data(), buffer->nbytes());
      }
      state_.weights.set(std::move(fresh_));
      session.drop_containers();
    }
    for (const auto& method : state_.methods) {
      if (method->pool != nullptr) method->pool->shrink(1);
    }
  }

 private:
  struct Write {
    Write(const std::string& name, const WeightView* where, const Tensor* what)
        : fqn(name), view(where), value(what) {}
    const std::string& fqn;
    const WeightView* view;
    const Tensor* value;
  };

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
    if (!value.defined() || !value.device().is_cpu()) {
      throw DeviceError(
          str(place(fqn), ": expected an array on the cpu",
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
    strided_copy(target, value);
    for (const Write& write : writes) {
      if (same_bytes(write.view->over(target.storage()), *write.value)) continue;
      throw WeightsError(str(place(fqn), " shares its memory with '", write.fqn,
                             "' (tied weights), but the two values differ; pass one of them, or "
                             "equal ones; nothing was changed"));
    }
    writes.emplace_back(fqn, &view, &value);
  }

  static StoragePtr copy_of(const Storage& source) {
    StoragePtr copy = Storage::allocate(source.nbytes(), source.device(), cpu_allocator(), {});
    if (source.nbytes() != 0) std::memcpy(copy->data(), source.data(), source.nbytes());
    return copy;
  }

  ModuleState& state_;
  const WeightTable& table_;
  std::shared_ptr<const WeightSet> old_;
  std::shared_ptr<WeightSet> fresh_;
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

std::vector<std::pair<std::string, Tensor>> snapshot(ModuleState& state) {
  SessionState& session = *state.session;
  const std::lock_guard lock(session.mutex());
  const auto weights = state.weights.get();
  std::vector<std::pair<std::string, Tensor>> values;
  for (const auto& [fqn, view] : state.program->table.by_fqn) {
    const StoragePtr& buffer = session.buffer(view.entry);
    const Tensor current = view.over(buffer ? buffer : weights->storages[view.entry]);
    values.emplace_back(fqn, contiguous_copy(current, cpu_allocator(), {}));
  }
  return values;
}

}  // namespace cudaexec

#include <utility>

#include "device/thread_pool.h"
#include "runtime/module_state.h"

namespace cudaexec {
namespace {

/// Drops what a call put into a container's buffers.
class ClearBuffers {
 public:
  explicit ClearBuffers(BoundContainer& bound) noexcept : bound_(bound) {}
  ~ClearBuffers() {
    bound_.inputs.clear();
    bound_.outputs.clear();
    bound_.input_storages.clear();
  }
  ClearBuffers(const ClearBuffers&) = delete;
  ClearBuffers& operator=(const ClearBuffers&) = delete;

 private:
  BoundContainer& bound_;
};

class ModuleMethod final : public Method {
 public:
  ModuleMethod(std::shared_ptr<ModuleState> state, size_t index)
      : state_(std::move(state)), method_(*state_->methods[index]) {}

  [[nodiscard]] const MethodSpec& spec() const noexcept override { return method_.method.spec; }

  [[nodiscard]] std::vector<Value> call(std::span<Value> inputs, const CallStream&) override {
    const OpenModule open(*state_);
    const StreamRef stream;
    Dims symbols;
    method_.inputs.check(inputs, symbols);
    if (method_.code == nullptr) {
      std::vector<Tensor> nothing;
      return method_.outputs.take(nothing, {}, symbols, *state_->memory, stream);
    }
    const ThreadLimit threads(state_->options.threads);
    SessionState& session = *state_->session;
    const RandomScope random(session.random());
    if (method_.uses_state) {
      const std::lock_guard lock(session.mutex());
      BoundContainer& bound = session.container(method_.index, *method_.code);
      return run(bound, method_.first_run, inputs, symbols, stream);
    }
    const PooledContainer lent(*method_.pool);
    return run(lent.get(), method_.pool->first_run(), inputs, symbols, stream);
  }

 private:
  std::vector<Value> run(BoundContainer& bound, std::mutex& first_run, std::span<Value> inputs,
                         const Dims& symbols, StreamRef stream) {
    const ClearBuffers clear(bound);
    // Borrowed memory is recognised without this list; what is left are outputs of earlier calls.
    for (const Value& value : inputs) {
      const auto* tensor = std::get_if<Tensor>(&value);
      if (tensor != nullptr && tensor->storage()->is_owned()) {
        bound.input_storages.push_back(tensor->storage().get());
      }
    }
    Allocator& allocator = *state_->memory;
    method_.inputs.bind(inputs, symbols, bound.inputs, allocator, stream);
    run_bound(bound, first_run, stream, allocator);
    return method_.outputs.take(bound.outputs, bound.input_storages, symbols, allocator, stream);
  }

  std::shared_ptr<ModuleState> state_;
  MethodRuntime& method_;
};

}  // namespace

std::shared_ptr<Method> make_method(std::shared_ptr<ModuleState> state, size_t index) {
  const ProgramMethod& method = state->program->methods[index];
  if (method.refusal != nullptr) std::rethrow_exception(method.refusal);
  return std::make_shared<ModuleMethod>(std::move(state), index);
}

}  // namespace cudaexec

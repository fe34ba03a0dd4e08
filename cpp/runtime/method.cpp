#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/fork_mutex.h"
#include "base/str.h"
#include "device/thread_pool.h"
#include "runtime/bound_outputs.h"
#include "runtime/graph_set.h"
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

/// Runs `function`; an error of it says in which method, once.
template <typename Function>
void in_method(const std::string& name, const Function& function) {
  try {
    function();
  } catch (const InternalError&) {
    throw;  // names the code
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with("method '")) throw;
    throw Error(error.kind(), str("method '", name, "': ", error.what()), error.os_error());
  }
}

class ModuleMethod final : public Method, public std::enable_shared_from_this<ModuleMethod> {
 public:
  ModuleMethod(std::shared_ptr<ModuleState> state, std::shared_ptr<SessionState> session,
               size_t index)
      : state_(std::move(state)), session_(std::move(session)), method_(*state_->methods[index]) {}

  [[nodiscard]] const MethodSpec& spec() const noexcept override { return method_.method.spec; }

  [[nodiscard]] Device device() const noexcept override { return state_->program->device; }

  void call(std::span<Value> inputs, const CallStream& where,
            std::vector<Value>& outputs) override {
    call_into(inputs, where, nullptr, outputs);
  }

  [[nodiscard]] std::shared_ptr<Binding> bind(std::vector<Value> inputs,
                                              std::vector<Value> outputs) override;

  [[nodiscard]] uint32_t warmup_calls() const noexcept override {
    return method_.graphs != nullptr ? method_.graphs->options().warmup + 1 : 1;
  }

  [[nodiscard]] std::optional<int64_t> position() const override {
    if (!method_.uses_kv) return std::nullopt;
    const OpenSession open(*state_, *session_);
    return session_->kv().position();
  }

  void rewind(int64_t position) override {
    const OpenSession open(*state_, *session_);
    const SessionLock lock(*session_);
    session_->rewind(position);
  }

  [[nodiscard]] std::string describe_json() const override {
    return describe_method(*state_, method_.index);
  }

  /// A call whose outputs go to `bound`, or to `outputs` if there is none.
  void call_into(std::span<Value> inputs, const CallStream& where, const BoundOutputs* bound,
                 std::vector<Value>& outputs) {
    outputs.clear();
    const OpenSession open(*state_, *session_);
    session_->count_call(method_.index);
    try {
      run(inputs, where, bound, outputs);
    } catch (...) {
      session_->count_error(method_.index);
      outputs.clear();
      throw;
    }
  }

 private:
  void run(std::span<Value> inputs, const CallStream& where, const BoundOutputs* bound,
           std::vector<Value>& outputs) {
    Dims symbols;
    method_.inputs.check(inputs, symbols);
    if (method_.code == nullptr) {
      std::vector<Tensor> nothing;
      const CallMemory memory{*state_->memory, *state_->memory, {}};
      method_.outputs.take(nothing, {}, symbols, memory, outputs);
      if (bound != nullptr) bound->fill(outputs, memory);
      return;
    }
    const ThreadLimit threads(state_->options.threads);
    const RandomScope random(session_->random());
    CudaDevice* device = state_->program->gpu;
    if (device == nullptr) {
      run_on_container(inputs, symbols,
                       {*state_->memory, *state_->memory, {}, nullptr, nullptr, bound}, outputs);
      return;
    }
    GpuCall gpu(
        *device, where, inputs,
        bound != nullptr ? std::span<const Value>(bound->places) : std::span<const Value>());
    HostWork host_work(*device, gpu.stream());  // ends before the outputs on the host
    run_on_container(
        inputs, symbols,
        {*state_->memory, state_->host_memory(), gpu.stream(), &gpu, &host_work, bound}, outputs);
    if (method_.uses_kv) return;  // its step has waited
    gpu.finish();
    host_work.wait();
  }

  void run_on_container(std::span<Value> inputs, const Dims& symbols, const CallMemory& memory,
                        std::vector<Value>& outputs) {
    in_method(spec().name, [&] { run_on_any(inputs, symbols, memory, outputs); });
  }

  void run_on_any(std::span<Value> inputs, const Dims& symbols, const CallMemory& memory,
                  std::vector<Value>& outputs) {
    if (!method_.uses_state) {
      const PooledContainer lent(*method_.pool);
      run_on(lent.get(), method_.pool->first_run(), inputs, symbols, memory, outputs);
      return;
    }
    const SessionLock lock(*session_);
    BoundContainer& bound = session_->container(method_.index, *method_.code);
    run_on(bound, method_.first_run, inputs, symbols, memory, outputs);
  }

  void run_on(BoundContainer& bound, ForkMutex& first_run, std::span<Value> inputs,
              const Dims& symbols, const CallMemory& memory, std::vector<Value>& outputs) {
    const ClearBuffers clear(bound);
    // Borrowed memory is recognised without this list; what is left are outputs of earlier calls.
    for (const Value& value : inputs) {
      const auto* tensor = std::get_if<Tensor>(&value);
      if (tensor != nullptr && tensor->storage()->is_owned()) {
        bound.input_storages.push_back(tensor->storage().get());
      }
    }
    std::optional<StreamUse> use;
    if (memory.gpu != nullptr) {
      // Graphs of one container share memory, so each launch follows the others.
      use.emplace(*bound.uses, memory.stream, method_.uses_state || bound.graphs != nullptr);
    }
    std::optional<KvCall> step;
    if (method_.uses_kv) {
      step.emplace(session_->kv(), method_.index, inputs, symbols, memory.stream);
    }
    const auto run_plainly = [&] {
      method_.inputs.bind(inputs, symbols, bound.inputs, memory);
      run_bound(bound, first_run, memory.stream, memory.device);
      method_.outputs.take(bound.outputs, bound.input_storages, symbols, memory, outputs);
      if (memory.bound != nullptr) memory.bound->fill(outputs, memory);
    };
    if (bound.graphs != nullptr) {
      const CallSite site{method_.inputs, method_.outputs, inputs,
                          symbols,        memory,          RandomState::current()};
      bound.graphs->call(*bound.container, site, outputs, run_plainly);
    } else {
      run_plainly();
    }
    if (use) use->finish();
    if (step) finish_step(*step, memory);
  }

  /// The step counts once it is known to have worked: where the call waits for its outputs, after
  /// that.
  static void finish_step(KvCall& step, const CallMemory& memory) {
    if (memory.gpu != nullptr) {
      step.map_ahead();
      memory.gpu->finish();
      memory.host_work->wait();
    }
    step.commit();
  }

  std::shared_ptr<ModuleState> state_;
  std::shared_ptr<SessionState> session_;
  MethodRuntime& method_;
};

class MethodBinding final : public Binding {
 public:
  MethodBinding(std::shared_ptr<ModuleMethod> method, std::vector<Value> inputs,
                std::vector<Value> outputs)
      : method_(std::move(method)), inputs_(std::move(inputs)) {
    outputs_->places = std::move(outputs);
  }

  void run(const CallStream& where) override {
    const std::lock_guard lock(mutex_);
    if (mutex_.interrupted()) {
      throw SessionBusy(str("method '", method_->spec().name,
                            "': the binding was in use by another thread when this process was "
                            "forked; make another one"));
    }
    scratch_ = inputs_;  // a call consumes its inputs
    method_->call_into(scratch_, where, outputs_.get(), results_);
    results_.clear();
  }

 private:
  std::shared_ptr<ModuleMethod> method_;
  ForkMutex mutex_;
  std::vector<Value> inputs_;
  std::vector<Value> scratch_, results_;  // of one run; kept so that runs need no allocation
  std::shared_ptr<BoundOutputs> outputs_ = std::make_shared<BoundOutputs>();
};

std::shared_ptr<Binding> ModuleMethod::bind(std::vector<Value> inputs, std::vector<Value> outputs) {
  const OpenSession open(*state_, *session_);
  Dims symbols;
  method_.inputs.check(inputs, symbols);
  check_bound_outputs(spec(), symbols, device(), inputs, outputs);
  return std::make_shared<MethodBinding>(shared_from_this(), std::move(inputs), std::move(outputs));
}

}  // namespace

std::shared_ptr<Method> make_method(std::shared_ptr<ModuleState> state,
                                    std::shared_ptr<SessionState> session, size_t index) {
  const ProgramMethod& method = state->program->methods[index];
  if (method.refusal != nullptr) std::rethrow_exception(method.refusal);
  return std::make_shared<ModuleMethod>(std::move(state), std::move(session), index);
}

}  // namespace cudaexec

// What a Module owns, and its Methods keep alive. Members are in the order of acquisition.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/call_gate.h"
#include "runtime/container_pool.h"
#include "runtime/input_check.h"
#include "runtime/method_graphs.h"
#include "runtime/outputs.h"
#include "runtime/program.h"
#include "runtime/session_state.h"
#include "runtime/working_memory.h"

namespace cudaexec {

/// One method that can run, or is refused.
struct MethodRuntime {
  /// `memory`: of the program's device.
  MethodRuntime(const Program& program, size_t method_index, const WeightStore& weights,
                const LoadOptions& options, Allocator& memory);

  const ProgramMethod& method;
  const size_t index;
  const bool uses_state;
  const InputCheck inputs;
  const OutputPlan outputs;
  std::unique_ptr<MethodGraphs> graphs;  // null where calls never become CUDA graphs
  std::unique_ptr<MethodCode> code;      // null for constant and refused methods
  std::unique_ptr<ContainerPool> pool;   // of methods without state
  std::mutex first_run;                  // of methods with state
};

struct ModuleState {
  ModuleState(std::unique_ptr<Program> loaded, const LoadOptions& load_options);
  ~ModuleState();

  /// Frees everything but names and specs, once calls have ended.
  void close() noexcept;

  /// Host memory of calls: all of it on the CPU, outputs for the host on a GPU.
  [[nodiscard]] Allocator& host_memory() noexcept { return host != nullptr ? *host : *memory; }

  const LoadOptions options;
  CallGate gate;
  WorkingMemory::Owner memory;  // of the program's device
  WorkingMemory::Owner host;    // null on the CPU
  std::unique_ptr<Program> program;
  WeightStore weights;
  std::vector<std::unique_ptr<MethodRuntime>> methods;
  std::unique_ptr<SessionState> session;  // the Module's own
  std::mutex update;                      // held by load_weights()
};

/// Keeps a module open for the scope. @throws ClosedError
class OpenModule {
 public:
  explicit OpenModule(ModuleState& state);
  ~OpenModule() { state_.gate.leave(); }
  OpenModule(const OpenModule&) = delete;
  OpenModule& operator=(const OpenModule&) = delete;

 private:
  ModuleState& state_;
};

/// Replaces weights and state; see Module::load_weights.
void replace_weights(ModuleState& state, const std::vector<std::pair<std::string, Tensor>>& values);

/// Module::state and Module::describe_json.
std::vector<std::pair<std::string, Tensor>> snapshot(ModuleState& state);
std::string describe_module(const ModuleState& state);

/// A Method over `session`. @throws the method's refusal.
std::shared_ptr<Method> make_method(std::shared_ptr<ModuleState> state, size_t index);

}  // namespace cudaexec

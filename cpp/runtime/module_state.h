// What a Module owns, and its Methods keep alive. Members are in the order of acquisition.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/fork_mutex.h"
#include "runtime/call_gate.h"
#include "runtime/container_pool.h"
#include "runtime/input_check.h"
#include "runtime/kv_session.h"
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
  const bool uses_kv;
  const bool uses_state;  // the KV cache counts
  const InputCheck inputs;
  const OutputPlan outputs;
  std::unique_ptr<MethodGraphs> graphs;  // null where calls never become CUDA graphs
  std::unique_ptr<MethodCode> code;      // null for constant and refused methods
  std::unique_ptr<ContainerPool> pool;   // of methods without state
  ForkMutex first_run;                   // of methods with state
};

/// The sessions of a module besides its own, and what is left of ended ones. Thread-safe.
class SessionList {
 public:
  explicit SessionList(size_t num_methods) : ended_(num_methods) {}
  /// @throws std::bad_alloc
  void add(const std::shared_ptr<SessionState>& session);
  /// At a session's end; its counts stay.
  void remove(const SessionState& session) noexcept;
  /// Those alive now. @throws std::bad_alloc
  [[nodiscard]] std::vector<std::shared_ptr<SessionState>> all() const;
  /// Closes all; no more may be added. Waits for calls in flight.
  void close() noexcept;
  /// Calls of a method in all sessions, ended ones too.
  [[nodiscard]] CallCounts counts(size_t method) const;

 private:
  mutable ForkMutex mutex_;
  std::map<const SessionState*, std::weak_ptr<SessionState>> alive_;
  std::vector<CallCounts> ended_;  // by method
};

class CudaBlockCache;

struct ModuleState {
  ModuleState(std::unique_ptr<Program> loaded, const LoadOptions& load_options);
  ~ModuleState();

  /// Frees everything but names and specs, once calls have ended.
  void close() noexcept;

  /// In a call that finds no memory: CUDA graphs that no call is using go. Whether there were any.
  bool yield_graphs() noexcept;

  /// Host memory of calls: all of it on the CPU, outputs for the host on a GPU.
  [[nodiscard]] Allocator& host_memory() noexcept { return host != nullptr ? *host : *memory; }

  const LoadOptions options;
  CallGate gate;
  CudaBlockCache* blocks = nullptr;  // of `memory`, where calls become CUDA graphs
  WorkingMemory::Owner memory;       // of the program's device
  WorkingMemory::Owner host;         // null on the CPU
  std::unique_ptr<Program> program;
  WeightStore weights;
  std::unique_ptr<const KvUse> kv;  // null without a KV cache
  std::vector<std::unique_ptr<MethodRuntime>> methods;
  std::shared_ptr<SessionState> session;  // the Module's own
  SessionList sessions;                   // the others
  const size_t bytes_per_session;         // of all mutable buffers
  ForkMutex update;                       // held by load_weights()
};

/// One more session: it is in state.sessions while it lives, and must not outlive `state`.
std::shared_ptr<SessionState> make_session(ModuleState& state);

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

/// Keeps a session, and so its module, open for the scope. @throws ClosedError naming which is
/// closed.
class OpenSession {
 public:
  OpenSession(const ModuleState& state, SessionState& session);
  ~OpenSession() { session_.gate().leave(); }
  OpenSession(const OpenSession&) = delete;
  OpenSession& operator=(const OpenSession&) = delete;

 private:
  SessionState& session_;
};

/// Replaces weights and state; see Module::load_weights.
void replace_weights(ModuleState& state, const std::vector<std::pair<std::string, Tensor>>& values);

/// Values of all weights, and of a session's buffers, by name; see Module::state.
std::vector<std::pair<std::string, Tensor>> snapshot(ModuleState& state, SessionState& session);
/// Module::describe_json, Method::describe_json and Session::describe_json.
std::string describe_module(const ModuleState& state);
std::string describe_method(const ModuleState& state, size_t index);
std::string describe_session(const ModuleState& state, SessionState& session);

/// In the order of export.
std::vector<std::string> method_names(const Program& program);
/// @throws InputError naming the methods there are.
size_t find_method(const Program& program, const std::string& name);
/// A Method over `session`. @throws the method's refusal.
std::shared_ptr<Method> make_method(std::shared_ptr<ModuleState> state,
                                    std::shared_ptr<SessionState> session, size_t index);

}  // namespace cudaexec

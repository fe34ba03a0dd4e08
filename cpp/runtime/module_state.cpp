#include "runtime/module_state.h"

#include <algorithm>
#include <utility>

#include "base/cleanup_report.h"
#include "base/error.h"
#include "base/str.h"
#include "base/words.h"
#include "device/thread_pool.h"
#include "memory/cuda_block_cache.h"
#include "memory/cuda_pool_allocator.h"
#include "runtime/graph_set.h"

namespace cudaexec {
namespace {

/// ExecuTorch's exporter gives reductions one slot per thread of the machine it ran on, and no
/// more: with a team larger than that they write past the end. How many it were the file does not
/// say.
LoadOptions options_for(const Program& program, const LoadOptions& asked) {
  LoadOptions options = asked;
  if (!program.has_manifest && program.gpu == nullptr) options.threads = 1;
  return options;
}

/// Why no call of a method may be captured, or nothing.
std::string graph_refusal(const Program& program, size_t index, const InputCheck& inputs) {
  if (const std::string* name = inputs.host_input()) {
    return str("the program reads its input '", *name, "' on the host");
  }
  for (const MethodConstant& constant : program.table.methods[index]) {
    const WeightEntry& entry = program.table.entries[constant.view.entry];
    if (entry.state && !entry.on_gpu) {
      return str("its constant '", entry.fqn, "' is in host memory and ",
                 program.has_manifest ? "written by the program" : "may be written");
    }
  }
  return {};
}

/// Whether the caller asked for graphs of this method.
bool wants_graphs(const GraphOptions& options, const std::string& name) {
  return options.on &&
         (options.methods.empty() ||
          std::find(options.methods.begin(), options.methods.end(), name) != options.methods.end());
}

}  // namespace

MethodRuntime::MethodRuntime(const Program& program, size_t method_index,
                             const WeightStore& weights, const LoadOptions& options,
                             Allocator& memory)
    : method(program.methods[method_index]),
      index(method_index),
      uses_kv(method.spec.kv.has_value()),
      uses_state(uses_kv || program.table.uses_state(method_index)),
      inputs(method.spec, program.pte_path, program.device),
      outputs(method.spec, program.pte_path) {
  if (method.code == nullptr) return;
  code = std::make_unique<MethodCode>(method.code, method.spec, program.table.methods[index],
                                      method.dense, program.pte_path, program.gpu);
  if (program.gpu != nullptr && wants_graphs(options.graphs, method.spec.name)) {
    std::string refusal = graph_refusal(program, index, inputs);
    const bool may = refusal.empty();
    graphs = std::make_unique<MethodGraphs>(options.graphs, method.spec, std::move(refusal));
    if (may) code->use_graphs(*graphs, memory);
  }
  if (uses_state) {
    // Session buffers are made by the first call; that the code accepts its constants is known now.
    // On a GPU they are made at load, where the weights of the file are not on the device.
    if (program.gpu == nullptr) (void)code->create(weights.get()->storages);
    return;
  }
  pool = std::make_unique<ContainerPool>(*code, weights);
  pool->release(pool->acquire());
}

namespace {

WorkingMemory::Owner make_memory(const Program& program, const LoadOptions& options,
                                 CudaBlockCache*& blocks) {
  if (program.gpu == nullptr) return WorkingMemory::create(options.memory_limit);
  CudaPoolAllocator& pool = cuda_allocator(program.gpu->index());
  if (!options.graphs.on) return WorkingMemory::create(options.memory_limit, pool);
  auto cache = std::make_unique<CudaBlockCache>(*program.gpu, pool);
  blocks = cache.get();
  return WorkingMemory::create(options.memory_limit, std::move(cache));
}

/// @throws InputError for a method that there is not, NotSupported for a program on the CPU.
void check_graph_options(const GraphOptions& options, const Program& program) {
  if (!options.on) return;
  if (program.gpu == nullptr) {
    throw NotSupported(str(program.pte_path,
                           " runs on the CPU, which has no CUDA graphs; leave "
                           "cuda_graph out, or load it for a GPU"));
  }
  const std::vector<std::string> names = method_names(program);
  for (const std::string& name : options.methods) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    throw InputError(str("cuda_graph names the method '", name, "', which ", program.pte_path,
                         " has not; it has ", list_str(names)));
  }
}

size_t state_nbytes(const Program& program) {
  size_t total = 0;
  for (size_t i = 0; i < program.weights.size(); ++i) {
    if (program.table.entries[i].state) total += program.weights[i]->nbytes();
  }
  return total;
}

/// Gives what the pool of a GPU keeps back to the device, once what was freed is free.
void return_device_memory(CudaDevice& gpu) noexcept {
  if (cuda::driver_if_initialised() == nullptr) return;  // a forked child
  try {
    gpu.synchronize(gpu.thread_stream());
    cuda_allocator(gpu.index()).trim();
  } catch (const Error& error) {
    report_cleanup_failure("returning GPU memory", error.what());
  }
}

}  // namespace

ModuleState::ModuleState(std::unique_ptr<Program> loaded, const LoadOptions& load_options)
    : options(options_for(*loaded, load_options)),
      memory(make_memory(*loaded, load_options, blocks)),
      host(loaded->gpu != nullptr ? WorkingMemory::create(0) : nullptr),
      program(std::move(loaded)),
      weights(std::make_shared<WeightSet>(WeightSet{program->weights})),
      kv(make_kv_use(*program)),
      sessions(program->methods.size()),
      bytes_per_session(state_nbytes(*program)) {
  check_graph_options(options.graphs, *program);
  if (options.graphs.on) memory->set_reclaim([this] { return yield_graphs(); });
  const ThreadLimit limit(options.threads);
  for (size_t i = 0; i < program->methods.size(); ++i) {
    methods.push_back(std::make_unique<MethodRuntime>(*program, i, weights, options, *memory));
  }
  session = std::make_shared<SessionState>(program->table, weights, program->gpu, kv.get());
  if (program->gpu == nullptr) return;
  const SessionLock lock(*session);
  for (const auto& method : methods) {
    if (method->uses_state && method->code != nullptr) {
      (void)session->container(method->index, *method->code);
    }
  }
}

ModuleState::~ModuleState() { close(); }

bool ModuleState::yield_graphs() noexcept {
  try {
    GraphSet* const running = GraphSet::current();
    bool any = running != nullptr && running->yield_others();
    for (const auto& method : methods) {
      if (method->pool != nullptr) any = method->pool->yield_graphs() || any;
    }
    any = session->yield_graphs() || any;
    for (const auto& other : sessions.all()) any = other->yield_graphs() || any;
    return any;
  } catch (const std::exception& error) {
    report_cleanup_failure("giving up CUDA graphs", error.what());
    return false;
  }
}

void ModuleState::close() noexcept {
  if (!gate.close()) return;
  session->close();
  sessions.close();
  for (auto& method : methods) {
    method->pool.reset();
    method->code.reset();
  }
  weights.set(nullptr);
  program->weights.clear();
  for (ProgramMethod& method : program->methods) method.code.reset();
  memory.reset();
  host.reset();
  if (program->gpu != nullptr) return_device_memory(*program->gpu);
}

OpenModule::OpenModule(ModuleState& state) : state_(state) {
  if (!state.gate.enter()) {
    throw ClosedError(str("the module of ", state.program->pte_path, " was closed; load it again"));
  }
}

OpenSession::OpenSession(const ModuleState& state, SessionState& session) : session_(session) {
  if (session.gate().enter()) [[likely]]
    return;
  const bool all = state.gate.closed() || &session == state.session.get();
  throw ClosedError(str(
      "the ", all ? "module" : "session", " of ", state.program->pte_path,
      all ? " was closed; load it again" : " was closed; make another one with Module.session()"));
}

std::shared_ptr<SessionState> make_session(ModuleState& state) {
  struct Remove {
    SessionList& list;
    void operator()(SessionState* session) const noexcept {
      list.remove(*session);
      delete session;
    }
  };
  std::shared_ptr<SessionState> session(
      new SessionState(state.program->table, state.weights, state.program->gpu, state.kv.get()),
      Remove{state.sessions});
  state.sessions.add(session);
  return session;
}

std::vector<std::string> method_names(const Program& program) {
  std::vector<std::string> names;
  for (const ProgramMethod& method : program.methods) names.push_back(method.spec.name);
  return names;
}

size_t find_method(const Program& program, const std::string& name) {
  for (size_t i = 0; i < program.methods.size(); ++i) {
    if (program.methods[i].spec.name == name) return i;
  }
  const std::vector<std::string> names = method_names(program);
  throw InputError(str(program.pte_path, ": there is no method '", name, "'; it has ",
                       list_str(names), closest_hint(name, names)));
}

void SessionList::add(const std::shared_ptr<SessionState>& session) {
  const std::lock_guard lock(mutex_);
  alive_.emplace(session.get(), session);
}

void SessionList::remove(const SessionState& session) noexcept {
  const std::lock_guard lock(mutex_);
  alive_.erase(&session);
  for (size_t i = 0; i < ended_.size(); ++i) {
    const CallCounts counts = session.counts(i);
    ended_[i].calls += counts.calls;
    ended_[i].errors += counts.errors;
  }
}

std::vector<std::shared_ptr<SessionState>> SessionList::all() const {
  std::vector<std::shared_ptr<SessionState>> sessions;  // dropped after the lock
  const std::lock_guard lock(mutex_);
  sessions.reserve(alive_.size());
  for (const auto& [address, session] : alive_) {
    if (auto held = session.lock()) sessions.push_back(std::move(held));
  }
  return sessions;
}

void SessionList::close() noexcept {
  const SessionState* last = nullptr;
  while (true) {
    std::shared_ptr<SessionState> open;  // closed, and maybe dropped, without the lock
    {
      const std::lock_guard lock(mutex_);
      auto next = alive_.upper_bound(last);
      while (next != alive_.end() && (open = next->second.lock()) == nullptr) ++next;
      if (open == nullptr) return;
      last = open.get();
    }
    open->close();
  }
}

CallCounts SessionList::counts(size_t method) const {
  CallCounts total;
  const auto add = [&total](const CallCounts& counts) {
    total.calls += counts.calls;
    total.errors += counts.errors;
  };
  const std::lock_guard lock(mutex_);
  add(ended_[method]);
  for (const auto& [address, session] : alive_) add(address->counts(method));
  return total;
}

}  // namespace cudaexec

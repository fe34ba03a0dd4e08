#include "runtime/module.h"

#include <utility>

#include "memory/cuda_block_cache.h"
#include "memory/cuda_pool_allocator.h"
#include "ops/cuda/cublas.h"
#include "runtime/module_state.h"
#include "runtime/session.h"

namespace cudaexec {
namespace {

void add(KvBytes& total, const KvBytes& more) noexcept {
  total.reserved += more.reserved;
  total.mapped += more.mapped;
  total.used += more.used;
}

}  // namespace

std::shared_ptr<Module> Module::load(const std::string& pte_path, const std::string& ptd_path,
                                     const std::string& device, const LoadOptions& options) {
  auto state =
      std::make_shared<ModuleState>(load_program(pte_path, ptd_path, device, options), options);
  return std::shared_ptr<Module>(new Module(std::move(state)));
}

std::shared_ptr<Binding> Method::bind(std::vector<Value> /*inputs*/,
                                      std::vector<Value> /*outputs*/) {
  throw NotSupported(str("method '", spec().name, "' has no bindings"));
}

Module::Module(std::shared_ptr<ModuleState> state) noexcept : state_(std::move(state)) {}

Module::~Module() = default;

std::vector<std::string> Module::method_names() const {
  return cudaexec::method_names(*state_->program);
}

std::shared_ptr<Method> Module::method(const std::string& name) {
  const OpenModule open(*state_);
  return make_method(state_, state_->session, find_method(*state_->program, name));
}

std::unique_ptr<Session> Module::session() {
  const OpenModule open(*state_);
  return std::make_unique<Session>(state_, make_session(*state_));
}

int64_t Module::position() const {
  const OpenModule open(*state_);
  state_->session->kv().require();
  return state_->session->kv().position();
}

void Module::rewind(int64_t position) {
  const OpenModule open(*state_);
  const SessionLock lock(*state_->session);
  state_->session->rewind(position);
}

void Module::reset() {
  const OpenModule open(*state_);
  const SessionLock lock(*state_->session);
  state_->session->reset();
}

size_t Module::bytes_per_session() const noexcept { return state_->bytes_per_session; }

MemoryStats Module::memory_stats() const {
  const OpenModule open(*state_);
  MemoryStats stats;
  const auto weights = state_->weights.get();
  for (size_t i = 0; i < weights->storages.size(); ++i) {
    const StoragePtr& storage = weights->storages[i];
    const bool mapped = storage == state_->program->weights[i];
    if (!storage->device().is_cpu()) {
      stats.weights_device += storage->nbytes();
    } else {
      (mapped ? stats.weights_mapped : stats.weights_private) += storage->nbytes();
    }
  }
  stats.state = state_->session->nbytes();
  add(stats.kv, state_->session->kv().usage());
  for (const auto& session : state_->sessions.all()) {
    stats.sessions += session->nbytes();
    add(stats.kv, session->kv().usage());
  }
  stats.working_current = state_->memory->current();
  stats.working_peak = state_->memory->peak();
  stats.cached = state_->memory->cached();
  if (const CudaDevice* gpu = state_->program->gpu; gpu != nullptr) {
    const auto usage = cuda_allocator(gpu->index()).usage();
    stats.cached = usage.reserved - usage.used + state_->host->cached();
    if (state_->blocks != nullptr) stats.cached += state_->blocks->cached();
  }
  return stats;
}

size_t Module::trim() {
  const OpenModule open(*state_);
  for (const auto& method : state_->methods) {
    if (method->pool != nullptr) method->pool->shrink(1);
  }
  state_->session->drop_graphs();
  for (const auto& session : state_->sessions.all()) session->drop_graphs();
  size_t released = 0;
  if (state_->program->gpu != nullptr) {
    gpu::trim_cublas();
    // The pool gives back what the GPU has come to free: graphs freed theirs on threads' streams.
    released = state_->memory->trim();
    state_->program->gpu->synchronize_thread_streams();
  }
  return released + state_->memory->trim() + (state_->host != nullptr ? state_->host->trim() : 0);
}

std::vector<std::pair<std::string, Tensor>> Module::state() const {
  const OpenModule open(*state_);
  return snapshot(*state_, *state_->session);
}

void Module::load_weights(const std::vector<std::pair<std::string, Tensor>>& weights) {
  const OpenModule open(*state_);
  replace_weights(*state_, weights);
}

void Module::manual_seed(uint64_t seed) {
  const OpenModule open(*state_);
  state_->session->random().set_seed(seed);
}

void Module::close() noexcept { state_->close(); }

bool Module::closed() const noexcept { return state_->gate.closed(); }

std::string Module::describe_json() const { return describe_module(*state_); }

}  // namespace cudaexec

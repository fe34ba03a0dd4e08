#include "runtime/kv_session.h"

#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "device/cuda/cuda_device.h"
#include "runtime/program.h"
#include "runtime/session_state.h"

namespace cudaexec {
namespace {

int64_t element(const Tensor& tensor, int64_t index) {
  if (tensor.dtype() == Dtype::kInt32) return tensor.data_as<const int32_t>()[index];
  return tensor.data_as<const int64_t>()[index];
}

/// Calls visit(offset in elements) for each row along the last dimension.
template <typename Visit>
void visit_rows(const Tensor& tensor, size_t dim, int64_t offset, const Visit& visit) {
  if (dim + 1 >= tensor.sizes().size()) return visit(offset);
  for (int64_t i = 0; i < tensor.size(dim); ++i) {
    visit_rows(tensor, dim + 1, offset + i * tensor.stride(dim), visit);
  }
}

}  // namespace

std::unique_ptr<const KvUse> make_kv_use(const Program& program) {
  if (!program.kv_cache) return nullptr;
  auto use = std::make_unique<KvUse>();
  use->program = std::make_shared<KvProgram>(*program.kv_cache, program.gpu);
  for (size_t i = 0; i < program.methods.size(); ++i) {
    const ProgramMethod& method = program.methods[i];
    KvUse::Method& entry = use->methods.emplace_back();
    entry.what = str("method '", method.spec.name, "'");
    if (method.code == nullptr || !method.spec.kv) continue;
    entry.spec = &*method.spec.kv;
    if (entry.spec->position_input) {
      entry.position_name = method.spec.inputs.at(*entry.spec->position_input).name;
    }
    for (const std::string& fqn : entry.spec->position_states) {
      const auto found = program.table.by_fqn.find(fqn);
      if (found == program.table.by_fqn.end() ||
          !program.table.entries[found->second.entry].state) {
        throw FormatError(str(program.pte_path, ": ", entry.what, ": '", fqn,
                              "' counts the tokens of the KV cache and is no state of the program; "
                              "export the file again"));
      }
      entry.states.push_back(found->second);
    }
  }
  return use;
}

void KvSession::require() const {
  if (use_ != nullptr) return;
  throw NotSupported(
      "the program has no KV cache kept by the runtime, so it has no position; export it with "
      "ExportOptions(kv_cache=...)");
}

KvCache& KvSession::cache() {
  if (cache_ == nullptr) cache_ = std::make_unique<KvCache>(use_->program);
  return *cache_;
}

void KvSession::publish() noexcept {
  const KvBytes usage = cache_ != nullptr ? cache_->usage() : KvBytes{};
  reserved_.store(usage.reserved);
  mapped_.store(usage.mapped);
  used_.store(usage.used);
  position_.store(cache_ != nullptr ? cache_->position() : 0);
}

/// Publishes what has changed, whether it throws or not; then the states are stale.
template <typename Function>
auto KvSession::publishing(const Function& function) {
  struct Publish {
    KvSession& self;
    ~Publish() { self.publish(); }
  };
  const Publish publish{*this};
  try {
    return function();
  } catch (...) {
    stale_ = true;
    throw;
  }
}

void KvSession::rewind(int64_t position) {
  require();
  publishing([&] {
    KvCache& kv = cache();
    kv.check_fault("rewind()");
    kv.rewind(position);
    stale_ = true;
  });
  CudaDevice* gpu = use_->program->gpu();
  if (gpu == nullptr) return write_states(StreamRef());
  const StreamRef stream = gpu->thread_stream();
  StreamUse use(*session_.uses(), stream, true);
  write_states(stream);
  use.finish();
}

void KvSession::reset() {
  if (cache_ != nullptr) publishing([&] { cache_->reset(); });
  stale_ = true;
}

void KvSession::fork_to(KvSession& other) {
  if (cache_ == nullptr) return;
  publishing([&] { other.cache_ = cache_->fork("fork()"); });
  other.stale_ = true;
  other.publish();
}

void KvSession::close() noexcept {
  cache_.reset();
  publish();
}

/// A position input that is on the host is checked before anything runs.
void KvSession::check_positions(const KvUse::Method& method, std::span<const Value> inputs,
                                int64_t width) {
  if (!method.spec->position_input) return;
  const auto* tensor = std::get_if<Tensor>(&inputs[*method.spec->position_input]);
  if (tensor == nullptr || !tensor->device().is_cpu() || tensor->numel() == 0) return;
  const int64_t expected = cache().position();
  const int64_t rank = tensor->dim();
  const int64_t count = rank == 0 ? 1 : tensor->size(static_cast<size_t>(rank - 1));
  const int64_t stride = rank == 0 ? 0 : tensor->stride(static_cast<size_t>(rank - 1));
  visit_rows(*tensor, 0, 0, [&](int64_t offset) {
    for (int64_t t = 0; t < count; ++t) {
      const int64_t found = element(*tensor, offset + t * stride);
      if (found == expected + t) continue;
      throw InputError(
          str(method.what, ": input '", method.position_name, "': token ", t, " has position ",
              found, "; the session holds ", expected, " tokens, so ",
              width == 1 ? str("position ", expected, " is")
                         : str("positions ", expected, " to ", expected + width - 1, " are"),
              " expected; pass position + arange(", width, "), or rewind() the session first"));
    }
  });
}

/// Sets the counters of all methods that have any so far. On a GPU after earlier calls.
void KvSession::write_states(StreamRef stream) {
  const int64_t position = cache_ != nullptr ? cache_->position() : 0;
  CudaDevice* gpu = use_->program->gpu();
  bool waited = false;
  for (const KvUse::Method& method : use_->methods) {
    for (const WeightView& view : method.states) {
      const StoragePtr& buffer = session_.buffer(view.entry);
      if (!buffer) continue;
      void* place = view.over(buffer).data();
      if (!buffer->device().is_cpu()) {
        gpu->copy(place, gpu->device(), &position, Device{}, sizeof(position), stream);
        continue;
      }
      if (gpu != nullptr && !std::exchange(waited, true)) gpu->synchronize(stream);
      *static_cast<int64_t*>(place) = position;
    }
  }
  stale_ = false;
  last_ = nullptr;
}

KvCall::KvCall(KvSession& kv, size_t method, std::span<const Value> inputs, const Dims& symbols,
               StreamRef stream)
    : kv_(kv), method_(kv.use_->methods[method]) {
  const KvMethodSpec& spec = *method_.spec;
  const auto width = spec.width.evaluate(symbols);
  if (!width || *width < 1 || *width > spec.max_width) {
    throw ShapeError(str(method_.what, ": a step of ", width.value_or(0), " tokens; expected 1 to ",
                         spec.max_width, "; pass more tokens in several calls"));
  }
  const KvStep* step = nullptr;
  kv.publishing([&] {
    KvCache& cache = kv.cache();
    cache.check_fault(method_.what);
    kv.check_positions(method_, inputs, *width);
    step = &cache.prepare(*width, stream, method_.what);
    // A program advances its own method's counters alone.
    const bool others = kv.last_ != nullptr && kv.last_ != &method_;
    if (kv.stale_ || (others && !method_.states.empty())) kv.write_states(stream);
  });
  scope_.emplace(step);
}

KvCall::~KvCall() {
  if (!committed_) kv_.mark_stale();
}

void KvCall::map_ahead() noexcept { kv_.cache_->map_ahead(); }

void KvCall::commit() {
  kv_.publishing([&] {
    kv_.cache_->check_fault(method_.what);
    kv_.cache_->commit();
  });
  kv_.last_ = &method_;
  committed_ = true;
}

}  // namespace cudaexec

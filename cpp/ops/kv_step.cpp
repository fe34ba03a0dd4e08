#include "ops/kv_step.h"

#include <utility>

namespace cudaexec {
namespace {

constinit thread_local const KvStep* current_step = nullptr;

}  // namespace

const KvStep* KvStep::current() noexcept { return current_step; }

KvScope::KvScope(const KvStep* step) noexcept : previous_(std::exchange(current_step, step)) {}

KvScope::~KvScope() { current_step = previous_; }

}  // namespace cudaexec

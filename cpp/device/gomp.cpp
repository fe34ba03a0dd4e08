// The OpenMP entry points that g++ emits calls to, over our pool. Generated code and oneDNN find
// them here before libgomp, so that one pool serves the process, forked children can run parallel
// code, and a failing check can leave a region.
#include <algorithm>
#include <csetjmp>
#include <optional>
#include <utility>

#include "base/export.h"
#include "device/region_error.h"
#include "device/spin.h"
#include "device/team.h"
#include "device/thread_pool.h"
#include "device/thread_pool_detail.h"

namespace cudaexec {
namespace {

// Runs the region's body on this thread; a failing check comes back here.
[[gnu::noinline]] void run_body(Team* team, int thread, void (*body)(void*), void* data) {
  std::jmp_buf exit;
  const RegionEntry entry(team, thread, &exit);
  if (::_setjmp(exit) == 0) body(data);
}

void run_part(Team& team, int thread) {
  run_body(&team, thread, team.body, team.context);
  if (thread == 0 || !region_failed()) return;
  team.fail(take_region_error());  // of a region inside this one, on a worker
}

void run_region(void (*body)(void*), void* data, int threads) {
  Team team;
  team.size = threads;
  team.run = run_part;
  team.context = data;
  team.body = body;
  start_workers(team);
  run_part(team, 0);
  join_workers(team);
  if (team.error != nullptr) set_region_error(std::move(team.error));
}

std::atomic<uint32_t> default_critical{0};

void lock(std::atomic<uint32_t>& word) noexcept {
  uint32_t expected = 0;
  if (word.compare_exchange_strong(expected, 1)) return;
  while (word.exchange(2) != 0) futex_wait(word, 2);
}

void unlock(std::atomic<uint32_t>& word) noexcept {
  if (word.exchange(0) == 2) futex_wake(&word, 1);
}

// A named critical section owns one zeroed pointer; its first bytes are the lock.
std::atomic<uint32_t>& named_lock(void** place) noexcept {
  return *reinterpret_cast<std::atomic<uint32_t>*>(place);
}

}  // namespace
}  // namespace cudaexec

using cudaexec::Team;
using cudaexec::thread_state;

#define CUDAEXEC_GOMP extern "C" CUDAEXEC_API

CUDAEXEC_GOMP void GOMP_parallel(void (*fn)(void*), void* data, unsigned num_threads,
                                 unsigned /*flags*/) {
  if (cudaexec::region_failed()) return;  // the run is over: results are dropped
  const int threads = cudaexec::region_threads(num_threads);
  if (threads <= 1) {
    cudaexec::run_body(nullptr, 0, fn, data);
  } else {
    cudaexec::run_region(fn, data, threads);
  }
}

// Code of old compilers: the caller runs its own part between the two calls.
namespace {
struct OpenRegion {
  Team team;
  std::optional<cudaexec::RegionEntry> entry;
  OpenRegion* outer = nullptr;
};
constinit thread_local OpenRegion* open_region __attribute__((tls_model("initial-exec"))) = nullptr;
}  // namespace

CUDAEXEC_GOMP void GOMP_parallel_start(void (*fn)(void*), void* data, unsigned num_threads) {
  auto* region = new OpenRegion;
  region->outer = std::exchange(open_region, region);
  const int threads = cudaexec::region_threads(num_threads);
  Team* team = nullptr;
  if (threads > 1) {
    team = &region->team;
    team->size = threads;
    team->run = cudaexec::run_part;
    team->context = data;
    team->body = fn;
    cudaexec::start_workers(*team);
  }
  region->entry.emplace(team, 0, nullptr);
}

CUDAEXEC_GOMP void GOMP_parallel_end() {
  OpenRegion* region = open_region;
  region->entry.reset();
  if (region->team.run != nullptr) {
    cudaexec::join_workers(region->team);
    if (region->team.error != nullptr) {
      cudaexec::set_region_error(std::move(region->team.error));
    }
  }
  open_region = region->outer;
  delete region;
}

CUDAEXEC_GOMP void GOMP_barrier() {
  if (Team* team = thread_state.team) team->barrier();
}

CUDAEXEC_GOMP bool GOMP_single_start() {
  Team* team = thread_state.team;
  if (team == nullptr) return true;
  // The n-th single construct belongs to the thread that counts it first.
  uint32_t met = thread_state.singles++;
  return team->singles.compare_exchange_strong(met, met + 1);
}

CUDAEXEC_GOMP void GOMP_critical_start() { cudaexec::lock(cudaexec::default_critical); }
CUDAEXEC_GOMP void GOMP_critical_end() { cudaexec::unlock(cudaexec::default_critical); }
CUDAEXEC_GOMP void GOMP_critical_name_start(void** place) {
  cudaexec::lock(cudaexec::named_lock(place));
}
CUDAEXEC_GOMP void GOMP_critical_name_end(void** place) {
  cudaexec::unlock(cudaexec::named_lock(place));
}
namespace {
std::atomic<uint32_t> atomic_section{0};
}  // namespace
CUDAEXEC_GOMP void GOMP_atomic_start() { cudaexec::lock(atomic_section); }
CUDAEXEC_GOMP void GOMP_atomic_end() { cudaexec::unlock(atomic_section); }

CUDAEXEC_GOMP int omp_get_thread_num() { return thread_state.thread; }
CUDAEXEC_GOMP int omp_get_num_threads() {
  const Team* team = thread_state.team;
  return team != nullptr ? team->size : 1;
}
CUDAEXEC_GOMP int omp_get_max_threads() { return cudaexec::current_threads(); }
CUDAEXEC_GOMP int omp_in_parallel() { return thread_state.team != nullptr ? 1 : 0; }
CUDAEXEC_GOMP int omp_get_num_procs() { return cudaexec::allowed_threads(); }
CUDAEXEC_GOMP int omp_get_thread_limit() { return cudaexec::allowed_threads(); }
CUDAEXEC_GOMP int omp_get_level() { return thread_state.level; }
CUDAEXEC_GOMP int omp_get_active_level() { return thread_state.team != nullptr ? 1 : 0; }
CUDAEXEC_GOMP int omp_get_dynamic() { return 1; }
CUDAEXEC_GOMP void omp_set_dynamic(int /*dynamic*/) {}
CUDAEXEC_GOMP int omp_get_nested() { return 0; }
CUDAEXEC_GOMP void omp_set_nested(int /*nested*/) {}
CUDAEXEC_GOMP void omp_set_num_threads(int threads) {
  thread_state.requested = std::max(threads, 1);
}
CUDAEXEC_GOMP double omp_get_wtime() { return static_cast<double>(cudaexec::now_ns()) * 1e-9; }

// Workers wait for a team, run their part and wait again. A region claims idle workers from a bit
// mask, so regions of several callers share them without a lock and none ever waits for a busy
// worker.
#include "device/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <bit>
#include <new>

#include "device/cpu_limits.h"
#include "device/region_error.h"
#include "device/spin.h"
#include "device/team.h"
#include "device/thread_pool_detail.h"

namespace cudaexec {
namespace {

constexpr int kMaxWorkers = 1024;
constexpr int kWords = kMaxWorkers / 64;
constexpr int64_t kSpinNs = 50'000;
constexpr int64_t kCrowdedSpinNs = 1'000;
constexpr size_t kWorkerStack = size_t{8} << 20;  // bytes: generated kernels keep arrays on it

enum Signal : uint32_t { kIdle = 0, kPosted = 1, kAsleep = 2 };

struct alignas(64) Worker {
  std::atomic<uint32_t> signal{kIdle};
  Team* team = nullptr;
  int thread = 0;        // in the team
  int index = 0;         // in the pool
  int avoided_cpu = -1;  // taken out of its affinity mask
  cpu_set_t own_mask{};  // what was left of it
};

// Of the process; never destroyed, because workers outlive static destructors.
struct Pool {
  std::array<std::atomic<Worker*>, kMaxWorkers> workers{};
  std::array<std::atomic<uint64_t>, kWords> idle{};
  std::atomic<int> count{0};
  std::atomic<int> regions{0};       // of several threads, running now
  std::atomic<uint32_t> growing{0};  // 1 while a thread adds workers
  std::atomic<bool> limits_known{false};
  std::atomic<uint32_t> limits_lock{0};
  std::atomic<int> allowed{1};
  std::atomic<int> threads{1};
  std::atomic<int> overridden{0};
  cpu_set_t mask{};
  std::atomic<bool> fork_handler{false};
};
constinit Pool pool;

// In a forked child there are no workers; records are used again.
void reset_in_child() noexcept {
  pool.count.store(0);
  for (auto& word : pool.idle) word.store(0);
  pool.regions.store(0);
  pool.growing.store(0);
  pool.limits_lock.store(0);
  pool.limits_known.store(false);
}

[[gnu::noinline]] void learn_limits() noexcept {
  const SpinLock lock(pool.limits_lock);
  if (pool.limits_known.load(std::memory_order_acquire)) return;
  const CpuLimits limits = read_cpu_limits();
  pool.mask = limits.mask;
  pool.allowed.store(std::min(limits.allowed, kMaxWorkers + 1));
  pool.threads.store(std::min(limits.threads, kMaxWorkers + 1));
  if (!pool.fork_handler.exchange(true)) ::pthread_atfork(nullptr, nullptr, reset_in_child);
  pool.limits_known.store(true, std::memory_order_release);
}

// A woken worker is often put on the processor of the thread that woke it, and two threads that
// take turns there never look like work to move: the region would run for good at half of one
// processor's speed. So the worker leaves, and stays away until the caller has moved as well.
[[gnu::noinline]] void avoid_cpu(Worker& worker, int cpu) noexcept {
  cpu_set_t mask;
  if (::sched_getaffinity(0, sizeof(mask), &mask) != 0) return;
  // A mask that somebody set since is theirs.
  if (worker.avoided_cpu >= 0 && CPU_EQUAL(&mask, &worker.own_mask))
    CPU_SET(static_cast<size_t>(worker.avoided_cpu), &mask);
  CPU_CLR(static_cast<size_t>(cpu), &mask);
  if (CPU_COUNT(&mask) == 0) return;
  if (::sched_setaffinity(0, sizeof(mask), &mask) != 0) return;
  worker.avoided_cpu = cpu;
  worker.own_mask = mask;
}

void run_team(Worker& worker) noexcept {
  Team& team = *worker.team;
  if (team.caller_cpu >= 0 && ::sched_getcpu() == team.caller_cpu) [[unlikely]] {
    avoid_cpu(worker, team.caller_cpu);
  }
  const int thread = worker.thread;
  worker.signal.store(kIdle, std::memory_order_relaxed);
  team.run(team, thread);
  // Idle before the team ends: the caller's next region finds this worker.
  const auto index = static_cast<unsigned>(worker.index);
  pool.idle[index / 64].fetch_or(uint64_t{1} << (index % 64));
  std::atomic<uint32_t>* remaining = &team.remaining;
  if (remaining->fetch_sub(1) == (1 | Team::kSleeping)) futex_wake(remaining, 1);
}

void* worker_main(void* argument) noexcept {
  Worker& worker = *static_cast<Worker*>(argument);
  const auto posted = [&] { return worker.signal.load(std::memory_order_acquire) == kPosted; };
  for (;;) {
    if (!spin_until(posted, spin_budget_ns())) {
      uint32_t expected = kIdle;
      if (worker.signal.compare_exchange_strong(expected, kAsleep)) {
        while (!posted()) futex_wait(worker.signal, kAsleep);
      }
    }
    run_team(worker);
  }
  return nullptr;
}

bool start_thread(Worker& worker) noexcept {
  pthread_attr_t attributes;
  if (::pthread_attr_init(&attributes) != 0) return false;
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  ::pthread_attr_setstacksize(&attributes, kWorkerStack);
  // A caller may be pinned to one CPU; its workers may use all. The mask is empty if it is unknown.
  if (CPU_COUNT(&pool.mask) > 0) {
    ::pthread_attr_setaffinity_np(&attributes, sizeof(pool.mask), &pool.mask);
  }
  sigset_t all;  // signals are for the threads of the program
  sigset_t previous;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &previous);
  pthread_t thread{};
  const bool started = ::pthread_create(&thread, &attributes, worker_main, &worker) == 0;
  ::pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  ::pthread_attr_destroy(&attributes);
  if (started) ::pthread_setname_np(thread, "cudaexec");
  return started;
}

// Idle workers, at most `wanted`, lowest first: they ran last and are awake.
int claim(int wanted, Worker** claimed) noexcept {
  int got = 0;
  const int words = (pool.count.load(std::memory_order_acquire) + 63) / 64;
  for (int w = 0; w < words && got < wanted; ++w) {
    auto& word = pool.idle[static_cast<size_t>(w)];
    uint64_t available = word.load(std::memory_order_relaxed);
    uint64_t take = 0;
    for (int n = got; n < wanted && available != 0; ++n) {
      take |= available & (~available + 1);
      available &= available - 1;
    }
    if (take == 0) continue;
    take &= word.fetch_and(~take);
    for (; take != 0; take &= take - 1) {
      const size_t index =
          static_cast<size_t>(w) * 64 + static_cast<size_t>(std::countr_zero(take));
      claimed[got++] = pool.workers[index].load(std::memory_order_acquire);
    }
  }
  return got;
}

// Adds workers, which belong to the caller until it gives them work; returns how many `claimed`
// holds then. Never waits: where another thread is adding workers, or none can be made, there are
// fewer.
int grow(int wanted, Worker** claimed, int got) noexcept {
  uint32_t expected = 0;
  if (!pool.growing.compare_exchange_strong(expected, 1)) return got;
  while (got < wanted && pool.count.load() < allowed_threads() - 1) {
    const auto index = static_cast<size_t>(pool.count.load());
    Worker* worker = pool.workers[index].load();
    if (worker == nullptr) {
      worker = new (std::nothrow) Worker;  // kept for the process, like its thread
      if (worker == nullptr) break;
      worker->index = static_cast<int>(index);
      pool.workers[index].store(worker);
    }
    worker->signal.store(kIdle);
    if (!start_thread(*worker)) break;
    pool.count.fetch_add(1);
    claimed[got++] = worker;
  }
  pool.growing.store(0);
  return got;
}

}  // namespace

int64_t spin_budget_ns() noexcept {
  return pool.regions.load(std::memory_order_relaxed) > 1 ? kCrowdedSpinNs : kSpinNs;
}

int allowed_threads() noexcept {
  if (!pool.limits_known.load(std::memory_order_acquire)) [[unlikely]]
    learn_limits();
  const int overridden = pool.overridden.load(std::memory_order_relaxed);
  if (overridden > 0) [[unlikely]]
    return overridden;
  return pool.allowed.load(std::memory_order_relaxed);
}

void override_allowed_threads(int threads) noexcept {
  pool.overridden.store(std::clamp(threads, 0, kMaxWorkers + 1));
}

int default_threads() noexcept {
  const int allowed = allowed_threads();
  if (pool.overridden.load(std::memory_order_relaxed) > 0) return allowed;
  return pool.threads.load(std::memory_order_relaxed);
}

ThreadLimit::ThreadLimit(int threads) noexcept : previous_(thread_state.limit) {
  thread_state.limit = threads <= 0 ? default_threads() : std::min(threads, allowed_threads());
}

ThreadLimit::~ThreadLimit() { thread_state.limit = previous_; }

int current_threads() noexcept { return region_threads(0); }

int region_threads(unsigned requested) noexcept {
  const ThreadState& state = thread_state;
  if (state.level > 0) return 1;
  int threads = state.limit > 0 ? state.limit : default_threads();
  if (state.requested > 0) threads = std::min(threads, state.requested);
  if (requested > 0 && requested < static_cast<unsigned>(threads)) {
    threads = static_cast<int>(requested);
  }
  return threads;
}

void start_workers(Team& team) noexcept {
  std::array<Worker*, kMaxWorkers> claimed;  // only what claim() and grow() fill is read
  const int wanted = team.size - 1;
  int got = claim(wanted, claimed.data());
  if (got < wanted) got = grow(wanted, claimed.data(), got);
  team.size = got + 1;
  if (got > 0) team.caller_cpu = ::sched_getcpu();
  team.remaining.store(static_cast<uint32_t>(got), std::memory_order_relaxed);
  pool.regions.fetch_add(1, std::memory_order_relaxed);
  for (int i = 0; i < got; ++i) {
    Worker& worker = *claimed[static_cast<size_t>(i)];
    worker.team = &team;
    worker.thread = i + 1;
    if (worker.signal.exchange(kPosted) == kAsleep) futex_wake(&worker.signal, 1);
  }
}

void join_workers(Team& team) noexcept {
  const auto done = [&] {
    return (team.remaining.load(std::memory_order_acquire) & ~Team::kSleeping) == 0;
  };
  if (!spin_until(done, spin_budget_ns())) {
    uint32_t seen = team.remaining.fetch_or(Team::kSleeping) | Team::kSleeping;
    while ((seen & ~Team::kSleeping) != 0) {
      futex_wait(team.remaining, seen);
      seen = team.remaining.load(std::memory_order_acquire);
    }
  }
  pool.regions.fetch_sub(1, std::memory_order_relaxed);
}

int worker_count() noexcept { return pool.count.load(); }

namespace {

using RegionBody = std::function<void(int thread, int count)>;

void run_part(Team& team, int thread) {
  const RegionEntry entry(&team, thread, nullptr);
  try {
    (*static_cast<const RegionBody*>(team.context))(thread, team.size);
  } catch (...) {
    if (!team.has_error.exchange(true)) team.error = std::current_exception();
  }
}

}  // namespace

void parallel_region(int max_threads, const RegionBody& body) {
  const int threads = region_threads(static_cast<unsigned>(std::max(max_threads, 0)));
  if (threads <= 1) {
    const RegionEntry entry(nullptr, 0, nullptr);
    body(0, 1);
    return;
  }
  Team team;
  team.size = threads;
  team.run = run_part;
  team.context = const_cast<RegionBody*>(&body);
  start_workers(team);
  run_part(team, 0);
  join_workers(team);
  if (team.error != nullptr) std::rethrow_exception(team.error);
}

void parallel_for(int64_t count, int64_t grain,
                  const std::function<void(int64_t begin, int64_t end)>& body) {
  if (count <= 0) return;
  const int64_t pieces = std::max<int64_t>(1, count / std::max<int64_t>(grain, 1));
  const int threads = static_cast<int>(std::min<int64_t>(pieces, current_threads()));
  if (threads <= 1) {
    body(0, count);
    return;
  }
  parallel_region(threads, [&](int thread, int team) {
    const int64_t size = count / team;
    const int64_t longer = count % team;  // the first parts take one more
    const int64_t begin = thread * size + std::min<int64_t>(thread, longer);
    const int64_t end = begin + size + (thread < longer ? 1 : 0);
    if (begin < end) body(begin, end);
  });
}

}  // namespace cudaexec

// A team of threads running one parallel region, and what each thread knows of its region. Internal
// to the thread pool and the OpenMP entry points.
#pragma once

#include <array>
#include <atomic>
#include <csetjmp>
#include <cstdint>
#include <exception>

namespace cudaexec {

/// One loop whose iterations the team's threads draw from a common counter.
struct SharedLoop {
  std::atomic<uint32_t> lock{0};
  std::atomic<uint32_t> number{0};  // of the loop in this region, from 1; 0: free
  std::atomic<uint32_t> finished{0};
  std::atomic<int64_t> next{0};  // iteration, from 0
  int64_t count = 0;             // iterations
  int64_t start = 0, step = 1, chunk = 1;
  bool guided = false;
};

/// Lives on the stack of the thread that starts the region, until every thread has left it. Teams
/// have two threads or more; a region of one thread has none.
struct Team {
  static constexpr uint32_t kSleeping = 1u << 31;

  void (*run)(Team& team, int thread) = nullptr;  // what each thread does
  void* context = nullptr;
  void (*body)(void*) = nullptr;  // OpenMP's outlined region
  int size = 1;
  int caller_cpu = -1;  // where the calling thread ran when it started the workers
  std::atomic<bool> aborted{false};
  std::atomic<bool> has_error{false};
  std::exception_ptr error;  // the first; read after all threads have left

  alignas(64) std::atomic<uint32_t> remaining{0};  // workers inside; kSleeping: the caller sleeps
  alignas(64) std::atomic<uint32_t> arrived{0};    // at the barrier
  std::atomic<uint32_t> generation{0};             // of the barrier
  std::atomic<uint32_t> sleepers{0};               // at the barrier
  std::atomic<uint32_t> singles{0};
  std::array<SharedLoop, 4> loops;

  void barrier();
  void fail(std::exception_ptr failure) noexcept;
  /// Makes every thread that waits, or comes to wait, leave the region.
  void abort() noexcept;
};

/// The loop that a thread is in.
struct LoopCursor {
  enum class Kind : uint8_t { kNone, kWhole, kStatic, kShared };
  Kind kind = Kind::kNone;
  int64_t start = 0, step = 1, count = 0, chunk = 0;
  int64_t trip = 0;
  SharedLoop* shared = nullptr;
};

struct ThreadState {
  Team* team = nullptr;  // null outside of regions and in regions of one thread
  std::jmp_buf* exit =
      nullptr;  // end of the innermost OpenMP region's body; null in bodies of ours
  int thread = 0;
  int level = 0;      // regions around
  int limit = 0;      // of ThreadLimit; 0: none
  int requested = 0;  // of omp_set_num_threads; 0: none
  uint32_t singles = 0;
  uint32_t loops = 0;
  LoopCursor cursor;
};

extern constinit thread_local ThreadState thread_state __attribute__((tls_model("initial-exec")));

/// Enters a region on this thread, and leaves it with the object.
class RegionEntry {
 public:
  RegionEntry(Team* team, int thread, std::jmp_buf* exit) noexcept : saved_(thread_state) {
    ThreadState& state = thread_state;
    state.team = team;
    state.exit = exit;
    state.thread = thread;
    ++state.level;
    state.singles = 0;
    state.loops = 0;
    state.cursor.kind = LoopCursor::Kind::kNone;
  }
  ~RegionEntry() {
    const int limit = thread_state.limit;
    const int requested = thread_state.requested;
    thread_state = saved_;
    thread_state.limit = limit;
    thread_state.requested = requested;
  }
  RegionEntry(const RegionEntry&) = delete;
  RegionEntry& operator=(const RegionEntry&) = delete;

 private:
  ThreadState saved_;
};

/// Threads that the next region of this thread may use, from what it asks for (0: all it may).
int region_threads(unsigned requested) noexcept;

/// Claims up to `team.size - 1` workers and starts them; sets team.size to the threads there are.
/// May leave a team of one.
void start_workers(Team& team) noexcept;
/// Waits until all workers have left the team.
void join_workers(Team& team) noexcept;

}  // namespace cudaexec

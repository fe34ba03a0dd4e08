// OpenMP's worksharing loops: `static` ones are computed by each thread for itself, `dynamic` and
// `guided` ones draw from a counter of the team.
#include <algorithm>

#include "base/export.h"
#include "device/spin.h"
#include "device/team.h"

namespace cudaexec {
namespace {

int64_t iterations(long start, long end, long step) noexcept {
  if (step > 0) return end > start ? (end - start + step - 1) / step : 0;
  return end < start ? (start - end - step - 1) / -step : 0;
}

// Sets the bounds of iterations [first, last) in the loop's own terms.
bool give(int64_t first, int64_t last, int64_t start, int64_t step, long* begin,
          long* end) noexcept {
  if (first >= last) return false;
  *begin = start + first * step;
  *end = start + last * step;
  return true;
}

bool next_static(long* begin, long* end) noexcept {
  ThreadState& state = thread_state;
  LoopCursor& loop = state.cursor;
  const int64_t team = state.team != nullptr ? state.team->size : 1;
  const int64_t trip = loop.trip++;
  if (loop.chunk <= 0) {  // one block for each thread
    if (trip > 0) return false;
    const int64_t size = loop.count / team;
    const int64_t longer = loop.count % team;
    const int64_t first = state.thread * size + std::min<int64_t>(state.thread, longer);
    const int64_t last = first + size + (state.thread < longer ? 1 : 0);
    return give(first, last, loop.start, loop.step, begin, end);
  }
  const int64_t first = (trip * team + state.thread) * loop.chunk;
  const int64_t last = std::min(first + loop.chunk, loop.count);
  return give(first, last, loop.start, loop.step, begin, end);
}

// The team's record of the loop that this thread comes to now; the first thread there sets it up.
SharedLoop& enter_shared(Team& team, const LoopCursor& loop, bool guided) {
  const uint32_t number = ++thread_state.loops;
  SharedLoop& shared = team.loops[number % team.loops.size()];
  for (;;) {
    {
      const SpinLock lock(shared.lock);
      if (shared.number.load() == number) return shared;
      if (shared.number.load() == 0) {
        shared.next.store(0);
        shared.finished.store(0);
        shared.count = loop.count;
        shared.start = loop.start;
        shared.step = loop.step;
        shared.chunk = std::max<int64_t>(loop.chunk, 1);
        shared.guided = guided;
        shared.number.store(number);
        return shared;
      }
    }
    // Threads are still in the loop that had this record; no barrier lies between.
    const auto free = [&] { return shared.number.load() == 0 || team.aborted.load(); };
    if (!spin_until(free, 50'000)) ::syscall(SYS_sched_yield);
    if (team.aborted.load()) team.barrier();  // leaves the region
  }
}

bool next_shared(long* begin, long* end) noexcept {
  SharedLoop& loop = *thread_state.cursor.shared;
  int64_t first = loop.next.load();
  int64_t last = 0;
  do {
    if (first >= loop.count) return false;
    int64_t size = loop.chunk;
    if (loop.guided) {
      const int64_t left = loop.count - first;
      size = std::max(size, (left + thread_state.team->size - 1) / thread_state.team->size);
    }
    last = std::min(first + size, loop.count);
  } while (!loop.next.compare_exchange_weak(first, last));
  return give(first, last, loop.start, loop.step, begin, end);
}

bool start_static(long start, long end, long step, long chunk, long* begin, long* finish) noexcept {
  LoopCursor& loop = thread_state.cursor;
  loop = {LoopCursor::Kind::kStatic, start, step, iterations(start, end, step), chunk, 0, nullptr};
  return next_static(begin, finish);
}

bool start_shared(long start, long end, long step, long chunk, bool guided, long* begin,
                  long* finish) {
  Team* team = thread_state.team;
  if (team == nullptr) return start_static(start, end, step, 0, begin, finish);
  LoopCursor& loop = thread_state.cursor;
  loop = {LoopCursor::Kind::kShared, start, step, iterations(start, end, step), chunk, 0, nullptr};
  loop.shared = &enter_shared(*team, loop, guided);
  return next_shared(begin, finish);
}

bool next(long* begin, long* end) noexcept {
  return thread_state.cursor.kind == LoopCursor::Kind::kShared ? next_shared(begin, end)
                                                               : next_static(begin, end);
}

void leave_loop() noexcept {
  LoopCursor& loop = thread_state.cursor;
  if (loop.kind == LoopCursor::Kind::kShared) {
    SharedLoop& shared = *loop.shared;
    if (shared.finished.fetch_add(1) + 1 == static_cast<uint32_t>(thread_state.team->size)) {
      shared.number.store(0);
    }
  }
  loop.kind = LoopCursor::Kind::kNone;
}

}  // namespace
}  // namespace cudaexec

#define CUDAEXEC_GOMP extern "C" CUDAEXEC_API
#define CUDAEXEC_SHARED_LOOP(NAME, GUIDED)                                                 \
  CUDAEXEC_GOMP bool GOMP_loop_##NAME##_start(long start, long end, long step, long chunk, \
                                              long* begin, long* finish) {                 \
    return cudaexec::start_shared(start, end, step, chunk, GUIDED, begin, finish);         \
  }                                                                                        \
  CUDAEXEC_GOMP bool GOMP_loop_##NAME##_next(long* begin, long* finish) {                  \
    return cudaexec::next(begin, finish);                                                  \
  }

CUDAEXEC_GOMP bool GOMP_loop_static_start(long start, long end, long step, long chunk, long* begin,
                                          long* finish) {
  return cudaexec::start_static(start, end, step, chunk, begin, finish);
}
CUDAEXEC_GOMP bool GOMP_loop_static_next(long* begin, long* finish) {
  return cudaexec::next(begin, finish);
}
CUDAEXEC_SHARED_LOOP(dynamic, false)
CUDAEXEC_SHARED_LOOP(guided, true)
CUDAEXEC_SHARED_LOOP(nonmonotonic_dynamic, false)
CUDAEXEC_SHARED_LOOP(nonmonotonic_guided, true)

// schedule(runtime): OMP_SCHEDULE is not read, the schedule is static.
#define CUDAEXEC_RUNTIME_LOOP(NAME)                                                         \
  CUDAEXEC_GOMP bool GOMP_loop_##NAME##_start(long start, long end, long step, long* begin, \
                                              long* finish) {                               \
    return cudaexec::start_static(start, end, step, 0, begin, finish);                      \
  }                                                                                         \
  CUDAEXEC_GOMP bool GOMP_loop_##NAME##_next(long* begin, long* finish) {                   \
    return cudaexec::next(begin, finish);                                                   \
  }
CUDAEXEC_RUNTIME_LOOP(runtime)
CUDAEXEC_RUNTIME_LOOP(nonmonotonic_runtime)
CUDAEXEC_RUNTIME_LOOP(maybe_nonmonotonic_runtime)

CUDAEXEC_GOMP void GOMP_loop_end_nowait() { cudaexec::leave_loop(); }
CUDAEXEC_GOMP void GOMP_loop_end() {
  cudaexec::leave_loop();
  if (cudaexec::Team* team = cudaexec::thread_state.team) team->barrier();
}

// Parallel regions as g++ compiles them, for a look at the pool behind OpenMP's entry points.
#include <omp.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

/// Size of the team that `threads` asks for; -1 if the threads are not numbered 0 to size - 1.
EXPORT int team_size(int threads) {
  std::vector<std::atomic<int>> seen(4096);
  std::atomic<int> size{0};
#pragma omp parallel num_threads(threads)
  {
    size = omp_get_num_threads();
    seen[static_cast<size_t>(omp_get_thread_num())]++;
  }
  for (int i = 0; i < 4096; ++i) {
    if (seen[static_cast<size_t>(i)] != (i < size ? 1 : 0)) return -1;
  }
  return size;
}

/// Without a clause: the default.
EXPORT int default_team() {
  std::atomic<int> size{0};
#pragma omp parallel
  size = omp_get_num_threads();
  return size;
}

EXPORT int max_threads() { return omp_get_max_threads(); }

/// Sum of 0 .. n - 1 in a loop of the given kind.
EXPORT int64_t sum(int kind, int threads, int64_t n) {
  int64_t total = 0;
  if (kind == 0) {
#pragma omp parallel for num_threads(threads) reduction(+ : total)
    for (int64_t i = 0; i < n; ++i) total += i;
    return total;
  }
  std::atomic<int64_t> all{0};
#pragma omp parallel num_threads(threads)
  {
    int64_t mine = 0;
    switch (kind) {
      case 1:
#pragma omp for schedule(dynamic, 3)
        for (int64_t i = 0; i < n; ++i) mine += i;
        break;
      case 2:
#pragma omp for schedule(guided) nowait
        for (int64_t i = n - 1; i >= 0; --i) mine += i;
        break;
      case 3:
#pragma omp for schedule(static, 5)
        for (int64_t i = 0; i < n; ++i) mine += i;
        break;
      case 4:  // several loops without a barrier between
        for (int k = 0; k < 9; ++k) {
#pragma omp for schedule(dynamic) nowait
          for (int64_t i = 0; i < n; ++i) mine += i;
        }
        break;
      case 5:
#pragma omp for schedule(runtime)
        for (int64_t i = 0; i < n; ++i) mine += i;
        break;
      case 6:
#pragma omp for schedule(monotonic : dynamic, 2)
        for (int64_t i = 0; i < n; i += 2) mine += i;
        break;
    }
    all += mine;
  }
  return all;
}

/// `rounds` barriers; a thread that ran ahead of another would see a count that is not a multiple.
EXPORT int barriers(int threads, int rounds) {
  std::atomic<int> arrived{0};
  std::atomic<int> wrong{0};
#pragma omp parallel num_threads(threads)
  {
    for (int r = 0; r < rounds; ++r) {
      arrived++;
#pragma omp barrier
      if (arrived != (r + 1) * omp_get_num_threads()) wrong++;
#pragma omp barrier
    }
  }
  return wrong;
}

/// Each single and critical section runs as often as it should: returns singles * 1000000 +
/// criticals.
EXPORT int64_t sections(int threads, int rounds) {
  int64_t singles = 0;
  int64_t criticals = 0;
  int64_t named = 0;
  std::atomic<int64_t> expected{0};
#pragma omp parallel num_threads(threads)
  {
    for (int r = 0; r < rounds; ++r) {
#pragma omp single
      singles++;
#pragma omp critical
      criticals++;
#pragma omp critical(other)
      named++;
      expected++;
    }
  }
  return criticals == expected && named == expected ? singles : -1;
}

/// Team size of a region inside a region.
EXPORT int nested(int threads) {
  std::atomic<int> largest{0};
#pragma omp parallel num_threads(threads)
  {
#pragma omp parallel num_threads(threads)
    {
      if (omp_get_num_threads() > largest) largest = omp_get_num_threads();
    }
  }
  return largest;
}

/// Keeps the team until `*stop` is set, at most 30 seconds; `*begun` tells its size.
EXPORT void busy(int threads, int* begun, volatile int* stop) {
#pragma omp parallel num_threads(threads)
  {
#pragma omp master
    *begun = omp_get_num_threads();
    for (int i = 0; i < 30000 && !*stop; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

/// Nanoseconds of an empty region, the least of `rounds` runs of 100.
EXPORT double empty_region(int threads, int rounds) {
  double best = 1e18;
  for (int r = 0; r < rounds; ++r) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 100; ++i) {
#pragma omp parallel num_threads(threads)
      asm volatile("" ::: "memory");
    }
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
    if (time.count() / 100 < best) best = time.count() / 100;
  }
  return best;
}

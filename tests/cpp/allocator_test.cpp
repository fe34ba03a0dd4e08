// One suite for every Allocator, then what each wrapper adds.
#include <cstdint>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/fault.h"
#include "check.h"
#include "memory/caching_allocator.h"
#include "memory/limiting_allocator.h"
#include "memory/statistics_allocator.h"

namespace {

using namespace cudaexec;
using namespace cudaexec_test;

constexpr size_t kSizes[] = {1,    2,    63,    64,      65,      100,          128,
                             1000, 4096, 65536, 1 << 20, 1000003, (3 << 20) + 1};

struct Block {
  void* data;
  size_t nbytes;
  unsigned char mark;
};

void fill(const Block& block) { std::memset(block.data, block.mark, block.nbytes); }

bool intact(const Block& block) {
  const auto* bytes = static_cast<const unsigned char*>(block.data);
  for (size_t i = 0; i < block.nbytes; ++i) {
    if (bytes[i] != block.mark) return false;
  }
  return true;
}

/// Blocks are aligned, as large as asked, distinct, and reusable, from one thread.
void one_thread(Allocator& allocator) {
  for (int round = 0; round < 3; ++round) {
    std::vector<Block> blocks;
    for (const size_t nbytes : kSizes) {
      for (int copy = 0; copy < 2; ++copy) {
        Block block{allocator.allocate(nbytes, {}), nbytes,
                    static_cast<unsigned char>(blocks.size() + 1)};
        CHECK_EQ(reinterpret_cast<uintptr_t>(block.data) % kDefaultAlignment, 0u);
        fill(block);
        blocks.push_back(block);
      }
    }
    for (const Block& block : blocks) CHECK(intact(block));
    for (const Block& block : blocks) allocator.deallocate(block.data, block.nbytes, {});
  }
}

/// Blocks freed by other threads than the allocating one stay distinct.
void many_threads(Allocator& allocator) {
  std::vector<std::thread> threads;
  std::vector<std::string> failures(4);
  for (size_t t = 0; t < failures.size(); ++t) {
    threads.emplace_back([&allocator, &failures, t] {
      for (int round = 0; round < 300; ++round) {
        const size_t nbytes = kSizes[(static_cast<size_t>(round) + t) % 10];
        const Block block{allocator.allocate(nbytes, {}), nbytes,
                          static_cast<unsigned char>(t + 1)};
        fill(block);
        if (!intact(block)) failures[t] = "a block is shared by two threads";
        std::thread([&allocator, block] {
          allocator.deallocate(block.data, block.nbytes, {});
        }).join();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) CHECK_EQ(failure, std::string());
}

/// A refused request leaves everything as it was.
void failure(Allocator& allocator) {
  allocator.trim();
  arm_fault(static_cast<uint32_t>(FaultSite::kAllocate), 1);
  // Another size than any cached one, so that the request reaches the system.
  (void)thrown<OutOfMemory>([&] { (void)allocator.allocate(777777, {}); });
  CHECK_EQ(disarm_fault() >= 1, true);
  void* data = allocator.allocate(777777, {});
  std::memset(data, 1, 777777);
  allocator.deallocate(data, 777777, {});
}

template <typename Use>
void with_each(Use use) {
  use(cpu_allocator());
  StatisticsAllocator system(cpu_allocator());
  {
    LimitingAllocator limiting(system, size_t{1} << 30);
    CachingAllocator caching(limiting);
    StatisticsAllocator statistics(caching);
    use(limiting);
    use(caching);
    use(statistics);
    CHECK_EQ(statistics.current(), 0u);
    CHECK_EQ(statistics.live_blocks(), 0);
    caching.trim();
    CHECK_EQ(limiting.used(), 0u);
  }
  CHECK_EQ(system.current(), 0u);
  CHECK_EQ(system.live_blocks(), 0);
  CHECK(system.allocations() > 0);
}

void caching_reuses() {
  StatisticsAllocator system(cpu_allocator());
  CachingAllocator caching(system);
  void* first = caching.allocate(1000, {});
  caching.deallocate(first, 1000, {});
  CHECK_EQ(caching.cached(), CachingAllocator::rounded(1000));
  void* second = caching.allocate(1001, {});  // the same class
  CHECK_EQ(second, first);
  CHECK_EQ(caching.cached(), 0u);
  CHECK_EQ(system.allocations(), 1);
  caching.deallocate(second, 1001, {});
  CHECK_EQ(caching.trim(), CachingAllocator::rounded(1000));
  CHECK_EQ(system.current(), 0u);
}

void caching_rounds_up_by_a_quarter_at_most() {
  for (size_t nbytes = 1; nbytes < 100000; nbytes += 7) {
    const size_t rounded = CachingAllocator::rounded(nbytes);
    CHECK(rounded >= nbytes);
    CHECK(nbytes <= 64 || rounded - nbytes <= nbytes / 4);
    CHECK_EQ(CachingAllocator::rounded(rounded), rounded);
  }
  const size_t huge = (size_t{1} << 50) + 5;
  CHECK_EQ(CachingAllocator::rounded(huge), huge);
}

void caching_keeps_within_its_bound() {
  StatisticsAllocator system(cpu_allocator());
  CachingAllocator caching(system, 1 << 20);
  std::vector<void*> blocks;
  for (int i = 0; i < 40; ++i) blocks.push_back(caching.allocate(65536, {}));
  for (void* block : blocks) caching.deallocate(block, 65536, {});
  CHECK(caching.cached() <= size_t{1} << 20);
  CHECK(caching.cached() >= size_t{15} * 65536);
  CHECK_EQ(system.current(), caching.cached());
  void* large = caching.allocate(2 << 20, {});  // larger than the bound: never kept
  const size_t before = caching.cached();
  caching.deallocate(large, 2 << 20, {});
  CHECK_EQ(caching.cached(), before);
}

void caching_returns_its_blocks_before_it_gives_up() {
  LimitingAllocator limiting(cpu_allocator(), 1 << 20);
  CachingAllocator caching(limiting);
  void* first = caching.allocate(700000, {});
  caching.deallocate(first, 700000, {});  // cached: counts towards the limit
  void* second = caching.allocate(400000, {});
  CHECK_EQ(caching.cached(), 0u);
  caching.deallocate(second, 400000, {});
}

void limit_names_sizes_and_recovers() {
  LimitingAllocator limiting(cpu_allocator(), 1000);
  void* first = limiting.allocate(600, {});
  const std::string message = thrown<OutOfMemory>([&] { (void)limiting.allocate(500, {}); });
  for (const char* part : {"500 bytes", "600 in use", "limit 1000"}) {
    CHECK(message.find(part) != std::string::npos);
  }
  (void)thrown<OutOfMemory>([&] { (void)limiting.allocate(SIZE_MAX, {}); });
  void* second = limiting.allocate(400, {});  // a smaller one works
  CHECK_EQ(limiting.used(), 1000u);
  limiting.deallocate(first, 600, {});
  limiting.deallocate(second, 400, {});
  CHECK_EQ(limiting.used(), 0u);
}

void statistics_counts() {
  StatisticsAllocator statistics(cpu_allocator());
  void* first = statistics.allocate(100, {});
  void* second = statistics.allocate(50, {});
  statistics.deallocate(first, 100, {});
  CHECK_EQ(statistics.current(), 50u);
  CHECK_EQ(statistics.peak(), 150u);
  CHECK_EQ(statistics.live_blocks(), 1);
  CHECK_EQ(statistics.allocations(), 2);
  statistics.deallocate(second, 50, {});
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv,
             {{"one_thread", [] { with_each(one_thread); }},
              {"many_threads", [] { with_each(many_threads); }},
              {"failure", [] { with_each(failure); }},
              {"caching_reuses", caching_reuses},
              {"caching_rounds_up_by_a_quarter_at_most", caching_rounds_up_by_a_quarter_at_most},
              {"caching_keeps_within_its_bound", caching_keeps_within_its_bound},
              {"caching_returns_its_blocks_before_it_gives_up",
               caching_returns_its_blocks_before_it_gives_up},
              {"limit_names_sizes_and_recovers", limit_names_sizes_and_recovers},
              {"statistics_counts", statistics_counts}});
}

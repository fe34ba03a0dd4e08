#include <sys/mman.h>
#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "driver/fake.h"
#include "emulation/cuda_emulation.h"

using fakecuda::FakeLaunch;
using fakecuda::KernelCallback;

FAKE_API void fakecuda_register_kernel(const char* name, const uint64_t* sizes, int count,
                                       KernelCallback callback);

namespace emulation {

Position position;

namespace {

constexpr size_t kStackNbytes = size_t{128} << 10;
constexpr size_t kWarp = 32;
constexpr size_t kExchangeNbytes = 64;  // of a lane, at most

/// What a thread that does not run waits for.
enum class Wait { kNothing, kBlock, kWarp };

struct Kernel {
  const char* name;
  uint64_t nbytes;
  Body body;
};
std::vector<Kernel>& kernels() {
  static std::vector<Kernel> all;
  return all;
}

struct Fiber {
  ucontext_t context{};
  void* stack = nullptr;
  bool busy = false;
  bool broken = false;  // ended in the middle: starts anew
  Wait wait = Wait::kNothing;
  size_t rank = 0;       // in the block
  size_t exchanges = 0;  // so far
  Index thread;
};

/// Runs the threads of one block; kept for its stacks.
struct Scheduler {
  ucontext_t context{};
  std::vector<std::unique_ptr<Fiber>> fibers;
  Fiber* current = nullptr;
  Body body = nullptr;
  const void* arguments = nullptr;
  // By warp, two places that exchanges use by turns: all have read one when the next is full.
  std::vector<std::array<std::array<std::byte, kWarp * kExchangeNbytes>, 2>> exchanges;
};

Scheduler scheduler;
int64_t traps = 0;
std::mutex mutex;

void fiber_main() {
  for (;;) {
    Fiber* self = scheduler.current;
    scheduler.body(scheduler.arguments);
    self->busy = false;
    swapcontext(&self->context, &scheduler.context);
  }
}

Fiber* free_fiber() {
  for (const std::unique_ptr<Fiber>& fiber : scheduler.fibers) {
    if (fiber->busy) continue;
    if (std::exchange(fiber->broken, false)) makecontext(&fiber->context, fiber_main, 0);
    return fiber.get();
  }
  auto made = std::make_unique<Fiber>();
  made->stack = mmap(nullptr, kStackNbytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made->stack == MAP_FAILED || getcontext(&made->context) != 0) std::abort();
  made->context.uc_stack.ss_sp = made->stack;
  made->context.uc_stack.ss_size = kStackNbytes;
  makecontext(&made->context, fiber_main, 0);
  scheduler.fibers.push_back(std::move(made));
  return scheduler.fibers.back().get();
}

void resume(Fiber& fiber) {
  scheduler.current = &fiber;
  position.thread = fiber.thread;
  swapcontext(&scheduler.context, &fiber.context);
}

void run_block(const Index& size) {
  std::vector<Fiber*> waiting;
  size_t rank = 0;
  scheduler.exchanges.resize((size_t{size.x} * size.y * size.z + kWarp - 1) / kWarp);
  for (unsigned z = 0; z < size.z; ++z) {
    for (unsigned y = 0; y < size.y; ++y) {
      for (unsigned x = 0; x < size.x; ++x) {
        Fiber* fiber = free_fiber();
        fiber->busy = true;
        fiber->thread = {x, y, z};
        fiber->rank = rank++;
        fiber->exchanges = 0;
        resume(*fiber);
        if (fiber->busy) waiting.push_back(fiber);
      }
    }
  }
  while (!waiting.empty()) {
    // Warps whose threads have all come to an exchange go on; else all threads wait for the block.
    // Threads that have ended no longer count.
    std::vector<Fiber*> ready;
    for (size_t first = 0; first < waiting.size();) {
      size_t end = first;
      bool all = true;
      for (; end < waiting.size() && waiting[end]->rank / kWarp == waiting[first]->rank / kWarp;
           ++end) {
        all = all && waiting[end]->wait == Wait::kWarp;
      }
      if (all) ready.insert(ready.end(), waiting.begin() + first, waiting.begin() + end);
      first = end;
    }
    if (ready.empty()) {
      for (const Fiber* fiber : waiting) {
        if (fiber->wait != Wait::kBlock) std::abort();  // a warp is divided between two barriers
      }
      ready = waiting;
    }
    for (Fiber* fiber : ready) resume(*fiber);
    std::erase_if(waiting, [](const Fiber* fiber) { return !fiber->busy; });
  }
}

const Kernel* find(const std::string& name) {
  for (const Kernel& kernel : kernels()) {
    if (name == kernel.name) return &kernel;
  }
  return nullptr;
}

void run(const FakeLaunch* launch) {
  const std::lock_guard lock(mutex);
  if (traps > 0) return;  // the device cannot be used any more
  const Kernel* kernel = find(launch->name);
  if (kernel == nullptr || launch->count != 1 || launch->sizes[0] != kernel->nbytes) std::abort();
  scheduler.body = kernel->body;
  scheduler.arguments = launch->arguments[0];
  position.block_size = {launch->block[0], launch->block[1], launch->block[2]};
  position.grid_size = {launch->grid[0], launch->grid[1], launch->grid[2]};
  for (unsigned z = 0; z < launch->grid[2]; ++z) {
    for (unsigned y = 0; y < launch->grid[1]; ++y) {
      for (unsigned x = 0; x < launch->grid[0]; ++x) {
        position.block = {x, y, z};
        run_block(position.block_size);
      }
    }
  }
}

}  // namespace

Registration::Registration(const char* name, size_t nbytes, Body body) {
  kernels().push_back({name, nbytes, body});
}

void trap() {
  Fiber* self = scheduler.current;
  ++traps;
  self->broken = true;
  self->busy = false;
  swapcontext(&self->context, &scheduler.context);
  std::abort();
}

namespace {

void wait(Wait reason) {
  Fiber* self = scheduler.current;
  self->wait = reason;
  swapcontext(&self->context, &scheduler.context);
}

}  // namespace

void wait_for_block() { wait(Wait::kBlock); }

const void* exchange_bytes(const void* mine, size_t nbytes) {
  if (nbytes > kExchangeNbytes) std::abort();
  Fiber* self = scheduler.current;
  auto& place = scheduler.exchanges[self->rank / kWarp][self->exchanges++ % 2];
  std::memcpy(place.data() + self->rank % kWarp * nbytes, mine, nbytes);
  wait(Wait::kWarp);
  return place.data();
}

}  // namespace emulation

/// Makes the fake driver run our kernels; to be called again after it was reset.
extern "C" __attribute__((visibility("default"))) int emulation_register() {
  for (const emulation::Kernel& kernel : emulation::kernels()) {
    fakecuda_register_kernel(kernel.name, &kernel.nbytes, 1, &emulation::run);
  }
  return static_cast<int>(emulation::kernels().size());
}

/// Threads that stopped at __trap() since the last call.
extern "C" __attribute__((visibility("default"))) int64_t emulation_take_traps() {
  const std::lock_guard lock(emulation::mutex);
  return std::exchange(emulation::traps, 0);
}

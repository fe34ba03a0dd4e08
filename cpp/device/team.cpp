#include "device/team.h"

#include <utility>

#include "device/region_error.h"
#include "device/spin.h"
#include "device/thread_pool_detail.h"

namespace cudaexec {

constinit thread_local ThreadState thread_state __attribute__((tls_model("initial-exec")));

namespace region_detail {
constinit thread_local bool failed __attribute__((tls_model("initial-exec"))) = false;
}  // namespace region_detail

namespace {

thread_local std::exception_ptr waiting_error;

}  // namespace

void set_region_error(std::exception_ptr error) noexcept {
  if (region_detail::failed) return;  // the first one counts
  waiting_error = std::move(error);
  region_detail::failed = true;
}

std::exception_ptr take_region_error() noexcept {
  if (!region_detail::failed) return nullptr;
  region_detail::failed = false;
  return std::exchange(waiting_error, nullptr);
}

namespace {

// Apart from fail_region(), so that no object with a destructor is alive at the jump.
[[gnu::noinline]] void record_region_error(std::exception_ptr error) noexcept {
  if (Team* team = thread_state.team) {
    team->fail(std::move(error));
  } else {
    set_region_error(std::move(error));
  }
}

}  // namespace

void fail_region(std::exception_ptr error) noexcept {
  std::jmp_buf* exit = thread_state.exit;
  if (exit == nullptr) return;
  record_region_error(std::exchange(error, nullptr));
  std::longjmp(*exit, 1);
}

void Team::fail(std::exception_ptr failure) noexcept {
  if (!has_error.exchange(true, std::memory_order_acq_rel)) error = std::move(failure);
  abort();
}

void Team::abort() noexcept {
  aborted.store(true);
  generation.fetch_add(1);
  futex_wake(&generation, size);
}

void Team::barrier() {
  const uint32_t ticket = generation.load();
  if (arrived.fetch_add(1) + 1 == static_cast<uint32_t>(size)) {
    arrived.store(0, std::memory_order_relaxed);
    generation.fetch_add(1);
    if (sleepers.load() != 0) futex_wake(&generation, size);
  } else {
    const auto passed = [&] { return generation.load() != ticket || aborted.load(); };
    if (!spin_until(passed, spin_budget_ns())) {
      sleepers.fetch_add(1);
      while (!passed()) futex_wait(generation, ticket);
      sleepers.fetch_sub(1);
    }
  }
  if (aborted.load() && thread_state.exit != nullptr) std::longjmp(*thread_state.exit, 1);
}

}  // namespace cudaexec

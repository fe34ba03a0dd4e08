#include "base/cleanup_report.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "base/fork_mutex.h"
#include "base/log.h"
#include "base/str.h"

namespace cudaexec {
namespace {

struct Queue {
  ForkMutex mutex;
  CleanupReports waiting;
  std::atomic<bool> any{false};
};

Queue& queue() noexcept {
  static Queue& instance = *new Queue;  // never destroyed: destructors at exit may report
  return instance;
}

}  // namespace

void report_cleanup_failure(const char* what, const std::string& why) noexcept {
  Queue& reports = queue();
  const std::lock_guard lock(reports.mutex);
  reports.any.store(true, std::memory_order_relaxed);
  try {
    std::string message = str(what, " failed: ", why);
    log(LogLevel::kWarning, message);
    if (reports.waiting.messages.size() < kMaxCleanupReports) {
      reports.waiting.messages.push_back(std::move(message));
      return;
    }
  } catch (...) {  // no memory for the message: it is counted
  }
  ++reports.waiting.dropped;
}

bool has_cleanup_reports() noexcept { return queue().any.load(std::memory_order_relaxed); }

CleanupReports take_cleanup_reports() {
  Queue& reports = queue();
  const std::lock_guard lock(reports.mutex);
  reports.any.store(false, std::memory_order_relaxed);
  return std::exchange(reports.waiting, {});
}

}  // namespace cudaexec

#include "base/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <string_view>

namespace cudaexec {
namespace {

constexpr std::array<const char*, 5> kNames{"debug", "info", "warning", "error", "off"};

LogLevel level_from_environment() noexcept {
  const char* value = std::getenv("CUDAEXEC_LOG");
  if (value == nullptr) return LogLevel::kOff;
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (std::string_view(value) == kNames[i]) return static_cast<LogLevel>(i);
  }
  return LogLevel::kOff;
}

std::atomic<LogLevel>& current_level() noexcept {
  static std::atomic<LogLevel> level{level_from_environment()};
  return level;
}

}  // namespace

void set_log_level(LogLevel level) noexcept { current_level().store(level); }
LogLevel log_level() noexcept { return current_level().load(std::memory_order_relaxed); }

void log(LogLevel level, const std::string& message) noexcept {
  if (level < log_level() || level == LogLevel::kOff) return;
  try {
    const std::string line =
        std::string("cudaexec ") + kNames[static_cast<size_t>(level)] + ": " + message + "\n";
    // One write per line keeps lines of several threads apart.
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  } catch (...) {  // a log line that cannot be built is dropped
  }
}

}  // namespace cudaexec

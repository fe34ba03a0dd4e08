// Leveled log to stderr, off below the chosen level. Nothing on the hot path logs.
#pragma once

#include <string>

#include "base/export.h"

namespace cudaexec {

enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3, kOff = 4 };

/// The default level is kOff; the environment variable CUDAEXEC_LOG (debug, info, warning, error,
/// off) is read once, when the library is loaded.
CUDAEXEC_API void set_log_level(LogLevel level) noexcept;
CUDAEXEC_API LogLevel log_level() noexcept;
CUDAEXEC_API void log(LogLevel level, const std::string& message) noexcept;

}  // namespace cudaexec

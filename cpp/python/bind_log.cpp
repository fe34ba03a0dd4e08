#include <array>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "python/annotations.h"
#include "python/bindings.h"

namespace cudaexec::python {
namespace {

constexpr std::array<const char*, 5> kLevels{"debug", "info", "warning", "error", "off"};

void set_level(const TextArgument& level) {
  const std::string name = text_of(level, "set_log_level: level");
  for (size_t i = 0; i < kLevels.size(); ++i) {
    if (name == kLevels[i]) return set_log_level(static_cast<LogLevel>(i));
  }
  throw InputError(
      str("set_log_level: expected one of ", list_str(kLevels), ", found '", name, "'"));
}

}  // namespace

void register_log(py::module_& m) {
  m.def("set_log_level", &set_level, py::arg("level"),
        "Sets what is written to stderr: 'debug', 'info', 'warning', 'error' or 'off'.\n\n"
        "The default is the environment variable CUDAEXEC_LOG, read once; 'off' if it is unset or\n"
        "has another value. Raises InputError for another name.");
  m.def(
      "log_level", [] { return kLevels.at(static_cast<size_t>(log_level())); },
      "The current level.");
}

}  // namespace cudaexec::python

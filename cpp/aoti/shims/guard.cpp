// Modes and checks of generated code.
#include <cstdint>
#include <exception>
#include <string>

#include "aoti/shims/fence.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "device/region_error.h"

namespace {

// Paths of the machine that exported the program say nothing here: only the file's name.
const char* base_name(const char* path) {
  const char* name = path != nullptr ? path : "?";
  for (const char* c = name; *c != '\0'; ++c) {
    if (*c == '/') name = c + 1;
  }
  return name;
}

/// "index out of bounds: 0 <= tmp2 < 10L" without the variable of generated code, which helps
/// nobody.
std::string readable(const char* message) {
  const std::string text = message != nullptr ? message : "";
  const size_t less = text.rfind(" < ");
  if (!text.starts_with("index out of bounds: ") || less == std::string::npos) return text;
  std::string size = text.substr(less + 3);
  if (size.ends_with('L')) size.pop_back();
  if (size.empty() || size.find_first_not_of("0123456789") != std::string::npos) return text;
  return "index out of bounds for a dimension of size " + size;
}

cudaexec::InputError check_error(const char* func, const char* file, uint32_t line,
                                 const char* message) {
  return cudaexec::InputError(cudaexec::str(
      "a check of the program failed: ", readable(message), " (in ", func != nullptr ? func : "?",
      ", ", base_name(file), " line ", line,
      "); an input has a value that the model does not allow, such as an index out of range"));
}

[[gnu::noinline]] std::exception_ptr make_check_error(const char* func, const char* file,
                                                      uint32_t line, const char* message) noexcept {
  try {
    throw check_error(func, file, line, message);
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

// There is no autograd: it is off and stays off.
CUDAEXEC_SHIM bool aoti_torch_grad_mode_is_enabled() { return false; }
CUDAEXEC_SHIM void aoti_torch_grad_mode_set_enabled(bool /*enabled*/) {}

// Ends the run. In a parallel region by a jump to its entry, since no exception may leave one;
// elsewhere by an exception, which generated code turns into a failed run.
CUDAEXEC_SHIM void aoti_torch_check(bool cond, const char* func, const char* file, uint32_t line,
                                    const char* msg) {
  if (cond) [[likely]]
    return;
  cudaexec::fail_region(make_check_error(func, file, line, msg));
  try {
    throw check_error(func, file, line, msg);
  } catch (...) {
    cudaexec::CallScope::store_current_exception();
    throw;
  }
}

CUDAEXEC_SHIM void aoti_torch_warn(const char* /*func*/, const char* file, uint32_t line,
                                   const char* msg) {
  if (cudaexec::log_level() > cudaexec::LogLevel::kWarning) return;
  try {
    cudaexec::log(cudaexec::LogLevel::kWarning,
                  cudaexec::str("program: ", msg != nullptr ? msg : "", " (", base_name(file),
                                " line ", line, ")"));
  } catch (...) {  // a warning that cannot be built is dropped
  }
}

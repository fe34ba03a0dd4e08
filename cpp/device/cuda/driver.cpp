#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>

#include <memory>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/fork_mutex.h"
#include "base/str.h"

namespace cudaexec::cuda {

namespace driver_detail {
std::atomic<const DriverApi*> table{nullptr};
}

namespace {

constexpr const char* kDriverLibrary = "libcuda.so.1";
constexpr const char* kCpuAdvice = "or load the program for the CPU (device=\"cpu\")";

using GetProcAddress = CUresult (*)(const char* name, void** entry, int version, uint64_t flags,
                                    int* found);

// Tables stay allocated for the life of the process: other threads may still hold a reference.
struct DriverState {
  ForkMutex mutex;
  std::string library = kDriverLibrary;
  std::vector<std::unique_ptr<DriverApi>> tables;
  std::atomic<bool> forked{false};
};

DriverState& state() noexcept {
  static DriverState& instance = *new DriverState;  // never destroyed: threads outlive statics
  return instance;
}

void after_fork_in_child() noexcept {
  if (driver_detail::table.exchange(nullptr) != nullptr) state().forked.store(true);
}

std::string error_text(const DriverApi& api, CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.cuGetErrorName != nullptr) api.cuGetErrorName(result, &name);
  if (api.cuGetErrorString != nullptr) api.cuGetErrorString(result, &text);
  return str(name != nullptr ? name : "unknown error", " (", static_cast<unsigned>(result), ")",
             text != nullptr ? ": " : "", text != nullptr ? text : "");
}

std::string version_text(int version) { return str(version / 1000, ".", version % 1000 / 10); }

void check_version(DriverApi& api) {
  const CUresult result = api.cuDriverGetVersion != nullptr ? api.cuDriverGetVersion(&api.version)
                                                            : CUDA_ERROR_NOT_FOUND;
  if (result != CUDA_SUCCESS) {
    throw DeviceError(str("the NVIDIA driver (", api.library, ") does not tell its version: ",
                          error_text(api, result), "; check nvidia-smi, ", kCpuAdvice));
  }
  if (api.version < kMinimumDriver) {
    throw DeviceError(str("the NVIDIA driver (", api.library, ") supports CUDA ",
                          version_text(api.version), ", at least ", version_text(kMinimumDriver),
                          " is needed; install a newer driver, ", kCpuAdvice));
  }
}

void initialise(DriverApi& api) {
  if (const CUresult result = api.cuInit(0); result != CUDA_SUCCESS) {
    const char* advice = result == CUDA_ERROR_NO_DEVICE
                             ? "no GPU is visible to this process: check nvidia-smi, the "
                               "container's GPU access and CUDA_VISIBLE_DEVICES, "
                             : "check nvidia-smi, ";
    throw DeviceError(
        str("CUDA cannot be initialised: ", error_text(api, result), "; ", advice, kCpuAdvice));
  }
}

struct CloseLibrary {
  void operator()(void* handle) const noexcept { ::dlclose(handle); }
};

/// Opens the library for good and fills the table; entries newer than the driver stay null.
std::unique_ptr<DriverApi> open_library(const std::string& library) {
  std::unique_ptr<void, CloseLibrary> handle(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!handle) {
    const char* why = ::dlerror();
    throw DeviceError(str("no NVIDIA driver: ", library, " cannot be opened (",
                          why != nullptr ? why : "no reason given",
                          "); install the NVIDIA driver (CUDA ", version_text(kMinimumDriver),
                          " or newer), ", kCpuAdvice));
  }
  auto api = std::make_unique<DriverApi>();
  api->library = library;
  const auto get = reinterpret_cast<GetProcAddress>(::dlsym(handle.get(), "cuGetProcAddress_v2"));
  if (get == nullptr) {
    throw DeviceError(str("the NVIDIA driver (", library, ") is older than CUDA ",
                          version_text(kMinimumDriver), "; install a newer one, ", kCpuAdvice));
  }
  const auto find = [&](const char* name, int version) {
    void* entry = nullptr;
    int found = 0;
    return get(name, &entry, version, 0, &found) == CUDA_SUCCESS ? entry : nullptr;
  };
  std::string missing;
#define CUDAEXEC_CUDA_FIND(name, since, parameters)                         \
  api->name = reinterpret_cast<CUresult(*) parameters>(find(#name, since)); \
  if (api->name == nullptr && (since) <= kMinimumDriver) missing += " " #name;
  CUDAEXEC_CUDA_ENTRIES(CUDAEXEC_CUDA_FIND)
#undef CUDAEXEC_CUDA_FIND
  check_version(*api);
  if (!missing.empty()) {
    throw DeviceError(str("the NVIDIA driver (", library, ") lacks:", missing,
                          "; install a complete driver (CUDA ", version_text(kMinimumDriver),
                          " or newer), ", kCpuAdvice));
  }
  initialise(*api);
  handle.release();  // threads may call the driver until the process ends
  return api;
}
}  // namespace

const DriverApi& driver_detail::load() {
  DriverState& driver_state = state();
  const std::lock_guard lock(driver_state.mutex);
  if (const DriverApi* api = table.load(std::memory_order_acquire); api != nullptr) return *api;
  if (driver_state.forked.load()) {
    throw DeviceError(
        "CUDA was initialised before this process was forked, and the driver cannot be used in the "
        "child; start the child with multiprocessing's \"spawn\" or \"forkserver\" method, or fork "
        "before the first use of a GPU");
  }
  std::unique_ptr<DriverApi> api = open_library(driver_state.library);
  static const int registered = ::pthread_atfork(nullptr, nullptr, after_fork_in_child);
  (void)registered;
  driver_state.tables.push_back(std::move(api));
  const DriverApi* published = driver_state.tables.back().get();
  table.store(published, std::memory_order_release);
  return *published;
}

bool is_forked_child() noexcept { return state().forked.load(); }

std::optional<std::string> driver_problem() {
  try {
    driver();
    return std::nullopt;
  } catch (const DeviceError& error) {
    return error.what();
  }
}

void set_driver_library(const std::string& path) {
  DriverState& driver_state = state();
  const std::lock_guard lock(driver_state.mutex);
  driver_detail::table.store(nullptr, std::memory_order_release);
  driver_state.forked.store(false);
  driver_state.library = path.empty() ? kDriverLibrary : path;
}

}  // namespace cudaexec::cuda

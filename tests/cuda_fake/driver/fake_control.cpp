// What tests call: settings, faults, the call log, what is alive, what was misused. Texts are
// malloc'ed; fakecuda_free() ends them.
#include <cstdlib>
#include <cstring>

#include "fake.h"

using namespace fakecuda;

namespace {

char* to_c(const std::string& text) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy != nullptr) std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    if (!text.empty()) text += '\n';
    text += line;
  }
  return text;
}

int64_t count_objects(Kind kind) {
  int64_t count = 0;
  for (const auto& object : world().objects) {
    if (object->kind == kind && object->alive && !object->internal) ++count;
  }
  return count;
}

struct Entry {
  const char* name;
  int version;
  void* address;
};

const Entry kEntries[] = {
#define FAKE_ENTRY(name, version, parameters) {#name, version, reinterpret_cast<void*>(&::name)},
    CUDAEXEC_CUDA_ENTRIES(FAKE_ENTRY)
#undef FAKE_ENTRY
};

}  // namespace

/// What the core looks its entries up with.
FAKE_API CUresult cuGetProcAddress_v2(const char* name, void** entry, int version,
                                      uint64_t /*flags*/, int* found) {
  const std::lock_guard lock(world().mutex);
  *entry = nullptr;
  for (const Entry& candidate : kEntries) {
    if (std::strcmp(candidate.name, name) != 0) continue;
    if (version < candidate.version || candidate.version > world().driver_version) break;
    *entry = candidate.address;
    if (found != nullptr) *found = 0;
    return CUDA_SUCCESS;
  }
  if (found != nullptr) *found = 1;
  return CUDA_ERROR_NOT_FOUND;
}

FAKE_API void fakecuda_free(char* text) { std::free(text); }

/// Forgets everything: objects, memory, settings, the log. One GPU of sm_90 is left.
FAKE_API void fakecuda_reset() {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  release_blocks();
  w.handles.clear();
  w.objects.clear();
  w.reservations.clear();
  w.physical.clear();
  w.captures.clear();
  w.kernels.clear();
  w.launches.clear();
  w.calls.clear();
  w.faults.clear();
  w.misuse.clear();
  w.faults_hit = 0;
  w.devices.assign(1, DeviceState{});
  w.driver_version = 13000;
  w.init_result = CUDA_SUCCESS;
  w.eager = false;
  w.log = true;
  ++w.generation;
}

FAKE_API void fakecuda_set_devices(int count, int sm, int sm_count, uint64_t total_nbytes) {
  const std::lock_guard lock(world().mutex);
  DeviceState device;
  device.sm_major = sm / 10;
  device.sm_minor = sm % 10;
  device.sm_count = sm_count;
  device.total = total_nbytes;
  world().devices.assign(static_cast<size_t>(count), device);
}

FAKE_API void fakecuda_set_support(int device, int virtual_memory, int pools) {
  const std::lock_guard lock(world().mutex);
  world().devices[static_cast<size_t>(device)].virtual_memory = virtual_memory != 0;
  world().devices[static_cast<size_t>(device)].pools = pools != 0;
}

FAKE_API void fakecuda_set_driver(int version, int init_result) {
  const std::lock_guard lock(world().mutex);
  world().driver_version = version;
  world().init_result = static_cast<CUresult>(init_result);
}

/// Eager: work is done when it is put on a stream.
FAKE_API void fakecuda_set_eager(int eager) {
  const std::lock_guard lock(world().mutex);
  world().eager = eager != 0;
}

FAKE_API void fakecuda_set_log(int on) {
  const std::lock_guard lock(world().mutex);
  world().log = on != 0;
}

/// The k-th (from 1) call of `name` (null or "": of anything) fails with `result`; with `repeat`,
/// later ones too. Several faults may be armed.
FAKE_API void fakecuda_fail(const char* name, int64_t k, int result, int repeat) {
  const std::lock_guard lock(world().mutex);
  world().faults.push_back(
      {name != nullptr ? name : "", k, 0, static_cast<CUresult>(result), repeat != 0});
}

/// Disarms all faults; how many calls failed because of them.
FAKE_API int64_t fakecuda_clear_faults() {
  const std::lock_guard lock(world().mutex);
  world().faults.clear();
  return std::exchange(world().faults_hit, 0);
}

/// One line for each call so far.
FAKE_API char* fakecuda_calls() {
  const std::lock_guard lock(world().mutex);
  return to_c(join(world().calls));
}

FAKE_API void fakecuda_clear_calls() {
  const std::lock_guard lock(world().mutex);
  world().calls.clear();
}

/// One line for each misuse so far.
FAKE_API char* fakecuda_misuse() {
  const std::lock_guard lock(world().mutex);
  return to_c(join(world().misuse));
}

FAKE_API void fakecuda_clear_misuse() {
  const std::lock_guard lock(world().mutex);
  world().misuse.clear();
}

/// "streams=0 events=1 ...": what was made and not destroyed.
FAKE_API char* fakecuda_live() {
  const std::lock_guard lock(world().mutex);
  int64_t contexts = 0;
  for (const DeviceState& device : world().devices) contexts += device.retained;
  std::ostringstream out;
  out << "contexts=" << contexts << " streams=" << count_objects(Kind::kStream)
      << " events=" << count_objects(Kind::kEvent) << " pools=" << count_objects(Kind::kPool)
      << " modules=" << count_objects(Kind::kModule) << " graphs=" << count_objects(Kind::kGraph)
      << " graph_execs=" << count_objects(Kind::kExec) << " captures=" << world().captures.size()
      << " device_blocks=" << count_blocks(Memory::kDevice)
      << " pool_blocks=" << count_blocks(Memory::kPool)
      << " host_blocks=" << count_blocks(Memory::kHost)
      << " registered=" << count_blocks(Memory::kRegistered)
      << " mapped=" << count_blocks(Memory::kMapped)
      << " reservations=" << world().reservations.size() << " physical=" << world().physical.size();
  return to_c(out.str());
}

/// Bytes of a device in use.
FAKE_API uint64_t fakecuda_used(int device) {
  const std::lock_guard lock(world().mutex);
  return world().devices[static_cast<size_t>(device)].used;
}

/// Contexts on the calling thread's stack.
FAKE_API int fakecuda_context_depth() {
  const std::lock_guard lock(world().mutex);
  return static_cast<int>(context_stack().size());
}

/// Does all work that waits on any stream.
FAKE_API void fakecuda_run_all() {
  const std::lock_guard lock(world().mutex);
  for (DeviceState& device : world().devices) {
    if (device.primary != nullptr) finish_context(device.primary);
  }
}

/// A kernel for test images, or what a kernel of a real image does. `sizes` are those of its
/// parameters; `callback` may be null: launches are counted.
FAKE_API void fakecuda_register_kernel(const char* name, const uint64_t* sizes, int count,
                                       KernelCallback callback) {
  const std::lock_guard lock(world().mutex);
  RegisteredKernel& kernel = world().kernels[name];
  kernel.sizes.assign(sizes, sizes + count);
  kernel.callback = callback;
}

/// Launches of a kernel that were done.
FAKE_API int64_t fakecuda_launches(const char* name) {
  const std::lock_guard lock(world().mutex);
  return world().launches[name];
}

/// Managed memory of device 0's context, which must be current; freed by fakecuda_reset().
FAKE_API void* fakecuda_alloc_managed(uint64_t nbytes) {
  const std::lock_guard lock(world().mutex);
  Context* context = current_context();
  if (context == nullptr) return nullptr;
  Block* block = add_block(nbytes, Memory::kManaged, context, 0);
  return block != nullptr ? reinterpret_cast<void*>(block->base) : nullptr;
}

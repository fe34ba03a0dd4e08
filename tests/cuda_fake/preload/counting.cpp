// Counts heap allocations and locks by the library that asks for them. Preloaded into a process, so
// that its malloc and its pthread_mutex_lock are everybody's.
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>

extern "C" {
// The C library's own.
void* __libc_malloc(size_t nbytes);
void* __libc_calloc(size_t count, size_t nbytes);
void* __libc_realloc(void* data, size_t nbytes);
void* __libc_memalign(size_t alignment, size_t nbytes);
}

namespace {

constexpr int kDepth = 24;
constexpr size_t kMost = 1024;

struct Record {
  const void* mutex;  // null: an allocation
  int depth;
  void* frames[kDepth];
};

thread_local bool counting __attribute__((tls_model("initial-exec"))) = false;
Record records[kMost];   // of the one thread that counts
size_t num_records = 0;  // those beyond kMost are counted only

void note(const void* mutex) {
  if (!counting) return;
  counting = false;  // what follows may allocate and lock
  if (num_records < kMost) {
    Record& record = records[num_records];
    record.mutex = mutex;
    record.depth = backtrace(record.frames, kDepth);
  }
  ++num_records;
  counting = true;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

void* malloc(size_t nbytes) {
  note(nullptr);
  return __libc_malloc(nbytes);
}

void* calloc(size_t count, size_t nbytes) {
  note(nullptr);
  return __libc_calloc(count, nbytes);
}

void* realloc(void* data, size_t nbytes) {
  note(nullptr);
  return __libc_realloc(data, nbytes);
}

void* memalign(size_t alignment, size_t nbytes) {
  note(nullptr);
  return __libc_memalign(alignment, nbytes);
}

void* aligned_alloc(size_t alignment, size_t nbytes) { return memalign(alignment, nbytes); }

int posix_memalign(void** out, size_t alignment, size_t nbytes) {
  void* const data = memalign(alignment, nbytes);
  if (data == nullptr) return ENOMEM;
  *out = data;
  return 0;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  using Lock = int (*)(pthread_mutex_t*);
  static Lock lock = nullptr;
  if (lock == nullptr) lock = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  note(mutex);
  return lock(mutex);
}

/// Forgets what was counted and counts the calling thread's uses from now on.
void counting_start() {
  void* frame = nullptr;
  (void)backtrace(&frame, 1);  // its first call allocates
  num_records = 0;
  counting = true;
}

/// Stops; the number of uses since counting_start().
size_t counting_stop() {
  counting = false;
  return num_records;
}

/// The mutex of use `index`, null if it is an allocation; and a line per frame, innermost first: the
/// library's path, the offset in it, the nearest name. The bytes of text, or 0 if it was not kept.
size_t counting_describe(size_t index, const void** mutex, char* out, size_t capacity) {
  if (index >= num_records || index >= kMost) return 0;
  const Record& record = records[index];
  *mutex = record.mutex;
  size_t used = 0;
  for (int i = 0; i < record.depth; ++i) {
    Dl_info info{};
    if (dladdr(record.frames[i], &info) == 0) continue;
    const auto offset = static_cast<size_t>(static_cast<char*>(record.frames[i]) -
                                            static_cast<char*>(info.dli_fbase));
    const int wrote = std::snprintf(out + used, capacity - used, "%s %#zx %s\n", info.dli_fname,
                                    offset, info.dli_sname != nullptr ? info.dli_sname : "?");
    if (wrote < 0 || used + static_cast<size_t>(wrote) >= capacity) break;
    used += static_cast<size_t>(wrote);
  }
  return used;
}

}  // extern "C"
#pragma GCC visibility pop

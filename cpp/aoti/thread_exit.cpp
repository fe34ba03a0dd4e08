#include "aoti/thread_exit.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <vector>

#include "base/export.h"

extern "C" int __cxa_thread_atexit_impl(void (*destructor)(void*), void* object, void* library);

namespace cudaexec {
namespace {

struct Registration {
  void (*destructor)(void*);
  void* object;
  const void* base;  // of the library
  pthread_t thread;
};

struct Tracked {
  std::string path;
  const void* base;  // null until the first registration
};

// Never destroyed: threads end after static destructors have run. The lock is recursive because
// destructors run under it, so that a library is not closed between.
struct Registry {
  pthread_mutex_t mutex{};
  std::vector<Tracked> libraries;
  std::vector<Registration> registrations;
};

void keep_only_own_in_child() noexcept;

void make_mutex(pthread_mutex_t& mutex) noexcept {
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
  ::pthread_mutex_init(&mutex, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
}

Registry& registry() {
  static Registry* const made = [] {
    auto* fresh = new Registry;
    make_mutex(fresh->mutex);
    ::pthread_atfork([] { ::pthread_mutex_lock(&registry().mutex); },
                     [] { ::pthread_mutex_unlock(&registry().mutex); }, keep_only_own_in_child);
    return fresh;
  }();
  return *made;
}

class Locked {
 public:
  explicit Locked(Registry& of) noexcept : registry_(of) { ::pthread_mutex_lock(&of.mutex); }
  ~Locked() { ::pthread_mutex_unlock(&registry_.mutex); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  Registry& registry_;
};

// Last registered first, as the language asks; destructors may register more.
template <typename Matches>
void run_matching(Registry& all, const Matches& matches) noexcept {
  for (;;) {
    const auto last = std::find_if(all.registrations.rbegin(), all.registrations.rend(), matches);
    if (last == all.registrations.rend()) return;
    const Registration entry = *last;
    all.registrations.erase(std::next(last).base());
    entry.destructor(entry.object);
  }
}

// The other threads' objects went with them. The lock is made anew: the child's thread has another
// number than the one that locked it, so it could not unlock it.
void keep_only_own_in_child() noexcept {
  Registry& all = registry();
  const pthread_t self = ::pthread_self();
  std::erase_if(all.registrations,
                [&](const Registration& r) { return ::pthread_equal(r.thread, self) == 0; });
  make_mutex(all.mutex);
}

constinit thread_local bool ended __attribute__((tls_model("initial-exec"))) = false;

struct ThreadEnd {
  ~ThreadEnd() {
    ended = true;
    Registry& all = registry();
    const Locked locked(all);
    const pthread_t self = ::pthread_self();
    run_matching(all, [&](const Registration& r) { return ::pthread_equal(r.thread, self) != 0; });
  }
};

// Keeps a registration of a tracked library; false for any other library. The loader's lock, which
// dladdr() and the registration of `at_end` take, is never taken under ours: a thread that opens a
// library holds them the other way round.
bool keep(void (*destructor)(void*), void* object, const void* library) {
  Registry& all = registry();
  {
    const Locked locked(all);
    if (ended || all.libraries.empty()) return false;
  }
  Dl_info info{};
  if (::dladdr(library, &info) == 0 || info.dli_fname == nullptr) return false;
  const auto is_it = [&](const Tracked& t) { return t.path == info.dli_fname; };
  {
    const Locked locked(all);
    if (std::none_of(all.libraries.begin(), all.libraries.end(), is_it)) return false;
  }
  static thread_local ThreadEnd at_end;
  (void)at_end;
  const Locked locked(all);
  const auto tracked = std::find_if(all.libraries.begin(), all.libraries.end(), is_it);
  if (tracked == all.libraries.end()) return false;
  tracked->base = info.dli_fbase;
  all.registrations.push_back({destructor, object, info.dli_fbase, ::pthread_self()});
  return true;
}

const void* tracked_base(const Registry& all, const std::string& path) noexcept {
  for (const Tracked& library : all.libraries) {
    if (library.path == path) return library.base;
  }
  return nullptr;
}

}  // namespace

void track_thread_exit(const std::string& path) {
  Registry& all = registry();
  const Locked locked(all);
  all.libraries.push_back({path, nullptr});
}

void run_thread_exits(const std::string& path) noexcept {
  Registry& all = registry();
  const Locked locked(all);
  const void* base = tracked_base(all, path);
  if (base == nullptr) return;
  run_matching(all, [&](const Registration& r) { return r.base == base; });
}

void untrack_thread_exit(const std::string& path) noexcept {
  Registry& all = registry();
  const Locked locked(all);
  if (const void* base = tracked_base(all, path)) {
    std::erase_if(all.registrations, [&](const Registration& r) { return r.base == base; });
  }
  std::erase_if(all.libraries, [&](const Tracked& t) { return t.path == path; });
}

}  // namespace cudaexec

// What generated code finds in place of the C++ runtime's __cxa_thread_atexit and, where it carries
// that itself, of the C library's function behind it (see elf_prepare.cpp).
extern "C" CUDAEXEC_API int cudaexec_tls_atexit(void (*destructor)(void*), void* object,
                                                void* library) {
  try {
    if (cudaexec::keep(destructor, object, library)) return 0;
  } catch (...) {  // no memory for the list: the C library's way only keeps the library mapped
  }
  return __cxa_thread_atexit_impl(destructor, object, library);
}

extern "C" CUDAEXEC_API int cudaexec_tls_atexit_impl(void (*destructor)(void*), void* object,
                                                     void* library) {
  return cudaexec_tls_atexit(destructor, object, library);
}

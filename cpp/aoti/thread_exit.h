// Destructors of thread_local objects in generated code. The C library keeps a library mapped while
// such destructors are registered; ours keeps the list itself and runs what belongs to a library
// before the library is closed.
#pragma once

#include <string>

namespace cudaexec {

/// From here on registrations of the library opened under `path` are kept by us.
void track_thread_exit(const std::string& path);
/// Before it is closed: runs the destructors that the library registered in any thread. No thread
/// may be running its code.
void run_thread_exits(const std::string& path) noexcept;
/// After it was closed: forgets the library, and what its own closing registered.
void untrack_thread_exit(const std::string& path) noexcept;

}  // namespace cudaexec

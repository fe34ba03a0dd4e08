// A conversation with a loaded program: mutable buffers and random numbers of its own, weights
// shared with the Module and its other sessions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/export.h"
#include "runtime/module.h"

namespace cudaexec {

class SessionState;

/// Thread-safe: calls that use its mutable buffers run one after the other, calls of different
/// sessions at the same time. Keeps what it needs of the Module alive; closed with it.
class CUDAEXEC_API Session {
 public:
  /// Use Module::session().
  Session(std::shared_ptr<ModuleState> module, std::shared_ptr<SessionState> session) noexcept;
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] std::vector<std::string> method_names() const;
  /// As Module::method; its calls use this session, which it keeps alive.
  [[nodiscard]] std::shared_ptr<Method> method(const std::string& name);
  /// As Module::state, with this session's buffers.
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> state() const;
  /// Starts the sequence of `seed` for the random numbers of this session. @throws ClosedError.
  void manual_seed(uint64_t seed);
  /// Gives the mutable buffers their initial values: those of the file, or that load_weights()
  /// gave them since, and empties the KV cache. In place, after the calls so far (on a GPU in
  /// stream order) and before later ones. Random numbers go on. @throws ClosedError, OutOfMemory;
  /// then nothing changed. DeviceError where the GPU refuses a copy.
  void reset();
  /// Tokens in its KV cache. Never waits for a call.
  /// @throws NotSupported if the program has none that the runtime keeps, ClosedError.
  [[nodiscard]] int64_t position() const;
  /// Forgets the tokens from `position` on, after the calls so far; memory stays.
  /// @throws InputError if there are not as many, or a ring no longer has the window before it;
  /// then nothing changed. NotSupported as above, ClosedError.
  void rewind(int64_t position);
  /// Another session with copies of the current buffers, at the same place of the random numbers.
  /// @throws ClosedError, OutOfMemory, DeviceError; then there is none.
  [[nodiscard]] std::unique_ptr<Session> fork() const;
  /// Frees buffers and containers; waits for calls in flight. Later calls raise ClosedError.
  /// Outputs stay valid.
  void close() noexcept;
  [[nodiscard]] bool closed() const noexcept;
  /// Bytes of its mutable buffers once all of them are in use; constant.
  [[nodiscard]] size_t bytes_per_session() const noexcept;
  /// Bytes of the buffers that it has now. @throws ClosedError.
  [[nodiscard]] size_t state_nbytes() const;
  /// Bytes of its KV cache. Never waits for a call. @throws ClosedError.
  [[nodiscard]] KvBytes kv_nbytes() const;
  /// Calls by method: JSON text.
  [[nodiscard]] std::string describe_json() const;

 private:
  std::shared_ptr<ModuleState> module_;
  std::shared_ptr<SessionState> session_;
};

}  // namespace cudaexec

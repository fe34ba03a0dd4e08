// The KV cache of a session together with the state that counts its tokens, and the step that a
// call performs on them.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/kv_cache.h"
#include "runtime/module.h"
#include "runtime/weight_table.h"
#include "tensor/dims.h"

namespace cudaexec {

class SessionState;
struct Program;

/// How the methods of a program use its cache. Read-only.
struct KvUse {
  struct Method {
    const KvMethodSpec* spec = nullptr;  // null: it does not use the cache
    std::string what;                    // begins messages
    std::string position_name;           // of the input with positions, if there is one
    std::vector<WeightView> states;      // that count tokens
  };
  std::shared_ptr<KvProgram> program;
  std::vector<Method> methods;
};

/// Null for a program without a cache. `program` must outlive it.
/// @throws NotSupported, OutOfMemory, DeviceError, FileError; FormatError if a state is missing.
std::unique_ptr<const KvUse> make_kv_use(const Program& program);

/// Methods other than position() and usage() are called with the session's lock held.
class KvSession {
 public:
  /// `use`: null if the program has no cache. Both must outlive it.
  KvSession(const KvUse* use, SessionState& session) noexcept : use_(use), session_(session) {}

  /// Committed tokens. Thread-safe, never waits for a call.
  [[nodiscard]] int64_t position() const noexcept { return position_.load(); }
  [[nodiscard]] KvBytes usage() const noexcept {
    return {reserved_.load(), mapped_.load(), used_.load()};
  }
  /// @throws NotSupported if the program has no cache.
  void require() const;

  /// Whether it has a cache by now.
  [[nodiscard]] bool is_in_use() const noexcept { return cache_ != nullptr; }
  /// The state was changed by others: the next step sets it.
  void mark_stale() noexcept { stale_ = true; }
  /// After all calls. @throws as KvCache's functions; NotSupported as require().
  void rewind(int64_t position);
  void reset();
  void fork_to(KvSession& other);
  /// Frees the cache. After all calls.
  void close() noexcept;

 private:
  friend class KvCall;
  template <typename Function>
  auto publishing(const Function& function);
  void publish() noexcept;
  KvCache& cache();
  void check_positions(const KvUse::Method& method, std::span<const Value> inputs, int64_t width);
  void write_states(StreamRef stream);

  const KvUse* use_;
  SessionState& session_;
  std::unique_ptr<KvCache> cache_;
  const KvUse::Method* last_ = nullptr;  // whose states went along with the last step
  bool stale_ = true;                    // the states do not say position()
  std::atomic<int64_t> position_{0};
  std::atomic<size_t> reserved_{0}, mapped_{0}, used_{0};
};

/// One call's step: prepared by the constructor, current for the thread while it lives, and undone
/// by the destructor unless it was committed.
class KvCall {
 public:
  /// On a GPU `stream` follows all earlier calls of the session.
  /// @throws ContextFull, ShapeError, InputError, and as KvCache::prepare; then nothing changed.
  KvCall(KvSession& kv, size_t method, std::span<const Value> inputs, const Dims& symbols,
         StreamRef stream);
  ~KvCall();
  KvCall(const KvCall&) = delete;
  KvCall& operator=(const KvCall&) = delete;
  /// Makes room for the next token while the GPU works.
  void map_ahead() noexcept;
  /// After the work of the step is done, or for the host to go on before it is.
  /// @throws InputError if the GPU has found positions wrong; then the step did not happen.
  void commit();

 private:
  KvSession& kv_;
  const KvUse::Method& method_;
  std::optional<KvScope> scope_;
  bool committed_ = false;
};

}  // namespace cudaexec

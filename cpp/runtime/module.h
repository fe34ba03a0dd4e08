// A loaded program: the mapped files, its weights and its methods.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/export.h"
#include "format/manifest.h"
#include "runtime/options.h"
#include "tensor/tensor.h"

namespace cudaexec {

class Method;
class Session;
struct ModuleState;

/// One flat input or output of a call.
using Value = std::variant<std::monostate, bool, int64_t, double, std::string, Tensor>;

/// Where the work of one call is ordered. Means nothing to a CPU program.
struct CallStream {
  /// A stream that the caller chose (null: CUDA's legacy default stream of the program's device).
  /// Nothing: the inputs' stream, else the device's stream of the calling thread.
  std::optional<StreamRef> chosen;
  /// The stream on which the owner of the inputs works (torch's current stream). Work of the call
  /// follows what is on it, and what is put on it later follows the call, so that memory of inputs
  /// and outputs is safe there without the host waiting.
  std::optional<StreamRef> inputs;
};

/// Bytes of KV caches that the runtime keeps.
struct KvBytes {
  size_t reserved = 0;  // of address space
  size_t mapped = 0;    // memory behind it; what forks share counts for each
  size_t used = 0;      // of these, holding tokens
};

/// Bytes.
struct MemoryStats {
  size_t weights_mapped = 0;   // weights used in place from the file
  size_t weights_private = 0;  // weights in memory of their own: replaced ones, misaligned ones
  size_t weights_device = 0;   // weights on a GPU, shared with everybody in the process
  size_t state = 0;            // mutable buffers of the Module's own session
  size_t sessions = 0;         // mutable buffers of all other sessions
  KvBytes kv;                  // KV caches of all sessions
  size_t working_current = 0;  // outputs, intermediates and input copies alive, on its device
  size_t working_peak = 0;
  size_t cached = 0;  // kept for reuse; trim() returns it. On a GPU: by all programs of the process
};

/// Thread-safe. Methods, outputs and everything else that needs it keep it alive.
class CUDAEXEC_API Module {
 public:
  /// Opens `pte_path` and `ptd_path` (empty: the file of the same name ending in .ptd beside
  /// it, if the program needs one). `device` "" means the program's own.
  /// A method that cannot run here is refused by method(), not by load(), as long as another one
  /// can run.
  /// @throws FormatError, VersionError, WeightsError, TargetError, DeviceError, NotSupported,
  /// FileError, OutOfMemory; then nothing is left behind.
  static std::shared_ptr<Module> load(const std::string& pte_path, const std::string& ptd_path,
                                      const std::string& device, const LoadOptions& options);
  ~Module();

  /// In the order of export; refused ones too.
  [[nodiscard]] std::vector<std::string> method_names() const;
  /// @throws InputError naming the methods there are; TargetError or NotSupported if this one
  /// cannot run here; ClosedError.
  [[nodiscard]] std::shared_ptr<Method> method(const std::string& name);
  /// A new session. The Module itself is its own default session. @throws ClosedError, OutOfMemory.
  [[nodiscard]] std::unique_ptr<Session> session();
  /// Tokens in the KV cache of the Module's own session. Never waits for a call.
  /// @throws NotSupported if the program has none, ClosedError.
  [[nodiscard]] int64_t position() const;
  /// Forgets the tokens of the Module's own session from `position` on, after the calls so far.
  /// @throws InputError if there are not as many, or a ring no longer has its window; then nothing
  /// changed. NotSupported, ClosedError.
  void rewind(int64_t position);
  /// Gives the mutable buffers of the Module's own session their initial values and empties its KV
  /// cache; see Session::reset.
  void reset();
  /// Bytes of mutable buffers that one session owns once all of them are in use; constant.
  [[nodiscard]] size_t bytes_per_session() const noexcept;
  [[nodiscard]] MemoryStats memory_stats() const;
  /// Returns cached memory to the system and drops idle containers but one a method; bytes
  /// released.
  size_t trim();
  /// FQNs, sorted, with a copy of each value: weights and current state (of the Module's own
  /// session). Waits for a call that is changing the state. @throws ClosedError, OutOfMemory.
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> state() const;
  /// Replaces weights and state by name, all or nothing. Each tensor: dtype and shape of the FQN,
  /// any strides; copied before return. Calls in flight finish with the old weights, later ones use
  /// the new. Tied weights change together. Weights change for all sessions. A mutable buffer
  /// changes in the Module's own session; for others the value is the initial one from now on: of
  /// new sessions, after reset(), and where a session has not used the buffer yet.
  /// @throws WeightsError (unknown name, conflicting values for tied weights), ShapeError,
  /// DtypeError, DeviceError, OutOfMemory, ClosedError; then nothing changed.
  void load_weights(const std::vector<std::pair<std::string, Tensor>>& weights);
  /// Seeds the random numbers of the Module's own session. @throws ClosedError.
  void manual_seed(uint64_t seed);
  /// Frees everything and closes all sessions; waits for calls in flight. Later calls raise
  /// ClosedError. Outputs stay valid.
  void close() noexcept;
  [[nodiscard]] bool closed() const noexcept;
  /// Files, methods, which code variant of each runs and why others do not: JSON text.
  [[nodiscard]] std::string describe_json() const;

 private:
  explicit Module(std::shared_ptr<ModuleState> state) noexcept;
  std::shared_ptr<ModuleState> state_;
};

/// Calls of a method on memory that was chosen and checked once. Keeps what it needs alive but the
/// memory. Runs one call at a time.
class CUDAEXEC_API Binding {
 public:
  virtual ~Binding() = default;
  /// Reads the inputs as they are now, and writes the outputs. What is in host memory is there on
  /// return. @throws as a call.
  virtual void run(const CallStream& stream) = 0;
};

/// One entry point. Keeps what it needs of the Module alive.
class CUDAEXEC_API Method {
 public:
  virtual ~Method() = default;
  [[nodiscard]] virtual const MethodSpec& spec() const noexcept = 0;
  /// Where it runs; streams of a call are streams of this device. Constant.
  [[nodiscard]] virtual Device device() const noexcept { return {}; }
  /// `inputs`: one per flat leaf of spec().inputs; tensors of any strides (negative ones must have
  /// been copied). Consumed: tensors are moved from. Checks all of them before anything runs, then
  /// runs and fills `outputs` with one value per leaf of spec().outputs; what was in there is
  /// dropped first, and an error leaves it empty. The memory of inputs is never written
  /// and outputs own theirs; an input whose strides differ from the compiled ones, that is not
  /// aligned to its element size, or that the program writes is copied first. Any number of threads
  /// may call.
  /// @throws InputError, ShapeError, DtypeError, DeviceError, OutOfMemory, ClosedError,
  /// InternalError.
  virtual void call(std::span<Value> inputs, const CallStream& stream,
                    std::vector<Value>& outputs) = 0;
  /// Calls on the caller's own memory, which outlives the Binding. `outputs`: one per leaf of
  /// spec().outputs, tensors of any strides without overlaps, on the host or on device(); nothing
  /// for leaves that are no tensors. With CUDA graphs (after one call without) a run is one launch,
  /// and inputs in the compiled layout and outputs in the program's own are not copied.
  /// @throws as call(), also for wrong outputs; InputError where memory is shared.
  [[nodiscard]] virtual std::shared_ptr<Binding> bind(std::vector<Value> inputs,
                                                      std::vector<Value> outputs);
  /// Calls after which a signature has its graph; 1 without graphs.
  [[nodiscard]] virtual uint32_t warmup_calls() const noexcept { return 1; }
  /// Tokens in the KV cache that its calls use; nothing if they use none. @throws ClosedError.
  [[nodiscard]] virtual std::optional<int64_t> position() const { return std::nullopt; }
  /// Forgets the tokens from `position` on; see Module::rewind. Only where position() has a value.
  virtual void rewind(int64_t position) { (void)position; }
  /// Its entry in Module::describe_json(): JSON text.
  [[nodiscard]] virtual std::string describe_json() const { return "{}"; }
};

}  // namespace cudaexec

// A loaded program: the mapped files, its weights and its methods.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/export.h"
#include "format/manifest.h"
#include "runtime/options.h"
#include "tensor/tensor.h"

namespace cudaexec {

class Method;
struct ModuleState;

/// One flat input or output of a call.
using Value = std::variant<std::monostate, bool, int64_t, double, std::string, Tensor>;

struct MemoryStats {
  size_t weights_mapped = 0;    // bytes of weights used in place from the file
  size_t weights_private = 0;   // bytes of copies: mutable state, packed operands
  size_t working_current = 0;   // bytes of outputs and intermediates alive
  size_t working_peak = 0;
  size_t cached = 0;            // bytes kept for reuse; trim() returns them
};

/// Thread-safe. Methods, outputs and everything else that needs it keep it alive.
class CUDAEXEC_API Module {
 public:
  /// Opens `pte_path` and `ptd_path` (empty: the file of the same name ending in .ptd beside
  /// it, if the program needs one). `device` "" means the program's own.
  /// @throws FormatError, VersionError, WeightsError, TargetError, FileError; then nothing is left behind.
  static std::shared_ptr<Module> load(const std::string& pte_path, const std::string& ptd_path,
                                      const std::string& device, const LoadOptions& options);
  ~Module();

  [[nodiscard]] std::vector<std::string> method_names() const;
  /// @throws InputError naming the methods there are; ClosedError.
  [[nodiscard]] std::shared_ptr<Method> method(const std::string& name);
  [[nodiscard]] MemoryStats memory_stats() const;
  size_t trim();
  /// FQNs with a copy of each value: weights and current state (of the Module's own session).
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> state() const;
  /// Replaces weights by name, all or nothing. Each tensor: dtype and shape of the FQN, any strides.
  void load_weights(const std::vector<std::pair<std::string, Tensor>>& weights);
  /// Frees everything; waits for calls in flight. Later calls raise ClosedError.
  void close() noexcept;
  [[nodiscard]] bool closed() const noexcept;
  /// Which code variant runs, and why others do not: JSON text.
  [[nodiscard]] std::string describe_json() const;

 private:
  Module() = default;
  std::shared_ptr<ModuleState> state_;
};

/// One entry point. Keeps what it needs of the Module alive.
class CUDAEXEC_API Method {
 public:
  virtual ~Method() = default;
  [[nodiscard]] virtual const MethodSpec& spec() const noexcept = 0;
  /// `inputs`: one per flat leaf of spec().inputs, tensors of any strides on any device. Checks all,
  /// then runs; returns one value per leaf of spec().outputs. Outputs own their memory.
  /// @throws InputError, ShapeError, DtypeError, DeviceError, OutOfMemory, ClosedError, InternalError.
  [[nodiscard]] virtual std::vector<Value> call(std::vector<Value> inputs, StreamRef stream) = 0;
};

}  // namespace cudaexec

// A model container of generated code: created, bound to constants once, run by one caller at a
// time.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "aoti/abi.h"
#include "aoti/call_scope.h"
#include "aoti/shared_object.h"

namespace cudaexec {

class CudaDevice;
struct ContainerFunctions;
namespace cuda {
class ModuleTracker;
}

struct ContainerConstant {
  std::string name;   // the container's own name, e.g. "fc1_weight"
  std::string fqn;    // e.g. "fc1.weight"
  int32_t dtype = 0;  // torch code
  size_t nbytes = 0;  // as generated code declares it, padded to its alignment
  bool from_folded = false;
};

struct ConstantBinding {
  std::string name;
  Tensor tensor;  // kept by the container
};

class CUDAEXEC_API Container {
 public:
  /// The device must exist. @throws TargetError if a required entry point is missing, InternalError
  /// if creation fails, DeviceError.
  Container(std::shared_ptr<SharedObject> code, Device device);
  ~Container();
  Container(const Container&) = delete;
  Container& operator=(const Container&) = delete;

  [[nodiscard]] size_t num_inputs() const noexcept { return num_inputs_; }
  [[nodiscard]] size_t num_outputs() const noexcept { return num_outputs_; }
  [[nodiscard]] const std::vector<ContainerConstant>& constants() const noexcept {
    return constants_;
  }

  /// Binds every constant by the container's names; the tensors' memory is used in place. Once.
  /// @throws WeightsError naming missing constants and wrong dtypes; then nothing was bound.
  void bind(std::vector<ConstantBinding> bindings);
  /// ExecuTorch's dense layout: constants back to back, in the container's order, each padded to a
  /// multiple of 64 bytes. Generated code copies them into memory of its own; `owner` keeps `blob`.
  /// @throws WeightsError if `blob` is too short, NotSupported if the code cannot take it.
  void bind_blob(std::span<const std::byte> blob, std::shared_ptr<void> owner);

  /// Runs with a scope of its own on the calling thread, whose current GPU is the same afterwards.
  /// On a GPU the work is ordered on `stream` and may not be done on return. `inputs` are consumed;
  /// fills `outputs` (num_outputs() tensors; an undefined Tensor where the program returned
  /// nothing).
  /// @throws the shim's own exception, or InternalError with the message of generated code.
  void run(std::vector<Tensor>& inputs, std::vector<Tensor>& outputs, StreamRef stream,
           Allocator& allocator);

  static int64_t live_count() noexcept;

 private:
  template <typename Function>
  void call(CallScope& scope, const char* what, const Function& function);
  template <typename Function>
  int32_t on_device(CallScope& scope, const Function& function);
  [[nodiscard]] std::string failure_text() const;
  void list_constants(CallScope& scope);
  void check_unbound() const;
  void check_bindings(const std::vector<ConstantBinding>& bindings) const;
  void release() noexcept;

  std::shared_ptr<SharedObject> code_;
  std::unique_ptr<ContainerFunctions> functions_;
  Device device_;
  CudaDevice* gpu_ = nullptr;                     // null on the CPU
  Allocator* setup_memory_;                       // for what generated code makes outside of runs
  std::unique_ptr<cuda::ModuleTracker> modules_;  // of a GPU; unloads before the library closes
  ContainerHandle handle_ = nullptr;
  size_t num_inputs_ = 0;
  size_t num_outputs_ = 0;
  std::vector<ContainerConstant> constants_;
  bool needs_constants_ = false;
  bool bound_ = false;
  std::vector<AtenTensorHandle> bound_handles_;
  std::shared_ptr<void> blob_owner_;
};

}  // namespace cudaexec

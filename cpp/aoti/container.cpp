#include "aoti/container.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "aoti/captured_stderr.h"
#include "aoti/container_functions.h"
#include "aoti/handle_reuse.h"
#include "base/cleanup_report.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/str.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/generated_call.h"
#include "device/cuda/module_tracker.h"
#include "memory/allocator.h"
#include "memory/cuda_pool_allocator.h"

namespace cudaexec {
namespace {

std::atomic<int64_t> live_containers{0};

// Handles of one call: on the stack for usual numbers of inputs and outputs.
class HandleArray {
 public:
  explicit HandleArray(size_t count) : size_(count) {
    if (count > inline_.size()) heap_.resize(count);
    std::fill_n(data(), count, nullptr);
  }
  ~HandleArray() {
    for (size_t i = 0; i < size_; ++i) {
      if (AtenTensorHandle handle = take(i)) delete_handle(handle);
    }
  }
  HandleArray(const HandleArray&) = delete;
  HandleArray& operator=(const HandleArray&) = delete;

  [[nodiscard]] AtenTensorHandle* data() noexcept {
    return heap_.empty() ? inline_.data() : heap_.data();
  }
  [[nodiscard]] size_t size() const noexcept { return size_; }
  /// The i-th handle; a program may return one handle several times, all its places are cleared.
  AtenTensorHandle take(size_t i) noexcept {
    AtenTensorHandle handle = data()[i];
    if (handle != nullptr) std::replace(data() + i, data() + size_, handle, AtenTensorHandle{});
    return handle;
  }

 private:
  size_t size_;
  std::array<AtenTensorHandle, 16> inline_;
  std::vector<AtenTensorHandle> heap_;
};

}  // namespace

Container::Container(std::shared_ptr<SharedObject> code, Device device)
    : code_(std::move(code)),
      functions_(std::make_unique<ContainerFunctions>(*code_)),
      device_(device),
      setup_memory_(&cpu_allocator()) {
  if (!device.is_cpu()) {
    gpu_ = &cuda_device(device.index);
    setup_memory_ = &cuda_allocator(device.index);
    modules_ = std::make_unique<cuda::ModuleTracker>(code_->modules());
  }
  CallScope scope(device_, StreamRef(), *setup_memory_);
  call(scope, "create the container",
       [&] { return functions_->create(&handle_, 1, to_string(device_).c_str(), nullptr); });
  live_containers.fetch_add(1, std::memory_order_relaxed);
  try {
    call(scope, "count inputs", [&] { return functions_->num_inputs(handle_, &num_inputs_); });
    call(scope, "count outputs", [&] { return functions_->num_outputs(handle_, &num_outputs_); });
    list_constants(scope);
  } catch (...) {
    release();
    throw;
  }
}

Container::~Container() { release(); }

void Container::release() noexcept {
  CallScope scope(device_, StreamRef(), *setup_memory_);
  const StderrCapture capture;
  // In a forked child, say, the driver is gone, and so is what generated code would free.
  if (gpu_ == nullptr || cuda::driver_if_initialised() != nullptr) {
    std::optional<GeneratedCall> generated;
    try {
      if (gpu_ != nullptr) generated.emplace(*gpu_, *modules_);
    } catch (const std::exception& error) {
      report_cleanup_failure("selecting the GPU of a container", error.what());
    }
    (void)functions_->destroy(handle_);
  }
  modules_.reset();
  for (AtenTensorHandle handle : bound_handles_) delete_handle(handle);
  bound_handles_.clear();
  live_containers.fetch_sub(1, std::memory_order_relaxed);
}

// Calls generated code with its GPU current and its modules tracked; a failure of the driver that
// made it fail is thrown, unless a shim has the reason.
template <typename Function>
int32_t Container::on_device(CallScope& scope, const Function& function) {
  if (gpu_ == nullptr) return function();
  const GeneratedCall generated(*gpu_, *modules_);
  const int32_t failed = function();
  if (failed != 0) [[unlikely]] {
    scope.rethrow_if_pending();
    generated.rethrow_if_failed();
  }
  return failed;
}

// Runs one function of generated code and turns its failure into the exception behind it.
template <typename Function>
void Container::call(CallScope& scope, const char* what, const Function& function) {
  fault_point(FaultSite::kContainer, what);
  const StderrCapture capture;
  if (on_device(scope, function) == 0) [[likely]] {
    scope.rethrow_if_pending();  // of a region whose function went on to the end
    return;
  }
  scope.rethrow_if_pending();
  const std::string reason = failure_text();
  if (reason.find("ZeroDivisionError") != std::string::npos) {
    throw InputError("an integer is divided by zero (// or % in the model)");
  }
  throw InternalError(
      str("generated code of '", code_->name(), "' failed to ", what, ": ", reason));
}

// What generated code says of its last failure: through its own interface, or on std::cerr.
std::string Container::failure_text() const {
  std::string printed = StderrCapture::take();
  const char* message = nullptr;
  if (functions_->last_error != nullptr && functions_->last_error(&message) == 0 &&
      message != nullptr && *message != '\0') {
    return message;
  }
  while (!printed.empty() && printed.back() == '\n') printed.pop_back();
  return printed.empty() ? "no reason given" : printed;
}

void Container::list_constants(CallScope& scope) {
  const ContainerFunctions& f = *functions_;
  if (f.num_constants == nullptr || f.constant_name == nullptr) return;
  size_t count = 0;
  call(scope, "count constants", [&] { return f.num_constants(handle_, &count); });
  for (size_t i = 0; i < count; ++i) {
    ContainerConstant constant;
    const char* name = nullptr;
    const char* fqn = nullptr;
    call(scope, "list constants", [&] {
      int32_t failed = f.constant_name(handle_, i, &name);
      if (f.constant_fqn != nullptr) failed |= f.constant_fqn(handle_, i, &fqn);
      if (f.constant_dtype != nullptr) failed |= f.constant_dtype(handle_, i, &constant.dtype);
      if (f.constant_nbytes != nullptr) failed |= f.constant_nbytes(handle_, i, &constant.nbytes);
      if (f.constant_folded != nullptr) {
        failed |= f.constant_folded(handle_, i, &constant.from_folded);
      }
      return failed;
    });
    needs_constants_ = needs_constants_ || !constant.from_folded;
    constant.name = name != nullptr ? name : "";
    constant.fqn = fqn != nullptr ? fqn : "";
    constants_.push_back(std::move(constant));
  }
}

void Container::check_unbound() const {
  if (bound_ || !bound_handles_.empty()) {
    throw InternalError(str("the constants of '", code_->name(), "' are bound already"));
  }
}

void Container::check_bindings(const std::vector<ConstantBinding>& bindings) const {
  std::unordered_map<std::string_view, const Tensor*> tensors;
  for (const ConstantBinding& binding : bindings) tensors.emplace(binding.name, &binding.tensor);
  std::vector<std::string> missing;
  for (const ContainerConstant& constant : constants_) {
    const auto found = tensors.find(constant.name);
    if (found == tensors.end()) {
      if (!constant.from_folded) missing.push_back(constant.fqn);
    } else if (functions_->constant_dtype != nullptr &&
               static_cast<int32_t>(found->second->dtype()) != constant.dtype) {
      throw WeightsError(str("constant '", constant.fqn, "' of '", code_->name(), "' has dtype ",
                             dtype_name(found->second->dtype()), ", the code expects torch's code ",
                             constant.dtype, "; load the weights that belong to this program"));
    }
  }
  if (!missing.empty()) {
    throw WeightsError(str("no value for the constants ", list_str(missing), " of '", code_->name(),
                           "'; load the weights that belong to this program"));
  }
}

void Container::bind(std::vector<ConstantBinding> bindings) {
  check_unbound();
  check_bindings(bindings);
  if (!needs_constants_) return;
  if (functions_->update_pairs == nullptr) {
    throw NotSupported(
        str("the code of '", code_->name(),
            "' cannot take separate constants (it has no "
            "AOTInductorModelContainerUpdateUserManagedConstantBufferPairs); export it with torch "
            "2.11 or later"));
  }
  std::vector<ConstantPair> pairs;
  pairs.reserve(bindings.size());
  bound_handles_.reserve(bindings.size());  // kept until the container is gone, also on failure
  for (ConstantBinding& binding : bindings) {
    bound_handles_.push_back(new_handle(std::move(binding.tensor)));
    pairs.push_back({binding.name.c_str(), bound_handles_.back()});
  }
  CallScope scope(device_, StreamRef(), *setup_memory_);
  // Generated code asks for a second handle of each constant and never frees it: it gets ours
  // again.
  const HandleReuse reuse;
  call(scope, "bind its constants",
       [&] { return functions_->update_pairs(handle_, pairs.data(), pairs.size(), false, false); });
  bound_ = true;
}

void Container::bind_blob(std::span<const std::byte> blob, std::shared_ptr<void> owner) {
  check_unbound();
  size_t needed = 0;
  for (const ContainerConstant& constant : constants_) {
    if (!constant.from_folded) needed += (constant.nbytes + 63) / 64 * 64;
  }
  if (needed == 0) return;
  if (blob.size() < needed) {
    throw WeightsError(str("the weights of '", code_->name(), "' have ", blob.size(),
                           " bytes, its ", constants_.size(), " constants take ", needed,
                           "; load the weights that belong to this program"));
  }
  if (functions_->update_from_blob == nullptr) {
    throw NotSupported(str("the code of '", code_->name(),
                           "' cannot take its constants as one "
                           "block (no AOTInductorModelUpdateConstantsFromBlob)"));
  }
  CallScope scope(device_, StreamRef(), *setup_memory_);
  call(scope, "load its constants", [&] {
    return functions_->update_from_blob(handle_, reinterpret_cast<const uint8_t*>(blob.data()));
  });
  // What was copied on the default stream is there for runs on any other.
  if (gpu_ != nullptr) gpu_->synchronize(StreamRef());
  blob_owner_ = std::move(owner);
  bound_ = true;
}

void Container::run(std::vector<Tensor>& inputs, std::vector<Tensor>& outputs, StreamRef stream,
                    Allocator& allocator) {
  if (inputs.size() != num_inputs_) {
    throw InternalError(
        str("'", code_->name(), "' takes ", num_inputs_, " inputs, got ", inputs.size()));
  }
  if (needs_constants_ && !bound_) {
    throw InternalError(str("the constants of '", code_->name(), "' are not bound yet"));
  }
  outputs.clear();
  HandleArray taken(num_inputs_);
  for (size_t i = 0; i < num_inputs_; ++i) taken.data()[i] = new_handle(std::move(inputs[i]));
  inputs.clear();
  HandleArray given(num_outputs_);
  CallScope scope(device_, stream, allocator);
  call(scope, "run", [&] {
    return functions_->run(handle_, taken.data(), num_inputs_, given.data(), num_outputs_,
                           stream.get(), nullptr);
  });
  outputs.reserve(num_outputs_);
  for (size_t i = 0; i < num_outputs_; ++i) {
    // The same handle in a later place becomes a second view of the same tensor.
    const AtenTensorHandle handle = given.data()[i];
    const auto before = std::find(given.data(), given.data() + i, handle) - given.data();
    if (handle != nullptr && before < static_cast<ptrdiff_t>(i)) {
      outputs.push_back(outputs[static_cast<size_t>(before)]);
    } else {
      outputs.push_back(handle != nullptr ? std::move(tensor_from(handle)) : Tensor());
    }
  }
}

int64_t Container::live_count() noexcept { return live_containers.load(); }

}  // namespace cudaexec

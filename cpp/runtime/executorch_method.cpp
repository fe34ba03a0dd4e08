#include "runtime/executorch_method.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "format/delegate_payload.h"

namespace cudaexec {
namespace {

constexpr std::string_view kCpuBackend = "AotiCpuBackend";
constexpr std::string_view kCudaBackend = "CudaBackend";
constexpr std::string_view kToGpu = "et_copy::_h2d_copy";
constexpr std::string_view kToHost = "et_copy::_d2h_copy";

template <typename ErrorType>
std::exception_ptr refusal(const std::string& message) {
  return std::make_exception_ptr(ErrorType(message));
}

Tree leaves(Tree::Kind kind, size_t count) {
  Tree tree;
  tree.kind = kind;
  tree.children.resize(count);
  for (Tree& child : tree.children) child.num_leaves = 1;
  tree.num_leaves = count;
  return tree;
}

class Describer {
 public:
  Describer(const PteFile& file, const PteMethod& method, std::map<std::string, BlobDigest>& blobs)
      : file_(file), method_(method), blobs_(blobs) {
    result_.spec.name = method.name;
    MethodSpec& spec = result_.spec;
    spec.in_tree.kind = Tree::Kind::kTuple;
    spec.in_tree.children = {leaves(Tree::Kind::kTuple, method.inputs.size()),
                             leaves(Tree::Kind::kDict, 0)};
    spec.in_tree.num_leaves = method.inputs.size();
    spec.out_tree = leaves(Tree::Kind::kTuple, method.outputs.size());
    if (method.outputs.size() == 1) spec.out_tree = Tree(spec.out_tree.children.front());
  }

  ProgramMethod describe() {
    if (collect_instructions()) {
      if (!delegate_) {
        describe_constant();
      } else {
        describe_delegate();
      }
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] std::string place() const {
    return str(file_.path(), ": method '", method_.name, "'");
  }
  template <typename ErrorType>
  void refuse(const std::string& why) {
    result_.refusal = refusal<ErrorType>(str(place(), " ", why));
  }

  /// A copy between host and GPU: its source and its destination. Nothing for other operators.
  [[nodiscard]] bool follow_copy(const PteKernelCall& call) {
    const PteOperator& op = method_.operators[call.op];
    const bool to_gpu = op.name == kToGpu;
    if ((!to_gpu && op.name != kToHost) || call.args.size() < 2) return false;
    const int32_t from = call.args.front();
    const int32_t to = call.args.back();
    if (to_gpu) {
      host_source_[to] = from;
    } else {
      gpu_source_[to] = from;
    }
    return true;
  }

  /// False, with a refusal, if there is anything but calls of one of our delegates.
  bool collect_instructions() {
    std::set<std::string> operators, delegates;
    size_t control = 0, calls = 0;
    for (const auto& chain : method_.chains) {
      for (const PteInstruction& instruction : chain) {
        if (const auto* kernel = std::get_if<PteKernelCall>(&instruction)) {
          if (follow_copy(*kernel)) continue;
          const PteOperator& op = method_.operators[kernel->op];
          operators.insert(op.overload.empty() ? std::string(op.name)
                                               : str(op.name, ".", op.overload));
        } else if (const auto* call = std::get_if<PteDelegateCall>(&instruction)) {
          delegates.insert(std::string(method_.delegates[call->delegate].id));
          delegate_ = call;
          ++calls;
        } else if (!std::holds_alternative<PteFree>(instruction)) {
          ++control;
        }
      }
    }
    on_gpu_ = delegates.erase(std::string(kCudaBackend)) != 0;
    delegates.erase(std::string(kCpuBackend));  // more than one call is refused below
    std::string needs;
    if (!delegates.empty()) needs += str("the delegates ", list_str(delegates));
    if (!operators.empty()) {
      needs += str(needs.empty() ? "" : " and ", "ExecuTorch's operators ", list_str(operators));
    }
    if (needs.empty() && (control != 0 || calls > 1)) {
      needs = calls > 1 ? str(calls, " delegate calls") : "ExecuTorch's control flow";
    }
    if (needs.empty() && !on_gpu_ && !(host_source_.empty() && gpu_source_.empty())) {
      needs = "ExecuTorch's copies between host and GPU around code for the CPU";
    }
    if (needs.empty()) return true;
    refuse<NotSupported>(str("needs ", needs, "; cudaexec runs methods that are one ", kCpuBackend,
                             " or ", kCudaBackend, " delegate; export the model with cudaexec"));
    return false;
  }

  [[nodiscard]] static std::optional<Scalar> scalar_of(const PteValue& value) {
    if (std::holds_alternative<std::monostate>(value)) return Scalar{};
    if (const auto* integer = std::get_if<int64_t>(&value)) return Scalar{*integer};
    if (const auto* truth = std::get_if<bool>(&value)) return Scalar{*truth};
    if (const auto* real = std::get_if<double>(&value)) return Scalar{*real};
    if (const auto* text = std::get_if<std::string_view>(&value)) {
      return Scalar{std::string(*text)};
    }
    return std::nullopt;
  }

  bool add_constant_output(size_t index) {
    auto value = scalar_of(method_.values[index]);
    if (!value) return false;
    OutputSpec output;
    output.kind = OutputSpec::Kind::kConstant;
    output.value = std::move(*value);
    result_.spec.outputs.push_back(std::move(output));
    return true;
  }

  void describe_constant() {
    result_.constant = true;
    bool plain = method_.inputs.empty();
    for (const int32_t value : method_.outputs) {
      plain = plain && add_constant_output(static_cast<size_t>(value));
    }
    if (!plain) refuse<NotSupported>("returns its inputs or constant tensors; it has no code");
  }

  /// Sizes and row-major or permuted strides. Nothing if the dtype is not supported.
  [[nodiscard]] static std::optional<TensorShape> shape_of(const PteTensor& tensor) {
    const auto dtype = dtype_from_code(tensor.scalar_type);
    if (!dtype) return std::nullopt;
    TensorShape shape;
    shape.dtype = *dtype;
    const size_t rank = tensor.sizes.size();
    std::vector<int64_t> strides(rank, 0);
    int64_t step = 1;
    for (size_t i = rank; i-- > 0;) {
      const size_t dim = tensor.dim_order.empty() ? i : tensor.dim_order[i];
      strides[dim] = step;
      step *= std::max<int64_t>(tensor.sizes[dim], 1);
    }
    // A dynamic size is taken as its bound: the file does not say which dimensions may vary, and
    // generated code does not check.
    for (const int32_t size : tensor.sizes) shape.sizes.emplace_back(int64_t{size});
    for (const int64_t stride : strides) shape.strides.emplace_back(stride);
    return shape;
  }

  void describe_delegate() {
    const PteDelegate& delegate = method_.delegates[delegate_->delegate];
    const std::string_view name = delegate.spec("method_name").value_or(method_.name);
    const DelegatePayload payload = decode_delegate_payload(
        delegate.processed.bytes, name, file_.path(), delegate.processed.file_offset);
    for (const PayloadVariant& each : payload.variants) {
      CodeVariant variant;
      variant.target = on_gpu_ ? "cuda" : "cpu";
      variant.code = each.so_key;
      if (on_gpu_) {
        variant.sm = static_cast<int32_t>(each.target_sm);
        variant.ptx = static_cast<int32_t>(each.ptx_compute);
        variant.fallback_only = each.fallback_only;
      }
      result_.spec.variants.push_back(std::move(variant));
      if (!on_gpu_) break;  // a CPU payload names its baseline code first
    }
    if (!describe_inputs() || !describe_outputs()) {
      refuse<NotSupported>(
          str("passes values to its delegate that are neither tensor inputs nor "
              "outputs, or whose dtype is not supported"));
      return;
    }
    if (!describe_constants(payload)) {
      refuse<NotSupported>("has weights whose dtype is not supported");
    }
  }

  /// The place of the delegate's argument that is `value`, or a copy from it (`sources`).
  [[nodiscard]] size_t argument_of(int32_t value, size_t first,
                                   const std::map<int32_t, int32_t>& sources) const {
    const auto& args = delegate_->args;
    for (size_t i = first; i < args.size(); ++i) {
      const auto source = sources.find(args[i]);
      if (args[i] == value || (source != sources.end() && source->second == value)) return i;
    }
    return args.size();
  }

  bool describe_inputs() {
    const auto& args = delegate_->args;
    for (size_t i = 0; i < method_.inputs.size(); ++i) {
      const int32_t index = method_.inputs[i];
      const PteValue& value = method_.values[static_cast<size_t>(index)];
      InputSpec input;
      input.name = str("arg", i);
      if (const auto* tensor = std::get_if<PteTensor>(&value)) {
        auto shape = shape_of(*tensor);
        input.graph_input = argument_of(index, 0, host_source_);
        if (!shape || input.graph_input == args.size()) return false;
        input.tensor = std::move(*shape);
        input.tensor.device_type = on_gpu_ ? 1 : 0;
        result_.spec.num_graph_inputs =
            std::max(result_.spec.num_graph_inputs, input.graph_input + 1);
      } else {
        auto scalar = scalar_of(value);
        if (!scalar || argument_of(index, 0, {}) != args.size()) return false;
        input.kind = InputSpec::Kind::kConstant;
        input.value = std::move(*scalar);
      }
      result_.spec.inputs.push_back(std::move(input));
    }
    return true;
  }

  bool describe_outputs() {
    const auto& args = delegate_->args;
    const size_t first = result_.spec.num_graph_inputs;
    result_.spec.num_graph_outputs = args.size() - first;
    for (const int32_t index : method_.outputs) {
      const auto* tensor = std::get_if<PteTensor>(&method_.values[static_cast<size_t>(index)]);
      if (tensor == nullptr) {
        if (!add_constant_output(static_cast<size_t>(index))) return false;
        continue;
      }
      const auto shape = shape_of(*tensor);
      const auto copied = gpu_source_.find(index);
      const size_t found =
          argument_of(copied != gpu_source_.end() ? copied->second : index, first, {});
      if (!shape || found == args.size()) return false;
      OutputSpec output;
      output.tensor = *shape;
      output.tensor.device_type = on_gpu_ ? 1 : 0;
      output.graph_output = found - first;
      result_.spec.outputs.push_back(std::move(output));
    }
    return true;
  }

  bool describe_constants(const DelegatePayload& payload) {
    if (payload.layout == PayloadLayout::kKeys || payload.layout == PayloadLayout::kEmpty) {
      result_.dense = true;
      ConstantSpec blob;  // no name: the container lays its constants out in it
      blob.storage_key = payload.weights_key;
      blob.dtype = Dtype::kUint8;
      blob.sizes = {0};
      blob.strides = {1};
      blobs_[blob.storage_key] = {kUnrecordedSize, {}};
      result_.spec.constants.push_back(std::move(blob));
      return true;
    }
    for (const PayloadConstant& constant : payload.constants) {
      const auto dtype = dtype_from_code(constant.dtype);
      if (!dtype) return false;
      ConstantSpec spec;
      spec.fqn = constant.fqn;
      spec.storage_key = constant.storage_key;
      spec.dtype = *dtype;
      spec.sizes = constant.sizes;
      spec.strides = constant.strides;
      spec.offset = constant.offset;
      spec.device_type = constant.device;
      blobs_[spec.storage_key] = {constant.storage_nbytes, {}};
      result_.spec.constants.push_back(std::move(spec));
    }
    return true;
  }

  const PteFile& file_;
  const PteMethod& method_;
  std::map<std::string, BlobDigest>& blobs_;
  ProgramMethod result_;
  const PteDelegateCall* delegate_ = nullptr;
  bool on_gpu_ = false;
  std::map<int32_t, int32_t>
      host_source_;  // value on the GPU -> value on the host it is copied from
  std::map<int32_t, int32_t> gpu_source_;  // value on the host -> value on the GPU
};

}  // namespace

ProgramMethod describe_executorch_method(const PteFile& file, const PteMethod& method,
                                         std::map<std::string, BlobDigest>& blobs) {
  return Describer(file, method, blobs).describe();
}

}  // namespace cudaexec

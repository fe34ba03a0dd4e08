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

  /// False, with a refusal, if there is anything but calls of one of our delegates.
  bool collect_instructions() {
    std::set<std::string> operators, delegates;
    size_t control = 0, calls = 0;
    for (const auto& chain : method_.chains) {
      for (const PteInstruction& instruction : chain) {
        if (const auto* kernel = std::get_if<PteKernelCall>(&instruction)) {
          const PteOperator& op = method_.operators[kernel->op];
          operators.insert(op.overload.empty() ? std::string(op.name)
                                               : str(op.name, ".", op.overload));
        } else if (const auto* call = std::get_if<PteDelegateCall>(&instruction)) {
          delegates.insert(std::string(method_.delegates[call->delegate].id));
          delegate_ = call;
          ++calls;
        } else {
          ++control;
        }
      }
    }
    if (delegates.contains(std::string(kCudaBackend))) {
      refuse<TargetError>(str("holds code for NVIDIA GPUs (delegate ", kCudaBackend,
                              "); this build of cudaexec runs CPU programs"));
      return false;
    }
    delegates.erase(std::string(kCpuBackend));
    std::string needs;
    if (!delegates.empty()) needs += str("the delegates ", list_str(delegates));
    if (!operators.empty()) {
      needs += str(needs.empty() ? "" : " and ", "ExecuTorch's operators ", list_str(operators));
    }
    if (needs.empty() && (control != 0 || calls > 1)) {
      needs = calls > 1 ? str(calls, " delegate calls") : "ExecuTorch's control flow";
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
    CodeVariant variant;
    variant.target = "cpu";
    variant.code = payload.variants.front().so_key;
    result_.spec.variants.push_back(std::move(variant));
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

  bool describe_inputs() {
    const auto& args = delegate_->args;
    for (size_t i = 0; i < method_.inputs.size(); ++i) {
      const int32_t index = method_.inputs[i];
      const PteValue& value = method_.values[static_cast<size_t>(index)];
      InputSpec input;
      input.name = str("arg", i);
      if (const auto* tensor = std::get_if<PteTensor>(&value)) {
        const auto shape = shape_of(*tensor);
        const auto found = std::find(args.begin(), args.end(), index);
        if (!shape || found == args.end()) return false;
        input.tensor = *shape;
        input.graph_input = static_cast<size_t>(found - args.begin());
        result_.spec.num_graph_inputs =
            std::max(result_.spec.num_graph_inputs, input.graph_input + 1);
      } else {
        auto scalar = scalar_of(value);
        if (!scalar || std::find(args.begin(), args.end(), index) != args.end()) return false;
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
      const auto found =
          std::find(args.begin() + static_cast<std::ptrdiff_t>(first), args.end(), index);
      if (!shape || found == args.end()) return false;
      OutputSpec output;
      output.tensor = *shape;
      output.graph_output = static_cast<size_t>(found - args.begin()) - first;
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
};

}  // namespace

ProgramMethod describe_executorch_method(const PteFile& file, const PteMethod& method,
                                         std::map<std::string, BlobDigest>& blobs) {
  return Describer(file, method, blobs).describe();
}

}  // namespace cudaexec

#include "ops/convolution.h"

#include "ops/convolution_engine.h"
#include "ops/operand.h"

namespace cudaexec::ops {
namespace {

constexpr const char* kOp = "convolution";

int64_t option_at(const char* name, std::span<const int64_t> values, size_t axis, int64_t spatial,
                  int64_t least) {
  if (values.size() != 1 && values.size() != static_cast<size_t>(spatial)) {
    throw ShapeError(
        str(kOp, ": ", name, " is ", list_str(values), "; expected ", spatial, " numbers or one"));
  }
  const int64_t value = values.size() == 1 ? values[0] : values[axis];
  if (value >= least) return value;
  throw ShapeError(
      str(kOp, ": ", name, " is ", list_str(values), "; expected no number below ", least));
}

/// Sizes and strides of a tensor as [first, second, D, H, W].
void read_axes(const Tensor& t, std::array<int64_t, 5>& strides, ConvolutionProblem::Axes& sizes) {
  const size_t spatial = t.sizes().size() - 2;
  strides = {t.stride(0), t.stride(1), 0, 0, 0};
  sizes = {1, 1, 1};
  for (size_t i = 0; i < spatial; ++i) {
    strides[5 - spatial + i] = t.stride(2 + i);
    sizes[3 - spatial + i] = t.size(2 + i);
  }
}

void check_operands(const Tensor& input, const Tensor& weight, const Tensor* bias,
                    const ConvolutionOptions& options) {
  const int64_t rank = weight.dim();
  if (rank < 3 || rank > 5) {
    throw ShapeError(str(kOp, ": weight is ", describe(weight), "; expected 3 to 5 dimensions"));
  }
  require_rank(kOp, "input", input, rank);
  require_same_dtype(kOp, "input", input, "weight", weight);
  if (input.dtype() == Dtype::kBool) throw DtypeError(str(kOp, ": bool has no products"));
  const int64_t groups = options.groups;
  const int64_t channels = options.transposed ? weight.size(0) : weight.size(1) * groups;
  if (groups < 1 || weight.size(0) % groups != 0 || input.size(1) != channels) {
    throw ShapeError(str(kOp, ": input ", describe(input), " and weight ", describe(weight),
                         " do not fit ", groups, " groups; expected ", channels,
                         " input channels"));
  }
  if (bias == nullptr) return;
  require_same_dtype(kOp, "input", input, "bias", *bias);
  const int64_t outputs = options.transposed ? weight.size(1) * groups : weight.size(0);
  if (bias->dim() != 1 || bias->size(0) != outputs) {
    throw ShapeError(str(kOp, ": bias is ", describe(*bias), "; expected ", outputs, " elements"));
  }
}

void read_options(const ConvolutionOptions& options, ConvolutionProblem& p) {
  p.stride = p.dilation = {1, 1, 1};
  p.padding = {0, 0, 0};
  p.out = {1, 1, 1};
  for (int64_t i = 0; i < p.spatial; ++i) {
    const auto axis = static_cast<size_t>(3 - p.spatial + i);
    const auto at = static_cast<size_t>(i);
    p.stride[axis] = option_at("stride", options.stride, at, p.spatial, 1);
    p.dilation[axis] = option_at("dilation", options.dilation, at, p.spatial, 1);
    p.padding[axis] = option_at("padding", options.padding, at, p.spatial, 0);
    const int64_t reach = p.dilation[axis] * (p.kernel[axis] - 1);
    int64_t size = 0;
    if (p.transposed) {
      const int64_t extra = option_at("output_padding", options.output_padding, at, p.spatial, 0);
      if (extra >= p.stride[axis] && extra >= p.dilation[axis]) {
        throw ShapeError(str(kOp, ": output_padding is ", list_str(options.output_padding),
                             "; expected less than the stride or the dilation"));
      }
      size = (p.in[axis] - 1) * p.stride[axis] - 2 * p.padding[axis] + reach + extra + 1;
    } else {
      const int64_t room = p.in[axis] + 2 * p.padding[axis] - reach - 1;
      size = room < 0 ? 0 : room / p.stride[axis] + 1;
    }
    if (size <= 0 || p.kernel[axis] <= 0) {
      throw ShapeError(str(kOp, ": spatial dimension ", i, " of size ", p.in[axis], " with kernel ",
                           p.kernel[axis], ", padding ", p.padding[axis], ", dilation ",
                           p.dilation[axis], " has no output; expected a larger input"));
    }
    p.out[axis] = size;
  }
}

/// [N, C, L] as [N, C, 1, L], which is how torch looks at it.
Tensor as_images(const Tensor& t) {
  return t.view(Dims{t.size(0), t.size(1), 1, t.size(2)},
                Dims{t.stride(0), t.stride(1), t.size(2) * t.stride(2), t.stride(2)}, t.offset());
}

/// Whether torch computes [N, C, D, H, W] by oneDNN, which alone keeps channels last there.
bool volumes_keep_format(const Tensor& input, const Tensor& weight, int64_t groups) {
  if (input.dtype() == Dtype::kBfloat16) return true;
  if (input.dtype() != Dtype::kFloat32) return false;
  return groups > 1 || input.size(0) > 1 || (weight.size(4) > 3 && weight.size(3) > 3) ||
         input.size(0) * input.size(1) * input.size(2) * input.size(3) > 20480;
}

void require_cpu(const Tensor& input, const Tensor& weight, const Tensor* bias) {
  for (const auto& [name, t] : {std::pair("input", &input), {"weight", &weight}, {"bias", bias}}) {
    if (t == nullptr || t->device().is_cpu()) continue;
    throw DeviceError(
        str(kOp, ": ", name, " is on ", to_string(t->device()), "; expected the CPU"));
  }
}

}  // namespace

Dims convolution_strides(const Tensor& input, const Tensor& weight, bool volumes_keep_format,
                         const Dims& sizes) {
  if (input.dim() == 3) {
    const bool last =
        weight.numel() != 0 && memory_format(as_images(weight)) == MemoryFormat::kChannelsLast;
    return last ? Dims{sizes[1] * sizes[2], 1, sizes[1]} : contiguous_strides(sizes);
  }
  const MemoryFormat last =
      input.dim() == 4 ? MemoryFormat::kChannelsLast : MemoryFormat::kChannelsLast3d;
  const bool is_last = memory_format(input) == last || memory_format(weight) == last;
  const bool keeps = input.dim() == 4 || volumes_keep_format;
  return strides_in(is_last && keeps ? last : MemoryFormat::kContiguous, sizes);
}

Dims plan_convolution(const Tensor& input, const Tensor& weight, const Tensor* bias,
                      const ConvolutionOptions& options, ConvolutionProblem& p) {
  check_operands(input, weight, bias, options);
  p.dtype = input.dtype();
  p.transposed = options.transposed;
  p.spatial = input.dim() - 2;
  p.batch = input.size(0);
  p.groups = options.groups;
  p.in_channels = input.size(1);
  p.out_channels = options.transposed ? weight.size(1) * p.groups : weight.size(0);
  read_axes(input, p.in_strides, p.in);
  read_axes(weight, p.weight_strides, p.kernel);
  read_options(options, p);

  Dims sizes(static_cast<size_t>(input.dim()));
  sizes[0] = p.batch;
  sizes[1] = p.out_channels;
  for (size_t i = 2; i < sizes.size(); ++i) sizes[i] = p.out[i + 3 - sizes.size()];
  return sizes;
}

void set_convolution_output(ConvolutionProblem& p, const Tensor& output) {
  ConvolutionProblem::Axes unused;
  read_axes(output, p.out_strides, unused);
  p.output = output.data();
}

namespace {

Tensor convolve_batch(ConvolutionEngine engine, const Tensor& input, const Tensor& weight,
                      const Tensor* bias, const ConvolutionOptions& options,
                      const OpContext& context) {
  ConvolutionProblem p{};
  const Dims sizes = plan_convolution(input, weight, bias, options, p);
  require_cpu(input, weight, bias);
  const Dims strides = convolution_strides(
      input, weight, input.dim() == 5 && volumes_keep_format(input, weight, p.groups), sizes);
  Tensor output = empty_strided(sizes, strides, p.dtype, context);
  if (output.numel() == 0) return output;
  set_convolution_output(p, output);

  const Tensor packed_bias = bias != nullptr ? contiguous(*bias, context) : Tensor();
  p.input = input.data();
  p.weight = weight.data();
  p.bias = bias != nullptr ? packed_bias.data() : nullptr;
  p.constant = weight.storage()->is_constant() ? weight.storage().get() : nullptr;
  p.weight_offset = weight.offset();
  run_convolution(engine, p, context);
  return output;
}

}  // namespace

Tensor convolve_with_batch(const Tensor& input, const Tensor& weight,
                           const std::function<Tensor(const Tensor& batch)>& convolve) {
  if (input.dim() != weight.dim() - 1) return convolve(input);
  Dims sizes(input.sizes().size() + 1, 1), strides(input.sizes().size() + 1);
  strides[0] = input.numel();
  for (size_t i = 0; i < input.sizes().size(); ++i) {
    sizes[i + 1] = input.size(i);
    strides[i + 1] = input.stride(i);
  }
  const Tensor result = convolve(input.view(sizes, strides, input.offset()));
  return result.view(std::span(result.sizes()).subspan(1), std::span(result.strides()).subspan(1),
                     0);
}

Tensor convolution_by(ConvolutionEngine engine, const Tensor& input, const Tensor& weight,
                      const Tensor* bias, const ConvolutionOptions& options,
                      const OpContext& context) {
  return convolve_with_batch(input, weight, [&](const Tensor& batch) {
    return convolve_batch(engine, batch, weight, bias, options, context);
  });
}

Tensor convolution(const Tensor& input, const Tensor& weight, const Tensor* bias,
                   const ConvolutionOptions& options, const OpContext& context) {
  return convolution_by(ConvolutionEngine::kBest, input, weight, bias, options, context);
}

}  // namespace cudaexec::ops

#include "ops/convolution_engine.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "ops/gemm_integer.h"
#include "ops/onednn_loader.h"

namespace cudaexec::ops {
namespace {

bool is_pointwise(const ConvolutionProblem& p) {
  const auto all = [](const ConvolutionProblem::Axes& axes, int64_t value) {
    return axes == ConvolutionProblem::Axes{value, value, value};
  };
  return p.groups == 1 && p.taps() == 1 && all(p.stride, 1) && all(p.padding, 0) && p.in == p.out;
}

/// The stride between neighbouring positions, or 0 if they are not evenly spaced.
int64_t position_stride(const std::array<int64_t, 5>& strides,
                        const ConvolutionProblem::Axes& sizes) {
  int64_t expected = 0, step = 0;
  for (size_t i = 3; i-- > 0;) {
    if (sizes[i] == 1) continue;
    if (step == 0) step = expected = strides[i + 2];
    if (strides[i + 2] != expected) return 0;
    expected *= sizes[i];
  }
  return step == 0 ? 1 : step;
}

}  // namespace

bool convolve_pointwise(const ConvolutionProblem& p, const OpContext& context) {
  if (!is_pointwise(p)) return false;
  const int64_t in_step = position_stride(p.in_strides, p.in);
  const int64_t out_step = position_stride(p.out_strides, p.out);
  if (in_step == 0 || out_step == 0) return false;
  GemmProblem g;
  g.dtype = p.dtype;
  g.k = p.in_channels;
  g.batch = p.batch;
  const int64_t positions = p.positions_in();
  const size_t in_axis = p.transposed ? 0 : 1;  // of the weight
  const GemmOperand weight{const_cast<void*>(p.weight),   0,          p.weight_strides[in_axis],
                           p.weight_strides[1 - in_axis], p.constant, p.weight_offset};
  const GemmOperand input{const_cast<void*>(p.input), p.in_strides[0], in_step, p.in_strides[1]};
  const GemmOperand output{p.output, p.out_strides[0], out_step, p.out_strides[1]};
  const GemmOperand bias{const_cast<void*>(p.bias), 0, 0, 1};
  g.a = input;
  g.b = weight;
  g.out = output;
  g.add = bias;
  g.m = positions;
  g.n = p.out_channels;
  if (out_step != 1 || p.out_channels == 1) {  // channels last: rows of channels, batches in a row
    if (p.in_strides[0] == positions * in_step && p.out_strides[0] == positions * out_step) {
      g.m *= p.batch;
      g.batch = 1;
    }
  } else {  // planes of positions: the transposed product, whose rows are contiguous
    for (GemmOperand* operand : {&g.a, &g.b, &g.out, &g.add}) {
      std::swap(operand->row_stride, operand->col_stride);
    }
    std::swap(g.a, g.b);
    std::swap(g.m, g.n);
    g.a.constant = nullptr;
  }
  multiply_matrices(g, context);
  return true;
}

ConvolutionEngine convolution_engine(const char* name) {
  const std::string wanted = name;
  if (wanted == "best") return ConvolutionEngine::kBest;
  if (wanted == "matrix") return ConvolutionEngine::kMatrix;
  if (wanted == "onednn") return ConvolutionEngine::kOnednn;
  if (wanted == "gathered") return ConvolutionEngine::kGathered;
  throw InputError(str("convolution engine '", wanted,
                       "' is unknown; expected best, matrix, onednn or gathered"));
}

void run_convolution(ConvolutionEngine engine, const ConvolutionProblem& problem,
                     const OpContext& context) {
  const bool any = engine == ConvolutionEngine::kBest;
  if ((any || engine == ConvolutionEngine::kMatrix) && convolve_pointwise(problem, context)) return;
  if (any || engine == ConvolutionEngine::kOnednn) {
    const OnednnFunctions* onednn = onednn_functions();
    if (onednn != nullptr && onednn->convolve(problem, context)) return;
  }
  if (any || engine == ConvolutionEngine::kGathered) return convolve_gathered(problem, context);
  throw NotSupported("convolution: the engine asked for has no kernel for this problem");
}

}  // namespace cudaexec::ops

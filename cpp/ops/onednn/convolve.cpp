#include "ops/onednn/convolve.h"

#include <unordered_map>

#include "base/error.h"
#include "base/str.h"
#include "ops/gemm_plan.h"
#include "ops/onednn/prepared.h"
#include "ops/onednn/weights.h"
#include "ops/scratch.h"

namespace cudaexec::ops::onednn {
namespace {

using dnnl::memory;

/// Parts of one block of scratch memory.
class Layout {
 public:
  /// Returns where `nbytes` bytes go.
  size_t add(size_t nbytes) {
    const size_t at = total_;
    total_ += (nbytes + kDefaultAlignment - 1) / kDefaultAlignment * kDefaultAlignment;
    return at;
  }
  [[nodiscard]] size_t total() const noexcept { return total_; }

 private:
  size_t total_ = 0;
};

void execute(const PreparedConvolution& prepared, const ConvolutionProblem& p,
             const OpContext& context) {
  Layout layout;
  const bool new_weights = needs_room(p, prepared.weights);
  const size_t pad_at = layout.add(prepared.scratchpad.get_size());
  const size_t weights_at = layout.add(new_weights ? prepared.weights.get_size() : 0);
  const size_t source_at = layout.add(prepared.source_reorder ? prepared.source.get_size() : 0);
  const size_t result_at = layout.add(prepared.result_reorder ? prepared.result.get_size() : 0);
  Scratch scratch(layout.total(), context);

  const dnnl::engine& engine = cpu_engine();
  dnnl::stream stream(engine);
  void* weights = weights_as(p, prepared.weights, scratch.data() + weights_at);
  memory source(prepared.source_given, engine, const_cast<void*>(p.input));
  memory result(prepared.result_given, engine, p.output);
  memory inner_source = source, inner_result = result;
  if (prepared.source_reorder) {
    inner_source = memory(prepared.source, engine, scratch.data() + source_at);
    prepared.source_reorder->execute(stream, source, inner_source);
  }
  if (prepared.result_reorder) {
    inner_result = memory(prepared.result, engine, scratch.data() + result_at);
  }
  std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC, inner_source},
      {DNNL_ARG_WEIGHTS, memory(prepared.weights, engine, weights)},
      {DNNL_ARG_DST, inner_result},
      {DNNL_ARG_SCRATCHPAD, memory(prepared.scratchpad, engine, scratch.data() + pad_at)}};
  if (p.bias != nullptr) {
    arguments.emplace(DNNL_ARG_BIAS, memory(prepared.bias, engine, const_cast<void*>(p.bias)));
  }
  prepared.convolution.execute(stream, arguments);
  if (prepared.result_reorder) prepared.result_reorder->execute(stream, inner_result, result);
}

}  // namespace

bool convolve(const ConvolutionProblem& problem, const OpContext& context) {
  const bool has_kernels = problem.dtype == Dtype::kFloat32 || problem.dtype == Dtype::kBfloat16 ||
                           problem.dtype == Dtype::kFloat16;
  if (!has_kernels) return false;
  try {
    const auto prepared = prepare(problem);
    if (prepared == nullptr) return false;
    execute(*prepared, problem, context);
    return true;
  } catch (const dnnl::error& error) {
    const std::string what = str("convolution by oneDNN: ", error.what(), " (status ", error.status,
                                 ") for ", problem.batch, " images of ", problem.in_channels,
                                 " channels, kernel ", list_str(problem.kernel));
    if (error.status == dnnl_out_of_memory) throw OutOfMemory(what);
    throw InternalError(what);
  }
}

}  // namespace cudaexec::ops::onednn

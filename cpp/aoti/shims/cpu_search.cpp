// Binary search, histograms and distances: what generated code calls.
#include "aoti/shims/fence.h"
#include "aoti/shims/operands.h"
#include "ops/distance.h"
#include "ops/search.h"

using cudaexec::AtenTensorHandle;
using cudaexec::current_op_context;
using cudaexec::tensor_from;
namespace ops = cudaexec::ops;
namespace shims = cudaexec::shims;

CUDAEXEC_SHIM int32_t aoti_torch_cpu_bucketize_Tensor(AtenTensorHandle self,
                                                      AtenTensorHandle boundaries,
                                                      int32_t out_int32, int32_t right,
                                                      AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  const cudaexec::Tensor& edges = tensor_from(boundaries);
  if (edges.dim() != 1) {
    throw cudaexec::ShapeError(
        cudaexec::str("bucketize: boundaries are ", describe(edges), "; expected 1 dimension"));
  }
  const ops::SearchOptions options{out_int32 != 0, right != 0, nullptr};
  shims::give({ret0}, ops::searchsorted(edges, tensor_from(self), options, current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_searchsorted_Tensor(AtenTensorHandle sorted_sequence,
                                                         AtenTensorHandle self, int32_t out_int32,
                                                         int32_t right, const char** side,
                                                         AtenTensorHandle* sorter,
                                                         AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  const ops::SearchOptions options{out_int32 != 0,
                                   ops::search_right(right != 0, side == nullptr ? nullptr : *side),
                                   shims::optional_tensor(sorter)};
  shims::give({ret0}, ops::searchsorted(tensor_from(sorted_sequence), tensor_from(self), options,
                                        current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_searchsorted_Scalar(AtenTensorHandle sorted_sequence,
                                                         double self, int32_t out_int32,
                                                         int32_t right, const char** side,
                                                         AtenTensorHandle* sorter,
                                                         AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  const ops::SearchOptions options{out_int32 != 0,
                                   ops::search_right(right != 0, side == nullptr ? nullptr : *side),
                                   shims::optional_tensor(sorter)};
  shims::give({ret0}, ops::searchsorted_value(tensor_from(sorted_sequence), self, options,
                                              current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_histc(AtenTensorHandle self, int64_t bins, double min,
                                           double max, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::histc(tensor_from(self), bins, min, max, current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_histogram_bin_ct(AtenTensorHandle self, int64_t bins,
                                                      const double** range, int64_t range_len_,
                                                      AtenTensorHandle* weight, int32_t density,
                                                      AtenTensorHandle* ret0,
                                                      AtenTensorHandle* ret1) {
  CUDAEXEC_SHIM_BEGIN
  ops::HistogramOptions options;
  if (range != nullptr && *range != nullptr) {
    if (range_len_ != 2) {
      throw cudaexec::InputError(
          cudaexec::str("histogram: range has ", range_len_, " values; expected 2"));
    }
    options.range = *range;
  }
  options.weight = shims::optional_tensor(weight);
  options.density = density != 0;
  auto [counts, edges] = ops::histogram(tensor_from(self), bins, options, current_op_context());
  shims::give({ret0, ret1}, std::move(counts), std::move(edges));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu__cdist_forward(AtenTensorHandle x1, AtenTensorHandle x2,
                                                    double p, int64_t* compute_mode,
                                                    AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  const auto mode = static_cast<ops::CdistMode>(compute_mode == nullptr ? 0 : *compute_mode);
  shims::give({ret0}, ops::cdist(tensor_from(x1), tensor_from(x2), p, mode, current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu__pdist_forward(AtenTensorHandle self, double p,
                                                    AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::give({ret0}, ops::pdist(tensor_from(self), p, current_op_context()));
  CUDAEXEC_SHIM_END
}

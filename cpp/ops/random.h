// Random numbers: filling tensors from a RandomState. Sequences are ours, not torch's; the same
// state gives the same numbers however many threads compute them.
#pragma once

#include <utility>

#include "base/export.h"
#include "ops/op_context.h"
#include "ops/random_state.h"
#include "tensor/tensor.h"

namespace cudaexec::ops {

/// Evenly in [low, high), in steps of the dtype's precision; floating point.
CUDAEXEC_API void fill_uniform(const Tensor& out, double low, double high, RandomState& state,
                               const OpContext& context);
/// @throws InputError for a negative or NaN `std`.
CUDAEXEC_API void fill_normal(const Tensor& out, double mean, double std, RandomState& state,
                              const OpContext& context);
/// Whole numbers of [low, high), of any dtype. @throws InputError unless low < high.
CUDAEXEC_API void fill_integers(const Tensor& out, int64_t low, int64_t high, RandomState& state,
                                const OpContext& context);
/// Density lambda * exp(-lambda x). @throws InputError unless lambda > 0.
CUDAEXEC_API void fill_exponential(const Tensor& out, double lambda, RandomState& state,
                                   const OpContext& context);
/// 1 with probability p, else 0. @throws InputError unless 0 <= p <= 1.
CUDAEXEC_API void fill_bernoulli(const Tensor& out, double p, RandomState& state,
                                 const OpContext& context);
/// As above with a probability per element; `p` is floating point and broadcasts to `out`.
CUDAEXEC_API void fill_bernoulli(const Tensor& out, const Tensor& p, RandomState& state,
                                 const OpContext& context);
/// A random order of 0 .. n - 1, of `dtype`.
CUDAEXEC_API Tensor randperm(int64_t n, Dtype dtype, RandomState& state, const OpContext& context);
/// input * mask / (1 - p) and the mask (bool), 1 with probability 1 - p; a copy and all ones unless
/// `train`.
CUDAEXEC_API std::pair<Tensor, Tensor> dropout(const Tensor& input, double p, bool train,
                                               RandomState& state, const OpContext& context);

}  // namespace cudaexec::ops

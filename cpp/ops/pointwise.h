// Element-wise operators. Operands broadcast; results have torch's dtype and strides.
#pragma once

#include "base/export.h"
#include "ops/op_context.h"
#include "tensor/tensor.h"

namespace cudaexec::ops {

CUDAEXEC_API Tensor add(const Tensor& self, const Tensor& other, double alpha,
                        const OpContext& context);
/// A number beside integers makes the result float32, here and below.
CUDAEXEC_API Tensor add(const Tensor& self, double other, double alpha, const OpContext& context);
CUDAEXEC_API Tensor mul(const Tensor& self, const Tensor& other, const OpContext& context);
CUDAEXEC_API Tensor mul(const Tensor& self, double other, const OpContext& context);
CUDAEXEC_API Tensor pow(const Tensor& self, const Tensor& exponent, const OpContext& context);
CUDAEXEC_API Tensor pow(const Tensor& self, double exponent, const OpContext& context);
CUDAEXEC_API Tensor pow(double self, const Tensor& exponent, const OpContext& context);
/// Greatest common divisor, not negative; integers only.
CUDAEXEC_API Tensor gcd(const Tensor& self, const Tensor& other, const OpContext& context);
/// Not for bool.
CUDAEXEC_API Tensor abs(const Tensor& self, const OpContext& context);
/// pi where self < 0, else 0; NaN stays. Integers give float32.
CUDAEXEC_API Tensor angle(const Tensor& self, const OpContext& context);

}  // namespace cudaexec::ops

// Random numbers: what generated code calls. They come from the current RandomState; programs
// cannot hold a generator of their own, so a generator argument is refused.
#include <algorithm>

#include "aoti/shims/fence.h"
#include "aoti/shims/operands.h"
#include "ops/operand.h"
#include "ops/random.h"

extern "C" {
struct AtenGeneratorOpaque;
using AtenGeneratorHandle = AtenGeneratorOpaque*;
}

using cudaexec::AtenTensorHandle;
using cudaexec::current_op_context;
using cudaexec::Dtype;
using cudaexec::OpContext;
using cudaexec::RandomState;
using cudaexec::Tensor;
using cudaexec::tensor_from;
namespace ops = cudaexec::ops;
namespace shims = cudaexec::shims;

namespace {

void refuse_generator(const AtenGeneratorHandle* generator) {
  if (generator != nullptr && *generator != nullptr) {
    throw cudaexec::NotSupported(
        "a random operator was given a torch.Generator; seed the module with manual_seed instead");
  }
}

enum class Kind { kUniform, kNormal };

void fill(Kind kind, const Tensor& out, const OpContext& context) {
  if (kind == Kind::kUniform) {
    ops::fill_uniform(out, 0, 1, RandomState::current(), context);
  } else {
    ops::fill_normal(out, 0, 1, RandomState::current(), context);
  }
}

Tensor new_tensor(std::span<const int64_t> sizes, const int32_t* dtype, const int32_t* device,
                  Dtype fallback, const OpContext& context) {
  shims::require_cpu(device);
  for (const int64_t size : sizes) {
    if (size < 0) {
      throw cudaexec::ShapeError(
          cudaexec::str("a random tensor of sizes ", cudaexec::list_str(sizes)));
    }
  }
  return ops::empty(sizes, shims::optional_dtype(dtype).value_or(fallback), context);
}

// torch's codes: 0 contiguous, 1 preserve, 2 and 3 channels last.
Tensor new_like(const Tensor& self, const int32_t* dtype, const int32_t* device,
                const int32_t* memory_format, const OpContext& context) {
  shims::require_cpu(device);
  const int32_t format = memory_format == nullptr ? 1 : *memory_format;
  const cudaexec::Dims strides =
      format == 1   ? ops::strides_like(self)
      : format == 2 ? ops::strides_in(ops::MemoryFormat::kChannelsLast, self.sizes())
      : format == 3 ? ops::strides_in(ops::MemoryFormat::kChannelsLast3d, self.sizes())
                    : cudaexec::contiguous_strides(self.sizes());
  return ops::empty_strided(self.sizes(), strides,
                            shims::optional_dtype(dtype).value_or(self.dtype()), context);
}

void give_new(Kind kind, std::span<const int64_t> sizes, const int32_t* dtype,
              const int32_t* device, AtenTensorHandle* ret0) {
  const OpContext context = current_op_context();
  Tensor out = new_tensor(sizes, dtype, device, Dtype::kFloat32, context);
  fill(kind, out, context);
  shims::give({ret0}, std::move(out));
}

void give_like(Kind kind, AtenTensorHandle self, const int32_t* dtype, const int32_t* device,
               const int32_t* memory_format, AtenTensorHandle* ret0) {
  const OpContext context = current_op_context();
  Tensor out = new_like(tensor_from(self), dtype, device, memory_format, context);
  fill(kind, out, context);
  shims::give({ret0}, std::move(out));
}

void give_integers(int64_t low, int64_t high, Tensor out, const OpContext& context,
                   AtenTensorHandle* ret0) {
  ops::fill_integers(out, low, high, RandomState::current(), context);
  shims::give({ret0}, std::move(out));
}

// The result of a functional in-place operator: strides of self, not its values.
Tensor blank(AtenTensorHandle self, const OpContext& context) {
  return new_like(tensor_from(self), nullptr, nullptr, nullptr, context);
}

}  // namespace

CUDAEXEC_SHIM int32_t aoti_torch_cpu_rand(const int64_t* size, int64_t size_len_, int32_t* dtype,
                                          int32_t* /*layout*/, int32_t* device,
                                          int32_t /*device_index*/, int32_t* /*pin_memory*/,
                                          AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  give_new(Kind::kUniform, shims::int_list(size, size_len_), dtype, device, ret0);
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_rand_generator(const int64_t* size, int64_t size_len_,
                                                    AtenGeneratorHandle* generator, int32_t* dtype,
                                                    int32_t* /*layout*/, int32_t* device,
                                                    int32_t /*device_index*/,
                                                    int32_t* /*pin_memory*/,
                                                    AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  refuse_generator(generator);
  give_new(Kind::kUniform, shims::int_list(size, size_len_), dtype, device, ret0);
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_randn(const int64_t* size, int64_t size_len_, int32_t* dtype,
                                           int32_t* /*layout*/, int32_t* device,
                                           int32_t /*device_index*/, int32_t* /*pin_memory*/,
                                           AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  give_new(Kind::kNormal, shims::int_list(size, size_len_), dtype, device, ret0);
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_randn_generator(const int64_t* size, int64_t size_len_,
                                                     AtenGeneratorHandle* generator, int32_t* dtype,
                                                     int32_t* /*layout*/, int32_t* device,
                                                     int32_t /*device_index*/,
                                                     int32_t* /*pin_memory*/,
                                                     AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  refuse_generator(generator);
  give_new(Kind::kNormal, shims::int_list(size, size_len_), dtype, device, ret0);
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_rand_like(AtenTensorHandle self, int32_t* dtype,
                                               int32_t* /*layout*/, int32_t* device,
                                               int32_t /*device_index*/, int32_t* /*pin_memory*/,
                                               int32_t* memory_format, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  give_like(Kind::kUniform, self, dtype, device, memory_format, ret0);
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_rand_like_generator(
    AtenTensorHandle self, AtenGeneratorHandle* generator, int32_t* dtype, int32_t* /*layout*/,
    int32_t* device, int32_t /*device_index*/, int32_t* /*pin_memory*/, int32_t* memory_format,
    AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  refuse_generator(generator);
  give_like(Kind::kUniform, self, dtype, device, memory_format, ret0);
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_randn_like(AtenTensorHandle self, int32_t* dtype,
                                                int32_t* /*layout*/, int32_t* device,
                                                int32_t /*device_index*/, int32_t* /*pin_memory*/,
                                                int32_t* memory_format, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  give_like(Kind::kNormal, self, dtype, device, memory_format, ret0);
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_randn_like_generator(
    AtenTensorHandle self, AtenGeneratorHandle* generator, int32_t* dtype, int32_t* /*layout*/,
    int32_t* device, int32_t /*device_index*/, int32_t* /*pin_memory*/, int32_t* memory_format,
    AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  refuse_generator(generator);
  give_like(Kind::kNormal, self, dtype, device, memory_format, ret0);
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_randint(int64_t high, const int64_t* size, int64_t size_len_,
                                             int32_t* dtype, int32_t* /*layout*/, int32_t* device,
                                             int32_t /*device_index*/, int32_t* /*pin_memory*/,
                                             AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  const OpContext context = current_op_context();
  give_integers(0, high,
                new_tensor(shims::int_list(size, size_len_), dtype, device, Dtype::kInt64, context),
                context, ret0);
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_randint_generator(
    int64_t high, const int64_t* size, int64_t size_len_, AtenGeneratorHandle* generator,
    int32_t* dtype, int32_t* /*layout*/, int32_t* device, int32_t /*device_index*/,
    int32_t* /*pin_memory*/, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  refuse_generator(generator);
  const OpContext context = current_op_context();
  give_integers(0, high,
                new_tensor(shims::int_list(size, size_len_), dtype, device, Dtype::kInt64, context),
                context, ret0);
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_randint_low(int64_t low, int64_t high, const int64_t* size,
                                                 int64_t size_len_, int32_t* dtype,
                                                 int32_t* /*layout*/, int32_t* device,
                                                 int32_t /*device_index*/, int32_t* /*pin_memory*/,
                                                 AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  const OpContext context = current_op_context();
  give_integers(low, high,
                new_tensor(shims::int_list(size, size_len_), dtype, device, Dtype::kInt64, context),
                context, ret0);
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_randint_low_out(AtenTensorHandle out, int64_t low,
                                                     int64_t high, const int64_t* size,
                                                     int64_t size_len_) {
  CUDAEXEC_SHIM_BEGIN
  const Tensor& target = tensor_from(out);
  const auto sizes = shims::int_list(size, size_len_);
  if (!std::equal(sizes.begin(), sizes.end(), target.sizes().begin(), target.sizes().end())) {
    throw cudaexec::ShapeError(cudaexec::str("randint: out is ", describe(target),
                                             "; expected sizes ", cudaexec::list_str(sizes)));
  }
  ops::fill_integers(target, low, high, RandomState::current(), current_op_context());
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_randint_like(AtenTensorHandle self, int64_t high,
                                                  int32_t* dtype, int32_t* /*layout*/,
                                                  int32_t* device, int32_t /*device_index*/,
                                                  int32_t* /*pin_memory*/, int32_t* memory_format,
                                                  AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  const OpContext context = current_op_context();
  give_integers(0, high, new_like(tensor_from(self), dtype, device, memory_format, context),
                context, ret0);
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_randint_like_low_dtype(
    AtenTensorHandle self, int64_t low, int64_t high, int32_t* dtype, int32_t* /*layout*/,
    int32_t* device, int32_t /*device_index*/, int32_t* /*pin_memory*/, int32_t* memory_format,
    AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  const OpContext context = current_op_context();
  give_integers(low, high, new_like(tensor_from(self), dtype, device, memory_format, context),
                context, ret0);
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_randperm(int64_t n, int32_t* dtype, int32_t* /*layout*/,
                                              int32_t* device, int32_t /*device_index*/,
                                              int32_t* /*pin_memory*/, AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  shims::require_cpu(device);
  shims::give({ret0}, ops::randperm(n, shims::optional_dtype(dtype).value_or(Dtype::kInt64),
                                    RandomState::current(), current_op_context()));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_bernoulli__float(AtenTensorHandle self, double p,
                                                      AtenGeneratorHandle* generator) {
  CUDAEXEC_SHIM_BEGIN
  refuse_generator(generator);
  ops::fill_bernoulli(tensor_from(self), p, RandomState::current(), current_op_context());
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_bernoulli__Tensor(AtenTensorHandle self, AtenTensorHandle p,
                                                       AtenGeneratorHandle* generator) {
  CUDAEXEC_SHIM_BEGIN
  refuse_generator(generator);
  ops::fill_bernoulli(tensor_from(self), tensor_from(p), RandomState::current(),
                      current_op_context());
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_uniform(AtenTensorHandle self, double from, double to,
                                             AtenGeneratorHandle* generator,
                                             AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  refuse_generator(generator);
  const OpContext context = current_op_context();
  Tensor out = blank(self, context);
  ops::fill_uniform(out, from, to, RandomState::current(), context);
  shims::give({ret0}, std::move(out));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_normal_functional(AtenTensorHandle self, double mean,
                                                       double std, AtenGeneratorHandle* generator,
                                                       AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  refuse_generator(generator);
  const OpContext context = current_op_context();
  Tensor out = blank(self, context);
  ops::fill_normal(out, mean, std, RandomState::current(), context);
  shims::give({ret0}, std::move(out));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_exponential(AtenTensorHandle self, double lambd,
                                                 AtenGeneratorHandle* generator,
                                                 AtenTensorHandle* ret0) {
  CUDAEXEC_SHIM_BEGIN
  refuse_generator(generator);
  const OpContext context = current_op_context();
  Tensor out = blank(self, context);
  ops::fill_exponential(out, lambd, RandomState::current(), context);
  shims::give({ret0}, std::move(out));
  CUDAEXEC_SHIM_END
}

CUDAEXEC_SHIM int32_t aoti_torch_cpu_native_dropout(AtenTensorHandle input, double p,
                                                    int32_t* train, AtenTensorHandle* ret0,
                                                    AtenTensorHandle* ret1) {
  CUDAEXEC_SHIM_BEGIN
  const bool training = train == nullptr || *train != 0;
  auto [output, mask] =
      ops::dropout(tensor_from(input), p, training, RandomState::current(), current_op_context());
  shims::give({ret0, ret1}, std::move(output), std::move(mask));
  CUDAEXEC_SHIM_END
}

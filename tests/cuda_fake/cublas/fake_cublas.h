// Inside of the fake cuBLASLt: its objects, and products as kernels of the fake driver.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "ops/cuda/cublas_abi.h"

#define FAKE_LT extern "C" __attribute__((visibility("default")))

namespace cudaexec::gpu::cublas {

struct HandleOpaque {
  cuda::CUmodule module = nullptr;
  cuda::CUfunction function = nullptr;
};
struct MatmulDescOpaque {
  ComputeType compute;
  DataType scale;
  Operation trans_a = Operation::kNone, trans_b = Operation::kNone;
  uint32_t epilogue = kEpilogueDefault;
  const void* bias = nullptr;
};
struct LayoutOpaque {
  DataType type;
  int64_t rows, cols, leading;
  int32_t batch = 1;
  int64_t batch_stride = 0;
};
struct PreferenceOpaque {
  uint64_t workspace_nbytes = 0;
  uint32_t reductions = 7;
  uint32_t alignments[4] = {256, 256, 256, 256};
};

}  // namespace cudaexec::gpu::cublas

namespace fakecublas {

using namespace cudaexec::gpu::cublas;

/// One product; the argument of the kernel.
struct Product {
  DataType type;
  int64_t m, n, k, batch;
  const char *a, *b, *c, *bias;
  char* d;
  int64_t a_leading, b_leading, c_leading, d_leading;
  int64_t a_batch, b_batch, c_batch, d_batch;
  int32_t trans_a, trans_b;
  double alpha, beta;
  char* workspace;
  int64_t workspace_nbytes;
};

/// What does not fit together, or nothing.
std::string find_mismatch(const MatmulDescOpaque& matmul, const LayoutOpaque& a,
                          const LayoutOpaque& b, const LayoutOpaque& c, const LayoutOpaque& d);
Product describe(const MatmulDescOpaque& matmul, const void* alpha, const void* a,
                 const LayoutOpaque& a_layout, const void* b, const LayoutOpaque& b_layout,
                 const void* beta, const void* c, const LayoutOpaque& c_layout, void* d,
                 const LayoutOpaque& d_layout, void* workspace, size_t workspace_nbytes);
/// "f32 m=2 n=3 k=4 batch=1 TN bias beta=0.5"
std::string text_of(const Product& product);

/// Registers the kernel with the fake driver and loads it into the current context.
Status open_stream_work(HandleOpaque& handle);
void close_stream_work(HandleOpaque& handle);
Status launch(const HandleOpaque& handle, const Product& product, ::CUstream_st* stream);

}  // namespace fakecublas

#include <cstring>
#include <sstream>
#include <vector>

#include "cublas/fake_cublas.h"
#include "driver/fake.h"
#include "tensor/half.h"

using fakecuda::FakeLaunch;
using fakecuda::KernelCallback;

FAKE_API void fakecuda_register_kernel(const char* name, const uint64_t* sizes, int count,
                                       KernelCallback callback);

namespace fakecublas {
namespace {

constexpr const char* kKernel = "fakecublas_product";

size_t size_of(DataType type) {
  return type == DataType::kFloat64 ? 8 : type == DataType::kFloat32 ? 4 : 2;
}

double load(const char* data, DataType type, int64_t index) {
  const char* at = data + index * static_cast<int64_t>(size_of(type));
  if (type == DataType::kFloat64) {
    double value;
    std::memcpy(&value, at, 8);
    return value;
  }
  if (type == DataType::kFloat32) {
    float value;
    std::memcpy(&value, at, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return type == DataType::kFloat16 ? cudaexec::half_bits_to_float(bits)
                                    : cudaexec::bfloat_bits_to_float(bits);
}

void store(char* data, DataType type, int64_t index, double value) {
  char* at = data + index * static_cast<int64_t>(size_of(type));
  if (type == DataType::kFloat64) {
    std::memcpy(at, &value, 8);
    return;
  }
  const auto narrow = static_cast<float>(value);
  if (type == DataType::kFloat32) {
    std::memcpy(at, &narrow, 4);
    return;
  }
  const uint16_t bits = type == DataType::kFloat16 ? cudaexec::float_to_half_bits(narrow)
                                                   : cudaexec::float_to_bfloat_bits(narrow);
  std::memcpy(at, &bits, 2);
}

void multiply(const Product& p) {
  if (p.workspace != nullptr) {
    std::memset(p.workspace, 0xA5, static_cast<size_t>(p.workspace_nbytes));
  }
  std::vector<double> results(static_cast<size_t>(p.m * p.n));
  for (int64_t batch = 0; batch < p.batch; ++batch) {
    const int64_t a = batch * p.a_batch;
    const int64_t b = batch * p.b_batch;
    for (int64_t col = 0; col < p.n; ++col) {
      for (int64_t row = 0; row < p.m; ++row) {
        double sum = 0;
        for (int64_t i = 0; i < p.k; ++i) {
          sum += load(p.a, p.type,
                      a + (p.trans_a != 0 ? i + row * p.a_leading : row + i * p.a_leading)) *
                 load(p.b, p.type,
                      b + (p.trans_b != 0 ? col + i * p.b_leading : i + col * p.b_leading));
        }
        sum *= p.alpha;
        if (p.beta != 0) {
          sum += p.beta * load(p.c, p.type, batch * p.c_batch + row + col * p.c_leading);
        }
        if (p.bias != nullptr) sum += load(p.bias, p.type, row);
        results[static_cast<size_t>(row + col * p.m)] = sum;
      }
    }
    for (int64_t col = 0; col < p.n; ++col) {
      for (int64_t row = 0; row < p.m; ++row) {
        store(p.d, p.type, batch * p.d_batch + row + col * p.d_leading,
              results[static_cast<size_t>(row + col * p.m)]);
      }
    }
  }
}

void run(const FakeLaunch* launch) {
  Product product;
  std::memcpy(&product, launch->arguments[0], sizeof product);
  multiply(product);
}

Status status_of(CUresult result) {
  if (result == CUDA_SUCCESS) return kSuccess;
  return result == CUDA_ERROR_OUT_OF_MEMORY ? kAllocFailed : kExecutionFailed;
}

}  // namespace

std::string find_mismatch(const MatmulDescOpaque& matmul, const LayoutOpaque& a,
                          const LayoutOpaque& b, const LayoutOpaque& c, const LayoutOpaque& d) {
  const bool wide = d.type == DataType::kFloat64;
  if (matmul.compute != (wide ? ComputeType::kFloat64 : ComputeType::kFloat32) ||
      matmul.scale != (wide ? DataType::kFloat64 : DataType::kFloat32)) {
    return "computed in another type than wanted";
  }
  if (a.type != d.type || b.type != d.type || c.type != d.type) return "dtypes differ";
  if (a.batch != d.batch || b.batch != d.batch || c.batch != d.batch) return "batches differ";
  const bool ta = matmul.trans_a == Operation::kTranspose;
  const bool tb = matmul.trans_b == Operation::kTranspose;
  if ((ta ? a.cols : a.rows) != d.rows || (tb ? b.rows : b.cols) != d.cols ||
      (ta ? a.rows : a.cols) != (tb ? b.cols : b.rows) || c.rows != d.rows || c.cols != d.cols) {
    return "sizes do not fit";
  }
  if (((matmul.epilogue & kEpilogueBias) != 0) != (matmul.bias != nullptr)) {
    return "a bias without its epilogue, or the other way round";
  }
  return {};
}

Product describe(const MatmulDescOpaque& matmul, const void* alpha, const void* a,
                 const LayoutOpaque& a_layout, const void* b, const LayoutOpaque& b_layout,
                 const void* beta, const void* c, const LayoutOpaque& c_layout, void* d,
                 const LayoutOpaque& d_layout, void* workspace, size_t workspace_nbytes) {
  const auto bytes = [](const void* data) { return static_cast<const char*>(data); };
  Product p{};
  p.type = d_layout.type;
  p.m = d_layout.rows;
  p.n = d_layout.cols;
  p.trans_a = matmul.trans_a == Operation::kTranspose;
  p.trans_b = matmul.trans_b == Operation::kTranspose;
  p.k = p.trans_a != 0 ? a_layout.rows : a_layout.cols;
  p.batch = d_layout.batch;
  p.a = bytes(a);
  p.b = bytes(b);
  p.c = bytes(c);
  p.d = static_cast<char*>(d);
  p.bias = bytes(matmul.bias);
  p.a_leading = a_layout.leading;
  p.b_leading = b_layout.leading;
  p.c_leading = c_layout.leading;
  p.d_leading = d_layout.leading;
  p.a_batch = a_layout.batch_stride;
  p.b_batch = b_layout.batch_stride;
  p.c_batch = c_layout.batch_stride;
  p.d_batch = d_layout.batch_stride;
  p.alpha = load(bytes(alpha), matmul.scale, 0);
  p.beta = load(bytes(beta), matmul.scale, 0);
  p.workspace = static_cast<char*>(workspace);
  p.workspace_nbytes = static_cast<int64_t>(workspace_nbytes);
  return p;
}

std::string text_of(const Product& p) {
  std::ostringstream text;
  const char* names[] = {"f32", "f64", "f16"};
  text << (p.type == DataType::kBfloat16 ? "bf16" : names[static_cast<int>(p.type)]) << " m=" << p.m
       << " n=" << p.n << " k=" << p.k << " batch=" << p.batch << " "
       << (p.trans_a != 0 ? "T" : "N") << (p.trans_b != 0 ? "T" : "N");
  if (p.bias != nullptr) text << " bias";
  if (p.beta != 0) text << (p.c == p.d ? " in place" : " c") << " beta=" << p.beta;
  return text.str();
}

Status open_stream_work(HandleOpaque& handle) {
  static const char image[] = "FAKECUDA cublas";
  const uint64_t sizes[] = {sizeof(Product)};
  fakecuda_register_kernel(kKernel, sizes, 1, &run);
  CUresult result = cuModuleLoadData(&handle.module, image);
  if (result == CUDA_SUCCESS) {
    result = cuModuleGetFunction(&handle.function, handle.module, kKernel);
    if (result != CUDA_SUCCESS) cuModuleUnload(handle.module);
  }
  return status_of(result);
}

void close_stream_work(HandleOpaque& handle) { cuModuleUnload(handle.module); }

Status launch(const HandleOpaque& handle, const Product& product, ::CUstream_st* stream) {
  Product argument = product;
  void* arguments[] = {&argument};
  return status_of(
      cuLaunchKernel(handle.function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
}

}  // namespace fakecublas

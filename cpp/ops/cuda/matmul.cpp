#include "ops/cuda/matmul.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/str.h"
#include "ops/cuda/cublas.h"
#include "ops/cuda/device_tensor.h"
#include "ops/operand.h"

namespace cudaexec::gpu {
namespace {

using ops::expand;
using ops::require_floating;
using ops::require_rank;
using ops::require_same_dtype;

struct Operands {
  const char* op;
  const Tensor& out;
  const Tensor& a;
  const Tensor& b;
  int64_t rank;
};

MatrixView matrix(const Tensor& t) {
  const size_t row = t.sizes().size() - 2;
  return {t.size(row), t.size(row + 1), t.stride(row), t.stride(row + 1)};
}

int64_t batch_stride(const Tensor& t) { return t.dim() == 3 ? t.stride(0) : 0; }
int64_t batch_count(const Tensor& t) { return t.dim() == 3 ? t.size(0) : 1; }

cublas::DataType data_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16:
      return cublas::DataType::kFloat16;
    case Dtype::kBfloat16:
      return cublas::DataType::kBfloat16;
    case Dtype::kFloat64:
      return cublas::DataType::kFloat64;
    default:
      return cublas::DataType::kFloat32;
  }
}

void require_sizes(const char* op, const char* name, const Tensor& t, const Dims& expected) {
  if (t.sizes() == expected) return;
  throw ShapeError(
      str(op, ": ", name, " is ", describe(t), "; expected sizes ", list_str(expected)));
}

CudaDevice& check_operands(const Operands& x) {
  for (const auto& [name, t] : {NamedTensor("out", &x.out), {"a", &x.a}, {"b", &x.b}}) {
    require_rank(x.op, name, *t, x.rank);
    require_floating(x.op, name, *t);
    require_same_dtype(x.op, name, *t, "a", x.a);
  }
  const MatrixView a = matrix(x.a);
  const MatrixView b = matrix(x.b);
  Dims b_sizes{a.cols, b.cols};
  Dims out_sizes{a.rows, b.cols};
  if (x.rank == 3) {
    b_sizes = Dims{x.a.size(0), a.cols, b.cols};
    out_sizes = Dims{x.a.size(0), a.rows, b.cols};
  }
  require_sizes(x.op, "b", x.b, b_sizes);
  require_sizes(x.op, "out", x.out, out_sizes);
  constexpr int64_t kLimit = std::numeric_limits<int32_t>::max();
  if (std::max({a.rows, a.cols, b.cols, batch_count(x.a)}) > kLimit) {
    throw NotSupported(str(x.op, ": a ", describe(x.a), " and b ", describe(x.b),
                           ": cuBLAS takes sizes up to ", kLimit));
  }
  CudaDevice& device = common_device(x.op, {{"out", &x.out}, {"a", &x.a}, {"b", &x.b}});
  for (const auto& [name, t] : {NamedTensor("a", &x.a), {"b", &x.b}}) {
    if (!may_overlap(x.out, *t)) continue;
    throw InputError(str(x.op, ": out ", describe(x.out), " shares memory with ", name, " ",
                         describe(*t), "; give it memory of its own"));
  }
  return device;
}

/// Whether cuBLAS can write (or add) the matrices of `t` as they are, in out's orientation.
std::optional<ColumnMajor> result_layout(const Tensor& t, bool transposed) {
  const MatrixView view = matrix(t);
  std::optional<ColumnMajor> layout = as_columns(transposed ? view.transposed() : view);
  if (layout && batch_count(t) > 1 && t.stride(0) == 0) layout.reset();
  return layout;
}

/// A factor that cuBLAS can read; `holder` keeps the copy that may be necessary.
ColumnMajor factor_layout(CudaDevice& device, const Tensor*& factor, Tensor& holder,
                          const OpContext& context) {
  if (const std::optional<ColumnMajor> layout = column_major(matrix(*factor))) return *layout;
  holder = empty(device, factor->sizes(), factor->dtype(), context);
  copy(device, holder, *factor, context.stream);
  factor = &holder;
  return *column_major(matrix(holder));
}

bool is_same_view(const Tensor& a, const Tensor& b) {
  return a.data() == b.data() && a.strides() == b.strides();
}

/// One product on its way to cuBLAS: out is readable by it; self (if any) has out's sizes, and is
/// out itself or lies apart from it.
class Product {
 public:
  Product(CudaDevice& device, const Operands& x, bool transposed, double alpha,
          const OpContext& context)
      : device_(device), x_(x), transposed_(transposed), context_(context) {
    const Tensor* a = &x.a;
    const Tensor* b = &x.b;
    p_.a = factor_layout(device, a, a_copy_, context);
    p_.b = factor_layout(device, b, b_copy_, context);
    p_.type = data_type(x.a.dtype());
    p_.m = x.out.size(row());
    p_.n = x.out.size(row() + 1);
    p_.k = x.a.size(row() + 1);
    p_.batch = batch_count(x.out);
    p_.alpha = alpha;
    set_factor(p_.a_data, p_.a_batch, *a);
    set_factor(p_.b_data, p_.b_batch, *b);
    if (transposed) {  // out^T = b^T a^T
      std::swap(p_.m, p_.n);
      std::swap(p_.a, p_.b);
      std::swap(p_.a_data, p_.b_data);
      std::swap(p_.a_batch, p_.b_batch);
      p_.a.transposed = !p_.a.transposed;
      p_.b.transposed = !p_.b.transposed;
    }
    p_.d_data = x.out.data();
    p_.d_leading = result_layout(x.out, transposed)->leading;
    p_.d_batch = batch_stride(x.out);
    add_in_place(0.0);
  }

  /// False if cuBLAS has no algorithm; then `out` is as before, or equal to self.
  bool run() { return multiply(); }

  bool run(const Tensor& self, double beta) {
    if (beta == 1.0 && is_bias(self)) {
      p_.bias = self.data();
      if (multiply()) return true;
      p_.bias = nullptr;
    }
    const bool is_out = is_same_view(self, x_.out);
    const std::optional<ColumnMajor> layout = result_layout(self, transposed_);
    if (layout && !is_out) {
      p_.c_data = self.data();
      p_.c_leading = layout->leading;
      p_.c_batch = batch_stride(self);
      p_.beta = beta;
    } else {
      if (!is_out) copy(device_, x_.out, self, context_.stream);
      add_in_place(beta);
    }
    return run();
  }

 private:
  [[nodiscard]] size_t row() const noexcept { return x_.out.sizes().size() - 2; }
  bool multiply() { return cublas_multiply(device_, p_, context_); }
  static void set_factor(const void*& data, int64_t& stride, const Tensor& t) {
    data = t.data();
    stride = batch_stride(t);
  }
  void add_in_place(double beta) {
    p_.c_data = p_.d_data;
    p_.c_leading = p_.d_leading;
    p_.c_batch = p_.d_batch;
    p_.beta = beta;
  }

  /// One value per row of cuBLAS's matrix, which it adds while it writes the result.
  [[nodiscard]] bool is_bias(const Tensor& self) const {
    if (p_.batch != 1 || self.dtype() == Dtype::kFloat64 || is_same_view(self, x_.out))
      return false;
    const MatrixView view = transposed_ ? matrix(self).transposed() : matrix(self);
    return (view.cols == 1 || view.col_stride == 0) && (view.rows == 1 || view.row_stride == 1);
  }

  CudaDevice& device_;
  const Operands& x_;
  bool transposed_;
  const OpContext& context_;
  Tensor a_copy_, b_copy_;
  CublasProduct p_;
};

/// By way of float32, which cuBLAS multiplies however its operands are aligned.
void multiply_wide(CudaDevice& device, const Operands& x, const Tensor* self, double beta,
                   double alpha, const OpContext& context);

/// A product over no elements is 0: the factors become zeros of size 1.
void multiply_nothing(CudaDevice& device, const Operands& x, const Tensor* self, double beta,
                      const OpContext& context);

void multiply(CudaDevice& device, const Operands& x, const Tensor* self, double beta, double alpha,
              const OpContext& context) {
  if (x.out.numel() == 0) return;
  if (self != nullptr && may_overlap(*self, x.out) && !is_same_view(*self, x.out)) {
    const Tensor apart = empty(device, self->sizes(), self->dtype(), context);
    copy(device, apart, *self, context.stream);
    return multiply(device, x, &apart, beta, alpha, context);
  }
  if (x.a.size(x.a.sizes().size() - 1) == 0) {
    return multiply_nothing(device, x, self, beta, context);
  }
  const bool transposed = result_layout(x.out, true).has_value();
  if (!transposed && !result_layout(x.out, false)) {
    const Tensor packed = empty(device, x.out.sizes(), x.out.dtype(), context);
    multiply(device, {x.op, packed, x.a, x.b, x.rank}, self, beta, alpha, context);
    return copy(device, x.out, packed, context.stream);
  }
  Product product(device, x, transposed, alpha, context);
  if (self == nullptr ? product.run() : product.run(*self, beta)) return;
  const Dtype dtype = x.out.dtype();
  if (dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16) {
    return multiply_wide(device, x, self, beta, alpha, context);
  }
  throw NotSupported(str(x.op, ": cuBLAS has no algorithm for a ", describe(x.a), " strides ",
                         list_str(x.a.strides()), " and b ", describe(x.b), " strides ",
                         list_str(x.b.strides())));
}

void multiply_wide(CudaDevice& device, const Operands& x, const Tensor* self, double beta,
                   double alpha, const OpContext& context) {
  const auto widened = [&](const Tensor& tensor) {
    return convert(device, tensor, Dtype::kFloat32, context);
  };
  const Tensor a = widened(x.a);
  const Tensor b = widened(x.b);
  const Tensor out = empty(device, x.out.sizes(), Dtype::kFloat32, context);
  Tensor addend;
  if (self != nullptr) addend = widened(*self);
  multiply(device, {x.op, out, a, b, x.rank}, self == nullptr ? nullptr : &addend, beta, alpha,
           context);
  copy(device, x.out, convert(device, out, x.out.dtype(), context), context.stream);
}

void multiply_nothing(CudaDevice& device, const Operands& x, const Tensor* self, double beta,
                      const OpContext& context) {
  if (self == nullptr) return fill_zero(device, x.out, context.stream);
  if (beta == 1.0 && !may_overlap(*self, x.out)) {
    return copy(device, x.out, *self, context.stream);
  }
  const auto zeros = [&](const Tensor& like, size_t from_end) {
    Dims sizes = like.sizes();
    sizes[sizes.size() - from_end] = 1;
    Tensor made = empty(device, sizes, like.dtype(), context);
    fill_zero(device, made, context.stream);
    return made;
  };
  const Tensor a = zeros(x.a, 1);
  const Tensor b = zeros(x.b, 2);
  multiply(device, {x.op, x.out, a, b, x.rank}, self, beta, 1.0, context);
}

void add_product(const Operands& x, const Tensor& self, double beta, double alpha,
                 const OpContext& context) {
  CudaDevice& device = check_operands(x);
  if (beta == 0.0) return multiply(device, x, nullptr, 0.0, alpha, context);
  require_same_dtype(x.op, "self", self, "a", x.a);
  common_device(x.op, {{"out", &x.out}, {"self", &self}});
  const Tensor expanded = expand(x.op, self, x.out.sizes());
  multiply(device, x, &expanded, beta, alpha, context);
}

}  // namespace

void mm_out(const Tensor& out, const Tensor& a, const Tensor& b, const OpContext& context) {
  const Operands x{"mm", out, a, b, 2};
  multiply(check_operands(x), x, nullptr, 0.0, 1.0, context);
}

void addmm_out(const Tensor& out, const Tensor& self, const Tensor& a, const Tensor& b, double beta,
               double alpha, const OpContext& context) {
  add_product({"addmm", out, a, b, 2}, self, beta, alpha, context);
}

void bmm_out(const Tensor& out, const Tensor& a, const Tensor& b, const OpContext& context) {
  const Operands x{"bmm", out, a, b, 3};
  multiply(check_operands(x), x, nullptr, 0.0, 1.0, context);
}

void baddbmm_out(const Tensor& out, const Tensor& self, const Tensor& a, const Tensor& b,
                 double beta, double alpha, const OpContext& context) {
  add_product({"baddbmm", out, a, b, 3}, self, beta, alpha, context);
}

Tensor addmv(const Tensor& self, const Tensor& mat, const Tensor& vec, double beta, double alpha,
             const OpContext& context) {
  require_rank("addmv", "mat", mat, 2);
  require_rank("addmv", "vec", vec, 1);
  CudaDevice& device = common_device("addmv", {{"mat", &mat}, {"vec", &vec}});
  const int64_t rows = mat.size(0);
  Tensor out = empty(device, Dims{rows}, mat.dtype(), context);
  const Tensor column = vec.view(Dims{vec.size(0), 1}, Dims{vec.stride(0), 1}, vec.offset());
  Tensor self_column = self;
  if (beta != 0.0) {
    const Tensor expanded = expand("addmv", self, Dims{rows});
    self_column = expanded.view(Dims{rows, 1}, Dims{expanded.stride(0), 0}, expanded.offset());
  }
  addmm_out(out.view(Dims{rows, 1}, Dims{1, 1}, 0), self_column, mat, column, beta, alpha, context);
  return out;
}

Tensor addbmm(const Tensor& self, const Tensor& a, const Tensor& b, double beta, double alpha,
              const OpContext& context) {
  require_rank("addbmm", "a", a, 3);
  require_rank("addbmm", "b", b, 3);
  if (a.size(0) != b.size(0)) {
    throw ShapeError(str("addbmm: a is ", describe(a), " and b is ", describe(b),
                         "; expected the same batch size"));
  }
  CudaDevice& device = common_device("addbmm", {{"a", &a}, {"b", &b}});
  Tensor out = empty(device, Dims{a.size(1), b.size(2)}, a.dtype(), context);
  const auto item = [](const Tensor& t, int64_t i) {
    return t.view(Dims{t.size(1), t.size(2)}, Dims{t.stride(1), t.stride(2)},
                  t.offset() + i * t.stride(0));
  };
  if (a.size(0) == 0) {
    const Tensor none = empty(device, Dims{a.size(1), 0}, a.dtype(), context);
    const Tensor nothing = empty(device, Dims{0, b.size(2)}, a.dtype(), context);
    addmm_out(out, self, none, nothing, beta, alpha, context);
    return out;
  }
  for (int64_t i = 0; i < a.size(0); ++i) {
    addmm_out(out, i == 0 ? self : out, item(a, i), item(b, i), i == 0 ? beta : 1.0, alpha,
              context);
  }
  return out;
}

}  // namespace cudaexec::gpu

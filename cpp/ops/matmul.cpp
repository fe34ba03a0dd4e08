#include "ops/matmul.h"

#include "ops/gemm.h"
#include "ops/gemm_integer.h"
#include "ops/operand.h"

namespace cudaexec::ops {
namespace {

/// The last two dimensions of a matrix or of a batch of them.
GemmOperand operand_of(const Tensor& t) {
  const size_t row = t.sizes().size() - 2;
  GemmOperand operand;
  operand.data = t.data();
  operand.batch_stride = row == 0 ? 0 : t.stride(0);
  operand.row_stride = t.stride(row);
  operand.col_stride = t.stride(row + 1);
  operand.offset = t.offset();
  if (t.storage()->is_constant()) operand.constant = t.storage().get();
  return operand;
}

void require_cpu(const char* op, const char* name, const Tensor& t) {
  if (t.device().is_cpu()) return;
  throw DeviceError(str(op, ": ", name, " is on ", to_string(t.device()), "; expected the CPU"));
}

void require_sizes(const char* op, const char* name, const Tensor& t,
                   std::initializer_list<int64_t> expected) {
  if (std::equal(t.sizes().begin(), t.sizes().end(), expected.begin(), expected.end())) return;
  throw ShapeError(
      str(op, ": ", name, " is ", describe(t), "; expected sizes ", list_str(expected)));
}

/// Whether the storages share memory; distinct views of one storage count as overlapping.
bool may_overlap(const Tensor& a, const Tensor& b) {
  return a.storage() == b.storage() && a.numel() != 0 && b.numel() != 0;
}

void require_apart(const char* op, const char* name, const Tensor& out, const Tensor& t) {
  if (!may_overlap(out, t)) return;
  const auto bounds = [](const Tensor& x) {
    return std::pair(x.offset(), x.offset() + extent(x.sizes(), x.strides()));
  };
  const auto [out_begin, out_end] = bounds(out);
  const auto [begin, end] = bounds(t);
  if (out_begin * int64_t(out.itemsize()) >= end * int64_t(t.itemsize()) ||
      begin * int64_t(t.itemsize()) >= out_end * int64_t(out.itemsize())) {
    return;
  }
  throw InputError(str(op, ": out ", describe(out), " overlaps ", name, " ", describe(t),
                       "; give it memory of its own"));
}

/// Checks a[.., m, k] @ b[.., k, n] -> out[.., m, n].
GemmProblem make_problem(const char* op, const Tensor& out, const Tensor& a, const Tensor& b,
                         int64_t rank) {
  for (const auto& [name, t] : {std::pair("out", &out), {"a", &a}, {"b", &b}}) {
    require_rank(op, name, *t, rank);
    require_cpu(op, name, *t);
  }
  require_same_dtype(op, "a", a, "b", b);
  const auto row = static_cast<size_t>(rank - 2);
  GemmProblem p;
  p.dtype = a.dtype();
  p.batch = rank == 3 ? a.size(0) : 1;
  p.m = a.size(row);
  p.k = a.size(row + 1);
  p.n = b.size(row + 1);
  if (rank == 3) {
    require_sizes(op, "b", b, {p.batch, p.k, p.n});
    require_sizes(op, "out", out, {p.batch, p.m, p.n});
  } else {
    require_sizes(op, "b", b, {p.k, p.n});
    require_sizes(op, "out", out, {p.m, p.n});
  }
  require_apart(op, "a", out, a);
  require_apart(op, "b", out, b);
  p.out = operand_of(out);
  p.a = operand_of(a);
  p.b = operand_of(b);
  return p;
}

/// out = beta * self + alpha * a @ b for any rank.
void add_product(const char* op, const Tensor& out, const Tensor& self, const Tensor& a,
                 const Tensor& b, double beta, double alpha, int64_t rank,
                 const OpContext& context) {
  GemmProblem p = make_problem(op, out, a, b, rank);
  require_same_dtype(op, "out", out, "a", a);
  p.alpha = alpha;
  p.beta = beta;
  if (beta == 0.0) return multiply_matrices(p, context);
  require_same_dtype(op, "self", self, "a", a);
  require_cpu(op, "self", self);
  const Tensor expanded = expand(op, self, out.sizes());
  p.add = operand_of(expanded);
  const bool same_view = self.offset() == out.offset() && expanded.strides() == out.strides();
  if (may_overlap(out, self) && !same_view) {
    const Tensor copy = contiguous(expanded, context);
    p.add = operand_of(copy);
    return multiply_matrices(p, context);
  }
  multiply_matrices(p, context);
}

}  // namespace

void mm_out(const Tensor& out, const Tensor& a, const Tensor& b, const OpContext& context) {
  const GemmProblem problem = make_problem("mm", out, a, b, 2);
  require_same_dtype("mm", "out", out, "a", a);
  multiply_matrices(problem, context);
}

void addmm_out(const Tensor& out, const Tensor& self, const Tensor& a, const Tensor& b, double beta,
               double alpha, const OpContext& context) {
  add_product("addmm", out, self, a, b, beta, alpha, 2, context);
}

void bmm_out(const Tensor& out, const Tensor& a, const Tensor& b, const OpContext& context) {
  const GemmProblem problem = make_problem("bmm", out, a, b, 3);
  require_same_dtype("bmm", "out", out, "a", a);
  multiply_matrices(problem, context);
}

void baddbmm_out(const Tensor& out, const Tensor& self, const Tensor& a, const Tensor& b,
                 double beta, double alpha, const OpContext& context) {
  add_product("baddbmm", out, self, a, b, beta, alpha, 3, context);
}

void int_mm_out(const Tensor& out, const Tensor& a, const Tensor& b, const OpContext& context) {
  require_dtype("_int_mm", "a", a, {Dtype::kInt8});
  require_dtype("_int_mm", "out", out, {Dtype::kInt32});
  gemm(make_problem("_int_mm", out, a, b, 2), context);
}

Tensor addmv(const Tensor& self, const Tensor& mat, const Tensor& vec, double beta, double alpha,
             const OpContext& context) {
  require_rank("addmv", "mat", mat, 2);
  require_rank("addmv", "vec", vec, 1);
  const int64_t rows = mat.size(0);
  Tensor out = empty(Dims{rows}, mat.dtype(), context);
  const Tensor column = vec.view(Dims{vec.size(0), 1}, Dims{vec.stride(0), 1}, vec.offset());
  const Tensor out_column = out.view(Dims{rows, 1}, Dims{1, 1}, 0);
  Tensor self_column = self;
  if (beta != 0.0) {
    const Tensor expanded = expand("addmv", self, Dims{rows});
    self_column = expanded.view(Dims{rows, 1}, Dims{expanded.stride(0), 0}, expanded.offset());
  }
  addmm_out(out_column, self_column, mat, column, beta, alpha, context);
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
  Tensor out = empty(Dims{a.size(1), b.size(2)}, a.dtype(), context);
  const auto item = [](const Tensor& t, int64_t i) {
    return t.view(Dims{t.size(1), t.size(2)}, Dims{t.stride(1), t.stride(2)},
                  t.offset() + i * t.stride(0));
  };
  if (a.size(0) == 0) {
    const Tensor none = empty(Dims{a.size(1), 0}, a.dtype(), context);
    const Tensor nothing = empty(Dims{0, b.size(2)}, a.dtype(), context);
    addmm_out(out, self, none, nothing, beta, alpha, context);
    return out;
  }
  for (int64_t i = 0; i < a.size(0); ++i) {
    addmm_out(out, i == 0 ? self : out, item(a, i), item(b, i), i == 0 ? beta : 1.0, alpha,
              context);
  }
  return out;
}

}  // namespace cudaexec::ops

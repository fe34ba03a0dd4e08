#include "ops/cuda/kv_attention.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/checked_math.h"
#include "ops/cuda/device_scratch.h"
#include "ops/cuda/device_tensor.h"
#include "ops/cuda/kv_attention_args.h"
#include "ops/cuda/launch.h"
#include "ops/gemm_plan.h"
#include "ops/kv_attention.h"
#include "ops/operand.h"

namespace cudaexec::gpu {
namespace {

constexpr const char* kOp = "KV attention";

bool same_dtype(Dtype a, KvDtype b) { return std::string(dtype_name(a)) == kv_dtype_name(b); }

cuda::KvCacheArgs cache_args(const KvLayerView& layer) {
  return {layer.base,
          layer.page_nbytes,
          layer.key_offset,
          layer.value_offset,
          layer.slots,
          layer.window,
          layer.block_shift,
          static_cast<int32_t>(layer.batch),
          static_cast<int32_t>(layer.heads),
          static_cast<int32_t>(layer.head_dim)};
}

/// A step, but for what `args` has for attention.
void describe_step(const KvStep& step, const ops::KvOperands& p, const Tensor& k, const Tensor& v,
                   const Tensor& index, cuda::KvAppendArgs& args) {
  args.cache = cache_args(*p.layer);
  args.word = step.word;
  args.fault = step.fault;
  args.index = index.data_as<const int64_t>();
  args.index_stride = index.stride(0);
  args.k = k.data();
  args.v = v.data();
  std::copy_n(k.strides().data(), 4, args.k_strides);
  std::copy_n(v.strides().data(), 4, args.v_strides);
  args.count = k.numel();
  args.tokens = static_cast<int32_t>(p.tokens);
}

/// How the work is dealt out. Depends on sizes and the GPU alone.
struct Plan {
  bool matrix = false;    // kv_matrix.cu
  bool together = false;  // warps of a block share a unit's tokens
  bool fused = false;     // it stores the step's tokens too
  int64_t tile_rows = 0, row_tiles = 0, splits = 1;
  int64_t units_per_block = 1;
};

/// Blocks of kv_matrix.cu that a multiprocessor's registers allow: 12 warps with heads of 64, 8
/// with larger ones, which keeps 48 to 64 KiB on their way.
int64_t resident_blocks(int64_t head_dim) { return head_dim == 64 ? 3 : 2; }

Plan make_plan(const CudaDevice& device, const KvStep& step, const ops::KvOperands& p,
               Dtype dtype) {
  Plan plan;
  const bool half = dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16;
  const bool known = p.head_dim == 64 || p.head_dim == 128 || p.head_dim == 256;
  plan.matrix =
      half && known && (same_dtype(dtype, step.dtype) || step.dtype == KvDtype::kFloat8E4m3);
  if (!plan.matrix && p.head_dim > cuda::kKvPlainDim) {
    throw NotSupported(
        str(kOp, ": heads of ", p.head_dim, " elements; at most ", cuda::kKvPlainDim, " on a GPU"));
  }
  plan.tile_rows = plan.matrix ? cuda::kKvMatrixRows : cuda::kKvPlainRows;
  plan.row_tiles = ops::divide_up(p.group * p.tokens, plan.tile_rows);
  // With many rows the warps of a block read the same tokens instead.
  plan.together = plan.matrix && plan.row_tiles < cuda::kKvWarps;
  plan.fused = plan.together && plan.row_tiles == 1;
  plan.units_per_block = plan.matrix && !plan.together ? cuda::kKvWarps : 1;
  const int64_t blocks = plan.matrix ? resident_blocks(p.head_dim) : 4;
  const int64_t units = p.batch * p.kv_heads * plan.row_tiles;
  const int64_t span =
      p.layer->is_ring() ? std::min(p.layer->slots, p.layer->window + p.tokens) : p.layer->slots;
  const int64_t tiles = ops::divide_up(span, cuda::kKvTokenTile);
  const int64_t most = std::min<int64_t>(
      cuda::kKvMostSplits, plan.together ? ops::divide_up(tiles, cuda::kKvWarps) : tiles);
  const int64_t resident = device.facts().sm_count * blocks * plan.units_per_block;
  plan.splits = std::clamp<int64_t>(resident / units, 1, most);
  return plan;
}

void append(CudaDevice& device, const cuda::KvAppendArgs& args, const std::string& types,
            StreamRef stream) {
  launch(device, "kv_attention", "cudaexec_kv_append_" + types, args,
         blocks_for(2 * args.count, cuda::kKvAppendThreads), stream, cuda::kKvAppendThreads);
}

void attend(CudaDevice& device, const Plan& plan, const ops::KvOperands& p, const Tensor& q,
            const Tensor& out, double scale, const std::string& types, cuda::KvAttendArgs& args,
            const OpContext& context) {
  const int64_t rows = p.group * p.tokens;
  const int64_t places = plan.splits == 1 ? 0 : plan.splits * p.batch * p.kv_heads * rows;
  constexpr double kLog2E = 1.4426950408889634;
  const DeviceScratch sums(static_cast<size_t>(places * p.head_dim) * sizeof(float), context);
  const DeviceScratch largest(static_cast<size_t>(2 * places) * sizeof(float), context);
  args.q = q.data();
  std::copy_n(q.strides().data(), 4, args.q_strides);
  args.out = out.data();
  args.sums = static_cast<float*>(sums.data());
  args.largest = static_cast<float*>(largest.data());
  args.scale = static_cast<float>(scale * kLog2E);
  args.group = static_cast<int32_t>(p.group);
  args.rows = static_cast<int32_t>(rows);
  args.tile_rows = static_cast<int32_t>(plan.tile_rows);
  args.row_tiles = static_cast<int32_t>(plan.row_tiles);
  args.splits = static_cast<int32_t>(plan.splits);
  args.together = plan.together ? 1 : 0;
  const int64_t units = p.batch * p.kv_heads * plan.row_tiles * plan.splits;
  const std::string kernel = plan.matrix ? str("cudaexec_kv_matrix_", types, "_", p.head_dim)
                                         : str("cudaexec_kv_attend_", types);
  launch(device, plan.matrix ? "kv_matrix" : "kv_attention", kernel, args,
         blocks_for(units, plan.units_per_block), context.stream, cuda::kKvThreads);
  if (plan.splits == 1) return;
  launch(device, "kv_attention", str("cudaexec_kv_combine_", dtype_name(q.dtype())), args,
         p.batch * p.kv_heads * rows, context.stream, cuda::kKvCombineThreads);
}

void require_counts(const ops::KvOperands& p) {
  // Kernels count rows and units in 32 bits.
  const auto rows = checked_mul<int64_t>(p.batch * p.heads, p.tokens);
  if (rows && *rows <= kMaxBlocks / cuda::kKvMostSplits) return;
  throw NotSupported(str(kOp, ": a step of ", p.batch, " x ", p.heads, " x ", p.tokens,
                         " queries; use fewer tokens a call"));
}

}  // namespace

Tensor kv_attention(const KvStep* step, const Tensor& q, const Tensor& k, const Tensor& v,
                    const Tensor& index, int64_t layer, double scale, const OpContext& context) {
  const ops::KvOperands p = ops::check_kv_operands(step, q, k, v, index, layer);
  CudaDevice& device = common_device(kOp, {{"q", &q}, {"k", &k}, {"v", &v}, {"index", &index}});
  if (device.device() != step->device) {
    throw DeviceError(str(kOp, ": q is on ", to_string(q.device()), " and the cache on ",
                          to_string(step->device)));
  }
  require_counts(p);
  const std::string types = str(dtype_name(q.dtype()), "_", kv_dtype_name(step->dtype));
  const Dims sizes{p.batch, p.heads, p.tokens, p.head_dim};
  const int64_t row = p.heads * p.head_dim;
  Tensor out =
      empty_strided(device, sizes, Dims{p.tokens * row, p.head_dim, row, 1}, q.dtype(), context);
  const Plan plan = make_plan(device, *step, p, q.dtype());
  cuda::KvAttendArgs args{};
  describe_step(*step, p, k, v, index, args);
  args.fused = plan.fused ? 1 : 0;
  if (!plan.fused) append(device, args, types, context.stream);
  attend(device, plan, p, q, out, scale, types, args, context);
  return out;
}

}  // namespace cudaexec::gpu

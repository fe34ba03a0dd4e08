// One checked attention, cut into tasks of some query rows of one head.
#pragma once

#include <array>

#include "ops/attention_kernels.h"
#include "ops/gemm_kernels.h"
#include "ops/gemm_plan.h"
#include "ops/op_context.h"
#include "tensor/dtype.h"

namespace cudaexec::ops {

/// Strides in elements: [B, H, L or S, E]; the mask's are [B, H, L, S].
struct AttentionProblem {
  using Strides = std::array<int64_t, 4>;
  Dtype dtype, mask_dtype;
  int64_t batch, heads, heads_per_kv, queries, keys, depth;
  const void* query;
  const void* key;
  const void* value;
  const void* mask;  // or null
  void* out;
  void* log_sums;  // of the accumulator type
  Strides query_strides, key_strides, value_strides, mask_strides, out_strides;
  std::array<int64_t, 3> log_sum_strides;
  bool causal;
  double scale;
};

/// Adds `count` entries of the mask, `stride` apart, to a row of scores.
template <typename Acc>
void add_mask(Acc* row, const void* mask, Dtype dtype, int64_t count, int64_t stride,
              const AttentionKernel<Acc>& kernel);

template <typename Acc>
class AttentionRun {
 public:
  /// Borrows all.
  AttentionRun(const AttentionProblem& problem, const OpContext& context,
               const GemmKernel<Acc>& gemm, const AttentionKernel<Acc>& rows);
  void run();

 private:
  /// Buffers of one thread, parts of one block.
  struct Buffers {
    char* keys;         // packed panels of a block of keys
    char* values;       // packed panels of the same block
    char* queries;      // packed tiles of the task's rows
    char* packed_rows;  // a packed tile of probabilities
    char* narrow;       // the same before packing, in the operands' dtype
    Acc* scores;        // [tile rows][kKeyBlock]
    Acc* sums;          // [rows][padded depth]: weighted sums of values
    Acc* largest;       // [rows]
    Acc* totals;        // [rows]: sums of exponentials
  };
  struct Task {
    int64_t item, head, first, rows;
  };

  static constexpr int64_t kKeyBlock = 256;
  static constexpr int64_t kMaxRows = 256;  // of a task
  static constexpr int64_t kFewRows = 3;    // up to which keys are not packed

  [[nodiscard]] Task task_at(int64_t index) const noexcept;
  /// Sets the pointers; returns the bytes of all.
  size_t plan_buffers(char* base, Buffers& buffers) const noexcept;
  void run_task(const Task& task, const Buffers& buffers) const;
  void pack_queries(const Task& task, const Buffers& buffers) const;
  void pack_keys(const Task& task, int64_t first, int64_t count, const Buffers& buffers) const;
  void tile_block(const Task& task, int64_t tile, int64_t first_key, int64_t count,
                  const Buffers& buffers) const;
  void row_block(const Task& task, int64_t row, int64_t first_key, int64_t count,
                 const Buffers& buffers) const;
  /// Turns `count` scores into exponentials; earlier sums of the row are rescaled.
  void soften(const Task& task, int64_t row, int64_t first_key, int64_t count, Acc* scores,
              const Buffers& buffers) const;
  void store(const Task& task, const Buffers& buffers) const;

  [[nodiscard]] int64_t visible(int64_t query, int64_t first_key, int64_t count) const noexcept {
    return p_.causal ? std::clamp<int64_t>(query + 1 - first_key, 0, count) : count;
  }
  [[nodiscard]] const char* at(const void* data, const AttentionProblem::Strides& strides,
                               int64_t item, int64_t head, int64_t row) const noexcept {
    const int64_t index = item * strides[0] + head * strides[1] + row * strides[2];
    return static_cast<const char*>(data) + index * size_;
  }

  const AttentionProblem& p_;
  const OpContext& context_;
  const GemmKernel<Acc>& gemm_;
  const AttentionKernel<Acc>& rows_;
  int64_t size_;          // bytes of an element
  int64_t task_rows_;     // of a task, at most
  int64_t parts_;         // tasks of a head
  int64_t depth_groups_;  // of a product over the head's depth
  int64_t depth_panels_;  // of a product that gives the head's depth
  bool few_rows_;
};

}  // namespace cudaexec::ops

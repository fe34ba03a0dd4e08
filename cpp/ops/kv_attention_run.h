// One checked attention over a KV cache on the CPU, cut into tasks of some query rows of one kv
// head over a part of its tokens. The keys and values of a head are read once for all its rows.
#pragma once

#include "ops/attention_kernels.h"
#include "ops/gemm_kernels.h"
#include "ops/gemm_plan.h"
#include "ops/kv_attention.h"

namespace cudaexec::ops {

struct KvTensors {
  const Tensor* q;
  const Tensor* k;
  const Tensor* v;
  const Tensor* out;
};

class KvAttentionRun {
 public:
  /// Borrows all.
  KvAttentionRun(const KvStep& step, const KvOperands& operands, const KvTensors& tensors,
                 double scale, const OpContext& context);
  /// Stores the new tokens.
  void append();
  void attend();

 private:
  /// Rows of a kv head: row r is query token r / group of head r % group.
  struct Task {
    int64_t item, head;  // of the cache
    int64_t first_row, rows;
    int64_t first, end;  // tokens
    int64_t index;       // of the partial result; -1: it is the result
  };
  struct Buffers {
    float* queries;     // [rows][head_dim]
    float* scores;      // [tile rows][kTokens]
    float* sums;        // [rows][width_]
    float* largest;     // [rows]
    float* totals;      // [rows]
    float* block_sums;  // [width_]
    float* keys;        // [kTokens][head_dim], widened
    float* values;      // the same
    char* packed_keys;  // panels, where there are many rows
    char* packed_values;
    char* packed_queries;
    char* packed_rows;
  };
  struct Partial {
    float* sums;     // [task][rows][width_]
    float* largest;  // [task][rows]
    float* totals;
  };

  static constexpr int64_t kTokens = 256;  // of a block
  static constexpr int64_t kFewRows = 8;   // up to which keys are not packed
  static constexpr int64_t kMaxRows = 128;
  static constexpr int64_t kSplitTokens = 1024;  // at least, of a task

  void append_rows(int64_t begin, int64_t end);
  [[nodiscard]] std::byte* slot(const std::byte* base, int64_t offset, int64_t item, int64_t head,
                                int64_t token) const noexcept;
  /// Tokens from `token` on that lie at one stride, at most `count`.
  [[nodiscard]] int64_t run_length(int64_t token, int64_t count) const noexcept;
  size_t plan_buffers(char* base, Buffers& buffers) const noexcept;
  size_t plan_partials(char* base, Partial& partial) const noexcept;
  [[nodiscard]] Task task_at(int64_t index) const noexcept;
  void run_task(const Task& task, const Buffers& b, const Partial& partial) const;
  void load_queries(const Task& task, const Buffers& b) const;
  void widen(float* dst, int64_t offset, const Task& task, int64_t first, int64_t count) const;
  void few_rows(const Task& task, int64_t first, int64_t count, const Buffers& b) const;
  void many_rows(const Task& task, int64_t first, int64_t count, const Buffers& b) const;
  void tile(const Task& task, const RowTiles& tiles, int64_t index, int64_t first, int64_t count,
            const Buffers& b) const;
  /// The part [first, second) of a block of tokens that a row sees.
  [[nodiscard]] std::pair<int64_t, int64_t> visible(int64_t row, int64_t first,
                                                    int64_t count) const noexcept;
  void soften(int64_t row, float* scores, int64_t count, const Buffers& b) const;
  void store(int64_t item, int64_t head, int64_t row, float* sums, float total) const;
  void merge(const Partial& partial) const;

  const KvStep& step_;
  const KvOperands& p_;
  const KvTensors& t_;
  const OpContext& context_;
  const GemmKernel<float>& compute_;  // of the operands' dtype
  const GemmKernel<float>* stored_;   // of the cache's dtype; null: float8
  const GemmKernel<float>& f32_;
  const AttentionKernelSet& rows_;
  float scale_;
  int64_t itemsize_;   // of the operands
  int64_t size_;       // of the cache's elements
  int64_t row_count_;  // of a kv head
  int64_t task_rows_, parts_, splits_;
  bool few_;
  int64_t width_;  // head_dim, rounded up to whole panels
};

}  // namespace cudaexec::ops

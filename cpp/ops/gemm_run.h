// One matrix product with more than one row, on kernels of one accumulator type.
#pragma once

#include "ops/gemm.h"
#include "ops/gemm_plan.h"

namespace cudaexec::ops {

/// Where the panels of one B lie.
struct GemmPanels {
  const char* data = nullptr;
  int64_t panel_stride = 0;  // bytes
  int64_t group_step = 0;    // bytes
};

/// Bytes from element [0, 0] of batch 0, for elements of `size` bytes.
[[nodiscard]] inline int64_t gemm_offset(const GemmOperand& operand, int64_t batch, int64_t row,
                                         int64_t col, int64_t size) noexcept {
  return (batch * operand.batch_stride + row * operand.row_stride + col * operand.col_stride) *
         size;
}

template <typename Acc>
class GemmRun {
 public:
  /// Borrows all three.
  GemmRun(const GemmProblem& problem, const OpContext& context, const GemmKernel<Acc>& kernel,
          int64_t out_size);
  void run();

 private:
  /// What one thread has packed.
  struct Worker {
    char* a;
    char* b;
    int64_t block = -1;  // of all items, in `a`
    int64_t item = -1;   // in `b`
  };

  [[nodiscard]] bool reads_in_place() const noexcept;
  void run_constant();
  void run_in_place();
  void run_batch();
  void run_chunks(int64_t item);

  void pack_panel(char* dst, int64_t item, int64_t panel) const;
  void pack_block(Worker& worker, int64_t item, int64_t block) const;
  /// Panels [begin, end) of a row block, whose panels count from `first` in `panels`.
  void multiply(Worker& worker, int64_t item, int64_t block, const GemmPanels& panels,
                int64_t first, int64_t begin, int64_t end) const;
  void multiply_tile(const char* a, const char* b, int64_t b_step, int64_t item, int64_t tile,
                     int64_t panel, int64_t group, int64_t groups) const;
  [[nodiscard]] int threads_for(int64_t items) const noexcept;
  /// Calls body(worker, item, block, panel_begin, panel_end) for parts of items [0, items) and
  /// panels [begin, end); each worker has `b_bytes` of its own.
  template <typename Body>
  void for_parts(int64_t items, int64_t begin, int64_t end, int64_t b_bytes,
                 const Body& body) const;

  const GemmProblem& p_;
  const OpContext& context_;
  const GemmKernel<Acc>& kernel_;
  int64_t elem_size_, out_size_;
  int64_t groups_;       // of k
  int64_t panels_;       // of n
  RowTiles tiles_;       // of m
  int64_t panel_bytes_;  // packed
  bool direct_;          // whether tiles are stored without conversion
  int64_t block_tiles_, blocks_, a_bytes_;
  int64_t depth_groups_;
};

/// One row: B is read once as it lies. Only where B's rows or columns are contiguous.
template <typename Acc>
void gemm_row(const GemmProblem& problem, const OpContext& context, const GemmKernel<Acc>& kernel);

}  // namespace cudaexec::ops

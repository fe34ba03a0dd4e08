#include "ops/attention_run.h"

#include <atomic>
#include <cmath>
#include <limits>

#include "device/thread_pool.h"
#include "ops/scratch.h"

namespace cudaexec::ops {

template <typename Acc>
AttentionRun<Acc>::AttentionRun(const AttentionProblem& problem, const OpContext& context,
                                const GemmKernel<Acc>& gemm, const AttentionKernel<Acc>& rows)
    : p_(problem),
      context_(context),
      gemm_(gemm),
      rows_(rows),
      size_(static_cast<int64_t>(dtype_size(problem.dtype))),
      depth_groups_(divide_up(problem.depth, gemm.k_group)),
      depth_panels_(divide_up(problem.depth, gemm.nr)) {
  const int64_t tasks = 2 * int64_t{current_threads()};
  const int64_t wanted = divide_up(p_.queries, divide_up(tasks, p_.batch * p_.heads));
  task_rows_ = std::clamp<int64_t>(wanted, std::min<int64_t>(4 * gemm.mr, p_.queries), kMaxRows);
  task_rows_ = std::min(task_rows_, p_.queries);
  parts_ = divide_up(p_.queries, task_rows_);
  few_rows_ = task_rows_ <= kFewRows && p_.key_strides[3] == 1 && p_.value_strides[3] == 1;
}

template <typename Acc>
void AttentionRun<Acc>::run() {
  Buffers none{};
  const size_t room = plan_buffers(nullptr, none);
  const int64_t tasks = p_.batch * p_.heads * parts_;
  const double work =
      2.0 * static_cast<double>(tasks * task_rows_) * static_cast<double>(p_.keys * p_.depth);
  const auto useful = static_cast<int64_t>(std::min(work / kThreadWork, 1e6));
  const auto threads =
      static_cast<int>(useful < 2 ? 1 : std::min<int64_t>({useful, tasks, current_threads()}));
  Scratch scratch(room * static_cast<size_t>(threads), context_);
  std::atomic<int64_t> next{0};
  const auto work_on = [&](int thread, int) {
    Buffers buffers{};
    plan_buffers(scratch.data() + room * static_cast<size_t>(thread), buffers);
    for (int64_t i = next++; i < tasks; i = next++) run_task(task_at(i), buffers);
  };
  if (threads == 1) {
    work_on(0, 1);
  } else {
    parallel_region(threads, work_on);
  }
}

template <typename Acc>
typename AttentionRun<Acc>::Task AttentionRun<Acc>::task_at(int64_t index) const noexcept {
  const int64_t part = index % parts_, head = index / parts_;
  const int64_t first = part * p_.queries / parts_;
  return {head / p_.heads, head % p_.heads, first, (part + 1) * p_.queries / parts_ - first};
}

template <typename Acc>
size_t AttentionRun<Acc>::plan_buffers(char* base, Buffers& b) const noexcept {
  int64_t total = 0;
  const auto take = [&](int64_t nbytes) {
    char* part = base + total;
    total += divide_up(nbytes, 64) * 64;
    return part;
  };
  constexpr auto kAcc = static_cast<int64_t>(sizeof(Acc));
  const int64_t block = std::min(kKeyBlock, divide_up(p_.keys, gemm_.nr) * gemm_.nr);
  const int64_t rows = std::min<int64_t>(gemm_.mr, task_rows_);
  if (!few_rows_) {
    b.keys = take(block * depth_groups_ * gemm_.b_group_size);
    b.values =
        take(depth_panels_ * gemm_.nr * divide_up(block, gemm_.k_group) * gemm_.b_group_size);
    b.packed_rows = take(rows * divide_up(block, gemm_.k_group) * gemm_.a_group_size + kPackSlack);
    b.narrow = take(size_ == kAcc ? 0 : rows * block * size_);
    b.queries = take(task_rows_ * depth_groups_ * gemm_.a_group_size + kPackSlack);
  } else {
    b.queries = take(task_rows_ * p_.depth * kAcc);
    b.packed_rows = take(p_.depth * kAcc);
  }
  b.scores = reinterpret_cast<Acc*>(take(rows * kKeyBlock * kAcc));
  b.sums = reinterpret_cast<Acc*>(take(task_rows_ * depth_panels_ * gemm_.nr * kAcc));
  b.largest = reinterpret_cast<Acc*>(take(task_rows_ * kAcc));
  b.totals = reinterpret_cast<Acc*>(take(task_rows_ * kAcc));
  return static_cast<size_t>(total);
}

template <typename Acc>
void AttentionRun<Acc>::run_task(const Task& task, const Buffers& b) const {
  const int64_t width = depth_panels_ * gemm_.nr;
  std::fill_n(b.largest, task.rows, -std::numeric_limits<Acc>::infinity());
  std::fill_n(b.totals, task.rows, Acc{0});
  std::fill_n(b.sums, task.rows * width, Acc{0});
  pack_queries(task, b);
  const int64_t end = p_.causal ? std::min(p_.keys, task.first + task.rows) : p_.keys;
  const RowTiles tiles(task.rows, gemm_.mr);
  for (int64_t first = 0; first < end; first += kKeyBlock) {
    const int64_t count = std::min(kKeyBlock, end - first);
    if (few_rows_) {
      for (int64_t row = 0; row < task.rows; ++row) row_block(task, row, first, count, b);
    } else {
      pack_keys(task, first, count, b);
      for (int64_t tile = 0; tile < tiles.count; ++tile) tile_block(task, tile, first, count, b);
    }
  }
  store(task, b);
}

template <typename Acc>
void AttentionRun<Acc>::pack_queries(const Task& task, const Buffers& b) const {
  if (few_rows_) {
    for (int64_t row = 0; row < task.rows; ++row) {
      gemm_.widen(reinterpret_cast<Acc*>(b.queries) + row * p_.depth,
                  at(p_.query, p_.query_strides, task.item, task.head, task.first + row), p_.depth,
                  p_.query_strides[3]);
    }
    return;
  }
  const RowTiles tiles(task.rows, gemm_.mr);
  for (int64_t tile = 0; tile < tiles.count; ++tile) {
    const int64_t row = tiles.first_row(tile);
    gemm_.pack_a(b.queries + row * depth_groups_ * gemm_.a_group_size,
                 at(p_.query, p_.query_strides, task.item, task.head, task.first + row),
                 tiles.rows(tile), p_.depth, p_.query_strides[2], p_.query_strides[3]);
  }
}

template <typename Acc>
void AttentionRun<Acc>::pack_keys(const Task& task, int64_t first, int64_t count,
                                  const Buffers& b) const {
  const int64_t head = task.head / p_.heads_per_kv;
  const int64_t key_panel = depth_groups_ * gemm_.nr * gemm_.b_group_size;
  const char* keys = at(p_.key, p_.key_strides, task.item, head, first);
  for (int64_t col = 0; col < count; col += gemm_.nr) {
    gemm_.pack_b(b.keys + col / gemm_.nr * key_panel, keys + col * p_.key_strides[2] * size_,
                 p_.depth, std::min<int64_t>(gemm_.nr, count - col), p_.key_strides[3],
                 p_.key_strides[2]);
  }
  const int64_t value_panel = divide_up(count, gemm_.k_group) * gemm_.nr * gemm_.b_group_size;
  const char* values = at(p_.value, p_.value_strides, task.item, head, first);
  for (int64_t col = 0; col < p_.depth; col += gemm_.nr) {
    gemm_.pack_b(
        b.values + col / gemm_.nr * value_panel, values + col * p_.value_strides[3] * size_, count,
        std::min<int64_t>(gemm_.nr, p_.depth - col), p_.value_strides[2], p_.value_strides[3]);
  }
}

template <typename Acc>
void AttentionRun<Acc>::tile_block(const Task& task, int64_t tile, int64_t first_key, int64_t count,
                                   const Buffers& b) const {
  const RowTiles tiles(task.rows, gemm_.mr);
  const int64_t row = tiles.first_row(tile), rows = tiles.rows(tile);
  const int64_t seen = visible(task.first + row + rows - 1, first_key, count);
  if (seen == 0) return;
  const int64_t key_step = gemm_.nr * gemm_.b_group_size;
  const char* queries = b.queries + row * depth_groups_ * gemm_.a_group_size;
  for (int64_t col = 0; col < seen; col += gemm_.nr) {
    gemm_.tile[rows](depth_groups_, queries, b.keys + col * depth_groups_ * gemm_.b_group_size,
                     key_step,
                     {b.scores + col, kKeyBlock, nullptr, 0, static_cast<Acc>(p_.scale), Acc{0}});
  }
  for (int64_t r = 0; r < rows; ++r) {
    Acc* scores = b.scores + r * kKeyBlock;
    const int64_t own = visible(task.first + row + r, first_key, count);
    soften(task, row + r, first_key, own, scores, b);
    std::fill(scores + own, scores + seen, Acc{0});
  }
  const void* probabilities = b.scores;
  int64_t stride = kKeyBlock;
  if (size_ != static_cast<int64_t>(sizeof(Acc))) {
    gemm_.finish(
        {b.scores, kKeyBlock, rows, seen, b.narrow, seen, 1, nullptr, 0, 0, Acc{1}, Acc{0}});
    probabilities = b.narrow;
    stride = seen;
  }
  gemm_.pack_a(b.packed_rows, probabilities, rows, seen, stride, 1);
  const int64_t width = depth_panels_ * gemm_.nr;
  const int64_t value_panel = divide_up(count, gemm_.k_group) * gemm_.nr * gemm_.b_group_size;
  for (int64_t panel = 0; panel < depth_panels_; ++panel) {
    Acc* sums = b.sums + row * width + panel * gemm_.nr;
    gemm_.tile[rows](divide_up(seen, gemm_.k_group), b.packed_rows, b.values + panel * value_panel,
                     key_step, {sums, width, sums, width, Acc{1}, Acc{1}});
  }
}

template <typename Acc>
void AttentionRun<Acc>::row_block(const Task& task, int64_t row, int64_t first_key, int64_t count,
                                  const Buffers& b) const {
  const int64_t seen = visible(task.first + row, first_key, count);
  if (seen == 0) return;
  const int64_t head = task.head / p_.heads_per_kv;
  gemm_.dot(b.scores, reinterpret_cast<const Acc*>(b.queries) + row * p_.depth,
            at(p_.key, p_.key_strides, task.item, head, first_key), p_.depth, seen,
            p_.key_strides[2]);
  rows_.scale(b.scores, seen, static_cast<Acc>(p_.scale));
  soften(task, row, first_key, seen, b.scores, b);
  auto* block_sums = reinterpret_cast<Acc*>(b.packed_rows);
  gemm_.axpy(block_sums, b.scores, at(p_.value, p_.value_strides, task.item, head, first_key), seen,
             p_.depth, p_.value_strides[2]);
  rows_.add(b.sums + row * depth_panels_ * gemm_.nr, block_sums, p_.depth);
}

template <typename Acc>
void AttentionRun<Acc>::soften(const Task& task, int64_t row, int64_t first_key, int64_t count,
                               Acc* scores, const Buffers& b) const {
  if (count == 0) return;
  if (p_.mask != nullptr) {
    const auto& s = p_.mask_strides;
    const int64_t index =
        task.item * s[0] + task.head * s[1] + (task.first + row) * s[2] + first_key * s[3];
    const char* mask =
        static_cast<const char*>(p_.mask) + index * static_cast<int64_t>(dtype_size(p_.mask_dtype));
    add_mask(scores, mask, p_.mask_dtype, count, s[3], rows_);
  }
  const Acc before = b.largest[row];
  const Acc block = rows_.largest(scores, count);
  const Acc now = before >= block ? before : block;
  if (now == -std::numeric_limits<Acc>::infinity()) {  // nothing seen so far
    std::fill_n(scores, count, Acc{0});
    return;
  }
  const Acc sum = rows_.exponentiate(scores, count, now);
  if (before != now && b.totals[row] != Acc{0}) {
    const Acc factor = std::exp(before - now);
    b.totals[row] *= factor;
    rows_.scale(b.sums + row * depth_panels_ * gemm_.nr, p_.depth, factor);
  }
  b.totals[row] += sum;
  b.largest[row] = now;
}

template <typename Acc>
void AttentionRun<Acc>::store(const Task& task, const Buffers& b) const {
  const int64_t width = depth_panels_ * gemm_.nr;
  auto* log_sums = static_cast<Acc*>(p_.log_sums) + task.item * p_.log_sum_strides[0] +
                   task.head * p_.log_sum_strides[1] + task.first * p_.log_sum_strides[2];
  for (int64_t row = 0; row < task.rows; ++row) {
    const bool blind = b.totals[row] == Acc{0};  // sees no key
    rows_.scale(b.sums + row * width, p_.depth, blind ? Acc{1} : Acc{1} / b.totals[row]);
    log_sums[row * p_.log_sum_strides[2]] =
        blind ? Acc{0} : b.largest[row] + std::log(b.totals[row]);
  }
  const int64_t out = task.item * p_.out_strides[0] + task.head * p_.out_strides[1] +
                      task.first * p_.out_strides[2];
  gemm_.finish({b.sums, width, task.rows, p_.depth, static_cast<char*>(p_.out) + out * size_,
                p_.out_strides[2], p_.out_strides[3], nullptr, 0, 0, Acc{1}, Acc{0}});
}

template class AttentionRun<float>;
template class AttentionRun<double>;

}  // namespace cudaexec::ops

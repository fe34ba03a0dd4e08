#include "ops/kv_attention_run.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "device/thread_pool.h"
#include "ops/gemm.h"
#include "ops/scratch.h"

namespace cudaexec::ops {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

const GemmKernel<float>& kernel_of(Dtype dtype) {
  const GemmKernelSet& all = gemm_kernels();
  return dtype == Dtype::kFloat32 ? all.f32 : dtype == Dtype::kFloat16 ? all.f16 : all.bf16;
}

const GemmKernel<float>* kernel_of(KvDtype dtype) {
  const GemmKernelSet& all = gemm_kernels();
  switch (dtype) {
    case KvDtype::kFloat32:
      return &all.f32;
    case KvDtype::kFloat16:
      return &all.f16;
    case KvDtype::kBfloat16:
      return &all.bf16;
    default:
      return nullptr;
  }
}

/// Larger values become this one where float32 is narrowed.
float largest_of(KvDtype dtype) {
  switch (dtype) {
    case KvDtype::kFloat16:
      return 65504.0F;
    case KvDtype::kBfloat16:
      return 0x1.fep127F;
    default:
      return std::numeric_limits<float>::infinity();
  }
}

bool same_dtype(Dtype a, KvDtype b) {
  return (a == Dtype::kFloat32 && b == KvDtype::kFloat32) ||
         (a == Dtype::kFloat16 && b == KvDtype::kFloat16) ||
         (a == Dtype::kBfloat16 && b == KvDtype::kBfloat16);
}

const char* row_of(const Tensor& t, int64_t item, int64_t head, int64_t token) {
  const int64_t at = item * t.stride(0) + head * t.stride(1) + token * t.stride(2);
  return t.data_as<const char>() + at * static_cast<int64_t>(t.itemsize());
}

}  // namespace

KvAttentionRun::KvAttentionRun(const KvStep& step, const KvOperands& operands,
                               const KvTensors& tensors, double scale, const OpContext& context)
    : step_(step),
      p_(operands),
      t_(tensors),
      context_(context),
      compute_(kernel_of(tensors.q->dtype())),
      stored_(kernel_of(step.dtype)),
      f32_(gemm_kernels().f32),
      rows_(attention_kernels()),
      scale_(static_cast<float>(scale)),
      itemsize_(static_cast<int64_t>(tensors.q->itemsize())),
      size_(static_cast<int64_t>(kv_dtype_size(step.dtype))),
      row_count_(operands.group * operands.tokens),
      width_(divide_up(operands.head_dim, f32_.nr) * f32_.nr) {
  const int64_t heads = p_.batch * p_.kv_heads;
  const int64_t wanted_tasks = 2 * int64_t{current_threads()};
  few_ = row_count_ <= kFewRows;
  task_rows_ = row_count_;
  if (!few_) {
    const int64_t share = divide_up(row_count_, divide_up(wanted_tasks, heads));
    task_rows_ = std::clamp<int64_t>(share, std::min<int64_t>(4 * f32_.mr, row_count_), kMaxRows);
    task_rows_ = std::min(task_rows_, row_count_);
  }
  parts_ = divide_up(row_count_, task_rows_);
  const int64_t tokens = p_.layer->is_ring()
                             ? std::min(step_.position + p_.tokens, p_.layer->window + p_.tokens)
                             : step_.position + p_.tokens;
  splits_ = current_threads() == 1 ? 1
                                   : std::clamp<int64_t>(wanted_tasks / (heads * parts_), 1,
                                                         divide_up(tokens, kSplitTokens));
}

std::byte* KvAttentionRun::slot(const std::byte* base, int64_t offset, int64_t item, int64_t head,
                                int64_t token) const noexcept {
  const KvLayerView& layer = *p_.layer;
  const int64_t place = layer.is_ring() ? token % layer.slots : token;
  const int64_t inside = place & (layer.block() - 1);
  const int64_t row = (item * layer.block() + inside) * layer.heads + head;
  return const_cast<std::byte*>(base) + (place >> layer.block_shift) * layer.page_nbytes + offset +
         row * layer.head_dim * size_;
}

int64_t KvAttentionRun::run_length(int64_t token, int64_t count) const noexcept {
  const int64_t inside = token & (p_.layer->block() - 1);
  return std::min(count, p_.layer->block() - inside);
}

void KvAttentionRun::append() {
  const int64_t rows = p_.batch * p_.tokens * p_.kv_heads;
  parallel_for(rows, std::max<int64_t>(1, 16384 / p_.head_dim),
               [&](int64_t begin, int64_t end) { append_rows(begin, end); });
}

void KvAttentionRun::append_rows(int64_t begin, int64_t end) {
  Scratch scratch(static_cast<size_t>(p_.head_dim) * sizeof(float), context_);
  auto* wide = reinterpret_cast<float*>(scratch.data());
  const bool same = same_dtype(t_.q->dtype(), step_.dtype);
  const float limit = largest_of(step_.dtype);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t head = row % p_.kv_heads, token = row / p_.kv_heads % p_.tokens;
    const int64_t item = row / p_.kv_heads / p_.tokens;
    for (const auto& [tensor, offset] :
         {std::pair(t_.k, p_.layer->key_offset), {t_.v, p_.layer->value_offset}}) {
      const char* source = row_of(*tensor, item, head, token);
      std::byte* target = slot(p_.layer->base, offset, item, head, step_.position + token);
      if (same && tensor->stride(3) == 1) {
        std::memcpy(target, source, static_cast<size_t>(p_.head_dim * size_));
        continue;
      }
      compute_.widen(wide, source, p_.head_dim, tensor->stride(3));
      if (stored_ == nullptr) {
        rows_.narrow_f8(reinterpret_cast<uint8_t*>(target), wide, p_.head_dim);
        continue;
      }
      for (int64_t i = 0; !same && i < p_.head_dim; ++i) {
        wide[i] = wide[i] > limit ? limit : wide[i] < -limit ? -limit : wide[i];
      }
      stored_->finish(
          {wide, p_.head_dim, 1, p_.head_dim, target, p_.head_dim, 1, nullptr, 0, 0, 1.0F, 0.0F});
    }
  }
}

size_t KvAttentionRun::plan_buffers(char* base, Buffers& b) const noexcept {
  int64_t total = 0;
  const auto take = [&](int64_t nbytes) {
    char* part = base + total;
    total += divide_up(nbytes, 64) * 64;
    return part;
  };
  const auto floats = [&](int64_t count) {
    return reinterpret_cast<float*>(take(count * static_cast<int64_t>(sizeof(float))));
  };
  const int64_t tile_rows = std::min<int64_t>(f32_.mr, task_rows_);
  const int64_t groups = divide_up(p_.head_dim, f32_.k_group);
  b.queries = floats(task_rows_ * p_.head_dim);
  b.scores = floats(tile_rows * kTokens);
  b.sums = floats(task_rows_ * width_);
  b.largest = floats(task_rows_);
  b.totals = floats(task_rows_);
  b.block_sums = floats(width_);
  if (!few_ || stored_ == nullptr) {
    b.keys = floats(kTokens * p_.head_dim);
    b.values = floats(kTokens * p_.head_dim);
  }
  if (!few_) {
    const int64_t token_groups = divide_up(kTokens, f32_.k_group);
    b.packed_keys = take(divide_up(kTokens, f32_.nr) * f32_.nr * groups * f32_.b_group_size);
    b.packed_values = take(width_ * token_groups * f32_.b_group_size);
    b.packed_queries = take(task_rows_ * groups * f32_.a_group_size + kPackSlack);
    b.packed_rows = take(tile_rows * token_groups * f32_.a_group_size + kPackSlack);
  }
  return static_cast<size_t>(total);
}

size_t KvAttentionRun::plan_partials(char* base, Partial& partial) const noexcept {
  if (splits_ == 1) return 0;
  const int64_t rows = p_.batch * p_.kv_heads * parts_ * splits_ * task_rows_;
  partial.sums = reinterpret_cast<float*>(base);
  partial.largest = partial.sums + rows * width_;
  partial.totals = partial.largest + rows;
  return static_cast<size_t>(rows * (width_ + 2)) * sizeof(float);
}

KvAttentionRun::Task KvAttentionRun::task_at(int64_t index) const noexcept {
  const int64_t split = index % splits_;
  const int64_t part = index / splits_ % parts_;
  const int64_t head = index / splits_ / parts_;
  Task task{head / p_.kv_heads, head % p_.kv_heads, part * row_count_ / parts_, 0, 0, 0, -1};
  task.rows = (part + 1) * row_count_ / parts_ - task.first_row;
  const int64_t last_row = task.first_row + task.rows - 1;
  const int64_t end = step_.position + last_row / p_.group + 1;
  const int64_t window = p_.layer->window;
  const int64_t first =
      window == 0 ? 0
                  : std::max<int64_t>(0, step_.position + task.first_row / p_.group - window + 1);
  task.first = first + split * (end - first) / splits_;
  task.end = first + (split + 1) * (end - first) / splits_;
  if (splits_ > 1) task.index = index;
  return task;
}

void KvAttentionRun::attend() {
  const int64_t tasks = p_.batch * p_.kv_heads * parts_ * splits_;
  Buffers none{};
  const size_t room = plan_buffers(nullptr, none);
  Partial partial{};
  const size_t shared = plan_partials(nullptr, partial);
  const Task last = task_at(tasks - 1);
  const double work = 2.0 * static_cast<double>(tasks * task_rows_ * p_.head_dim) *
                      static_cast<double>(last.end - last.first);
  const auto useful = static_cast<int64_t>(std::min(work / kThreadWork, 1e6));
  const auto threads =
      static_cast<int>(useful < 2 ? 1 : std::min<int64_t>({useful, tasks, current_threads()}));
  Scratch scratch(shared + room * static_cast<size_t>(threads), context_);
  plan_partials(scratch.data(), partial);
  std::atomic<int64_t> next{0};
  const auto work_on = [&](int thread, int) {
    Buffers buffers{};
    plan_buffers(scratch.data() + shared + room * static_cast<size_t>(thread), buffers);
    for (int64_t i = next++; i < tasks; i = next++) run_task(task_at(i), buffers, partial);
  };
  if (threads == 1) {
    work_on(0, 1);
  } else {
    parallel_region(threads, work_on);
  }
  if (splits_ > 1) merge(partial);
}

void KvAttentionRun::run_task(const Task& task, const Buffers& b, const Partial& partial) const {
  std::fill_n(b.largest, task.rows, kNothing);
  std::fill_n(b.totals, task.rows, 0.0F);
  std::fill_n(b.sums, task.rows * width_, 0.0F);
  load_queries(task, b);
  for (int64_t first = task.first; first < task.end; first += kTokens) {
    const int64_t count = std::min(kTokens, task.end - first);
    if (few_) {
      few_rows(task, first, count, b);
    } else {
      many_rows(task, first, count, b);
    }
  }
  if (task.index >= 0) {
    const int64_t at = task.index * task_rows_;
    std::memcpy(partial.sums + at * width_, b.sums,
                static_cast<size_t>(task.rows * width_) * sizeof(float));
    std::copy_n(b.largest, task.rows, partial.largest + at);
    std::copy_n(b.totals, task.rows, partial.totals + at);
    return;
  }
  for (int64_t row = 0; row < task.rows; ++row) {
    store(task.item, task.head, task.first_row + row, b.sums + row * width_, b.totals[row]);
  }
}

void KvAttentionRun::load_queries(const Task& task, const Buffers& b) const {
  for (int64_t r = 0; r < task.rows; ++r) {
    const int64_t row = task.first_row + r;
    const int64_t head = task.head * p_.group + row % p_.group;
    compute_.widen(b.queries + r * p_.head_dim, row_of(*t_.q, task.item, head, row / p_.group),
                   p_.head_dim, t_.q->stride(3));
  }
  if (few_) return;
  const RowTiles tiles(task.rows, f32_.mr);
  const int64_t groups = divide_up(p_.head_dim, f32_.k_group);
  for (int64_t i = 0; i < tiles.count; ++i) {
    const int64_t row = tiles.first_row(i);
    f32_.pack_a(b.packed_queries + row * groups * f32_.a_group_size, b.queries + row * p_.head_dim,
                tiles.rows(i), p_.head_dim, p_.head_dim, 1);
  }
}

void KvAttentionRun::widen(float* dst, int64_t offset, const Task& task, int64_t first,
                           int64_t count) const {
  const int64_t step = p_.kv_heads * p_.head_dim * size_;
  for (int64_t done = 0; done < count;) {
    const int64_t length = run_length(first + done, count - done);
    const std::byte* from = slot(p_.layer->base, offset, task.item, task.head, first + done);
    for (int64_t i = 0; i < length; ++i) {
      float* row = dst + (done + i) * p_.head_dim;
      if (stored_ == nullptr) {
        rows_.widen_f8(row, reinterpret_cast<const uint8_t*>(from + i * step), p_.head_dim);
      } else {
        stored_->widen(row, from + i * step, p_.head_dim, 1);
      }
    }
    done += length;
  }
}

std::pair<int64_t, int64_t> KvAttentionRun::visible(int64_t row, int64_t first,
                                                    int64_t count) const noexcept {
  const int64_t position = step_.position + row / p_.group;
  const int64_t end = std::clamp<int64_t>(position + 1 - first, 0, count);
  if (p_.layer->window == 0) return {0, end};
  return {std::clamp<int64_t>(position - p_.layer->window + 1 - first, 0, end), end};
}

void KvAttentionRun::few_rows(const Task& task, int64_t first, int64_t count,
                              const Buffers& b) const {
  const GemmKernel<float>& kernel = stored_ != nullptr ? *stored_ : f32_;
  const int64_t stride = stored_ != nullptr ? p_.kv_heads * p_.head_dim : p_.head_dim;
  if (stored_ == nullptr) {
    widen(b.keys, p_.layer->key_offset, task, first, count);
    widen(b.values, p_.layer->value_offset, task, first, count);
  }
  // Calls visit(address, first, count) for stretches of tokens [from, end) of the block.
  const auto stretches = [&](const float* widened, int64_t offset, int64_t from, int64_t end,
                             const auto& visit) {
    while (from < end) {
      const int64_t length = stored_ == nullptr ? end - from : run_length(first + from, end - from);
      const void* data = stored_ == nullptr
                             ? static_cast<const void*>(widened + from * p_.head_dim)
                             : slot(p_.layer->base, offset, task.item, task.head, first + from);
      visit(data, from, length);
      from += length;
    }
  };
  for (int64_t r = 0; r < task.rows; ++r) {
    const auto [from, end] = visible(task.first_row + r, first, count);
    if (from == end) continue;
    const float* query = b.queries + r * p_.head_dim;
    stretches(b.keys, p_.layer->key_offset, from, end,
              [&](const void* keys, int64_t at, int64_t length) {
                kernel.dot(b.scores + at, query, keys, p_.head_dim, length, stride);
              });
    rows_.f32.scale(b.scores + from, end - from, scale_);
    soften(r, b.scores + from, end - from, b);
    stretches(b.values, p_.layer->value_offset, from, end,
              [&](const void* values, int64_t at, int64_t length) {
                kernel.axpy(b.block_sums, b.scores + at, values, length, p_.head_dim, stride);
                rows_.f32.add(b.sums + r * width_, b.block_sums, p_.head_dim);
              });
  }
}

void KvAttentionRun::many_rows(const Task& task, int64_t first, int64_t count,
                               const Buffers& b) const {
  widen(b.keys, p_.layer->key_offset, task, first, count);
  widen(b.values, p_.layer->value_offset, task, first, count);
  const int64_t groups = divide_up(p_.head_dim, f32_.k_group);
  for (int64_t col = 0; col < count; col += f32_.nr) {
    f32_.pack_b(b.packed_keys + col * groups * f32_.b_group_size, b.keys + col * p_.head_dim,
                p_.head_dim, std::min<int64_t>(f32_.nr, count - col), 1, p_.head_dim);
  }
  const int64_t panel = divide_up(count, f32_.k_group) * f32_.nr * f32_.b_group_size;
  for (int64_t col = 0; col < p_.head_dim; col += f32_.nr) {
    f32_.pack_b(b.packed_values + col / f32_.nr * panel, b.values + col, count,
                std::min<int64_t>(f32_.nr, p_.head_dim - col), p_.head_dim, 1);
  }
  const RowTiles tiles(task.rows, f32_.mr);
  for (int64_t i = 0; i < tiles.count; ++i) tile(task, tiles, i, first, count, b);
}

void KvAttentionRun::tile(const Task& task, const RowTiles& tiles, int64_t index, int64_t first,
                          int64_t count, const Buffers& b) const {
  const int64_t row = tiles.first_row(index), rows = tiles.rows(index);
  const int64_t seen = visible(task.first_row + row + rows - 1, first, count).second;
  if (seen == 0) return;
  const int64_t groups = divide_up(p_.head_dim, f32_.k_group);
  const int64_t step = f32_.nr * f32_.b_group_size;
  const char* queries = b.packed_queries + row * groups * f32_.a_group_size;
  for (int64_t col = 0; col < seen; col += f32_.nr) {
    f32_.tile[rows](groups, queries, b.packed_keys + col * groups * f32_.b_group_size, step,
                    {b.scores + col, kTokens, nullptr, 0, scale_, 0.0F});
  }
  for (int64_t r = 0; r < rows; ++r) {
    float* scores = b.scores + r * kTokens;
    const auto [from, end] = visible(task.first_row + row + r, first, count);
    if (from < end) soften(row + r, scores + from, end - from, b);
    std::fill(scores, scores + from, 0.0F);
    std::fill(scores + end, scores + seen, 0.0F);
  }
  f32_.pack_a(b.packed_rows, b.scores, rows, seen, kTokens, 1);
  const int64_t panel = divide_up(count, f32_.k_group) * f32_.nr * f32_.b_group_size;
  for (int64_t col = 0; col < width_; col += f32_.nr) {
    float* sums = b.sums + row * width_ + col;
    f32_.tile[rows](divide_up(seen, f32_.k_group), b.packed_rows,
                    b.packed_values + col / f32_.nr * panel, step,
                    {sums, width_, sums, width_, 1.0F, 1.0F});
  }
}

void KvAttentionRun::soften(int64_t row, float* scores, int64_t count, const Buffers& b) const {
  const float before = b.largest[row];
  const float block = rows_.f32.largest(scores, count);
  const float now = before >= block ? before : block;
  if (now == kNothing) {
    std::fill_n(scores, count, 0.0F);
    return;
  }
  const float sum = rows_.f32.exponentiate(scores, count, now);
  if (before != now && b.totals[row] != 0.0F) {
    const float factor = std::exp(before - now);
    b.totals[row] *= factor;
    rows_.f32.scale(b.sums + row * width_, p_.head_dim, factor);
  }
  b.totals[row] += sum;
  b.largest[row] = now;
}

void KvAttentionRun::store(int64_t item, int64_t head, int64_t row, float* sums,
                           float total) const {
  const int64_t token = row / p_.group, query_head = head * p_.group + row % p_.group;
  const int64_t at = ((item * p_.tokens + token) * p_.heads + query_head) * p_.head_dim;
  const float factor = total == 0.0F ? 1.0F : 1.0F / total;
  compute_.finish({sums, width_, 1, p_.head_dim, t_.out->data_as<char>() + at * itemsize_,
                   p_.head_dim, 1, nullptr, 0, 0, factor, 0.0F});
}

void KvAttentionRun::merge(const Partial& partial) const {
  const int64_t rows = p_.batch * p_.kv_heads * row_count_;
  parallel_for(
      rows, std::max<int64_t>(1, 16384 / (p_.head_dim * splits_)), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t row = i % row_count_, head = i / row_count_;
          int64_t part = row * parts_ / row_count_;
          while ((part + 1) * row_count_ / parts_ <= row) ++part;
          const int64_t inside = row - part * row_count_ / parts_;
          const int64_t first = (head * parts_ + part) * splits_;
          const auto at = [&](int64_t split) { return (first + split) * task_rows_ + inside; };
          float largest = kNothing;
          for (int64_t s = 0; s < splits_; ++s) {
            const float part_largest = partial.largest[at(s)];
            largest = largest >= part_largest ? largest : part_largest;
          }
          float* sums = partial.sums + at(0) * width_;
          float total = 0.0F;
          for (int64_t s = 0; s < splits_; ++s) {
            const float factor =
                partial.totals[at(s)] == 0.0F ? 0.0F : std::exp(partial.largest[at(s)] - largest);
            total += factor * partial.totals[at(s)];
            rows_.f32.scale(partial.sums + at(s) * width_, p_.head_dim, factor);
            if (s > 0) {
              rows_.f32.add(sums, partial.sums + at(s) * width_, p_.head_dim);
            }
          }
          store(head / p_.kv_heads, head % p_.kv_heads, row, sums, total);
        }
      });
}

}  // namespace cudaexec::ops

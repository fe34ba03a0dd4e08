#include "ops/gemm_run.h"

#include <atomic>
#include <memory>

#include "device/thread_pool.h"
#include "ops/pack_cache.h"
#include "ops/scratch.h"

namespace cudaexec::ops {

template <typename Acc>
GemmRun<Acc>::GemmRun(const GemmProblem& problem, const OpContext& context,
                      const GemmKernel<Acc>& kernel, int64_t out_size)
    : p_(problem),
      context_(context),
      kernel_(kernel),
      elem_size_(static_cast<int64_t>(dtype_size(problem.dtype))),
      out_size_(out_size),
      groups_(divide_up(problem.k, kernel.k_group)),
      panels_(divide_up(problem.n, kernel.nr)),
      tiles_(problem.m, kernel.mr),
      panel_bytes_(groups_ * kernel.nr * kernel.b_group_size) {
  const auto acc_size = static_cast<int64_t>(sizeof(Acc));
  const bool direct_add = p_.add.data == nullptr || p_.add.col_stride == 1;
  direct_ = out_size_ == acc_size && p_.out.col_stride == 1 && direct_add;
  const int64_t tile_bytes = kernel.mr * groups_ * kernel.a_group_size;
  block_tiles_ = std::clamp<int64_t>(kBlockBytes / tile_bytes, 1, tiles_.count);
  blocks_ = divide_up(tiles_.count, block_tiles_);
  a_bytes_ = divide_up(block_tiles_ * tile_bytes + kPackSlack, 64) * 64;
  // A result of fewer bits is rounded once, so its k stays whole.
  const bool whole_k = out_size_ < acc_size;
  depth_groups_ = whole_k ? groups_ : divide_up(kDepth, kernel.k_group);
}

template <typename Acc>
void GemmRun<Acc>::run() {
  if (p_.b.constant != nullptr) return run_constant();
  if (reads_in_place()) return run_in_place();
  if (p_.batch > 1 && panels_ * panel_bytes_ <= kChunkBytes) return run_batch();
  for (int64_t item = 0; item < p_.batch; ++item) run_chunks(item);
}

/// Rows of B need no packing where few tiles read them, unless their spacing makes them share cache
/// sets.
template <typename Acc>
bool GemmRun<Acc>::reads_in_place() const noexcept {
  if (!kernel_.b_in_place || p_.b.col_stride != 1) return false;
  return tiles_.count == 1 || (tiles_.count <= kInPlaceTiles && p_.b.row_stride % 256 != 0);
}

template <typename Acc>
void GemmRun<Acc>::run_constant() {
  const int64_t key[] = {static_cast<int64_t>(PackKind::kGemmB),
                         static_cast<int64_t>(p_.dtype),
                         reinterpret_cast<intptr_t>(kernel_.pack_b),
                         p_.b.offset,
                         p_.batch,
                         p_.k,
                         p_.n,
                         p_.batch == 1 ? 0 : p_.b.batch_stride,
                         p_.b.row_stride,
                         p_.b.col_stride};
  const PackedForm& form = PackCache::of(*p_.b.constant).get(key, [&] {
    auto block =
        std::make_unique<PackedBlock>(static_cast<size_t>(p_.batch * panels_ * panel_bytes_));
    char* data = block->data();
    parallel_for(p_.batch * panels_, divide_up(kThreadWork / 4, panel_bytes_),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     pack_panel(data + i * panel_bytes_, i / panels_, i % panels_);
                   }
                 });
    return block;
  });
  const char* packed = static_cast<const PackedBlock&>(form).data();
  const int64_t step = panel_bytes_ / groups_;
  for_parts(p_.batch, 0, panels_, 0,
            [&](Worker& worker, int64_t item, int64_t block, int64_t begin, int64_t end) {
              const GemmPanels panels{packed + item * panels_ * panel_bytes_, panel_bytes_, step};
              multiply(worker, item, block, panels, 0, begin, end);
            });
}

template <typename Acc>
void GemmRun<Acc>::run_in_place() {
  const bool has_tail = p_.n % kernel_.nr != 0;
  const char* b = static_cast<const char*>(p_.b.data);
  for_parts(p_.batch, 0, panels_, has_tail ? panel_bytes_ : 0,
            [&](Worker& worker, int64_t item, int64_t block, int64_t begin, int64_t end) {
              GemmPanels panels{b + gemm_offset(p_.b, item, 0, 0, elem_size_),
                                kernel_.nr * elem_size_, p_.b.row_stride * elem_size_};
              if (has_tail && end == panels_) {
                // The packed tail has another step between groups, so it goes by itself.
                multiply(worker, item, block, panels, 0, begin, end - 1);
                pack_panel(worker.b, item, panels_ - 1);
                panels = {worker.b, panel_bytes_, panel_bytes_ / groups_};
                begin = panels_ - 1;
                return multiply(worker, item, block, panels, begin, begin, end);
              }
              multiply(worker, item, block, panels, 0, begin, end);
            });
}

template <typename Acc>
void GemmRun<Acc>::run_batch() {
  for_parts(p_.batch, 0, panels_, panels_ * panel_bytes_,
            [&](Worker& worker, int64_t item, int64_t block, int64_t begin, int64_t end) {
              // Panels of the part only: another thread may have the rest of this item.
              const int64_t key = item * panels_ + begin;
              for (int64_t panel = begin; worker.item != key && panel < end; ++panel) {
                pack_panel(worker.b + panel * panel_bytes_, item, panel);
              }
              worker.item = key;
              const GemmPanels panels{worker.b, panel_bytes_, panel_bytes_ / groups_};
              multiply(worker, item, block, panels, 0, begin, end);
            });
}

template <typename Acc>
void GemmRun<Acc>::run_chunks(int64_t item) {
  const int64_t chunk = std::clamp<int64_t>(kChunkBytes / panel_bytes_, 1, panels_);
  Scratch packed(static_cast<size_t>(chunk * panel_bytes_), context_);
  for (int64_t first = 0; first < panels_; first += chunk) {
    const int64_t end = std::min(first + chunk, panels_);
    const auto pack = [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) {
        pack_panel(packed.data() + i * panel_bytes_, item, first + i);
      }
    };
    if (threads_for(1) == 1) {
      pack(0, end - first);
    } else {
      parallel_for(end - first, divide_up(kThreadWork / 4, panel_bytes_), pack);
    }
    const GemmPanels panels{packed.data(), panel_bytes_, panel_bytes_ / groups_};
    for_parts(1, first, end, 0,
              [&](Worker& worker, int64_t, int64_t block, int64_t begin, int64_t until) {
                multiply(worker, item, block, panels, first, begin, until);
              });
  }
}

template <typename Acc>
void GemmRun<Acc>::pack_panel(char* dst, int64_t item, int64_t panel) const {
  const int64_t col = panel * kernel_.nr;
  const auto* b = static_cast<const char*>(p_.b.data);
  kernel_.pack_b(dst, b + gemm_offset(p_.b, item, 0, col, elem_size_), p_.k,
                 std::min<int64_t>(kernel_.nr, p_.n - col), p_.b.row_stride, p_.b.col_stride);
}

template <typename Acc>
void GemmRun<Acc>::pack_block(Worker& worker, int64_t item, int64_t block) const {
  if (worker.block == item * blocks_ + block) return;
  worker.block = item * blocks_ + block;
  const auto* a = static_cast<const char*>(p_.a.data);
  char* dst = worker.a;
  const int64_t end = std::min((block + 1) * block_tiles_, tiles_.count);
  for (int64_t tile = block * block_tiles_; tile < end; ++tile) {
    const int64_t rows = tiles_.rows(tile);
    kernel_.pack_a(dst, a + gemm_offset(p_.a, item, tiles_.first_row(tile), 0, elem_size_), rows,
                   p_.k, p_.a.row_stride, p_.a.col_stride);
    dst += rows * groups_ * kernel_.a_group_size;
  }
}

template <typename Acc>
void GemmRun<Acc>::multiply(Worker& worker, int64_t item, int64_t block, const GemmPanels& panels,
                            int64_t first, int64_t begin, int64_t end) const {
  pack_block(worker, item, block);
  const auto part = [&](int64_t panel, int64_t group) {
    const int64_t depth = std::min(depth_groups_, groups_ - group);
    const char* b = panels.data + (panel - first) * panels.panel_stride + group * panels.group_step;
    const char* a = worker.a;
    const int64_t tile_end = std::min((block + 1) * block_tiles_, tiles_.count);
    for (int64_t tile = block * block_tiles_; tile < tile_end; ++tile) {
      const int64_t row_bytes = tiles_.rows(tile) * kernel_.a_group_size;
      multiply_tile(a + group * row_bytes, b, panels.group_step, item, tile, panel, group, depth);
      a += groups_ * row_bytes;
    }
  };
  if (block_tiles_ == 1) {  // reads B once: in the order in which it lies
    for (int64_t panel = begin; panel < end; ++panel) {
      for (int64_t group = 0; group < groups_; group += depth_groups_) part(panel, group);
    }
    return;
  }
  for (int64_t group = 0; group < groups_; group += depth_groups_) {
    for (int64_t panel = begin; panel < end; ++panel) part(panel, group);
  }
}

template <typename Acc>
void GemmRun<Acc>::multiply_tile(const char* a, const char* b, int64_t b_step, int64_t item,
                                 int64_t tile, int64_t panel, int64_t group, int64_t groups) const {
  const int64_t rows = tiles_.rows(tile), row = tiles_.first_row(tile), col = panel * kernel_.nr;
  const int64_t cols = std::min<int64_t>(kernel_.nr, p_.n - col);
  char* out = static_cast<char*>(p_.out.data) + gemm_offset(p_.out, item, row, col, out_size_);
  const char* add = static_cast<const char*>(p_.add.data);
  if (add != nullptr) add += gemm_offset(p_.add, item, row, col, out_size_);
  int64_t add_rows = p_.add.row_stride, add_cols = p_.add.col_stride;
  auto beta = static_cast<Acc>(p_.beta);
  if (group > 0) {  // goes on from the sum so far
    add = out;
    add_rows = p_.out.row_stride;
    add_cols = p_.out.col_stride;
    beta = Acc{1};
  }
  const auto alpha = static_cast<Acc>(p_.alpha);
  if (direct_ && cols == kernel_.nr) {
    kernel_.tile[rows](groups, a, b, b_step,
                       {reinterpret_cast<Acc*>(out), p_.out.row_stride,
                        reinterpret_cast<const Acc*>(add), add_rows, alpha, beta});
    return;
  }
  alignas(64) Acc buffer[kMaxTileRows * kMaxPanelCols];
  kernel_.tile[rows](groups, a, b, b_step, {buffer, kernel_.nr, nullptr, 0, Acc{1}, Acc{0}});
  kernel_.finish({buffer, kernel_.nr, rows, cols, out, p_.out.row_stride, p_.out.col_stride, add,
                  add_rows, add_cols, alpha, beta});
}

template <typename Acc>
int GemmRun<Acc>::threads_for(int64_t items) const noexcept {
  const double work = static_cast<double>(p_.m) * static_cast<double>(p_.n) *
                      static_cast<double>(p_.k) * static_cast<double>(items);
  if (work < 2.0 * kThreadWork) return 1;
  return static_cast<int>(std::min<double>(work / kThreadWork, current_threads()));
}

template <typename Acc>
template <typename Body>
void GemmRun<Acc>::for_parts(int64_t items, int64_t begin, int64_t end, int64_t b_bytes,
                             const Body& body) const {
  const int threads = threads_for(items);
  const int64_t panels = end - begin;
  // A few parts per thread, so that one that is held up does not hold up all.
  const int64_t cuts =
      threads == 1 ? 1 : std::min(panels, divide_up(4 * int64_t{threads}, items * blocks_));
  const int64_t parts = items * blocks_ * cuts;
  const int64_t b_room = divide_up(b_bytes, 64) * 64;
  Scratch scratch(static_cast<size_t>((a_bytes_ + b_room) * threads), context_);
  const auto run_part = [&](Worker& worker, int64_t part) {
    const int64_t cut = part / blocks_ % cuts, item = part / blocks_ / cuts;
    body(worker, item, part % blocks_, begin + panels * cut / cuts,
         begin + panels * (cut + 1) / cuts);
  };
  if (threads == 1) {
    Worker worker{scratch.data(), scratch.data() + a_bytes_};
    for (int64_t part = 0; part < parts; ++part) run_part(worker, part);
    return;
  }
  std::atomic<int64_t> next{0};
  parallel_region(threads, [&](int thread, int) {
    char* own = scratch.data() + thread * (a_bytes_ + b_room);
    Worker worker{own, own + a_bytes_};
    for (int64_t part = next++; part < parts; part = next++) run_part(worker, part);
  });
}

template class GemmRun<float>;
template class GemmRun<double>;
template class GemmRun<int32_t>;

}  // namespace cudaexec::ops

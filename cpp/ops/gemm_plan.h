// How one matrix product is cut up: tiles of rows, panels of columns, blocks of k, tasks of
// threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace cudaexec::ops {

[[nodiscard]] constexpr int64_t divide_up(int64_t a, int64_t b) noexcept { return (a + b - 1) / b; }

/// Rows cut into tiles of nearly equal height, at most `mr`: a short last tile wastes registers.
struct RowTiles {
  int64_t count;
  int64_t base;   // rows of a short tile
  int64_t extra;  // the first `extra` tiles have one more

  RowTiles(int64_t rows, int64_t mr) noexcept
      : count(divide_up(rows, mr)), base(rows / count), extra(rows % count) {}
  [[nodiscard]] int64_t rows(int64_t tile) const noexcept { return base + (tile < extra ? 1 : 0); }
  [[nodiscard]] int64_t first_row(int64_t tile) const noexcept {
    return tile * base + std::min(tile, extra);
  }
};

/// Multiply-adds below which another thread costs more than it saves.
inline constexpr int64_t kThreadWork = int64_t{1} << 18;
/// Bytes of packed A that one thread keeps while it goes over the panels (its share of the L2
/// cache).
inline constexpr int64_t kBlockBytes = int64_t{384} << 10;
/// Bytes of B packed at a time where B is not a constant.
inline constexpr int64_t kChunkBytes = int64_t{4} << 20;
/// Steps of k per pass: a panel's part stays in the L1 cache for several tiles, and shorter chains
/// of additions lose less precision.
inline constexpr int64_t kDepth = 256;

/// Tiles that may read B as it lies.
inline constexpr int64_t kInPlaceTiles = 8;

}  // namespace cudaexec::ops

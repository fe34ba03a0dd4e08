#include "runtime/weight_upload.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "device/cuda/host_work.h"
#include "device/cuda/stream.h"
#include "device/thread_pool.h"
#include "memory/cuda_pinned_allocator.h"
#include "tensor/storage.h"

namespace cudaexec {
namespace {

constexpr size_t kChunk = size_t{4} << 20;  // bytes of a buffer
constexpr size_t kBuffers = 2;              // of each thread: one fills while one is copied
constexpr int kMostThreads = 8;
// Below this the driver's own staging is faster than making page-locked memory.
constexpr size_t kDirect = size_t{2} << 20;

struct Chunk {
  std::byte* dst;
  std::span<const std::byte> src;
};

std::vector<Chunk> cut(std::span<const Upload> uploads) {
  std::vector<Chunk> chunks;
  for (const Upload& each : uploads) {
    auto* dst = static_cast<std::byte*>(each.dst);
    for (size_t at = 0; at < each.src.size(); at += kChunk) {
      chunks.push_back({dst + at, each.src.subspan(at, std::min(kChunk, each.src.size() - at))});
    }
  }
  return chunks;
}

struct Buffer {
  std::byte* data;
  CudaEvent copied;
  bool in_use = false;
};

class Uploader {
 public:
  Uploader(CudaDevice& device, std::vector<Chunk> chunks, StreamRef stream, int threads)
      : device_(device), chunks_(std::move(chunks)), stream_(stream) {
    const size_t count = static_cast<size_t>(threads) * kBuffers;
    memory_ = Storage::allocate(count * kChunk, Device{}, cuda_pinned_allocator(), {});
    buffers_.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      buffers_.push_back(
          {static_cast<std::byte*>(memory_->data()) + i * kChunk, CudaEvent(device)});
    }
  }

  void run(int threads) {
    HostWork work(device_, stream_);
    work.begin();
    parallel_region(threads, [this](int thread, int) { copy_some(static_cast<size_t>(thread)); });
    work.wait();
  }

 private:
  void copy_some(size_t thread) {
    for (size_t turn = 0;; ++turn) {
      const size_t next = next_.fetch_add(1, std::memory_order_relaxed);
      if (next >= chunks_.size()) return;
      Buffer& buffer = buffers_[thread * kBuffers + turn % kBuffers];
      if (buffer.in_use) buffer.copied.synchronize();
      const Chunk& chunk = chunks_[next];
      std::memcpy(buffer.data, chunk.src.data(), chunk.src.size());
      device_.copy(chunk.dst, device_.device(), buffer.data, Device{}, chunk.src.size(), stream_);
      buffer.copied.record(stream_);
      buffer.in_use = true;
    }
  }

  CudaDevice& device_;
  const std::vector<Chunk> chunks_;
  StreamRef stream_;
  std::atomic<size_t> next_{0};
  StoragePtr memory_;
  std::vector<Buffer> buffers_;
};

}  // namespace

void upload(CudaDevice& device, std::span<const Upload> uploads, StreamRef stream) {
  std::vector<Chunk> chunks = cut(uploads);
  size_t total = 0;
  for (const Chunk& chunk : chunks) total += chunk.src.size();
  if (total == 0) return;
  if (total < kDirect) {
    HostWork work(device, stream);
    work.begin();
    for (const Chunk& chunk : chunks) {
      device.copy(chunk.dst, device.device(), chunk.src.data(), Device{}, chunk.src.size(), stream);
    }
    work.wait();
    return;
  }
  const int threads = std::min({current_threads(), kMostThreads, static_cast<int>(chunks.size())});
  Uploader(device, std::move(chunks), stream, threads).run(threads);
}

}  // namespace cudaexec

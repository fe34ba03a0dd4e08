#include "runtime/weight_loading.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/str.h"
#include "base/tree_hash.h"
#include "device/thread_pool.h"
#include "memory/cuda_pool_allocator.h"
#include "runtime/weight_cache.h"
#include "runtime/weight_upload.h"

namespace cudaexec {
namespace {

namespace fs = std::filesystem;

/// Files that may hold the weights, best first, without repetition.
std::vector<std::string> candidates(const std::string& pte_path) {
  std::vector<fs::path> programs{fs::path(pte_path)};
  std::error_code ignored;
  const fs::path real = fs::canonical(programs.front(), ignored);
  if (!real.empty()) programs.push_back(real);
  std::vector<std::string> paths;
  const auto add = [&paths](const fs::path& path) {
    if (std::find(paths.begin(), paths.end(), path.string()) == paths.end()) {
      paths.push_back(path.string());
    }
  };
  for (const fs::path& program : programs) add(fs::path(program).replace_extension(".ptd"));
  for (const fs::path& program : programs) {
    for (const char* name : {"aoti_cpu_blob.ptd", "aoti_cuda_blob.ptd"}) {
      add(program.parent_path() / name);
    }
  }
  return paths;
}

std::string weight_place(const WeightEntry& entry) {
  return str("the weight '", entry.fqn, "' (key '", entry.storage_key, "')");
}

}  // namespace

std::shared_ptr<const PtdFile> open_data_file(const std::string& pte_path,
                                              const std::string& ptd_path,
                                              const WeightTable& table) {
  if (!ptd_path.empty()) return PtdFile::open(ptd_path);
  const std::vector<std::string> paths = candidates(pte_path);
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (fs::exists(path, ignored)) return PtdFile::open(path);
  }
  throw WeightsError(str(pte_path, ": its ", table.entries.size(), " weights (the first is ",
                         weight_place(table.entries.front()),
                         ") are in a data file, and none was given or found; looked for ",
                         list_str(paths), "; put it beside the program, or pass ptd="));
}

std::vector<WeightBytes> locate_weights(const WeightTable& table, const PteFile& pte,
                                        const PtdFile* ptd) {
  std::vector<WeightBytes> located;
  located.reserve(table.entries.size());
  for (const WeightEntry& entry : table.entries) {
    const PtdEntry* in_ptd = ptd != nullptr ? ptd->find(entry.storage_key) : nullptr;
    const FileBlob* blob = in_ptd != nullptr ? &in_ptd->blob : pte.find_named(entry.storage_key);
    const std::string& path = ptd != nullptr ? ptd->path() : pte.path();
    if (blob == nullptr) {
      throw WeightsError(
          str(path, ": ", weight_place(entry), " is missing; ", pte.path(), " expects ",
              entry.nbytes == kUnrecordedSize ? std::string("it") : str(entry.nbytes, " bytes"),
              " under this key, and the file has ",
              ptd != nullptr ? ptd->entries().size() : pte.named_data().size(),
              " other entries; it belongs to another program or is incomplete"));
    }
    if (entry.nbytes != kUnrecordedSize && blob->bytes.size() != entry.nbytes) {
      throw WeightsError(str(path, " at offset ", blob->file_offset, ": ", weight_place(entry),
                             " has ", blob->bytes.size(), " bytes; ", pte.path(), " expects ",
                             entry.nbytes, "; the data file belongs to another program"));
    }
    located.push_back(
        {blob->bytes, blob->file_offset, in_ptd != nullptr ? ptd->file() : pte.file()});
  }
  return located;
}

void verify_weights(const WeightTable& table, const std::vector<WeightBytes>& weights) {
  // Chunk numbers run through all entries, so that many small weights share the threads as well as
  // one large one.
  std::vector<uint64_t> first_chunk(weights.size() + 1, 0);
  for (size_t i = 0; i < weights.size(); ++i) {
    const bool recorded = !table.entries[i].digest.empty();
    first_chunk[i + 1] =
        first_chunk[i] + (recorded ? tree_hash_chunks(weights[i].bytes.size()) : 0);
  }
  std::vector<Hash128> chunks(first_chunk.back());
  parallel_for(static_cast<int64_t>(chunks.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto chunk = static_cast<uint64_t>(begin); chunk < static_cast<uint64_t>(end); ++chunk) {
      const auto next = std::upper_bound(first_chunk.begin(), first_chunk.end(), chunk);
      const auto entry = static_cast<size_t>(next - first_chunk.begin()) - 1;
      chunks[chunk] = tree_hash_chunk(weights[entry].bytes, chunk - first_chunk[entry]);
    }
  });
  for (size_t i = 0; i < weights.size(); ++i) {
    const WeightEntry& entry = table.entries[i];
    if (entry.digest.empty()) continue;
    const std::span<const Hash128> all(chunks);
    const std::string found = hash_hex(tree_hash_root(
        all.subspan(first_chunk[i], first_chunk[i + 1] - first_chunk[i]), weights[i].bytes.size()));
    if (found != entry.digest) {
      throw WeightsError(str(weights[i].file->path(), " at offset ", weights[i].file_offset, ": ",
                             weight_place(entry), " has the digest ", found,
                             "; the program expects ", entry.digest,
                             "; the data file is damaged or belongs to another program"));
    }
  }
}

std::vector<StoragePtr> map_weights(const WeightTable& table,
                                    const std::vector<WeightBytes>& weights, CudaDevice* gpu) {
  std::vector<StoragePtr> storages(weights.size());
  std::vector<size_t> missing;  // on the GPU
  for (size_t i = 0; i < weights.size(); ++i) {
    const WeightEntry& entry = table.entries[i];
    if (gpu != nullptr && entry.on_gpu && !entry.state) {
      storages[i] = find_shared_weight({gpu->device(), entry.fqn, entry.digest});
      if (!storages[i]) missing.push_back(i);
    } else {
      storages[i] = shared_weight({Device{}, entry.fqn, entry.digest}, weights[i].bytes,
                                  entry.alignment, weights[i].file);
    }
  }
  if (missing.empty()) return storages;

  // In the order of the file, which is how it is read fastest.
  std::stable_sort(missing.begin(), missing.end(), [&](size_t a, size_t b) {
    return weights[a].bytes.data() < weights[b].bytes.data();
  });
  const StreamRef stream = gpu->thread_stream();
  Allocator& memory = cuda_allocator(gpu->index());
  std::vector<StoragePtr> filled;
  std::vector<Upload> uploads;
  for (const size_t i : missing) {
    filled.push_back(Storage::allocate(weights[i].bytes.size(), gpu->device(), memory, stream));
    uploads.push_back({filled.back()->data(), weights[i].bytes});
  }
  upload(*gpu, uploads, stream);
  for (size_t k = 0; k < missing.size(); ++k) {
    const WeightEntry& entry = table.entries[missing[k]];
    storages[missing[k]] =
        share_weight({gpu->device(), entry.fqn, entry.digest}, std::move(filled[k]));
  }
  return storages;
}

}  // namespace cudaexec

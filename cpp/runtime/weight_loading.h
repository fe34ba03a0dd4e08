// Finds the weights of a table in the files, checks them, and maps them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "format/ptd_reader.h"
#include "format/pte_reader.h"
#include "runtime/weight_table.h"

namespace cudaexec {

/// The bytes of one entry, inside a mapped file.
struct WeightBytes {
  std::span<const std::byte> bytes;
  uint64_t file_offset = 0;
  std::shared_ptr<const MappedFile> file;
};

/// The data file of `pte_path`: `ptd_path` if given, else the first that exists of the sibling with
/// the extension .ptd and ExecuTorch's own names, also beside the file that a symbolic link points
/// to.
/// @throws FileError, FormatError, VersionError; WeightsError naming what was tried.
std::shared_ptr<const PtdFile> open_data_file(const std::string& pte_path,
                                              const std::string& ptd_path,
                                              const WeightTable& table);

/// Where each entry lies: in `ptd` (may be null), else in the named data of `pte`.
/// @throws WeightsError naming FQN, key, path, expected and found if one is missing or has another
/// size.
std::vector<WeightBytes> locate_weights(const WeightTable& table, const PteFile& pte,
                                        const PtdFile* ptd);

/// Compares every recorded digest, in parallel over chunks of all entries.
/// @throws WeightsError naming the first entry that differs.
void verify_weights(const WeightTable& table, const std::vector<WeightBytes>& weights);

/// One storage per entry, shared with the rest of the process. Those on the GPU (`gpu`: null for
/// CPU programs) are copied there, once, and are there on return; but of state, which every session
/// copies to its own memory, only the file's bytes.
/// @throws OutOfMemory, DeviceError
std::vector<StoragePtr> map_weights(const WeightTable& table,
                                    const std::vector<WeightBytes>& weights, CudaDevice* gpu);

}  // namespace cudaexec

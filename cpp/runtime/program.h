// The files of a Module and what its methods are: specs, chosen code, weights; or why a method
// cannot run here. Read-only once loaded.
#pragma once

#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aoti/shared_object.h"
#include "format/manifest.h"
#include "format/ptd_reader.h"
#include "format/pte_reader.h"
#include "runtime/options.h"
#include "runtime/variant_choice.h"
#include "runtime/weight_table.h"

namespace cudaexec {

class CudaDevice;

struct ProgramMethod {
  MethodSpec spec;
  bool constant = false;  // returns what the file says and has no code
  bool dense = false;     // its constants are one blob, in the container's order
  std::shared_ptr<SharedObject> code;
  VariantChoice choice;
  std::exception_ptr refusal;  // why it cannot run here; then there is no code
};

struct Program {
  std::string pte_path, ptd_path;  // ptd_path is empty where no data file is used
  bool has_manifest = false;
  Device device;              // where all methods run
  CudaDevice* gpu = nullptr;  // the same; null on the CPU
  std::map<std::string, std::string> producer;
  std::optional<KvCacheSpec> kv_cache;  // of a manifest
  std::vector<ProgramMethod> methods;
  WeightTable table;                // its `methods` are in step with `methods`
  std::vector<StoragePtr> weights;  // one per table entry
};

/// Opens, checks and maps everything. @throws as Module::load.
std::unique_ptr<Program> load_program(const std::string& pte_path, const std::string& ptd_path,
                                      const std::string& device, const LoadOptions& options);

}  // namespace cudaexec

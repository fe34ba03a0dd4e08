#include "runtime/program.h"

#include <gnu/libc-version.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

#include "aoti/container.h"
#include "base/error.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/str.h"
#include "device/cuda/cuda_device.h"
#include "device/thread_pool.h"
#include "format/program_digest.h"
#include "runtime/device_choice.h"
#include "runtime/executorch_method.h"
#include "runtime/weight_loading.h"

namespace cudaexec {
namespace {

/// "2.34" against "2.4": -1, 0 or 1, number by number.
int compare_versions(const std::string& a, const std::string& b) {
  const char* left = a.c_str();
  const char* right = b.c_str();
  while (*left != '\0' || *right != '\0') {
    char* left_end = nullptr;
    char* right_end = nullptr;
    const long x = std::strtol(left, &left_end, 10);
    const long y = std::strtol(right, &right_end, 10);
    if (x != y) return x < y ? -1 : 1;
    if (left_end == left && right_end == right) break;
    left = *left_end == '.' ? left_end + 1 : left_end;
    right = *right_end == '.' ? right_end + 1 : right_end;
  }
  return 0;
}

class Loader {
 public:
  Loader(const std::string& pte_path, const std::string& ptd_path, const LoadOptions& options)
      : options_(options), ptd_path_(ptd_path), pte_(PteFile::open(pte_path)) {
    program_->pte_path = pte_path;
  }

  std::unique_ptr<Program> load(const std::string& device) {
    verify_program_digest(*pte_);
    if (const FileBlob* manifest = pte_->find_named(kManifestKey)) {
      read_manifest(*manifest);
    } else {
      read_plans();
    }
    choose_device(device);
    check_platform();
    for (ProgramMethod& method : program_->methods) choose_variant(method);
    check_any_runs();
    for (ProgramMethod& method : program_->methods) open_code(method);
    check_any_runs();
    load_weights();
    return std::move(program_);
  }

 private:
  void read_manifest(const FileBlob& blob) {
    const std::string_view text(reinterpret_cast<const char*>(blob.bytes.data()),
                                blob.bytes.size());
    manifest_ = parse_manifest(text, pte_->path());
    program_->has_manifest = true;
    program_->producer = manifest_.producer;
    program_->kv_cache = manifest_.kv_cache;
    source_.blobs = manifest_.weights;
    source_.aliases = manifest_.aliases;
    for (MethodSpec& spec : manifest_.methods) {
      if (pte_->find_method(spec.name) == nullptr) {
        throw FormatError(str(pte_->path(), ": the manifest describes a method '", spec.name,
                              "' that the program does not have; the file is damaged"));
      }
      ProgramMethod& method = program_->methods.emplace_back();
      method.spec = std::move(spec);
      method.constant = method.spec.variants.empty() && method.spec.num_graph_outputs == 0;
    }
  }

  void read_plans() {
    source_.all_state = true;
    for (const PteMethod& plan : pte_->methods()) {
      program_->methods.push_back(describe_executorch_method(*pte_, plan, source_.blobs));
    }
  }

  void check_platform() const {
    struct utsname system{};
    ::uname(&system);
    check_same("os", "linux");
    check_same("machine", system.machine);
    const auto glibc = manifest_.platform.find("glibc");
    const std::string here = ::gnu_get_libc_version();
    if (glibc != manifest_.platform.end() && compare_versions(here, glibc->second) < 0) {
      throw TargetError(str(pte_->path(), ": its code needs glibc ", glibc->second,
                            " or newer; this system has ", here,
                            "; export on an older system, or run on a newer one"));
    }
  }

  void check_same(const char* key, const std::string& here) const {
    const auto recorded = manifest_.platform.find(key);
    if (recorded == manifest_.platform.end() || recorded->second == here) return;
    throw TargetError(str(pte_->path(), ": it was exported for ", key, " '", recorded->second,
                          "'; this system is '", here, "'; export it for this one"));
  }

  void choose_device(const std::string& asked) {
    DeviceChoice choice = cudaexec::choose_device(*program_, asked);
    program_->device = choice.device;
    program_->gpu = choice.gpu;
    gpu_problem_ = std::move(choice.problem);
    source_.on_gpu = choice.gpu != nullptr;
  }

  void choose_variant(ProgramMethod& method) const {
    if (method.refusal != nullptr || method.constant) return;
    const auto& variants = method.spec.variants;
    const CpuFeatures& host = CpuFeatures::host();
    const CudaDevice* gpu = program_->gpu;
    method.choice = gpu != nullptr ? choose_cuda_variant(variants, gpu->facts().sm)
                                   : choose_cpu_variant(variants, host, options_.isa);
    if (method.choice.chosen) {
      if (gpu != nullptr) note_other_gpu(method, *gpu);
      return;
    }
    const std::string where = gpu != nullptr ? str(to_string(gpu->device()), " is ",
                                                   gpu->facts().name, " (sm_", gpu->facts().sm, ")")
                                             : str("this machine is ", host.level());
    const std::string what = str(
        pte_->path(), ": method '", method.spec.name,
        "' has no code that runs here: ", describe_choice(variants, method.choice), "; ", where);
    const bool no_gpu = !gpu_problem_.empty() && gpu == nullptr;
    method.refusal =
        no_gpu ? std::make_exception_ptr(DeviceError(str(what, ", without a GPU: ", gpu_problem_)))
               : std::make_exception_ptr(TargetError(
                     str(what, "; export with a target that fits, or load it on another device")));
  }

  /// Grid sizes of some kernels were chosen for the GPU of the export: right results, other speed.
  void note_other_gpu(const ProgramMethod& method, const CudaDevice& gpu) const {
    const CodeVariant& variant = method.spec.variants[*method.choice.chosen];
    const int here = gpu.facts().sm_count;
    if (variant.sm_count == 0 || variant.sm_count == here) return;
    log(LogLevel::kWarning,
        str(pte_->path(), ": method '", method.spec.name, "' was tuned for a GPU of ",
            variant.sm_count, " multiprocessors; ", to_string(gpu.device()), " (", gpu.facts().name,
            ") has ", here, ", so it may be slower than an export for it"));
  }

  /// Throws what stands against the methods if none of them can run.
  void check_any_runs() const {
    std::exception_ptr first;
    for (const ProgramMethod& method : program_->methods) {
      if (method.refusal == nullptr) return;
      if (first == nullptr) first = method.refusal;
    }
    if (first != nullptr) std::rethrow_exception(first);
    throw FormatError(str(pte_->path(), ": the program has no methods"));
  }

  void open_code(ProgramMethod& method) {
    if (method.refusal != nullptr || method.constant) return;
    const std::string& key = method.spec.variants[*method.choice.chosen].code;
    const FileBlob* blob = pte_->find_named(key);
    if (blob == nullptr) {
      throw FormatError(str(pte_->path(), ": method '", method.spec.name, "': its code '", key,
                            "' is missing from the file's named data; the file is damaged"));
    }
    auto& code = opened_[key];
    if (code == nullptr) {
      verify_code(key, *blob);
      code = open_or_refuse(method, *blob);
    }
    method.code = code;
    check_kv(method, *blob);
    if (method.dense && method.code != nullptr &&
        Container(method.code, program_->device).constants().empty()) {
      method.dense = false;  // the blob may be absent then
      method.spec.constants.clear();
    }
  }

  void verify_code(const std::string& key, const FileBlob& blob) const {
    const auto recorded = manifest_.code.find(key);
    if (recorded == manifest_.code.end()) {
      if (!program_->has_manifest) return;
      throw FormatError(str(pte_->path(), ": the manifest records no digest of the code '", key,
                            "'; the file is damaged"));
    }
    const std::string found = options_.verify ? sha256_hex(blob.bytes) : recorded->second.digest;
    if (blob.bytes.size() == recorded->second.nbytes && found == recorded->second.digest) return;
    throw FormatError(str(pte_->path(), " at offset ", blob.file_offset, ": the code '", key,
                          "' has ", blob.bytes.size(), " bytes and SHA-256 ", found, "; expected ",
                          recorded->second.nbytes, " and ", recorded->second.digest,
                          "; the file is damaged"));
  }

  /// Code that calls for a KV cache needs the manifest's word on it.
  void check_kv(const ProgramMethod& method, const FileBlob& blob) const {
    if (method.spec.kv || method.code == nullptr) return;
    for (const char* name : {"aoti_torch_cpu_kv_attend", "aoti_torch_cuda_kv_attend"}) {
      const std::span<const std::byte> image = blob.bytes;
      if (::memmem(image.data(), image.size(), name, std::strlen(name)) == nullptr) continue;
      throw FormatError(str(pte_->path(), ": method '", method.spec.name, "': its code calls ",
                            name,
                            ", and the manifest describes no KV cache for it; the file is damaged, "
                            "export it again"));
    }
  }

  /// A library that can never be opened here refuses its method; any other failure ends the load.
  std::shared_ptr<SharedObject> open_or_refuse(ProgramMethod& method, const FileBlob& blob) const {
    const std::string name = str(pte_->path(), ":", method.spec.name);
    try {
      return SharedObject::open(blob.bytes, name);
    } catch (const TargetError&) {
      if (inspect_elf(blob.bytes, name).missing.empty()) throw;
      method.refusal = std::current_exception();
      return nullptr;
    }
  }

  void load_weights() {
    MethodSpec none;
    for (const ProgramMethod& method : program_->methods) {
      source_.methods.push_back(method.code != nullptr ? &method.spec : &none);
    }
    source_.path = pte_->path();
    program_->table = build_weight_table(source_);
    std::shared_ptr<const PtdFile> ptd;
    bool needs_file = !ptd_path_.empty();
    for (const WeightEntry& entry : program_->table.entries) {
      needs_file = needs_file || pte_->find_named(entry.storage_key) == nullptr;
    }
    if (needs_file) {
      ptd = open_data_file(pte_->path(), ptd_path_, program_->table);
      program_->ptd_path = ptd->path();
    }
    const auto located = locate_weights(program_->table, *pte_, ptd.get());
    if (options_.verify) verify_weights(program_->table, located);
    program_->weights = map_weights(program_->table, located, program_->gpu);
  }

  const LoadOptions& options_;
  const std::string& ptd_path_;
  std::shared_ptr<const PteFile> pte_;
  std::unique_ptr<Program> program_ = std::make_unique<Program>();
  Manifest manifest_;
  WeightSource source_;
  std::string gpu_problem_;
  std::map<std::string, std::shared_ptr<SharedObject>> opened_;
};

}  // namespace

std::unique_ptr<Program> load_program(const std::string& pte_path, const std::string& ptd_path,
                                      const std::string& device, const LoadOptions& options) {
  const ThreadLimit limit(options.threads);
  return Loader(pte_path, ptd_path, options).load(device);
}

}  // namespace cudaexec

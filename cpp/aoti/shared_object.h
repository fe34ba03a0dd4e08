// A library opened from memory: ELF check, DT_NEEDED on our shims, memfd, dlopen, and complete
// unloading in the destructor.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/export.h"

namespace cudaexec {

class CodeFile;
namespace cuda {
class ModuleRegistry;
}

/// What the loader must know of a library before it is opened.
struct ElfReport {
  std::vector<std::string> needed;          // DT_NEEDED
  std::vector<std::string> unknown_needed;  // of these: neither ours nor a system library
  std::vector<std::string> undefined;       // undefined dynamic symbols, without weak ones
  std::vector<std::string> missing;    // of these: neither ours nor in a needed system library;
                                       // "name@version" where a version is needed
  std::vector<std::string> unique;     // STB_GNU_UNIQUE definitions: they prevent unloading
  std::string isa;                     // x86-64 level marked in the file ("" if none)
  int isa_level = 0;                   // the same as a number; 0 if none
  std::string min_glibc, min_glibcxx;  // e.g. "2.34", "3.4.30"; "" if none
};

/// Reads an ELF image without opening it. @throws FormatError if it is damaged or not an ELF64
/// x86-64 shared object. `name` appears in messages.
CUDAEXEC_API ElfReport inspect_elf(std::span<const std::byte> image, const std::string& name);

/// Names that a library defines for others. @throws FormatError as above.
CUDAEXEC_API std::vector<std::string> exported_symbols(std::span<const std::byte> image,
                                                       const std::string& name);

class CUDAEXEC_API SharedObject {
 public:
  /// Checks and opens `image` (copied). Bound to our shims whatever else is loaded in the process.
  /// @throws FormatError, TargetError (names every missing symbol, or the ISA level), FileError;
  /// DeviceError if it needs the NVIDIA driver and there is none.
  static std::shared_ptr<SharedObject> open(std::span<const std::byte> image,
                                            const std::string& name);
  ~SharedObject();
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;

  /// Address of a symbol, or null.
  [[nodiscard]] void* symbol(const char* name) const noexcept;
  /// What dlopen() returned.
  [[nodiscard]] void* handle() const noexcept { return handle_; }
  /// The path it was opened under, as in /proc/self/maps and dladdr.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// GPU code that its containers have loaded, shared among them.
  [[nodiscard]] const std::shared_ptr<cuda::ModuleRegistry>& modules() const noexcept {
    return modules_;
  }
  /// Libraries open now: leak tests compare it.
  static int64_t live_count() noexcept;

 private:
  SharedObject();

  std::string name_;
  std::string path_;
  std::shared_ptr<cuda::ModuleRegistry> modules_;
  std::unique_ptr<CodeFile> file_;
  void* handle_ = nullptr;
};

}  // namespace cudaexec

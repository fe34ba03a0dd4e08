// inspect_elf(): what a library needs, and what of it this process cannot supply.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "aoti/elf_image.h"
#include "aoti/elf_prepare.h"
#include "aoti/shared_object.h"
#include "base/str.h"
#include "device/cuda/generated_entries.h"

namespace cudaexec {
namespace {

// Libraries that generated code may name; every machine has them, or a program needs them
// knowingly.
constexpr std::array<std::string_view, 11> kSystemLibraries{
    "libc.so.6",     "libm.so.6",    "libmvec.so.1",        "libstdc++.so.6",
    "libgcc_s.so.1", "libdl.so.2",   "libpthread.so.0",     "librt.so.1",
    "libgomp.so.1",  "libcuda.so.1", "ld-linux-x86-64.so.2"};

// Ours or nobody's: libtorch, libgomp and the CUDA runtime have the same names with other contents.
constexpr std::array<std::string_view, 7> kOurPrefixes{
    "aoti_torch_", "aoti_record_", "GOMP_", "omp_", "Sleef_", "cudaexec_", "cuda"};

// Of the driver's names, those that our library has as well: they must be ours, which know the
// device, the module and the stream.
#define CUDAEXEC_QUOTED(name, parameters) #name,
constexpr std::string_view kInterposed[] = {CUDAEXEC_INTERPOSED_ENTRIES(CUDAEXEC_QUOTED)};
#undef CUDAEXEC_QUOTED

struct OwnLibrary {
  void* handle = nullptr;  // searches our library, then what it needs
  void* base = nullptr;
};

const OwnLibrary& own_library() {
  static const OwnLibrary own = [] {
    OwnLibrary result;
    Dl_info info{};
    if (::dladdr(reinterpret_cast<void*>(&inspect_elf), &info) != 0) {
      result.base = info.dli_fbase;
      result.handle = ::dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    }
    if (result.handle == nullptr) result.handle = ::dlopen(nullptr, RTLD_NOW);  // linked statically
    return result;
  }();
  return own;
}

bool is_system_library(const std::string& name) {
  return std::find(kSystemLibraries.begin(), kSystemLibraries.end(), name) !=
         kSystemLibraries.end();
}

bool must_be_ours(std::string_view symbol) {
  return std::any_of(kOurPrefixes.begin(), kOurPrefixes.end(),
                     [&](std::string_view prefix) { return symbol.starts_with(prefix); }) ||
         std::find(std::begin(kInterposed), std::end(kInterposed), symbol) != std::end(kInterposed);
}

void* look_up(void* handle, const ElfSymbol& symbol) {
  void* address = symbol.version.empty()
                      ? ::dlsym(handle, symbol.name.c_str())
                      : ::dlvsym(handle, symbol.name.c_str(), symbol.version.c_str());
  if (address == nullptr && ::dlerror() == nullptr) return handle;  // defined, with the value 0
  return address;
}

// System libraries that ours does not need itself, open while symbols are looked up.
class OtherLibraries {
 public:
  explicit OtherLibraries(const std::vector<std::string>& needed) : needed_(needed) {}
  ~OtherLibraries() {
    for (void* handle : handles_) ::dlclose(handle);
  }
  OtherLibraries(const OtherLibraries&) = delete;
  OtherLibraries& operator=(const OtherLibraries&) = delete;

  bool provide(const ElfSymbol& symbol) {
    open();
    return std::any_of(handles_.begin(), handles_.end(),
                       [&](void* handle) { return look_up(handle, symbol) != nullptr; });
  }

 private:
  void open() {
    if (opened_) return;
    opened_ = true;
    for (const std::string& name : needed_) {
      if (!is_system_library(name)) continue;
      if (void* handle = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL)) handles_.push_back(handle);
    }
  }

  const std::vector<std::string>& needed_;
  std::vector<void*> handles_;
  bool opened_ = false;
};

bool is_supplied(const ElfSymbol& symbol, OtherLibraries& others) {
  const OwnLibrary& own = own_library();
  if (must_be_ours(symbol.name)) {
    Dl_info info{};
    void* address = ::dlsym(own.handle, symbol.name.c_str());
    return address != nullptr && ::dladdr(address, &info) != 0 && info.dli_fbase == own.base;
  }
  return look_up(own.handle, symbol) != nullptr || others.provide(symbol);
}

// The highest of "PREFIX_1.2.3" names, as "1.2.3".
std::string highest_version(const std::vector<std::string>& versions, std::string_view prefix) {
  std::vector<long> best;
  std::string text;
  for (const std::string& version : versions) {
    if (!version.starts_with(prefix)) continue;
    std::vector<long> numbers;
    const char* at = version.c_str() + prefix.size();
    char* end = nullptr;
    for (;;) {
      numbers.push_back(std::strtol(at, &end, 10));
      if (end == at || *end != '.') break;
      at = end + 1;
    }
    if (end == at || *end != '\0') continue;  // GLIBC_PRIVATE, GLIBC_ABI_...
    if (numbers > best) {
      best = std::move(numbers);
      text = version.substr(prefix.size());
    }
  }
  return text;
}

}  // namespace

ElfReport inspect_elf(std::span<const std::byte> image, const std::string& name) {
  const ElfImage elf(image, name);
  ElfReport report;
  report.needed = elf.needed();
  for (const std::string& library : report.needed) {
    if (library != kShimsSoname && !is_system_library(library)) {
      report.unknown_needed.push_back(library);
    }
  }
  OtherLibraries others(report.needed);
  for (const ElfSymbol& symbol : elf.symbols()) {
    if (symbol.defined) {
      if (symbol.binding == STB_GNU_UNIQUE) report.unique.push_back(symbol.name);
    } else if (symbol.binding != STB_WEAK) {
      report.undefined.push_back(symbol.name);
      if (!is_supplied(symbol, others)) {
        report.missing.push_back(symbol.version.empty() ? symbol.name
                                                        : symbol.name + "@" + symbol.version);
      }
    }
  }
  const std::vector<std::string> versions = elf.needed_versions();
  report.min_glibc = highest_version(versions, "GLIBC_");
  report.min_glibcxx = highest_version(versions, "GLIBCXX_");
  report.isa_level = elf.isa_level();
  if (report.isa_level == 1) report.isa = "x86-64";
  if (report.isa_level > 1) report.isa = str("x86-64-v", report.isa_level);
  return report;
}

std::vector<std::string> exported_symbols(std::span<const std::byte> image,
                                          const std::string& name) {
  std::vector<std::string> names;
  const ElfImage elf(image, name);
  for (const ElfSymbol& symbol : elf.symbols()) {
    if (symbol.defined) names.push_back(symbol.name);
  }
  return names;
}

}  // namespace cudaexec

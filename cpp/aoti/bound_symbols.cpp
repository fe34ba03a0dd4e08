#include "aoti/bound_symbols.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include "base/error.h"
#include "base/str.h"

namespace cudaexec {
namespace {

// The loader's view of an open library: it has made the addresses in the dynamic table absolute.
struct LoadedTables {
  const Elf64_Sym* symbols = nullptr;
  const char* strings = nullptr;
  const Elf64_Rela* tables[2] = {};
  size_t counts[2] = {};
};

LoadedTables read_tables(const link_map& map) {
  LoadedTables loaded;
  for (const Elf64_Dyn* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
    const auto address = entry->d_un.d_ptr;
    switch (entry->d_tag) {
      case DT_SYMTAB:
        loaded.symbols = reinterpret_cast<const Elf64_Sym*>(address);
        break;
      case DT_STRTAB:
        loaded.strings = reinterpret_cast<const char*>(address);
        break;
      case DT_RELA:
        loaded.tables[0] = reinterpret_cast<const Elf64_Rela*>(address);
        break;
      case DT_RELASZ:
        loaded.counts[0] = entry->d_un.d_val / sizeof(Elf64_Rela);
        break;
      case DT_JMPREL:
        loaded.tables[1] = reinterpret_cast<const Elf64_Rela*>(address);
        break;
      case DT_PLTRELSZ:
        loaded.counts[1] = entry->d_un.d_val / sizeof(Elf64_Rela);
        break;
      default:
        break;
    }
  }
  return loaded;
}

std::string file_of(const void* address) {
  Dl_info info{};
  return ::dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

bool holds_symbol_address(const Elf64_Rela& entry) {
  const auto type = ELF64_R_TYPE(entry.r_info);
  return (type == R_X86_64_GLOB_DAT || type == R_X86_64_JUMP_SLOT || type == R_X86_64_64) &&
         ELF64_R_SYM(entry.r_info) != 0;
}

SymbolOwners owners_of(void* handle, const std::string& name) {
  link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) {
    throw InternalError(str("the loader does not tell about '", name, "'"));
  }
  const LoadedTables loaded = read_tables(*map);
  SymbolOwners owners;
  for (int t = 0; t < 2; ++t) {
    for (size_t i = 0; loaded.tables[t] != nullptr && i < loaded.counts[t]; ++i) {
      const Elf64_Rela& entry = loaded.tables[t][i];
      if (!holds_symbol_address(entry)) continue;
      const Elf64_Sym& symbol = loaded.symbols[ELF64_R_SYM(entry.r_info)];
      if (symbol.st_shndx != SHN_UNDEF) continue;
      const auto* place = reinterpret_cast<const char* const*>(map->l_addr + entry.r_offset);
      owners.emplace_back(loaded.strings + symbol.st_name, file_of(*place - entry.r_addend));
    }
  }
  return owners;
}

}  // namespace

SymbolOwners bound_symbol_owners(const SharedObject& library) {
  return owners_of(library.handle(), library.name());
}

SymbolOwners bound_symbol_owners(const std::string& path) {
  void* handle = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) throw InputError(str("the library ", path, " is not loaded"));
  SymbolOwners owners;
  try {
    owners = owners_of(handle, path);
  } catch (...) {
    ::dlclose(handle);
    throw;
  }
  ::dlclose(handle);
  return owners;
}

}  // namespace cudaexec

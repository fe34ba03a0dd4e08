#include "aoti/elf_image.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/str.h"

namespace cudaexec {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMaxSpan = uint64_t{1}
                              << 36;  // bytes of address space that a library may ask for
constexpr uint64_t kMaxSymbols = 1u << 24;
constexpr size_t kMaxVersions = 1u << 15;
constexpr size_t kMaxName = 1u << 16;  // bytes

}  // namespace

ElfImage::ElfImage(std::span<const std::byte> image, std::string name)
    : image_(image), name_(std::move(name)) {
  read_header();
  read_segments();
  read_dynamic();
  read_versions();
  read_symbols();
}

template <typename T>
T ElfImage::read(uint64_t offset, const char* what) const {
  if (!range_inside<uint64_t>(offset, sizeof(T), image_.size())) {
    refuse(str("the ", what, " at offset ", offset, " lies outside the file"));
  }
  T value;
  std::memcpy(&value, image_.data() + offset, sizeof(T));
  return value;
}

void ElfImage::refuse(const std::string& why) const {
  throw FormatError(str("library '", name_, "' (", image_.size(), " bytes) is damaged: ", why,
                        "; export the program again or copy the file anew"));
}

void ElfImage::read_header() {
  if (image_.size() < sizeof(Elf64_Ehdr) || std::memcmp(image_.data(), ELFMAG, SELFMAG) != 0) {
    throw FormatError(str("library '", name_, "' (", image_.size(),
                          " bytes) is not an ELF file; a program's code must be an ELF64 x86-64 "
                          "shared object"));
  }
  header_ = read<Elf64_Ehdr>(0, "ELF header");
  if (header_.e_ident[EI_CLASS] != ELFCLASS64 || header_.e_ident[EI_DATA] != ELFDATA2LSB ||
      header_.e_ident[EI_VERSION] != EV_CURRENT || header_.e_type != ET_DYN ||
      header_.e_machine != EM_X86_64) {
    throw FormatError(str("library '", name_, "' is an ELF file of class ",
                          int{header_.e_ident[EI_CLASS]}, ", type ", header_.e_type, ", machine ",
                          header_.e_machine, "; expected an ELF64 x86-64 shared object (class ",
                          ELFCLASS64, ", type ", ET_DYN, ", machine ", EM_X86_64, ")"));
  }
}

void ElfImage::read_segments() {
  if (header_.e_phentsize != sizeof(Elf64_Phdr) || header_.e_phnum == 0) {
    refuse(str("it has ", header_.e_phnum, " program headers of ", header_.e_phentsize, " bytes"));
  }
  const uint64_t table = uint64_t{header_.e_phnum} * sizeof(Elf64_Phdr);
  if (!range_inside<uint64_t>(header_.e_phoff, table, image_.size())) {
    refuse("its program headers lie outside the file");
  }
  for (uint64_t i = 0; i < header_.e_phnum; ++i) {
    segments_.push_back(
        read<Elf64_Phdr>(header_.e_phoff + i * sizeof(Elf64_Phdr), "program header"));
  }
  check_load_segments();
}

void ElfImage::check_load_segments() const {
  uint64_t end = 0;
  bool any = false;
  for (const Elf64_Phdr& segment : segments_) {
    if (segment.p_type != PT_LOAD) continue;
    if (!range_inside<uint64_t>(segment.p_offset, segment.p_filesz, image_.size())) {
      refuse(str("a segment of ", segment.p_filesz, " bytes at offset ", segment.p_offset,
                 " lies outside the file"));
    }
    if (segment.p_filesz > segment.p_memsz || segment.p_memsz > kMaxSpan ||
        segment.p_vaddr > kMaxSpan || (any && segment.p_vaddr < end) ||
        segment.p_align > kMaxSpan || (segment.p_align & (segment.p_align - 1)) != 0 ||
        (segment.p_vaddr - segment.p_offset) % kPage != 0) {
      refuse(str("the segment at address ", segment.p_vaddr, " has an impossible size or place"));
    }
    end = segment.p_vaddr + segment.p_memsz;
    any = true;
  }
  if (!any) refuse("it has no loadable segment");
}

uint64_t ElfImage::offset_of(uint64_t address, uint64_t size, const char* what) const {
  for (const Elf64_Phdr& segment : segments_) {
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
        range_inside<uint64_t>(address - segment.p_vaddr, size, segment.p_filesz)) {
      return segment.p_offset + (address - segment.p_vaddr);
    }
  }
  refuse(str("the ", what, " at address ", address, " (", size, " bytes) lies in no segment"));
}

std::string ElfImage::string_at(uint64_t offset, const char* what) const {
  const auto address = checked_add(strings_, offset);
  for (const Elf64_Phdr& segment : segments_) {
    if (!address || segment.p_type != PT_LOAD || *address < segment.p_vaddr) continue;
    const uint64_t inside = *address - segment.p_vaddr;
    if (inside >= segment.p_filesz) continue;
    const auto* text = reinterpret_cast<const char*>(image_.data()) + segment.p_offset + inside;
    const size_t room = std::min<size_t>(segment.p_filesz - inside, kMaxName);
    const size_t length = ::strnlen(text, room);
    if (length == room) break;
    const bool printable =
        std::all_of(text, text + length, [](char c) { return c >= ' ' && c <= '~'; });
    if (!printable) refuse(str("the ", what, " at offset ", offset, " is no text"));
    return {text, length};
  }
  refuse(str("the ", what, " at offset ", offset, " of the string table lies in no segment"));
}

const Elf64_Dyn* ElfImage::find(int64_t tag) const noexcept {
  for (const Elf64_Dyn& entry : dynamic_) {
    if (entry.d_tag == tag) return &entry;
  }
  return nullptr;
}

uint64_t ElfImage::require(int64_t tag, const char* what) const {
  const Elf64_Dyn* entry = find(tag);
  if (entry == nullptr) refuse(str("it has no ", what));
  return entry->d_un.d_val;
}

void ElfImage::read_dynamic() {
  const auto segment = std::find_if(segments_.begin(), segments_.end(),
                                    [](const auto& s) { return s.p_type == PT_DYNAMIC; });
  if (segment == segments_.end()) refuse("it has no dynamic section");
  const uint64_t size = segment->p_filesz / sizeof(Elf64_Dyn) * sizeof(Elf64_Dyn);
  dynamic_offset_ = offset_of(segment->p_vaddr, size, "dynamic section");
  dynamic_capacity_ = size / sizeof(Elf64_Dyn);
  bool ended = false;
  for (size_t i = 0; i < dynamic_capacity_ && !ended; ++i) {
    const auto entry = read<Elf64_Dyn>(dynamic_offset_ + i * sizeof(Elf64_Dyn), "dynamic entry");
    ended = entry.d_tag == DT_NULL;
    if (!ended) dynamic_.push_back(entry);
  }
  if (!ended) refuse("its dynamic section has no end");
  strings_ = require(DT_STRTAB, "string table");
  strings_size_ = require(DT_STRSZ, "size of a string table");
  (void)offset_of(strings_, strings_size_, "string table");
}

std::vector<std::string> ElfImage::needed() const {
  std::vector<std::string> names;
  for (const Elf64_Dyn& entry : dynamic_) {
    if (entry.d_tag == DT_NEEDED) names.push_back(string_at(entry.d_un.d_val, "library name"));
  }
  return names;
}

// A chain of libraries, each with a chain of versions; the distances to the next ones are forward.
void ElfImage::read_versions() {
  const Elf64_Dyn* table = find(DT_VERNEED);
  if (table == nullptr) return;
  uint64_t count = require(DT_VERNEEDNUM, "number of version records");
  uint64_t address = table->d_un.d_val;
  while (count-- > 0) {
    const auto library = read<Elf64_Verneed>(
        offset_of(address, sizeof(Elf64_Verneed), "version record"), "version record");
    uint64_t version_address = address + library.vn_aux;
    for (uint16_t left = library.vn_cnt; left > 0; --left) {
      const auto version = read<Elf64_Vernaux>(
          offset_of(version_address, sizeof(Elf64_Vernaux), "version name"), "version name");
      versions_.push_back({static_cast<uint16_t>(version.vna_other & 0x7fff),
                           string_at(version.vna_name, "version name")});
      if (versions_.size() > kMaxVersions) refuse("it has too many version names");
      if (version.vna_next == 0) break;
      version_address += version.vna_next;
    }
    if (library.vn_next == 0) break;
    address += library.vn_next;
  }
}

std::vector<std::string> ElfImage::needed_versions() const {
  std::vector<std::string> names;
  for (const Version& version : versions_) names.push_back(version.name);
  return names;
}

uint64_t ElfImage::count_symbols() const {
  if (const Elf64_Dyn* hash = find(DT_HASH)) {
    // Header: buckets, chains; there is one chain entry for each symbol.
    return read<uint32_t>(offset_of(hash->d_un.d_val, 8, "symbol hash table") + 4, "hash table");
  }
  return count_by_gnu_hash(require(DT_GNU_HASH, "symbol hash table"));
}

// The table has no count: the symbols end where the chain of the highest bucket ends.
uint64_t ElfImage::count_by_gnu_hash(uint64_t table) const {
  const uint64_t header = offset_of(table, 16, "symbol hash table");
  const auto buckets = read<uint32_t>(header, "hash table");
  const auto first = read<uint32_t>(header + 4, "hash table");
  const auto bloom = read<uint32_t>(header + 8, "hash table");
  const uint64_t bucket_offset = header + 16 + uint64_t{bloom} * 8;
  uint64_t last = 0;
  for (uint64_t i = 0; i < buckets; ++i) {
    last = std::max<uint64_t>(last, read<uint32_t>(bucket_offset + i * 4, "hash bucket"));
  }
  if (last < first) return first;  // nothing defined
  const uint64_t chains = bucket_offset + uint64_t{buckets} * 4;
  while ((read<uint32_t>(chains + (last - first) * 4, "hash chain") & 1) == 0) ++last;
  return last + 1;
}

void ElfImage::read_symbols() {
  const uint64_t table = require(DT_SYMTAB, "symbol table");
  if (const Elf64_Dyn* size = find(DT_SYMENT); size && size->d_un.d_val != sizeof(Elf64_Sym)) {
    refuse(str("its symbols have ", size->d_un.d_val, " bytes"));
  }
  const uint64_t count = count_symbols();
  if (count > kMaxSymbols) refuse(str("it claims ", count, " symbols"));
  if (count == 0) return;
  const uint64_t offset = offset_of(table, count * sizeof(Elf64_Sym), "symbol table");
  const Elf64_Dyn* versions = find(DT_VERSYM);
  const uint64_t version_offset =
      versions != nullptr ? offset_of(versions->d_un.d_val, count * 2, "symbol versions") : 0;
  std::vector<const std::string*> by_index(versions_.empty() ? 0 : 0x8000);
  for (const Version& version : versions_) by_index[version.index] = &version.name;
  for (uint64_t i = 1; i < count; ++i) {
    const uint64_t entry = offset + i * sizeof(Elf64_Sym);
    const auto symbol = read<Elf64_Sym>(entry, "symbol");
    const auto binding = static_cast<uint8_t>(ELF64_ST_BIND(symbol.st_info));
    if (binding == STB_LOCAL) continue;
    ElfSymbol found{string_at(symbol.st_name, "symbol name"), "", entry, binding,
                    symbol.st_shndx != SHN_UNDEF};
    if (versions != nullptr && !by_index.empty()) {
      const auto index = read<uint16_t>(version_offset + i * 2, "symbol version") & 0x7fff;
      const std::string* version = index > 1 ? by_index[static_cast<size_t>(index)] : nullptr;
      if (version != nullptr) found.version = *version;
    }
    symbols_.push_back(std::move(found));
  }
}

uint64_t ElfImage::name_offset(const ElfSymbol& symbol) const {
  const auto entry = read<Elf64_Sym>(symbol.entry, "symbol");
  const auto address = checked_add<uint64_t>(strings_, entry.st_name);
  if (!address) refuse("a symbol has no name");
  return offset_of(*address, symbol.name.size() + 1, "symbol name");
}

int ElfImage::isa_level() const {
  int level = 0;
  for (const Elf64_Phdr& segment : segments_) {
    if (segment.p_type != PT_NOTE && segment.p_type != PT_GNU_PROPERTY) continue;
    if (!range_inside<uint64_t>(segment.p_offset, segment.p_filesz, image_.size())) {
      refuse("a note lies outside the file");
    }
    const uint64_t align = segment.p_align == 8 ? 8 : 4;
    level = std::max(level, note_level(segment.p_offset, segment.p_filesz, align));
  }
  return level;
}

// Notes: name size, content size, type, name, content; each part padded to `align`. The property
// note holds (type, size, data) records, padded to 8.
int ElfImage::note_level(uint64_t offset, uint64_t size, uint64_t align) const {
  const auto padded = [](uint64_t value, uint64_t to) { return (value + to - 1) / to * to; };
  int level = 0;
  const uint64_t end = offset + size;
  while (range_inside<uint64_t>(offset, sizeof(Elf64_Nhdr), end)) {
    const auto note = read<Elf64_Nhdr>(offset, "note");
    const uint64_t content = offset + padded(sizeof(note) + note.n_namesz, align);
    const uint64_t next = offset + padded(content - offset + note.n_descsz, align);
    if (next > end) break;
    if (note.n_type == NT_GNU_PROPERTY_TYPE_0 && note.n_namesz == 4 &&
        std::memcmp(image_.data() + offset + sizeof(note), "GNU", 4) == 0) {
      uint64_t at = content;
      while (range_inside<uint64_t>(at, 8, content + note.n_descsz)) {
        const auto type = read<uint32_t>(at, "note");
        const auto length = read<uint32_t>(at + 4, "note");
        if (type == 0xc0008002u && length == 4) {  // GNU_PROPERTY_X86_ISA_1_NEEDED
          const auto bits = read<uint32_t>(at + 8, "note");
          level = std::max(level, static_cast<int>(std::bit_width(bits)));  // bit 0 is level 1
        }
        at += 8 + padded(length, 8);
      }
    }
    offset = next;
  }
  return level;
}

}  // namespace cudaexec

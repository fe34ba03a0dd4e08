#include "aoti/elf_prepare.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/str.h"

namespace cudaexec {
namespace {

constexpr std::string_view kName{kShimsSoname};
constexpr size_t kNameBytes = kName.size() + 1;
constexpr uint64_t kPage = 4096;

// Names that generated code wants of the C++ runtime, and ours of the same length.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kRedirected{{
    {"_ZSt4cerr", "cxec_cerr"},
    {"__cxa_thread_atexit", "cudaexec_tls_atexit"},
    {"__cxa_thread_atexit_impl", "cudaexec_tls_atexit_impl"},
}};
static_assert(std::all_of(kRedirected.begin(), kRedirected.end(), [](const auto& names) {
  return names.first.size() == names.second.size();
}));

uint64_t page_up(uint64_t value) { return (value + kPage - 1) / kPage * kPage; }

class Preparer {
 public:
  Preparer(std::span<const std::byte> image, const ElfImage& elf, const std::string& name)
      : elf_(elf), name_(name), image_(image.begin(), image.end()) {}

  std::vector<std::byte> run() {
    put_shims_first();
    redirect_names();
    drop_unique_bindings();
    drop_executable_stack();
    return std::move(image_);
  }

 private:
  template <typename T>
  void write(uint64_t offset, const T& value) {
    std::memcpy(image_.data() + offset, &value, sizeof(T));
  }

  void write_dynamic(const std::vector<Elf64_Dyn>& entries) {
    for (size_t i = 0; i < entries.size(); ++i) {
      write(elf_.dynamic_offset() + i * sizeof(Elf64_Dyn), entries[i]);
    }
  }

  void put_shims_first() {
    std::vector<Elf64_Dyn> entries = elf_.dynamic();
    const auto is_needed = [](const Elf64_Dyn& e) { return e.d_tag == DT_NEEDED; };
    const auto is_ours = [&](const Elf64_Dyn& e) {
      return is_needed(e) && elf_.string_at(e.d_un.d_val, "library name") == kName;
    };
    const auto ours = std::find_if(entries.begin(), entries.end(), is_ours);
    const auto first = std::find_if(entries.begin(), entries.end(), is_needed);
    if (ours != entries.end()) {
      if (ours == first) return;
      std::rotate(first, ours, ours + 1);
      write_dynamic(entries);
      return;
    }
    if (entries.size() + 2 > elf_.dynamic_capacity()) refuse("a spare entry in its dynamic table");
    Elf64_Dyn entry{};
    entry.d_tag = DT_NEEDED;
    entry.d_un.d_val = place_name();
    entries.insert(entries.begin(), entry);
    entries.push_back(Elf64_Dyn{});  // the terminator
    write_dynamic(entries);
  }

  // Puts the name somewhere the loader maps; returns its distance from the string table, which the
  // loader adds without a check (and with wrap-around).
  uint64_t place_name() {
    if (const auto found = find_name()) return *found;
    if (const auto address = use_page_tail()) return *address - elf_.string_table();
    if (const auto address = use_build_id()) return *address - elf_.string_table();
    refuse("room for a library name");
  }

  // The string table may hold it already.
  std::optional<uint64_t> find_name() {
    const uint64_t size = elf_.string_table_size();
    const uint64_t offset = elf_.offset_of(elf_.string_table(), size, "string table");
    const std::string_view table(reinterpret_cast<const char*>(image_.data()) + offset, size);
    const size_t at = table.find(std::string_view(kName.data(), kNameBytes));
    return at == std::string_view::npos ? std::nullopt : std::optional<uint64_t>(at);
  }

  // The last page of a read-only segment is mapped whole; what follows the segment in it is
  // padding. The segment is made longer to hold the name.
  std::optional<uint64_t> use_page_tail() {
    const auto& segments = elf_.segments();
    for (size_t i = 0; i < segments.size(); ++i) {
      Elf64_Phdr segment = segments[i];
      if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0 ||
          segment.p_filesz != segment.p_memsz || segment.p_filesz == 0) {
        continue;
      }
      const uint64_t begin = segment.p_offset + segment.p_filesz;
      if (begin + kNameBytes > page_up(begin) || !is_padding(begin, segment)) continue;
      const uint64_t address = segment.p_vaddr + segment.p_filesz;
      write_name(begin);
      segment.p_filesz += kNameBytes;
      segment.p_memsz += kNameBytes;
      write_segment(i, segment);
      return address;
    }
    return std::nullopt;
  }

  // Zero bytes that no segment, header table or later part of the file uses.
  bool is_padding(uint64_t begin, const Elf64_Phdr& own) const {
    const uint64_t end = begin + kNameBytes;
    bool followed = false;  // by another segment: what lies between is padding, not a section
    for (const Elf64_Phdr& other : elf_.segments()) {
      if (other.p_type != PT_LOAD) continue;
      if (other.p_offset < end && begin < other.p_offset + other.p_filesz) return false;
      if (other.p_vaddr > own.p_vaddr) {
        const uint64_t address = own.p_vaddr + own.p_filesz + kNameBytes;
        if (page_up(address) > other.p_vaddr / kPage * kPage) return false;
      }
      followed = followed || other.p_offset >= end;
    }
    if (!followed || (elf_.sections_offset() >= begin && elf_.sections_offset() < end)) {
      return false;
    }
    if (end > image_.size()) return false;
    return std::all_of(image_.begin() + static_cast<int64_t>(begin),
                       image_.begin() + static_cast<int64_t>(end),
                       [](std::byte b) { return b == std::byte{0}; });
  }

  // A build-id note of 36 bytes becomes a note of an unknown owner, whose name is ours.
  std::optional<uint64_t> use_build_id() {
    constexpr uint64_t kNoteBytes = 36;
    static_assert(sizeof(Elf64_Nhdr) + 24 == kNoteBytes && kNameBytes <= 24);
    for (const Elf64_Phdr& segment : elf_.segments()) {
      if (segment.p_type != PT_NOTE || segment.p_filesz < kNoteBytes) continue;
      const uint64_t offset = elf_.offset_of(segment.p_vaddr, kNoteBytes, "note");
      Elf64_Nhdr note;
      std::memcpy(&note, image_.data() + offset, sizeof(note));
      if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != 4 || note.n_descsz != 20) continue;
      write(offset, Elf64_Nhdr{24, 0, 0});
      std::memset(image_.data() + offset + sizeof(note), 0, 24);
      write_name(offset + sizeof(note));
      return segment.p_vaddr + sizeof(note);
    }
    return std::nullopt;
  }

  void write_name(uint64_t offset) {
    std::memcpy(image_.data() + offset, kName.data(), kNameBytes);
  }

  void write_segment(size_t index, const Elf64_Phdr& segment) {
    Elf64_Ehdr header;
    std::memcpy(&header, image_.data(), sizeof(header));
    write(header.e_phoff + index * sizeof(Elf64_Phdr), segment);
  }

  // In the string table, where wanted names are hashed by nobody. A name that is the tail of
  // another one stays as it is.
  void redirect_names() {
    for (const ElfSymbol& symbol : elf_.symbols()) {
      if (symbol.defined) continue;
      for (const auto& [name, ours] : kRedirected) {
        if (symbol.name != name) continue;
        const uint64_t place = elf_.name_offset(symbol);
        if (place == 0 || image_[place - 1] != std::byte{0}) continue;
        std::memcpy(image_.data() + place, ours.data(), ours.size());
      }
    }
  }

  void drop_unique_bindings() {
    for (const ElfSymbol& symbol : elf_.symbols()) {
      if (symbol.binding != STB_GNU_UNIQUE) continue;
      Elf64_Sym entry;
      std::memcpy(&entry, image_.data() + symbol.entry, sizeof(entry));
      entry.st_info = ELF64_ST_INFO(STB_WEAK, ELF64_ST_TYPE(entry.st_info));
      write(symbol.entry, entry);
    }
  }

  void drop_executable_stack() {
    for (size_t i = 0; i < elf_.segments().size(); ++i) {
      Elf64_Phdr segment = elf_.segments()[i];
      if (segment.p_type != PT_GNU_STACK || (segment.p_flags & PF_X) == 0) continue;
      segment.p_flags &= ~static_cast<uint32_t>(PF_X);
      write_segment(i, segment);
    }
  }

  [[noreturn]] void refuse(const char* what) const {
    throw TargetError(str("library '", name_, "' is not linked with ", kName, " and has no ", what,
                          " to add it in memory; add it to the file with "
                          "`patchelf --add-needed ",
                          kName, "` or export the program again"));
  }

  const ElfImage& elf_;
  const std::string& name_;
  std::vector<std::byte> image_;
};

}  // namespace

std::vector<std::byte> prepare_image(std::span<const std::byte> image, const ElfImage& elf,
                                     const std::string& name) {
  return Preparer(image, elf, name).run();
}

}  // namespace cudaexec

// Reading an ELF64 x86-64 shared object from memory, through what the loader itself uses (program
// headers and the dynamic table). The image is not trusted: every offset, length and count is
// checked.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cudaexec {

struct ElfSymbol {
  std::string name;
  std::string version;  // e.g. "GLIBC_2.34"; "" if unversioned
  uint64_t entry = 0;   // file offset of its table entry
  uint8_t binding = 0;  // STB_*
  bool defined = false;
};

class ElfImage {
 public:
  /// Keeps a view of `image`. @throws FormatError naming `name` if it is damaged or something else.
  ElfImage(std::span<const std::byte> image, std::string name);

  [[nodiscard]] const std::vector<Elf64_Phdr>& segments() const noexcept { return segments_; }
  /// Entries of the dynamic table up to and without the terminator.
  [[nodiscard]] const std::vector<Elf64_Dyn>& dynamic() const noexcept { return dynamic_; }
  /// File offset of the dynamic table, and how many entries it has room for, terminator included.
  [[nodiscard]] uint64_t dynamic_offset() const noexcept { return dynamic_offset_; }
  [[nodiscard]] size_t dynamic_capacity() const noexcept { return dynamic_capacity_; }
  [[nodiscard]] std::vector<std::string> needed() const;
  /// Of the dynamic symbol table, without the empty first one and without local ones.
  [[nodiscard]] const std::vector<ElfSymbol>& symbols() const noexcept { return symbols_; }
  /// Names of all versions it needs of other libraries.
  [[nodiscard]] std::vector<std::string> needed_versions() const;
  /// x86-64 level that its note says it needs, from 1 (higher than 4: of CPUs to come); 0 without a
  /// note.
  [[nodiscard]] int isa_level() const;
  /// Address at which the loader finds the string table, relative to the image.
  [[nodiscard]] uint64_t string_table() const noexcept { return strings_; }
  [[nodiscard]] uint64_t string_table_size() const noexcept { return strings_size_; }
  /// File offset of a symbol's name.
  [[nodiscard]] uint64_t name_offset(const ElfSymbol& symbol) const;
  /// File offset of the section header table.
  [[nodiscard]] uint64_t sections_offset() const noexcept { return header_.e_shoff; }

  /// File offset of `size` bytes at a virtual address, which must lie in the file part of one
  /// segment.
  [[nodiscard]] uint64_t offset_of(uint64_t address, uint64_t size, const char* what) const;
  /// NUL-terminated string at an offset of the string table, inside one segment.
  [[nodiscard]] std::string string_at(uint64_t offset, const char* what) const;

 private:
  struct Version {
    uint16_t index;
    std::string name;
  };

  template <typename T>
  [[nodiscard]] T read(uint64_t offset, const char* what) const;
  [[noreturn]] void refuse(const std::string& why) const;
  void read_header();
  void read_segments();
  void check_load_segments() const;
  void read_dynamic();
  void read_versions();
  void read_symbols();
  [[nodiscard]] uint64_t count_symbols() const;
  [[nodiscard]] uint64_t count_by_gnu_hash(uint64_t table) const;
  [[nodiscard]] const Elf64_Dyn* find(int64_t tag) const noexcept;
  [[nodiscard]] uint64_t require(int64_t tag, const char* what) const;
  [[nodiscard]] int note_level(uint64_t offset, uint64_t size, uint64_t align) const;

  std::span<const std::byte> image_;
  std::string name_;
  Elf64_Ehdr header_{};
  std::vector<Elf64_Phdr> segments_;
  uint64_t dynamic_offset_ = 0;
  size_t dynamic_capacity_ = 0;
  std::vector<Elf64_Dyn> dynamic_;
  uint64_t strings_ = 0;
  uint64_t strings_size_ = 0;
  std::vector<Version> versions_;
  std::vector<ElfSymbol> symbols_;
};

}  // namespace cudaexec

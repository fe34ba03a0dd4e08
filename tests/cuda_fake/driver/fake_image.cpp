// Reads the kernels and their parameter sizes out of real code images, so that a missing kernel or
// a wrong number of arguments is noticed. Test images start with "FAKECUDA" and have whatever
// kernels the test registered.
#include <elf.h>

#include <cstring>

#include "fake.h"

namespace fakecuda {
namespace {

constexpr uint32_t kFatbinMagic = 0xBA55ED50;
constexpr uint16_t kFatbinElf = 2;
constexpr uint16_t kFatbinPtx = 1;
constexpr uint8_t kSizedValue = 4;
constexpr uint8_t kParameterInfo = 0x17;

template <typename T>
T read(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

KernelCode read_parameters(const std::byte* data, size_t nbytes) {
  KernelCode code;
  code.known = true;
  size_t at = 0;
  while (at + 4 <= nbytes) {
    const auto form = read<uint8_t>(data + at);
    const auto attribute = read<uint8_t>(data + at + 1);
    const auto size = read<uint16_t>(data + at + 2);
    at += 4;
    if (form != kSizedValue) continue;
    if (attribute == kParameterInfo && size >= 12 && at + size <= nbytes) {
      const auto ordinal = read<uint16_t>(data + at + 4);
      const auto offset = read<uint16_t>(data + at + 6);
      const size_t parameter_nbytes = read<uint32_t>(data + at + 8) >> 18;
      if (code.sizes.size() <= ordinal) {
        code.sizes.resize(ordinal + 1U);
        code.offsets.resize(ordinal + 1U);
      }
      code.sizes[ordinal] = parameter_nbytes;
      code.offsets[ordinal] = offset;
    }
    at += size;
  }
  return code;
}

bool is_elf(const std::byte* image) { return std::memcmp(image, ELFMAG, SELFMAG) == 0; }

int elf_sm(const std::byte* image) {
  const auto header = read<Elf64_Ehdr>(image);
  const unsigned low = header.e_flags & 0xFF;
  // Two layouts: the number in the low byte, or (ABI 8) in the second.
  return static_cast<int>(header.e_ident[EI_ABIVERSION] >= 8 ? (header.e_flags >> 8) & 0xFF : low);
}

void read_elf(const std::byte* image, Module& module) {
  const auto header = read<Elf64_Ehdr>(image);
  const auto section = [&](size_t index) {
    return read<Elf64_Shdr>(image + header.e_shoff + index * header.e_shentsize);
  };
  const Elf64_Shdr names = section(header.e_shstrndx);
  const std::string text = ".text.";
  const std::string info = ".nv.info.";
  for (size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr entry = section(i);
    const std::string name = reinterpret_cast<const char*>(image + names.sh_offset + entry.sh_name);
    if (name.starts_with(text)) module.kernels.try_emplace(name.substr(text.size()));
    if (name.starts_with(info)) {
      module.kernels[name.substr(info.size())] =
          read_parameters(image + entry.sh_offset, entry.sh_size);
    }
  }
}

/// A cubin runs on GPUs of its major version from its minor on.
bool runs_on(int code_sm, int sm) { return code_sm / 10 == sm / 10 && code_sm % 10 <= sm % 10; }

ImageResult read_fatbin(const std::byte* image, int sm, Module& module) {
  const auto header_nbytes = read<uint16_t>(image + 6);
  const auto nbytes = read<uint64_t>(image + 8);
  const std::byte* best = nullptr;
  const std::byte* any = nullptr;
  bool ptx = false;
  int best_sm = 0;
  for (size_t at = header_nbytes; at + 64 <= header_nbytes + nbytes;) {
    const std::byte* entry = image + at;
    const auto kind = read<uint16_t>(entry);
    const auto entry_header = read<uint32_t>(entry + 4);
    const auto entry_nbytes = read<uint64_t>(entry + 8);
    const auto code_sm = read<int32_t>(entry + 28);
    if (kind == kFatbinElf && is_elf(entry + entry_header)) {
      any = entry + entry_header;
      if (runs_on(code_sm, sm) && code_sm > best_sm) {
        best = entry + entry_header;
        best_sm = code_sm;
      }
    }
    ptx = ptx || (kind == kFatbinPtx && code_sm <= sm);
    at += entry_header + entry_nbytes;
  }
  if (best == nullptr && ptx) best = any;  // what the driver would compile has the same kernels
  if (best == nullptr) return ImageResult::kNoBinary;
  read_elf(best, module);
  return ImageResult::kOk;
}

}  // namespace

ImageResult read_image(const void* image, int sm, Module& module) {
  const auto* bytes = static_cast<const std::byte*>(image);
  if (bytes == nullptr) return ImageResult::kNotAnImage;
  if (std::memcmp(bytes, "FAKECUDA", 8) == 0) {
    module.any_name = true;
    return ImageResult::kOk;
  }
  if (read<uint32_t>(bytes) == kFatbinMagic) return read_fatbin(bytes, sm, module);
  if (!is_elf(bytes)) return ImageResult::kNotAnImage;
  if (!runs_on(elf_sm(bytes), sm)) return ImageResult::kNoBinary;
  read_elf(bytes, module);
  return ImageResult::kOk;
}

}  // namespace fakecuda

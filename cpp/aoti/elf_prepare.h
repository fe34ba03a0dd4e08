// Changes made to a library's image before it is opened, so that libraries of any exporter bind to
// our shims and can be unloaded.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "aoti/elf_image.h"

namespace cudaexec {

/// SONAME of our own library: the first DT_NEEDED of every program's code.
inline constexpr const char* kShimsSoname = "libcudaexec_shims.so.1";

/// A copy of `image` (parsed as `elf`) in which
///  - DT_NEEDED on our shims comes first, added where it is absent (in a spare entry of the dynamic
///  table),
///  - std::cerr and the registration of thread_local destructors are wanted under names of our own,
///  so that
///    ours serve generated code and nobody else,
///  - no symbol is STB_GNU_UNIQUE, which would keep the library mapped for ever,
///  - no executable stack is asked for, which newer C libraries refuse.
/// @throws TargetError if there is no room for the entry.
std::vector<std::byte> prepare_image(std::span<const std::byte> image, const ElfImage& elf,
                                     const std::string& name);

}  // namespace cudaexec

// The digest that protects a program's tables, payloads and manifest (docs/format.md, "Program
// digest").
#pragma once

#include <string_view>

#include "base/export.h"

namespace cudaexec {

class PteFile;

inline constexpr std::string_view kManifestKey = "cudaexec_manifest";
inline constexpr std::string_view kDigestKey = "cudaexec_digest";

/// Does nothing for a program that cudaexec did not write (neither key is there).
/// @throws FormatError if one of the two keys is missing or the digest does not match.
CUDAEXEC_API void verify_program_digest(const PteFile& file);

}  // namespace cudaexec

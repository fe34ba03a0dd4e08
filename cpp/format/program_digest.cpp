#include "format/program_digest.h"

#include <cstring>

#include "base/sha256.h"
#include "base/str.h"
#include "format/format_fault.h"
#include "format/pte_reader.h"

namespace cudaexec {

void verify_program_digest(const PteFile& file) {
  const FileBlob* manifest = file.find_named(kManifestKey);
  const FileBlob* stored = file.find_named(kDigestKey);
  if (manifest == nullptr && stored == nullptr) return;
  if (manifest == nullptr || stored == nullptr)
    throw_format_error(file.path(), 0,
                       str("the program has '", manifest == nullptr ? kDigestKey : kManifestKey,
                           "' but no '", manifest == nullptr ? kManifestKey : kDigestKey,
                           "'; the file is damaged: copy or export it again"));
  Sha256 hash;
  hash.update(file.file()->bytes().first(file.header().program_size));
  for (const PteMethod& method : file.methods()) {
    for (const PteDelegate& delegate : method.delegates) hash.update(delegate.processed.bytes);
  }
  hash.update(manifest->bytes);
  const Sha256Digest digest = hash.finish();
  if (stored->bytes.size() != digest.size() ||
      std::memcmp(stored->bytes.data(), digest.data(), digest.size()) != 0)
    throw_format_error(file.path(), stored->file_offset,
                       "the digest of the program's tables, payloads and manifest does not match; "
                       "the file is damaged or was edited: copy or export it again");
}

}  // namespace cudaexec

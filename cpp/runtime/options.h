// Settings of one load() or call; mirrored by the dataclasses of src/cudaexec/options.py.
#pragma once

#include <cstddef>
#include <string>

namespace cudaexec {

struct LoadOptions {
  int threads = 0;          // CPU threads a call may use; 0: all that the process may use
  bool verify = true;       // compare the digests of code and weights with the manifest
  size_t memory_limit = 0;  // bytes of working memory of this Module; 0: unlimited
  std::string isa;          // force a CPU code variant ("x86-64-v3"); empty: the best that runs
};

}  // namespace cudaexec

// Settings of one load() or call; mirrored by the dataclasses of src/cudaexec/options.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cudaexec {

/// CUDA graphs of a program's methods.
struct GraphOptions {
  bool on = false;
  std::vector<std::string> methods;  // which ones; empty: all
  uint32_t warmup = 3;               // runs of a signature before it is captured; at least 1
  size_t max_graphs = 8;  // signatures a container remembers; the least recently used goes
  bool strict = false;    // refuse a second signature
  bool in_place = true;   // capture small graphs again on memory that calls keep coming back to
};

struct LoadOptions {
  int threads = 0;          // CPU threads a call may use; 0: all that the process may use
  bool verify = true;       // compare the digests of code and weights with the manifest
  size_t memory_limit = 0;  // bytes of working memory of this Module; 0: unlimited
  std::string isa;          // force a CPU code variant ("x86-64-v3"); empty: the best that runs
  GraphOptions graphs;
};

}  // namespace cudaexec

// `_core._format`: reading files, payloads and manifests as plain Python values, and the hashes.
// The export layer and the tests use it; nothing of it is public.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

namespace cudaexec::python {

void register_format(pybind11::module_& m);

// bind_format_files.cpp
pybind11::dict describe_pte(const std::string& path);
pybind11::dict describe_ptd(const std::string& path);
// bind_format_manifest.cpp
pybind11::dict describe_payload(const std::string& processed, const std::string& method_name);
pybind11::dict describe_manifest(const std::string& text);
// bind_variants.cpp
void register_variants(pybind11::module_& format);

}  // namespace cudaexec::python

// What generated libraries need and what our own one offers: the export layer asks, and the tests.
#include <pybind11/stl.h>

#include <fstream>
#include <iterator>
#include <span>

#include "aoti/shared_object.h"
#include "base/error.h"
#include "base/str.h"
#include "python/bindings.h"
#include "python/gil.h"

namespace cudaexec::python {
namespace {

std::span<const std::byte> bytes_of(const py::bytes& image) {
  const std::string_view view(image);
  return {reinterpret_cast<const std::byte*>(view.data()), view.size()};
}

py::dict inspect(const py::bytes& image, const std::string& name) {
  const std::span<const std::byte> bytes = bytes_of(image);
  const ElfReport report = without_gil([&] { return inspect_elf(bytes, name); });
  py::dict facts;
  facts["needed"] = report.needed;
  facts["unknown_needed"] = report.unknown_needed;
  facts["undefined"] = report.undefined;
  facts["missing"] = report.missing;
  facts["unique"] = report.unique;
  facts["isa"] = report.isa;
  facts["min_glibc"] = report.min_glibc;
  facts["min_glibcxx"] = report.min_glibcxx;
  return facts;
}

std::vector<std::string> exported(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw FileError(str("cannot read ", path));
  const std::string image{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return exported_symbols({reinterpret_cast<const std::byte*>(image.data()), image.size()}, path);
}

}  // namespace

void register_aoti(py::module_& m) {
  m.def(
      "inspect_elf", &inspect, py::arg("image"), py::arg("name") = "<library>",
      "What an ELF64 x86-64 shared object needs, without opening it.\n\n"
      "Returns a dict: needed (DT_NEEDED names), unknown_needed (of these, those that programs may "
      "not use), undefined (symbols it wants), missing (of these, those that this process cannot "
      "supply, as 'name' or 'name@version'), unique (STB_GNU_UNIQUE definitions), isa (the marked "
      "x86-64 level or ''), min_glibc, min_glibcxx ('2.34', '3.4.30' or '').\n\n"
      "Raises FormatError for anything else or a damaged image.");
  m.def("exported_symbols", &exported, py::arg("path"),
        "Names that the shared library at `path` defines for others.\n\n"
        "Raises FileError if it cannot be read, FormatError if it is not an ELF64 library.");
}

}  // namespace cudaexec::python

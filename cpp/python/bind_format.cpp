#include "python/bind_format.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/sha256.h"
#include "base/tree_hash.h"
#include "format/expression.h"
#include "python/gil.h"

namespace cudaexec::python {
namespace {

namespace py = pybind11;

/// A C-contiguous buffer of any item type, held while its bytes are read without the GIL.
class BufferBytes {
 public:
  explicit BufferBytes(const py::object& object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_C_CONTIGUOUS) != 0)
      throw py::error_already_set();
  }
  BufferBytes(const BufferBytes&) = delete;
  BufferBytes& operator=(const BufferBytes&) = delete;
  ~BufferBytes() { PyBuffer_Release(&view_); }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(view_.buf), static_cast<size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

std::string path_bytes(const py::object& path) {
  return py::cast<std::string>(py::module_::import("os").attr("fsencode")(path));
}

std::string parallel_tree_hash(std::span<const std::byte> data, size_t num_threads) {
  std::vector<Hash128> chunks(tree_hash_chunks(data.size()));
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < chunks.size(); i = next++) chunks[i] = tree_hash_chunk(data, i);
  };
  {
    std::vector<std::jthread> helpers;
    const size_t useful = std::min(num_threads, chunks.size());
    for (size_t i = 1; i < useful; ++i) helpers.emplace_back(work);
    work();
  }
  return hash_hex(tree_hash_root(chunks, data.size()));
}

std::string hash_by_path(std::span<const std::byte> data, const std::string& path) {
  const HashPath chosen = path == "portable" ? HashPath::kPortable
                          : path == "avx2"   ? HashPath::kAvx2
                                             : HashPath::kAvx512;
  if (chosen > best_hash_path()) throw py::value_error("this processor has no " + path);
  return hash_hex(xxh3_128(data, chosen));
}

py::bytes sha256_bytes(const py::object& data, bool portable) {
  const BufferBytes buffer(data);
  const Sha256Digest digest = without_gil([&] {
    Sha256 hash(portable);
    hash.update(buffer.bytes());
    return hash.finish();
  });
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

py::object evaluate(const std::vector<std::pair<int, int64_t>>& items,
                    const std::vector<int64_t>& symbols) {
  std::vector<ExpressionItem> parsed;
  for (const auto& [op, value] : items) parsed.push_back({static_cast<Op>(op), value});
  return py::cast(Expression(std::move(parsed), symbols.size()).evaluate(symbols));
}

}  // namespace

void register_format(py::module_& m) {
  py::module_ sub = m.def_submodule("_format", "Files, payloads, manifests and hashes.");
  sub.def(
      "parse_pte", [](const py::object& path) { return describe_pte(path_bytes(path)); },
      py::arg("path"), "Opens and verifies a program; returns what it holds.");
  sub.def(
      "parse_ptd", [](const py::object& path) { return describe_ptd(path_bytes(path)); },
      py::arg("path"), "Opens and verifies a data file; returns what it holds.");
  sub.def(
      "decode_payload",
      [](const py::bytes& processed, const std::string& method_name) {
        return describe_payload(processed, method_name);
      },
      py::arg("processed"), py::arg("method_name"), "Decodes a delegate payload.");
  sub.def(
      "parse_manifest", [](const py::bytes& text) { return describe_manifest(text); },
      py::arg("text"), "Parses UTF-8 JSON; returns a summary.");
  sub.def("evaluate", &evaluate, py::arg("items"), py::arg("symbols"),
          "Value of a postfix expression of (operator number, value) pairs, or None.");
  sub.def("sha256", &sha256_bytes, py::arg("data"), py::arg("portable") = false,
          "32 bytes. `portable` avoids the processor's SHA instructions.");
  sub.def(
      "tree_hash",
      [](const py::object& data, size_t threads) {
        const BufferBytes buffer(data);
        return without_gil([&] { return parallel_tree_hash(buffer.bytes(), threads); });
      },
      py::arg("data"), py::arg("threads") = 1, "Tree hash in hexadecimal, by `threads` threads.");
  sub.def(
      "xxh3_128",
      [](const py::object& data, const std::string& path) {
        const BufferBytes buffer(data);
        return without_gil([&] { return hash_by_path(buffer.bytes(), path); });
      },
      py::arg("data"), py::arg("path"), "XXH3-128 by 'portable', 'avx2' or 'avx512'.");
  sub.def("best_hash_path", [] {
    constexpr const char* kNames[] = {"portable", "avx2", "avx512"};
    return kNames[static_cast<size_t>(best_hash_path())];
  });
  sub.def("sha256_is_accelerated", &sha256_is_accelerated);
  register_variants(sub);
}

}  // namespace cudaexec::python

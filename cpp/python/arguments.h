// The arguments of a call, by position and by name, as the flat inputs of a program.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "format/manifest.h"
#include "python/convert_in.h"
#include "python/pytree.h"

namespace cudaexec::python {

namespace py = pybind11;

/// A Python call as the interpreter hands it over: positional arguments, then the values of
/// keywords.
struct CallArguments {
  PyObject* const* values = nullptr;
  size_t num_positional = 0;
  PyObject* keywords = nullptr;  // tuple of names, or null
};

/// A call without its keyword `stream`, and that keyword's value (null if it was not given).
class StreamKeyword {
 public:
  explicit StreamKeyword(const CallArguments& call);
  [[nodiscard]] const CallArguments& rest() const noexcept { return rest_; }
  [[nodiscard]] PyObject* value() const noexcept { return value_; }

 private:
  CallArguments rest_;
  PyObject* value_ = nullptr;
  std::vector<PyObject*> values_;
  py::tuple names_;
};

/// Borrowed objects in a row, on the stack for the usual counts; null at first.
class ObjectSlots {
 public:
  explicit ObjectSlots(size_t count) : count_(count) {
    if (count > inline_.size()) heap_.resize(count);
  }
  [[nodiscard]] std::span<PyObject*> span() noexcept {
    return {heap_.empty() ? inline_.data() : heap_.data(), count_};
  }

 private:
  size_t count_;
  std::array<PyObject*, 16> inline_{};
  std::vector<PyObject*> heap_;
};

/// The parameters of a method. Positional ones may be given by name too, as in Python.
class Signature {
 public:
  explicit Signature(const MethodSpec& spec);

  /// Fills `leaves` (num_leaves() entries), each alive as long as `borrowed`. One list, tuple or
  /// dict in place of the only tensor stands for all arguments; an array is never taken apart.
  /// @throws InputError for missing, extra, doubled or misspelt arguments and for other structures.
  void flatten_into(const CallArguments& call, std::span<PyObject*> leaves,
                    Borrowed& borrowed) const;

  [[nodiscard]] size_t num_leaves() const noexcept { return tree_.num_leaves; }
  /// Whether `stream=` names an input of the method.
  [[nodiscard]] bool has_stream_input() const noexcept { return has_stream_input_; }

 private:
  struct Parameter {
    const TreeNode* node;
    py::object name;    // a str, or null where a positional parameter has none
    std::string place;  // for messages: "method 'forward': input 'x'"
  };

  /// A parameter that was left out at export; it takes the value that was compiled in.
  struct Omitted {
    py::object name;
    const OmittedInput* spec;
    std::string place;
  };

  [[nodiscard]] std::optional<CallArguments> unpack(PyObject* packed, Borrowed& borrowed) const;
  void assign(const CallArguments& call, std::span<PyObject*> arguments) const;
  /// @throws InputError if the arguments beyond the exported ones are none that were left out
  /// there.
  void check_omitted_positions(const CallArguments& call) const;
  [[nodiscard]] bool check_omitted_keyword(PyObject* keyword, PyObject* value) const;
  void assign_keywords(const CallArguments& call, std::span<PyObject*> arguments) const;
  void flatten_arguments(std::span<PyObject*> arguments, std::span<PyObject*> leaves,
                         Borrowed& borrowed) const;
  [[nodiscard]] std::string name_of(size_t parameter) const;
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::string suggestion(const std::string& name) const;
  [[noreturn]] void refuse_missing(std::span<PyObject*> arguments) const;

  std::string method_;
  TreeNode tree_;
  std::vector<Parameter> parameters_;
  std::vector<Omitted> omitted_;
  size_t num_positional_ = 0;
  bool all_positional_leaves_ = true;
  bool has_stream_input_ = false;
};

}  // namespace cudaexec::python

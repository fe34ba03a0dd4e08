#include "python/arguments.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/str.h"
#include "base/words.h"
#include "python/scalars.h"
#include "runtime/input_check.h"
#include "runtime/spec_text.h"

namespace cudaexec::python {
namespace {

/// `x` of a leaf named `x`, `x[0]` or `x.field`.
std::string parameter_name(const std::string& leaf) {
  return leaf.substr(0, leaf.find_first_of("[."));
}

constexpr const char* kStream = "stream";

}  // namespace

StreamKeyword::StreamKeyword(const CallArguments& call)
    : rest_(call), names_(py::reinterpret_steal<py::tuple>(nullptr)) {
  const Py_ssize_t count = PyTuple_GET_SIZE(call.keywords);
  Py_ssize_t found = 0;
  while (found < count &&
         PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(call.keywords, found), kStream) != 0) {
    ++found;
  }
  if (found == count) return;
  PyObject* const* keyword_values = call.values + call.num_positional;
  value_ = keyword_values[found];
  if (count == 1) {
    rest_.keywords = nullptr;
    return;
  }
  values_.assign(call.values, keyword_values + count);
  values_.erase(values_.begin() + static_cast<Py_ssize_t>(call.num_positional) + found);
  names_ = py::tuple(static_cast<size_t>(count - 1));
  for (Py_ssize_t from = 0, to = 0; from < count; ++from) {
    if (from == found) continue;
    PyObject* name = PyTuple_GET_ITEM(call.keywords, from);
    Py_INCREF(name);
    PyTuple_SET_ITEM(names_.ptr(), to++, name);
  }
  rest_ = {values_.data(), call.num_positional, names_.ptr()};
}

Signature::Signature(const MethodSpec& spec)
    : method_(str("method '", spec.name, "'")), tree_(spec.in_tree) {
  const bool fits = tree_.kind == Tree::Kind::kTuple && tree_.children.size() == 2 &&
                    tree_.num_leaves == spec.inputs.size() &&
                    tree_.children[1].keys.size() == tree_.children[1].children.size();
  if (!fits) {
    throw FormatError(str(method_,
                          ": the structure of its inputs is not a tuple of positional and "
                          "keyword arguments over its ",
                          spec.inputs.size(), " inputs; the file is damaged"));
  }
  for (const TreeNode& node : tree_.children[0].children) {
    py::object name;
    if (node.num_leaves > 0) {
      PyObject* text =
          PyUnicode_InternFromString(parameter_name(spec.inputs[node.first_leaf].name).c_str());
      if (text == nullptr) throw py::error_already_set();
      name = py::reinterpret_steal<py::object>(text);
    }
    parameters_.push_back({&node, std::move(name), {}});
  }
  num_positional_ = parameters_.size();
  const TreeNode& keywords = tree_.children[1];
  for (size_t i = 0; i < keywords.children.size(); ++i) {
    parameters_.push_back({&keywords.children[i], keywords.keys[i], {}});
  }
  for (const OmittedInput& omitted : spec.omitted) {
    omitted_.push_back(
        {py::str(omitted.name), &omitted, str(method_, ": input '", omitted.name, "'")});
  }
  all_positional_leaves_ = num_positional_ == parameters_.size();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].place = str(method_, ": input '", name_of(i), "'");
    has_stream_input_ |= name_of(i) == kStream;
    all_positional_leaves_ &= parameters_[i].node->is_leaf();
  }
}

namespace {

void check_omitted(const std::string& place, const Scalar& expected, PyObject* object) {
  try {
    check_compiled_in(place, expected, scalar_from_object(object));
  } catch (const InputError& error) {
    if (std::string_view(error.what()).starts_with(place)) throw;
    throw InputError(
        str(place, " was left out at export: ", error.what(), ", ", scalar_text(expected)));
  }
}

}  // namespace

void Signature::check_omitted_positions(const CallArguments& call) const {
  for (size_t i = num_positional_; i < call.num_positional; ++i) {
    const auto found = std::ranges::find_if(
        omitted_, [i](const Omitted& omitted) { return omitted.spec->position == i; });
    if (found == omitted_.end()) {
      throw InputError(str(method_, ": expected ", count_str(num_positional_, "positional input"),
                           ", found ", call.num_positional, "; the inputs are ", text()));
    }
    check_omitted(found->place, found->spec->value, call.values[i]);
  }
}

bool Signature::check_omitted_keyword(PyObject* keyword, PyObject* value) const {
  for (const Omitted& omitted : omitted_) {
    if (PyUnicode_Compare(omitted.name.ptr(), keyword) != 0) continue;
    check_omitted(omitted.place, omitted.spec->value, value);
    return true;
  }
  return false;
}

std::string Signature::name_of(size_t parameter) const {
  const py::object& name = parameters_[parameter].name;
  return name ? std::string(py::str(name)) : str("arg", parameter);
}

std::string Signature::text() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (i == num_positional_) names.emplace_back("*");
    names.push_back(name_of(i));
  }
  return list_str(names);
}

std::string Signature::suggestion(const std::string& name) const {
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters_) {
    if (parameter.name) names.emplace_back(py::str(parameter.name));
  }
  return closest_hint(name, names);
}

void Signature::refuse_missing(std::span<PyObject*> arguments) const {
  std::vector<std::string> missing;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == nullptr) missing.push_back(name_of(i));
  }
  throw InputError(str(method_, ": missing ", missing.size() == 1 ? "input " : "inputs ",
                       list_str(missing), "; expected ", text()));
}

void Signature::assign_keywords(const CallArguments& call, std::span<PyObject*> arguments) const {
  const auto count = static_cast<size_t>(PyTuple_GET_SIZE(call.keywords));
  for (size_t k = 0; k < count; ++k) {
    PyObject* keyword = PyTuple_GET_ITEM(call.keywords, static_cast<Py_ssize_t>(k));
    size_t found = 0;
    while (found < parameters_.size()) {
      const PyObject* name = parameters_[found].name.ptr();
      if (name == keyword) break;
      if (name != nullptr && PyUnicode_Compare(const_cast<PyObject*>(name), keyword) == 0) break;
      ++found;
    }
    if (found == parameters_.size()) {
      if (check_omitted_keyword(keyword, call.values[call.num_positional + k])) continue;
      const std::string name = py::str(py::handle(keyword));
      throw InputError(
          str(method_, ": unknown input '", name, "'; expected ", text(), suggestion(name)));
    }
    if (arguments[found] != nullptr) {
      throw InputError(str(method_, ": input '", std::string(py::str(py::handle(keyword))),
                           "' was given twice, by position and by name"));
    }
    arguments[found] = call.values[call.num_positional + k];
  }
}

void Signature::assign(const CallArguments& call, std::span<PyObject*> arguments) const {
  if (call.num_positional > num_positional_) check_omitted_positions(call);
  std::copy_n(call.values, std::min(call.num_positional, num_positional_), arguments.begin());
  if (call.keywords != nullptr) assign_keywords(call, arguments);
  if (std::find(arguments.begin(), arguments.end(), nullptr) != arguments.end()) {
    refuse_missing(arguments);
  }
}

void Signature::flatten_arguments(std::span<PyObject*> arguments, std::span<PyObject*> leaves,
                                  Borrowed& borrowed) const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    if (parameter.node->is_leaf()) {
      leaves[parameter.node->first_leaf] = arguments[i];
    } else {
      flatten(*parameter.node, arguments[i], leaves, borrowed, parameter.place);
    }
  }
}

/// m([a, b]), m((a, b)), m({'x': a, 'y': b}): the arguments inside, kept alive by `borrowed`; or
/// nothing.
std::optional<CallArguments> Signature::unpack(PyObject* packed, Borrowed& borrowed) const {
  const bool expects_structure = !parameters_.empty() && !parameters_[0].node->is_leaf();
  if (expects_structure) return std::nullopt;
  if (PyTuple_CheckExact(packed) || PyList_CheckExact(packed)) {
    const auto items = py::reinterpret_steal<py::object>(PySequence_Tuple(packed));
    if (!items) throw py::error_already_set();
    borrowed.keep(items.ptr());
    return CallArguments{PySequence_Fast_ITEMS(items.ptr()),
                         static_cast<size_t>(PyTuple_GET_SIZE(items.ptr())), nullptr};
  }
  if (!PyDict_CheckExact(packed)) return std::nullopt;
  const auto dict = py::reinterpret_borrow<py::dict>(packed);
  const py::tuple names(dict.attr("keys")());
  const py::tuple values(dict.attr("values")());
  for (const py::handle name : names) {
    if (!py::isinstance<py::str>(name)) {
      throw InputError(str(method_, ": a dict of inputs needs their names as keys, found ",
                           std::string(py::repr(name)), "; expected ", text()));
    }
  }
  borrowed.keep(names.ptr());
  borrowed.keep(values.ptr());
  return CallArguments{PySequence_Fast_ITEMS(values.ptr()), 0, names.ptr()};
}

void Signature::flatten_into(const CallArguments& call, std::span<PyObject*> leaves,
                             Borrowed& borrowed) const {
  CallArguments actual = call;
  if (call.num_positional == 1 && call.keywords == nullptr) {
    if (const auto inside = unpack(call.values[0], borrowed)) actual = *inside;
  }
  if (all_positional_leaves_ && actual.keywords == nullptr &&
      actual.num_positional == parameters_.size()) {
    std::copy_n(actual.values, actual.num_positional, leaves.begin());
    return;
  }
  ObjectSlots arguments(parameters_.size());
  assign(actual, arguments.span());
  flatten_arguments(arguments.span(), leaves, borrowed);
}

}  // namespace cudaexec::python

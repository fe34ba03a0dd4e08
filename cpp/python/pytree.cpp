#include "python/pytree.h"

#include "base/error.h"
#include "base/str.h"
#include "base/words.h"

namespace cudaexec::python {
namespace {

using Kind = Tree::Kind;

py::object to_python(const Scalar& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return py::bool_(*flag);
  if (const auto* integer = std::get_if<int64_t>(&value)) return py::int_(*integer);
  if (const auto* number = std::get_if<double>(&value)) return py::float_(*number);
  if (const auto* text = std::get_if<std::string>(&value)) {
    PyObject* interned =
        PyUnicode_FromStringAndSize(text->data(), static_cast<Py_ssize_t>(text->size()));
    if (interned == nullptr) throw py::error_already_set();
    PyUnicode_InternInPlace(&interned);
    return py::reinterpret_steal<py::object>(interned);
  }
  return py::none();
}

std::string repr_of(py::handle object) { return std::string(py::repr(object)); }

std::string keys_text(const TreeNode& node) {
  std::vector<std::string> names;
  for (const py::object& key : node.keys) names.push_back(repr_of(key));
  return list_str(names);
}

bool is_dict_kind(Kind kind) noexcept {
  return kind == Kind::kDict || kind == Kind::kOrderedDict || kind == Kind::kDefaultDict;
}

/// Where in the structure, as a chain on the stack; made into text only for messages.
struct Place {
  const std::string* root;
  const Place* parent = nullptr;
  size_t index = 0;         // among the children of a sequence
  PyObject* key = nullptr;  // of a dict, or the name of a field
  bool is_field = false;

  [[nodiscard]] Place item(size_t i) const { return {root, this, i, nullptr, false}; }
  [[nodiscard]] Place entry(PyObject* dict_key) const { return {root, this, 0, dict_key, false}; }
  [[nodiscard]] Place field(PyObject* name) const { return {root, this, 0, name, true}; }

  [[nodiscard]] std::string text() const {
    if (parent == nullptr) return *root;
    if (key == nullptr) return str(parent->text(), "[", index, "]");
    if (is_field) return str(parent->text(), ".", std::string(py::str(key)));
    return str(parent->text(), "[", repr_of(key), "]");
  }
};

/// One use of flatten(): what stays the same at every level.
struct Flattener {
  std::span<PyObject*> leaves;
  Borrowed& borrowed;

  void visit(const TreeNode& node, PyObject* object, const Place& place);
  void visit_sequence(const TreeNode& node, PyObject* object, const Place& place);
  void visit_dict(const TreeNode& node, PyObject* dict, const Place& place);
  void visit_fields(const TreeNode& node, PyObject* object, const Place& place);
};

void Flattener::visit(const TreeNode& node, PyObject* object, const Place& place) {
  if (node.is_leaf()) {
    borrowed.keep(object);
    leaves[node.first_leaf] = object;
    return;
  }
  const bool is_sequence = PyTuple_Check(object) || PyList_Check(object);
  if (node.kind == Kind::kTuple || node.kind == Kind::kList) {
    if (!is_sequence) {
      throw InputError(str(place.text(), ": expected a ",
                           node.kind == Kind::kTuple ? "tuple" : "list", " of ",
                           count_str(node.children.size(), "item"), ", found ",
                           with_article(Py_TYPE(object)->tp_name)));
    }
    visit_sequence(node, object, place);
  } else if (PyDict_Check(object)) {
    visit_dict(node, object, place);
  } else if (is_dict_kind(node.kind)) {
    throw InputError(str(place.text(), ": expected a dict with the keys ", keys_text(node),
                         ", found ", with_article(Py_TYPE(object)->tp_name)));
  } else if (node.kind == Kind::kNamedTuple && is_sequence) {
    visit_sequence(node, object, place);
  } else {
    visit_fields(node, object, place);
  }
}

void Flattener::visit_sequence(const TreeNode& node, PyObject* object, const Place& place) {
  const auto count = static_cast<size_t>(PySequence_Fast_GET_SIZE(object));
  if (count != node.children.size()) {
    throw InputError(str(place.text(), ": expected ", count_str(node.children.size(), "item"),
                         ", found ", count));
  }
  for (size_t i = 0; i < count; ++i) {
    visit(node.children[i], PySequence_Fast_GET_ITEM(object, static_cast<Py_ssize_t>(i)),
          place.item(i));
  }
}

void Flattener::visit_dict(const TreeNode& node, PyObject* dict, const Place& place) {
  for (size_t i = 0; i < node.children.size(); ++i) {
    PyObject* item = PyDict_GetItemWithError(dict, node.keys[i].ptr());
    if (item == nullptr) {
      if (PyErr_Occurred() != nullptr) throw py::error_already_set();
      throw InputError(str(place.text(), ": the key ", repr_of(node.keys[i]),
                           " is missing; expected the keys ", keys_text(node), ", found ",
                           repr_of(py::list(py::handle(dict).attr("keys")()))));
    }
    visit(node.children[i], item, place.entry(node.keys[i].ptr()));
  }
  if (static_cast<size_t>(PyDict_GET_SIZE(dict)) == node.children.size()) return;
  for (const auto& item : py::reinterpret_borrow<py::dict>(dict)) {
    if (node.find_key(item.first.ptr()) == node.children.size()) {
      throw InputError(str(place.text(), ": the key ", repr_of(item.first),
                           " is unknown; expected the keys ", keys_text(node)));
    }
  }
}

void Flattener::visit_fields(const TreeNode& node, PyObject* object, const Place& place) {
  for (size_t i = 0; i < node.children.size(); ++i) {
    PyObject* name = node.keys[i].ptr();
    const auto field = py::reinterpret_steal<py::object>(PyObject_GetAttr(object, name));
    if (!field) {
      PyErr_Clear();
      throw InputError(str(place.text(), ": expected an object (or a dict) with the fields ",
                           keys_text(node), ", found ", with_article(Py_TYPE(object)->tp_name),
                           " without ", repr_of(name)));
    }
    visit(node.children[i], field.ptr(), place.field(name));
  }
}

}  // namespace

TreeNode::TreeNode(const Tree& tree, size_t leaf)
    : kind(tree.kind), class_name(tree.class_name), first_leaf(leaf), num_leaves(tree.num_leaves) {
  if (is_leaf()) num_leaves = 1;
  children.reserve(tree.children.size());
  for (const Tree& child : tree.children) {
    children.emplace_back(child, leaf);
    leaf += children.back().num_leaves;
  }
  for (const Scalar& key : tree.keys) keys.push_back(to_python(key));
  num_leaves = is_leaf() ? 1 : leaf - first_leaf;
}

size_t TreeNode::find_key(PyObject* key) const {
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].ptr() == key) return i;  // names in calls are interned, as ours are
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    const int equal = PyObject_RichCompareBool(keys[i].ptr(), key, Py_EQ);
    if (equal < 0) throw py::error_already_set();
    if (equal > 0) return i;
  }
  return children.size();
}

void flatten(const TreeNode& node, PyObject* object, std::span<PyObject*> leaves,
             Borrowed& borrowed, const std::string& where) {
  Flattener{leaves, borrowed}.visit(node, object, Place{&where});
}

}  // namespace cudaexec::python

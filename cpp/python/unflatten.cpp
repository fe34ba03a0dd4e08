// Building the structure that the model returned.
#include <cstring>
#include <string_view>

#include "python/pytree.h"

namespace cudaexec::python {
namespace {

using Kind = Tree::Kind;

/// An attribute of a module, looked up once and kept for good in `place`, guarded by the GIL. (The
/// guard of a static variable would be held while Python code runs.)
py::handle kept(PyObject*& place, const char* module, const char* name) {
  if (place == nullptr) {
    py::object found = py::module_::import(module).attr(name);
    if (place == nullptr) place = found.release().ptr();
  }
  return place;
}

py::handle collections_class(const char* name) {
  static PyObject* ordered = nullptr;
  static PyObject* defaulted = nullptr;
  const bool is_ordered = std::strcmp(name, "OrderedDict") == 0;
  return is_ordered ? kept(ordered, "collections", "OrderedDict")
                    : kept(defaulted, "collections", "defaultdict");
}

py::handle attr_dict() {
  static PyObject* cls = nullptr;
  return kept(cls, "cudaexec.attrdict", "AttrDict");
}

py::object build(const TreeNode& node, std::span<py::object> leaves);

py::dict build_dict(const TreeNode& node, std::span<py::object> leaves) {
  py::dict dict;
  for (size_t i = 0; i < node.children.size(); ++i) {
    const py::object child = build(node.children[i], leaves);
    if (PyDict_SetItem(dict.ptr(), node.keys[i].ptr(), child.ptr()) != 0) {
      throw py::error_already_set();
    }
  }
  return dict;
}

/// Whether `cls` takes exactly the node's fields: a namedtuple or dataclass of these fields, or a
/// kind of dict. Anything else that a file names is not called.
bool takes_fields(const TreeNode& node, const py::object& cls) {
  auto* type = reinterpret_cast<PyTypeObject*>(cls.ptr());
  if (node.kind == Kind::kCustom) return PyType_IsSubtype(type, &PyDict_Type) != 0;
  const char* table = node.kind == Kind::kNamedTuple ? "_fields" : "__dataclass_fields__";
  if (!py::hasattr(cls, table)) return false;
  if (node.kind == Kind::kNamedTuple && PyType_IsSubtype(type, &PyTuple_Type) == 0) return false;
  const py::list fields(cls.attr(table));
  if (fields.size() != node.keys.size()) return false;
  for (size_t i = 0; i < node.keys.size(); ++i) {
    if (!node.keys[i].equal(fields[i])) return false;
  }
  return true;
}

py::object build_class(const TreeNode& node, std::span<py::object> leaves) {
  if (!node.cls) {
    py::object found = find_loaded_class(node.class_name);
    if (found && takes_fields(node, found)) node.cls = std::move(found);
  }
  const py::dict fields = build_dict(node, leaves);
  return node.cls ? node.cls(**fields) : attr_dict()(fields);
}

py::object build(const TreeNode& node, std::span<py::object> leaves) {
  switch (node.kind) {
    case Kind::kLeaf:
      return std::move(leaves[node.first_leaf]);
    case Kind::kTuple: {
      py::tuple items(node.children.size());
      for (size_t i = 0; i < node.children.size(); ++i) {
        PyTuple_SET_ITEM(items.ptr(), static_cast<Py_ssize_t>(i),
                         build(node.children[i], leaves).release().ptr());
      }
      return items;
    }
    case Kind::kList: {
      py::list items(node.children.size());
      for (size_t i = 0; i < node.children.size(); ++i) {
        PyList_SET_ITEM(items.ptr(), static_cast<Py_ssize_t>(i),
                        build(node.children[i], leaves).release().ptr());
      }
      return items;
    }
    case Kind::kDict:
      return build_dict(node, leaves);
    case Kind::kOrderedDict:
      return collections_class("OrderedDict")(build_dict(node, leaves));
    case Kind::kDefaultDict:
      return collections_class("defaultdict")(py::none(), build_dict(node, leaves));
    case Kind::kNamedTuple:
    case Kind::kDataclass:
    case Kind::kCustom:
      break;
  }
  return build_class(node, leaves);
}

}  // namespace

py::object find_loaded_class(const std::string& name) {
  const size_t colon = name.find(':');
  if (colon == std::string::npos) return {};
  PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), name.substr(0, colon).c_str());
  auto found = py::reinterpret_borrow<py::object>(module);
  std::string_view rest = std::string_view(name).substr(colon + 1);
  while (found && !rest.empty()) {
    const size_t dot = rest.find('.');
    const std::string part(rest.substr(0, dot));
    rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
    // Through the dictionary: a module's __getattr__ may import things.
    PyObject* dict = PyModule_Check(found.ptr()) != 0 ? PyModule_GetDict(found.ptr())
                     : PyType_Check(found.ptr()) != 0
                         ? reinterpret_cast<PyTypeObject*>(found.ptr())->tp_dict
                         : nullptr;
    found = py::reinterpret_borrow<py::object>(
        dict != nullptr ? PyDict_GetItemString(dict, part.c_str()) : nullptr);
  }
  return found && PyType_Check(found.ptr()) != 0 ? found : py::object();
}

py::object unflatten(const TreeNode& node, std::span<py::object> leaves) {
  return build(node, leaves);
}

}  // namespace cudaexec::python

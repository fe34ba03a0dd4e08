// Python structures of a program's inputs and outputs: taking them apart into leaves and building
// them.
#pragma once

#include <pybind11/pybind11.h>

#include <span>
#include <string>
#include <vector>

#include "format/manifest.h"
#include "python/convert_in.h"

namespace cudaexec::python {

namespace py = pybind11;

/// A Tree of the manifest with its keys as Python objects. Used with the GIL held.
struct TreeNode {
  explicit TreeNode(const Tree& tree, size_t first_leaf = 0);

  [[nodiscard]] bool is_leaf() const noexcept { return kind == Tree::Kind::kLeaf; }
  /// The position of `key` among the children, or children.size().
  [[nodiscard]] size_t find_key(PyObject* key) const;

  Tree::Kind kind;
  std::vector<TreeNode> children;
  std::vector<py::object> keys;  // one per child, for the kinds with keys or field names
  std::string class_name;        // "module:QualName", may be empty
  size_t first_leaf;             // index of its first leaf in the whole tree
  size_t num_leaves;
  mutable py::object cls;  // the class, once it was found
};

/// Takes `object` apart as `node` says; writes its leaves to leaves[node.first_leaf...], each kept
/// alive by `borrowed`. Lists and tuples stand for each other; dicts match by key, in any order.
/// `where` names the input in messages: "method 'forward': input 'x'". @throws InputError.
void flatten(const TreeNode& node, PyObject* object, std::span<PyObject*> leaves,
             Borrowed& borrowed, const std::string& where);

/// Builds the structure; takes over `leaves`. Classes are used where they are loaded, else an
/// AttrDict.
py::object unflatten(const TreeNode& node, std::span<py::object> leaves);

/// The class that "module:QualName" names, if that module is loaded and has it; else null. Imports
/// nothing.
py::object find_loaded_class(const std::string& name);

}  // namespace cudaexec::python

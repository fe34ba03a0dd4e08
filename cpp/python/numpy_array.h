// numpy arrays to and from tensors through numpy's C interface, without importing numpy before an
// array is at hand or asked for.
#pragma once

#include <pybind11/numpy.h>

#include <optional>

#include "tensor/tensor.h"

namespace cudaexec::python {

namespace py = pybind11;

/// The entries of numpy's table of C functions that the binding uses.
struct NumpyApi {
  using Table = py::detail::npy_api;  // for the types of its entries
  PyTypeObject* array_type = nullptr;
  decltype(Table::PyArray_DescrFromType_) descr_from_type = nullptr;
  decltype(Table::PyArray_FromAny_) from_any = nullptr;
  decltype(Table::PyArray_NewCopy_) new_copy = nullptr;
  decltype(Table::PyArray_NewFromDescr_) new_from_descr = nullptr;
  decltype(Table::PyArray_SetBaseObject_) set_base_object = nullptr;
};

/// Imports numpy at the first call. Holds no lock meanwhile, unlike pybind11's own look-up: that
/// runs Python code, so also signal handlers and finalisers, which may come here again.
const NumpyApi& numpy_api();

/// Whether numpy was imported by somebody.
bool numpy_is_loaded();

/// The Dtype of a numpy dtype object in native byte order (ml_dtypes' bfloat16 included), or
/// nothing.
std::optional<Dtype> dtype_from_numpy(PyObject* descr) noexcept;

/// A view of `array` (a numpy.ndarray), which must outlive it, with its strides (negative and zero
/// ones too). Where elements lie at odd distances, `copy` receives a packed copy and the view is of
/// that.
/// @throws DtypeError for dtypes without a counterpart and for non-native byte order.
Tensor tensor_from_array(PyObject* array, py::object& copy);

/// A numpy array over the tensor's memory, which it keeps alive. bfloat16 needs ml_dtypes.
/// @throws NotSupported for bfloat16 where ml_dtypes is not installed; DeviceError if not on the
/// CPU.
py::object array_from_tensor(const Tensor& tensor);

/// Whether array_from_tensor() can serve `dtype` here; imports ml_dtypes for bfloat16.
bool numpy_has_dtype(Dtype dtype);

}  // namespace cudaexec::python

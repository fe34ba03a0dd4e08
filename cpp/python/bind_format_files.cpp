// What the readers found in a file, as Python values.
#include <pybind11/stl.h>

#include "format/ptd_reader.h"
#include "format/pte_reader.h"
#include "python/bind_format.h"
#include "python/gil.h"

namespace cudaexec::python {
namespace {

namespace py = pybind11;
using namespace py::literals;

template <typename T>
py::list list_of(std::span<const T> items) {
  py::list result;
  for (const T& item : items) result.append(item);
  return result;
}

py::tuple place(const FileBlob& blob) {
  return py::make_tuple(blob.file_offset, blob.bytes.size());
}

py::bytes bytes_of(std::span<const std::byte> data) {
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

py::dict describe(const PteTensor& tensor) {
  py::object planned = py::none();
  if (tensor.planned) planned = py::make_tuple(tensor.planned->memory_id, tensor.planned->offset);
  return py::dict("type"_a = "tensor", "scalar_type"_a = tensor.scalar_type,
                  "sizes"_a = list_of(tensor.sizes), "dim_order"_a = list_of(tensor.dim_order),
                  "dynamism"_a = static_cast<int>(tensor.dynamism),
                  "data_buffer_idx"_a = tensor.data_buffer_idx, "planned"_a = planned,
                  "external"_a = tensor.external, "fqn"_a = tensor.fully_qualified_name,
                  "device"_a = py::make_tuple(tensor.device_type, tensor.device_index));
}

struct DescribeValue {
  py::object operator()(std::monostate) const { return py::none(); }
  py::object operator()(const PteTensor& tensor) const { return describe(tensor); }
  py::object operator()(const PteIntList& list) const { return lists("int", list_of(list.items)); }
  py::object operator()(const PteDoubleList& list) const {
    return lists("double", list_of(list.items));
  }
  py::object operator()(const PteBoolList& list) const {
    return lists("bool", list_of(list.items));
  }
  py::object operator()(const PteTensorList& list) const {
    return lists("tensor", list_of(list.items));
  }
  py::object operator()(const PteOptionalTensorList& list) const {
    return lists("optional tensor", list_of(list.items));
  }
  template <typename Scalar>
  py::object operator()(const Scalar& value) const {
    return py::cast(value);
  }
  static py::object lists(const char* of, const py::list& items) {
    return py::dict("type"_a = "list", "of"_a = of, "items"_a = items);
  }
};

struct DescribeInstruction {
  const PteMethod& method;

  py::object operator()(const PteKernelCall& call) const {
    const PteOperator& op = method.operators[call.op];
    return py::make_tuple("kernel", std::string(op.name) + "." + std::string(op.overload),
                          list_of(call.args));
  }
  py::object operator()(const PteDelegateCall& call) const {
    return py::make_tuple("delegate", call.delegate, list_of(call.args));
  }
  py::object operator()(const PteMove& move) const {
    return py::make_tuple("move", move.from, move.to);
  }
  py::object operator()(const PteJumpFalse& jump) const {
    return py::make_tuple("jump_false", jump.condition, jump.destination);
  }
  py::object operator()(const PteFree& free) const { return py::make_tuple("free", free.value); }
};

py::dict describe(const PteDelegate& delegate) {
  py::dict specs;
  for (const PteCompileSpec& spec : delegate.compile_specs)
    specs[py::cast(spec.key)] = bytes_of(spec.value);
  return py::dict("id"_a = delegate.id, "inline"_a = delegate.is_inline,
                  "place"_a = place(delegate.processed),
                  "processed"_a = bytes_of(delegate.processed.bytes), "compile_specs"_a = specs);
}

py::dict describe(const PteMethod& method) {
  py::list values, chains, delegates, devices;
  for (const PteValue& value : method.values) values.append(std::visit(DescribeValue{}, value));
  for (const auto& chain : method.chains) {
    py::list instructions;
    for (const PteInstruction& instruction : chain)
      instructions.append(std::visit(DescribeInstruction{method}, instruction));
    chains.append(instructions);
  }
  for (const PteDelegate& delegate : method.delegates) delegates.append(describe(delegate));
  for (const PteBufferDevice& entry : method.buffer_devices)
    devices.append(py::make_tuple(entry.memory_id, entry.device_type, entry.device_index));
  return py::dict("name"_a = method.name, "values"_a = values, "inputs"_a = list_of(method.inputs),
                  "outputs"_a = list_of(method.outputs), "chains"_a = chains,
                  "delegates"_a = delegates, "buffer_sizes"_a = list_of(method.buffer_sizes),
                  "buffer_devices"_a = devices);
}

py::dict describe(const PteSubsegments& subsegments) {
  return py::dict("segment_index"_a = subsegments.segment_index,
                  "offsets"_a = list_of(subsegments.offsets));
}

py::list places(const std::vector<FileBlob>& segments) {
  py::list result;
  for (const FileBlob& segment : segments) result.append(place(segment));
  return result;
}

}  // namespace

py::dict describe_pte(const std::string& path) {
  const auto file = without_gil([&] { return PteFile::open(path); });
  const PteHeader& header = file->header();
  py::dict named;
  for (const NamedBlob& entry : file->named_data()) named[py::cast(entry.key)] = place(entry.blob);
  py::list methods, mutable_segments;
  for (const PteMethod& method : file->methods()) methods.append(describe(method));
  for (const auto& segment : file->mutable_segments()) mutable_segments.append(describe(segment));
  return py::dict(
      "header"_a = header.present, "header_length"_a = header.length,
      "program_size"_a = header.program_size, "segment_base_offset"_a = header.segment_base_offset,
      "segment_data_size"_a = header.segment_data_size, "segments"_a = places(file->segments()),
      "named_data"_a = named, "constant_segment"_a = describe(file->constant_segment()),
      "mutable_segments"_a = mutable_segments, "methods"_a = methods);
}

py::dict describe_ptd(const std::string& path) {
  const auto file = without_gil([&] { return PtdFile::open(path); });
  const PtdHeader& header = file->header();
  py::dict entries;
  for (const PtdEntry& entry : file->entries()) {
    py::object layout = py::none();
    if (entry.layout)
      layout = py::make_tuple(entry.layout->scalar_type, list_of(entry.layout->sizes),
                              list_of(entry.layout->dim_order));
    entries[py::cast(entry.key)] =
        py::make_tuple(entry.blob.file_offset, entry.blob.bytes.size(), layout);
  }
  return py::dict("header_length"_a = header.length,
                  "flatbuffer_offset"_a = header.flatbuffer_offset,
                  "flatbuffer_size"_a = header.flatbuffer_size,
                  "segment_base_offset"_a = header.segment_base_offset,
                  "segment_data_size"_a = header.segment_data_size,
                  "segments"_a = places(file->segments()), "entries"_a = entries);
}

}  // namespace cudaexec::python

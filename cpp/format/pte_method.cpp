#include <bitset>

#include "base/checked_math.h"
#include "base/error.h"
#include "format/pte_parse.h"

namespace cudaexec {

std::optional<std::string_view> PteDelegate::spec(std::string_view key) const noexcept {
  for (const PteCompileSpec& spec : compile_specs) {
    if (spec.key == key)
      return std::string_view(reinterpret_cast<const char*>(spec.value.data()), spec.value.size());
  }
  return std::nullopt;
}

namespace {

namespace fb = executorch_flatbuffer;

constexpr size_t kMaxRank = 64;

/// Reads one plan. Members are filled in the order in which later ones refer to earlier ones.
class MethodParser {
 public:
  MethodParser(const fb::ExecutionPlan& plan, ProgramContext& context)
      : plan_(plan), context_(context), view_(context.view) {}

  PteMethod parse() {
    method_.name = view_.text(plan_.name());
    if (method_.name.empty()) fail(&plan_, "a method without a name");
    if (const auto* meta = plan_.container_meta_type()) {
      method_.encoded_inputs = view_.text(meta->encoded_inp_str());
      method_.encoded_outputs = view_.text(meta->encoded_out_str());
    }
    parse_buffers();
    parse_values();
    method_.inputs = value_indices(plan_.inputs(), "input");
    method_.outputs = value_indices(plan_.outputs(), "output");
    parse_operators();
    parse_delegates();
    parse_chains();
    return std::move(method_);
  }

 private:
  [[noreturn]] void fail(const void* position, const std::string& what) const {
    view_.fail(position, str("method ", quote(method_.name), ": ", what));
  }

  size_t index(int32_t value, size_t count, const void* position, const char* what) const {
    if (value < 0 || static_cast<size_t>(value) >= count)
      fail(position, str(what, " index ", value, " of ", count));
    return static_cast<size_t>(value);
  }

  std::span<const int32_t> value_indices(const flatbuffers::Vector<int32_t>* vector,
                                         const char* what) {
    const auto items = view_.numbers(vector);
    for (const int32_t item : items) index(item, method_.values.size(), vector, what);
    return items;
  }

  void parse_buffers() {
    method_.buffer_sizes = view_.numbers(plan_.non_const_buffer_sizes());
    for (const int64_t size : method_.buffer_sizes) {
      if (size < 0)
        fail(plan_.non_const_buffer_sizes(), str("a planned buffer of ", size, " bytes"));
    }
    if (plan_.non_const_buffer_device() == nullptr) return;
    for (const fb::NonConstBufferDevice* entry : *plan_.non_const_buffer_device()) {
      const size_t id = index(entry->buffer_idx(), method_.buffer_sizes.size(), entry, "buffer");
      method_.buffer_devices.push_back(
          {id, device_type(entry->device_type(), entry), entry->device_index()});
    }
  }

  int32_t device_type(fb::DeviceType type, const void* position) const {
    if (type != fb::DeviceType::CPU && type != fb::DeviceType::CUDA)
      fail(position, str("device type ", static_cast<int>(type), "; 0 (CPU) or 1 (CUDA) expected"));
    return static_cast<int32_t>(type);
  }

  void parse_values() {
    if (plan_.values() == nullptr) return;
    method_.values.reserve(plan_.values()->size());
    for (const fb::EValue* value : *plan_.values())
      method_.values.push_back(parse_value(*value, plan_.values()->size()));
    check_tensor_lists();
  }

  std::span<const int64_t> int_items(const fb::IntList& list, size_t num_values) {
    const auto items = view_.numbers(list.items());
    for (const int64_t item : items) {
      if (item < 0 || static_cast<uint64_t>(item) >= num_values)
        fail(&list, str("list item index ", item, " of ", num_values, " values"));
    }
    return items;
  }

  PteValue parse_value(const fb::EValue& value, size_t num_values) {
    const auto need = [&](const void* table) {
      if (table == nullptr) fail(&value, "a value without its content");
    };
    if (value.val_type() != fb::KernelTypes::Null) need(value.val());
    switch (value.val_type()) {
      case fb::KernelTypes::Null:
        return std::monostate{};
      case fb::KernelTypes::Int:
        return value.val_as_Int()->int_val();
      case fb::KernelTypes::Bool:
        return value.val_as_Bool()->bool_val();
      case fb::KernelTypes::Double:
        return value.val_as_Double()->double_val();
      case fb::KernelTypes::Tensor:
        return parse_tensor(*value.val_as_Tensor());
      case fb::KernelTypes::String:
        return view_.text(value.val_as_String()->string_val());
      case fb::KernelTypes::IntList:
        return PteIntList{int_items(*value.val_as_IntList(), num_values)};
      case fb::KernelTypes::DoubleList:
        return PteDoubleList{view_.numbers(value.val_as_DoubleList()->items())};
      case fb::KernelTypes::BoolList:
        return PteBoolList{view_.numbers(value.val_as_BoolList()->items())};
      case fb::KernelTypes::TensorList:
        return PteTensorList{view_.numbers(value.val_as_TensorList()->items())};
      case fb::KernelTypes::OptionalTensorList:
        return PteOptionalTensorList{view_.numbers(value.val_as_OptionalTensorList()->items())};
      case fb::KernelTypes::NONE:
        break;
    }
    fail(&value, str("a value of unknown type ", static_cast<int>(value.val_type())));
  }

  /// List members may come after the list, so this runs when all values are there.
  void check_tensor_lists() const {
    for (size_t i = 0; i < method_.values.size(); ++i) {
      const PteValue& value = method_.values[i];
      const void* position = plan_.values()->Get(static_cast<flatbuffers::uoffset_t>(i));
      if (const auto* list = std::get_if<PteTensorList>(&value)) {
        for (const int32_t item : list->items) check_tensor_index(item, position);
      } else if (const auto* optional = std::get_if<PteOptionalTensorList>(&value)) {
        for (const int32_t item : optional->items) {
          if (item != -1) check_tensor_index(item, position);
        }
      }
    }
  }

  void check_tensor_index(int32_t item, const void* position) const {
    const size_t i = index(item, method_.values.size(), position, "tensor list item");
    const PteValue& member = method_.values[i];
    if (!std::holds_alternative<PteTensor>(member) &&
        !std::holds_alternative<std::monostate>(member))
      fail(position, str("tensor list item ", i, " is no tensor"));
  }

  PteTensor parse_tensor(const fb::Tensor& table) {
    PteTensor tensor;
    tensor.scalar_type = static_cast<int32_t>(table.scalar_type());
    if (!is_scalar_type(tensor.scalar_type))
      fail(&table, str("a tensor of unknown scalar type ", tensor.scalar_type));
    tensor.storage_offset = table.storage_offset();
    tensor.sizes = view_.numbers(table.sizes());
    tensor.dim_order = view_.numbers(table.dim_order());
    tensor.requires_grad = table.requires_grad();
    tensor.layout = table.layout();
    tensor.data_buffer_idx = table.data_buffer_idx();
    const auto dynamism = static_cast<int8_t>(table.shape_dynamism());
    if (dynamism < 0 || dynamism > 2)
      fail(&table, str("a tensor of unknown shape dynamism ", int{dynamism}));
    tensor.dynamism = static_cast<ShapeDynamism>(dynamism);
    parse_extra(table, tensor);
    check_geometry(table, tensor);
    check_memory(table, tensor);
    return tensor;
  }

  void parse_extra(const fb::Tensor& table, PteTensor& tensor) {
    if (const auto* info = table.allocation_info()) {
      tensor.planned =
          PteTensor::Planned{info->memory_id(), (uint64_t{info->memory_offset_high()} << 32) |
                                                    info->memory_offset_low()};
    }
    const auto* extra = table.extra_tensor_info();
    if (extra == nullptr) return;
    tensor.mutable_data_segments_idx = extra->mutable_data_segments_idx();
    tensor.fully_qualified_name = view_.text(extra->fully_qualified_name());
    const auto location = static_cast<int>(extra->location());
    if (location != 0 && location != 1)
      fail(extra, str("a tensor with unknown data location ", location));
    tensor.external = location == 1;
    if (tensor.external && tensor.fully_qualified_name.empty())
      fail(extra, "an external tensor without a name");
    tensor.device_type = device_type(extra->device_type(), extra);
    tensor.device_index = extra->device_index();
  }

  void check_geometry(const fb::Tensor& table, const PteTensor& tensor) const {
    const size_t rank = tensor.sizes.size();
    if (rank > kMaxRank) fail(&table, str("a tensor of rank ", rank, "; at most ", kMaxRank));
    for (const int32_t size : tensor.sizes) {
      if (size < 0) fail(&table, str("a tensor of sizes ", list_str(tensor.sizes)));
    }
    if (tensor.dim_order.empty()) return;
    std::bitset<kMaxRank> seen;
    for (const uint8_t dim : tensor.dim_order) {
      if (dim < rank) seen.set(dim);
    }
    if (tensor.dim_order.size() != rank || seen.count() != rank)
      fail(&table, str("the order of dimensions of a tensor of rank ", rank, " is no permutation"));
  }

  /// Bytes of the tensor at its upper bounds (all ones if they overflow); 0 where they are not
  /// known.
  static uint64_t nbytes_of(const PteTensor& tensor) {
    const size_t itemsize = scalar_type_size(tensor.scalar_type);
    if (itemsize == 0 || tensor.dynamism == ShapeDynamism::kDynamicUnbound) return 0;
    std::optional<uint64_t> nbytes = itemsize;
    for (const int32_t size : tensor.sizes) {
      if (size == 0) return 0;
      if (nbytes) nbytes = checked_mul<uint64_t>(*nbytes, static_cast<uint64_t>(size));
    }
    return nbytes.value_or(UINT64_MAX);
  }

  void check_memory(const fb::Tensor& table, const PteTensor& tensor) const {
    const uint64_t nbytes = nbytes_of(tensor);
    if (tensor.planned) {
      const size_t count = method_.buffer_sizes.size();
      if (tensor.planned->memory_id == 0 || tensor.planned->memory_id >= count)
        fail(&table, str("planned memory ", tensor.planned->memory_id, " of ", count,
                         " buffers (entry 0 is reserved)"));
      const auto size = static_cast<uint64_t>(method_.buffer_sizes[tensor.planned->memory_id]);
      if (!range_inside(tensor.planned->offset, nbytes, size))
        fail(&table, str("a tensor at ", tensor.planned->offset, "+", nbytes, " in a buffer of ",
                         size, " bytes"));
    }
    if (tensor.external || tensor.data_buffer_idx == 0) return;
    check_stored(table, tensor, nbytes);
  }

  void check_stored(const fb::Tensor& table, const PteTensor& tensor, uint64_t nbytes) const {
    const PteSubsegments* segment = &context_.constant_segment;
    if (tensor.planned) {
      if (tensor.mutable_data_segments_idx >= context_.mutable_segments.size())
        fail(&table, str("mutable data segment ", tensor.mutable_data_segments_idx, " of ",
                         context_.mutable_segments.size()));
      segment = &context_.mutable_segments[tensor.mutable_data_segments_idx];
    }
    if (tensor.data_buffer_idx >= segment->offsets.size())
      fail(&table, str("stored tensor ", tensor.data_buffer_idx, " of ", segment->offsets.size()));
    const uint64_t offset = segment->offsets[tensor.data_buffer_idx];
    const uint64_t size = context_.segments[segment->segment_index].bytes.size();
    if (!range_inside(offset, nbytes, size))
      fail(&table,
           str("a stored tensor at ", offset, "+", nbytes, " in a segment of ", size, " bytes"));
  }

  void parse_operators() {
    if (plan_.operators() == nullptr) return;
    for (const fb::Operator* op : *plan_.operators())
      method_.operators.push_back({view_.text(op->name()), view_.text(op->overload())});
  }

  void parse_delegates() {
    if (plan_.delegates() == nullptr) return;
    for (const fb::BackendDelegate* table : *plan_.delegates()) {
      PteDelegate delegate;
      delegate.id = view_.text(table->id());
      if (delegate.id.empty()) fail(table, "a delegate without an id");
      parse_processed(*table, delegate);
      if (table->compile_specs() != nullptr) {
        for (const fb::CompileSpec* spec : *table->compile_specs())
          delegate.compile_specs.push_back(
              {view_.text(spec->key()), std::as_bytes(view_.numbers(spec->value()))});
      }
      method_.delegates.push_back(std::move(delegate));
    }
  }

  void parse_processed(const fb::BackendDelegate& table, PteDelegate& delegate) {
    const auto* reference = table.processed();
    if (reference == nullptr) fail(&table, "a delegate without data");
    const auto inside = [&](size_t count, const char* what) {
      if (reference->index() >= count)
        fail(reference, str("delegate data in ", what, " ", reference->index(), " of ", count));
    };
    if (reference->location() == fb::DataLocation::SEGMENT) {
      inside(context_.segments.size(), "segment");
      delegate.processed = context_.segments[reference->index()];
      return;
    }
    if (reference->location() != fb::DataLocation::INLINE)
      fail(reference, str("unknown data location ", static_cast<int>(reference->location())));
    const auto* blobs = context_.program.backend_delegate_data();
    inside(flatbuffers::VectorLength(blobs), "inline entry");
    const auto* data = blobs->Get(reference->index())->data();
    delegate.is_inline = true;
    delegate.processed.bytes = std::as_bytes(view_.numbers(data));
    delegate.processed.file_offset =
        view_.offset_of(data == nullptr ? static_cast<const void*>(reference) : data->data());
  }

  void parse_chains() {
    if (plan_.chains() == nullptr) return;
    for (const fb::Chain* chain : *plan_.chains()) {
      value_indices(chain->inputs(), "chain input");
      value_indices(chain->outputs(), "chain output");
      auto& instructions = method_.chains.emplace_back();
      if (chain->instructions() == nullptr) continue;
      const size_t count = chain->instructions()->size();
      instructions.reserve(count);
      for (const fb::Instruction* instruction : *chain->instructions())
        instructions.push_back(parse_instruction(*instruction, count));
    }
  }

  PteInstruction parse_instruction(const fb::Instruction& table, size_t num_instructions) {
    const size_t num_values = method_.values.size();
    if (table.instr_args() == nullptr) fail(&table, "an instruction without its arguments");
    switch (table.instr_args_type()) {
      case fb::InstructionArguments::KernelCall: {
        const auto* call = table.instr_args_as_KernelCall();
        const size_t op = index(call->op_index(), method_.operators.size(), call, "operator");
        return PteKernelCall{op, value_indices(call->args(), "kernel argument")};
      }
      case fb::InstructionArguments::DelegateCall: {
        const auto* call = table.instr_args_as_DelegateCall();
        const size_t id = index(call->delegate_index(), method_.delegates.size(), call, "delegate");
        return PteDelegateCall{id, value_indices(call->args(), "delegate argument")};
      }
      case fb::InstructionArguments::MoveCall: {
        const auto* call = table.instr_args_as_MoveCall();
        return PteMove{index(call->move_from(), num_values, call, "move source"),
                       index(call->move_to(), num_values, call, "move target")};
      }
      case fb::InstructionArguments::JumpFalseCall: {
        const auto* call = table.instr_args_as_JumpFalseCall();
        return PteJumpFalse{
            index(call->cond_value_index(), num_values, call, "condition"),
            index(call->destination_instruction(), num_instructions + 1, call, "jump destination")};
      }
      case fb::InstructionArguments::FreeCall: {
        const auto* call = table.instr_args_as_FreeCall();
        return PteFree{index(call->value_index(), num_values, call, "freed value")};
      }
      case fb::InstructionArguments::NONE:
        break;
    }
    fail(&table, str("an instruction of unknown type ", static_cast<int>(table.instr_args_type())));
  }

  const fb::ExecutionPlan& plan_;
  ProgramContext& context_;
  FlatbufferView& view_;
  PteMethod method_;
};

}  // namespace

PteMethod parse_method(const fb::ExecutionPlan& plan, ProgramContext& context) {
  return MethodParser(plan, context).parse();
}

}  // namespace cudaexec

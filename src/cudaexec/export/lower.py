"""A model to one flat graph: tensors in, tensors out, with everything else in the manifest."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram

from cudaexec.export.byte_logic import rewrite_byte_logic
from cudaexec.export.dtypes import check_graph_dtypes, dtype_name
from cudaexec.export.dynamic_dims import DeclaredDim, check_examples, check_traced, declared_dims
from cudaexec.export.errors import ExportError
from cudaexec.export.guards_code import add_guards_of
from cudaexec.export.inductor_patches import patched
from cudaexec.export.kv_lower import CacheBuffers, KvMethod, lower_cache
from cudaexec.export.outputs import plan_outputs
from cudaexec.export.parameters import omitted_parameters, parameter_names
from cudaexec.export.pytree import NULL_LEAF, leaf_names, tree_of
from cudaexec.export.small_sizes import oblivious_sizes, trace_small, wanted
from cudaexec.export.symbols import SymbolTable, build_symbols, harvest_guards
from cudaexec.export.trace import MethodRequest, decompose, export_program, quiet_torch


@dataclass
class LoweredMethod:
    """A method ready to be compiled.

    Attributes:
        graph_module: flat; its placeholders are the tensor inputs in leaf order, its outputs the
            tensors and data-dependent numbers of `outputs`; parameters are attributes.
        example_inputs: one fake tensor per placeholder.
        inputs, outputs, in_spec, out_spec: as in the manifest.
        graph_outputs: the traced value of each graph output.
        omitted: parameters that the example left at their default, as in the manifest.
        oblivious: traced without the assumption that dynamic sizes are 2 or more.
        traced_before: an ExportedProgram of the caller's.
        tensors: every parameter, buffer and tensor constant by FQN.
        parameters: FQNs that are parameters.
        owned: FQNs that are parameters or buffers of the module; the other tensors are constants
            of the traced code, with names that mean nothing outside of it.
        kv: what it does with a cache that the runtime keeps; None if nothing.
        kv_position: index of the input leaf that holds the step's positions.
    """

    name: str
    graph_module: Any
    example_inputs: list[Any]
    symbols: SymbolTable
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    in_spec: dict[str, Any]
    out_spec: dict[str, Any]
    graph_inputs: list[Any]
    graph_outputs: list[Any]
    tensors: dict[str, torch.Tensor]
    parameters: set[str]
    owned: set[str]
    shape_env: Any
    omitted: list[dict[str, Any]] = field(default_factory=list)
    rewrites: list[str] = field(default_factory=list)
    oblivious: bool = False
    traced_before: bool = False
    kv: KvMethod | None = None
    kv_position: int | None = None


def lower(
    request: MethodRequest,
    *,
    strict: bool = False,
    small_sizes: bool = True,
    cache: CacheBuffers | None = None,
) -> LoweredMethod:
    """Trace a method and flatten it.

    Args:
        request: the model and its example.
        strict: trace with TorchDynamo.
        small_sizes: try to make dynamic sizes of 1 work; without it they start at 2.
        cache: buffers that the runtime keeps; None if there are none.

    Raises:
        ExportError: the model cannot be traced, lost a dynamic size, or uses something that a
            program cannot hold; the message names the method and the place.
    """
    with patched():
        return _lower(request, strict, small_sizes, cache)


def _lower(
    request: MethodRequest, strict: bool, small_sizes: bool, cache: CacheBuffers | None
) -> LoweredMethod:
    dims = _declared(request)
    check_examples(request.name, dims)
    program = None
    if small_sizes and wanted(request, dims):
        program = trace_small(request, strict=strict)
    oblivious = program is not None
    if program is None:
        program = export_program(request, strict=strict, dims=dims)
    with oblivious_sizes(oblivious):
        lowered = _flatten(request, program, dims, cache)
    lowered.oblivious = oblivious
    lowered.traced_before = isinstance(request.model, ExportedProgram)
    return lowered


def _declared(request: MethodRequest) -> list[DeclaredDim]:
    if isinstance(request.model, ExportedProgram):
        return []
    return declared_dims(
        request.model.forward, request.args, request.kwargs, request.dynamic_shapes
    )


def _flatten(
    request: MethodRequest,
    program: ExportedProgram,
    dims: Sequence[DeclaredDim],
    cache: CacheBuffers | None,
) -> LoweredMethod:
    program, rewrites = decompose(request.name, program)
    check_graph_dtypes(request.name, program)
    leaves = _input_leaves(request, program)
    shape_env = shape_env_of(program)
    tensor_leaves = [(leaf.index, leaf.name, leaf.value) for leaf in leaves if leaf.is_tensor]
    labels = {(declared.input, declared.dim): declared.name for declared in dims if declared.name}
    symbols = build_symbols(
        request.name, tensor_leaves, shape_env, program.range_constraints, labels
    )
    check_traced(
        request.name, dims, {name: value for _, name, value in tensor_leaves}, symbols.bounds
    )
    harvest_guards(symbols, shape_env)
    if isinstance(request.model, ExportedProgram):
        add_guards_of(symbols, request.model, {name: value for _, name, value in tensor_leaves})
    graph_module = unlift(program)
    tensors = _tensors(program)
    kv = None
    if cache is not None:
        cache.learn(tensors)
        kv = lower_cache(request.name, graph_module, symbols, cache)
    rewrite_byte_logic(graph_module)
    graph_inputs = _strip_constants(request.name, graph_module, leaves)
    in_spec, in_slots = tree_of(program.call_spec.in_spec, f"method {request.name!r}, arguments")
    out_spec, out_slots = tree_of(program.call_spec.out_spec, f"method {request.name!r}, result")
    plan = plan_outputs(request.name, graph_module, program, symbols, out_slots)
    return LoweredMethod(
        name=request.name,
        graph_module=graph_module,
        example_inputs=[leaf.value for leaf in graph_inputs],
        symbols=symbols,
        inputs=_input_specs(leaves, in_slots, symbols),
        outputs=plan.leaves,
        in_spec=in_spec,
        out_spec=out_spec,
        graph_inputs=[leaf.value for leaf in graph_inputs],
        graph_outputs=plan.graph_outputs,
        tensors=tensors,
        parameters=set(program.graph_signature.parameters),
        owned={*program.graph_signature.parameters, *program.graph_signature.buffers},
        shape_env=shape_env,
        omitted=omitted_parameters(request),
        rewrites=[*rewrites, *(kv.rewrites if kv else ())],
        kv=kv,
        kv_position=_leaf_of(kv, leaves, in_slots),
    )


def _leaf_of(kv: KvMethod | None, leaves: Sequence[InputLeaf], slots: Sequence[Any]) -> int | None:
    """The leaf of the arguments that holds the positions of a step."""
    if kv is None or kv.position_placeholder is None:
        return None
    found = next(leaf for leaf in leaves if leaf.placeholder == kv.position_placeholder)
    return next(i for i, slot in enumerate(slots) if slot is not NULL_LEAF and slot == found.index)


@dataclass
class InputLeaf:
    """One leaf of the arguments: a tensor (with its fake value) or a constant."""

    index: int
    name: str
    placeholder: str
    is_tensor: bool
    value: Any


def _input_leaves(request: MethodRequest, program: ExportedProgram) -> list[InputLeaf]:
    from torch.export.graph_signature import (
        ConstantArgument,
        InputKind,
        TensorArgument,
    )

    values = {
        node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"
    }
    user = [
        spec.arg
        for spec in program.graph_signature.input_specs
        if spec.kind == InputKind.USER_INPUT
    ]
    names = leaf_names(program.call_spec.in_spec, parameter_names(request))
    if len(names) != len(user):
        raise ExportError(
            f"method {request.name!r}: the trace has {len(user)} inputs for {len(names)} argument "
            f"leaves; expected one each"
        )
    leaves = []
    for index, (name, arg) in enumerate(zip(names, user, strict=True)):
        if isinstance(arg, TensorArgument):
            leaves.append(InputLeaf(index, name, arg.name, True, values[arg.name]))
        elif isinstance(arg, ConstantArgument):
            _check_constant(request.name, name, arg.value)
            leaves.append(InputLeaf(index, name, arg.name, False, arg.value))
        else:
            raise ExportError(
                f"method {request.name!r}, input {name!r}: a dynamic Python number "
                f"({type(arg).__name__}) cannot be an input of a program. Pass a 0-d tensor, or "
                f"leave it out of dynamic_shapes to compile in its value."
            )
    return leaves


def _check_constant(method: str, name: str, value: Any) -> None:
    if value is None or isinstance(value, (bool, int, float, str)):
        return
    raise ExportError(
        f"method {method!r}, input {name!r}: an argument of type {type(value).__name__} cannot be "
        f"recorded; expected a tensor, bool, int, float, str or None. Make it an attribute of the "
        f"module, or pass its parts."
    )


def shape_env_of(program: ExportedProgram) -> Any:
    """Return the ShapeEnv of a traced program, None if all its sizes are static."""
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and hasattr(value, "fake_mode"):
            return value.fake_mode.shape_env
    return None


def unlift(program: ExportedProgram) -> Any:
    """Return the graph with parameters as attributes and mutations as trailing copies."""
    parameters = inspect.signature(program.module).parameters
    with quiet_torch():
        if "check_guards" in parameters:
            module = program.module(check_guards=False)
        else:
            module = program.module()
    graph = module.graph
    for node in list(graph.nodes):  # the guards are in the manifest
        if node.op == "call_module" and node.target == "_guards_fn" and not node.users:
            graph.erase_node(node)
    graph.set_codegen(torch.fx.graph.CodeGen())
    for attribute in ("_in_spec", "_out_spec"):
        if hasattr(module, attribute):
            delattr(module, attribute)
    module._forward_pre_hooks.clear()
    _drop_unread_tensors(module)
    _parameters_as_buffers(module)
    _written_constants_as_buffers(module)
    return module


def _drop_unread_tensors(module: Any) -> None:
    """Forget tensors that the graph does not read: second names of written ones among them."""
    read = set()
    for node in list(module.graph.nodes):
        if node.op == "get_attr" and node.users:
            read.add(str(node.target))
        elif node.op == "get_attr":
            module.graph.erase_node(node)
    for prefix, owner in module.named_modules():
        for name in [*owner._parameters, *owner._buffers]:
            if f"{prefix}.{name}".removeprefix(".") not in read:
                delattr(owner, name)


def _parameters_as_buffers(module: torch.nn.Module) -> None:
    """Let a parameter that forward() writes be state, as a buffer is; torch would return it."""
    buffers: dict[int, torch.Tensor] = {}  # tied ones stay one tensor
    for owner in module.modules():
        for name, value in list(owner._parameters.items()):
            delattr(owner, name)
            if value is not None:
                owner.register_buffer(name, buffers.setdefault(id(value), value.detach()))
            else:
                owner.register_buffer(name, None)


def _written_constants_as_buffers(module: Any) -> None:
    """Let a tensor that forward() writes, and that the model never registered, be state too."""
    for node in module.graph.nodes:
        if node.op != "get_attr":
            continue
        *path, name = str(node.target).split(".")
        owner = module.get_submodule(".".join(path))
        value = getattr(owner, name)
        if isinstance(value, torch.Tensor) and name not in owner._buffers and _is_written(node):
            delattr(owner, name)
            owner.register_buffer(name, value)


def _is_written(node: Any) -> bool:
    """Whether an operator writes what a node, or a view of it, gives."""
    views = [node]
    for view in views:
        for user in view.users:
            schema = getattr(user.target, "_schema", None)
            if schema is None or not user.args or user.args[0] is not view:
                continue
            if schema.is_mutable:
                return True
            alias = schema.arguments[0].alias_info
            if alias is not None or user.target in (
                torch.ops.aten.to.dtype,
                torch.ops.aten.to.dtype_layout,
                torch.ops.aten.to.device,
                torch.ops.aten.reshape.default,
                torch.ops.aten.contiguous.default,
            ):
                views.append(user)
    return False


def _strip_constants(method: str, module: Any, leaves: Sequence[InputLeaf]) -> list[InputLeaf]:
    """Remove the placeholders of constants; return the tensor leaves in graph order."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    if len(placeholders) != len(leaves):
        raise ExportError(
            f"method {method!r}: the flat graph has {len(placeholders)} inputs, expected "
            f"{len(leaves)}"
        )
    kept = []
    for node, leaf in zip(placeholders, leaves, strict=True):
        if leaf.is_tensor:
            kept.append(leaf)
            continue
        if node.users:
            node.replace_all_uses_with(leaf.value)
        module.graph.erase_node(node)
    return kept


def _input_specs(
    leaves: Sequence[InputLeaf],
    slots: Sequence[Any],
    symbols: SymbolTable,
) -> list[dict[str, Any]]:
    from cudaexec.export.manifest import encode_scalar

    specs: list[dict[str, Any]] = []
    graph_input = 0
    for slot in slots:
        if slot is NULL_LEAF:
            specs.append({"name": "", "kind": "constant", "value": None})
            continue
        leaf = leaves[slot]
        if not leaf.is_tensor:
            value = encode_scalar(leaf.value)
            specs.append({"name": leaf.name, "kind": "constant", "value": value})
            continue
        specs.append(
            {
                "name": leaf.name,
                "kind": "tensor",
                "dtype": dtype_name(leaf.value.dtype),
                "shape": symbols.dimensions(leaf.value.shape),
                "strides": symbols.dimensions(leaf.value.stride()),
                "device": leaf.value.device.type,
                "mutated": False,
                "graph_input": graph_input,
            }
        )
        graph_input += 1
    return specs


def _tensors(program: ExportedProgram) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    sources: list[Mapping[str, Any]] = [program.state_dict, program.constants]
    for source in sources:
        for fqn, value in source.items():
            if isinstance(value, torch.Tensor):
                tensors.setdefault(fqn, value)
    return tensors


__all__ = ["LoweredMethod", "MethodRequest", "lower", "shape_env_of", "unlift"]

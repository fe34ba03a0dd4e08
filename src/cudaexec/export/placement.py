"""Where a method's tensors live: a program traced on the CPU is moved to the GPU as a whole.

One that has CUDA tensors already keeps every device it was written with.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map, tree_map_only

from cudaexec.export.cuda_rewrites import rewrite_for_gpu
from cudaexec.export.lower import LoweredMethod
from cudaexec.export.trace import MethodRequest


class StorageMover:
    """Copies tensors to a device, each storage once, so that tied tensors and views stay so."""

    def __init__(self, device: torch.device) -> None:
        """Args: device: where copies live."""
        self._device = device
        # The source is held too, so that no other storage gets its address.
        self._storages: dict[tuple[str, int, int], tuple[Any, torch.Tensor]] = {}

    def move(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the same view of a copy of the tensor's storage, without a gradient."""
        tensor = tensor.detach()
        storage = tensor.untyped_storage()
        key = (str(tensor.device), storage.data_ptr(), storage.nbytes())
        if storage.nbytes() == 0:
            sizes, strides = tensor.shape, tensor.stride()
            return torch.empty_strided(sizes, strides, dtype=tensor.dtype, device=self._device)
        if key not in self._storages:
            flat = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            self._storages[key] = (storage, flat.to(self._device, copy=True))
        moved = torch.empty(0, dtype=tensor.dtype, device=self._device)
        return moved.set_(
            self._storages[key][1].untyped_storage(),
            tensor.storage_offset(),
            tensor.size(),
            tensor.stride(),
        )


def align_examples(request: MethodRequest) -> MethodRequest:
    """Move example inputs to where the model is, so that they may be given on either device."""
    if not isinstance(request.model, torch.nn.Module):
        return request
    tensors = [*request.model.parameters(), *request.model.buffers()]
    devices = {tensor.device for tensor in tensors}
    if not devices:
        devices = {torch.device("cpu")} if _example_devices(request) - {"cuda"} else set()
    if len(devices) != 1:
        return request
    device = devices.pop()

    def move(tensor: torch.Tensor) -> torch.Tensor:
        return tensor if tensor.device == device else StorageMover(device).move(tensor)

    args, kwargs = tree_map_only(torch.Tensor, move, (tuple(request.args), dict(request.kwargs)))
    return MethodRequest(request.name, request.model, args, kwargs, request.dynamic_shapes)


def _example_devices(request: MethodRequest) -> set[str]:
    found: set[str] = set()
    tree_map_only(torch.Tensor, lambda t: found.add(t.device.type), (request.args, request.kwargs))
    return found


class GpuPlacement:
    """Moves the methods of one export to a GPU; what they share is copied once."""

    def __init__(self, index: int) -> None:
        """Args: index: of the GPU that code is generated and tuned on."""
        self._device = torch.device("cuda", index)
        self._to_gpu = StorageMover(self._device)
        self._to_host = StorageMover(torch.device("cpu"))

    def place(self, lowered: LoweredMethod) -> None:
        """Make a lowered method one for the GPU; tensors to be stored come to host memory.

        Changed in place: its graph, examples, tensors, and the devices of its inputs and outputs.
        """
        module = lowered.graph_module
        _own_branches(module)
        lowered.rewrites += rewrite_for_gpu(module)
        if not _uses_cuda(lowered):
            self._move(lowered)
        lowered.tensors = {
            fqn: self._to_host.move(tensor) if tensor.device.type == "cuda" else tensor
            for fqn, tensor in lowered.tensors.items()
        }

    def _move(self, lowered: LoweredMethod) -> None:
        module, device = lowered.graph_module, self._device
        for owner, name, tensor in list(_attributes(module)):
            _replace(owner, name, self._to_gpu.move(tensor))
        for part in module.modules():
            if isinstance(part, torch.fx.GraphModule):
                _rewrite_devices(part, device)
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        lowered.example_inputs = [node.meta["val"] for node in placeholders]
        lowered.graph_inputs = list(lowered.example_inputs)
        lowered.graph_outputs = [_fake_on(value, device) for value in lowered.graph_outputs]
        for spec in (*lowered.inputs, *lowered.outputs):
            if spec["kind"] == "tensor":
                spec["device"] = "cuda"


def _own_branches(module: torch.fx.GraphModule) -> None:
    """Copy the graphs inside a graph, which a caller's ExportedProgram may hold too."""
    for name, child in list(module.named_children()):
        if isinstance(child, torch.fx.GraphModule):
            own = torch.fx.GraphModule(child, copy.deepcopy(child.graph))
            own.meta.update(child.meta)
            setattr(module, name, own)
            _own_branches(own)


def take_output_layouts(lowered: LoweredMethod, values: Sequence[Any]) -> None:
    """Record the strides that the GPU's operators give to results, where the trace had others.

    Args:
        lowered: changed in place.
        values: a fake value per graph output.
    """
    for spec in lowered.outputs:
        if spec["kind"] != "tensor" or spec["graph_output"] >= len(values):
            continue
        value = values[spec["graph_output"]]
        if isinstance(value, torch.Tensor):
            lowered.graph_outputs[spec["graph_output"]] = value
            spec["strides"] = lowered.symbols.dimensions(value.stride())


def _uses_cuda(lowered: LoweredMethod) -> bool:
    tensors = [*lowered.tensors.values(), *lowered.example_inputs]
    if any(isinstance(item, torch.Tensor) and item.device.type == "cuda" for item in tensors):
        return True
    return any(
        isinstance(value, torch.device) and value.type == "cuda"
        for part in lowered.graph_module.modules()
        if isinstance(part, torch.fx.GraphModule)
        for node in part.graph.nodes
        for value in (*node.args, *node.kwargs.values())
    )


def _attributes(module: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, str, torch.Tensor]]:
    """Yield every tensor of a module tree with its owner and name, however it is registered."""
    for part in module.modules():
        for table in (part._parameters, part._buffers, part.__dict__):
            for name, value in table.items():
                if isinstance(value, torch.Tensor):
                    yield part, name, value


def _replace(owner: torch.nn.Module, name: str, moved: torch.Tensor) -> None:
    if name in owner._parameters:
        owner._parameters[name] = torch.nn.Parameter(moved, requires_grad=False)
    elif name in owner._buffers:
        owner._buffers[name] = moved
    else:
        owner.__dict__[name] = moved


def _rewrite_devices(module: torch.fx.GraphModule, device: torch.device) -> None:
    """Replace the CPU by `device` in every call, and name it where a factory leaves it open."""

    def moved(value: Any) -> Any:
        if isinstance(value, torch.device) and value.type == "cpu":
            return device
        return value

    for node in module.graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = tree_map(lambda value: _fake_on(value, device), node.meta["val"])
        if node.op != "call_function":
            continue
        node.args = tree_map(moved, node.args)
        node.kwargs = tree_map(moved, dict(node.kwargs))
        if _is_factory(node) and node.kwargs.get("device") is None:
            node.kwargs = {**node.kwargs, "device": device}
    module.recompile()


def _is_factory(node: Any) -> bool:
    """Whether a call makes a tensor from numbers alone."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not any(argument.name == "device" for argument in schema.arguments):
        return False
    return not any(
        item.op == "get_attr" or isinstance(item.meta.get("val"), torch.Tensor)
        for item in node.all_input_nodes
    )


def _fake_on(value: Any, device: torch.device) -> Any:
    """Return a fake tensor like `value` on another device, with its sizes and strides."""
    if not isinstance(value, FakeTensor):
        return value
    with value.fake_mode:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)

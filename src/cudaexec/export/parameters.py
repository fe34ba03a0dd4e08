"""The parameters of `forward`: those that the example gives, and those that it leaves out."""

from __future__ import annotations

import inspect
from typing import Any

from torch.export import ExportedProgram

from cudaexec.export.manifest import encode_scalar
from cudaexec.export.trace import MethodRequest


def parameter_names(request: MethodRequest) -> list[str]:
    """Return the names of the positional arguments of the example; may be too short."""
    if isinstance(request.model, ExportedProgram):
        signature = request.model.module_call_graph[0].signature
        names = getattr(signature, "forward_arg_names", None)
        return list(names or [])
    parameters = inspect.signature(request.model.forward).parameters.values()
    names = []
    for parameter in parameters:
        if parameter.kind == parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}_{i}" for i in range(len(request.args) - len(names))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return names


def omitted_parameters(request: MethodRequest) -> list[dict[str, Any]]:
    """List the parameters that the example leaves at a default which a manifest can hold."""
    if isinstance(request.model, ExportedProgram):
        return []
    signature = inspect.signature(request.model.forward)
    given = signature.bind(*request.args, **request.kwargs).arguments
    found = []
    for position, parameter in enumerate(signature.parameters.values()):
        value = parameter.default
        scalar = value is None or type(value) in (bool, int, float, str)
        if parameter.name in given or not scalar:
            continue
        by_position = parameter.kind != parameter.KEYWORD_ONLY
        found.append(
            {
                "name": parameter.name,
                "position": position if by_position else None,
                "value": encode_scalar(value),
            }
        )
    return found

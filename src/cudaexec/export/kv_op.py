"""The operator that stands for a KV cache kept by the runtime, as Inductor sees it."""

from __future__ import annotations

from typing import Any, Final

import torch

_LIBRARY = torch.library.Library("cudaexec", "DEF")
# Strides of the operands are the runtime's business: Inductor need not copy them into shape.
_LIBRARY.define(
    "kv_attend(Tensor q, Tensor k, Tensor v, Tensor index, int layer, float scale) -> Tensor",
    tags=(torch.Tag.flexible_layout,),
)


def _fake(q: torch.Tensor, _k: torch.Tensor, v: torch.Tensor, *_: Any) -> torch.Tensor:
    """Return `[batch, heads, tokens, dim]`, with tokens before heads in memory."""
    batch, heads, tokens, _dim = q.shape
    return q.new_empty(batch, tokens, heads, v.shape[3]).transpose(1, 2)


torch.library.register_fake("cudaexec::kv_attend", _fake, lib=_LIBRARY)

KV_ATTEND: Final = torch.ops.cudaexec.kv_attend.default

# The C functions in the runtime, one per device. Inductor declares them by this text.
_PARAMETERS = (
    "AtenTensorHandle q, AtenTensorHandle k, AtenTensorHandle v, AtenTensorHandle index, "
    "int64_t layer, double scale, AtenTensorHandle* ret0"
)
C_DECLARATIONS: Final = tuple(
    f"AOTITorchError aoti_torch_{device}_kv_attend({_PARAMETERS})" for device in ("cpu", "cuda")
)


def inductor_options() -> dict[str, Any]:
    """Return the part of Inductor's configuration that makes it call the C function."""
    return {"aot_inductor.custom_ops_to_c_shims": {KV_ATTEND: list(C_DECLARATIONS)}}


__all__ = ["KV_ATTEND", "inductor_options"]

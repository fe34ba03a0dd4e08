"""Proves by computing them that a method's writes and masks are those of a cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from cudaexec.export.kv_evaluate import PartialRun, concrete_shape
from cudaexec.export.kv_graph import CacheLayer, CacheWrite, NoCacheError

_NUMBER = (torch.int64, torch.int32)


@dataclass(frozen=True)
class Positions:
    """How a method counts tokens.

    Attributes:
        inputs: placeholders that hold the positions of the step's tokens.
        states: FQNs of one-element integer tensors that the method keeps the count in.
    """

    inputs: tuple[fx.Node, ...]
    states: tuple[str, ...]


class CacheProof:
    """The index and mask of every layer of a method, computable for any position."""

    def __init__(
        self, module: Any, layers: Sequence[CacheLayer], widths: Iterable[Mapping[Any, int]]
    ) -> None:
        """Prepare.

        Args:
            module: the flat graph module, with real tensors.
            layers: of the module.
            widths: sizes of symbols to try, {} for the example's.

        Raises:
            NoCacheError: an attention has no mask.
        """
        self._layers = list(layers)
        self._widths = list(widths)
        self._masks = [_mask_of(layer) for layer in layers]
        writes = [write for layer in layers for write in (layer.keys, layer.values)]
        self._indices = list(dict.fromkeys(write.index for write in writes))
        index_run = PartialRun(module, self._indices)
        self._run = PartialRun(module, dict.fromkeys([*self._indices, *self._masks]))
        self.positions = Positions(
            tuple(node for node in index_run.placeholders if _may_be_positions(node, index_run)),
            tuple(name for name in self._run.written if _is_count(module, name)),
        )
        self._others = [
            node for node in self._run.placeholders if node not in self.positions.inputs
        ]
        self.capacity = min(_length(write) for write in writes)

    def windows(self) -> list[int | None]:
        """Return the window of each layer; None where it sees everything before.

        Raises:
            NoCacheError: see `check`.
        """
        found = []
        width = self._width({})
        allowed = self._allowed(self.capacity - width, {}, 0)
        for mask in self._masks:
            seen = int(allowed[mask][-1].sum())
            found.append(None if seen >= self.capacity else seen)
        self.check(found)
        return found

    def check(self, windows: Sequence[int | None]) -> None:
        """Compute indices and masks at many positions and compare them.

        Raises:
            NoCacheError: where they are not a cache's, with the first difference.
        """
        for sizes in self._widths:
            width = self._width(sizes)
            if width > self.capacity:
                raise NoCacheError(f"a step of {width} tokens into {self.capacity}")
            for position in _positions(self.capacity, width, windows):
                for filler in (0, 1):
                    self._check_at(position, sizes, filler, windows)

    def _check_at(
        self, position: int, sizes: Mapping[Any, int], filler: int, windows: Sequence[int | None]
    ) -> None:
        width = self._width(sizes)
        allowed = self._allowed(position, sizes, filler)
        tokens = torch.arange(position, position + width)[:, None]
        keys = torch.arange(self.capacity)[None]
        for number, (mask, window) in enumerate(zip(self._masks, windows, strict=True)):
            expected = keys <= tokens
            if window is not None:
                expected &= keys > tokens - window
            if not torch.equal(allowed[mask], expected):
                what = f"a window of {window} tokens" if window else "causal"
                raise NoCacheError(
                    f"the mask of layer {number} is not {what}: at position {position}, with a "
                    f"step of {width}, {_difference(allowed[mask], expected)}"
                    + (f"{self._hint()}" if self._others else "")
                )

    def _hint(self) -> str:
        names = ", ".join(repr(str(node.target)) for node in self._others)
        return f"; it also depends on {names}, which a cache of the runtime does not look at"

    def _allowed(
        self, position: int, sizes: Mapping[Any, int], filler: int
    ) -> dict[fx.Node, torch.Tensor]:
        """Compute the masks as bool `[width, capacity]`; check the indices on the way."""
        width = self._width(sizes)
        inputs = {node: _positions_input(node, sizes, position) for node in self.positions.inputs}
        for node in self._others:
            inputs[node] = _full(node.meta["val"], sizes, filler)
        states = dict.fromkeys(self.positions.states, position)
        try:
            values, after = self._run(inputs, _counts(self._run, states))
        except Exception as error:
            raise NoCacheError(
                f"its mask cannot be computed: {type(error).__name__}: {error}"
            ) from error
        expected = torch.arange(position, position + width)
        for index in self._indices:
            if not torch.equal(values[index].cpu().long(), expected):
                raise NoCacheError(
                    f"at position {position} it is written at "
                    f"{values[index].tolist()[:4]}..., expected {expected.tolist()[:4]}..."
                )
        for name in states:
            count = int(after[name])
            if count not in (position, position + width):
                raise NoCacheError(f"{name!r} counts {count} tokens after {position} + {width}")
        return {mask: self._as_bool(values[mask], width) for mask in self._masks}

    def _as_bool(self, mask: torch.Tensor, width: int) -> torch.Tensor:
        if mask.dtype is not torch.bool:
            lowest = torch.finfo(mask.dtype).min / 2
            if not ((mask == 0) | (mask <= lowest)).all():
                raise NoCacheError("the mask adds other numbers than 0 and -inf (a bias?)")
            mask = mask == 0
        if mask.shape[-1] < self.capacity or mask.shape[-2] not in (1, width):
            raise NoCacheError(f"the mask is {list(mask.shape)} for {width} tokens")
        flat = mask[..., : self.capacity].expand(*mask.shape[:-2], width, self.capacity).cpu()
        flat = flat.reshape(-1, width, self.capacity)
        if not (flat == flat[:1]).all():
            raise NoCacheError("the mask differs between sequences or heads")
        return flat[0]

    def _width(self, sizes: Mapping[Any, int]) -> int:
        return concrete_shape(self._indices[0].meta["val"], sizes)[0]


def _mask_of(layer: CacheLayer) -> fx.Node:
    mask = layer.mask
    if mask is None:
        raise NoCacheError("its attention has no mask and reads tokens that are not there yet")
    return mask


def _length(write: CacheWrite) -> int:
    return int(write.buffer.meta["val"].shape[write.dim])


def _may_be_positions(node: fx.Node, run: PartialRun) -> bool:
    value = node.meta["val"]
    return (
        isinstance(value, torch.Tensor)
        and value.dtype in _NUMBER
        and value.dim() <= 1
        and run.uses_value_of(node)
    )


def _is_count(module: Any, name: str) -> bool:
    owner = module
    for part in name.split("."):
        owner = getattr(owner, part)
    return owner.dtype in _NUMBER and owner.numel() == 1


def _positions(capacity: int, width: int, windows: Sequence[int | None]) -> list[int]:
    """Return positions that tell masks apart: the ends, the middle, around each window."""
    last = capacity - width
    tried = {0, 1, 2, last // 2, last - 1, last}
    for window in windows:
        if window is not None:
            tried |= {window - width, window - 1, window, window + 1}
    return sorted(position for position in tried if 0 <= position <= last)


def _positions_input(node: fx.Node, sizes: Mapping[Any, int], position: int) -> torch.Tensor:
    value = node.meta["val"]
    shape = concrete_shape(value, sizes)
    return (
        torch.arange(shape[0] if shape else 1, dtype=value.dtype)
        .reshape(shape)
        .add(position)
        .to(value.device)
    )


def _full(value: torch.Tensor, sizes: Mapping[Any, int], filler: int) -> torch.Tensor:
    shape = concrete_shape(value, sizes)
    return torch.full(shape, filler, dtype=value.dtype, device=value.device)


def _counts(run: PartialRun, states: Mapping[str, int]) -> dict[str, torch.Tensor]:
    return {name: torch.full_like(run.tensor(name), count) for name, count in states.items()}


def _difference(found: torch.Tensor, expected: torch.Tensor) -> str:
    token, key = (int(item) for item in (found != expected).nonzero()[0])
    sees = "sees" if found[token, key] else "does not see"
    return f"token {token} of the step {sees} position {key}"


__all__ = ["CacheProof", "Positions"]

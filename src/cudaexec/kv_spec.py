"""What a user says about a decoder's KV cache; needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Flat", "KvCacheSpec", "Ring"]

# Manifest names of the storage dtypes, by every name that users know them under.
STORAGE_DTYPES = {
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float8_e4m3fn": "float8_e4m3fn",
}


@dataclass(frozen=True)
class Flat:
    """A layer that keeps every token.

    Attributes:
        max_len: most tokens of a session; None for the size of the model's own buffer.
    """

    max_len: int | None = None

    def __post_init__(self) -> None:
        """Raise ValueError unless max_len is None or a positive int."""
        if self.max_len is not None:
            _check_positive("Flat.max_len", self.max_len)


@dataclass(frozen=True)
class Ring:
    """A sliding-window layer: a token attends itself and the `window - 1` tokens before it."""

    window: int

    def __post_init__(self) -> None:
        """Raise ValueError unless window is a positive int."""
        _check_positive("Ring.window", self.window)


@dataclass(frozen=True, kw_only=True)
class KvCacheSpec:
    """Buffers that export takes out of the program: the runtime keeps them, and grows them.

    Attributes:
        buffers: (FQN of the keys, FQN of the values) of each layer; layer i is entry i. Sizes are
            `[batch, heads, tokens, head_dim]`, with `sequence_dim=1` `[batch, tokens, heads,
            head_dim]`.
        sequence_dim: which dimension counts tokens: 2 or 1.
        position: name of the input that holds the positions of the step's tokens (int64,
            `[tokens]`); None: found by what the writes to the buffers are indexed with.
        layers: what each layer keeps; layers left out are `Flat()`.
        dtype: storage dtype: "float32", "float16", "bfloat16" or "float8_e4m3fn", or torch's; None
            for the buffers' own. Attention computes in float32 whatever it is.
        report: what `discover` found, one line each.
    """

    buffers: Sequence[tuple[str, str]]
    sequence_dim: int = 2
    position: str | None = None
    layers: Mapping[int, Flat | Ring] = field(default_factory=dict)
    dtype: Any = None
    report: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError, TypeError: what is wrong with which field.
        """
        pairs = tuple(_names(pair) for pair in _entries(self.buffers))
        if not pairs or any(len(pair) != 2 for pair in pairs):
            raise ValueError(
                "KvCacheSpec.buffers: expected one (keys, values) pair of buffer names per layer, "
                f"got {self.buffers!r}"
            )
        names = [name for pair in pairs for name in pair]
        if len(set(names)) != len(names):
            raise ValueError("KvCacheSpec.buffers: a buffer is named twice; each has one job")
        if isinstance(self.sequence_dim, bool) or self.sequence_dim not in (1, 2):
            raise ValueError(
                f"KvCacheSpec.sequence_dim: expected 1 or 2, got {self.sequence_dim!r}"
            )
        object.__setattr__(self, "sequence_dim", int(self.sequence_dim))
        if self.position is not None and not isinstance(self.position, str):
            raise TypeError(
                f"KvCacheSpec.position: expected None or the name of an input, got "
                f"{type(self.position).__name__}"
            )
        if not isinstance(self.layers, Mapping):
            raise TypeError(
                f"KvCacheSpec.layers: expected a dict of layer numbers to Flat or Ring, got "
                f"{type(self.layers).__name__}"
            )
        for layer, policy in self.layers.items():
            if layer not in range(len(pairs)):
                raise ValueError(
                    f"KvCacheSpec.layers: layer {layer!r}; expected 0 to {len(pairs) - 1}"
                )
            if not isinstance(policy, (Flat, Ring)):
                raise TypeError(f"KvCacheSpec.layers[{layer}]: expected Flat or Ring")
        object.__setattr__(self, "buffers", pairs)
        object.__setattr__(self, "layers", dict(self.layers))
        if self.dtype is not None:
            object.__setattr__(self, "dtype", storage_dtype(self.dtype))

    @staticmethod
    def discover(program: Any) -> KvCacheSpec:
        """Find the cache of a decoder by its graph.

        Found are buffers that the program writes with `index_copy_` or an indexed assignment along
        the tokens, at positions that follow each other, and reads with one
        `scaled_dot_product_attention` under a causal or sliding-window mask: `transformers`'
        StaticCache (with `attn_implementation="sdpa"`), and caches written by hand the same way.

        Args:
            program: a `torch.export.ExportedProgram`.

        Returns:
            The spec; its `report` says what was found, and what looked like a cache but is not.

        Raises:
            ExportError: no layer was found; the message says why for each candidate.
            TypeError: not an ExportedProgram.
        """
        from cudaexec.export.kv_discover import discover

        return discover(program)


def storage_dtype(dtype: Any) -> str:
    """Return the name of a storage dtype, given by name or as torch's. Raises ValueError."""
    name = str(dtype).removeprefix("torch.")
    if name not in STORAGE_DTYPES:
        raise ValueError(
            f"KvCacheSpec.dtype: expected one of {', '.join(STORAGE_DTYPES)}, got {dtype!r}"
        )
    return STORAGE_DTYPES[name]


def _entries(buffers: Any) -> tuple[Any, ...]:
    """What is in a list or the like; nothing for a str and other objects."""
    return tuple(buffers) if isinstance(buffers, Sequence) and not isinstance(buffers, str) else ()


def _names(pair: Any) -> tuple[str, ...]:
    """Names in a pair; nothing if anything else is in it."""
    names = _entries(pair)
    return names if all(isinstance(name, str) for name in names) else ()


def _check_positive(what: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{what}: expected a positive int, got {value!r}")

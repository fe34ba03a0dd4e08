"""Options of `cudaexec.load`: frozen, and unknown names raise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import index
from typing import SupportsIndex

__all__ = ["GraphOptions", "LoadOptions"]


@dataclass(frozen=True, kw_only=True)
class GraphOptions:
    """How calls become CUDA graphs (`load(cuda_graph=...)`).

    A *signature* is the shapes, strides, alignment (up to 16 bytes) and places of a call's inputs.
    Each has a graph of its own in each container: one per session of a method with state, one per
    call in flight of any other. Each `Binding` has one more.

    While a call is captured, `torch.cuda.synchronize()` in another thread raises there and breaks
    the capture: that call runs without a graph, later ones try again. Captures happen for new
    signatures, sessions and containers, after `trim()` and `load_weights()`, and with `in_place`
    in the midst of replays.

    Attributes:
        methods: names of the methods that get graphs; None for all.
        warmup: calls of a signature that run without a graph before the next one is captured.
        max_graphs: signatures, Bindings among them, that a container remembers; the least recently
            used is given up for a new one, with its graph. If calls take turns over more than that,
            none of them lasts until it is captured.
        strict: raise InputError for a second signature of a method, naming the input and what
            differs, instead of giving it a graph of its own. Bindings are not counted.
        in_place: capture calls of few kernels once more when tensors on the GPU have been at the
            same addresses in 16 replays, inputs and outputs: those calls then read and write there
            without copies, some microseconds faster. Up to four such graphs per signature; the 16
            doubles whenever one has to make room. The call that captures takes as long as the one
            that made the graph. Outputs are fresh memory as before: they come back to the same
            addresses where results are dropped before the next call, or take turns.
    """

    methods: frozenset[str] | None = None
    warmup: int = 3
    max_graphs: int = 8
    strict: bool = False
    in_place: bool = True

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            TypeError: a value of the wrong kind.
            ValueError: no warm-up run (the first run of a program cannot be captured), no graph, or
                an empty set of methods.
        """
        if self.methods is not None:
            is_set = isinstance(self.methods, Iterable) and not isinstance(self.methods, str)
            names = frozenset(self.methods if is_set else (None,))
            if not all(isinstance(name, str) for name in names):
                raise TypeError(
                    f"GraphOptions.methods: expected None or a set of method names, got "
                    f"{self.methods!r}"
                )
            object.__setattr__(self, "methods", names)
            if not self.methods:
                raise ValueError("GraphOptions.methods: expected names or None, got none at all")
        for name in ("warmup", "max_graphs"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, SupportsIndex):
                raise TypeError(f"GraphOptions.{name}: expected an int, got {type(value).__name__}")
            if not 1 <= index(value) < 1 << 20:
                raise ValueError(
                    f"GraphOptions.{name}: expected an int from 1 to {(1 << 20) - 1}, got {value}"
                )
            object.__setattr__(self, name, index(value))
        for name in ("strict", "in_place"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(
                    f"GraphOptions.{name}: expected a bool, got "
                    f"{type(getattr(self, name)).__name__}"
                )


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How a program is loaded.

    Attributes:
        threads: CPU threads that one call may use; None for all CPUs that the process may use.
        verify: compare the digests of code and weights with the files' own record. Without it,
            damaged weights are not noticed.
        memory_limit: bytes of working memory that the module may hold: outputs that are alive,
            intermediates, scratch of operators and copies of inputs, of all calls in flight, and
            freed blocks kept for later calls (those are given back before a call fails); None for
            no limit. Beyond it, calls raise OutOfMemory. Weights, their packed forms, state and
            code are not counted.
        isa: force a CPU code variant, such as ``"x86-64-v3"``; None for the best that the machine
            runs.
    """

    threads: int | None = None
    verify: bool = True
    memory_limit: int | None = None
    isa: str | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            TypeError: a value of the wrong kind.
            ValueError: a number of threads or a memory limit that is too small or too large.
        """
        self._check_number("threads", self.threads, 2**31 - 1)
        self._check_number("memory_limit", self.memory_limit, 2**63 - 1)
        if not isinstance(self.verify, bool):
            raise TypeError(
                f"LoadOptions.verify: expected a bool, got {type(self.verify).__name__}"
            )
        if self.isa is not None and not isinstance(self.isa, str):
            raise TypeError(
                f"LoadOptions.isa: expected None or a str, got {type(self.isa).__name__}"
            )

    def _check_number(self, name: str, value: object, highest: int) -> None:
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, SupportsIndex):
            raise TypeError(
                f"LoadOptions.{name}: expected None or an int, got {type(value).__name__}"
            )
        if not 1 <= index(value) <= highest:
            raise ValueError(
                f"LoadOptions.{name}: expected None or an int from 1 to {highest}, got {value}"
            )
        object.__setattr__(self, name, index(value))

"""Descriptions of the inputs and outputs of a method."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TensorSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One flat input or output of a method, in the order of its structure.

    Attributes:
        name: how a caller reaches it: ``x``, ``cache[0]``; outputs: ``output``, ``output['a']``.
        kind: ``"tensor"``; for inputs also ``"constant"`` (compiled in, no other value is taken);
            for outputs also ``"constant"``, ``"int"``, ``"float"``, ``"bool"`` (computed),
            ``"expression"`` (an int that follows from the sizes of the inputs).
        dtype: element type by name, such as ``"float32"``; None if it is no tensor.
        shape: sizes; those that vary are names of symbols or expressions over them, as text.
        strides: in elements, in the same form.
        min_shape: smallest sizes; None where they follow from an expression.
        max_shape: largest sizes; None where they have no bound or follow from an expression.
        device: ``"cpu"`` or ``"cuda"``; None if it is no tensor.
        value: of a constant; the text of an expression; else None.
    """

    name: str
    kind: str
    dtype: str | None = None
    shape: tuple[int | str, ...] = ()
    strides: tuple[int | str, ...] = ()
    min_shape: tuple[int | None, ...] = ()
    max_shape: tuple[int | None, ...] = ()
    device: str | None = None
    value: bool | int | float | str | None = None

"""The stand-in for classes that are not loaded where a program runs."""

from __future__ import annotations

from typing import Any

__all__ = ["AttrDict"]


class AttrDict(dict[Any, Any]):
    """A dict whose keys are attributes too, and whose values can be taken by position.

    A method returns one in place of a named tuple, dataclass or model output whose class is not
    loaded in this process (nothing is imported because a file names it). ``out.loss``,
    ``out["loss"]`` and ``out[0]`` are the same value; iterating gives the keys, as for any dict.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(
                f"{type(self).__name__} has no field {name!r}; it has {list(self)}"
            ) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}") from None

    def __missing__(self, key: object) -> Any:
        if isinstance(key, int) and not isinstance(key, bool) and -len(self) <= key < len(self):
            return list(self.values())[key]
        raise KeyError(key)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(key for key in self if isinstance(key, str))]

    def __repr__(self) -> str:
        fields = ", ".join(f"{key}={value!r}" for key, value in self.items())
        return f"{type(self).__name__}({fields})"

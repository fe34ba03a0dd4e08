"""Accuracy and special values of the vector functions that generated code calls.

Errors are in units in the last place (ULP) of the result's dtype, against float64 for float32 and
against x87 long double, where numpy has the function, or libm for float64.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cudaexec import _core

sleef = _core._ops_misc.sleef

LEVELS = ["avx2", "avx512"] if "avx512dq" in Path("/proc/cpuinfo").read_text() else ["avx2"]
LIMIT = 4.0  # ULP; docs/accuracy.md has what each function reaches

_libm = ctypes.CDLL(ctypes.util.find_library("m"))


def libm(name: str, count: int) -> Callable[..., np.ndarray]:
    """libm's double function on arrays."""
    function = getattr(_libm, name)
    function.restype = ctypes.c_double
    function.argtypes = [ctypes.c_double] * count
    return np.vectorize(function, otypes=[np.float64])


# name: suffix, long double reference (None: libm), ranges of operands
UNARY = {
    "acos": ("_u10", np.arccos, [(-1, 1)]),
    "acosh": ("_u10", np.arccosh, [(1, 2), (1, 1e6)]),
    "asin": ("_u10", np.arcsin, [(-1, 1)]),
    "asinh": ("_u10", np.arcsinh, [(-1, 1), (-1e6, 1e6)]),
    "atan": ("_u10", np.arctan, [(-1, 1), (-100, 100)]),
    "atanh": ("_u10", np.arctanh, [(-1, 1)]),
    "cos": ("_u10", np.cos, [(-3, 3), (-1000, 1000)]),
    "cosh": ("_u10", np.cosh, [(-1, 1), (-80, 80)]),
    "erf": ("_u10", None, [(-1, 1), (-6, 6)]),
    "erfc": ("_u15", None, [(-1, 1), (-9, 9)]),
    "exp": ("_u10", np.exp, [(-1, 1), (-80, 80)]),
    "exp2": ("_u10", np.exp2, [(-1, 1), (-120, 120)]),
    "expm1": ("_u10", np.expm1, [(-1, 1), (-80, 80)]),
    "log": ("_u10", np.log, [(0.5, 2), (0, 1e6)]),
    "log10": ("_u10", np.log10, [(0.5, 2), (0, 1e6)]),
    "log1p": ("_u10", np.log1p, [(-1, 1), (-1, 1e6)]),
    "log2": ("_u10", np.log2, [(0.5, 2), (0, 1e6)]),
    "lgamma": ("_u10", None, [(0.1, 5), (-20, 100)]),
    "sin": ("_u10", np.sin, [(-3, 3), (-1000, 1000)]),
    "sinh": ("_u10", np.sinh, [(-1, 1), (-80, 80)]),
    "tan": ("_u10", np.tan, [(-1.5, 1.5), (-1000, 1000)]),
    "tanh": ("_u10", np.tanh, [(-1, 1), (-20, 20)]),
}
BINARY = {
    "atan2": ("_u10", np.arctan2, [(-1, 1), (-100, 100)]),
    "hypot": ("_u05", np.hypot, [(-1, 1), (-1e6, 1e6)]),
    "pow": ("_u10", np.power, [(0, 3), (0, 60)]),
}
EXACT = {"copysign": np.copysign, "nextafter": np.nextafter, "fmod": np.fmod}
SPECIAL = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.5, 3.0, 1e-3, 88.9, -87.5, -104.0, 710.0, -745.5,
    1e30, -1e30, 1e-30, math.inf, -math.inf, math.nan, 127.9, 1023.9, -149.5, 9.5, 27.3,
]  # fmt: skip


def run(level: str, name: str, x: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
    out = np.empty_like(x)
    sleef(level, name, np.ascontiguousarray(x), None if y is None else np.ascontiguousarray(y), out)
    return out


def reference(name: str, function: Callable | None, *operands: np.ndarray) -> np.ndarray:
    """The exact result, or nearly: in long double for numpy's functions, else libm's double."""
    with np.errstate(all="ignore"):
        if function is None:
            return libm(name, len(operands))(*(o.astype(np.float64) for o in operands))
        wide = np.float64 if operands[0].dtype == np.float32 else np.longdouble
        return function(*(o.astype(wide) for o in operands))


def max_ulp(ours: np.ndarray, exact: np.ndarray) -> float:
    """The largest error; NaN, infinities and signs of zeros have to agree."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(ours.dtype)
    assert np.array_equal(np.isnan(ours), np.isnan(rounded))
    finite = np.isfinite(rounded)
    infinite = np.isinf(rounded)
    assert np.array_equal(ours[infinite], rounded[infinite])
    zero = finite & (rounded == 0) & (ours == 0)
    assert np.array_equal(np.signbit(ours[zero]), np.signbit(rounded[zero]))
    step = np.spacing(np.abs(rounded[finite])).astype(exact.dtype)
    difference = np.abs(ours[finite].astype(exact.dtype) - exact[finite])
    wrong = ours[finite] != rounded[finite]
    return float(np.max(difference / step, where=wrong, initial=0.0))


def operands(dtype: type, limits: tuple[float, float], seed: int, count: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return generator.uniform(*limits, count).astype(dtype)


def any_bits(dtype: type, seed: int, count: int) -> np.ndarray:
    """Every kind of value: denormals, NaN, the whole range of exponents."""
    bits = np.random.default_rng(seed).integers(0, 256, count * np.dtype(dtype).itemsize, np.uint8)
    return bits.view(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, level: str, dtype: type) -> None:
    suffix, function, ranges = UNARY[name]
    count = 20_000 if function is not None else 5_000
    inputs = [operands(dtype, limits, i, count) for i, limits in enumerate(ranges)]
    inputs += [any_bits(dtype, 7, count), np.array(SPECIAL, dtype)]
    for x in inputs:
        ours = run(level, name + suffix, x)
        assert max_ulp(ours, reference(name, function, x)) <= LIMIT


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, level: str, dtype: type) -> None:
    suffix, function, ranges = BINARY[name]
    pairs = [
        (operands(dtype, limits, i, 20_000), operands(dtype, (-9, 9), 50 + i, 20_000))
        for i, limits in enumerate(ranges)
    ]
    pairs.append((any_bits(dtype, 8, 20_000), any_bits(dtype, 9, 20_000)))
    grid = np.meshgrid(np.array(SPECIAL, dtype), np.array(SPECIAL, dtype))
    pairs.append((grid[0].ravel(), grid[1].ravel()))
    for x, y in pairs:
        ours = run(level, name + suffix, x, y)
        assert max_ulp(ours, reference(name, function, x, y)) <= LIMIT


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", EXACT)
def test_exact(name: str, level: str, dtype: type) -> None:
    grid = np.meshgrid(np.array(SPECIAL, dtype), np.array(SPECIAL, dtype))
    wide = 10.0 ** np.random.default_rng(1).uniform(-30, 30, (2, 20_000))
    whole = np.random.default_rng(2).integers(-99, 99, (2, 20_000))
    for x, y in (
        (any_bits(dtype, 1, 20_000), any_bits(dtype, 2, 20_000)),
        (grid[0].ravel(), grid[1].ravel()),
        (wide[0].astype(dtype), wide[1].astype(dtype)),
        (whole[0].astype(dtype), whole[1].astype(dtype)),
        (any_bits(dtype, 3, 20_000), any_bits(dtype, 3, 20_000)),
    ):
        with np.errstate(all="ignore"):
            expected = EXACT[name](x, y)
        ours = run(level, name, x, y)
        assert np.array_equal(ours, expected, equal_nan=True)
        known = ~np.isnan(expected)
        assert np.array_equal(np.signbit(ours[known]), np.signbit(expected[known]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("level", LEVELS)
def test_other_names_of_sine_and_cosine(level: str, dtype: type) -> None:
    x = operands(dtype, (-100, 100), 1, 10_001)
    sine, cosine = run(level, "sin_u10", x), run(level, "cos_u10", x)
    assert np.array_equal(run(level, "sincos_u10.x", x), sine)
    assert np.array_equal(run(level, "sincos_u10.y", x), cosine)
    if dtype == np.float32:
        assert np.array_equal(run(level, "sin_u35", x), sine)
        assert np.array_equal(run(level, "cos_u35", x), cosine)


def test_every_name_of_torchs_headers_is_there() -> None:
    """What Inductor's vector code may call, by torch's own headers, at both levels."""
    torch = pytest.importorskip("torch")
    from shim_call import library

    headers = Path(torch.__file__).parent / "include/ATen/cpu/vec"
    names = set()
    for level in ("vec256", "vec512"):
        for header in (headers / level).glob("*.h"):
            names |= set(re.findall(r"Sleef_\w+?(?:f8|d4|f16|d8)(?:_\w+)?\b", header.read_text()))
    assert len(names) >= 120
    missing = [name for name in sorted(names) if not hasattr(library(), name)]
    assert missing == []

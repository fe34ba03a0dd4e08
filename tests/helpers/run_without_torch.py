"""Runs the calls of a pickle in a process where torch cannot be imported."""

import pickle
import sys
from pathlib import Path

sys.modules["torch"] = None  # type: ignore[assignment]

import numpy as np  # noqa: E402


def decode(value: object) -> object:
    if isinstance(value, tuple) and len(value) == 2 and value[0] == "bfloat16":
        import ml_dtypes

        return value[1].view(ml_dtypes.bfloat16)
    return value


def leaves(value: object) -> list:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def main() -> None:
    import cudaexec

    path, calls, rtol, atol = pickle.loads(Path(sys.argv[1]).read_bytes())
    module = cudaexec.load(path)
    for args, kwargs, expected in calls:
        got = leaves(module(*map(decode, args), **{k: decode(v) for k, v in kwargs.items()}))
        assert len(got) == len(expected), (len(got), len(expected))
        for a, b in zip(got, map(decode, expected), strict=True):
            if isinstance(b, np.ndarray):
                assert isinstance(a, np.ndarray), type(a)
                assert a.dtype == b.dtype, (a.dtype, b.dtype)
                assert a.shape == b.shape, (a.shape, b.shape)
                wide = np.float64 if b.dtype.kind not in "iub" else b.dtype
                np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=rtol, atol=atol)
            else:
                assert type(a) is type(b) and a == b, (a, b)
    module.close()
    assert sys.modules["torch"] is None


if __name__ == "__main__":
    main()

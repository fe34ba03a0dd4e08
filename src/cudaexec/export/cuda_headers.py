"""Where the CUDA headers are that generated code includes; no toolkit needs to be installed."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from cudaexec.export.errors import ExportError

_NEEDED = ("cuda.h", "cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h")


def cuda_include_dir(inductor_dirs: Sequence[str]) -> str:
    """Return the first directory that has the headers.

    Searched in order: what Inductor found, `$CUDA_HOME` and `$CUDA_PATH`, NVIDIA's wheels, Triton's
    own copy, /usr/local/cuda.

    Raises:
        ExportError: there is none.
    """
    tried = []
    for directory in _candidates(inductor_dirs):
        if all((directory / name).is_file() for name in _NEEDED):
            return str(directory)
        tried.append(str(directory))
    raise ExportError(
        f"no CUDA headers ({', '.join(_NEEDED)}) in {', '.join(tried) or 'any known place'}; "
        f"they come with triton, with nvidia-cuda-runtime, or with the CUDA toolkit ($CUDA_HOME)"
    )


def _candidates(inductor_dirs: Sequence[str]) -> Iterator[Path]:
    for path in inductor_dirs:
        if "torch" not in Path(path).parts:
            yield Path(path)
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield Path(os.environ[name]) / "include"
    for package, below in (("nvidia", "cu13/include"), ("triton", "backends/nvidia/include")):
        spec = importlib.util.find_spec(package)
        for place in spec.submodule_search_locations or () if spec is not None else ():
            yield Path(place) / below
    yield Path("/usr/local/cuda/include")

"""Opens a .pte and a .ptd with ExecuTorch's own deserialisers and prints what it found as JSON.

Runs in an interpreter that has `executorch` (installed without its dependencies), `flatbuffers`,
`ruamel.yaml` and `tabulate`, but no torch: modules that only mention torch get an empty stand-in.
Usage: python et_reader.py model.pte [model.ptd]
"""

import dataclasses
import enum
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
import types
from pathlib import Path


class _Stub(types.ModuleType):
    """A module whose every attribute is a class, so that annotations and base classes work."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = type(name, (), {})
        setattr(self, name, value)
        return value


class _StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname, path=None, target=None):
        if fullname.split(".")[0] == "torch":
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Stub(spec.name)

    def exec_module(self, module):
        pass


def _bare_package(name):
    """Makes `name` importable without running its __init__ (which imports all of the exporter)."""
    root = Path(importlib.util.find_spec("executorch").submodule_search_locations[0])
    module = types.ModuleType(name)
    module.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
    sys.modules[name] = module


def _plain(value):
    if dataclasses.is_dataclass(value):
        fields = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return {"nbytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    return value


def main():
    sys.meta_path.insert(0, _StubFinder())
    _bare_package("executorch.exir")
    _bare_package("executorch.extension")
    stub = _Stub("executorch.exir.tensor")
    stub.ALIGNMENT = 16
    sys.modules["executorch.exir.tensor"] = stub
    from executorch.exir._serialize._cord import Cord
    from executorch.exir._serialize._program import deserialize_pte_binary

    pte = deserialize_pte_binary(Path(sys.argv[1]).read_bytes())
    result = {"program": _plain(pte.program), "named_data": {}, "ptd": None}
    if pte.named_data is not None:
        result["named_data"] = {
            key: _plain(pte.named_data.buffers[entry.buffer_index])
            for key, entry in pte.named_data.pte_data.items()
        }
    if len(sys.argv) > 2:
        from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

        payload = FlatTensorSerializer().deserialize(Cord(Path(sys.argv[2]).read_bytes()))
        result["ptd"] = {
            key: _plain(payload.buffers[entry.buffer_index])
            for key, entry in payload.named_data.items()
        }
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()

"""A shim's work recorded into a graph of the fake driver."""

from __future__ import annotations

import ctypes
from typing import Any

from cuda_fake.fake import CAPTURE_THREAD_LOCAL, FakeDriver
from cuda_ops.device_call import DeviceCall, cuda


class Captured:
    """Calls the shim in a capture; launches of the graph repeat its work. Raises what it raised."""

    def __init__(self, fake: FakeDriver, call: DeviceCall) -> None:
        self.fake, self.world = fake, call.world
        stream, graph = self.world.stream, ctypes.c_uint64()

        def body() -> None:
            fake.call("cuStreamBeginCapture", stream, ctypes.c_uint(CAPTURE_THREAD_LOCAL))
            try:
                call.enqueue()
            finally:
                getattr(fake.lib, "cuStreamEndCapture")(  # noqa: B009
                    ctypes.c_uint64(stream), ctypes.byref(graph)
                )
                self.graph = graph.value

        self.graph = self.execution = 0
        try:
            self.inside(body)
            self.inside(self._instantiate)
        except BaseException:
            self.close()
            raise

    def _instantiate(self) -> None:
        self.execution = self.fake.make("cuGraphInstantiateWithFlags", self.graph, 0)

    def inside(self, body: Any) -> None:
        """Calls body() with the device current."""
        cuda.guarded(self.world.index, body)

    def launch(self) -> None:
        self.inside(lambda: self.fake.call("cuGraphLaunch", self.execution, self.world.stream))

    def close(self) -> None:
        if self.execution:
            self.inside(lambda: self.fake.call("cuGraphExecDestroy", self.execution))
        if self.graph:
            self.inside(lambda: self.fake.call("cuGraphDestroy", self.graph))
        self.execution = self.graph = 0

    def __enter__(self) -> Captured:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""Each operation is made to fail in turn: one typed error, nothing left, the next time works."""

from __future__ import annotations

import os
from collections.abc import Callable

from libraries import floats, mappings, needs_compiler, testing, unpack
from test_container import SCALE, WEIGHT, mode

import cudaexec

SITES = ["allocate", "file", "dlopen", "shim", "container"]
pytestmark = needs_compiler


def each_failure(work: Callable[[], None]) -> int:
    """Run `work` with the k-th operation failing, for every k; return how many there were."""
    work()
    before = testing.live_counts()
    descriptors = os.listdir("/proc/self/fd")  # noqa: PTH208
    k = 0
    while True:
        k += 1
        testing.arm_fault(SITES, k)
        try:
            work()
        except cudaexec.Error as error:
            assert "injected fault" in str(error), (k, error)
        else:
            testing.disarm_fault()
            return k - 1
        finally:
            testing.disarm_fault()
        assert testing.live_counts() == before, k
        assert os.listdir("/proc/self/fd") == descriptors, k  # noqa: PTH208
        assert not mappings(), k
        work()


def test_open_create_bind_run(fake_model: bytes) -> None:
    def work() -> None:
        model = testing.Container(testing.open_library(fake_model))
        model.bind({"fc_weight": floats(3.0)})
        assert unpack(model.run([floats(1.0, 2.0), mode(WEIGHT)])[0]) == [3.0, 6.0]

    # memfd, write, dlopen; create, two counts, constants; bind and its handle; inputs; the run and its shims
    assert each_failure(work) > 15


def test_run_alone(old_model: bytes) -> None:
    model = testing.Container(testing.open_library(old_model))
    output = []

    def work() -> None:
        output[:] = model.run([floats(1.0), mode(SCALE)])
        assert unpack(output[0]) == [3.0]

    before = testing.live_counts()
    failures = 0
    while True:
        testing.arm_fault(SITES, failures + 1)
        try:
            work()
            break
        except cudaexec.Error as error:
            assert "injected fault" in str(error)
            failures += 1
        finally:
            testing.disarm_fault()
        assert testing.live_counts() == before
    assert failures >= 8

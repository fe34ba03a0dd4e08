"""Failures of destructors become warnings of a later call."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import cudaexec
from binding.echo_methods import manifest, tensor
from cuda_fake import fake as fakes
from cuda_fake.fake import FakeDriver
from cudaexec._core import _testing

cuda = _testing.cuda
A = np.ones((2, 3), np.float32)
# Calls whose failure loses nothing for good, as that of a release would.
ENTRIES = [
    "cuEventRecord", "cuStreamWaitEvent", "cuMemAllocFromPoolAsync", "cuMemcpyDtoDAsync",
    "cuMemcpyDtoHAsync", "cuPointerGetAttributes", "cuStreamSynchronize",
]  # fmt: skip


def test_a_failed_release_is_a_warning(fake: FakeDriver) -> None:
    method = cuda.echo_method(manifest([tensor("x")]))
    stream = cuda.Stream(0)
    x = cuda.tensor_on(A)
    capsule = x.__dlpack__(stream=stream.handle)
    with fake.failing("cuStreamWaitEvent", 1, fakes.INVALID_HANDLE) as hits:
        del capsule
    assert hits == [1]
    with pytest.warns(cudaexec.CudaexecWarning, match="ordering the release .* failed: .*400"):
        y = method(A)
    assert y.tolist() == A.tolist()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        method(A)
    assert seen == []
    del x, stream


def test_warnings_as_errors_end_the_call(fake: FakeDriver) -> None:
    method = cuda.echo_method(manifest([tensor("x")]))
    stream = cuda.Stream(0)
    x = cuda.tensor_on(A)
    capsule = x.__dlpack__(stream=stream.handle)
    with fake.failing("cuEventRecord", 1, fakes.INVALID_HANDLE):
        del capsule
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(cudaexec.CudaexecWarning, match="ordering the release"):
            method(A)
    assert method(A).tolist() == A.tolist()
    del x, stream


@pytest.mark.parametrize("entry", ["cuEventCreate", "cuEventRecord"])
def test_inputs_that_cannot_be_held_are_waited_for(fake: FakeDriver, entry: str) -> None:
    from cuda_fake.foreign import CudaArray, Memory, waits

    method = cuda.echo_method(manifest([tensor("x")]))
    memory = Memory(A)
    cuda.synchronize(0, 1)
    method(A)
    fake.clear_calls()
    with fake.failing(entry, 1, fakes.OUT_OF_MEMORY) as hits:
        y = method(CudaArray(memory, stream=None))
    assert hits == [1]
    assert cuda.held_count() == 0
    assert len(waits(fake)) == 1
    assert y.tolist() == A.tolist()


def test_any_failing_call_leaves_nothing_behind(fake: FakeDriver) -> None:
    """Fail the k-th driver call of each kind of a call with every kind of input: one typed error, then all is well."""
    from cuda_fake.foreign import CudaArray, CudaProducer, Library, Memory

    library = Library()
    stream, other = cuda.Stream(0), cuda.Stream(0)
    library.current[0] = stream.handle
    method = cuda.echo_method(manifest([tensor(name) for name in "abcd"]))
    arrays = [library.Tensor(A), cuda.tensor_on(A, 0, other.handle)]
    memories = [Memory(A, stream=other.handle) for _ in range(2)]
    before = _testing.live_counts()["storages"]

    def call() -> None:
        y = method(*arrays, CudaArray(memories[0]), CudaProducer(memories[1]))
        assert [one.tolist() for one in y] == [A.tolist()] * 4

    call()
    failures: dict[str, int] = {}
    for entry in ENTRIES:
        for k in range(1, 50):
            with warnings.catch_warnings(), fake.failing(entry, k, fakes.NOT_SUPPORTED) as hits:
                warnings.simplefilter("ignore", cudaexec.CudaexecWarning)
                try:
                    call()
                except (cudaexec.Error, fakes.CudaFailure):
                    failures[entry] = failures.get(entry, 0) + 1
            _testing.cleanup_reports()
            call()
            fake.run_all()
            cuda.wait_and_release_held()
            assert _testing.live_counts()["storages"] == before
            if hits == [0]:
                break
        assert hits == [0]
    assert set(failures) == set(ENTRIES)
    assert CudaProducer.outstanding == []
    arrays.clear()
    Memory.free_all()
    fake.run_all()

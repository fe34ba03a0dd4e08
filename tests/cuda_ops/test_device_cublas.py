"""How products reach cuBLAS, where it is looked for, and what its failures leave behind."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import cudaexec  # noqa: E402
from cuda_fake.fake import LIBRARIES, FakeDriver  # noqa: E402
from cuda_ops.capture import Captured  # noqa: E402
from cuda_ops.device_call import DeviceCall, World, cuda  # noqa: E402
from cuda_ops.fake_cublas import (  # noqa: E402
    ALLOC_FAILED,
    EXECUTION_FAILED,
    INVALID_VALUE,
    NOT_SUPPORTED,
    FakeCublas,
)
from cudaexec import _core  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def world(fake_world: World) -> World:
    return fake_world


def linear(world: World, rows: int = 3) -> None:
    """A linear layer as generated code calls it."""
    x, weight, bias = torch.randn(rows, 8), torch.randn(6, 8), torch.randn(6)
    out = torch.empty(rows, 6)
    world.call("addmm_out", out, bias, x, weight.t(), 1.0, 1.0)
    torch.testing.assert_close(out, torch.nn.functional.linear(x, weight, bias))


def test_a_linear_layer_is_one_product_with_its_bias(world: World, cublas: FakeCublas) -> None:
    linear(world)
    assert cublas.calls() == ["f32 m=6 n=3 k=8 batch=1 TN bias"]


def test_a_bias_that_cublas_does_not_add_is_added_by_beta(world: World, cublas: FakeCublas) -> None:
    cublas.set(refuse_bias=True)
    linear(world)
    assert cublas.calls() == ["f32 m=6 n=3 k=8 batch=1 TN in place beta=1"]


def test_an_addend_of_full_size_is_read_where_it_is(world: World, cublas: FakeCublas) -> None:
    out = torch.empty(3, 6)
    world.call("addmm_out", out, torch.randn(3, 6), torch.randn(3, 8), torch.randn(8, 6), 2.0, 1.0)
    assert cublas.calls() == ["f32 m=6 n=3 k=8 batch=1 NN c beta=2"]


def test_factors_of_any_usual_layout_are_not_copied(
    world: World, cublas: FakeCublas, fake: FakeDriver
) -> None:
    a, b = torch.randn(3, 8), torch.randn(8, 6)
    for left in (a, a.t().contiguous().t(), torch.randn(3, 11)[:, :8]):
        for right in (b, b.t().contiguous().t(), torch.randn(8, 9)[:, 2:8]):
            before = fake.calls("cuMemAllocFromPoolAsync")
            call = DeviceCall(world, "mm_out", (torch.empty(3, 6), left, right))
            made = fake.calls("cuMemAllocFromPoolAsync")
            assert len(made) == len(before) + 3  # the operands of the test
            call.run()
            assert fake.calls("cuMemAllocFromPoolAsync") == made


def test_what_cublas_chose_is_remembered(world: World, cublas: FakeCublas) -> None:
    for _ in range(3):
        linear(world)
    handles, plans = cuda.cublas_counts()
    assert handles == 1
    assert plans == 1
    linear(world, rows=4)
    assert cuda.cublas_counts() == (1, 2)
    assert cublas.live() == 1 + 2 * 5  # a handle; per product its descriptor and four layouts
    cuda.trim_cublas()
    assert cuda.cublas_counts() == (0, 0)
    assert cublas.live() == 0
    linear(world)


def test_a_workspace_comes_from_the_calls_allocator(
    world: World, cublas: FakeCublas, fake: FakeDriver
) -> None:
    cublas.set(workspace=3000)
    call = DeviceCall(world, "mm_out", (torch.empty(2, 2), torch.ones(2, 3), torch.ones(3, 2)))
    used = fake.calls("cuMemAllocFromPoolAsync")
    call.run()
    assert len(fake.calls("cuMemAllocFromPoolAsync")) == len(used) + 1
    linear(world)


def test_a_product_without_algorithm_is_refused_by_name(world: World, cublas: FakeCublas) -> None:
    cublas.set(refuse_all=True)
    with pytest.raises(
        cudaexec.NotSupported, match=r"addmm: cuBLAS has no algorithm for a float32"
    ):
        linear(world)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_16_bit_products_without_algorithm_go_through_float32(
    world: World, cublas: FakeCublas, dtype: torch.dtype
) -> None:
    cublas.set(refuse_half=True)
    x, weight, bias = (torch.randn(size).to(dtype) for size in ((3, 8), (6, 8), (6,)))
    expected = torch.nn.functional.linear(x.float(), weight.float(), bias.float()).to(dtype)
    for layout in (torch.empty(3, 6), torch.empty(6, 3).t(), torch.empty(6, 12)[::2, ::2]):
        out = torch.empty_strided((3, 6), layout.stride(), dtype=dtype)
        world.call("addmm_out", out, bias, x, weight.t(), 1.0, 1.0)
        torch.testing.assert_close(out, expected)
    assert all(line.startswith("f32") for line in cublas.calls())
    out = torch.empty(2, 3, 3, dtype=dtype)
    batch = torch.randn(2, 3, 4).to(dtype)
    world.call("baddbmm_out", out, batch[:1, :, :3], batch, batch.mT, 0.5, 2.0)
    wide = batch.float()
    expected = torch.baddbmm(wide[:1, :, :3], wide, wide.mT, beta=0.5, alpha=2.0).to(dtype)
    torch.testing.assert_close(out, expected)


def test_each_concurrent_call_has_a_handle_of_its_own(fake: FakeDriver, cublas: FakeCublas) -> None:
    barrier = threading.Barrier(4)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            world = World()
            barrier.wait()
            for rows in range(1, 9):
                linear(world, rows)
            world.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    handles, plans = cuda.cublas_counts()
    assert 1 <= handles <= 4
    assert 8 <= plans <= 8 * handles


def test_a_second_device_has_its_own_handles(fake: FakeDriver, cublas: FakeCublas) -> None:
    first, second = World(0), World(1)
    linear(first)
    linear(second)
    linear(first)
    assert cuda.cublas_counts()[0] == 2
    first.close()
    second.close()


def test_the_first_product_cannot_be_captured_but_later_ones_can(
    world: World, cublas: FakeCublas, fake: FakeDriver
) -> None:
    x, y, out = torch.randn(4, 8), torch.randn(8, 6), torch.empty(4, 6)
    with (
        DeviceCall(world, "mm_out", (out, x, y)) as call,
        pytest.raises(cudaexec.CaptureError, match="cuBLAS cannot be started"),
    ):
        Captured(fake, call)
    linear(world)
    with DeviceCall(world, "mm_out", (out, x, y)) as call, Captured(fake, call) as graph:
        for _ in range(2):
            graph.launch()
            call.read_back()
            torch.testing.assert_close(out, x @ y)
            out.zero_()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (ALLOC_FAILED, cudaexec.OutOfMemory),
        (EXECUTION_FAILED, cudaexec.DeviceError),
        (INVALID_VALUE, cudaexec.Error),
        (NOT_SUPPORTED, cudaexec.NotSupported),
    ],
)
def test_every_failing_call_is_one_error_and_leaves_nothing(
    fake: FakeDriver, cublas: FakeCublas, status: int, error: type[Exception]
) -> None:
    cublas.set(workspace=512)
    world = World()
    k = 0
    while True:
        k += 1
        cuda.trim_cublas()
        live = cublas.live()
        with cublas.failing(k, status) as seen:
            try:
                linear(world)
            except cudaexec.Error as raised:
                assert isinstance(raised, error)
                assert "cublasLt" in str(raised) or "no algorithm" in str(raised)
            # A choice that is refused is made again without the bias: then nothing is raised.
        if seen[0] < k:
            break
        linear(world)
        assert live == 0
    assert k > 15
    world.close()


def test_a_handle_that_cannot_be_destroyed_is_reported(world: World, cublas: FakeCublas) -> None:
    linear(world)
    with cublas.failing(1, EXECUTION_FAILED, "Destroy"):
        cuda.trim_cublas()
    assert _core._testing.cleanup_reports() == (["cublasLtDestroy failed: status 13"], 0)


def test_the_library_is_named_by_the_environment(
    fake: FakeDriver, cublas: FakeCublas, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert cuda.require_cublas() == cublas.path
    cuda.reset_cublas()
    monkeypatch.setenv("CUDAEXEC_CUBLAS", str(tmp_path / "none.so"))
    with pytest.raises(cudaexec.NotSupported, match=r"CUDAEXEC_CUBLAS names.*none\.so"):
        cuda.require_cublas()


def test_the_library_is_found_among_python_packages(
    fake: FakeDriver, cublas: FakeCublas, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CUDAEXEC_CUBLAS")
    folder = tmp_path / "site-packages" / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True)
    (folder / "libcudaexec_fakecuda.so").symlink_to(LIBRARIES / "libcudaexec_fakecuda.so")
    shutil.copy(cublas.path, folder / "libcublasLt.so.13")
    _core._set_package_folders([str(tmp_path), str(tmp_path / "site-packages")])
    try:
        assert cuda.require_cublas() == str(folder / "libcublasLt.so.13")
        cuda.reset_cublas()
        fake.reset()
        fake.set_driver(12080)  # cuBLAS 13 needs a newer one
        cuda.use_driver(fake.path)
        with pytest.raises(cudaexec.NotSupported, match="nvidia-cublas-cu12"):
            cuda.require_cublas()
    finally:
        _core._set_package_folders([])


def test_a_missing_library_says_what_to_install(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDAEXEC_CUBLAS", raising=False)
    world = World()
    with pytest.raises(
        cudaexec.NotSupported, match=r"libcublasLt\.so\.13 or .*pip install nvidia-cublas"
    ):
        linear(world)
    world.close()


def test_a_program_that_needs_it_is_refused_when_it_is_opened(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDAEXEC_CUBLAS", raising=False)
    needs = ["aoti_torch_empty_strided", "aoti_torch_cuda_addmm_out", "aoti_torch_cuda_mm_out"]
    cuda.require_called_libraries(needs, "decode")  # no driver is in use: nobody can run it
    world = World()
    cuda.require_called_libraries(needs[:1], "decode")
    with pytest.raises(
        cudaexec.NotSupported,
        match=r"'decode' calls aoti_torch_cuda_addmm_out, aoti_torch_cuda_mm_out, by cuBLAS: .*pip",
    ):
        cuda.require_called_libraries(needs, "decode")
    world.close()


def test_another_library_is_refused(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDAEXEC_CUBLAS", str(LIBRARIES / "libcudaexec_fakecuda.so"))
    with pytest.raises(cudaexec.NotSupported, match="it lacks: cublasLtCreate"):
        cuda.require_cublas()


def test_a_forked_child_gets_an_error(world: World) -> None:
    linear(world)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            linear(world)
        except cudaexec.DeviceError:
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("cols", [1, 2, 5])
def test_readings_of_strided_matrices(rows: int, cols: int) -> None:
    for row_stride in (0, 1, 2, 5, 7):
        for col_stride in (0, 1, 2, 5, 7):
            found = cuda.column_major(rows, cols, row_stride, col_stride)
            places = {
                (r, c): r * row_stride + c * col_stride for r in range(rows) for c in range(cols)
            }
            readable = len(set(places.values())) == rows * cols and (
                rows == 1 or row_stride == 1 or cols == 1 or col_stride == 1
            )
            if found is None:
                # Only what overlaps, interleaves, or has no contiguous dimension.
                assert not readable or (row_stride < rows and col_stride < cols)
                continue
            stored_rows, stored_cols, leading, transposed = found
            assert (stored_rows, stored_cols) == ((cols, rows) if transposed else (rows, cols))
            assert leading >= max(stored_rows, 1)
            for (r, c), place in places.items():
                i, j = (c, r) if transposed else (r, c)
                assert i + j * leading == place

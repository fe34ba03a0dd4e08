"""Strided copies: how they are planned, and what is passed to which kernel.

The kernels themselves are compiled here but run on GPUs only (tests/gpu). In their place the fake runs
numpy over the very arguments that the GPU would get.
"""

from __future__ import annotations

import ctypes
import itertools
import math

import numpy as np
import pytest

import cudaexec
from cuda_fake.fake import FakeDriver, Launch, read
from cudaexec._core import _testing

cuda = _testing.cuda
MAX_RANK = 8

needs_device_code = pytest.mark.skipif(
    not cuda.image_names(), reason="built without nvcc: there is no device code"
)


class FastDivisor(ctypes.Structure):
    _fields_ = [("divisor", ctypes.c_uint32), ("multiplier", ctypes.c_uint32),
                ("shift", ctypes.c_uint32)]  # fmt: skip


class CopyArgs(ctypes.Structure):
    _fields_ = [
        ("dst", ctypes.c_uint64), ("src", ctypes.c_uint64), ("count", ctypes.c_uint64),
        ("rank", ctypes.c_int32), ("sizes", ctypes.c_uint64 * MAX_RANK),
        ("divisors", FastDivisor * MAX_RANK), ("dst_strides", ctypes.c_int64 * MAX_RANK),
        ("src_strides", ctypes.c_int64 * MAX_RANK),
    ]  # fmt: skip


class FillArgs(ctypes.Structure):
    _fields_ = [
        ("dst", ctypes.c_uint64), ("count", ctypes.c_uint64), ("rank", ctypes.c_int32),
        ("sizes", ctypes.c_uint64 * MAX_RANK), ("dst_strides", ctypes.c_int64 * MAX_RANK),
        ("value", ctypes.c_ubyte * 16),
    ]  # fmt: skip


class TransposeArgs(ctypes.Structure):
    _fields_ = [
        ("dst", ctypes.c_uint64), ("src", ctypes.c_uint64), ("size_a", ctypes.c_uint32),
        ("size_b", ctypes.c_uint32), ("src_stride_a", ctypes.c_int64),
        ("dst_stride_b", ctypes.c_int64), ("tiles_a", FastDivisor), ("tiles_b", FastDivisor),
        ("batch_rank", ctypes.c_int32), ("batch_sizes", FastDivisor * MAX_RANK),
        ("dst_strides", ctypes.c_int64 * MAX_RANK), ("src_strides", ctypes.c_int64 * MAX_RANK),
    ]  # fmt: skip


def view(address: int, sizes: list[int], strides: list[int], itemsize: int) -> np.ndarray:
    """Fake device memory as an array of opaque elements; strides in bytes, may be negative."""
    low = sum(min(0, (n - 1) * s) for n, s in zip(sizes, strides, strict=True))
    high = sum(max(0, (n - 1) * s) for n, s in zip(sizes, strides, strict=True)) + itemsize
    span = (ctypes.c_ubyte * (high - low)).from_address(address + low)
    return np.ndarray(sizes, f"V{itemsize}", span, offset=-low, strides=strides)


def blocks(launch: Launch) -> int:
    assert (launch.grid[1], launch.grid[2]) == (1, 1)
    return launch.grid[0]


def check_divisor(divisor: FastDivisor, size: int) -> None:
    assert divisor.divisor == size
    for n in {0, 1, size - 1, size, size + 1, 2**31 - 1, 12345678}:
        if 0 <= n < 2**31:
            high = (n * divisor.multiplier) >> 32
            assert (high + n) >> divisor.shift == n // size, (n, size)


def copy_kernel(itemsize: int) -> object:
    def body(launch: Launch) -> None:
        args = launch.argument(0, CopyArgs)
        assert isinstance(args, CopyArgs)
        sizes = list(args.sizes)[: args.rank]
        assert args.count == math.prod(sizes)
        assert list(launch.block) == [256, 1, 1]
        assert blocks(launch) == -(-args.count // 1024)
        for divisor, size in zip(args.divisors, sizes, strict=False):
            check_divisor(divisor, size)
        src = view(args.src, sizes, list(args.src_strides)[: args.rank], itemsize)
        dst = view(args.dst, sizes, list(args.dst_strides)[: args.rank], itemsize)
        dst[...] = src

    return body


def transpose_kernel(itemsize: int) -> object:
    def body(launch: Launch) -> None:
        args = launch.argument(0, TransposeArgs)
        assert isinstance(args, TransposeArgs)
        batch = [divisor.divisor for divisor in list(args.batch_sizes)[: args.batch_rank]]
        tiles = -(-args.size_a // 32), -(-args.size_b // 32)
        check_divisor(args.tiles_a, tiles[0])
        check_divisor(args.tiles_b, tiles[1])
        assert list(launch.block) == [32, 8, 1]
        assert blocks(launch) == math.prod(batch) * tiles[0] * tiles[1]
        sizes = [*batch, args.size_b, args.size_a]
        rank = args.batch_rank
        src_strides = [*list(args.src_strides)[:rank], itemsize, args.src_stride_a]
        dst_strides = [*list(args.dst_strides)[:rank], args.dst_stride_b, itemsize]
        src = view(args.src, sizes, src_strides, itemsize)
        view(args.dst, sizes, dst_strides, itemsize)[...] = src

    return body


def fill_kernel(itemsize: int) -> object:
    def body(launch: Launch) -> None:
        args = launch.argument(0, FillArgs)
        assert isinstance(args, FillArgs)
        sizes = list(args.sizes)[: args.rank]
        assert args.count == math.prod(sizes)
        assert blocks(launch) == -(-args.count // 1024)
        dst = view(args.dst, sizes, list(args.dst_strides)[: args.rank], itemsize)
        dst[...] = np.frombuffer(bytes(args.value)[:itemsize], f"V{itemsize}")[0]

    return body


@pytest.fixture
def gpu(fake: FakeDriver) -> FakeDriver:
    """The fake with our kernels done by numpy."""
    for itemsize in (1, 2, 4, 8, 16):
        copy = ctypes.sizeof(CopyArgs)
        fake.register_kernel(f"cudaexec_strided_copy_{itemsize}", [copy], copy_kernel(itemsize))
        fake.register_kernel(
            f"cudaexec_transpose_copy_{itemsize}",
            [ctypes.sizeof(TransposeArgs)],
            transpose_kernel(itemsize),
        )
        fake.register_kernel(
            f"cudaexec_strided_fill_{itemsize}", [ctypes.sizeof(FillArgs)], fill_kernel(itemsize)
        )
    return fake


class DeviceArray:
    """A numpy array's bytes in fake device memory, as the same strided view."""

    def __init__(self, array: np.ndarray) -> None:
        base = array
        while isinstance(base.base, np.ndarray):
            base = base.base
        assert base.flags.c_contiguous
        self.nbytes = base.nbytes
        self.pool = cuda.Allocator("pool")
        self.memory = self.pool.allocate(max(1, base.nbytes))
        cuda.synchronize(0, 0)
        ctypes.memmove(self.memory, base.ctypes.data, base.nbytes)
        self.address = self.memory + array.ctypes.data - base.ctypes.data
        self.array = array

    def result(self) -> np.ndarray:
        cuda.synchronize(0, 0)
        sizes, strides = list(self.array.shape), list(self.array.strides)
        if self.array.size == 0:
            return self.array
        raw = view(self.address, sizes, strides, self.array.itemsize)
        return raw.copy().view(self.array.dtype).reshape(self.array.shape)

    def all_bytes(self) -> bytes:
        return read(self.memory, self.nbytes)

    def free(self) -> None:
        self.pool.deallocate(self.memory, max(1, self.nbytes))


def run_copy(dst: np.ndarray, src: np.ndarray) -> np.ndarray:
    device_dst, device_src = DeviceArray(dst), DeviceArray(src)
    before = np.frombuffer(device_dst.all_bytes(), np.uint8).copy()
    cuda.strided_copy(
        0, device_dst.address, list(dst.strides), device_src.address, list(src.strides),
        list(dst.shape), dst.itemsize, 0,
    )  # fmt: skip
    result = device_dst.result()
    # Nothing between the elements was touched.
    mask = np.zeros(device_dst.nbytes, bool)
    if dst.size:
        offset = device_dst.address - device_dst.memory
        touched = view(mask.ctypes.data + offset, list(dst.shape), list(dst.strides), dst.itemsize)
        touched[...] = np.frombuffer(b"\1" * dst.itemsize, f"V{dst.itemsize}")[0]
    after = np.frombuffer(device_dst.all_bytes(), np.uint8)
    np.testing.assert_array_equal(after[~mask], before[~mask])
    device_dst.free()
    device_src.free()
    return result


DTYPES = ["u1", "i2", "f4", "f8", "c16"]


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return (np.arange(math.prod(shape)) % 251).reshape(shape).astype(dtype)


# ---- copies ----------------------------------------------------------------------------------------


@needs_device_code
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "permutation", list(itertools.permutations(range(3))), ids=lambda p: "".join(map(str, p))
)
def test_permutations(gpu: FakeDriver, dtype: str, permutation: tuple[int, ...]) -> None:
    source = numbers((5, 33, 40), dtype).transpose(permutation)
    result = run_copy(np.zeros(source.shape, dtype), source)
    np.testing.assert_array_equal(result, source)


@needs_device_code
@pytest.mark.parametrize(
    "make",
    [
        lambda a: a[::2, 1::3],
        lambda a: a[::-1],
        lambda a: a[:, ::-2],
        lambda a: np.broadcast_to(a[0], (7, a.shape[1])),
        lambda a: np.broadcast_to(a[:, :1], a.shape),
        lambda a: a[3:4, 5:6],
        lambda a: a[:0],
        lambda a: a[2],
        lambda a: a.T[4:, 3:],
        lambda a: a.reshape(2, 10, 6, 5).transpose(3, 1, 0, 2),
    ],
    ids=["steps", "reversed", "columns", "rows_repeated", "columns_repeated", "one", "empty",
         "row", "transposed_part", "rank_4"],
)  # fmt: skip
@pytest.mark.parametrize("dtype", DTYPES)
def test_views(gpu: FakeDriver, dtype: str, make: object) -> None:
    assert callable(make)
    source = make(numbers((20, 30), dtype))
    result = run_copy(np.zeros(source.shape, dtype), source)
    np.testing.assert_array_equal(result, source)


@needs_device_code
def test_into_a_strided_target(gpu: FakeDriver) -> None:
    target = np.full((20, 30), 77, "f4")[::2, 1::2]
    source = numbers((10, 15), "f4")
    np.testing.assert_array_equal(run_copy(target, source), source)


@needs_device_code
@pytest.mark.parametrize("rank", [8, 9, 11])
def test_more_dimensions_than_a_kernel_takes(gpu: FakeDriver, rank: int) -> None:
    source = numbers((3,) * rank, "u1")[(slice(None, None, 2),) * rank]
    target = np.zeros((4,) * rank, "u1")[(slice(None, None, 2),) * rank]
    np.testing.assert_array_equal(run_copy(target, source), source)
    assert gpu.launches("cudaexec_strided_copy_1") == 2 ** (rank - MAX_RANK)


@needs_device_code
def test_random_views(gpu: FakeDriver) -> None:
    gpu.set_log(False)
    random = np.random.default_rng(0)
    for _ in range(150):
        rank = int(random.integers(1, 6))
        shape = tuple(int(n) for n in random.integers(1, 9, rank))
        dtype = DTYPES[int(random.integers(len(DTYPES)))]
        steps = tuple(slice(None, None, int(s)) for s in random.choice([1, 1, 2, -1], rank))
        order = tuple(int(i) for i in random.permutation(rank))
        source = numbers(shape, dtype)[steps].transpose(order)
        target_order = tuple(int(i) for i in random.permutation(rank))
        target = np.zeros(tuple(source.shape[i] for i in target_order), dtype)
        target = target.transpose(tuple(int(i) for i in np.argsort(target_order)))
        np.testing.assert_array_equal(run_copy(target, source), source)


def test_contiguous_copies_need_no_kernel(fake: FakeDriver) -> None:
    source = numbers((4, 5, 6), "f4")
    np.testing.assert_array_equal(run_copy(np.zeros_like(source), source), source)
    both = source.transpose(2, 0, 1)  # the same permutation on both sides is one run, too
    target = np.zeros((4, 5, 6), "f4").transpose(2, 0, 1)
    np.testing.assert_array_equal(run_copy(target, both), both)
    assert fake.calls("cuLaunchKernel", "cuModuleLoadData") == []
    assert len(fake.calls("cuMemcpyDtoDAsync")) == 2


def test_code_that_this_build_lacks_is_refused(fake: FakeDriver) -> None:
    with pytest.raises(cudaexec.NotSupported, match="no GPU code for nothing.*nvcc was missing"):
        cuda.kernel(0, "nothing", "kernel")


@needs_device_code
@pytest.mark.parametrize("sm", [80, 86, 89, 90, 100, 120])
def test_the_image_has_every_kernel_with_the_parameters_we_pass(fake: FakeDriver, sm: int) -> None:
    """From the compiled code itself; newer GPUs take the PTX."""
    fake.set_devices(sm=sm)
    sizes = {
        "cudaexec_strided_copy_": ctypes.sizeof(CopyArgs),
        "cudaexec_strided_copy_wide_": ctypes.sizeof(CopyArgs),
        "cudaexec_strided_fill_": ctypes.sizeof(FillArgs),
        "cudaexec_transpose_copy_": ctypes.sizeof(TransposeArgs),
    }
    for kind, nbytes in sizes.items():
        for itemsize in (1, 2, 4, 8, 16):
            function = cuda.kernel(0, "strided_copy", f"{kind}{itemsize}")
            offset, found = ctypes.c_size_t(), ctypes.c_size_t()
            fake.call("cuFuncGetParamInfo", function, 0, ctypes.byref(offset), ctypes.byref(found))
            assert found.value == nbytes, kind
    assert len(fake.calls("cuModuleLoadData")) == 1


@needs_device_code
def test_a_gpu_that_is_too_old_is_refused(fake: FakeDriver) -> None:
    fake.set_devices(sm=75)
    with pytest.raises(cudaexec.TargetError, match="compiled for other GPUs"):
        cuda.kernel(0, "strided_copy", "cudaexec_strided_copy_4")


@needs_device_code
def test_copies_are_ordered_on_their_stream(gpu: FakeDriver) -> None:
    pool = cuda.Allocator("pool")
    stream = cuda.Stream(0)
    src, dst = pool.allocate(800, stream.handle), pool.allocate(800, stream.handle)
    cuda.zero(0, src, 800, stream.handle)
    cuda.strided_copy(0, dst, [80, 4], src, [4, 40], [10, 10], 4, stream.handle)
    assert gpu.launches("cudaexec_strided_copy_4") == 0
    stream.synchronize()
    assert gpu.launches("cudaexec_strided_copy_4") == 1
    for data in (src, dst):
        pool.deallocate(data, 800, stream.handle)


# ---- fills -----------------------------------------------------------------------------------------


@needs_device_code
@pytest.mark.parametrize("dtype", DTYPES)
def test_fill_of_a_view(gpu: FakeDriver, dtype: str) -> None:
    target = np.zeros((12, 10), dtype)[1::2, ::3]
    device = DeviceArray(target)
    value = np.array(77, dtype).tobytes()
    cuda.strided_fill(0, device.address, list(target.strides), list(target.shape), value, 0)
    np.testing.assert_array_equal(device.result(), np.full(target.shape, 77, dtype))
    whole = np.frombuffer(device.all_bytes(), dtype)
    assert int((whole == 77).sum()) == target.size
    device.free()


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4"])
def test_fill_of_a_run_needs_no_kernel(fake: FakeDriver, dtype: str) -> None:
    target = np.zeros((12, 10), dtype)
    device = DeviceArray(target)
    value = np.array(77, dtype).tobytes()
    cuda.strided_fill(0, device.address, list(target.strides), list(target.shape), value, 0)
    np.testing.assert_array_equal(device.result(), np.full(target.shape, 77, dtype))
    assert fake.calls("cuLaunchKernel") == []
    device.free()


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_zero_of_wide_elements_needs_no_kernel(fake: FakeDriver, dtype: str) -> None:
    target = np.ones((3, 5), dtype)
    device = DeviceArray(target)
    cuda.strided_fill(
        0, device.address, list(target.strides), list(target.shape), bytes(target.itemsize), 0
    )
    np.testing.assert_array_equal(device.result(), np.zeros_like(target))
    assert fake.calls("cuLaunchKernel") == []
    device.free()


# ---- plans -----------------------------------------------------------------------------------------


def plan(
    shape: list[int], dst: list[int], src: list[int], itemsize: int, at: tuple[int, int] = (0, 0)
) -> dict[str, object]:
    return cuda.plan_strided_copy(shape, dst, src, itemsize, *at)


def test_plans_merge_and_widen() -> None:
    # 8 rows of 32 contiguous floats, the source rows 64 apart.
    wide = plan([8, 4, 8], [128, 32, 4], [256, 32, 4], 4)
    assert wide == {
        "method": "elements", "itemsize": 16, "dims": [(8, 128, 256), (8, 16, 16)], "transposed": 0,
    }  # fmt: skip
    assert plan([8, 32], [128, 4], [256, 4], 4, (0, 8))["itemsize"] == 8  # alignment
    assert plan([8, 32], [128, 4], [256, 4], 4, (4, 0))["itemsize"] == 4
    assert plan([8, 31], [124, 4], [256, 4], 4)["itemsize"] == 4  # strides of dst
    assert plan([8, 6], [32, 4], [64, 4], 4)["itemsize"] == 8  # length of a row


def test_plans_choose_tiles_for_transposes() -> None:
    tiles = plan([40, 50], [200, 4], [4, 160], 4)
    assert tiles["method"] == "transpose"
    assert tiles["transposed"] == 0
    nhwc = plan([2, 20, 300], [24000, 1200, 4], [24000, 4, 80], 4)  # channels last to first
    assert nhwc["method"] == "transpose"
    assert nhwc["transposed"] == 1
    assert plan([8, 50], [200, 4], [4, 32], 4)["method"] == "elements"  # too narrow for tiles


def test_plans_of_nothing_and_one() -> None:
    assert plan([0, 3], [12, 4], [12, 4], 4)["method"] == "nothing"
    assert plan([], [], [], 4)["method"] == "flat"
    assert plan([1, 1], [99, 99], [7, 7], 4)["method"] == "flat"
    assert plan([6], [4], [4], 4)["method"] == "flat"
    assert plan([2, 3], [12, 4], [12, 4], 4)["method"] == "flat"

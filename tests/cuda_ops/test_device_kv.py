"""Attention over the KV cache on GPUs against float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import cudaexec
from cudaexec._core import _testing

torch = pytest.importorskip("torch")
from ops.kv_reference import Reference, operands  # noqa: E402

if TYPE_CHECKING:
    from cuda_ops.device_call import World

pytestmark = pytest.mark.torch

# What is left of float32 sums and the rounding of the result; weights lose 2^-16 to bfloat16 pairs.
TOLERANCE = {torch.float32: 3e-6, torch.bfloat16: 1.2e-2, torch.float16: 1.5e-3}
LAYER = 7


class Session:
    """A cache of one layer and its reference."""

    def __init__(
        self,
        world: World,
        dtype: str,
        *,
        batch: int = 1,
        heads: int = 2,
        group: int = 2,
        dim: int = 64,
        window: int = 0,
        capacity: int = 4096,
        compute: Any = torch.bfloat16,
    ) -> None:
        self.world, self.compute = world, compute
        self.scale = dim**-0.5
        self.shape = (batch, heads * group, heads, dim)
        self.cache = _testing.KvCache([(LAYER, batch, heads, dim, window, capacity)], dtype, gpu=0)
        self.reference = Reference(dtype, window)

    def attend(self, qkv: Any, index: Any) -> Any:
        self.cache.prepare(qkv[0].shape[2], self.world.stream)
        scope = _testing.KvStepScope(self.cache)
        try:
            return self.world.call("kv_attend", *qkv, index, LAYER, self.scale)
        finally:
            del scope

    def step(self, width: int, layout: str = "tokens first") -> float:
        """The largest difference of a step's result."""
        batch, heads, kv_heads, dim = self.shape
        qkv = operands((batch, heads, kv_heads, width, dim), self.compute, layout)
        index = torch.arange(self.cache.position, self.cache.position + width)
        got = self.attend(qkv, index)
        self.cache.commit()
        self.cache.check_fault()
        assert got.shape == (batch, heads, width, dim)
        assert got.stride() == (width * heads * dim, dim, heads * dim, 1)
        assert got.dtype == self.compute
        return float((got.double() - self.reference.step(*qkv, self.scale)).abs().max())


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("dtype", ["own", "float8_e4m3fn"])
@pytest.mark.parametrize("compute", [torch.bfloat16, torch.float16], ids=str)
def test_matrices(world: World, compute: Any, dtype: str, dim: int) -> None:
    """16-bit types with heads of 64, 128, 256: by matrix products."""
    own = str(compute).removeprefix("torch.")
    session = Session(world, own if dtype == "own" else dtype, dim=dim, compute=compute)
    for width in (19, 1, 1, 16, 5):
        assert session.step(width) <= TOLERANCE[compute], width


@pytest.mark.parametrize("dim", [1, 24, 80, 300])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("compute", TOLERANCE, ids=str)
def test_any_types_and_sizes(world: World, compute: Any, dtype: str, dim: int) -> None:
    session = Session(world, dtype, dim=dim, compute=compute, group=3)
    for width in (9, 1, 2):
        assert session.step(width) <= 2 * TOLERANCE[compute], width


@pytest.mark.parametrize("layout", ["tokens first", "heads first", "dim apart"])
@pytest.mark.parametrize("batch", [1, 3])
def test_layouts(world: World, batch: int, layout: str) -> None:
    session = Session(world, "bfloat16", batch=batch)
    for width in (7, 1):
        assert session.step(width, layout) <= TOLERANCE[torch.bfloat16]


@pytest.mark.parametrize("group", [1, 4, 7, 8, 16, 17, 33])
def test_groups_of_heads(world: World, group: int) -> None:
    session = Session(world, "float16", heads=1, group=group, compute=torch.float16)
    for width in (3, 1, 2):
        assert session.step(width) <= TOLERANCE[torch.float16]


@pytest.mark.parametrize("compute", [torch.float32, torch.float16], ids=str)
def test_many_splits(world: World, compute: Any) -> None:
    """More tokens than splits have tiles."""
    session = Session(
        world, str(compute).removeprefix("torch."), heads=1, capacity=100_000, compute=compute
    )
    assert session.cache.groups[0]["page_nbytes"] == 2 << 20
    for width in (500, 1, 300, 1):
        assert session.step(width) <= TOLERANCE[compute]


@pytest.mark.parametrize("compute", [torch.float32, torch.float16], ids=str)
def test_pages(world: World, compute: Any) -> None:
    own = str(compute).removeprefix("torch.")
    session = Session(world, own, heads=16, group=1, dim=128, capacity=100_000, compute=compute)
    [group] = session.cache.groups
    assert group["page_nbytes"] == 2 << 20
    for width in (120, 1, 135, 1, 1, 3, 1):
        assert session.step(width) <= TOLERANCE[compute]
    assert session.cache.position > group["block"]


def test_prefill_of_many_rows(world: World) -> None:
    """So many row tiles that no tokens are split: results are stored directly."""
    session = Session(world, "float16", heads=8, group=4, compute=torch.float16)
    for width in (70, 1):
        assert session.step(width) <= TOLERANCE[torch.float16]


@pytest.mark.parametrize("dim", [24, 64])
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_ring(world: World, dtype: str, dim: int) -> None:
    window, widest = 40, 33
    session = Session(world, dtype, dim=dim, window=window, capacity=window + widest - 1)
    slots = session.cache.groups[0]["slots"]
    assert slots < 200
    for width in (3, 33, 1, 1, 32, 31, 1, 33, 33, 1, 20, 33):
        assert session.step(width) <= TOLERANCE[torch.bfloat16], session.cache.position
    assert session.cache.position > slots


def test_rewind_and_fork(world: World) -> None:
    first = Session(world, "bfloat16")
    first.step(20)
    first.cache.rewind(11)
    first.reference.rewind(11)
    assert first.step(3) <= TOLERANCE[torch.bfloat16]
    second = Session(world, "bfloat16")
    second.cache, second.reference = first.cache.fork(), first.reference.fork()
    for session in (second, first, second, first):
        assert session.step(1) <= TOLERANCE[torch.bfloat16]
    assert first.cache.position == second.cache.position == 16


@pytest.mark.parametrize("dim", [24, 64])
@pytest.mark.parametrize("heads", [1, 200])
def test_other_positions_store_nothing(world: World, heads: int, dim: int) -> None:
    """The result is NaN, later steps do nothing, and the next prepare() says what happened."""
    session = Session(world, "bfloat16", heads=heads, dim=dim, group=1)
    assert session.step(5) <= TOLERANCE[torch.bfloat16]
    shape = (*session.shape[:3], 2, session.shape[3])
    for index in ([6, 7], [5, 7], [-1, 0]):
        got = session.attend(operands(shape, torch.bfloat16), torch.tensor(index))
        session.cache.commit()
        assert got.isnan().all()
        # Put on the stream before the host knew: right by itself, but it follows a wrong one.
        fault = "a step came with positions from {} on; the session expected 5"
        with pytest.raises(cudaexec.InputError, match=fault.format(index[0])):
            session.cache.prepare(2, world.stream)
        assert session.cache.position == 5
        assert session.step(1) <= TOLERANCE[torch.bfloat16]
        session.cache.rewind(5)
        session.reference.rewind(5)


def test_a_step_after_a_wrong_one_does_nothing(world: World) -> None:
    session = Session(world, "bfloat16")
    session.step(5)
    shape = (*session.shape[:3], 1, session.shape[3])
    if not world.is_gpu:  # the host goes on before the device has run
        session.cache.prepare(1, world.stream)
    session.attend(operands(shape, torch.bfloat16), torch.tensor([9]))
    scope = _testing.KvStepScope(session.cache)
    got = world.call("kv_attend", *operands(shape, torch.bfloat16), torch.tensor([5]), LAYER, 0.125)
    del scope
    assert got.isnan().all()
    with pytest.raises(cudaexec.InputError, match="positions from 9 on"):
        session.cache.check_fault()
    assert session.step(1) <= TOLERANCE[torch.bfloat16]


def test_infinities_and_nan_of_hidden_tokens_stay_hidden(world: World) -> None:
    """A window has passed them; what is in memory behind the last token does not matter."""
    session = Session(world, "bfloat16", window=16, capacity=32)
    shape = (*session.shape[:3], 1, session.shape[3])
    for position in range(40):
        q, k, v = operands(shape, torch.bfloat16)
        if position % 20 == 0:
            k, v = k * torch.nan, v * torch.inf
        got = session.attend((q, k, v), torch.tensor([position]))
        session.cache.commit()
        exact = session.reference.step(q, k, v, session.scale)
        assert got.isnan().all() == exact.isnan().all() == (position % 20 < 16)
        if position % 20 >= 16:
            assert (got.double() - exact).abs().max() <= TOLERANCE[torch.bfloat16]


def test_operands_that_do_not_fit(world: World) -> None:
    session = Session(world, "bfloat16")
    shape = (*session.shape[:3], 2, session.shape[3])
    q, k, v = operands(shape, torch.bfloat16)
    index = torch.arange(2)
    with pytest.raises(cudaexec.ShapeError, match="k is"):
        session.attend((q, k[:, :1], v), index)
    with pytest.raises(cudaexec.DtypeError):
        session.attend((q, k, v.float()), index)
    big = Session(world, "bfloat16", dim=600)
    shape = (*big.shape[:3], 1, 600)
    with pytest.raises(cudaexec.NotSupported, match="heads of 600 elements; at most 512"):
        big.attend(operands(shape, torch.bfloat16), index[:1])

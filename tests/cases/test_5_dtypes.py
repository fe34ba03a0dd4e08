"""Cases, sections 5 and 6: dtypes, control flow, precision. The others of these sections are in test_4_layout."""

from collections.abc import Callable

import pytest
import torch

import cudaexec

pytestmark = pytest.mark.torch

OPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "add": lambda x: x + x,
    "mul": lambda x: x * 3,
    "relu": torch.relu,
    "sum": lambda x: x.sum(1),
    "amax": lambda x: x.amax(0),
    "argmax": lambda x: x.argmax(1),
    "sort": lambda x: torch.sort(x, dim=1, stable=True)[0],
    "cumsum": lambda x: x.cumsum(1),
    "matmul": lambda x: x @ x.t(),
    "index": lambda x: x[torch.tensor([2, 0, 2])],
    "where": lambda x: torch.where(x > 1, x, torch.zeros_like(x)),
    "sigmoid": torch.sigmoid,
    "mean": lambda x: x.mean(1),
    "floor_div": lambda x: x // 2,
}


class Several(torch.nn.Module):
    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(OPS[name](x) for name in self.names)


def example(dtype: torch.dtype) -> torch.Tensor:
    values = torch.randint(0, 5, (4, 6), generator=torch.Generator().manual_seed(1))
    return values.bool() if dtype is torch.bool else values.to(dtype)


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
     torch.int16, torch.int8, torch.uint8, torch.bool],
    ids=str,
)  # fmt: skip
def test_a35_each_dtype_through_many_operators(export_case, dtype, on_gpu):
    x = example(dtype)
    names = []
    for name, op in OPS.items():
        if on_gpu and name == "matmul" and not dtype.is_floating_point:
            continue  # refused at export, as by eager mode there
        try:
            op(x)
            names.append(name)
        except RuntimeError:
            assert not dtype.is_floating_point  # what eager refuses is no case
    assert len(names) >= 6
    case = export_case(Several(names), (x,))
    loose = 1e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-6
    case.check(x, rtol=loose, atol=loose)


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float32], ids=str)
def test_a36_float8_is_refused_in_one_readable_line(export_case, dtype):
    with pytest.raises(cudaexec.ExportError, match="float8_e4m3fn") as caught:
        export_case(lambda x: x.to(torch.float8_e4m3fn).to(torch.float32), (example(dtype),))
    assert "Traceback" not in str(caught.value)


def test_a43_both_branches_of_a_condition(export_case):
    def by_data(x, p):
        first = torch.cond(p, lambda x: x + 1, lambda x: x * 2, (x,))
        return torch.cond(first.sum() > 0, lambda x: x.sin(), lambda x: x - 3, (first,))

    case = export_case(by_data, (torch.randn(4), torch.tensor(True)))
    for sign in (1.0, -1.0):
        for p in (True, False):
            case.check(sign * torch.ones(4) * 5, torch.tensor(p))


def test_a43_a_condition_on_a_size(export_case):
    def by_size(x):
        return torch.cond(x.shape[0] > 5, lambda x: x + 1, lambda x: x * 2, (x,))

    case = export_case(by_size, (torch.randn(4, 2),), dynamic_shapes=({0: torch.export.Dim("n")},))
    for rows in (2, 5, 6, 9):
        case.check(torch.randn(rows, 2))


def test_a46_ties_in_bfloat16_are_eagers(export_case):
    def decide(x):
        y = x * 1.1 + 0.3
        return y == y.max(), y.argmax(1), (x.abs().amax() * 2 == x.abs().amax() + x.abs().amax())

    case = export_case(decide, (torch.randn(16, 33).bfloat16(),))
    for seed in range(5):
        values = torch.randn(16, 33, generator=torch.Generator().manual_seed(seed)).bfloat16()
        case.check(values, rtol=0, atol=0)


def test_a47_rotary_embedding_in_bfloat16(export_case):
    def rotate(q, cos, sin):
        half = torch.cat((-q[..., 8:], q[..., :8]), -1)
        return q * cos + half * sin

    generator = torch.Generator().manual_seed(3)
    q = torch.randn(1, 2, 7, 16, generator=generator)
    angle = torch.rand(7, 16, generator=generator) * 6.28
    exact = rotate(
        q.bfloat16().double(), angle.cos().bfloat16().double(), angle.sin().bfloat16().double()
    )
    args = (q.bfloat16(), angle.cos().bfloat16(), angle.sin().bfloat16())
    case = export_case(rotate, args)
    ours, eager = case.module(*args), rotate(*args)
    assert (ours.double() - exact).abs().max() <= (eager.double() - exact).abs().max()


def test_any_and_all_of_uint8_are_uint8(export_case):
    """In the middle of a model too, where no check of outputs would see another dtype."""

    def logic(x):
        inverted, sums = (~x.any(1)).long(), (x.any(1) - 1).float() + x.all(0, keepdim=True)
        branch = torch.cond(x.sum() > 2, lambda x: x.any() - 1, lambda x: x.all() - 1, (x,))
        return x.any(1), x.all(), inverted, sums, branch

    case = export_case(logic, (torch.tensor([[0, 3], [0, 0]], dtype=torch.uint8),))
    for values in ([[0, 3], [0, 0]], [[1, 2], [3, 4]], [[0, 0], [0, 0]]):
        case.check(torch.tensor(values, dtype=torch.uint8))


def test_another_dtype_in_generated_code_is_refused(export_case, monkeypatch):
    from cudaexec.export import lower

    monkeypatch.setattr(lower, "rewrite_byte_logic", lambda module: None)
    with pytest.raises(cudaexec.ExportError, match=r"aten\.any\S* gives torch.bool in generated"):
        export_case(lambda x: (x.any(1) - 1).float(), (example(torch.uint8),))


def test_integer_division_by_zero_is_an_error_of_the_inputs(export_case):
    for f in (lambda a, b: a // b, lambda a, b: a % b):
        case = export_case(f, (torch.tensor([7, 8, 9, 10]), torch.tensor([2, 3, 4, 5])))
        case.check(torch.tensor([-7, 8, -9, 10]), torch.tensor([2, -3, 4, -5]))
        with pytest.raises(
            cudaexec.InputError, match=r"method 'forward': an integer is divided by"
        ):
            case.module(torch.tensor([1, 2, 3, 4]), torch.tensor([1, 0, 1, 1]))
        case.check(torch.tensor([1, 2, 3, 4]), torch.tensor([1, 1, 1, 1]))

"""Decoders over a cache that the runtime keeps: tokens, growth, ends, sessions (A110-A113)."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.export import Dim

import cudaexec
from cudaexec import Flat, KvCacheSpec
from kv_models import CAPACITY, Decoder, llama

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")

STEPS = 256
PROMPTS = ([3, 1, 4, 1, 5, 9, 2], [7], [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5])


def width(most: int) -> Any:
    return Dim("width", min=2, max=most)


@pytest.fixture(scope="module")
def language_model(once: Callable[..., Path], target: str) -> tuple[Any, Path]:
    """A random Llama and its file with the methods prefill and decode over one cache."""
    capacity = STEPS + 32
    wrapped, model = llama(capacity)

    def make(directory: Path) -> None:
        def program(count: int, shapes: Any) -> Any:
            example = {
                "input_ids": torch.ones(1, count, dtype=torch.int64),
                "cache_position": torch.arange(count),
            }
            with torch.no_grad():
                return torch.export.export(wrapped, (), example, dynamic_shapes=shapes)

        size = width(16)
        prefill = program(5, {"input_ids": {1: size}, "cache_position": {0: size}})
        spec = KvCacheSpec.discover(prefill)
        cudaexec.export(
            methods={"prefill": prefill, "decode": program(1, None)},
            path=directory / "model.pte",
            target=target,
            options=cudaexec.ExportOptions(kv_cache=spec, gemm="cublas"),
        )

    return model, once(f"kv-llama-{target}", make) / "model.pte"


@pytest.fixture(scope="module")
def target() -> str:
    import os

    return os.environ.get("CUDAEXEC_CASES_TARGET", "cpu")


class Talk:
    """Greedy decoding of one prompt through a session."""

    def __init__(self, session: Any, prompt: list[int]) -> None:
        self.session = session
        self.logits = (
            self.step("prefill", prompt) if len(prompt) > 1 else self.step("decode", prompt)
        )
        self.tokens = list(prompt)

    def step(self, method: str, tokens: list[int]) -> Any:
        start = self.session.position
        return self.session.method(method)(
            input_ids=torch.tensor([tokens]),
            cache_position=torch.arange(start, start + len(tokens)),
        )[0, -1]

    def next(self) -> None:
        token = int(self.logits.argmax())
        self.tokens.append(token)
        self.logits = self.step("decode", [token])


def eager_logits(model: Any, tokens: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0]


def check_greedy(model: Any, tokens: list[int], prompt: int) -> None:
    """Each token is eager's, or as good as eager's within float32 rounding of the logits."""
    logits = eager_logits(model, tokens)
    for i in range(prompt, len(tokens)):
        best = float(logits[i - 1].max())
        assert float(logits[i - 1, tokens[i]]) >= best - 1e-4, i


def test_greedy_tokens_are_eagers(language_model: tuple[Any, Path]) -> None:
    model, path = language_model
    with cudaexec.load(path) as module:
        talks = [Talk(module.session(), list(prompt)) for prompt in PROMPTS]
        for _ in range(STEPS):
            for talk in talks:  # interleaved
                talk.next()
        for talk, prompt in zip(talks, PROMPTS, strict=True):
            assert talk.session.position == len(prompt) + STEPS
            check_greedy(model, talk.tokens, len(prompt))
            expected = eager_logits(model, talk.tokens)[-1]
            torch.testing.assert_close(talk.logits.cpu(), expected, rtol=1e-3, atol=1e-4)


def test_a110_a_full_cache(language_model: tuple[Any, Path]) -> None:
    _, path = language_model
    with cudaexec.load(path) as module, module.session() as session:
        talk = Talk(session, list(PROMPTS[0]))
        capacity = STEPS + 32
        while session.position < capacity:
            talk.next()
        for method, count in (("decode", 1), ("prefill", 4)):
            with pytest.raises(cudaexec.ContextFull, match=str(capacity)):
                talk.step(method, [1] * count)
            assert session.position == capacity
        session.rewind(capacity - 3)
        with pytest.raises(cudaexec.ContextFull, match=str(capacity)):
            talk.step("prefill", [1] * 4)
        assert session.position == capacity - 3
        again = talk.step("decode", [talk.tokens[capacity - 3]])
        session.reset()
        assert session.position == 0
        fresh = Talk(session, talk.tokens[:16])
        for token in talk.tokens[16 : capacity - 2]:
            fresh.logits = fresh.step("decode", [token])
        torch.testing.assert_close(again, fresh.logits, rtol=1e-4, atol=1e-4)


def test_a111_reset(language_model: tuple[Any, Path]) -> None:
    _, path = language_model
    with cudaexec.load(path) as module, module.session() as used, module.session() as fresh:
        Talk(used, list(PROMPTS[2])).next()
        used.reset()
        one, two = Talk(used, list(PROMPTS[0])), Talk(fresh, list(PROMPTS[0]))
        for _ in range(20):
            one.next()
            two.next()
            assert torch.equal(one.logits, two.logits)


def test_a113_sessions_from_threads(language_model: tuple[Any, Path]) -> None:
    model, path = language_model
    failures: list[BaseException] = []
    with cudaexec.load(path) as module:

        def talk(prompt: list[int]) -> None:
            try:
                with module.session() as session:
                    one = Talk(session, prompt)
                    for _ in range(40):
                        one.next()
                    check_greedy(model, one.tokens, len(prompt))
            except BaseException as error:
                failures.append(error)

        threads = [
            threading.Thread(target=talk, args=(list(p),)) for p in PROMPTS for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures, failures


def test_forks(language_model: tuple[Any, Path]) -> None:
    model, path = language_model
    with cudaexec.load(path) as module, module.session() as session:
        first = Talk(session, list(PROMPTS[0]))
        for _ in range(70):
            first.next()
        branch = copy.copy(first)
        branch.session, branch.tokens = session.fork(), [*first.tokens, 9]
        branch.logits = branch.step("decode", [9])
        for _ in range(70):
            first.next()
            branch.next()
        check_greedy(model, first.tokens, len(PROMPTS[0]))
        check_greedy(model, branch.tokens, len(PROMPTS[0]) + 71)
        assert first.tokens != branch.tokens


def test_wrong_positions_are_refused(language_model: tuple[Any, Path]) -> None:
    _, path = language_model
    with cudaexec.load(path) as module, module.session() as session:
        talk = Talk(session, list(PROMPTS[0]))
        for positions in ([0], [8], [-1]):
            with pytest.raises(cudaexec.InputError, match="position"):
                session.method("decode")(
                    input_ids=torch.tensor([[1]]), cache_position=torch.tensor(positions)
                )
            assert session.position == len(PROMPTS[0])
        before = talk.logits.clone()
        session.rewind(len(PROMPTS[0]) - 1)
        assert torch.allclose(talk.step("decode", [PROMPTS[0][-1]]), before, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def windowed(once: Callable[..., Path], target: str) -> tuple[Decoder, Path]:
    torch.manual_seed(0)
    model = Decoder(windows=(5, None), batch=2).eval()

    def make(directory: Path) -> None:
        size = width(8)
        program = torch.export.export(
            model,
            (torch.zeros(2, 3, dtype=torch.int64), torch.arange(3)),
            dynamic_shapes=({1: size}, {0: size}),
        )
        step = torch.export.export(model, (torch.zeros(2, 1, dtype=torch.int64), torch.arange(1)))
        cudaexec.export(
            methods={"prefill": program, "decode": step},
            path=directory / "model.pte",
            target=target,
            options=cudaexec.ExportOptions(kv_cache=KvCacheSpec.discover(program), gemm="cublas"),
        )

    return model, once(f"kv-windowed-{target}", make) / "model.pte"


def test_rings(windowed: tuple[Decoder, Path]) -> None:
    model, path = windowed
    with cudaexec.load(path) as module, module.session() as session:
        for widths in ([8, 8, 8], [1] * CAPACITY, [3, 1, 1, 7, 1, 8, 1, 2]):
            eager, position = copy.deepcopy(model), 0
            session.reset()
            for count in widths:
                tokens = torch.randint(0, 32, (2, count))
                positions = torch.arange(position, position + count)
                with torch.no_grad():
                    expected = eager(tokens, positions)
                got = session.method("decode" if count == 1 else "prefill")(tokens, positions)
                torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-4)
                position += count
        session.rewind(CAPACITY - 1)
        with torch.no_grad():
            expected = eager(tokens[:, -1:], torch.tensor([CAPACITY - 1]))
        got = session.method("decode")(tokens[:, -1:], torch.tensor([CAPACITY - 1]))
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_the_module_is_a_session_too(windowed: tuple[Decoder, Path]) -> None:
    model, path = windowed
    eager = copy.deepcopy(model)
    with cudaexec.load(path) as module:
        assert module.position == 0
        tokens = torch.randint(0, 32, (2, 6))
        with torch.no_grad():
            expected = eager(tokens, torch.arange(6))
        got = module.method("prefill")(tokens, torch.arange(6))
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-4)
        assert module.position == 6
        with module.session() as session:
            assert session.position == 0


def test_a_cache_takes_no_room_in_the_files(windowed: tuple[Decoder, Path]) -> None:
    model, path = windowed
    weights = sum(p.numel() * 4 for p in model.parameters())
    assert path.with_suffix(".ptd").stat().st_size < weights + 16384


@pytest.fixture(params=["float16", "bfloat16", "float8_e4m3fn"])
def narrow(
    request: pytest.FixtureRequest, once: Callable[..., Path], target: str
) -> Iterator[tuple[Decoder, Any, float]]:
    torch.manual_seed(0)
    model = Decoder(layers=1, windows=(None,)).eval()

    def make(directory: Path) -> None:
        step = torch.export.export(model, (torch.zeros(1, 1, dtype=torch.int64), torch.arange(1)))
        spec = KvCacheSpec(buffers=[("k0", "v0")], layers={0: Flat(5000)}, dtype=request.param)
        cudaexec.export(
            step,
            path=directory / "model.pte",
            target=target,
            options=cudaexec.ExportOptions(kv_cache=spec, gemm="cublas"),
        )

    path = once(f"kv-{request.param}-{target}", make) / "model.pte"
    # Rounding of the stored values: 2**-11, 2**-9, 2**-4 relative, through one linear layer.
    tolerance = {"float16": 2e-3, "bfloat16": 1.5e-2, "float8_e4m3fn": 0.3}[request.param]
    with cudaexec.load(path) as module:
        yield model, module, tolerance


def test_narrow_storage(narrow: tuple[Decoder, Any, float]) -> None:
    model, module, tolerance = narrow
    eager = copy.deepcopy(model)
    for position in range(CAPACITY):
        tokens, positions = torch.tensor([[position % 32]]), torch.tensor([position])
        with torch.no_grad():
            expected = eager(tokens, positions)
        got = module(tokens, positions)
        torch.testing.assert_close(got.cpu(), expected, rtol=tolerance, atol=tolerance)

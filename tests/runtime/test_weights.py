"""Weights: pairs of files, sharing, replacing; state of methods that write buffers."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cudaexec

pytestmark = pytest.mark.torch
Program = Callable[[str], Path]
X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)


def values(module: cudaexec.Module) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


def same_state(module: cudaexec.Module, expected: dict[str, np.ndarray]) -> None:
    found = values(module)
    assert list(found) == list(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def test_swapped_pair_is_refused(program: Program) -> None:
    a, b = program("mlp_a"), program("mlp_b")
    for pte, ptd in ((a, b), (b, a)):
        with pytest.raises(cudaexec.WeightsError) as caught:
            cudaexec.load(pte, ptd.with_suffix(".ptd"))
        for part in (ptd.with_suffix(".ptd").name, "0.", "digest", "expects"):
            assert part in str(caught.value)


def test_missing_entries_are_named(program: Program) -> None:
    with pytest.raises(cudaexec.WeightsError) as caught:
        cudaexec.load(program("mlp_a"), program("sequence").with_suffix(".ptd"))
    for part in ("sequence.ptd", "mlp_a.pte", "missing", "cuda_fqn_weight:cpu:0."):
        assert part in str(caught.value)


def test_missing_file_names_where_it_was_sought(program: Program, tmp_path: Path) -> None:
    alone = tmp_path / "alone.pte"
    shutil.copy(program("mlp_a"), alone)
    with pytest.raises(cudaexec.WeightsError) as caught:
        cudaexec.load(alone)
    for part in ("alone.pte", "alone.ptd", "aoti_cpu_blob.ptd", "4 weights"):
        assert part in str(caught.value)
    with pytest.raises(cudaexec.FileError):
        cudaexec.load(alone, tmp_path / "none.ptd")


@pytest.mark.parametrize("beside", ["link", "target", "executorch"])
def test_data_file_is_found(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    real = tmp_path / "real"
    real.mkdir()
    pte = real / "m.pte"
    shutil.copy(program("mlp_a"), pte)
    link = tmp_path / "link.pte"
    link.symlink_to(pte)
    data = program("mlp_a").with_suffix(".ptd")
    place = {
        "link": link.with_suffix(".ptd"),
        "target": real / "m.ptd",
        "executorch": tmp_path / "aoti_cpu_blob.ptd",
    }[beside]
    shutil.copy(data, place)
    monkeypatch.chdir(tmp_path)
    with cudaexec.load("link.pte") as module:
        assert module.stats()["data"].endswith(place.name)
        monkeypatch.chdir("/")
        assert module(X).shape == (4, 4)


def test_damage_is_found_unless_unverified(program: Program, tmp_path: Path) -> None:
    pte, ptd = tmp_path / "m.pte", tmp_path / "m.ptd"
    shutil.copy(program("mlp_a"), pte)
    data = bytearray(program("mlp_a").with_suffix(".ptd").read_bytes())
    data[-3] ^= 1
    ptd.write_bytes(data)
    with pytest.raises(cudaexec.WeightsError, match=r"m\.ptd at offset \d+: the weight '[02]\."):
        cudaexec.load(pte)
    with cudaexec.load(pte, options=cudaexec.LoadOptions(verify=False)) as module:
        assert module(X).shape == (4, 4)


def test_weights_are_used_in_place_and_once(program: Program, tmp_path: Path) -> None:
    copies = []
    for name in ("one", "two"):
        shutil.copy(program("mlp_a"), tmp_path / f"{name}.pte")
        shutil.copy(program("mlp_a").with_suffix(".ptd"), tmp_path / f"{name}.ptd")
        copies.append(tmp_path / f"{name}.pte")
    with cudaexec.load(copies[0]) as one:
        stats = one.memory_stats()
        assert stats["weights_mapped"] == 4 * (8 * 16 + 16 + 16 * 4 + 4)
        assert stats["weights_private"] == 0
        expected = one(X)
        two = cudaexec.load(copies[1])
        # The second file's mapping is gone: its weights are those of the first.
        maps = Path("/proc/self/maps").read_text()
        assert "one.ptd" in maps
        assert "two.ptd" not in maps
    np.testing.assert_array_equal(two(X), expected)
    assert "one.ptd" in Path("/proc/self/maps").read_text()
    two.close()
    assert "one.ptd" not in Path("/proc/self/maps").read_text()


def test_load_weights(program: Program) -> None:
    with cudaexec.load(program("mlp_a")) as a, cudaexec.load(program("mlp_b")) as b:
        old = a(X)
        assert not np.array_equal(old, b(X))
        a.load_weights(values(b))
        np.testing.assert_array_equal(a(X), b(X))
        same_state(a, values(b))
        # The other module over the same file is not affected.
        with cudaexec.load(program("mlp_a")) as again:
            np.testing.assert_array_equal(again(X), old)
            # The same values, given with other strides, change nothing.
            again.load_weights({k: np.asfortranarray(v) for k, v in values(again).items()})
            np.testing.assert_array_equal(again(X), old)


def test_load_weights_copies(program: Program) -> None:
    with cudaexec.load(program("mlp_a")) as module:
        new = {name: value + 1 for name, value in values(module).items()}
        kept = {name: value.copy() for name, value in new.items()}
        module.load_weights(new)
        expected = module(X)
        for value in new.values():
            value[...] = 0
        np.testing.assert_array_equal(module(X), expected)
        same_state(module, kept)


def test_load_weights_is_all_or_nothing(program: Program) -> None:
    with cudaexec.load(program("mlp_a")) as module:
        good = values(module)
        expected = module(X)
        changed = {name: value * 2 for name, value in good.items()}
        name = next(iter(good))
        for bad, error in (
            ({"nothing": good[name]}, cudaexec.WeightsError),
            ({name: good[name].astype(np.float64)}, cudaexec.DtypeError),
            ({name: good[name][..., :1]}, cudaexec.ShapeError),
        ):
            with pytest.raises(error, match="nothing was changed"):
                module.load_weights({**changed, **bad})
            np.testing.assert_array_equal(module(X), expected)
            same_state(module, good)


def test_tied_weights_change_together(program: Program) -> None:
    with cudaexec.load(program("tied")) as module:
        state = values(module)
        assert set(state) == {"embed.weight", "head.weight"}
        i = np.array([1, 2, 3])
        for name in state:
            new = np.random.default_rng(len(name)).standard_normal((10, 6)).astype(np.float32)
            module.load_weights({name: new})
            np.testing.assert_allclose(module(i), new[i] @ new.T, rtol=1e-5, atol=1e-5)
            same_state(module, dict.fromkeys(state, new))
        module.load_weights(dict.fromkeys(state, state["head.weight"]))
        with pytest.raises(cudaexec.WeightsError, match="tied"):
            module.load_weights({"embed.weight": new, "head.weight": new + 1})
        same_state(module, state)


def test_methods_share_state(program: Program) -> None:
    with cudaexec.load(program("sequence")) as module:
        add, read, scale = (module.method(name) for name in ("add", "read", "scale"))
        weight = np.arange(4, dtype=np.float32)
        total = np.zeros(4, np.float32)
        for step in range(1, 4):
            x = np.full(4, step, np.float32)
            total += x
            np.testing.assert_array_equal(add(x), total * weight)
            seen, shifted = read()
            np.testing.assert_array_equal(seen, total)
            np.testing.assert_array_equal(shifted, total + weight)
            np.testing.assert_array_equal(scale(x), x * weight)
            np.asarray(seen)[...] = -1  # an output is no way into the state
        same_state(module, {"base.total": total, "base.weight": weight})
        assert module.memory_stats()["state"] == 16
        # Another module over the same files starts afresh.
        with cudaexec.load(program("sequence")) as other:
            np.testing.assert_array_equal(other.method("read")()[0], np.zeros(4))


def test_state_can_be_set_and_survives_new_weights(program: Program) -> None:
    with cudaexec.load(program("sequence")) as module:
        add, read = module.method("add"), module.method("read")
        one = np.ones(4, np.float32)
        add(one)
        module.load_weights({"base.weight": one * 10})
        np.testing.assert_array_equal(add(one), one * 2 * 10)
        module.load_weights({"base.total": one * 5})
        np.testing.assert_array_equal(read()[0], one * 5)
        np.testing.assert_array_equal(add(one), one * 6 * 10)


def test_new_weights_under_running_calls(program: Program) -> None:
    """Every call sees one set of weights, never a mixture; later calls see the new ones."""
    with cudaexec.load(program("mlp_a")) as module, cudaexec.load(program("mlp_b")) as other:
        sets = [values(module), values(other)]
        answers = [module(X), other(X)]
        stop = threading.Event()
        wrong: list[str] = []

        def work() -> None:
            while not stop.is_set():
                y = module(X)
                if not any(np.array_equal(y, answer) for answer in answers):
                    wrong.append("mixed weights")
                    return

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for i in range(200):
            module.load_weights(sets[i % 2])
            if not np.array_equal(module(X), answers[i % 2]):
                wrong.append("an old weight after load_weights")
        stop.set()
        for thread in threads:
            thread.join()
        assert not wrong


def test_random_numbers_follow_the_seed(program: Program) -> None:
    with cudaexec.load(program("random")) as module, cudaexec.load(program("random")) as other:
        x = np.zeros(8, np.float32)
        module.manual_seed(5)
        first = [module(x), module(x)]
        assert not np.array_equal(*first)
        other.manual_seed(5)
        np.testing.assert_array_equal(first, [other(x), other(x)])
        module.manual_seed(6)
        assert not np.array_equal(first[0], module(x))

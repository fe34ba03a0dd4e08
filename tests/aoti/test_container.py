"""Containers: running, outputs of every kind, and errors that arrive as what they were."""

from __future__ import annotations

import gc
import json
import struct
import subprocess
import sys

import pytest
from libraries import HERE, floats, needs_compiler, sample_library, testing, unpack

import cudaexec

(SCALE, THROW, BAD_DTYPE, SERIAL_CHECK, REGION_CHECK, NONE, TWICE, INPUT, THROW_INT) = range(9)
SILENT, CERR, WEIGHT, REGEX, UNREAD_INPUTS = range(9, 14)


def mode(value: int) -> tuple[str, list[int], bytes]:
    return "int64", [1], struct.pack("<q", value)


def container(image: bytes) -> object:
    made = testing.Container(testing.open_library(image, "fake"))
    if made.constants:
        made.bind({"fc_weight": floats(3.0)})
    return made


@pytest.fixture
def counts() -> object:
    """Everything that a test makes is gone at its end."""
    before = testing.live_counts()
    yield
    gc.collect()  # pytest's exception records refer to themselves
    assert testing.live_counts() == before


@needs_compiler
@pytest.mark.usefixtures("counts")
class TestRuns:
    def test_a_result(self, fake_model: bytes) -> None:
        outputs = container(fake_model).run([floats(0.0, 1.0, -2.0), mode(SCALE)])
        assert unpack(outputs[0]) == [1.0, 3.0, -3.0]
        assert outputs[0][1:3] == ([3], [1])
        assert outputs[1] is None  # not written by the program

    def test_no_result(self, fake_model: bytes) -> None:
        assert container(fake_model).run([floats(1.0), mode(NONE)]) == [None, None]

    def test_one_result_in_two_places(self, fake_model: bytes) -> None:
        first, second = container(fake_model).run([floats(1.0, 2.0), mode(TWICE)])
        assert unpack(first) == unpack(second) == [1.0, 2.0]

    def test_an_input_comes_back(self, fake_model: bytes) -> None:
        assert unpack(container(fake_model).run([floats(4.0), mode(INPUT)])[0]) == [4.0]

    def test_a_constant(self, fake_model: bytes) -> None:
        assert unpack(container(fake_model).run([floats(1.0, 2.0), mode(WEIGHT)])[0]) == [3.0, 6.0]

    def test_executorch_sample_with_its_dense_weights(self) -> None:
        code, weights = sample_library()
        model = testing.Container(testing.open_library(code, "d_aoti_cpu"))
        assert [name for name, _, _ in model.constants] == ["fc1_weight", "fc1_bias", "fc2_weight"]
        model.bind_blob(weights)
        expected = json.loads((HERE.parent / "data/et_samples/expected.json").read_text())
        run = expected["d_aoti_cpu"]["forward"]
        (row,) = run["inputs"][0]
        output = model.run([("float32", [1, 8], floats(*row)[2])])[0]
        assert [unpack(output)] == run["output"]
        assert output[1] == [1, 4]


@needs_compiler
@pytest.mark.usefixtures("counts")
class TestErrors:
    def check_still_works(self, model: object) -> None:
        assert unpack(model.run([floats(2.0), mode(SCALE)])[0]) == [5.0]

    def test_its_own_exception(self, fake_model: bytes) -> None:
        model = container(fake_model)
        with pytest.raises(cudaexec.Error, match=r"'fake' failed to run: boom from the model"):
            model.run([floats(1.0), mode(THROW)])
        self.check_still_works(model)

    def test_its_own_exception_without_a_function_for_it(self, old_model: bytes) -> None:
        """torch before 2.13 only writes to stderr; that text is the message."""
        model = container(old_model)
        with pytest.raises(cudaexec.Error, match=r"failed to run: Error: boom from the model$"):
            model.run([floats(1.0), mode(THROW)])
        self.check_still_works(model)

    def test_no_message_at_all(self, old_model: bytes) -> None:
        with pytest.raises(cudaexec.Error, match="failed to run: no reason given"):
            container(old_model).run([floats(1.0), mode(SILENT)])

    def test_an_exception_of_another_type(self, fake_model: bytes) -> None:
        with pytest.raises(cudaexec.Error, match="Unknown exception"):
            container(fake_model).run([floats(1.0), mode(THROW_INT)])

    def test_a_shim_keeps_its_type(self, fake_model: bytes) -> None:
        model = container(fake_model)
        with pytest.raises(cudaexec.errors.NotSupported, match="dtype code 99"):
            model.run([floats(1.0), mode(BAD_DTYPE)])
        self.check_still_works(model)

    def test_inputs_that_were_not_taken(self, fake_model: bytes) -> None:
        with pytest.raises(cudaexec.Error, match="before inputs were taken"):
            container(fake_model).run([floats(1.0), mode(UNREAD_INPUTS)])

    @pytest.mark.parametrize("count", [4, 20000])
    @pytest.mark.parametrize("threads", [1, 2, 5])
    @pytest.mark.parametrize("kind", [SERIAL_CHECK, REGION_CHECK])
    def test_a_failed_check(self, fake_model: bytes, count: int, threads: int, kind: int) -> None:
        """Also in a parallel region, in whichever thread; the others do not wait for it for ever."""
        testing.override_allowed_threads(threads)
        try:
            model = container(fake_model)
            for bad in (0, count // 2, count - 1):
                values = [1.0] * count
                values[bad] = -1.0
                with pytest.raises(cudaexec.errors.InputError) as caught:
                    model.run([floats(*values), mode(kind)], threads)
                message = str(caught.value)
                assert (
                    "a check of the program failed: 0 <= x (in kernel, path.cpp line 7)" in message
                )
                assert "/build/machine" not in message
                self.check_still_works(model)
            good = [floats(*[1.0] * count), mode(REGION_CHECK)]  # adds 1 twice
            assert unpack(model.run(good, threads)[0]) == [3.0] * count
        finally:
            testing.override_allowed_threads(0)

    def test_constants_must_be_bound_once_and_all(self, fake_model: bytes) -> None:
        model = testing.Container(testing.open_library(fake_model, "fake"))
        with pytest.raises(cudaexec.Error, match="not bound yet"):
            model.run([floats(1.0), mode(WEIGHT)])
        with pytest.raises(
            cudaexec.errors.WeightsError, match=r"no value for the constants \[fc.weight\]"
        ):
            model.bind({})
        with pytest.raises(
            cudaexec.errors.WeightsError, match=r"'fc.weight' of 'fake' has dtype int64"
        ):
            model.bind({"fc_weight": mode(1)})
        model.bind({"fc_weight": floats(3.0)})
        with pytest.raises(cudaexec.Error, match="bound already"):
            model.bind({"fc_weight": floats(3.0)})

    def test_wrong_number_of_inputs(self, fake_model: bytes) -> None:
        with pytest.raises(cudaexec.Error, match="takes 2 inputs, got 1"):
            container(fake_model).run([floats(1.0)])

    def test_short_weights(self) -> None:
        code, weights = sample_library()
        model = testing.Container(testing.open_library(code, "d_aoti_cpu"))
        with pytest.raises(
            cudaexec.errors.WeightsError, match="have 800 bytes, its 3 constants take 832"
        ):
            model.bind_blob(weights[:800])

    def test_no_model_at_all(self, parallel: bytes) -> None:
        with pytest.raises(
            cudaexec.errors.TargetError, match="AOTInductorModelContainerCreateWithDevice"
        ):
            testing.Container(testing.open_library(parallel, "x"))


@needs_compiler
def test_nothing_reaches_stderr(fake_model: bytes, old_model: bytes, tmp_path: object) -> None:
    """While generated code runs; a program of others' that is linked with us keeps its stderr."""
    script = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import pathlib
from test_container import *
for path in sys.argv[1:]:
    model = container(pathlib.Path(path).read_bytes())
    for kind in (CERR, THROW, THROW_INT, REGEX):
        try:
            model.run([floats(1.0), mode(kind)])
        except cudaexec.Error:
            pass
"""
    paths = []
    for name, image in (("new", fake_model), ("old", old_model)):
        (tmp_path / name).write_bytes(image)
        paths.append(str(tmp_path / name))
    done = subprocess.run(
        [sys.executable, "-c", script, *paths], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")

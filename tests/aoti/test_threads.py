"""The pool behind OpenMP's entry points: team sizes, limits, barriers, forks, several callers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from ctypes import addressof, c_double, c_int, c_int64, c_void_p
from pathlib import Path

import pytest
from libraries import HERE, floats, function, needs_compiler, testing, unpack
from test_container import REGION_CHECK, container, mode

pytestmark = needs_compiler


# Earlier tests may have left more than seven workers elsewhere.
at_most_eight_cpus = pytest.mark.skipif(len(os.sched_getaffinity(0)) > 8, reason="many CPUs")


@pytest.fixture
def eight() -> Iterator[None]:
    """Eight threads may run, however few CPUs there are."""
    testing.override_allowed_threads(8)
    yield
    testing.override_allowed_threads(0)


@pytest.fixture(scope="module")
def library(parallel: bytes) -> object:
    return testing.open_library(parallel, "parallel")


@pytest.mark.usefixtures("eight")
class TestTeams:
    @pytest.mark.parametrize("threads", range(1, 9))
    def test_size(self, library: object, threads: int) -> None:
        team_size = function(library, "team_size", c_int, c_int)
        assert team_size(threads) == threads

    def test_more_than_allowed(self, library: object) -> None:
        """Generated code asks for what its exporter had."""
        assert function(library, "team_size", c_int, c_int)(3000) == 8

    def test_default(self, library: object) -> None:
        assert function(library, "default_team", c_int)() == 8
        assert function(library, "max_threads", c_int)() == 8

    def test_inside_a_region_there_is_one(self, library: object) -> None:
        assert function(library, "nested", c_int, c_int)(4) == 1

    @pytest.mark.parametrize("threads", [1, 2, 3, 8])
    @pytest.mark.parametrize("kind", range(7))
    def test_loops(self, library: object, kind: int, threads: int) -> None:
        total = function(library, "sum", c_int64, c_int, c_int, c_int64)
        for n in (0, 1, 7, 1000):
            expected = sum(range(0, n, 2)) if kind == 6 else sum(range(n)) * (9 if kind == 4 else 1)
            assert total(kind, threads, n) == expected

    @pytest.mark.parametrize("threads", [1, 2, 8])
    def test_barriers(self, library: object, threads: int) -> None:
        assert function(library, "barriers", c_int, c_int, c_int)(threads, 50) == 0

    @pytest.mark.parametrize("threads", [1, 2, 8])
    def test_single_and_critical(self, library: object, threads: int) -> None:
        assert function(library, "sections", c_int64, c_int, c_int)(threads, 50) == 50

    @at_most_eight_cpus
    def test_workers_are_kept(self, library: object) -> None:
        team_size = function(library, "team_size", c_int, c_int)
        assert team_size(8) == 8
        before = testing.worker_count()
        assert before == 7
        for _ in range(100):
            assert team_size(8) == 8
        assert testing.worker_count() == before

    @at_most_eight_cpus
    def test_a_busy_pool_does_not_hold_up_another_caller(self, library: object) -> None:
        busy = function(library, "busy", None, c_int, c_void_p, c_void_p)
        team_size = function(library, "team_size", c_int, c_int)
        begun, stop = c_int(0), c_int(0)
        first = threading.Thread(target=busy, args=(8, addressof(begun), addressof(stop)))
        first.start()
        while begun.value == 0:
            time.sleep(0.001)
        alone = team_size(8)
        waited = not first.is_alive()
        stop.value = 1
        first.join()
        assert (begun.value, alone, waited) == (8, 1, False)
        assert team_size(8) == 8

    def test_many_callers(self, library: object) -> None:
        total = function(library, "sum", c_int64, c_int, c_int, c_int64)

        def work(kind: int) -> bool:
            expected = 4950 * (9 if kind == 4 else 1)
            return all(total(kind, 1 + i % 8, 100) == expected for i in range(100))

        with ThreadPoolExecutor(6) as pool:
            assert all(pool.map(work, range(6)))

    def test_checks_fail_in_several_callers_at_once(self, fake_model: bytes) -> None:
        def work(bad: int) -> int:
            model = container(fake_model)
            failed = 0
            for i in range(30):
                values = [1.0] * 999
                if i % 2:
                    values[bad] = -1.0
                try:
                    assert unpack(model.run([floats(*values), mode(REGION_CHECK)], 4)[0])[0] == 3.0
                except Exception:
                    failed += 1
            return failed

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(work, [0, 300, 600, 998])) == [15] * 4


@pytest.mark.usefixtures("eight")
def test_a_forked_child_has_workers_of_its_own(library: object) -> None:
    team_size = function(library, "team_size", c_int, c_int)
    total = function(library, "sum", c_int64, c_int, c_int, c_int64)
    assert team_size(4) == 4
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(60)
            inherited = testing.worker_count()
            right = team_size(4) == 4 and total(1, 8, 1000) == 499500
            status = 0 if right and inherited == 0 and testing.worker_count() == 7 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert team_size(4) == 4


LIMITS = """
import sys
sys.path.insert(0, {here!r})
from libraries import *
import pathlib
from ctypes import c_int, c_int64
library = testing.open_library(pathlib.Path(sys.argv[1]).read_bytes())
default = function(library, "default_team", c_int)()
assert function(library, "sum", c_int64, c_int, c_int, c_int64)(0, 999, 1000) == 499500
print(testing.default_threads(), default, function(library, "team_size", c_int, c_int)(999),
      testing.worker_count())
"""


def limits(tmp_path: Path, parallel: bytes, *prefix: str, **environment: str) -> list[int]:
    """Default threads, size of a default team and of a large one, and workers, in a new process."""
    (tmp_path / "parallel.so").write_bytes(parallel)
    script = LIMITS.format(here=str(HERE))
    env = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"} | environment
    command = [*prefix, sys.executable, "-c", script, str(tmp_path / "parallel.so")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env, timeout=120)
    assert done.stderr == ""
    return [int(word) for word in done.stdout.split()]


class TestLimits:
    cpus = len(os.sched_getaffinity(0))

    def test_affinity(self, tmp_path: Path, parallel: bytes) -> None:
        allowed = sorted(os.sched_getaffinity(0))
        one = limits(tmp_path, parallel, "taskset", "-c", str(allowed[0]))
        assert one == [1, 1, 1, 0]

    def test_all(self, tmp_path: Path, parallel: bytes) -> None:
        threads, default, large, workers = limits(tmp_path, parallel)
        assert 1 <= threads <= self.cpus
        assert default == large == workers + 1 == threads

    def test_one_by_environment(self, tmp_path: Path, parallel: bytes) -> None:
        assert limits(tmp_path, parallel, OMP_NUM_THREADS="1") == [1, 1, 1, 0]
        assert limits(tmp_path, parallel, OMP_NUM_THREADS="1,4")[0] == 1

    @pytest.mark.parametrize("value", ["999", "0", "-3", "many", ""])
    def test_environment_does_not_raise_the_limit(
        self, tmp_path: Path, parallel: bytes, value: str
    ) -> None:
        assert limits(tmp_path, parallel, OMP_NUM_THREADS=value) == limits(tmp_path, parallel)

    def test_limit_of_a_call(self, fake_model: bytes) -> None:
        """threads= above the allowed CPUs is clamped; 1 never starts a worker."""
        before = testing.worker_count()
        model = container(fake_model)
        values = floats(*[1.0] * 100)
        for threads in (1, 64):
            assert unpack(model.run([values, mode(REGION_CHECK)], threads)[0])[0] == 3.0
        assert testing.worker_count() <= max(before, self.cpus - 1)

    def test_the_process_ends_with_workers_spinning(self, tmp_path: Path, parallel: bytes) -> None:
        for _ in range(3):
            assert limits(tmp_path, parallel)[0] >= 1


class TestQuotas:
    def write(self, root: Path, files: dict[str, str]) -> int:
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return testing.cgroup_cpus(str(root))

    def test_version_2(self, tmp_path: Path) -> None:
        own = {"proc/self/cgroup": "0::/a/b\n"}
        assert self.write(tmp_path, own) == 0
        assert self.write(tmp_path, {"sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}) == 0
        assert self.write(tmp_path, {"sys/fs/cgroup/a/cpu.max": "250000 100000\n"}) == 3
        assert self.write(tmp_path, {"sys/fs/cgroup/a/b/cpu.max": "50000 100000\n"}) == 1

    def test_version_2_in_a_container(self, tmp_path: Path) -> None:
        files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}
        assert self.write(tmp_path, files) == 2

    def test_version_1(self, tmp_path: Path) -> None:
        files = {
            "proc/self/cgroup": "4:memory:/m\n3:cpuset,cpu,cpuacct:/docker/x\n",
            "sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us": "150000\n",
            "sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us": "100000\n",
        }
        assert self.write(tmp_path, files) == 2
        unlimited = {"sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us": "-1\n"}
        assert self.write(tmp_path, unlimited) == 0

    def test_nonsense(self, tmp_path: Path) -> None:
        files = {"proc/self/cgroup": "\n:::\n0::/\nx", "sys/fs/cgroup/cpu.max": "a b c"}
        assert self.write(tmp_path, files) == 0


PLACES = """
import os, sys
sys.path.insert(0, {here!r})
from ctypes import c_int
from pathlib import Path
from libraries import function, testing
library = testing.open_library(Path(sys.argv[1]).read_bytes(), "parallel")
barriers = function(library, "barriers", c_int, c_int, c_int)
barriers(2, 1)
name = lambda task: Path(f"/proc/self/task/{{task}}/comm").read_text().strip()
(worker,) = [int(task) for task in os.listdir("/proc/self/task") if name(task) == "cudaexec"]
allowed = os.sched_getaffinity(0)
# Not what the worker may have kept for itself: that could not be told from a user's wish.
here = min(cpu for cpu in allowed if os.sched_getaffinity(worker) != {{cpu}})
os.sched_setaffinity(0, {{here}})
os.sched_setaffinity(worker, {{here}})
barriers(2, 10)
print(os.sched_getaffinity(worker) == {{here}})
os.sched_setaffinity(worker, allowed)
for _ in range(300):
    barriers(2, 10)
cpu = int(Path(f"/proc/self/task/{{worker}}/stat").read_text().rsplit(")", 1)[1].split()[36])
print(cpu != here)
"""


@pytest.mark.skipif(TestLimits.cpus < 2, reason="needs two CPUs")
def test_workers_keep_off_the_callers_cpu(tmp_path: Path, parallel: bytes) -> None:
    """Taking turns on one processor costs more than having one thread; a user's mask is kept."""
    (tmp_path / "parallel.so").write_bytes(parallel)
    command = [sys.executable, "-c", PLACES.format(here=str(HERE)), str(tmp_path / "parallel.so")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["True", "True"]


def test_region_of_one_thread_costs_little(library: object) -> None:
    """A limit on something that is paid by every small model: measured 9 ns."""
    assert function(library, "empty_region", c_double, c_int, c_int)(1, 50) < 200

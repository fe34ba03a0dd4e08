"""Parts of the core that need no program: compiled with their test and run, one process per test."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CPP = ROOT / "cpp"
MEMORY = [
    *(
        CPP / "memory" / f"{name}_allocator.cpp"
        for name in ("caching", "cpu", "limiting", "statistics")
    ),
    CPP / "base/error.cpp",
    CPP / "base/fault.cpp",
    CPP / "base/fork_mutex.cpp",
]
TENSOR = [*MEMORY, *(CPP / "tensor" / f"{name}.cpp" for name in ("storage", "dtype", "tensor"))]

# test file -> (sources it needs, its tests)
UNITS = {
    "allocator_test": (
        MEMORY,
        [
            "one_thread",
            "many_threads",
            "failure",
            "caching_reuses",
            "caching_rounds_up_by_a_quarter_at_most",
            "caching_keeps_within_its_bound",
            "caching_returns_its_blocks_before_it_gives_up",
            "limit_names_sizes_and_recovers",
            "statistics_counts",
        ],
    ),
    "runtime_test": (
        [
            *TENSOR,
            CPP / "device/cpu_features.cpp",
            *(
                CPP / "runtime" / f"{name}.cpp"
                for name in (
                    "variant_choice",
                    "weight_cache",
                    "weight_table",
                    "working_memory",
                )
            ),
        ],
        [
            "levels_of_known_machines",
            "host_features_agree_with_the_compiler",
            "variant_is_the_first_that_runs",
            "variant_reasons_name_what_is_missing",
            "variant_can_be_forced",
            "weights_are_shared_by_content",
            "weights_go_with_their_last_user",
            "weights_survive_races",
            "misaligned_weights_are_copied",
            "table_resolves_ties",
            "table_refuses_contradictions",
            "working_memory_outlives_its_owner",
            "gate_waits_for_calls",
        ],
    ),
    "graph_test": (
        [*TENSOR, *(CPP / "runtime" / f"{name}.cpp" for name in ("graph_key", "graph_state"))],
        [
            "every_state_and_event",
            "phases_decide_how_a_call_runs",
            "warmup_counts_good_runs",
            "captures_wait_longer_after_each_yield",
            "keys_tell_signatures_apart",
            "keys_ignore_what_does_not_matter",
            "keys_name_the_difference",
            "the_least_recent_entry_goes",
            "places_never_overlap",
        ],
    ),
}


@pytest.fixture(scope="session")
def unit(once: Callable[[str, Callable[[Path], None]], Path]) -> Callable[[str], Path]:
    """`unit(name)` is the compiled test program of tests/cpp/<name>.cpp."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ here")

    def build(name: str) -> Path:
        def make(directory: Path) -> None:
            sources = [ROOT / "tests" / "cpp" / f"{name}.cpp", *UNITS[name][0]]
            command = [compiler, "-std=c++20", "-O1", "-g", "-Wall", "-Wextra", "-pthread"]
            command += ["-I", str(CPP), "-I", str(ROOT / "tests" / "cpp")]
            command += ["-o", str(directory / name), *map(str, sources)]
            subprocess.run(command, check=True)

        return once(name, make) / name

    return build


@pytest.mark.parametrize(
    ("name", "test"), [(name, test) for name, (_, tests) in UNITS.items() for test in tests]
)
def test_unit(unit: Callable[[str], Path], name: str, test: str) -> None:
    result = subprocess.run([unit(name), test], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", UNITS)
def test_every_unit_test_is_listed(unit: Callable[[str], Path], name: str) -> None:
    listed = subprocess.run([unit(name)], capture_output=True, text=True, timeout=60, check=True)
    assert listed.stdout.split() == UNITS[name][1]

"""How many threads each loop of the generated kernels gets.

With `cpp.dynamic_threads` Inductor makes every loop a parallel region, whatever its length, and
with a fixed number of threads it decides by the example's sizes once and for all, and sizes the
helpers of long sums for that number. Here each region asks for one thread per `GRAIN` elements
(`num_threads(...)`, from the real sizes where they are dynamic), the runtime gives at most what it
has, and a loop that is always short is no region. Arrays of partial results are sized by
`omp_get_max_threads()` at run time, which no team exceeds; every partial is initialised before the
region and combined after it, so smaller teams are right too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import sympy

# Elements per thread, and below twice that no second thread: waking one costs about as much.
GRAIN = 2048
# Assumed by Inductor's choice of how many loop levels to run in parallel.
PLANNED_THREADS = 32
# Its threshold: a nest of fewer than PLANNED_THREADS * MIN_CHUNK = 2 * GRAIN elements is serial.
MIN_CHUNK = 2 * GRAIN // PLANNED_THREADS
_MAX_THREADS = 1024

_MARK = "// work: "
_PARALLEL = "#pragma omp parallel"
_HELPER = f"""\
#include <algorithm>
#include <cstdint>
static inline int cudaexec_team(int64_t work) {{
    const int64_t threads = work / {GRAIN};
    return threads < 1 ? 1 : threads > {_MAX_THREADS} ? {_MAX_THREADS} : static_cast<int>(threads);
}}
"""


class WorkNotes:
    """The work of the loop nest that is being written, as a C++ expression."""

    def __init__(self) -> None:
        self.expression = ""


def deciding(
    original: Callable[..., Any],
    parallel_depth: type,
    cexpr: Callable[[Any], str],
    notes: WorkNotes,
) -> Callable[..., Any]:
    """Wrap `CppKernel.decide_parallel_depth`: note the work; only loops that can be long split.

    Args:
        original: decides for `PLANNED_THREADS` threads, at least one level.
        parallel_depth: Inductor's ParallelDepth.
        cexpr: prints an index expression as C++.
        notes: receives the work.
    """

    def decide(self: Any, maximum: Any, threads: int) -> Any:
        total = sympy.Mul(*self.call_ranges)
        notes.expression = cexpr(self.rename_indexing(total))
        decided = original(self, maximum, threads)
        if isinstance(total, sympy.Integer) and int(total) < 2 * GRAIN:
            return parallel_depth(parallel_depth=0, start_depth=maximum.start_depth)
        return decided

    return decide


def marking(original: Callable[..., Any], notes: WorkNotes) -> Callable[..., Any]:
    """Wrap `WorkSharing.parallel`: write the nest's work into the region it runs in."""

    def parallel(self: Any, threads: int) -> None:
        original(self, threads)
        self.code.writeline(_MARK + notes.expression)

    return parallel


def limit_teams(kernels: str) -> str:
    """Give every region of a kernel source the clause that its marks ask for.

    Regions without a mark keep the runtime's choice.
    """
    pieces = re.split(rf"^([ \t]*){_PARALLEL}[ \t]*$", kernels, flags=re.MULTILINE)
    out = [pieces[0]]
    for indent, body in zip(pieces[1::2], pieces[2::2], strict=True):
        works = list(dict.fromkeys(re.findall(rf"{_MARK}(.*)$", body, re.MULTILINE)))
        out.append(f"{indent}{_PARALLEL}{_clause(works)}{body}")
    text = "".join(out)
    text = re.sub(rf"^[ \t]*{_MARK}.*\n", "", text, flags=re.MULTILINE)
    return _HELPER + text if "cudaexec_team(" in text else text


def _clause(works: list[str]) -> str:
    if not works:
        return ""
    matches = [re.fullmatch(r"(?:static_cast<int64_t>\()?(\d+)L*\)?", work) for work in works]
    numbers = [int(match[1]) for match in matches if match]
    if len(numbers) == len(works):
        return f" num_threads({min(max(max(numbers) // GRAIN, 1), _MAX_THREADS)})"
    inner = works[0] if len(works) == 1 else f"std::max<int64_t>({{{', '.join(works)}}})"
    return f" num_threads(cudaexec_team({inner}))"

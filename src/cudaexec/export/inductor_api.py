"""Everything of Inductor that export uses, imported once, quietly and quickly.

The import takes 1.7 s with the cyclic garbage collector running and 1.0 s without, and torch's own
modules warn about torch while they are imported.
"""

from __future__ import annotations

import gc
import warnings

_collecting = gc.isenabled()
gc.disable()
try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch._inductor import choices, config, cpu_vec_isa, select_algorithm
        from torch._inductor import graph as inductor_graph
        from torch._inductor import ir as inductor_ir
        from torch._inductor import lowering as inductor_lowering
        from torch._inductor.codegen import cpp as cpp_codegen
        from torch._inductor.compile_fx import compile_fx_aot, compile_fx_inner
        from torch._inductor.decomposition import select_decomp_table as decomposition_table
        from torch._inductor.fx_passes import joint_graph
        from torch._inductor.runtime import triton_heuristics
        from torch._inductor.virtualized import V
finally:
    if _collecting:
        gc.enable()

__all__ = [
    "V",
    "choices",
    "compile_fx_aot",
    "compile_fx_inner",
    "config",
    "cpp_codegen",
    "cpu_vec_isa",
    "decomposition_table",
    "inductor_graph",
    "inductor_ir",
    "inductor_lowering",
    "joint_graph",
    "select_algorithm",
    "triton_heuristics",
]

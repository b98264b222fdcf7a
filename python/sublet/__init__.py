"""Plans the memory of a deep network before it runs.

    >>> import sublet
    >>> plan = sublet.plan(start=[0, 1, 2], end=[2, 3, 4], size=[4096, 8192, 4096])
    >>> plan.peak, plan.optimal
    (12288, True)
    >>> plan.offsets.tolist()[0] == plan.offsets.tolist()[2]
    True
"""

from importlib.metadata import version

from ._problem import (
    FREE,
    ITERATION,
    MALLOC,
    PERSISTENT,
    READ,
    SWAP_IN,
    SWAP_OUT,
    TRANSIENT,
    WRITE,
    Graph,
    Operators,
    Problem,
    Trace,
)
from ._results import Device, Diagnosis, Fit, Plan, Span, compare, doctor, fit, plan, read_snapshot, sweep, verify
from ._sublet import PlanError

__version__ = version("sublet")

__all__ = [
    "FREE",
    "ITERATION",
    "MALLOC",
    "PERSISTENT",
    "READ",
    "SWAP_IN",
    "SWAP_OUT",
    "TRANSIENT",
    "WRITE",
    "Device",
    "Diagnosis",
    "Fit",
    "Graph",
    "Operators",
    "Plan",
    "PlanError",
    "Problem",
    "Span",
    "Trace",
    "__version__",
    "compare",
    "doctor",
    "fit",
    "plan",
    "read_snapshot",
    "sweep",
    "verify",
]

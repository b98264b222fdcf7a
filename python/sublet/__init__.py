"""Plans the memory of a deep network before it runs.

    >>> import sublet
    >>> plan = sublet.plan(start=[0, 1, 2], end=[2, 3, 4], size=[4096, 8192, 4096])
    >>> plan.peak, plan.optimal
    (12288, True)
    >>> plan.offsets.tolist()[0] == plan.offsets.tolist()[2]
    True
"""

from ._problem import Graph, Problem, Trace
from ._results import Device, Diagnosis, Fit, Plan, compare, doctor, fit, plan, read_snapshot, sweep, verify
from ._sublet import PlanError

__all__ = [
    "Device",
    "Diagnosis",
    "Fit",
    "Graph",
    "Plan",
    "PlanError",
    "Problem",
    "Trace",
    "compare",
    "doctor",
    "fit",
    "plan",
    "read_snapshot",
    "sweep",
    "verify",
]

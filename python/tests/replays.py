"""Taped steps whose arguments, networks or optimizers change between the calls. Prints for each case whether it gives
the bits of eager PyTorch, or its error, as lines of JSON.

    python replays.py
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from replay_refused import REFUSED, Output
from replay_same import CALLS, SAME, Case
from torch import Tensor

import sublet.torch


def trained(make: Callable[[], Case], taped: bool) -> list[Tensor]:
    """All that some calls give, and what is there afterwards."""
    case = make()
    run: Any = sublet.torch.step(case.step, *case.kept(), limit=case.limit()) if taped else case.step
    torch.manual_seed(1)
    told: list[Tensor] = []
    for i in range(CALLS):
        case.change(i)
        results = run(*case.arguments(i), **case.named(i))
        results = results.loss if isinstance(results, Output) else results
        each = results if isinstance(results, tuple) else (results,)
        told += [r.resolve_conj().resolve_neg().clone() for r in each]
        case.after()
    return [*told, *case.values()]


def main() -> None:
    torch.set_num_threads(1)
    for make in [*SAME, *REFUSED]:
        line: dict[str, Any] = {"case": make.__name__, "same": make in SAME}
        try:
            eager, taped = trained(make, False), trained(make, True)
            line["equal"] = len(eager) == len(taped) and all(map(torch.equal, eager, taped))
        except Exception as e:
            line["error"] = f"{type(e).__name__}: {e}"
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

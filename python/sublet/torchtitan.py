"""torchtitan within a memory limit: a memory policy of its graph trainer, with a limit for each rank.

    torchrun … -m torchtitan.train --module sublet.torchtitan --config graph_trainer_llama3_8b --compile.limit 60GiB

All configurations of torchtitan's graph trainer have their names here. `--compile.memory_policy` is `sublet` unless it is given,
and all other policies run as they do there.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import pkgutil
import warnings
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves
from torchtitan.experiments import graph_trainer
from torchtitan.experiments.graph_trainer import passes as titan
from torchtitan.experiments.graph_trainer.configs import GraphTrainerCompileConfig
from torchtitan.experiments.graph_trainer.registry import (
    register_memory_policy,
    register_pass_pipeline,
    register_post_init_hook,
)

from . import PlanError
from ._results import bytes_of as size_in_bytes
from .torch._measure import HEAP
from .torch._ranks import Speaking
from .torch._taken import TOLERATED, OverLimit, said
from .torch._whole import Whole, by_operator, peak_of, planned

NAME = "sublet"
TRIES = 10
"""How many plans are tried at most, since passes that follow make a step take more."""
REPLACED = ("tag_with_memory_policy_pass", "apply_cpu_offload_pass", "selective_activation_remat_pass")
"""The passes of torchtitan in whose place the plan is made."""
COMPILES = ("annotate_flex_attention_for_regional_inductor_pass", "annotate_rmsnorm_for_regional_inductor_pass")
"""Where passes begin that do not change what is alive."""
log = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True)
class CompileConfig(GraphTrainerCompileConfig):
    """What torchtitan's graph trainer is told, and a limit."""

    memory_policy: str = NAME
    """`sublet`, or a policy of torchtitan."""
    pass_pipeline: str = NAME
    """The pipeline of passes: `sublet`, or one of torchtitan, in which the policy `sublet` is an error."""
    limit: str = ""
    """The most bytes that a rank takes in a step, such as `60GiB`: parameters, buffers, inputs, the optimizer's state,
    gradients, activations and scratch. Or a share, such as `60%`, of what that is without a plan."""


@dataclass(frozen=True)
class Report:
    """What was planned for a rank, in bytes."""

    limit: int
    """The limit."""
    planned: int
    """The most that a step takes: the larger of the plan and of the estimate of the graph that runs."""
    original: int
    """The same without a plan."""
    held: int
    """What is there before a step: parameters, buffers, inputs, the optimizer's state, gradients that add up."""
    overhead: float
    """The time over the original's, minus 1, by operators that were measured one by one."""
    again: list[str]
    """The operators that run again."""


reports: list[Report] = []
"""A report for each step that was planned in this process."""
taken: list[int] = []
"""The bytes that each step has taken, the first one excepted: in that operators are measured."""
_trainers: weakref.WeakSet[Any] = weakref.WeakSet()


def __getattr__(name: str) -> Callable[[], Any]:
    """A configuration of torchtitan's graph trainer, by its name there."""
    if not name.startswith("graph_trainer_"):
        raise AttributeError(f"sublet.torchtitan has no {name!r}; configurations are those of torchtitan's graph trainer")
    for info in pkgutil.iter_modules(graph_trainer.__path__):
        if not info.ispkg or info.name == "tests":
            continue
        try:
            found = importlib.import_module(f"{graph_trainer.__name__}.{info.name}.config_registry")
        except ImportError:
            continue
        if hasattr(found, name):
            return lambda: within_limit(getattr(found, name)())
    raise AttributeError(f"torchtitan's graph trainer has no configuration {name!r}")


def within_limit(config: Any, limit: str = "") -> Any:
    """A configuration of the graph trainer with the memory policy `sublet`. `limit` is that of `CompileConfig`."""
    values = {f.name: getattr(config.compile, f.name) for f in fields(GraphTrainerCompileConfig)}
    config.compile = CompileConfig(**{**values, "memory_policy": NAME, "pass_pipeline": NAME}, limit=limit)
    return config


@register_memory_policy(NAME)
def _policy(module: fx.GraphModule, *, config: Any) -> fx.GraphModule:
    raise PlanError("--compile.memory_policy sublet needs --module sublet.torchtitan and --compile.pass_pipeline sublet")


@register_post_init_hook(NAME)
def _has_started(trainer: Any) -> None:
    """Notes a trainer, and counts what its steps take."""
    _trainers.add(trainer)
    run = trainer.forward_backward_step
    known = weakref.ref(trainer)

    def counted(**given: Any) -> Any:
        trainer: Any = known()
        is_first = trainer._traced_step is None
        tensors = [*_state_of(trainer), *(x for x in tree_leaves(given) if isinstance(x, Tensor))]
        storages = (_local(x).untyped_storage() for x in tensors)
        # Gradients may be parts of one bucket.
        there = sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
        since = None if trainer.device.type == "cuda" else HEAP.since(trainer.device)
        loss = run(**given)
        if not is_first and trainer.config.compile.memory_policy == NAME:
            _count(torch.cuda.max_memory_allocated(trainer.device) if since is None else there + since.peak)
        return loss

    trainer.forward_backward_step = counted


def _count(size: int) -> None:
    """Notes what a step has taken, and warns once where that is more than the limit."""
    taken.append(size)
    limit = reports[-1].limit
    if size > limit + max(TOLERATED, limit // 100):
        text = f"sublet: this step took {said(size)}, {said(size - limit)} more than its limit of {said(limit)}"
        warnings.warn(f"{text}; {said(reports[-1].planned)} were planned", OverLimit, stacklevel=2)


@register_pass_pipeline(NAME)
def _pipeline(traced: Any, config: Any, *, parallel_dims: Any = None) -> list[Callable[..., Any]]:
    """torchtitan's passes, with the plan in the place of its memory policy."""
    passes = titan.construct_default_graph_passes(traced, config, parallel_dims=parallel_dims)
    if config.compile.memory_policy != NAME:
        return passes
    if not config.compile.limit:
        raise PlanError("--compile.memory_policy sublet needs --compile.limit, such as 60GiB")
    if config.compile.inductor_compilation == "full":
        raise PlanError("--compile.inductor_compilation full puts operators into other loops than the plan's; leave it at regional")
    if config.compile.precompile_artifact_dir or config.compile.ep_overlap.enabled:
        raise PlanError("sublet plans neither steps that were compiled before, nor those with ep_overlap")
    names = [titan._get_pass_name(each) for each in passes]
    begin = names.index(REPLACED[0])
    assert names[begin : begin + len(REPLACED)] == list(REPLACED)
    end = next(i for i, name in enumerate(names) if name in COMPILES)
    disabled = set(config.compile.disable_passes)
    following = [each for each, name in zip(passes, names) if each in passes[begin + len(REPLACED) : end] and name not in disabled]
    trainer = next(each for each in _trainers if each.config is config)
    group = dist.group.WORLD if dist.is_initialized() and dist.get_world_size() > 1 else None
    # As long as collectives wait in the first step: a rank that has ended ends the others too.
    ranks = None if group is None else Speaking(group, config.comm.init_timeout_seconds)

    def sublet_memory_pass(module: fx.GraphModule, inputs: Any = None) -> fx.GraphModule:
        return _within(module, inputs, config.compile.limit, _held(trainer), following, ranks)

    return [*passes[:begin], sublet_memory_pass, *passes[end:]]


def _within(
    module: fx.GraphModule, inputs: Any, limit: str, held: int, following: list[Callable[..., Any]], ranks: Speaking | None
) -> fx.GraphModule:
    """The graph of a step that stays within a limit when all following passes have run. PlanError on all ranks."""
    whole = Whole(module, ranks)
    beside = _largest_of(held, ranks)
    original = whole.original + beside
    most = size_in_bytes(limit, original)
    inner, least = max(most - beside, 0), original
    for tried in range(TRIES):
        # Passes that move collectives would undo another order.
        found = planned(whole, inner, ranks, reorder=ranks is None)
        if isinstance(found, PlanError):
            if tried:
                break
            there = f"{said(beside)} of it are for the optimizers' state and gradients that add up"
            refusal = PlanError(f"the limit of {said(most)} cannot be met: {there}; beside these, {found}")
            refusal.least = None if found.least is None else found.least + beside
            refusal.needed = None if found.needed is None else found.needed + beside
            raise _together(refusal, ranks)
        final, by_plan = found.module, by_operator(found.module)
        for each in following:
            final = each(final, inputs)
        # Peaks are those of all ranks, which so come to one plan.
        peak = _largest_of(max(found.peak, whole.persistent + peak_of(final)), ranks) + beside
        if peak <= most:
            reports.append(Report(most, peak, original, beside + whole.persistent, found.overhead, found.again))
            _log(reports[-1])
            return final
        least = min(least, peak)
        if not whole.make_room(by_plan, final, inner - whole.persistent, ranks):
            break
    refusal = PlanError(f"the step does not stay within {most} bytes once torchtitan's passes have run; {least} bytes are enough")
    refusal.least = least
    raise _together(refusal, ranks)


def _log(report: Report) -> None:
    """Says what was planned."""
    gathers = sum("all_gather" in name for name in report.again)
    text = "sublet: %s of %s planned, %s without a plan, %s are there before a step; %d operators run again, %d gathers among them"
    log.info(text, said(report.planned), said(report.limit), said(report.original), said(report.held), len(report.again), gathers)


def _together(refusal: PlanError, ranks: Speaking | None) -> PlanError:
    """A refusal, once all ranks have come to it: a rank that ends before may end what the others still read."""
    with contextlib.suppress(PlanError):
        _largest_of(0, ranks)
    return refusal


def _largest_of(value: int, ranks: Speaking | None) -> int:
    return value if ranks is None else max(ranks.gathered(value))


def _local(x: Tensor) -> Tensor:
    """The part of a tensor that this rank has."""
    return getattr(x, "_local_tensor", x)


def _state_of(trainer: Any) -> Iterable[Tensor]:
    """Parameters, buffers, gradients and the optimizers' state."""
    for part in trainer.model_parts:
        yield from part.parameters()
        yield from part.buffers()
        yield from (p.grad for p in part.parameters() if p.grad is not None)
    for optimizer in trainer.optimizers.optimizers:
        yield from (x for x in tree_leaves(list(optimizer.state.values())) if isinstance(x, Tensor))


def _held(trainer: Any) -> int:
    """The bytes that are there during a step beside parameters, buffers and inputs: the state that the optimizers have or
    will make, and gradients if they add up over several passes."""
    state = sum(_state_bytes(optimizer) for optimizer in trainer.optimizers.optimizers)
    several = trainer.gradient_accumulation_steps > 1
    parameters = (p for part in trainer.model_parts for p in part.parameters() if p.requires_grad)
    return state + sum(_local(p).nbytes for p in parameters) * several


def _state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """The bytes of an optimizer's state; where there is none yet, those that a step makes, tried without numbers."""
    if not optimizer.state:
        groups = []
        for group in optimizer.param_groups:
            bare = [torch.nn.Parameter(torch.empty_like(_local(p), device="meta")) for p in group["params"]]
            for p in bare:
                p.grad = torch.empty_like(p)
            groups.append({**group, "params": bare, "foreach": False, "fused": False, "capturable": False})
        optimizer = type(optimizer)(groups, lr=optimizer.defaults["lr"])
        optimizer.step()
    return sum(_local(x).nbytes for x in tree_leaves(list(optimizer.state.values())) if isinstance(x, Tensor))

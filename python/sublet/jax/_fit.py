"""A JAX program within a limit: loops keep less (`_scans`), and what is left over is scheduled (`_straight`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import jax

from .._problem import PERSISTENT, Graph
from .._results import Fit, bytes_of, max_load
from .._results import fit as fit_graph
from .._sublet import PlanError
from ._report import Scan, report, scans_of
from ._scans import Chain, Mixed, chain
from ._search import NEAR, search, slowest, smallest
from ._straight import Straight
from ._trace import Block
from ._xla import Compiler, Evidence, TooLarge, evidence, footprint, partitions, tagged

ALIGNMENT = 64
"""The alignment of XLA's buffers on the processor, in bytes; on a GPU it is up to 256."""
LEVELS = 4
"""The most times that loops are rewritten: loops in the bodies of rewritten loops come next."""
ABOVE = (1.125, 1.375)
"""Limits of plans that are tried above the least, in parts of it: XLA may make less of more."""


@dataclass(frozen=True)
class Fitted:
    """A compiled program within a memory limit. It is called as the function that it was made from, with arguments of
    the same shapes."""

    compiled: Any
    """The compiled program, a `jax.stages.Compiled`."""
    fun: Callable[..., Any]
    """The function that was compiled, for `jax.jit` with `compiler_options`."""
    footprint: int
    """The memory that the program takes on a device, as XLA tells it, in bytes."""
    original_footprint: int | None
    """The memory that the program takes without recomputation, in bytes; None if it does not compile for want of it."""
    overhead: float = 0.0
    """The estimated time of what is run again, in parts of the time of all that the original runs."""
    least: int | None = None
    """The least footprint that is known of the program, in bytes; None if it was within the limit as it came, so that
    none was looked for."""
    plan: Fit | None = None
    """The schedule of the operators outside of loops; None if they run as they came."""
    scans: tuple[Scan, ...] = ()
    """The loops that keep other values than they did."""
    compiler_options: dict[str, str] | None = None
    """What XLA has to be told."""

    def __call__(self, *args: Any) -> Any:
        return self.compiled(*args)

    def report(self) -> str:
        """What is kept and what is computed again, as text."""
        return report(self)

    def __repr__(self) -> str:
        return f"<sublet.jax.Fitted: {self.original_footprint} bytes in {self.footprint}>"


def record(fun: Callable[..., Any], *args: Any) -> Graph:
    """The operators of a function of arrays and the values that they read and make, to be planned. The arguments are
    arrays, or shapes as `jax.ShapeDtypeStruct`; nothing is run.

    Operators are joined as XLA is likely to fuse them. Times are estimates. A loop, a branch and what `jax.checkpoint`
    marks are one operator each. Arguments and constants persist.
    """
    return Straight(Block(jax.make_jaxpr(fun)(*args))).graph()


def fit(
    fun: Callable[..., Any],
    limit: int | str,
    *args: Any,
    donate_argnums: int | Sequence[int] = (),
    slower: float = 0.125,
    progress: bool | None = None,
) -> Fitted:
    """Compiles a function of arrays so that it takes at most `limit` on a device, by recomputation of values.

    `limit` is a number of bytes, a size such as `8GiB`, or a share such as `60%` of what the program takes as it comes.
    The arguments are arrays, or shapes as `jax.ShapeDtypeStruct`; nothing is run. `donate_argnums` are those of
    `jax.jit`. `progress` is that of `sublet.fit`. The program computes the same values; where XLA fuses other operators
    together, the last bits may differ.

    XLA decides itself where values lie and what it fuses. So the program of least memory is compiled first, and where
    that is within the limit, at most six more, until what XLA says of one is at most 2 % below. PlanError says what the
    least of them took, in words and as `least`.

    Memory that saves little time is left free: of the programs within the limit the smallest is taken whose estimated
    time is at most the part `slower` above that of the fastest; 0 takes the fastest.
    """
    # A limit that cannot be read is refused before the program is compiled, which may take minutes.
    bytes_of(limit, 100)
    if not slower >= 0:
        raise ValueError(f"slower: expected a part of the time, 0 or more, found {slower}")
    compiler = Compiler(args, donate_argnums)
    try:
        compiled = compiler.compile(fun)
    except TooLarge as e:
        if isinstance(limit, str) and limit.rstrip().endswith("%"):
            raise PlanError(f"the program does not compile for want of memory: expected a limit in bytes. {e}") from e
        return _Search(fun, compiler, None, 1, bytes_of(limit), slower, progress).run()
    original = footprint(compiled)
    most = bytes_of(limit, original)
    if original <= most:
        return Fitted(compiled, fun, original, original, compiler_options=compiler.options)
    return _Search(fun, compiler, original, partitions(compiled), most, slower, progress).run()


class _Search:
    """The search for a program within a limit."""

    def __init__(
        self,
        fun: Callable[..., Any],
        compiler: Compiler,
        original: int | None,
        devices: int,
        most: int,
        slower: float,
        progress: bool | None,
    ) -> None:
        closed, shape = jax.make_jaxpr(fun, return_shape=True)(*compiler.args)
        self.compiler = compiler
        self.original = original
        self.devices = devices
        self.most = most
        self.slower = slower
        self.progress = progress
        self.tree = jax.tree.structure(compiler.args)
        self.result_tree = jax.tree.structure(shape)
        self.level = Level(Block(closed), original)
        self.seconds = sum(equation.seconds for equation in self.level.block.equations)
        self.tried: list[int] = [] if original is None else [original]

    def run(self) -> Fitted:
        """The program of least memory is made first, in the same way for all limits: so all refusals name the same."""
        for _ in range(LEVELS):
            level = self.level
            steps = chain(level.block, self._evidence(level.block) if self.devices > 1 else None)
            if steps.bytes * NEAR <= (level.footprint or 0) or not steps.steps:
                break
            make = partial(self._mixed, level, steps)
            try:
                least = make(-steps.bytes)
            except TooLarge:
                taken = None
            else:
                taken = least.footprint
                if taken <= self.most:
                    over = float(level.footprint or math.inf)
                    within = search(make, self.most, (-steps.bytes, least), (0.0, over))
                    bytes = steps.saved((slowest(within, self.slower) - 1) * self.seconds - level.seconds)
                    if self.slower and bytes < steps.bytes:
                        with suppress(TooLarge):
                            within.append(make(-bytes))
                    return self._told(within)
                if level.footprint is not None and taken >= level.footprint:
                    break
            mixed, seconds = steps.saving(steps.bytes)
            leaves = jax.tree.leaves(self.compiler.args)
            block = Block(jax.make_jaxpr(_kept(level.block, mixed))(*leaves))
            self.level = Level(block, taken, (*level.scans, *scans_of(mixed)), level.seconds + seconds)
        return self._scheduled()

    def _mixed(self, level: Level, steps: Chain, number: float) -> Fitted:
        """The program whose loops keep `-number` bytes less."""
        mixed, seconds = steps.saving(-number)
        return self._made(_kept(level.block, mixed), level.seconds + seconds, (*level.scans, *scans_of(mixed)), None)

    def _scheduled(self) -> Fitted:
        """A schedule of the operators outside of loops."""
        level = self.level
        straight = Straight(level.block, self._evidence(level.block))
        graph = straight.graph()
        problem = graph.problem()
        plan_within = partial(
            fit_graph, problem, using="recompute", keep_persistent=True, alignment=ALIGNMENT, progress=self.progress
        )

        def make(number: float) -> Fitted:
            plan = plan_within(round(number))
            again = level.seconds + plan.overhead * self.seconds
            return self._made(straight.scheduled(plan), again, level.scans, plan)

        low = _least(plan_within, graph)
        for number in (low, *(round(part * low) for part in ABOVE)):
            try:
                made = make(number)
            except (TooLarge, PlanError):
                continue
            if made.footprint <= self.most:
                high = float(max_load(problem)), float(level.footprint or math.inf)
                return self._told(search(make, self.most, (number, made), high))
        raise self._refusal()

    def _made(self, run: Callable[..., list[Any]], again: float, scans: tuple[Scan, ...], plan: Fit | None) -> Fitted:
        """The program that runs a function of the leaves of the arguments."""

        def fitted(*args: Any) -> Any:
            leaves, tree = jax.tree.flatten(args)
            if tree != self.tree:
                raise TypeError(f"expected arguments as they were for the fit, {self.tree}; got {tree}")
            return jax.tree.unflatten(self.result_tree, run(*leaves))

        compiled = self.compiler.compile(fitted)
        taken = footprint(compiled)
        self.tried.append(taken)
        overhead = again / self.seconds
        options = self.compiler.options
        return Fitted(compiled, fitted, taken, self.original, overhead, None, plan, scans, options)

    def _evidence(self, block: Block) -> Evidence | None:
        """What XLA makes of a block as it is; None if it finds no memory for it."""
        equations, run = tagged(block)
        try:
            return evidence(self.compiler.compile(lambda *args: run(*jax.tree.leaves(args))), equations)
        except TooLarge:
            return None

    def _told(self, within: Sequence[Fitted]) -> Fitted:
        return replace(smallest(within, self.slower), least=min(self.tried))

    def _refusal(self) -> PlanError:
        known = f"; the least that was compiled takes {min(self.tried)}" if self.tried else ""
        refusal = PlanError(f"no schedule within {self.most} bytes was found{known}")
        refusal.least = min(self.tried, default=None)
        return refusal


@dataclass(frozen=True)
class Level:
    """A program whose loops were rewritten so often."""

    block: Block
    footprint: int | None
    """What it takes, in bytes; None if it does not compile for want of memory."""
    scans: tuple[Scan, ...] = ()
    seconds: float = 0.0
    """The estimated time of what its loops run again."""


def _kept(block: Block, mixed: Mixed) -> Callable[..., list[Any]]:
    """The function of a block whose loops keep what `mixed` says."""
    instead = {equation: how for pair, pieces in mixed.items() for equation, how in pair.instead(pieces).items()}
    return lambda *args: block.run(args, instead)


def _least(plan_within: Callable[[int], Fit], graph: Graph) -> int:
    """The least limit that the planner meets, in bytes."""

    def aligned(size: int) -> int:
        return -(-size // ALIGNMENT) * ALIGNMENT

    sizes = zip(graph.bytes, graph.storage, strict=True)
    held = [0 if storage == PERSISTENT else aligned(size) for size, storage in sizes]
    persists = sum(map(aligned, graph.bytes)) - sum(held)
    accesses = zip(pairwise(graph.input_starts), pairwise(graph.output_starts), strict=True)
    needed = (
        sum(held[tensor] for tensor in {*graph.inputs[slice(*reads)], *graph.outputs[slice(*writes)]})
        for reads, writes in accesses
    )
    # An operator needs what it reads and writes: no lower limit is possible.
    limit = persists + max(needed, default=0)
    while True:
        try:
            plan_within(limit)
        except PlanError as e:
            if e.least is not None:
                return e.least
            if limit > sum(graph.bytes) + ALIGNMENT * len(graph.bytes):
                raise
            limit = e.needed if e.needed is not None and e.needed > limit else limit + limit // 8 + 1
        else:
            return limit

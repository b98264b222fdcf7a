"""JAX programs that run within a memory limit: values are recomputed where that saves most and costs least.

    import sublet.jax

    step = sublet.jax.fit(train_step, "50%", params, batch)     # arrays, or jax.ShapeDtypeStruct
    params, loss = step(params, batch)

`train_step` is a function of arrays, gradients included. Nothing in it has to be marked, as `jax.checkpoint` wants.
The limit is for what XLA itself says that the compiled program takes: arguments, results and temporary memory.
On the processor XLA has to be told to keep what is recomputed, before JAX is imported:

    XLA_FLAGS=--xla_disable_hlo_passes=cse_barrier_expander

Tried with JAX 0.10 on the processor.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

from ._problem import ITERATION, PERSISTENT, TRANSIENT, Graph
from ._results import Fit, bytes_of, max_load
from ._results import fit as fit_graph
from ._sublet import PlanError

__all__ = ["Fitted", "fit", "record"]

CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}
"""Equations that call a function, and the parameter that holds it: the equations of the function take their place."""

LIGHT = frozenset(
    "abs add add_any and broadcast_in_dim ceil clamp convert_element_type copy eq expand_dims floor ge gt imag "
    "integer_pow iota is_finite le lt max min mul ne neg not or real reshape rev round select_n shift_left "
    "shift_right_arithmetic shift_right_logical sign slice square squeeze sub transpose xor".split()
)
"""Equations that XLA fuses into all their readers: it computes their elements where they are read, and stores none."""
DEAR = frozenset(
    "acos acosh asin asinh atan atan2 atanh cbrt cos cosh digamma div erf erf_inv erfc exp exp2 expm1 lgamma log log1p "
    "logistic nextafter pow rem rsqrt sin sinh sqrt tan tanh".split()
)
"""Equations of single elements that XLA computes once only: it fuses them if they have one reader."""
REDUCE = frozenset("argmax argmin reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum".split())
"""Equations into which XLA fuses what they read, though they are not fused themselves."""

FLOPS_PER_S, BYTES_PER_S = 1e13, 5e11
"""What a device of the middle class does in a second: operations of matrix products and convolutions, and bytes read or
written. An operator is taken to last as long as the slower of the two."""
ALIGNMENT = 64
"""The alignment of XLA's buffers on the processor, in bytes; on a GPU it is up to 256."""
PASS = "cse_barrier_expander"
"""The pass by which XLA removes barriers on the processor: it then takes recomputations for the first runs."""
ATTEMPTS = 6
"""The most programs that are compiled for one limit."""
NEAR = 50
"""A program is good enough if it leaves less than this part of the limit unused: 1/50."""


class _Value:
    """An array of a traced program."""

    __slots__ = ("aval", "constant")

    def __init__(self, aval: Any, constant: Any = None) -> None:
        self.aval = aval
        self.constant = constant
        """What the array holds, if that is known before the program runs."""

    @property
    def bytes(self) -> int:
        """Its size, in bytes; 0 for what is no array."""
        return math.prod(self.aval.shape) * self.aval.dtype.itemsize if self.is_array else 0

    @property
    def is_array(self) -> bool:
        return isinstance(self.aval, jax.core.ShapedArray)


@dataclass(frozen=True, eq=False)
class _Equation:
    """An equation of a traced program."""

    name: str
    closed: ClosedJaxpr
    """The equation alone, as a function of what it reads."""
    reads: list[_Value]
    makes: list[_Value]

    @property
    def has_effects(self) -> bool:
        """Whether it does more than make values: it prints, calls back, or changes an array in its place."""
        return bool(self.closed.jaxpr.effects)


@dataclass(frozen=True, eq=False)
class _Operator:
    """Equations that XLA runs as one: the last of them, and those that are fused into it."""

    equations: list[_Equation]
    reads: list[_Value]
    makes: list[_Value]

    @property
    def name(self) -> str:
        return self.equations[-1].name

    def run(self, held: dict[_Value, Any]) -> None:
        """Runs the equations. `held` has the values that are read, and gets those that are made."""
        local: dict[_Value, Any] = {}
        for equation in self.equations:
            reads = [local[value] if value in local else held[value] for value in equation.reads]
            local.update(zip(equation.makes, jaxpr_as_fun(equation.closed)(*reads), strict=True))
        held.update((value, local[value]) for value in self.makes)


def _called(equation: Any) -> ClosedJaxpr | None:
    """The function that an equation calls; none if it is no call, or a call that asks XLA for more than its result."""
    called = equation.params.get(CALLS.get(equation.primitive.name, ""))
    shardings = [*equation.params.get("in_shardings", ()), *equation.params.get("out_shardings", ())]
    plain = all(type(sharding).__name__ == "UnspecifiedValue" for sharding in shardings)
    return called if isinstance(called, ClosedJaxpr) and plain else None


def _flatten(closed: ClosedJaxpr, args: Iterable[_Value], equations: list[_Equation]) -> list[_Value]:
    """Appends the equations of a function, with those of the functions that it calls in place of the calls. Returns its
    results."""
    jaxpr = closed.jaxpr
    held: dict[Any, _Value] = dict(zip(jaxpr.invars, args, strict=True))
    held.update((var, _Value(var.aval, const)) for var, const in zip(jaxpr.constvars, closed.consts, strict=True))

    def value(atom: Any) -> _Value:
        return _Value(atom.aval, atom.val) if isinstance(atom, Literal) else held[atom]

    for equation in jaxpr.eqns:
        called = _called(equation)
        if called is not None:
            makes = _flatten(called, map(value, equation.invars), equations)
        else:
            reads = list(dict.fromkeys(atom for atom in equation.invars if not isinstance(atom, Literal)))
            makes = [_Value(var.aval) for var in equation.outvars]
            alone = jaxpr.replace(
                constvars=[], invars=reads, outvars=equation.outvars, eqns=[equation], effects=equation.effects
            )
            name = equation.primitive.name
            equations.append(_Equation(name, ClosedJaxpr(alone, []), [held[atom] for atom in reads], makes))
        held.update(zip(equation.outvars, makes, strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def _needed(equations: Sequence[_Equation], results: Iterable[_Value]) -> list[_Equation]:
    """The equations without those whose values nobody reads."""
    wanted, kept = set(results), []
    for equation in reversed(equations):
        if equation.has_effects or not wanted.isdisjoint(equation.makes):
            kept.append(equation)
            wanted.update(equation.reads)
    return kept[::-1]


def _operators(equations: Sequence[_Equation], results: Iterable[_Value]) -> list[_Operator]:
    """Joins equations into operators, as XLA fuses them. A value that is fused into its readers takes no memory, so the
    values that operators make are those that XLA stores."""
    maker: dict[_Value, _Equation] = {}
    readers: dict[_Value, list[_Equation]] = {}
    for equation in equations:
        maker.update((value, equation) for value in equation.makes)
        for value in equation.reads:
            readers.setdefault(value, []).append(equation)
    ends = set(results)
    # Of a value that is not stored: the stored values that it is computed from.
    sources: dict[_Value, dict[_Value, None]] = {}

    def is_stored(equation: _Equation, value: _Value, read: dict[_Value, None]) -> bool:
        who = readers.get(value, [])
        if value in ends or equation.name not in LIGHT | DEAR:
            return True
        if any(reader.name not in LIGHT | DEAR | REDUCE for reader in who):
            return True
        if len(who) < 2:
            return False
        # It takes the place of two others of its size.
        large = sum(source.bytes * 2 >= value.bytes for source in read)
        return equation.name in DEAR or large >= 2

    operators = []
    for equation in equations:
        read = {source: None for value in equation.reads for source in sources.get(value, {value: None})}
        stored = [value for value in equation.makes if is_stored(equation, value, read)]
        sources.update((value, read) for value in equation.makes if value not in stored)
        if stored or equation.has_effects:
            fused: dict[_Equation, None] = {}
            _add_fused(equation, maker, sources, fused)
            operators.append(_Operator(list(fused), list(read), stored))
    return operators


def _add_fused(
    equation: _Equation,
    maker: dict[_Value, _Equation],
    sources: dict[_Value, dict[_Value, None]],
    fused: dict[_Equation, None],
) -> None:
    """Adds an equation to `fused`, and before it those that make the values that it reads and that are not stored."""
    stack = [(equation, iter(equation.reads))]
    while stack:
        equation, reads = stack[-1]
        for value in reads:
            if value in sources and maker[value] not in fused:
                stack.append((maker[value], iter(maker[value].reads)))
                break
        else:
            fused[equation] = None
            stack.pop()


def _flops(jaxpr: Any) -> int:
    """The floating-point operations of matrix products and convolutions, those in loops and branches included. A loop
    whose end is not known counts as one pass, branches count all."""
    count = 0
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        made = math.prod(equation.outvars[0].aval.shape) if name in ("dot_general", "conv_general_dilated") else 0
        if name == "dot_general":
            (contracted, _), _ = params["dimension_numbers"]
            count += 2 * made * math.prod(equation.invars[0].aval.shape[k] for k in contracted)
        elif name == "conv_general_dilated":
            kernel = equation.invars[1].aval.shape
            count += 2 * made * math.prod(kernel) // max(kernel[params["dimension_numbers"].rhs_spec[0]], 1)
        else:
            parts = [part for value in params.values() for part in (value if isinstance(value, tuple) else (value,))]
            inner = [getattr(part, "jaxpr", part) for part in parts if isinstance(part, (ClosedJaxpr, Jaxpr))]
            count += sum(map(_flops, inner)) * (params["length"] if name == "scan" else 1)
    return count


class _Program:
    """A traced function of arrays."""

    def __init__(self, fun: Callable[..., Any], args: Sequence[Any]) -> None:
        closed, results = jax.make_jaxpr(fun, return_shape=True)(*args)
        self.tree = jax.tree.structure(args)
        self.result_tree = jax.tree.structure(results)
        self.arguments = [_Value(var.aval) for var in closed.jaxpr.invars]
        equations: list[_Equation] = []
        self.results = _flatten(closed, self.arguments, equations)
        self.operators = _operators(_needed(equations, self.results), self.results)
        read = [value for operator in self.operators for value in operator.reads]
        self.constants = {value: None for value in [*read, *self.results] if value.constant is not None}

    def graph(self) -> Graph:
        """The operators, with the values that they read and make, and with estimated times."""
        graph, ends = Graph(), set(self.results)
        number = {
            value: graph.tensor(f"argument {k}", value.bytes, PERSISTENT) for k, value in enumerate(self.arguments)
        }
        for k, value in enumerate(self.constants):
            number[value] = graph.tensor(f"constant {k}", value.bytes, PERSISTENT)
        for operator in self.operators:
            for value in operator.makes:
                storage = ITERATION if value in ends else TRANSIENT
                number[value] = graph.tensor(f"{operator.name} {len(number)}", value.bytes, storage)
            moved = sum(value.bytes for value in [*operator.reads, *operator.makes])
            flops = sum(_flops(equation.closed.jaxpr) for equation in operator.equations)
            graph.op(
                operator.name,
                [number[value] for value in operator.reads],
                [number[value] for value in operator.makes],
                time_ns=1 + round(1e9 * max(moved / BYTES_PER_S, flops / FLOPS_PER_S)),
                rerun=not any(equation.has_effects for equation in operator.equations),
            )
        return graph

    def function(self, runs: Sequence[tuple[int, bool]]) -> Callable[..., Any]:
        """The function that runs operators in an order. Each run is the number of the operator, and whether it is
        recomputed."""

        def fitted(*args: Any) -> Any:
            leaves, tree = jax.tree.flatten(args)
            if tree != self.tree:
                raise TypeError(f"expected arguments as they were for the fit, {self.tree}; got {tree}")
            held: dict[_Value, Any] = dict(zip(self.arguments, leaves, strict=True))
            held.update((value, value.constant) for value in self.constants)
            last: _Value | None = None
            previous = False
            for at, (number, again) in enumerate(runs):
                operator = self.operators[number]
                if again and not previous:
                    self._hold_back(held, runs, at, last)
                operator.run(held)
                last = next((value for value in operator.makes if value.is_array), last)
                previous = again
            return jax.tree.unflatten(self.result_tree, [held[value] for value in self.results])

        return fitted

    def _hold_back(
        self, held: dict[_Value, Any], runs: Sequence[tuple[int, bool]], begin: int, last: _Value | None
    ) -> None:
        """Puts a barrier before recomputations in a row: XLA runs none of them before the value `last` is there, and
        does not take them for the first runs."""
        made: set[_Value] = set()
        read: dict[_Value, None] = {} if last is None else {last: None}
        for number, again in runs[begin:]:
            if not again:
                break
            operator = self.operators[number]
            read.update((value, None) for value in operator.reads if value.is_array and value not in made)
            made.update(operator.makes)
        held.update(zip(read, jax.lax.optimization_barrier(tuple(held[value] for value in read)), strict=True))


@dataclass(frozen=True)
class Fitted:
    """A compiled program within a memory limit. It is called as the function that it was made from, with arguments of
    the same shapes."""

    compiled: Any
    """The compiled program, a `jax.stages.Compiled`."""
    fun: Callable[..., Any]
    """The function that was compiled, for `jax.jit` with other options."""
    footprint: int
    """The memory that the program takes, as XLA tells it, in bytes: arguments, results and temporary memory."""
    original_footprint: int
    """The memory that the program takes without recomputation, in bytes."""
    plan: Fit | None
    """The schedule that the program follows; None if it was within the limit as it came."""

    def __call__(self, *args: Any) -> Any:
        return self.compiled(*args)

    def __repr__(self) -> str:
        return f"<sublet.jax.Fitted: {self.original_footprint} bytes in {self.footprint}>"


def record(fun: Callable[..., Any], *args: Any) -> Graph:
    """The operators of a function of arrays and the values that they read and make, to be planned. The arguments are
    arrays, or shapes as `jax.ShapeDtypeStruct`; nothing is run.

    Operators are joined as XLA fuses them. Times are estimates. A loop, a branch and
    what `jax.checkpoint` marks are one operator each, and so is a call with shardings. Arguments and constants persist.
    """
    return _Program(fun, args).graph()


def fit(
    fun: Callable[..., Any],
    limit: int | str,
    *args: Any,
    donate_argnums: int | Sequence[int] = (),
    progress: bool | None = None,
) -> Fitted:
    """Compiles a function of arrays so that it takes at most `limit`, by recomputation of values.

    `limit` is a number of bytes, a size such as `8GiB`, or a share such as `60%` of what the program takes as it comes.
    The arguments are arrays, or shapes as `jax.ShapeDtypeStruct`; nothing is run. `donate_argnums` are those of
    `jax.jit`. `progress` is that of `sublet.fit`. The program computes the same values; where XLA fuses other operators
    together, the last bits may differ.

    XLA decides itself where values lie and what it fuses. So schedules are compiled, at most six, until what XLA says
    of one is within the limit. PlanError says what the least of them took.
    """
    # A limit that cannot be read is refused before the program is compiled, which may take minutes.
    bytes_of(limit, 100)
    compiled = _compile(fun, args, donate_argnums)
    original = _footprint(compiled)
    most = bytes_of(limit, original)
    if original <= most:
        return Fitted(compiled, fun, original, original, None)
    program = _Program(fun, args)
    problem = program.graph().problem()
    plan_within = partial(
        fit_graph, problem, using="recompute", keep_persistent=True, alignment=ALIGNMENT, progress=progress
    )
    # The limit of a plan is in other bytes than that of the program: XLA fuses as it likes. `low` is the highest limit
    # of a plan that is known to be low enough or too low, `high` the lowest that is known to be too high.
    low, high = 0, max_load(problem)
    ratio = high / original
    wanted = most - most // (2 * NEAR)
    best: Fitted | None = None
    aim, attempts, least = round(wanted * ratio), 0, original
    while attempts < ATTEMPTS and (high - low) * NEAR > high:
        try:
            plan = plan_within(aim)
        except PlanError:
            low = aim
            aim = (low + high) // 2
            continue
        function = program.function(_runs(plan, len(program.operators)))
        compiled = _compile(function, args, donate_argnums)
        attempts += 1
        footprint = _footprint(compiled)
        least = min(least, footprint)
        if footprint > most:
            high = aim
        else:
            low = aim
            if best is None or best.plan is None or plan.overhead < best.plan.overhead:
                best = Fitted(compiled, function, footprint, original, plan)
            if (most - footprint) * NEAR <= most:
                break
        aim += round((wanted - footprint) * ratio)
        if not low < aim < high:
            aim = (low + high) // 2
    if best is None:
        known = f"no schedule within {most} bytes was found; the least that was compiled takes {least}"
        merges = jax.default_backend() == "cpu" and PASS not in os.environ.get("XLA_FLAGS", "")
        hint = f". On the processor start JAX with XLA_FLAGS=--xla_disable_hlo_passes={PASS}"
        raise PlanError(known + hint * merges)
    return best


def _compile(fun: Callable[..., Any], args: Sequence[Any], donate_argnums: int | Sequence[int]) -> Any:
    return jax.jit(fun, donate_argnums=donate_argnums).lower(*args).compile()


def _footprint(compiled: Any) -> int:
    """What XLA says that a program takes, in bytes: arguments, results and temporary memory."""
    stats = compiled.memory_analysis()
    if stats is None:
        raise RuntimeError("XLA does not tell here how much memory a program takes")
    own = stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
    return int(own + stats.temp_size_in_bytes)


def _runs(plan: Fit, count: int) -> list[tuple[int, bool]]:
    """The operators in the order of a schedule, and whether each is recomputed."""
    runs: list[tuple[int, bool]] = []
    schedule = plan.schedule
    for op, again in zip(schedule.op.tolist(), schedule.again.tolist(), strict=True):
        # The operator after the last reads what has to be there at the end.
        if 0 <= op < count and (not runs or runs[-1] != (op, again)):
            runs.append((op, again))
    return runs

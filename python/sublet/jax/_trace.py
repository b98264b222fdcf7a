"""Traced programs: equations, the values that they read and make, and the bodies of their loops.

Calls of functions are replaced by the functions' equations. A `scan` keeps its body as a block of its own. All else
that holds a program (`while`, `cond`, `checkpoint`, `shard_map`, `pmap`, kernels) is one equation, whole.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun
from jax.sharding import Sharding

CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}
"""Equations that call a function, and the parameter that holds it: the equations of the function take their place."""
COLLECTIVES = frozenset(
    "all_gather all_gather_invariant all_to_all pbroadcast pmax pmin ppermute psum psum2 psum_invariant psum_scatter "
    "ragged_all_to_all reduce_scatter unreduced_psum".split()
)
"""Equations by which devices exchange values."""

FLOPS_PER_S, BYTES_PER_S = 1e13, 5e11
"""What a device of the middle class does in a second: operations of matrix products and convolutions, and bytes read or
written. An equation is taken to last as long as the slower of the two."""

_PACKAGES = tuple(str(Path(module.__file__ or "").parent) for module in (jax, sys.modules[__package__]))


class Value:
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
class Loop:
    """A `scan`: what it reads are constants, the first carry, and arrays with an element for each iteration."""

    length: int
    reverse: bool
    unroll: int | bool
    constants: int
    """The number of constants, which come first."""
    carries: int
    """The number of values of the carry, which come next."""
    reads: list[Value]
    body: Block

    @property
    def stacked(self) -> list[Value]:
        """The arrays of which an iteration reads an element each."""
        return self.reads[self.constants + self.carries :]


@dataclass(frozen=True, eq=False)
class Equation:
    """An equation of a traced program."""

    name: str
    closed: ClosedJaxpr
    """The equation alone, as a function of what it reads."""
    reads: list[Value]
    makes: list[Value]
    source: Any = None
    """JAX's note of the lines that made it."""
    loop: Loop | None = None

    @property
    def has_effects(self) -> bool:
        """Whether it does more than make values: it prints, calls back, or changes an array in its place."""
        return bool(self.closed.jaxpr.effects)

    @cached_property
    def may_rerun(self) -> bool:
        """Whether it gives the same values in another run, without a word to another device."""
        return not self.has_effects and not _has_collective(self.closed.jaxpr)

    @cached_property
    def seconds(self) -> float:
        """How long it is taken to last."""
        moved = sum(value.bytes for value in [*self.reads, *self.makes])
        return max(moved / BYTES_PER_S, flops(self.closed.jaxpr) / FLOPS_PER_S)

    @cached_property
    def where(self) -> str:
        """The file and the line that made it: the user's own where there is one, else that of a library above JAX."""
        traceback = getattr(self.source, "traceback", None)
        frames = [frame for frame in getattr(traceback, "frames", []) if not frame.file_name.startswith(_PACKAGES)]
        own = [frame for frame in frames if "site-packages" not in frame.file_name]
        shown = next(iter(own or frames), None)
        return "" if shown is None else f"{Path(shown.file_name).name}:{shown.line_num}"

    @property
    def scope(self) -> str:
        """The names under which it was traced, as `flax` and `jax.named_scope` give them."""
        return str(getattr(self.source, "name_stack", ""))

    def run(self, held: dict[Value, Any]) -> None:
        """Runs it on the values that are held, to which it adds those that it makes."""
        reads = [take(held, value) for value in self.reads]
        held.update(zip(self.makes, jaxpr_as_fun(self.closed)(*reads), strict=True))


Instead = Mapping[Equation, Callable[[dict[Value, Any]], None]]
"""What is run in place of equations."""


class Block:
    """The equations of a function of arrays, without those that nobody needs."""

    def __init__(self, closed: ClosedJaxpr) -> None:
        self.args = [Value(var.aval) for var in closed.jaxpr.invars]
        equations: list[Equation] = []
        self.results = _flatten(closed, self.args, equations)
        self.equations = needed(equations, self.results)

    @cached_property
    def readers(self) -> dict[Value, list[Equation]]:
        """By value: the equations that read it."""
        readers: dict[Value, list[Equation]] = {}
        for equation in self.equations:
            for value in equation.reads:
                readers.setdefault(value, []).append(equation)
        return readers

    @cached_property
    def maker(self) -> dict[Value, Equation]:
        """By value: the equation that makes it."""
        return {value: equation for equation in self.equations for value in equation.makes}

    def all(self) -> Iterator[Equation]:
        """The equations, with those of the bodies of loops."""
        for equation in self.equations:
            yield equation
            if equation.loop is not None:
                yield from equation.loop.body.all()

    def run(self, args: Iterable[Any], instead: Instead) -> list[Any]:
        """Runs the equations, some of them in another way, within the bodies of loops as well."""
        held = dict(zip(self.args, args, strict=True))
        run(self.equations, held, instead)
        return [take(held, value) for value in self.results]


def run(equations: Iterable[Equation], held: dict[Value, Any], instead: Instead) -> None:
    """Runs equations on the values that are held, some of them in another way. A loop in whose body nothing changes
    stays as it was traced."""
    for equation in equations:
        if equation in instead:
            instead[equation](held)
        elif equation.loop is not None and not instead.keys().isdisjoint(equation.loop.body.all()):
            _run_loop(equation.loop, equation.makes, held, instead)
        else:
            equation.run(held)


def _run_loop(loop: Loop, makes: list[Value], held: dict[Value, Any], instead: Instead) -> None:
    constants, carry, stacked = parts(loop, held)

    def body(carry: Any, elements: Any) -> Any:
        made = loop.body.run([*constants, *carry, *elements], instead)
        return made[: loop.carries], made[loop.carries :]

    last, stacks = jax.lax.scan(body, carry, stacked, loop.length, loop.reverse, loop.unroll)
    held.update(zip(makes, [*last, *stacks], strict=True))


def parts(loop: Loop, held: Mapping[Value, Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """What a loop reads: constants, the first carry, and arrays with an element for each iteration."""
    reads = [take(held, value) for value in loop.reads]
    first = loop.constants + loop.carries
    return reads[: loop.constants], reads[loop.constants : first], reads[first:]


def take(held: Mapping[Value, Any], value: Value) -> Any:
    return held.get(value, value.constant)


def needed(equations: Sequence[Equation], wanted: Iterable[Value], *, effects: bool = True) -> list[Equation]:
    """The equations without those whose values nobody reads; without `effects`, also without those that only have
    effects."""
    needs, kept = set(wanted), []
    for equation in reversed(equations):
        if (effects and equation.has_effects) or not needs.isdisjoint(equation.makes):
            kept.append(equation)
            needs.update(equation.reads)
    return kept[::-1]


def flops(jaxpr: Any) -> int:
    """The floating-point operations of matrix products and convolutions, those in loops and branches included. A loop
    whose end is not known counts as one pass, branches count all."""
    total = 0
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        made = math.prod(equation.outvars[0].aval.shape) if name in ("dot_general", "conv_general_dilated") else 0
        if name == "dot_general":
            (contracted, _), _ = params["dimension_numbers"]
            total += 2 * made * math.prod(equation.invars[0].aval.shape[k] for k in contracted)
        elif name == "conv_general_dilated":
            kernel = equation.invars[1].aval.shape
            total += 2 * made * math.prod(kernel) // max(kernel[params["dimension_numbers"].rhs_spec[0]], 1)
        else:
            total += sum(map(flops, _programs(params))) * (params["length"] if name == "scan" else 1)
    return total


def _programs(params: Mapping[str, Any]) -> Iterator[Any]:
    """The programs that an equation holds."""
    for value in params.values():
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, (ClosedJaxpr, Jaxpr)):
                yield getattr(part, "jaxpr", part)


def _has_collective(jaxpr: Any) -> bool:
    return any(
        equation.primitive.name in COLLECTIVES or any(map(_has_collective, _programs(equation.params)))
        for equation in jaxpr.eqns
    )


def _called(equation: Any) -> ClosedJaxpr | None:
    """The function that an equation calls; None if it calls none. Where the call says how arguments or results are laid
    over devices, the function says it."""
    called = equation.params.get(CALLS.get(equation.primitive.name, ""))
    if not isinstance(called, ClosedJaxpr):
        return None
    before, after = equation.params.get("in_shardings", ()), equation.params.get("out_shardings", ())
    if not any(isinstance(sharding, Sharding) for sharding in (*before, *after)):
        return called

    def laid(values: Iterable[Any], shardings: Iterable[Any]) -> list[Any]:
        return [
            jax.lax.with_sharding_constraint(value, sharding) if isinstance(sharding, Sharding) else value
            for value, sharding in zip(values, shardings, strict=True)
        ]

    def placed(*args: Any) -> list[Any]:
        return laid(jaxpr_as_fun(called)(*laid(args, before)), after)

    traced: ClosedJaxpr = jax.make_jaxpr(placed)(*map(shaped, (atom.aval for atom in equation.invars)))
    return traced


def shaped(aval: Any) -> Any:
    """The shape of an array, to trace with."""
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def _flatten(closed: ClosedJaxpr, args: Iterable[Value], equations: list[Equation]) -> list[Value]:
    """Appends the equations of a function, with those of the functions that it calls in place of the calls. Returns its
    results."""
    jaxpr = closed.jaxpr
    held: dict[Any, Value] = dict(zip(jaxpr.invars, args, strict=True))
    held.update((var, Value(var.aval, const)) for var, const in zip(jaxpr.constvars, closed.consts, strict=True))

    def value(atom: Any) -> Value:
        return Value(atom.aval, atom.val) if isinstance(atom, Literal) else held[atom]

    for equation in jaxpr.eqns:
        called = _called(equation)
        if called is not None:
            makes = _flatten(called, map(value, equation.invars), equations)
        else:
            reads = list(dict.fromkeys(atom for atom in equation.invars if not isinstance(atom, Literal)))
            makes = [Value(var.aval) for var in equation.outvars]
            alone = jaxpr.replace(
                constvars=[], invars=reads, outvars=equation.outvars, eqns=[equation], effects=equation.effects
            )
            name, source = equation.primitive.name, equation.source_info
            loop = _loop(equation.params, [value(atom) for atom in equation.invars]) if name == "scan" else None
            taken = [held[atom] for atom in reads]
            equations.append(Equation(name, ClosedJaxpr(alone, []), taken, makes, source, loop))
        held.update(zip(equation.outvars, makes, strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def _loop(params: Mapping[str, Any], reads: list[Value]) -> Loop:
    return Loop(
        params["length"],
        params["reverse"],
        params["unroll"],
        params["num_consts"],
        params["num_carry"],
        reads,
        Block(params["jaxpr"]),
    )

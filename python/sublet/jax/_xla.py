"""What XLA makes of a program: the memory that it takes, the values that it keeps, where devices exchange values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax

from ._trace import Block, Equation, Value

OPTIONS: Mapping[str, Mapping[str, str]] = {"cpu": {"xla_disable_hlo_passes": "cse_barrier_expander"}}
"""By platform: what XLA is told. On the processor it removes barriers, and takes recomputations for the first runs."""

_TAG = "sublet:"
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?(?P<name>\S+) = (?P<type>\(.*?\)|\S+) (?P<operator>[\w-]+)\((?P<rest>.*)$")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?(?P<name>\S+) \(.*\{$")
_EXCHANGES = ("all-gather", "all-reduce", "all-to-all", "collective-", "ragged-all-to-all", "reduce-scatter")


class TooLarge(Exception):
    """The program does not compile for want of memory."""


@dataclass(frozen=True)
class Compiler:
    """Compiles functions of the same arguments."""

    args: Sequence[Any]
    donate: int | Sequence[int]

    @property
    def options(self) -> dict[str, str]:
        return dict(OPTIONS.get(self._platform(), {}))

    def _platform(self) -> str:
        """The platform of the devices that the arguments lie on."""
        for leaf in jax.tree.leaves(self.args):
            sharding = getattr(leaf, "sharding", None)
            if sharding is not None and sharding.device_set:
                return str(next(iter(sharding.device_set)).platform)
        return str(jax.default_backend())

    def compile(self, fun: Callable[..., Any]) -> Any:
        """The compiled program. TooLarge if XLA finds no memory for it."""
        lowered = jax.jit(fun, donate_argnums=self.donate).lower(*self.args)
        try:
            return lowered.compile(compiler_options=self.options)
        except jax.errors.JaxRuntimeError as e:
            if "RESOURCE_EXHAUSTED" in str(e):
                raise TooLarge(str(e)) from e
            raise


def footprint(compiled: Any) -> int:
    """What XLA says that a program takes on a device, in bytes: arguments, results and temporary memory, or the peak
    that it names, where that is more."""
    stats = compiled.memory_analysis()
    if stats is None:
        raise RuntimeError("XLA does not tell here how much memory a program takes")
    own = stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
    return int(max(own + stats.temp_size_in_bytes, getattr(stats, "peak_memory_in_bytes", 0)))


def partitions(compiled: Any) -> int:
    """The number of devices that share the work of a compiled program."""
    match = re.search(r"num_partitions=(\d+)", compiled.as_text().partition("\n")[0])
    return int(match[1]) if match else 1


@dataclass(frozen=True)
class Evidence:
    """What a compiled program shows of the equations that it was made from."""

    stored: frozenset[Equation]
    """Equations that make an array in memory."""
    fused: frozenset[Equation]
    """Other equations that are run: their elements are computed where they are read."""
    exchanges: frozenset[Equation]
    """Equations for which devices exchange values."""


def may_rerun(equation: Equation, evidence: Evidence | None) -> bool:
    """Whether an equation may be run again: it has no effects, and devices exchange no values for it."""
    exchanges = frozenset() if evidence is None else evidence.exchanges
    inner = () if equation.loop is None else equation.loop.body.all()
    return equation.may_rerun and equation not in exchanges and exchanges.isdisjoint(inner)


def tagged(block: Block) -> tuple[list[Equation], Callable[..., list[Any]]]:
    """The equations by number, and the function that runs them so that XLA's program names their numbers."""
    equations = list(block.all())

    def run(equation: Equation, number: int, held: dict[Value, Any]) -> None:
        with jax.named_scope(f"{_TAG}{number}"):
            equation.run(held)

    simple = ((equation, number) for number, equation in enumerate(equations) if equation.loop is None)
    instead = {equation: partial(run, equation, number) for equation, number in simple}
    return equations, lambda *args: block.run(args, instead)


def evidence(compiled: Any, equations: Sequence[Equation]) -> Evidence:
    """Reads a compiled program whose equations are tagged. XLA names a fusion for the equation that it ends with."""
    computations = _computations(compiled.as_text())
    called = re.compile(r"calls=%?([\w.-]+)")
    fusions = {match[1] for lines in computations.values() for line in lines if (match := called.search(line["rest"]))}
    stored: set[int] = set()
    seen: set[int] = set()
    exchanges: set[int] = set()
    for name, lines in computations.items():
        for line in lines:
            tags = _tags(line)
            seen.update(tags)
            if line["operator"].startswith(_EXCHANGES):
                exchanges.update(tags)
            if name in fusions:
                continue
            stored.update(tags[:1])
            match = called.search(line["rest"])
            if match and line["type"].startswith("("):
                # A fusion of several results ends with a tuple.
                inner = {part["name"]: part for part in computations[match[1]]}
                last = computations[match[1]][-1]
                for operand in re.findall(r"%([\w.-]+)", last["rest"]):
                    stored.update(_tags(inner[operand])[:1] if operand in inner else [])
    known = [frozenset(equations[number] for number in numbers) for numbers in (stored, seen - stored, exchanges)]
    return Evidence(*known)


def _computations(text: str) -> dict[str, list[re.Match[str]]]:
    """By the name of a computation: its instructions."""
    found: dict[str, list[re.Match[str]]] = {}
    lines: list[re.Match[str]] = []
    for line in text.splitlines():
        if head := _COMPUTATION.match(line):
            lines = found.setdefault(head["name"], [])
        elif instruction := _INSTRUCTION.match(line):
            lines.append(instruction)
    return found


def _tags(line: re.Match[str]) -> list[int]:
    return [int(number) for number in re.findall(_TAG + r"(\d+)", line["rest"])]

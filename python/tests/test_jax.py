"""JAX programs within a limit. The limit is held against what XLA says of the compiled program, and against the heap
where SUBLET_HEAP names the library of the counter.

Without JAX nothing here is run.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import textwrap
from functools import cache, partial
from typing import Any

import pytest

pytest.importorskip("jax")

# Sets what XLA reads before JAX is imported: four devices.
import jax_steps
from jax_steps import STEPS, normal, unequal

import jax
import jax.numpy as jnp
import numpy as np
import sublet
import sublet.jax
from jax.sharding import NamedSharding, PartitionSpec
from sublet.jax._straight import Straight
from sublet.jax._trace import Block
from sublet.jax._xla import Compiler, TooLarge, _computations, evidence, footprint, tagged

HERE = pathlib.Path(__file__).resolve().parent

ROUNDED = {"mlp": 0.0, "gpt": 1e-3, "resnet": 1e-5, "scanned-gpt": 1e-3}
"""What results may differ in, where XLA fuses other operators together. Adam makes more of it where gradients are
nearly 0."""


LAYERS = {"gpt": {"layers": 2}, "scanned-gpt": {"layers": 4}}


def within(step: Any, limit: int | str, *args: Any, **options: Any) -> sublet.jax.Fitted:
    """The step within a limit, which XLA confirms."""
    fitted = sublet.jax.fit(step, limit, *args, progress=False, **options)
    stats = fitted.compiled.memory_analysis()
    taken = stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
    assert fitted.footprint == max(taken + stats.temp_size_in_bytes, stats.peak_memory_in_bytes)
    return fitted


@pytest.mark.parametrize("name", ROUNDED)
def test_a_training_step_within_a_limit_computes_the_same(name: str) -> None:
    step, args = STEPS[name](**LAYERS.get(name, {}))
    expected = jax.jit(step)(*args)
    fitted = within(step, "50%", *args)
    assert fitted.overhead > 0 and (fitted.plan is None) == ("scanned" in name) == bool(fitted.scans)
    assert fitted.original_footprint is not None and fitted.footprint * 2 <= fitted.original_footprint
    assert unequal(expected, fitted(*args)) <= ROUNDED[name]
    # The comparison sees a step that computes something else.
    other = (jax.tree.map(lambda leaf: leaf * 1.01 if leaf.dtype == jnp.float32 else leaf, args[0]), *args[1:])
    assert unequal(expected, fitted(*other)) > ROUNDED[name]


def test_the_order_of_the_recording_is_not_within_the_limit() -> None:
    step, args = STEPS["mlp"]()
    fitted = within(step, "50%", *args)
    block = Block(jax.make_jaxpr(step)(*args))
    straight = Straight(block)
    recorded = straight.function([(number, False) for number in range(len(straight.operators))])
    compiler = Compiler(jax.tree.leaves(args), ())
    compiled = compiler.compile(recorded)
    assert unequal(jax.jit(step)(*args), compiled(*jax.tree.leaves(args))) == 0
    assert fitted.original_footprint is not None
    assert footprint(compiled) > 0.9 * fitted.original_footprint > fitted.footprint


def test_a_step_takes_less_than_by_checkpoints_of_its_layers() -> None:
    step, args = STEPS["gpt"](layers=3)
    marked = jax_steps.gpt(layers=3, mark=jax.checkpoint)[0]
    by_hand = within(marked, "100%", *args)
    assert unequal(by_hand(*args), jax.jit(step)(*args)) <= ROUNDED["gpt"]
    limit = by_hand.footprint * 9 // 10
    assert within(step, limit, *args).footprint <= limit < by_hand.footprint


@cache
def ran(*args: str) -> list[dict[str, Any]]:
    """The lines of the script of the steps, in a process of its own, without flags of XLA."""
    environment = {**os.environ, "XLA_FLAGS": ""}
    if "SUBLET_HEAP" in os.environ:
        environment["LD_PRELOAD"] = os.environ["SUBLET_HEAP"]
    script = [sys.executable, str(HERE / "jax_steps.py"), *args]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


RAN = ("residual", "50%"), ("scanned-residual", "30%")


def test_no_flag_of_xla_is_needed() -> None:
    (whole, half), (_, scanned) = (ran(*args) for args in RAN)
    assert half["footprint"] * 2 <= whole["footprint"] and scanned["footprint"] <= 16.6e6
    assert half["unequal"] == scanned["unequal"] == 0


@pytest.mark.skipif("SUBLET_HEAP" not in os.environ, reason="SUBLET_HEAP does not name the counter of the heap")
def test_the_heap_of_a_step_falls_with_its_limit() -> None:
    for whole, less in (ran(*args) for args in RAN):
        assert less["heap"] < 0.6 * whole["heap"]


def test_a_program_within_the_limit_stays_as_it_is() -> None:
    step, args = STEPS["mlp"]()
    fitted = within(step, "1GiB", *args)
    assert fitted.plan is None and fitted.overhead == 0 and fitted.footprint == fitted.original_footprint
    assert unequal(jax.jit(step)(*args), fitted(*args)) == 0


@pytest.mark.parametrize(("scanned", "limits"), [(False, (24, 20, 1)), (True, (27, 20, 1))])
def test_refusals_name_the_least_that_was_compiled_whatever_the_limit(scanned: bool, limits: Any) -> None:
    step, args = jax_steps.residual(layers=8, batch=1024, scanned=scanned)
    told = []
    for percent in limits:
        with pytest.raises(sublet.PlanError, match=r"no schedule within [0-9]+ bytes was found; .* [0-9]+$") as refused:
            sublet.jax.fit(step, f"{percent}%", *args, progress=False)
        told.append(refused.value.least)
    least = told[0]
    assert told == [least] * len(limits) and str(least) in str(refused.value)
    # It is the truth.
    fitted = within(step, least, *args)
    assert fitted.footprint == least == fitted.least
    assert unequal(jax.jit(step)(*args), fitted(*args)) == 0


def test_residual_blocks_take_less_than_by_any_checkpoints() -> None:
    step, args = jax_steps.residual()

    def marked(group: int) -> Any:
        @jax.checkpoint
        def part(x: Any, weights: Any) -> Any:
            for weight in weights:
                x = x + jnp.tanh(x @ weight)
            return x

        def loss(weights: Any, x: Any) -> Any:
            for k in range(0, len(weights), group):
                x = part(x, weights[k : k + group])
            return (x**2).mean()

        return jax.value_and_grad(loss)

    by_hand = min(within(marked(group), "100%", *args).footprint for group in (1, 2, 4))
    fitted = within(step, "30%", *args)
    assert fitted.footprint <= 11e6 < 14e6 < by_hand
    assert unequal(jax.jit(step)(*args), fitted(*args)) == 0


def test_what_xla_keeps_is_read_from_its_program() -> None:
    def fun(weights: Any, x: Any) -> Any:
        y = jnp.tanh(x @ weights[0])
        return jnp.pad(y, ((0, 64), (0, 0))) + jnp.pad(y @ weights[1], ((64, 0), (0, 0)))

    args = normal(1, 2, 64, 64), normal(2, 64, 64)
    block = Block(jax.make_jaxpr(fun)(*args))
    equations, run = tagged(block)
    seen = evidence(Compiler(args, ()).compile(run), equations)
    names = [equation.name for equation in equations if equation in seen.stored]
    assert names.count("dot_general") == 2 and "pad" not in names
    assert "pad" in [equation.name for equation in seen.fused] and not seen.exchanges


def test_memory_that_saves_little_time_is_left_free() -> None:
    step, args = jax_steps.residual(layers=8, batch=512, scanned=True)
    fastest, half = (within(step, "60%", *args, slower=slower) for slower in (0, 0.5))
    assert fastest.overhead < half.overhead and fastest.footprint > half.footprint
    assert fastest.footprint > 0.9 * 0.6 * fastest.original_footprint
    assert (1 + half.overhead) / (1 + fastest.overhead) <= 1.5
    with pytest.raises(ValueError, match="slower: expected .* found -1"):
        sublet.jax.fit(step, "60%", *args, slower=-1)


def test_a_limit_that_cannot_be_read_is_refused_before_anything_is_compiled() -> None:
    def step(x: jax.Array) -> jax.Array:
        raise AssertionError("traced")

    with pytest.raises(ValueError, match='limit: .* found "half"'):
        sublet.jax.fit(step, "half", jnp.zeros(4), progress=False)


def test_arguments_may_be_shapes_and_may_be_donated() -> None:
    step, args = STEPS["gpt"](layers=3)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), args)
    fitted = within(step, "60%", *shapes, donate_argnums=(0, 1))
    assert fitted.original_footprint < within(step, "100%", *shapes).original_footprint
    expected = jax.jit(step)(*args)
    given = jax.tree.map(jnp.copy, args)
    assert unequal(expected, fitted(*given)) <= ROUNDED["gpt"]
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(given[0]))


def test_other_arguments_than_those_of_the_fit_are_refused() -> None:
    step, args = STEPS["mlp"](layers=4)
    fitted = within(step, "70%", *args)
    params, x = args
    with pytest.raises(TypeError):
        fitted(params, x[:10])
    with pytest.raises(TypeError, match="expected arguments as"):
        jax.jit(fitted.fun)(params[:-1], (x, *params[-1]))


def chain(x: Any, weights: Any) -> Any:
    for weight in weights:
        x = jnp.sin(x @ weight) + jnp.cos(x)
    return (x**2).sum()


def square(layers: int = 8, width: int = 128) -> list[Any]:
    return [normal(k, width, width) for k in range(layers)]


def test_what_has_effects_runs_once_and_in_its_order() -> None:
    told: list[float] = []

    def tell(value: Any) -> None:
        jax.debug.callback(lambda number: told.append(float(number)), value, ordered=True)

    # A function that is compiled already is looked into as well.
    @jax.jit
    def step(weights: Any, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            y = jnp.tanh(x @ weights[0])
            tell(y.sum())
            tell(y.max())
            return chain(y, weights)

        return jax.value_and_grad(loss)(weights)

    args = square(), normal(9, 512, 128)
    expected = step(*args)
    jax.effects_barrier()
    assert len(told) == 2 and told[0] != told[1]
    fitted = within(step, "60%", *args)
    assert unequal(expected, fitted(*args)) <= 1e-5
    jax.effects_barrier()
    assert len(told) == 4 and np.allclose(told[:2], told[2:], rtol=1e-3)


def test_loops_branches_and_rules_of_the_users_own_are_kept() -> None:
    @jax.custom_vjp
    def doubled(x: Any) -> Any:
        return jnp.sin(x)

    # Not the derivative, so that a program that forgets the rule is seen.
    doubled.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (2 * g * jnp.cos(x),))

    def step(weights: Any, x: Any, flag: Any) -> Any:
        def loss(weights: Any) -> Any:
            y = doubled(x @ weights[0])
            y = jax.lax.cond(flag > 0, lambda y: y * 2, lambda y: y - 1, y)
            y, _ = jax.lax.scan(jax.checkpoint(lambda y, w: (jnp.tanh(y @ w), None)), y, jnp.stack(weights[:2]))
            return chain(jnp.sort(y), weights)

        value, grads = jax.value_and_grad(loss)(weights)
        count = jax.lax.while_loop(lambda n: n < flag, lambda n: n + 1, 0)
        return value, grads, count, flag, 3.0

    args = square(), normal(9, 512, 128), jnp.int32(5)
    fitted = within(step, "60%", *args)
    expected, got = jax.jit(step)(*args), fitted(*args)
    assert jax.tree.structure(expected) == jax.tree.structure(got)
    assert unequal(expected, got) <= 1e-5 and int(got[2]) == int(got[3]) == 5 and float(got[4]) == 3


def loops(loss: Any, *limits: str, **options: Any) -> list[sublet.jax.Fitted]:
    """The gradient of a loss within limits, with values that are the same."""
    args = 0.1 * normal(0, 12, 96, 96), normal(1, 512, 96)
    step = jax.value_and_grad(loss, (0, 1))
    found = []
    for limit in limits:
        fitted = within(step, limit, *args, **options)
        assert fitted.scans and fitted.plan is None
        assert unequal(jax.jit(step)(*args), fitted(*args)) <= 1e-6
        found.append(fitted)
    return found


def gelu(x: Any, weight: Any) -> Any:
    return x + jax.nn.gelu(x @ weight)


def test_a_scan_keeps_less_for_its_gradient() -> None:
    def loss(weights: Any, x: Any) -> Any:
        y, means = jax.lax.scan(lambda x, weight: (gelu(x, weight), x.mean(0)), x, weights, reverse=True)
        return (y**2).mean() + (means**3).sum()

    half, fifth = loops(loss, "50%", "22%", slower=0)
    assert half.least == fifth.least and half.overhead < fifth.overhead
    # Iterations are mixed, and each is in one part.
    assert sorted(k for scan in half.scans for k in scan.iterations) == list(range(12)) and len(half.scans) > 1
    assert any(scan.group > 1 for scan in fifth.scans)
    told = fifth.report()
    assert "carry" in told and "again dot_general test_jax.py:" in told and "in groups of" in told


def test_scans_in_a_row_and_in_each_other_keep_less() -> None:
    def row(weights: Any, x: Any) -> Any:
        x, _ = jax.lax.scan(lambda x, weight: (gelu(x, weight), None), x, weights)
        return (jax.lax.scan(lambda x, weight: (jnp.tanh(x @ weight), None), x, weights[:5])[0] ** 2).mean()

    def nested(weights: Any, x: Any) -> Any:
        def body(x: Any, weight: Any) -> Any:
            return jax.lax.scan(lambda x, _: (gelu(x, weight), None), x, None, length=16)[0], None

        return (jax.lax.scan(body, x, weights[:3])[0] ** 2).mean()

    assert {scan.length for scan in loops(row, "30%")[0].scans} == {5, 12}
    assert {scan.length for scan in loops(nested, "20%")[0].scans} == {3, 16}


def experts(x: Any, own: Any) -> Any:
    up, down, router = own
    likely = jax.nn.softmax(x @ router)
    parts = likely * jax.nn.one_hot(likely.argmax(-1), len(up))
    hidden = jnp.tanh(jnp.einsum("td,edf->tef", x, up))
    return x + jnp.einsum("tef,efd,te->td", hidden, down, parts), None


def mixture() -> tuple[Any, Any]:
    weights = normal(0, 6, 4, 32, 64), normal(1, 6, 4, 64, 32), normal(2, 6, 32, 4)
    return lambda weights, x: (jax.lax.scan(experts, x, weights)[0] ** 2).mean(), (weights, normal(3, 512, 32))


def recurrent() -> tuple[Any, Any]:
    def cell(weights: Any, state: Any, x: Any) -> Any:
        gates = jax.nn.sigmoid(x @ weights[0] + state[0] @ weights[1])
        i, f, g, o = jnp.split(gates, 4, -1)
        memory = f * state[1] + i * (2 * g - 1)
        return (o * jnp.tanh(memory), memory), o

    def loss(weights: Any, xs: Any) -> Any:
        zeros = jnp.zeros((32, 64))
        (last, _), gates = jax.lax.scan(partial(cell, weights), (zeros, zeros), xs)
        return (last**2).mean() + (gates**3).mean()

    return loss, ((normal(0, 32, 256), normal(1, 64, 256)), normal(2, 60, 32, 32))


@pytest.mark.parametrize("program", [mixture, recurrent])
def test_loops_of_experts_and_of_a_memory(program: Any) -> None:
    loss, args = program()
    step = jax.value_and_grad(loss)
    fitted = within(step, "50%", *args)
    assert fitted.scans and fitted.plan is None
    expected = jax.jit(step)(*args)
    assert unequal(expected, fitted(*args)) <= 1e-6 < unequal(expected, fitted(args[0], 1.01 * args[1]))


def test_scans_in_the_body_of_a_scan_keep_less() -> None:
    def layers(weights: Any, x: Any) -> Any:
        return (jax.lax.scan(lambda x, weight: (gelu(x, weight), None), x, weights)[0] ** 2).mean()

    # Gradients of parts of a batch are added up, as they are where a batch is too large.
    def step(weights: Any, x: Any) -> Any:
        parts = x.reshape(4, -1, *x.shape[1:])
        zero = jnp.zeros_like(weights)
        return jax.lax.scan(lambda sum, part: (sum + jax.grad(layers)(weights, part), None), zero, parts)[0]

    args = 0.1 * normal(0, 12, 64, 64), normal(1, 4096, 64)
    fitted = within(step, "50%", *args)
    assert fitted.scans and unequal(jax.jit(step)(*args), fitted(*args)) <= 1e-6


@pytest.mark.parametrize(("steps", "limit", "least"), [(1, "6%", 0.06), (5, "15%", 0.083)])
def test_many_steps_of_one_number(steps: int, limit: str, least: float) -> None:
    first = normal(0, 300, 100)

    def step(state: Any, _: Any) -> Any:
        x, p = state
        a = jnp.sin(p * x)
        return (x + a + jnp.cos(p * a), p), None

    def loss(p: Any) -> Any:
        state = first, p
        for _ in range(steps):
            state, _ = jax.lax.scan(step, state, length=100 // steps)
        return state[0].sum()

    fitted = within(jax.value_and_grad(loss), limit, 0.8)
    assert fitted.footprint <= least * fitted.original_footprint
    assert unequal(jax.jit(jax.value_and_grad(loss))(0.8), fitted(0.8)) == 0


def test_what_a_loop_can_make_again_from_constants_is_not_kept() -> None:
    def loss(x: Any, ys: Any) -> Any:
        ones = jnp.ones((100, 100))
        return jax.lax.scan(lambda sum, y: (sum + x * (y + ones), None), jnp.zeros_like(ones), ys)[0].mean()

    fitted = within(jax.value_and_grad(loss), "10%", 1.0, jnp.ones(10))
    assert unequal(jax.value_and_grad(loss)(1.0, jnp.ones(10)), fitted(1.0, jnp.ones(10))) == 0


def test_a_program_that_does_not_compile_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    step, args = jax_steps.residual(layers=8, batch=1024, scanned=True)
    compile, room = Compiler.compile, 10**7

    def within_room(self: Compiler, fun: Any) -> Any:
        compiled = compile(self, fun)
        if footprint(compiled) > room:
            raise TooLarge("RESOURCE_EXHAUSTED")
        return compiled

    assert footprint(Compiler(args, ()).compile(step)) > room
    monkeypatch.setattr(Compiler, "compile", within_room)
    with pytest.raises(sublet.PlanError, match="expected a limit in bytes"):
        sublet.jax.fit(step, "50%", *args)
    fitted = sublet.jax.fit(step, "9MB", *args)
    assert fitted.original_footprint is None and fitted.footprint <= 9e6
    assert unequal(jax.jit(step)(*args), fitted(*args)) == 0
    with pytest.raises(sublet.PlanError, match="no schedule within 1000 bytes"):
        sublet.jax.fit(step, 1000, *args)


def exchanged(compiled: Any) -> int:
    """The arrays that devices add up in a call of a program: those in a loop count for each iteration."""
    computations = _computations(compiled.as_text())

    def arrays(name: str) -> int:
        total = 0
        for line in computations[name]:
            if line["operator"].startswith("all-reduce"):
                total += line["type"].count("[")
            elif line["operator"] == "while":
                body, times = re.search(r"body=%?([\w.-]+)", line["rest"]), re.search(r'"n":"(\d+)"', line["rest"])
                assert body and times
                total += int(times[1]) * arrays(body[1])
        return total

    return arrays(list(computations)[-1])


@pytest.mark.parametrize(("scanned", "laid"), [(False, True), (True, False)])
def test_devices_exchange_no_more_values_within_a_limit(scanned: bool, laid: bool) -> None:
    mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    places = [NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((None, None, "model"), (None, "model"), ("data",))]
    arrays = 0.1 * normal(0, 4, 128, 256), 0.1 * normal(1, 4, 256, 128), normal(2, 1024, 128)
    up, down, x = map(jax.device_put, arrays, places)

    def block(x: Any, weights: Any) -> Any:
        return x + jnp.tanh(jnp.tanh(x @ weights[0]) @ weights[1])

    def loss(weights: Any, x: Any) -> Any:
        if scanned:
            x, _ = jax.lax.scan(lambda x, own: (block(x, own), None), x, weights)
        else:
            for k in range(4):
                x = block(x, (weights[0][k], weights[1][k]))
        return (x**2).mean()

    step = jax.value_and_grad(loss)
    if laid:
        step = jax.jit(step, in_shardings=(tuple(places[:2]), places[2]))
    with pytest.raises(sublet.PlanError) as refused:
        sublet.jax.fit(step, 1, (up, down), x, progress=False)
    fitted = within(step, refused.value.least or 0, (up, down), x)
    plain = jax.jit(step).lower((up, down), x).compile()
    assert exchanged(fitted.compiled) == exchanged(plain) > 0
    expected, got = plain((up, down), x), fitted((up, down), x)
    assert unequal(expected, got) <= 1e-6
    assert [leaf.sharding for leaf in jax.tree.leaves(expected)] == [leaf.sharding for leaf in jax.tree.leaves(got)]


def test_arrays_on_several_devices_stay_there() -> None:
    mesh = jax.make_mesh((2,), ("batch",))
    weights = [jax.device_put(weight, NamedSharding(mesh, PartitionSpec())) for weight in square()]
    x = jax.device_put(normal(9, 1024, 128), NamedSharding(mesh, PartitionSpec("batch")))
    step = jax.value_and_grad(lambda weights, x: chain(x, weights))
    fitted = within(step, "60%", weights, x)
    expected, got = jax.jit(step)(weights, x), fitted(weights, x)
    assert unequal(expected, got) <= 1e-5 and got[1][0].sharding == expected[1][0].sharding


def test_a_recording_has_the_operators_that_xla_runs() -> None:
    def fun(weight: Any, x: Any) -> Any:
        y = jnp.tanh(x @ weight + 1.0)
        return (y * 2.0 + 1.0).sum(), jax.lax.scan(lambda c, row: (c + row @ weight, None), x[0], x)[0]

    width, rows = 64, 32
    graph = sublet.jax.record(fun, jax.ShapeDtypeStruct((width, width), jnp.float32), jnp.zeros((rows, width)))
    # The sum reads what the product makes: all between them is fused into it, and takes no memory.
    assert graph.operators.names == ["dot_general", "reduce_sum", "squeeze", "scan"]
    floats = 4 * width * width, 4 * rows * width, 4 * rows * width, 4, 4 * width, 4 * width
    assert tuple(graph.bytes) == floats
    assert graph.storage[:2] == [sublet.PERSISTENT] * 2 and graph.storage.count(sublet.ITERATION) == 2
    assert sublet.plan(graph).optimal
    # The loop multiplies as much as the product, which is most of what it does; the sum only reads.
    assert graph.time_ns[3] > 2 * graph.time_ns[1] and graph.time_ns[0] > 2 * graph.time_ns[1]


def test_the_example_of_the_guide_runs() -> None:
    guide = (HERE.parents[1] / "docs" / "jax.md").read_text()
    example = textwrap.dedent(re.findall(r"(?:^    .*\n|^\n)+", guide, re.MULTILINE)[1])
    assert "sublet.jax.fit" in example
    weights, x = square(), normal(9, 512, 128)
    names: dict[str, Any] = {"params": weights, "batch": x, "batches": [x] * 2}
    names["loss_of"] = lambda params, batch: chain(batch, params)
    exec(example, names)
    step = names["step"]
    assert step.footprint * 2 <= step.original_footprint and np.isfinite(names["loss"])

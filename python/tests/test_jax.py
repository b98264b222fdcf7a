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
from typing import Any

import pytest

pytest.importorskip("jax")

# Sets what XLA reads before JAX is imported.
import jax_steps
from jax_steps import STEPS, normal, unequal

import jax
import jax.numpy as jnp
import numpy as np
import sublet
import sublet.jax
from jax.sharding import NamedSharding, PartitionSpec

HERE = pathlib.Path(__file__).resolve().parent

ROUNDED = {"mlp": 0.0, "gpt": 1e-3, "resnet": 1e-5}
"""What results may differ in, where XLA fuses other operators together. Adam makes more of it where gradients are
nearly 0."""


def within(step: Any, limit: int | str, *args: Any, **options: Any) -> sublet.jax.Fitted:
    """The step within a limit, which XLA confirms."""
    fitted = sublet.jax.fit(step, limit, *args, progress=False, **options)
    stats = fitted.compiled.memory_analysis()
    taken = stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
    assert fitted.footprint == taken + stats.temp_size_in_bytes
    return fitted


@pytest.mark.parametrize("name", STEPS)
def test_a_training_step_within_a_limit_computes_the_same(name: str) -> None:
    step, args = STEPS[name](**({"layers": 3} if name == "gpt" else {}))
    expected = jax.jit(step)(*args)
    before = None
    for percent in (80, 50):
        fitted = within(step, f"{percent}%", *args)
        assert fitted.plan is not None and fitted.plan.overhead > 0
        assert fitted.footprint * 100 <= fitted.original_footprint * percent
        assert before is None or fitted.footprint < before
        assert unequal(expected, fitted(*args)) <= ROUNDED[name]
        before = fitted.footprint
    # The comparison sees a step that computes something else.
    other = (jax.tree.map(lambda leaf: leaf * 1.01 if leaf.dtype == jnp.float32 else leaf, args[0]), *args[1:])
    assert unequal(expected, fitted(*other)) > ROUNDED[name]


def test_the_order_of_the_recording_is_not_within_the_limit() -> None:
    step, args = STEPS["mlp"]()
    fitted = within(step, "50%", *args)
    program = sublet.jax._Program(step, args)
    recorded = program.function([(number, False) for number in range(len(program.operators))])
    assert unequal(jax.jit(step)(*args), jax.jit(recorded)(*args)) == 0
    taken = sublet.jax._footprint(jax.jit(recorded).lower(*args).compile())
    assert taken > 0.9 * fitted.original_footprint > fitted.footprint


def test_a_step_takes_less_than_by_checkpoints_of_its_layers() -> None:
    step, args = STEPS["gpt"](layers=3)
    marked = jax_steps.gpt(layers=3, mark=jax.checkpoint)[0]
    by_hand = within(marked, "100%", *args)
    assert unequal(by_hand(*args), jax.jit(step)(*args)) <= ROUNDED["gpt"]
    limit = by_hand.footprint * 9 // 10
    assert within(step, limit, *args).footprint <= limit < by_hand.footprint


def ran(flags: str, *args: str) -> list[dict[str, Any]]:
    """The lines of the script of the steps, in a process of its own."""
    environment = {**os.environ, "XLA_FLAGS": flags}
    if "SUBLET_HEAP" in os.environ:
        environment["LD_PRELOAD"] = os.environ["SUBLET_HEAP"]
    script = [sys.executable, str(HERE / "jax_steps.py"), *args]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_on_the_processor_xla_has_to_be_told_to_keep_recomputations() -> None:
    _, half = ran("", "mlp", "50%")
    assert "XLA_FLAGS=--xla_disable_hlo_passes=cse_barrier_expander" in half["refused"]


@pytest.mark.skipif("SUBLET_HEAP" not in os.environ, reason="SUBLET_HEAP does not name the counter of the heap")
def test_the_heap_of_a_step_falls_with_its_limit() -> None:
    whole, half = ran(os.environ["XLA_FLAGS"], "gpt", "50%")
    # XLA counts the arguments too, which are there before the call.
    assert half["heap"] < 0.6 * whole["heap"] and half["heap"] <= half["footprint"]


def test_a_program_within_the_limit_stays_as_it_is() -> None:
    step, args = STEPS["mlp"]()
    fitted = within(step, "1GiB", *args)
    assert fitted.plan is None and fitted.footprint == fitted.original_footprint
    assert unequal(jax.jit(step)(*args), fitted(*args)) == 0


def test_a_limit_that_nothing_keeps_is_refused() -> None:
    step, args = STEPS["mlp"]()
    with pytest.raises(sublet.PlanError, match="no schedule within 4096 bytes was found; .* [0-9]+$"):
        sublet.jax.fit(step, 4096, *args, progress=False)


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


def test_arrays_on_several_devices_stay_there() -> None:
    mesh = jax.make_mesh((2,), ("batch",))
    weights = [jax.device_put(weight, NamedSharding(mesh, PartitionSpec())) for weight in square()]
    x = jax.device_put(normal(9, 1024, 128), NamedSharding(mesh, PartitionSpec("batch")))
    step = jax.value_and_grad(lambda weights, x: chain(x, weights))
    fitted = within(step, "50%", weights, x)
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

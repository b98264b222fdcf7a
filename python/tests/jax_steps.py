"""Training steps in plain JAX, and what they take with and without a limit, on the processor; prints lines of JSON.

    LD_PRELOAD=libheap.so python jax_steps.py [STEP [LIMIT...]]

`footprint` is what XLA says of the program, and `heap` what a call takes at most beyond its arguments, as the counter
of the heap saw it, both in bytes; `time` is the least time that processors work for one of several calls, in seconds;
`unequal` is the largest difference of a result, in parts of the largest number of that result.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
import sublet
import sublet.jax

CALLS = 5

Step = tuple[Callable[..., Any], tuple[Any, ...]]


def key(number: int) -> Any:
    return jax.random.key(number)


def normal(number: int, *shape: int) -> Any:
    return jax.random.normal(key(number), shape) / math.sqrt(shape[0])


def mlp(layers: int = 12, width: int = 256, batch: int = 1024) -> Step:
    """Matrices with a GELU after each."""
    params = [(normal(k, width, width), jnp.zeros(width)) for k in range(layers)]

    def loss(params: Any, x: Any) -> Any:
        for weight, bias in params:
            x = jax.nn.gelu(x @ weight + bias)
        return (x**2).mean()

    return jax.value_and_grad(loss), (params, normal(99, batch, width))


def gpt(
    layers: int = 6,
    width: int = 128,
    heads: int = 4,
    length: int = 128,
    batch: int = 8,
    words: int = 1000,
    mark: Callable[..., Any] = lambda layer: layer,
    scanned: bool = False,
) -> Step:
    """A transformer with dropout, and Adam. `mark` is called with the function of a layer. The layers are written one
    after the other, or scanned."""
    numbers = iter(range(10 * layers + 2))
    params = {
        "words": normal(next(numbers), words, width),
        "places": normal(next(numbers), length, width),
        "layers": [
            {
                "qkv": normal(next(numbers), width, 3 * width),
                "out": normal(next(numbers), width, width),
                "up": normal(next(numbers), width, 4 * width),
                "down": normal(next(numbers), 4 * width, width),
                "norms": jnp.ones((2, width)),
            }
            for _ in range(layers)
        ],
    }

    def norm(x: Any, scale: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-5) * scale

    def dropped(x: Any, drawn: Any) -> Any:
        return jnp.where(jax.random.bernoulli(drawn, 0.9, x.shape), x / 0.9, 0)

    if scanned:
        params["layers"] = jax.tree.map(lambda *leaves: jnp.stack(leaves), *params["layers"])
    mask = jnp.tril(jnp.ones((length, length), bool))

    @mark
    def through(x: Any, layer: Any, drawn: Any) -> Any:
        one, two = jax.random.split(drawn)
        qkv = norm(x, layer["norms"][0]) @ layer["qkv"]
        q, k, v = jnp.moveaxis(qkv.reshape(batch, length, 3, heads, width // heads), (2, 3), (0, 2))
        scores = jnp.where(mask, q @ k.swapaxes(-1, -2) / math.sqrt(width // heads), -1e9)
        mixed = (jax.nn.softmax(scores) @ v).swapaxes(1, 2).reshape(batch, length, width)
        x = x + dropped(mixed @ layer["out"], one)
        return x + dropped(jax.nn.gelu(norm(x, layer["norms"][1]) @ layer["up"]) @ layer["down"], two)

    def loss(params: Any, tokens: Any, drawn: Any) -> Any:
        x = params["words"][tokens] + params["places"]
        draws = jax.random.split(drawn, layers)
        if scanned:
            x, _ = jax.lax.scan(lambda x, own: (through(x, *own), None), x, (params["layers"], draws))
        else:
            for layer, own in zip(params["layers"], draws, strict=True):
                x = through(x, layer, own)
        chosen = jax.nn.log_softmax(x[:, :-1] @ params["words"].T)
        return -jnp.take_along_axis(chosen, tokens[:, 1:, None], -1).mean()

    def step(params: Any, moments: Any, tokens: Any, drawn: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, tokens, drawn)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], grads)
        second = jax.tree.map(lambda m, g: 0.99 * m + 0.01 * g**2, moments[1], grads)
        params = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, first, second)
        return params, (first, second), value

    zeros = jax.tree.map(jnp.zeros_like, params)
    tokens = jax.random.randint(key(1), (batch, length), 0, words)
    return step, (params, (zeros, zeros), tokens, key(7))


def resnet(width: int = 16, blocks: int = 6, batch: int = 32, size: int = 32) -> Step:
    """Residual blocks with batch normalization, and gradients with momentum."""
    numbers = iter(range(3 * blocks + 2))
    stem, head = normal(next(numbers), 3, 3, 3, width) / 3, normal(next(numbers), width, 10)
    params = [stem, head, [[normal(next(numbers), 3, 3, width, width) / 9 for _ in "ab"] for _ in range(blocks)]]

    def convolved(x: Any, weight: Any) -> Any:
        return jax.lax.conv_general_dilated(x, weight, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def normed(x: Any) -> Any:
        return (x - x.mean((0, 1, 2))) * jax.lax.rsqrt(x.var((0, 1, 2)) + 1e-5)

    def loss(params: Any, x: Any) -> Any:
        stem, head, layers = params
        x = jax.nn.relu(normed(convolved(x, stem)))
        for one, two in layers:
            y = jax.nn.relu(normed(convolved(x, one)))
            x = jax.nn.relu(x + normed(convolved(y, two)))
        return jax.nn.log_softmax(x.mean((1, 2)) @ head)[:, 0].mean()

    def step(params: Any, momentum: Any, x: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, x)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        return jax.tree.map(lambda p, m: p - 0.01 * m, params, momentum), momentum, value

    return step, (params, jax.tree.map(jnp.zeros_like, params), normal(98, batch, size, size, 3))


def residual(layers: int = 16, width: int = 128, batch: int = 2048, scanned: bool = False) -> Step:
    """Blocks that add to what they are given, written one after the other or scanned."""

    def block(x: Any, weight: Any) -> Any:
        return x + jnp.tanh(x @ weight)

    def loss(weights: Any, x: Any) -> Any:
        if scanned:
            x, _ = jax.lax.scan(lambda x, weight: (block(x, weight), None), x, weights)
        else:
            for k in range(layers):
                x = block(x, weights[k])
        return (x**2).mean()

    return jax.value_and_grad(loss), (0.01 * jnp.ones((layers, width, width)), jnp.ones((batch, width)))


STEPS: dict[str, Callable[..., Step]] = {
    "mlp": mlp,
    "gpt": gpt,
    "resnet": resnet,
    "scanned-gpt": partial(gpt, layers=10, scanned=True),
    "residual": residual,
    "scanned-residual": partial(residual, scanned=True),
}
MARKS = {
    "nothing_saveable": jax.checkpoint,
    "dots_saveable": partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_saveable),
}
"""What JAX offers: layers are marked by hand, and the values within are recomputed; all, or all but matrix products."""


def unequal(expected: Any, got: Any) -> float:
    """The largest difference of a result, in parts of the largest number of that result."""
    worst = 0.0
    for leaf, other in zip(jax.tree.leaves(expected), jax.tree.leaves(got), strict=True):
        a, b = np.asarray(leaf), np.asarray(other)
        worst = max(worst, float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30)))
    return worst


def heap_of(call: Callable[[], Any]) -> int | None:
    """The most bytes that a call takes; None without the counter of the heap."""
    try:
        library = ctypes.CDLL(None)
        now, most = library.memcount_now, library.memcount_peak
    except AttributeError:
        return None
    now.restype = most.restype = ctypes.c_longlong
    jax.block_until_ready(call())
    # What calls before took is given back by a thread of XLA.
    time.sleep(0.3)
    before: int = now()
    library.memcount_reset()
    jax.block_until_ready(call())
    return int(most()) - before


def time_of(call: Callable[[], Any]) -> float:
    """The least time that processors work for one of several calls, in seconds."""
    times = []
    for _ in range(CALLS):
        begin = time.process_time()
        jax.block_until_ready(call())
        times.append(time.process_time() - begin)
    return min(times)


def told(name: str, limit: str, footprint: int, expected: Any, call: Callable[[], Any]) -> None:
    """Prints what a call takes."""
    line = {
        "step": name,
        "limit": limit,
        "footprint": footprint,
        "heap": heap_of(call),
        "time": round(time_of(call), 4),
        "unequal": unequal(expected, call()),
    }
    print(json.dumps(line), flush=True)


def main(names: list[str]) -> None:
    for name in names[:1] or STEPS:
        step, args = STEPS[name]()
        expected = jax.jit(step)(*args)
        for limit in ["100%", *(names[1:] or ["70%", "50%", "35%"])]:
            try:
                fitted = sublet.jax.fit(step, limit, *args, progress=False)
            except sublet.PlanError as e:
                print(json.dumps({"step": name, "limit": limit, "refused": str(e)}), flush=True)
                continue
            told(name, limit, fitted.footprint, expected, lambda: fitted(*args))
        for how, mark in MARKS.items() if "gpt" in name and not names[1:] else ():
            marked = sublet.jax.fit(STEPS[name](mark=mark)[0], "100%", *args)
            told(name, how, marked.footprint, expected, lambda: marked(*args))


if __name__ == "__main__":
    main(sys.argv[1:])

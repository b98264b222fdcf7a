"""What ONNX Runtime takes for some models: with its defaults, without its memory pattern, and with planned memory, without the
pattern and with it. Each is run in a process of its own. Ends with 1 if bits differ, or if planned memory takes more than it should.

    python measure.py FOLDER [THREADS [RUNS]]    FOLDER: where models are, and where those that are made here are written

Of each: how much the process grows from before the first run to after the last (resident memory, in MiB), what the requests
of a run need at their peak, and CPU seconds of the fastest run. Models are those of the onnx package that have made-up weights,
and some that are made here.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

MODES = ("default", "pattern off", "planned", "planned, pattern on")
LIGHT = ("squeezenet", "shufflenet", "resnet50")
SIZE = 112


def convolution(name: str, x: str, y: str, channels: tuple[int, int], window: int, rng: Any) -> tuple[list[Any], list[Any]]:
    from onnx import helper, numpy_helper

    weights = (rng.standard_normal((*channels, window, window)) / np.sqrt(channels[1]) / window).astype(np.float32)
    pads = [window // 2] * 4
    return [helper.make_node("Conv", [x, name], [y], pads=pads)], [numpy_helper.from_array(weights, name)]


def save(file: Path, nodes: list[Any], weights: list[Any], ends: list[str], rows: int | str = 1, channels: int = 32) -> None:
    import onnx
    from onnx import TensorProto, helper

    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, channels, SIZE, SIZE])]
    outputs = [helper.make_tensor_value_info(end, TensorProto.FLOAT, None) for end in ends]
    graph = helper.make_graph(nodes, file.stem, values, outputs, weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(made), file)


def calibration(file: Path) -> None:
    """Convolutions, and at the end of the file two reductions of what each has written."""
    from onnx import helper

    rng, nodes, weights, ends, x = np.random.default_rng(0), [], [], [], "x"
    for i in range(12):
        more = convolution(f"w{i}", x, f"c{i}", (32, 32), 1, rng)
        nodes += [*more[0], helper.make_node("LeakyRelu", [f"c{i}"], [f"r{i}"])]
        weights += more[1]
        x = f"r{i}"
    for i in range(12):
        for kind in ("ReduceMin", "ReduceMax"):
            nodes.append(helper.make_node(kind, [f"c{i}"], [f"{kind}{i}"], keepdims=0))
            ends.append(f"{kind}{i}")
    save(file, nodes, weights, [x, *ends])


def wired(file: Path, count: int, seed: int) -> None:
    """A randomly wired network (Xie et al. 2019): a ring of which edges are rewired, and a convolution at each node."""
    from onnx import helper

    draw, rng = random.Random(seed), np.random.default_rng(seed)
    edges = set()
    for i in range(count):
        for step in (1, 2):
            other = draw.choice([j for j in range(count) if j != i]) if draw.random() < 0.75 else (i + step) % count
            edges.add((min(i, other), max(i, other)))
    nodes, weights = [], []
    for i in range(count):
        sources = [f"v{a}" for a, b in sorted(edges) if b == i] or ["x"]
        nodes += [helper.make_node("Sum", sources, [f"s{i}"]), helper.make_node("Relu", [f"s{i}"], [f"r{i}"])]
        more = convolution(f"w{i}", f"r{i}", f"v{i}", (32, 32), 1, rng)
        nodes += more[0]
        weights += more[1]
    ends = [f"v{i}" for i in range(count) if not any(a == i for a, _ in edges)]
    save(file, [*nodes, helper.make_node("Sum", ends, ["y"])], weights, ["y"])


def gated(file: Path) -> None:
    """Ten gated convolutions over an open batch."""
    from onnx import helper

    rng, nodes, weights, x = np.random.default_rng(0), [], [], "x"
    for i in range(10):
        more = convolution(f"w{i}", x, f"c{i}", (32, 32), 3, rng)
        nodes += [*more[0], helper.make_node("Sigmoid", [f"c{i}"], [f"g{i}"]), helper.make_node("Mul", [f"c{i}", f"g{i}"], [f"m{i}"])]
        weights += more[1]
        x = f"m{i}"
        if i % 3 == 2:
            nodes.append(helper.make_node("Add", [x, f"m{i - 2}"], [f"a{i}"]))
            x = f"a{i}"
    save(file, nodes, weights, [x], rows="n")


def detector(file: Path, size: int = 320, width: int = 32) -> None:
    """A detector of text, as DBNet (Liao et al. 2020): a residual network, a feature pyramid, and two heads that upsample."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng, nodes, weights = np.random.default_rng(0), [], []

    def op(kind: str, *inputs: str, **more: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [f"v{len(nodes)}"], **more))
        return f"v{len(nodes) - 1}"

    def constant(value: Any) -> str:
        weights.append(numpy_helper.from_array(np.asarray(value, np.float32), f"w{len(weights)}"))
        return weights[-1].name

    def conv(x: str, channels: tuple[int, int], window: int, stride: int = 1) -> str:
        shape = (*channels, window, window)
        w = constant(rng.standard_normal(shape) / np.sqrt(channels[1]) / window)
        return op("Conv", x, w, strides=[stride] * 2, pads=[window // 2] * 4)

    def larger(x: str, times: int) -> str:
        ways = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return op("Resize", x, "", constant([1, 1, times, times]), mode="nearest", **ways) if times > 1 else x

    x = op("Relu", conv("x", (width, 3), 7, 2))
    x, before = op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), width
    sides = []
    for channels in (width, 2 * width, 4 * width, 8 * width):
        for block in range(2):
            stride = 1 if block or channels == width else 2
            y = conv(op("Relu", conv(x, (channels, before), 3, stride)), (channels, channels), 3)
            x = x if channels == before else conv(x, (channels, before), 1, stride)
            x, before = op("Relu", op("Add", y, x)), channels
        sides.append((x, channels))
    sides = [conv(x, (4 * width, channels), 1) for x, channels in sides]
    for i in (2, 1, 0):
        sides[i] = op("Add", sides[i], larger(sides[i + 1], 2))
    fused = op("Concat", *[larger(conv(x, (width, 4 * width), 3), 2**i) for i, x in enumerate(sides)], axis=1)
    ends = []
    for _ in range(2):
        x = op("Relu", conv(fused, (width, 4 * width), 3))
        for channels in (width, 1):
            x = op("ConvTranspose", x, constant(rng.standard_normal((width, channels, 2, 2)) / width), strides=[2, 2])
            x = op("Relu" if channels > 1 else "Sigmoid", x)
        ends.append(x)
    ends.append(op("Sigmoid", op("Mul", op("Sub", *ends), constant(50))))
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, size, size])]
    outputs = [helper.make_tensor_value_info(end, TensorProto.FLOAT, None) for end in ends]
    graph = helper.make_graph(nodes, file.stem, values, outputs, weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(made), file)


def models(folder: Path) -> list[Path]:
    import onnx

    light = Path(onnx.__file__).parent / "backend/test/data/light"
    made = [folder / f"{name}.onnx" for name in ("calibration", "wired", "open", "detector")]
    calibration(made[0])
    wired(made[1], 32, 1)
    gated(made[2])
    detector(made[3])
    found = [light / f"light_{name}.onnx" for name in LIGHT]
    return [*(file for file in found if file.exists()), *made]


def resident() -> float:
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def one(model: str, mode: str, threads: int, runs: int) -> dict[str, Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    if mode.startswith("planned"):
        import sublet.onnx

        sublet.onnx.install()
        session: Any
        if mode == "planned":
            session = sublet.onnx.session(model, options)
        else:
            options.add_session_config_entry("session.use_env_allocators", "1")
            session = sublet.onnx.Session(model, options, providers=["CPUExecutionProvider"])
    else:
        options.enable_mem_pattern = mode == "default"
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    wanted = session.get_inputs()[0]
    shape = [size if isinstance(size, int) else 4 for size in wanted.shape]
    given = {wanted.name: np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before, bits, seconds = resident(), set(), []
    for _ in range(runs):
        begin = time.process_time()
        results = session.run(None, given)
        seconds.append(time.process_time() - begin)
        size, count = sum(each.nbytes for each in results), len(results)
        # Without a copy, which would be measured too.
        digest = hashlib.sha256()
        for each in results:
            digest.update(np.ascontiguousarray(each).reshape(-1).view(np.uint8))
        bits.add(digest.hexdigest())
        del results, each
    told = {"growth": resident() - before, "bits": sorted(bits), "seconds": min(seconds), "results": size, "count": count}
    return told | (session.statistics() if mode.startswith("planned") else {})


def main(folder: Path, threads: int = 1, runs: int = 6) -> int:
    wrong = 0
    print(f"model | MiB: {' | '.join(MODES)} | requests' peak | CPU s: {' | '.join(MODES)} | hits")
    for model in models(folder):
        told = {}
        for mode in MODES:
            command = [sys.executable, __file__, "--one", str(model), mode, str(threads), str(runs)]
            told[mode] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        planned, pattern = told[MODES[2]], told[MODES[3]]
        row = [*(f"{told[mode]['growth']:.1f}" for mode in MODES), f"{planned['arena_peak'] / 2**20:.1f}"]
        row += [*(f"{told[mode]['seconds']:.4f}" for mode in MODES), f"{planned['hits']}"]
        print(f"{model.stem} | {' | '.join(row)}", flush=True)
        right = len({bit for each in told.values() for bit in each["bits"]}) == 1
        # Results are deleted before the next run, and so the second begins with a plan that has them. Some MiB are the
        # planner's own.
        right &= (planned["plans"], planned["misses"]) in ((1, 0), (2, 0))
        right &= planned["resident"] <= 1.1 * planned["arena_peak"]
        right &= planned["growth"] <= told["default"]["growth"] + 4
        # The second run asks for other blocks, which ONNX Runtime has found in the first.
        right &= pattern["resident"] <= 1.1 * pattern["arena_peak"] and pattern["plans"] <= 4
        if not right:
            print(f"FAILED: {model.stem}: {told}")
            wrong = 1
    return wrong


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        print(json.dumps(one(*sys.argv[2:4], *map(int, sys.argv[4:6]))))
    else:
        sys.exit(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))

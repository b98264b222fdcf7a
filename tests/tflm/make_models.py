"""Models of this project's own making, in the format of TensorFlow Lite, with random weights: chains of convolutions,
residual blocks, RandWire-like graphs, elementwise chains with reshapes. python make_models.py FOLDER"""

import os
import random
import sys

import flatbuffers
import numpy as np
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

OPERATORS = schema.BuiltinOperator
FLOAT32 = schema.TensorType.FLOAT32


class Builder:
    """A graph of float tensors of one batch, written as a model."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.model = schema.ModelT()
        self.model.version = 3
        self.model.operatorCodes = []
        self.model.buffers = [schema.BufferT()]
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators = [], []
        self.graph.inputs, self.graph.outputs = [], []
        self.model.subgraphs = [self.graph]
        self.codes = {}

    def tensor(self, shape, data=None, name=None):
        t = schema.TensorT()
        t.shape, t.type, t.buffer = list(shape), FLOAT32, 0
        t.name = name or f"{'weights' if data is not None else 'value'}{len(self.graph.tensors)}"
        if data is not None:
            if data.dtype == np.int32:
                t.type = schema.TensorType.INT32
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(data.tobytes(), np.uint8)
            t.buffer = len(self.model.buffers)
            self.model.buffers.append(buffer)
        self.graph.tensors.append(t)
        return len(self.graph.tensors) - 1

    def shape(self, t):
        return self.graph.tensors[t].shape

    def weights(self, shape):
        return self.tensor(shape, (self.random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32))

    def input(self, shape):
        t = self.tensor(shape, name="image")
        self.graph.inputs = list(self.graph.inputs) + [t]
        return t

    def output(self, t):
        self.graph.outputs = list(self.graph.outputs) + [t]

    def operator(self, code, inputs, shape, options=None, options_type=0):
        if code not in self.codes:
            c = schema.OperatorCodeT()
            c.builtinCode, c.deprecatedBuiltinCode, c.version = code, min(code, 127), 1
            self.codes[code] = len(self.model.operatorCodes)
            self.model.operatorCodes.append(c)
        o = schema.OperatorT()
        o.opcodeIndex, o.inputs, o.outputs = self.codes[code], list(inputs), [self.tensor(shape)]
        o.builtinOptions, o.builtinOptionsType = options, options_type
        self.graph.operators.append(o)
        return o.outputs[0]

    def window(self, shape, stride):
        return [1, -(-shape[1] // stride), -(-shape[2] // stride)]

    def conv(self, t, channels, size=3, stride=1, dilation=1):
        options = schema.Conv2DOptionsT()
        options.strideW = options.strideH = stride
        options.dilationWFactor = options.dilationHFactor = dilation
        kernel, bias = self.weights([channels, size, size, self.shape(t)[3]]), self.weights([channels])
        shape = self.window(self.shape(t), stride) + [channels]
        return self.operator(OPERATORS.CONV_2D, [t, kernel, bias], shape, options, schema.BuiltinOptions.Conv2DOptions)

    def depthwise(self, t, size=3, stride=1, multiplier=1):
        options = schema.DepthwiseConv2DOptionsT()
        options.strideW = options.strideH = stride
        options.dilationWFactor = options.dilationHFactor = 1
        options.depthMultiplier = multiplier
        channels = self.shape(t)[3] * multiplier
        kernel, bias = self.weights([1, size, size, channels]), self.weights([channels])
        shape = self.window(self.shape(t), stride) + [channels]
        return self.operator(OPERATORS.DEPTHWISE_CONV_2D, [t, kernel, bias], shape, options, schema.BuiltinOptions.DepthwiseConv2DOptions)

    def pool(self, t, stride=2, code=OPERATORS.MAX_POOL_2D):
        options = schema.Pool2DOptionsT()
        options.strideW = options.strideH = options.filterWidth = options.filterHeight = stride
        shape = self.window(self.shape(t), stride) + [self.shape(t)[3]]
        return self.operator(code, [t], shape, options, schema.BuiltinOptions.Pool2DOptions)

    def add(self, a, b):
        return self.operator(OPERATORS.ADD, [a, b], self.shape(a), schema.AddOptionsT(), schema.BuiltinOptions.AddOptions)

    def relu(self, t):
        return self.operator(OPERATORS.RELU, [t], self.shape(t))

    def logistic(self, t):
        return self.operator(OPERATORS.LOGISTIC, [t], self.shape(t))

    def numbers(self, *values):
        data = np.array(values, np.int32)
        return self.tensor(data.shape, data)

    def pad(self, t, edges):
        """Zeros before and behind each axis."""
        shape = [before + size + behind for size, (before, behind) in zip(self.shape(t), edges)]
        return self.operator(OPERATORS.PAD, [t, self.numbers(*edges)], shape, schema.PadOptionsT(), schema.BuiltinOptions.PadOptions)

    def padded(self, t, size):
        """Zeros around an image, as PyTorch puts them before a convolution."""
        edge = (size // 2, size // 2)
        return self.pad(t, [(0, 0), edge, edge, (0, 0)])

    def valid(self, t, channels, size=3, stride=1, depthwise=False):
        """A convolution that pads nothing."""
        options = schema.DepthwiseConv2DOptionsT() if depthwise else schema.Conv2DOptionsT()
        options.padding = schema.Padding.VALID
        options.strideW = options.strideH = stride
        options.dilationWFactor = options.dilationHFactor = 1
        deep = self.shape(t)[3]
        if depthwise:
            channels, options.depthMultiplier = deep, 1
        kernel = self.weights([1, size, size, deep] if depthwise else [channels, size, size, deep])
        shape = [1] + [(n - size) // stride + 1 for n in self.shape(t)[1:3]] + [channels]
        code, kind = (
            (OPERATORS.DEPTHWISE_CONV_2D, schema.BuiltinOptions.DepthwiseConv2DOptions)
            if depthwise
            else (OPERATORS.CONV_2D, schema.BuiltinOptions.Conv2DOptions)
        )
        return self.operator(code, [t, kernel, self.weights([channels])], shape, options, kind)

    def several(self, code, inputs, shapes, options=None, options_type=0):
        """An operator with several outputs."""
        first = self.operator(code, inputs, shapes[0], options, options_type)
        more = [self.tensor(shape) for shape in shapes[1:]]
        self.graph.operators[-1].outputs = [first] + more
        return [first] + more

    def concat(self, tensors, axis):
        options = schema.ConcatenationOptionsT()
        options.axis = axis
        shape = list(self.shape(tensors[0]))
        shape[axis] = sum(self.shape(t)[axis] for t in tensors)
        return self.operator(OPERATORS.CONCATENATION, tensors, shape, options, schema.BuiltinOptions.ConcatenationOptions)

    def reshape(self, t, shape):
        options = schema.ReshapeOptionsT()
        options.newShape = list(shape)
        to = self.tensor([len(shape)], np.array(shape, np.int32))
        return self.operator(OPERATORS.RESHAPE, [t, to], shape, options, schema.BuiltinOptions.ReshapeOptions)

    def write(self, path):
        builder = flatbuffers.Builder(1 << 20)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        with open(path, "wb") as f:
            f.write(builder.Output())


def chain(seed):
    """Convolutions of all kinds one after the other, as in networks for microcontrollers."""
    b = Builder(seed)
    r = random.Random(seed)
    t = b.input([1, 24, 20, 3])
    t = b.conv(t, 8, stride=2)
    for _ in range(7):
        stride = 2 if b.shape(t)[1] > 6 and r.random() < 0.3 else 1
        step = r.choice(["depthwise", "pointwise", "conv", "multiplied"])
        if step == "depthwise":
            t = b.depthwise(t, stride=stride)
        elif step == "pointwise":
            t = b.conv(t, r.choice([8, 12, 16]), size=1)
        elif step == "multiplied":
            t = b.depthwise(b.conv(t, 4, size=1), multiplier=2)
        else:
            t = b.conv(t, r.choice([6, 8, 16]), stride=stride, dilation=r.choice([1, 2]) if stride == 1 else 1)
    b.output(b.relu(b.pool(t)))
    return b


def residual(seed):
    """Residual blocks whose sums may be written over either branch."""
    b = Builder(seed)
    t = b.conv(b.input([1, 16, 16, 4]), 8)
    for _ in range(4):
        inside = b.conv(b.relu(b.depthwise(b.conv(t, 16, size=1))), 8, size=1)
        t = b.relu(b.add(t, inside))
    b.output(b.logistic(b.reshape(t, [1, 2048])))
    return b


def randwire(seed, nodes=20):
    """Nodes in a row, each of which reads a few of those before it (Xie et al. 2019)."""
    b = Builder(seed)
    r = random.Random(seed)
    values = [b.conv(b.input([1, 32, 32, 3]), 8, stride=2)]
    used = set()
    for _ in range(nodes):
        reads = sorted({r.randrange(max(0, len(values) - 5), len(values)) for _ in range(r.choice([1, 2, 2, 3]))})
        used.update(reads)
        t = values[reads[0]]
        for other in reads[1:]:
            t = b.add(t, values[other])
        values.append(b.conv(b.depthwise(b.relu(t)), 8, size=1))
    last = [i for i in range(len(values)) if i not in used]
    t = values[last[0]]
    for other in last[1:]:
        t = b.add(t, values[other])
    b.output(b.pool(t))
    return b


def small_world(nodes, seed, near=4, rewired=0.75):
    """A RandWire network: a ring in which each node is wired to its nearest, and each wire is led elsewhere at random (Watts
    and Strogatz 1998); wires go from the lower number to the higher (Xie et al. 2019)."""
    b = Builder(seed)
    r = random.Random(seed)
    wires = set()
    for step in range(1, near // 2 + 1):
        for i in range(nodes):
            free = [j for j in range(nodes) if j != i and (min(i, j), max(i, j)) not in wires]
            j = r.choice(free) if r.random() < rewired else (i + step) % nodes
            wires.add((min(i, j), max(i, j)))

    def sum_of(values):
        t = values[0]
        for other in values[1:]:
            t = b.add(t, other)
        return t

    begin = b.conv(b.input([1, 32, 32, 3]), 8, stride=2)
    values = []
    for node in range(nodes):
        reads = [values[i] for i in range(node) if (i, node) in wires] or [begin]
        values.append(b.conv(b.depthwise(b.relu(sum_of(reads))), 8, size=1))
    read = {i for i, _ in wires}
    b.output(b.pool(sum_of([values[i] for i in range(nodes) if i not in read])))
    return b


def branches(seed, order):
    """Large branches that become small, in an order of the file that is good or bad."""
    b = Builder(seed)
    t = b.conv(b.input([1, 24, 24, 3]), 4)
    if order == "bad":
        wide = [b.conv(t, 8, size=1) for _ in range(4)]
        small = [b.pool(b.pool(w)) for w in wide]
    else:
        small = [b.pool(b.pool(b.conv(t, 8, size=1))) for _ in range(4)]
    t = small[0]
    for other in small[1:]:
        t = b.add(t, other)
    b.output(t)
    return b


def mobilenet(seed):
    """A MobileNet as exporters of PyTorch write it: zeros are put around an image by an operator of their own."""
    b = Builder(seed)
    t = b.valid(b.padded(b.input([1, 48, 48, 3]), 3), 8, stride=2)
    for channels, stride in [(16, 1), (24, 2), (24, 1), (32, 2), (32, 1)]:
        inside = b.relu(b.valid(t, channels * 2, size=1))
        inside = b.relu(b.valid(b.padded(inside, 3), 0, stride=stride, depthwise=True))
        out = b.valid(inside, channels, size=1)
        t = b.add(t, out) if b.shape(t) == b.shape(out) else out
    b.output(b.pool(t))
    return b


def moved(kind):
    """One operator that moves elements about, between two that are cheap in memory."""
    b = Builder(sum(map(ord, kind)))
    t = b.relu(b.input([1, 12, 10, 8]))
    o, types = OPERATORS, schema.BuiltinOptions

    def options(of, **fields):
        for name, value in fields.items():
            assert hasattr(of, name), name
            setattr(of, name, value)
        return of

    if kind == "pad":
        t = b.pad(t, [(0, 0), (2, 1), (1, 3), (0, 0)])
    elif kind == "padv2":
        value = b.tensor([1], np.array([0.5], np.float32))
        edges = [(0, 0), (1, 2), (0, 1), (2, 1)]
        shape = [1, 15, 11, 11]
        t = b.operator(o.PADV2, [t, b.numbers(*edges), value], shape, schema.PadV2OptionsT(), types.PadV2Options)
    elif kind == "elementwise":
        t = b.add(b.relu(t), b.logistic(t))
    elif kind == "average_pool":
        t = b.pool(t, code=o.AVERAGE_POOL_2D)
    elif kind == "concat_first":
        t = b.concat([t, b.logistic(t)], 1)
    elif kind == "concat_last":
        t = b.concat([b.relu(t), b.logistic(t)], 3)
    elif kind == "split_first":
        parts = b.several(o.SPLIT, [b.numbers(1), t], [[1, 6, 10, 8]] * 2, options(schema.SplitOptionsT(), numSplits=2), types.SplitOptions)
        t = b.add(*parts)
    elif kind == "split_last":
        parts = b.several(o.SPLIT, [b.numbers(3), t], [[1, 12, 10, 4]] * 2, options(schema.SplitOptionsT(), numSplits=2), types.SplitOptions)
        t = b.add(*parts)
    elif kind == "split_v":
        sizes = [[1, 12, 10, 3], [1, 12, 10, 5]]
        parts = b.several(o.SPLIT_V, [t, b.numbers(3, 5), b.numbers(3)], sizes, options(schema.SplitVOptionsT(), numSplits=2), types.SplitVOptions)
        t = b.concat([b.logistic(parts[0]), parts[1]], 3)
    elif kind == "pack":
        t = b.operator(o.PACK, [b.relu(t), b.logistic(t)], [1, 2, 12, 10, 8], options(schema.PackOptionsT(), valuesCount=2, axis=1), types.PackOptions)
    elif kind == "unpack":
        parts = b.several(o.UNPACK, [t], [[1, 10, 8]] * 12, options(schema.UnpackOptionsT(), num=12, axis=1), types.UnpackOptions)
        t = b.add(b.add(parts[0], parts[5]), parts[11])
    elif kind == "slice":
        t = b.operator(o.SLICE, [t, b.numbers(0, 1, 2, 0), b.numbers(1, 10, 7, 8)], [1, 10, 7, 8], schema.SliceOptionsT(), types.SliceOptions)
    elif kind == "strided_slice":
        ends = [b.numbers(0, 0, 0, 0), b.numbers(1, 12, 10, 8), b.numbers(1, 1, 2, 1)]
        t = b.operator(o.STRIDED_SLICE, [t] + ends, [1, 12, 5, 8], schema.StridedSliceOptionsT(), types.StridedSliceOptions)
    elif kind == "reversed_slice":
        ends = [b.numbers(0, -1, 0, 0), b.numbers(1, -13, 10, 8), b.numbers(1, -1, 1, 1)]
        t = b.operator(o.STRIDED_SLICE, [t] + ends, [1, 12, 10, 8], schema.StridedSliceOptionsT(), types.StridedSliceOptions)
    elif kind == "transpose":
        t = b.operator(o.TRANSPOSE, [t, b.numbers(0, 2, 1, 3)], [1, 10, 12, 8], schema.TransposeOptionsT(), types.TransposeOptions)
    elif kind == "nearest":
        t = b.operator(
            o.RESIZE_NEAREST_NEIGHBOR, [t, b.numbers(24, 20)], [1, 24, 20, 8],
            options(schema.ResizeNearestNeighborOptionsT(), halfPixelCenters=True), types.ResizeNearestNeighborOptions,
        )
    elif kind == "bilinear":
        t = b.operator(
            o.RESIZE_BILINEAR, [t, b.numbers(17, 23)], [1, 17, 23, 8],
            options(schema.ResizeBilinearOptionsT(), halfPixelCenters=True), types.ResizeBilinearOptions,
        )
    elif kind == "space_to_batch":
        t = b.operator(
            o.SPACE_TO_BATCH_ND, [t, b.numbers(2, 2), b.numbers((1, 1), (0, 2))], [4, 7, 6, 8],
            schema.SpaceToBatchNDOptionsT(), types.SpaceToBatchNDOptions,
        )
    elif kind == "batch_to_space":
        t = b.reshape(t, [4, 6, 5, 8])
        t = b.operator(
            o.BATCH_TO_SPACE_ND, [t, b.numbers(2, 2), b.numbers((1, 0), (0, 1))], [1, 11, 9, 8],
            schema.BatchToSpaceNDOptionsT(), types.BatchToSpaceNDOptions,
        )
    elif kind == "space_to_depth":
        t = b.operator(o.SPACE_TO_DEPTH, [t], [1, 6, 5, 32], options(schema.SpaceToDepthOptionsT(), blockSize=2), types.SpaceToDepthOptions)
    elif kind == "depth_to_space":
        t = b.operator(o.DEPTH_TO_SPACE, [t], [1, 24, 20, 2], options(schema.DepthToSpaceOptionsT(), blockSize=2), types.DepthToSpaceOptions)
    b.output(b.logistic(t))
    return b


MOVED = (
    "elementwise average_pool pad padv2 concat_first concat_last split_first split_last split_v pack unpack slice "
    "strided_slice reversed_slice transpose nearest bilinear space_to_batch batch_to_space space_to_depth depth_to_space"
).split()


def main(folder):
    os.makedirs(folder, exist_ok=True)
    models = {f"own_chain{s}": chain(s) for s in range(6)}
    models |= {f"own_residual{s}": residual(s) for s in range(2)}
    models |= {f"own_randwire{n}": randwire(n, n) for n in (8, 16, 32)}
    models |= {f"own_small_world{n}": small_world(n, 1) for n in (32,)}
    models |= {f"own_branches_{o}": branches(1, o) for o in ("good", "bad")}
    models["own_mobilenet"] = mobilenet(1)
    models |= {f"own_moved_{kind}": moved(kind) for kind in MOVED}
    for name, builder in models.items():
        builder.write(os.path.join(folder, name + ".tflite"))


if __name__ == "__main__":
    main(sys.argv[1])

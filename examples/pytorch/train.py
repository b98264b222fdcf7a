"""Trains ResNet-50 with PyTorch's own allocator and with sublet's, and prints peak memory, step time and losses of both.

    cargo build --release -p sublet-ffi --features cuda
    python3 examples/pytorch/train.py [--batch 64] [--steps 60] [--library target/release/libsublet.so]

Each runs in a process of its own, because an allocator can be chosen only before anything is allocated.
"""

import argparse
import ctypes
import json
import pathlib
import statistics
import subprocess
import sys
import time

import sublet_allocator

# The exit status where nothing was trained.
SKIPPED = 77


class Statistics(ctypes.Structure):
    """sublet_torch_statistics of include/sublet_torch.h."""

    _fields_ = [("struct_size", ctypes.c_uint32), ("reserved", ctypes.c_uint32)] + [
        (name, ctypes.c_uint64)
        for name in ("planned", "unplanned", "plans", "arena", "held", "held_peak")
    ]


def missing(library):
    """What this needs and does not find, or None."""
    try:
        import torch
        import torchvision  # noqa: F401
    except ImportError as error:
        return f"{error.name} is not installed"
    if not torch.cuda.is_available():
        return "PyTorch finds no CUDA device"
    if not library.exists():
        return f"there is no {library}: cargo build --release -p sublet-ffi --features cuda"
    return None


def train(allocator, library, batch, steps):
    """What a process prints: its losses, the seconds of its steps, the most bytes that it reserved."""
    import torch
    import torchvision

    loaded = sublet_allocator.use(library) if allocator == "sublet" else None
    torch.manual_seed(0)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    model = torchvision.models.resnet50(weights=None).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch, 3, 224, 224).cuda()
    labels = torch.randint(0, 1000, (batch,)).cuda()

    losses, seconds = [], []
    for _ in range(steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
        del loss

    result = {"losses": losses, "seconds": seconds}
    if loaded:
        done = Statistics(struct_size=ctypes.sizeof(Statistics))
        status = loaded.sublet_torch_stats(0, ctypes.byref(done), None)
        if status != 0:
            raise SystemExit(f"sublet_torch_stats: status {status}")
        result["reserved"] = done.held_peak
        result["note"] = f"{done.planned} requests planned, {done.unplanned} not; arena {done.arena / 2**20:.0f} MiB"
    else:
        result["reserved"] = torch.cuda.max_memory_reserved()
    print(json.dumps(result))


def run(allocator, arguments):
    command = [sys.executable, __file__, "--allocator", allocator, "--library", str(arguments.library)]
    command += ["--batch", str(arguments.batch), "--steps", str(arguments.steps)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output.splitlines()[-1])


def main():
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--allocator", choices=["pytorch", "sublet"], help="train with this one alone, and print JSON")
    parser.add_argument("--library", type=pathlib.Path, default=root / "target/release/libsublet.so")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    arguments.library = arguments.library.resolve()
    if arguments.allocator:
        train(arguments.allocator, arguments.library, arguments.batch, arguments.steps)
        return
    lacks = missing(arguments.library)
    if lacks:
        print(f"skipped: {lacks}")
        sys.exit(SKIPPED)

    results = {allocator: run(allocator, arguments) for allocator in ("pytorch", "sublet")}
    for allocator, result in results.items():
        # The first half is the profile, the plan, and the warming up of everything else.
        step = statistics.median(result["seconds"][arguments.steps // 2 :])
        peak = result["reserved"] / 2**20
        note = result.get("note", "")
        print(f"{allocator:8} {peak:8.0f} MiB reserved at most, {1e3 * step:7.1f} ms a step  {note}")
    same = results["pytorch"]["losses"] == results["sublet"]["losses"]
    print(f"losses: {'equal' if same else 'DIFFERENT'}, the last {results['sublet']['losses'][-1]:.6f}")


if __name__ == "__main__":
    main()

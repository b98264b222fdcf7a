"""Twelve networks of torchvision as programs of ExecuTorch, with its own plan and with sublet's: bytes of the arena, and whether
the outputs are equal bit by bit. By hand, where executorch and torchvision are installed:

    python python/tests/executorch_models.py [NAME[@POINTS] ...]

Weights are random, so that nothing is downloaded. Images have 224 by 224 points, or as many as the name tells.
"""

import sys
import time

import torch
import torchvision
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite, greedy
from executorch.exir.passes import MemoryPlanningPass
from executorch.runtime import Runtime
from sublet.executorch import planner

MODELS = [
    "alexnet",
    "squeezenet1_1",
    "shufflenet_v2_x1_0",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mobilenet_v3_large",
    "mnasnet1_0",
    "efficientnet_b0",
    "resnet18",
    "googlenet",
    "inception_v3",
    "inception_v3@299",
    "densenet121",
]


def planned(module, inputs, algorithm):
    """The program, and how many bytes of an arena it asks for. Each is exported anew, for plans are written into the graph."""
    edge = to_edge(torch.export.export(module, inputs), compile_config=EdgeCompileConfig(_check_ir_validity=False))
    made = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(memory_planning_algo=algorithm)))
    return made.buffer, sum(made.executorch_program.execution_plan[0].non_const_buffer_sizes)


def outputs(program, inputs):
    method = Runtime.get().load_program(program).load_method("forward")
    return [t.clone() for t in method.execute(inputs)]


def main(names):
    print("| network | ExecuTorch's greedy | sublet | less | outputs |\n| - | -: | -: | -: | - |")
    torch.set_num_threads(1)
    for called in names:
        torch.manual_seed(1)
        name, _, points = called.partition("@")
        points = int(points or 224)
        extra = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
        module = torchvision.models.get_model(name, weights=None, **extra).eval()
        inputs = (torch.randn(1, 3, points, points),)
        begin = time.process_time()
        theirs, greedy_bytes = planned(module, inputs, MemoryPlanningAlgorithmSuite([greedy]))
        mine, bytes_ = planned(module, inputs, planner())
        with torch.no_grad():
            wanted = module(*inputs)
        pair = [outputs(program, inputs) for program in (theirs, mine)]
        same = all(torch.equal(a, b) for a, b in zip(*pair, strict=True))
        # A control: it did compute the network.
        near = torch.allclose(pair[1][0], wanted, rtol=1e-2, atol=1e-3)
        verdict = "equal" if same and near else "DIFFERENT" if not same else "NOT THE NETWORK'S"
        less = 100 * (1 - bytes_ / greedy_bytes)
        print(f"| {called} | {greedy_bytes:,} | {bytes_:,} | {less:.1f} % | {verdict} |", flush=True)
        print(f"{called}: {time.process_time() - begin:.0f} CPU s", file=sys.stderr, flush=True)
        if verdict != "equal":
            sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:] or MODELS)

"""Programs of ExecuTorch whose tensors lie where sublet says give what they gave, where ExecuTorch is installed."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir", reason="ExecuTorch is not installed")

from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge  # noqa: E402
from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite, greedy  # noqa: E402
from executorch.exir.passes import MemoryPlanningPass  # noqa: E402
from sublet import PlanError  # noqa: E402
from sublet.executorch import Bank, planner  # noqa: E402


class Branches(torch.nn.Module):
    """Branches of different widths that are joined again, twice."""

    def __init__(self):
        super().__init__()
        widths = [4, 24, 12, 32]
        self.inner = torch.nn.ModuleList(
            torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Conv2d(c, w, 3, padding=1), torch.nn.ReLU()) for w in widths)
            for c in (3, sum(widths))
        )
        self.last = torch.nn.Linear(sum(widths), 10)

    def forward(self, x):
        for branches in self.inner:
            x = torch.cat([branch(x) for branch in branches], 1)
        return self.last(x.mean((2, 3)))


def program(module, inputs, algorithm):
    edge = to_edge(torch.export.export(module, inputs), compile_config=EdgeCompileConfig(_check_ir_validity=False))
    planning = MemoryPlanningPass(memory_planning_algo=algorithm)
    return edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))


def sizes(made):
    return made.executorch_program.execution_plan[0].non_const_buffer_sizes


def run(made, inputs):
    runtime = pytest.importorskip("executorch.runtime")
    method = runtime.Runtime.get().load_program(made.buffer).load_method("forward")
    return [t.clone() for t in method.execute(inputs)]


@pytest.fixture(scope="module")
def branches():
    torch.manual_seed(1)
    module, inputs = Branches().eval(), (torch.randn(1, 3, 24, 24),)
    return module, inputs, program(module, inputs, MemoryPlanningAlgorithmSuite([greedy]))


def test_no_more_memory_than_greedy_and_equal_outputs(branches):
    module, inputs, peer = branches
    made = program(module, inputs, planner())
    assert sizes(made)[1] <= sizes(peer)[1]
    for mine, theirs in zip(run(made, inputs), run(peer, inputs), strict=True):
        assert torch.equal(mine, theirs)


def test_banks_hold_what_fits_and_outputs_are_equal(branches):
    module, inputs, peer = branches
    fast = sizes(peer)[1] // 3
    made = program(module, inputs, planner(banks=[Bank(1, fast), Bank(2, 64 << 20, cost=4)]))
    assert 0 < sizes(made)[1] <= fast and sizes(made)[2] > 0
    for mine, theirs in zip(run(made, inputs), run(peer, inputs), strict=True):
        assert torch.equal(mine, theirs)


def test_banks_that_are_too_small_are_an_error_and_wrong_ones_too(branches):
    module, inputs, _ = branches
    with pytest.raises(PlanError, match="no placement"):
        program(module, inputs, planner(banks=[Bank(1, 4096)]))
    with pytest.raises(ValueError, match="different numbers"):
        planner(banks=[Bank(1, 1), Bank(1, 2)])

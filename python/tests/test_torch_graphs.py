"""PyTorch within a limit: operators, graphs and steps that are out of the ordinary, each in a small network.

Without PyTorch nothing here is run.
"""

from __future__ import annotations

import gc
import itertools
import operator
import sys
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import networks
import numpy as np
import sublet
import sublet.torch
from processes import ran
from sublet.torch import _joint, _measure, _tape
from sublet.torch._watch import reads_told
from torch.utils._python_dispatch import _pop_mode, _push_mode


def stepped(network: Any, *inputs: Any, limit: str = "100%") -> tuple[Any, list[str]]:
    """The gradients of one step by a plan, and the warnings of its plan. The graph is made anew."""
    torch._dynamo.reset()
    network.zero_grad()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.compile(network, backend="sublet", options={"limit": limit})(*inputs).backward()
    texts = [str(w.message) for w in told]
    return [p.grad.clone() for p in network.parameters()], [text for text in texts if "measured" in text]


def are_those_of(network: Any, gradients: list[Any], *inputs: Any, by: Any = None) -> bool:
    """Whether one step without a plan gives these gradients, bit by bit. `by` runs the network; itself if None."""
    network.zero_grad()
    (network if by is None else by)(*inputs).backward()
    return all(torch.equal(p.grad, g) for p, g in zip(network.parameters(), gradients))


def test_operators_are_measured_on_the_types_that_they_get() -> None:
    # PyTorch's graph says that the statistics of these layer norms are of half precision, and they are not.
    network, inputs = networks.build("mlp_bf16")
    assert stepped(network, *inputs)[1] == []


def test_an_operator_that_cannot_be_measured_is_said_and_runs() -> None:
    @torch.library.custom_op("tests::strict", mutates_args=())
    def strict(x: torch.Tensor) -> torch.Tensor:
        if x.min() < 1:
            raise ValueError("a number below 1")
        return x.sqrt()

    strict.register_fake(torch.empty_like)
    strict.register_autograd(lambda context, gradient: 2 * gradient)

    class Strict(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            return strict(super().forward(x).exp() + 1).sin().sum()

    network, x = Strict(8, 8), torch.randn(64, 8)
    gradients, told = stepped(network, x)
    assert [text for text in told if "tests.strict" in text and "a number below 1" in text]
    assert are_those_of(network, gradients, x)


def test_operators_that_take_probabilities_are_measured() -> None:
    class Gates(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            y = super().forward(x).sigmoid()
            chosen = torch.multinomial(y, 1)
            loss = torch.nn.functional.binary_cross_entropy(y * torch.bernoulli(y), x.sigmoid())
            return loss + y.gather(1, chosen).sum()

    torch.manual_seed(0)
    network, x = Gates(8, 8), torch.randn(64, 8)
    torch.manual_seed(1)
    gradients, told = stepped(network, x)
    assert told == []
    torch.manual_seed(1)
    assert are_those_of(network, gradients, x)


def test_memory_that_only_a_run_shows_counts() -> None:
    class Fourier(torch.nn.Module):
        """The loss is one number in the memory of its differences."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(33, 64, 64, dtype=torch.cfloat))

        def forward(self, x: Any) -> Any:
            y = torch.einsum("bif,fio->bof", torch.fft.rfft(x), self.weight)
            return torch.nn.functional.mse_loss(torch.fft.irfft(y, n=x.shape[-1]), x)

    found: dict[str, int] = {}

    class Looking(sublet.torch.Partitioner):
        def _fit(self, joint: Any) -> Any:
            for op in joint.ops:
                if op is not None:
                    found[op.name] = sum(map(_joint.bytes_of, joint.makes(op)))
            return super()._fit(joint)

    torch._dynamo.reset()
    network, x = Fourier(), torch.randn(32, 64, 64)
    torch.compile(network, backend="sublet", options={"partitioner": Looking("100%")})(x).backward()
    assert found["mse_loss"] >= x.nbytes
    # What is measured reads such views too.
    conjugated = torch.zeros(4, dtype=torch.cfloat).conj()
    assert _measure._made_up(conjugated).is_conj() and _measure._made_up(conjugated.imag).is_neg()


def test_graphs_within_the_graph_run() -> None:
    class Branches(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            y = super().forward(x)
            return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (y,)).sum()

    network, x = Branches(8, 8), torch.randn(64, 8)
    gradients, told = stepped(network, x)
    assert told == []
    assert are_those_of(network, gradients, x)


def test_an_input_that_is_written_over_is_not_read_by_the_backward_pass() -> None:
    class Written(torch.nn.Module):
        """The sum is cheap to recompute, and what it reads has changed by then."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(64))
            self.register_buffer("mean", torch.ones(256, 64))

        def forward(self, x: Any) -> Any:
            h = self.mean + self.weight
            self.mean.mul_(2)
            return (h * 3).sin().cos().sin().cos().exp().sin().sum() + x.sum()

    network, x = Written(), torch.randn(256, 64)
    gradients, _ = stepped(network, x, limit="75%")
    network.mean.fill_(1)
    assert are_those_of(network, gradients, x)


def test_sparse_gradients_run_without_a_plan() -> None:
    class Sparse(torch.nn.Embedding):
        def forward(self, x: Any) -> Any:
            return super().forward(x).sin().sum()

    network, x = Sparse(50, 16, sparse=True), torch.randint(0, 50, (64,))
    torch._dynamo.reset()
    with pytest.warns(UserWarning, match="sparse tensors cannot be planned"):
        torch.compile(network, backend="sublet", options={"limit": "100%"})(x).backward()
    gradient = network.weight.grad.to_dense()
    network.zero_grad()
    network(x).backward()
    assert torch.equal(network.weight.grad.to_dense(), gradient)


def norms_by_name(x: Any, shape: Any, *others: Any) -> dict[str, Any]:
    """Layer norm with names for its results, as kernels of Triton have them."""
    return dict(zip(("y", "mean", "rstd"), torch.ops.aten.native_layer_norm.default(x, shape, *others)))


class ByName(sublet.torch.Partitioner):
    """Gives the results of layer norm names before the graph is cut."""

    def __call__(self, joint_module: Any, inputs: Any, **options: Any) -> Any:
        for node in joint_module.graph.nodes:
            if node.target is torch.ops.aten.native_layer_norm.default:
                node.target = norms_by_name
                node.meta["val"] = dict(zip(("y", "mean", "rstd"), node.meta["val"]))
                for item in [user for user in node.users if user.target is operator.getitem]:
                    item.args = (node, ("y", "mean", "rstd")[item.args[1]])
        joint_module.recompile()
        return super().__call__(joint_module, inputs, **options)


def test_results_with_names_run_without_a_plan() -> None:
    torch._dynamo.reset()
    network, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)), torch.randn(4, 8)
    cut = ByName("100%")
    with pytest.warns(UserWarning, match="kernels whose results have names cannot be planned"):
        torch.compile(network, backend="sublet", options={"partitioner": cut})(x).sum().backward()
    assert not cut.reports
    assert are_those_of(network, [p.grad.clone() for p in network.parameters()], x, by=lambda x: network(x).sum())


def test_collectives_are_not_run_to_measure_them(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed as dist
    from torch.distributed import _functional_collectives as collectives

    class Summed(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            return collectives.all_reduce(super().forward(x), "sum", dist.group.WORLD).sin().sum()

    ran_alone: list[str] = []
    timed = _measure._timed

    def noted(target: Any, *of: Any) -> Any:
        ran_alone.append(str(target))
        return timed(target, *of)

    monkeypatch.setattr(_measure, "_measures", {})
    monkeypatch.setattr(_measure, "_timed", noted)
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        network, x = Summed(8, 8), torch.randn(4, 8)
        gradients, told = stepped(network, x)
        assert told == [] and are_those_of(network, gradients, x)
    finally:
        dist.destroy_process_group()
    assert "aten.sin.default" in ran_alone
    assert not [name for name in ran_alone if "c10d" in name]


def test_memory_that_is_not_counted_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "leave out sublet.torch.install"
    gpu = "sublet.torch._measure.HEAP.since(torch.device('cuda'))"
    done = ran([sys.executable, "-c", f"import torch, sublet.torch; sublet.torch.install(); {gpu}"], 400)
    assert "PlanError" in done.stderr and told in done.stderr
    # A GPU need not be here.
    since = _measure.HEAP.since
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "pluggable")
    monkeypatch.setattr(_measure.HEAP, "since", lambda _: since(torch.device("cuda")))
    monkeypatch.setattr(_measure, "_measures", {})
    network, x = torch.nn.Linear(8, 8), torch.randn(4, 8)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=told) as refused:
        stepped(network, x)
    assert isinstance(refused.value.inner_exception, sublet.PlanError)
    train = taped()
    train(x)
    with pytest.raises(sublet.PlanError, match=told):
        train(x)


def test_arguments_that_are_wrong_are_named() -> None:
    assert sublet.torch.Partitioner("1GiB", using="swap").using == ("swap",)
    with pytest.raises(ValueError, match="expected an index from 0 to 3"):
        sublet.torch.Stage1F1B(4, 4, 8)
    train = sublet.torch.step(lambda x: None, limit="100%")
    train(np.ones(3))
    with pytest.raises(ValueError, match="argument 0 is an array of NumPy"):
        train(np.ones(3))


def test_options_that_would_not_count_are_refused() -> None:
    for name, value in (("partitioner", sublet.torch.Partitioner("1GiB")), ("parts", sublet.torch.Parts("1GiB"))):
        torch._dynamo.reset()
        network = torch.compile(torch.nn.Linear(8, 8), backend="sublet", options={name: value, "limit": "1GiB"})
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="give limit to it"):
            network(torch.randn(4, 8))
    # Parts are one pass of a network, and no stage of a pipeline.
    for option in ({"passes": 2}, {"stage": sublet.torch.Stage1F1B(0, 1, 2)}):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{[*option][0]}'"):
            sublet.torch.Parts("1GiB", **option)


def test_gradients_that_are_there_count_where_that_is_asked_for() -> None:
    torch._dynamo.reset()
    network, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()), torch.randn(64, 8)
    cut = sublet.torch.Partitioner("100%", stage=sublet.torch.Stage1F1B(0, 1, 2, outputs=False))
    torch.compile(network, backend="sublet", options={"partitioner": cut})(x).sum().backward()
    assert cut.reports[-1].held == sum(p.grad.nbytes for p in network.parameters())


def test_the_graph_of_a_loss_that_is_a_view_is_released() -> None:
    loss = sublet.torch.released(lambda x: x.mean().squeeze())
    x = torch.ones(4, requires_grad=True)
    value = loss(x)
    value.backward()
    assert not value.requires_grad and x.grad is not None


def broken(limit: str | int, **options: Any) -> tuple[Any, Any, Any]:
    """A network of two graphs, its parts within a limit, and its input."""

    class Broken(torch.nn.Sequential):
        def forward(self, x: Any) -> Any:
            h = self[0](x).relu()
            torch._dynamo.graph_break()
            return self[1](h).sin().sum()

    torch._dynamo.reset()
    parts = sublet.torch.Parts(limit, **options)
    network = Broken(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    return torch.compile(network, backend="sublet", options={"parts": parts}), parts, torch.randn(64, 8)


def test_calls_without_a_backward_pass_are_none_of_the_next_iteration() -> None:
    network, parts, x = broken("100%")
    for _ in range(3):
        network(x).backward()
    parts.limit = planned = parts.planned_peak
    for _ in range(3):
        network(x)
    with torch.no_grad():
        for _ in range(3):
            network(x)
    assert len(parts.turns) <= 2
    for _ in range(3):
        network(x).backward()
    assert parts.planned_peak == planned


def test_a_limit_may_be_raised_after_an_error() -> None:
    network, parts, x = broken(1)
    network(x).backward()
    for _ in range(2):
        with pytest.raises(sublet.PlanError, match="2 parts do not stay within 1 bytes") as told:
            network(x)
        network(x).backward()
    parts.limit = int(str(told.value).split("; ")[1].split()[0])
    for _ in range(2):
        network(x).backward()
    assert 0 < parts.planned_peak <= parts.limit


def test_ranks_plan_their_parts_with_the_least_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Two:
        """This rank and another, which has a limit of 5 bytes less, and makes other choices if `apart`."""

        apart = False

        def __init__(self, *_: Any) -> None:
            pass

        def gathered(self, value: Any) -> list[Any]:
            if isinstance(value, int):
                return [value, value - 5]
            return [value, "another" if self.apart else value]

    for module in (sublet.torch._partition, sublet.torch._parts):
        monkeypatch.setattr(module, "Speaking", Two)
    network, parts, x = broken(6, group="both")
    network(x).backward()
    with pytest.raises(sublet.PlanError, match="2 parts do not stay within 1 bytes"):
        network(x)
    parts.limit = 1 << 30
    network(x).backward()
    Two.apart = True
    with pytest.raises(sublet.PlanError, match="the schedules of the ranks 1 are not that of rank 0"):
        network(x)


@pytest.mark.parametrize("limit", ["100%", "90%", "80%"])
@pytest.mark.parametrize("case", ["bag", "norm", "constants"])
def test_results_of_no_bytes_and_constants_reach_both_passes(case: str, limit: str) -> None:
    from torch import nn

    class Loss(nn.Module):
        """Values that are cheap to recompute, and their loss."""

        def __init__(self, network: nn.Module) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: Any) -> Any:
            return self.network(x).sin().cos().sin().square().mean()

    class Scaled(nn.Linear):
        def forward(self, x: Any) -> Any:
            return torch.cat([super().forward(x) * torch.tensor([0.5, 2.0]).repeat(32), torch.zeros(0, 64)])

    torch.manual_seed(0)
    if case == "constants":
        network = Loss(nn.Sequential(nn.Linear(64, 64), nn.GELU(), Scaled(64, 64)))
        x = torch.randn(512, 64)
    elif case == "bag":
        network = Loss(nn.Sequential(nn.EmbeddingBag(50, 64, mode="sum"), nn.Linear(64, 64)))
        x = torch.randint(0, 50, (512, 6))
    else:
        # The statistics of batch norm that does not train are empty.
        network = Loss(nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3))).eval()
        x = torch.randn(8, 3, 32, 32)
    gradients, _ = stepped(network, x, limit=limit)
    torch._dynamo.reset()
    assert are_those_of(network, gradients, x, by=torch.compile(network, backend="aot_eager"))


def test_a_limit_that_cannot_be_met_comes_through_the_compiler() -> None:
    torch._dynamo.reset()
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU())
    options = {"partitioner": sublet.torch.Partitioner("1KiB")}
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as told:
        torch.compile(network, backend="sublet", options=options)(torch.randn(32, 64)).sum().backward()
    refusal = told.value.inner_exception
    assert isinstance(refusal, sublet.PlanError)
    # With its figures: which of them there is, depends on whether something is proved.
    known = refusal.least or refusal.needed
    assert known is not None and str(known) in str(refusal)


def taped() -> Any:
    """A taped step of a small network, without anything special."""
    network = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)

    def train(x: Any) -> Any:
        loss = network(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return sublet.torch.step(train, network, optimizer, limit="100%")


def test_a_taped_step_holds_no_arguments_of_its_calls() -> None:
    train, batches = taped(), []
    for _ in range(4):
        x = torch.randn(4, 8)
        batches.append(weakref.ref(x.untyped_storage()))
        train(x)
        del x
    assert [batch() for batch in batches] == [None] * 4


factor = 1.0
"""What an inner function of a step reads."""


def test_a_step_is_recorded_anew_where_what_it_reads_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    network, x = torch.nn.Linear(8, 8), torch.randn(4, 8)

    def double(x: Any) -> Any:
        def inner() -> Any:
            return network(x).sum() * factor

        return inner().detach()

    train, expected = sublet.torch.step(double, network, limit="100%"), double(x)
    assert [train(x) for _ in range(3)] == 3 * [expected]
    monkeypatch.setitem(globals(), "factor", 2.0)
    assert train(x) == 2 * expected
    with torch.autocast("cpu", torch.bfloat16):
        assert train(x) == double(x) != 2 * expected


def scheduled(limit: str | None, steps: int = 5, **options: Any) -> tuple[list[Any], Any]:
    """What a step with AdamW as it is by default and a cosine schedule gives, and the step; without a limit, eagerly."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(*(m for _ in range(4) for m in (torch.nn.Linear(256, 256), torch.nn.GELU())))
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2 * steps)
    x = torch.randn(1024, 256)

    def train(x: Any) -> Any:
        loss = network(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    run: Any = train if limit is None else sublet.torch.step(train, network, optimizer, limit=limit, **options)
    losses = []
    for _ in range(steps):
        losses.append(run(x))
        schedule.step()
    return [*losses, *network.parameters(), *(x for each in optimizer.state.values() for x in each.values())], run


def same(ours: list[Any], theirs: list[Any]) -> bool:
    return all(map(torch.equal, ours, theirs))


def test_a_schedule_of_a_default_optimizer_is_followed_without_a_new_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    recordings = []
    record = sublet.torch.TapedStep._record
    monkeypatch.setattr(sublet.torch.TapedStep, "_record", lambda *args: recordings.append(1) or record(*args))
    eager, _ = scheduled(None)
    assert same(scheduled("80%")[0], eager) and len(recordings) == 1
    # Without the code of the optimizer its counters stay, and the numbers are those of the recording.
    monkeypatch.setattr("sublet.torch._tape.repeated", lambda *_: True)
    assert not same(scheduled("80%")[0], eager)


def test_what_a_step_keeps_waits_on_the_host_with_its_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(sublet.PlanError):
        scheduled("45%")
    device: list[int] = []
    moved: dict[int, int] = {}
    run = sublet.torch.TapedStep._run

    def watched(call: Any, again: bool, storages: dict[int, Any]) -> None:
        run(call, again, storages)
        device.append(sum(storage.nbytes() for storage in storages.values()))

    back = sublet.torch._tape.Away.back
    monkeypatch.setattr(sublet.torch.TapedStep, "_run", staticmethod(watched))
    monkeypatch.setattr("sublet.torch._tape.Away.back", lambda away, block: moved.update({block: 1}) or back(away, block))
    ours, step = scheduled("45%", using=("recompute", "swap"))
    assert same(ours, scheduled(None)[0])
    # Parameters and the state of the optimizer are among them, and all are there between two calls.
    assert moved.keys() & step._recording.before.keys() and moved.keys() - step._recording.before.keys()
    assert all(step._recording.before[block].nbytes() for block in moved.keys() & step._recording.before.keys())
    assert max(device) <= step.planned_peak + step._recording.persistent <= step.fitted.limit + step._stay
    with pytest.raises(sublet.PlanError):
        scheduled("20%", using=("recompute", "swap"))


def test_a_step_that_is_recorded_anew_says_why() -> None:
    train, x = taped(), torch.randn(4, 8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(6):
            train._keep[0].train(i != 4)
            train(x)
    assert [str(each.message).rpartition(": ")[2] for each in caught] == ["the network"]


def test_an_argument_that_begins_within_what_the_step_writes_is_refused() -> None:
    kept = torch.zeros(64)

    def train(x: Any) -> Any:
        kept.add_(1)
        return x.sum()

    train, (apart, within) = sublet.torch.step(train, kept, limit="100%"), (torch.ones(8), kept[16:24])
    for _ in range(3):
        assert train(apart) == 8
    with pytest.raises(ValueError, match="argument 0 shares memory with what the step writes over"):
        train(within)


def test_batch_norm_that_is_recomputed_updates_its_statistics_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def built() -> tuple[Any, Any]:
        torch.manual_seed(0)
        blocks = [m for _ in range(6) for m in (torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU())]
        network = torch.nn.Sequential(*blocks)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01)

        def train(x: Any) -> Any:
            loss = network(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return network, train

    # All operators take equally long, so that the same ones are recomputed each time.
    times = itertools.count()
    monkeypatch.setattr(_tape, "clock", lambda _: next(times))
    (network, train), (ours, step), x = built(), built(), torch.randn(8, 8, 16, 16)
    within = sublet.torch.step(step, ours, limit="50%")
    for _ in range(3):
        train(x)
        within(x)
    again = [within._recording.calls[step.at].target for step in within._steps if step.what == "run" and step.again]
    assert torch.ops.aten.native_batch_norm.default in again
    for name, value in ours.state_dict().items():
        assert torch.equal(value, network.state_dict()[name]), name


class Filled(sublet.torch.Partitioner):
    """Has each exponential copied into a block that is made before, as graphs do that are not functional."""

    def __call__(self, joint_module: Any, inputs: Any, **options: Any) -> Any:
        aten, graph = torch.ops.aten, joint_module.graph
        for node in graph.find_nodes(op="call_function", target=aten.exp.default):
            with graph.inserting_after(node):
                made = graph.call_function(aten.zeros.default, (list(node.meta["val"].shape),))
            node.replace_all_uses_with(made)
            with graph.inserting_after(made):
                filled = graph.call_function(aten.copy_.default, (made, node))
            made.meta, filled.meta = dict(node.meta), dict(node.meta)
        joint_module.recompile()
        return super().__call__(joint_module, inputs, **options)


def test_what_makes_a_block_that_is_written_later_is_not_recomputed_alone() -> None:
    class Exponentials(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            for _ in range(6):
                x = (super().forward(x).sin() * 0.1).exp()
            return x.sum()

    network, x = Exponentials(64, 64), torch.randn(256, 64)
    torch._dynamo.reset()
    cut = Filled("94%")
    torch.compile(network, backend="sublet", options={"partitioner": cut})(x).backward()
    assert cut.reports[-1].again
    assert are_those_of(network, [p.grad.clone() for p in network.parameters()], x)


def test_a_block_that_a_step_fills_later_is_filled_again_where_it_is_recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    times = itertools.count()
    monkeypatch.setattr(_tape, "clock", lambda _: next(times))
    network, x = torch.nn.Linear(64, 64), torch.randn(512, 64)

    class Filling(torch.autograd.Function):
        """The exponential, in a block that is made before."""

        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            made = torch.zeros_like(x)
            made.copy_(x.exp())
            context.save_for_backward(made)
            return made

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            return gradient * context.saved_tensors[0]

    def train(x: Any) -> Any:
        for _ in range(6):
            x = Filling.apply(network(x).sin() * 0.1)
        return torch.autograd.grad(x.sum(), list(network.parameters()))

    expected = train(x)
    within = sublet.torch.step(train, network, limit="40%")
    for _ in range(3):
        results = within(x)
    again = [within._recording.calls[step.at].target for step in within._steps if step.what == "run" and step.again]
    assert torch.ops.aten.copy_.default in again
    assert all(map(torch.equal, results, expected))


def test_a_step_is_recorded_on_tensors_without_numbers() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    def recorded() -> sublet.torch.Recording:
        network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64), torch.nn.Dropout(0.1))
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        with sublet.torch.record(network, optimizer) as recording:
            network(torch.randn(32, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return recording

    with FakeTensorMode():
        fake = recorded()
    real = recorded()
    assert sublet.plan(fake.trace).max_load == sublet.plan(real.trace).max_load
    assert [call.target for call in fake.calls] == [call.target for call in real.calls]


def test_results_that_are_kept_hold_no_recording() -> None:
    train, x = taped(), torch.randn(4, 8)
    train(x)
    losses = []
    for i in range(10):
        train._keep[1].param_groups[0]["lr"] = 0.1 / (1 + i)
        losses.append(train(x))
    gc.collect()
    held = [each for each in gc.get_objects() if type(each) is sublet.torch.Recording]
    assert [each is train._recording for each in held] == [True]


made: list[Any] = []
"""The storages that the last run of `ordered` has made, by weak references."""
there: list[int] = []
"""How many of these were still there, at each run of `ordered`."""


@torch.library.custom_op("tests::ordered", mutates_args=())
def ordered(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers by size, and where they stood."""
    there.append(sum(each() is not None for each in made))
    values, at = x.sort()
    made[:] = [weakref.ref(each.untyped_storage()) for each in (values, at)]
    return values, at


def test_an_output_that_is_still_there_is_computed_anew_in_its_place() -> None:
    def train(x: Any) -> Any:
        values, at = ordered(x)
        total = values.sum()
        for _ in range(3):
            angles = at.float() + total
            sines = angles.sin() + angles
            cosines = sines.cos() * sines * angles
            total = cosines.sum() * 1e-9 + at[0]
            del angles, sines, cosines
        return (values * total).sum() + at[-1]

    x = torch.randn(1 << 16)
    train, expected = sublet.torch.step(train, limit="90%"), train(x)
    for _ in range(2):
        train(x)
    there.clear()
    made.clear()
    assert torch.equal(train(x), expected)
    assert there == [0, 0]


def test_reads_are_seen_in_the_threads_of_a_recording_and_in_no_others() -> None:
    x = torch.ones(2)
    recordings = sublet.torch.record(x), sublet.torch.record(x)
    watches = [reads_told(recording.tell) for recording in recordings]
    for watch in watches:
        watch.__enter__()

    def refused() -> list[bool]:
        return [bool(recording.refused) for recording in recordings]

    with ThreadPoolExecutor(1) as pool, recordings[0]:
        pool.submit(x.tolist).result()
        assert refused() == [False, False]
        # As PyTorch does in the thread that runs the backward pass of a GPU.
        pool.submit(_push_mode, recordings[0]).result()
        pool.submit(x.tolist).result()
        pool.submit(_pop_mode).result()
        assert refused() == [True, False]
    watches[0].__exit__(None, None, None)
    with recordings[1]:
        x.tolist()
    assert refused() == [True, True]
    watches[1].__exit__(None, None, None)
    assert "tolist" not in vars(torch.Tensor)


@torch.library.custom_op("tests::noisy", mutates_args=())
def noisy(x: torch.Tensor) -> torch.Tensor:
    """An operator that draws random numbers, and has no tag that says so."""
    return x + torch.rand_like(x)


noisy.register_fake(torch.empty_like)
noisy.register_autograd(lambda context, gradient: gradient)


def test_an_operator_that_draws_without_saying_so_is_not_recomputed() -> None:
    found: list[Any] = []

    class Looking(sublet.torch.Partitioner):
        def _fit(self, joint: Any) -> Any:
            found.append(joint.graph.operators)
            return super()._fit(joint)

    layer, x = torch.nn.Linear(8, 8), torch.randn(4, 8)
    with sublet.torch.record(layer) as recording:
        noisy(layer(x)).sin().sum().backward()
    found.append(recording.trace.operators)
    options = {"partitioner": Looking("100%")}
    model = torch.compile(lambda x: noisy(layer(x)).sin().sum(), backend="sublet", options=options)
    model(x).backward()
    assert len(found) == 2
    for operators in found:
        at = operators.names.index("tests.noisy.default")
        assert (operators.rerun[at], operators.ordered[at]) == (0, 1)
        assert operators.rerun[operators.names.index("aten.sin.default")] == 1


def gated(w: Any, x: Any) -> list[Any]:
    """A whole step: its loss and gradient. Buffers are made, then filled slice by slice, and the backward pass reads them."""
    h = x
    for _ in range(6):
        h = torch.tanh(h @ w)
        gates = torch.zeros_like(h)
        gates[:, :32].copy_(h[:, 32:])
        gates[:, 32:].copy_(h[:, :32])
        h = h.sin() * gates
    loss = h.square().mean()
    return [loss, *torch.autograd.grad(loss, [w])]


def test_what_is_written_over_later_is_not_made_again() -> None:
    from sublet.torch import _whole
    from torch.fx.experimental.proxy_tensor import make_fx

    class Without(_whole.Whole):
        """The control: the rule does not hold."""

        def _build(self, costs: Any) -> None:
            self.written, self._written = self._written, set()
            super()._build(costs)

    torch.manual_seed(0)
    w, x = (torch.randn(64, 64) / 4).requires_grad_(), torch.randn(256, 64)
    made = lambda: make_fx(gated, tracing_mode="fake")(w, x)
    expected, took = made()(w, x), {}
    for kind in (_whole.Whole, Without):
        whole = kind(made(), None)
        limit = whole.persistent + (whole.original - whole.persistent) * 6 // 10
        found = _whole.planned(whole, limit)
        assert found.again and found.peak <= limit
        if kind is Without:
            steps = _whole.steps_of(sublet.fit(whole.graph, limit, using=("recompute",), keep_persistent=True, alignment=1))
            whole._written = whole.written
            with pytest.raises(sublet.PlanError, match="would run again without the writes"):
                whole.check_writes(steps)
        with torch.no_grad():
            results = found.module(w, x)
            since = _measure.HEAP.since(torch.device("cpu"))
            took[kind] = torch.equal(found.module(w, x)[1], expected[1]) and torch.equal(results[0], expected[0])
            if kind is _whole.Whole:
                assert since.peak <= found.peak - whole.persistent + 4096
                assert abs(_whole.peak_of(found.module) - (found.peak - whole.persistent)) <= 4096
    assert took == {_whole.Whole: True, Without: False}


def test_a_plan_leaves_room_where_what_follows_it_takes_more() -> None:
    from sublet.torch import _whole
    from torch.fx.experimental.proxy_tensor import make_fx

    def changed(module: Any) -> Any:
        """Stands for a pass: a block is alive while one operator runs."""
        at = next(node for node in module.graph.nodes if node.meta.get(_whole.PLACE) == "pow_2")
        with module.graph.inserting_before(at):
            block = module.graph.call_function(torch.ops.aten.zeros.default, ([1 << 15],))
            block.meta["val"] = torch.empty(1 << 15, device="meta")
        with module.graph.inserting_after(at):
            module.graph.call_function(torch.ops.aten.sum.default, (block,)).meta["val"] = torch.empty((), device="meta")
        return module

    w, x = (torch.randn(64, 64) / 4).requires_grad_(), torch.randn(256, 64)
    whole = _whole.Whole(make_fx(gated, tracing_mode="fake")(w, x), None)
    beside = (whole.original - whole.persistent) * 8 // 10
    for _ in range(2):
        found = _whole.planned(whole, whole.persistent + beside)
        by_plan = _whole.by_operator(found.module)
        module = changed(found.module)
        # The control: planned again without room, it takes as much as before.
        assert _whole.peak_of(module) > beside
    assert whole.make_room(by_plan, module, beside, None)
    found = _whole.planned(whole, whole.persistent + beside)
    assert _whole.peak_of(changed(found.module)) <= beside

"""What a training step will take, before anything runs.

A step is recorded on tensors without numbers (FakeTensorMode), the optimizer's update included, and its tape is planned
as that of `step`. Operators are not measured: their time is the larger of what their arithmetic and their traffic take
on a named device (the roofline of Williams et al., 2009). The scratch of convolutions and what layers of LSTM make are measured,
each alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map

from .. import Fit, PlanError, fit
from .._problem import FREE, MALLOC, WRITE, problem_of
from .._results import DEFAULT_DEVICE, max_load
from .._results import bytes_of as size_in_bytes
from ._measure import Speed
from ._taken import said
from ._tape import Recording, record

SPEEDS = {
    "gtx1080ti": Speed(11.3e12, 11.3e12, 484e9),
    "rtx4090": Speed(82.6e12, 165e12, 1008e9),
    "a100": Speed(19.5e12, 312e12, 2039e9),
    "h100": Speed(67e12, 989e12, 3350e9),
}
"""By name: the figures of a device's data sheet."""
HALVINGS = 7
"""How often the range in which the least limit lies is halved."""


@dataclass(frozen=True)
class Estimate:
    """What a training step takes, in bytes, without the scratch of operators that are no convolutions and no LSTM."""

    peak: int
    """The most bytes at once, without a plan."""
    parameters: int
    buffers: int
    inputs: int
    state: int
    """The optimizer's state."""
    gradients: int
    """The gradients of parameters that are there at the peak."""
    activations: int
    """What else is there at the peak."""
    least: int
    """The least limit that was found to work."""
    limit: int | None
    """The limit that was asked for; None if there was none."""
    overhead: float | None
    """The time over the original's at that limit, minus 1, on the device; None if there is no limit, or it is below the
    least."""
    device: str
    """The device whose figures the times are from."""

    def __str__(self) -> str:
        parts = ("parameters", "buffers", "inputs", "state", "gradients", "activations")
        held = ", ".join(f"{name} {said(getattr(self, name))}" for name in parts if getattr(self, name))
        text = f"{said(self.peak)} at most: {held}; the least limit is {said(self.least)}"
        if self.limit is None:
            return text
        within = "does not fit" if self.overhead is None else f"fits at {100 * self.overhead:.1f} % more time on {self.device}"
        return f"{text}; {said(self.limit)} {within}"


def estimate(
    model: torch.nn.Module,
    inputs: Sequence[Any] | Mapping[str, Any],
    optimizer: torch.optim.Optimizer | Callable[[Iterable[Tensor]], torch.optim.Optimizer] | None = None,
    limit: int | str | None = None,
    *,
    loss: Callable[[Any], Tensor] | None = None,
    device: str = DEFAULT_DEVICE,
) -> Estimate:
    """What a training step of a model takes: its peak and what holds that, the least limit, and the overhead at `limit`.
    Nothing is computed but convolutions and layers of LSTM, each alone, for what they take. The model may be on the meta device; then that
    is not known.

        print(sublet.torch.estimate(model, (x, y), torch.optim.AdamW, "8GiB"))

    `inputs` are the arguments of the model. `optimizer` is one of its parameters, or makes one of them. `loss` makes the loss
    of what the model returns; without it that is the loss itself, or its `loss`. `device` names the figures for times: one
    of `SPEEDS`. What the operators' libraries take beside is not known here. ValueError where a name is wrong or the model
    returns no loss.
    """
    if device not in SPEEDS:
        raise ValueError(f"device {device!r}: expected one of {', '.join(SPEEDS)}")
    mode = FakeTensorMode()
    with FakeCopyMode(mode):
        network = copy.deepcopy(model)
    bare = any(p.is_meta for p in model.parameters())

    def fake(x: Any) -> Any:
        return mode.from_tensor(x.to("meta") if bare else x, static_shapes=True) if isinstance(x, Tensor) else x

    given = tree_map(fake, inputs)
    with mode:
        updates = _optimizer_of(optimizer, model, network)
        for _ in range(2):
            # Optimizers make their state in the first step.
            recording = record(network, [] if updates is None else updates, given)
            recording.speed = SPEEDS[device]
            with recording:
                returned = network(**given) if isinstance(given, Mapping) else network(*given)
                value = _loss_of(returned, loss)
                value.backward()
                made = {recording.ref(p.grad) for p in network.parameters() if p.grad is not None}
                if updates is not None:
                    updates.step()
                network.zero_grad()
                del returned, value
    return _estimated(recording, network, given, updates, {ref.block for ref in made if ref}, limit, device)


def _optimizer_of(optimizer: Any, model: torch.nn.Module, network: torch.nn.Module) -> Any:
    """An optimizer like the given one, of the network's parameters."""
    if optimizer is None or not isinstance(optimizer, torch.optim.Optimizer):
        return None if optimizer is None else optimizer(network.parameters())
    ours = dict(zip(map(id, model.parameters()), network.parameters()))
    groups = [{**group, "params": [ours[id(p)] for p in group["params"]]} for group in optimizer.param_groups]
    return type(optimizer)(groups, **{"lr": optimizer.defaults["lr"]} if "lr" in optimizer.defaults else {})


def _loss_of(returned: Any, loss: Callable[[Any], Tensor] | None) -> Tensor:
    value = loss(returned) if loss is not None else getattr(returned, "loss", returned)
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise ValueError("the model returns no loss; give loss=, which makes one of what it returns")
    return value


def _estimated(
    recording: Recording, network: Any, given: Any, optimizer: Any, gradients: set[int], limit: int | str | None, device: str
) -> Estimate:
    def held(values: Iterable[Any]) -> int:
        refs = (recording.ref(x) for x in values if isinstance(x, Tensor))
        return sum(recording.sizes[block] for block in {ref.block for ref in refs if ref is not None})

    state = [] if optimizer is None else tree_leaves(list(optimizer.state.values()))
    trace = recording.trace
    peak, alive = _at_peak(trace)
    problem = problem_of(trace)
    of_gradients = sum(recording.sizes[block] for block in alive & gradients)
    others = sum(recording.sizes[block] for block in alive - gradients - recording.before.keys())

    def within(most: int) -> Fit | None:
        try:
            return fit(problem, most, using=("recompute",), reorder=True, alignment=1)
        except PlanError:
            return None

    low, high = recording.persistent, max_load(problem)
    for _ in range(HALVINGS):
        middle = (low + high) // 2
        found = within(middle)
        low, high = (middle, high) if found is None else (low, found.schedule.peak_load)
    most = None if limit is None else size_in_bytes(limit, peak)
    fitted = None if most is None else within(most)
    overhead = None if fitted is None else fitted.overhead
    return Estimate(
        peak=peak,
        parameters=held(network.parameters()),
        buffers=held(network.buffers()),
        inputs=held(tree_leaves(given)),
        state=held(state),
        gradients=of_gradients,
        activations=others,
        least=high,
        limit=most,
        overhead=overhead,
        device=device,
    )


def _at_peak(trace: Any) -> tuple[int, set[int]]:
    """The most bytes that are alive at once, and the blocks that are alive then."""
    sizes: dict[int, int] = {}
    now, most, found = 0, 0, set[int]()
    for event, block, size in zip(trace.event, trace.block, trace.bytes):
        if event == MALLOC:
            sizes[block] = size
            now += size
        elif event == FREE:
            now -= sizes.pop(block)
        elif event == WRITE and now > most:
            most, found = now, set(sizes)
    return most, found

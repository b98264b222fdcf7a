"""A stage of a pipeline: the memory that its schedule holds beside the passes that run.

`torch.distributed.pipelining` runs the passes of a stage in the order 1F1B. Besides the passes, the schedule holds the
gradients of the parameters, the gradient that is being sent to the stage before, the output that is being sent to the
stage after, and on the last stage the outputs of all microbatches, which it merges in the end. The losses hold their
graphs, and so the tensors that were received, until the step ends; `released` ends the graphs earlier. A stage of
PyTorch 2.11 also owns buffers for all that it receives in a step, and keeps its outputs until their backward passes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.autograd import Variable

from ._joint import Joint, bytes_of

OWNS_BUFFERS = torch.__version__ < "2.15"
"""Whether a stage owns buffers for all that it receives in a step: in 2.11 it does, in 2.15 it does not, and versions
between are taken to do so. PyTorch compares this text as a version."""


@dataclass(frozen=True)
class Stage1F1B:
    """A stage of a pipeline whose schedule is 1F1B: the memory that the limit of the stage has to count."""

    index: int
    """The number of the stage, from 0 on."""
    stages: int
    """How many stages the pipeline has."""
    microbatches: int
    """How many microbatches a step has."""
    outputs: bool = True
    """Whether the last stage keeps the outputs of all microbatches: `return_outputs` of the schedule's `step`."""

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.stages or self.microbatches < 1:
            raise ValueError(f"{self}: expected an index from 0 to {self.stages - 1}, and a microbatch at least")

    @property
    def passes(self) -> int:
        """How many forward passes are alive at once, at most."""
        return min(self.microbatches, self.stages - self.index)

    @property
    def is_last(self) -> bool:
        """Whether the stage is the last one, which computes the loss."""
        return self.index == self.stages - 1

    def held(self, joint: Joint) -> int:
        """The bytes that the schedule holds beside the passes while a pass runs."""
        if self.microbatches == 1:
            return 0
        others = self.microbatches - 1 if self.is_last and self.outputs else int(not self.is_last)
        of_parameters, to_send = gradients(joint)
        return of_parameters + (to_send if self.index else 0) + others * _outputs(joint) + self._owned(joint)

    def at_the_end(self, joint: Joint) -> int:
        """The bytes that are alive when the outputs of all microbatches are merged, parameters and buffers included."""
        merged = 2 * self.microbatches * _outputs(joint) if self.is_last and self.outputs else 0
        of_parameters, to_send = gradients(joint)
        there = sum(map(bytes_of, joint.static)) + self._owned(joint)
        return there + of_parameters + (to_send if self.index else 0) + merged

    def _owned(self, joint: Joint) -> int:
        """The bytes of a stage's buffers: an input and the gradient of an output for each microbatch. The outputs that
        wait for their backward passes are among them, but for the one that is on its way to the stage after."""
        if not OWNS_BUFFERS:
            return 0
        inputs = sum(bytes_of(p) for p in joint.primals if p not in joint.static)
        received = self.microbatches * inputs if self.index else 0
        return received + (0 if self.is_last else (self.microbatches + self.passes - 1) * _outputs(joint))


def _outputs(joint: Joint) -> int:
    return sum(bytes_of(n) for n in joint.reads(joint.fwd_outputs) if n not in joint.primals)


def gradients(joint: Joint) -> tuple[int, int]:
    """The bytes of the gradients of parameters, and the bytes of the gradients of the stage's inputs."""
    pairs = [(p, g) for p, g in zip(joint.primals, joint.bwd_outputs) if isinstance(g, fx.Node)]
    of_parameters = sum(bytes_of(g) for p, g in pairs if p in joint.static)
    return of_parameters, sum(bytes_of(g) for _, g in pairs) - of_parameters


def released(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A loss function for a schedule: each graph ends with its backward pass, and not with the step.

        schedule = Schedule1F1B(stage, microbatches, loss_fn=sublet.torch.released(loss))

    A schedule keeps the losses of all microbatches, and each keeps its graph, which holds what the stage has received.
    If a loss is a view, or one number in a larger storage as that of `mse_loss` is, a copy of it is kept instead.
    """

    def computed(*args: Any, **kwargs: Any) -> Tensor:
        value = loss(*args, **kwargs)
        # The graph of a view cannot be ended in place.
        if value._is_view() or value.untyped_storage().nbytes() > value.nbytes:
            value = value.clone()
        if value.requires_grad:
            known = weakref.ref(value)

            def end() -> None:
                alive = known()
                if alive is not None:
                    alive.detach_()

            value.register_hook(lambda _: Variable._execution_engine.queue_callback(end))
        return value

    return computed

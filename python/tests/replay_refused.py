"""Steps that replays would get wrong, and that are refused: at the recording, or at the call with other arguments."""

from __future__ import annotations

import ctypes
import types
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as distributed
import torch.distributed._functional_collectives as functional_collectives
from replay_same import ROWS, WIDTH, Case, Columns, Packed, Twice
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Written(Twice):
    """As before, and the step writes over one of them."""

    def arguments(self, i: int) -> Any:
        x = Case.arguments(self, i)[0]
        return (x, x) if i == 4 else (x, x * 2)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        y.add_(1)
        return super().loss(x, y)


class Parameter(Case):
    """At a late call a parameter is an argument."""

    def arguments(self, i: int) -> Any:
        x, y = super().arguments(i)
        return (self.network[0].weight.detach()[:ROWS], y) if i == 4 else (x, y)


class Other(Case):
    """At a late call the strides are others."""

    def arguments(self, i: int) -> Any:
        x, y = super().arguments(i)
        return (x.t().contiguous().t() if i == 4 else x), y


class Collected(Case):
    """A list that the step appends to."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[Tensor] = []

    def step(self, x: Tensor, y: Tensor) -> Any:
        self.losses.append(super().step(x, y))
        return self.losses[-1]


class Beside(Case):
    """An optimizer that was not given to the step."""

    def made(self, params: Any) -> torch.optim.Optimizer:
        return torch.optim.Adam(params)

    def kept(self) -> list[Any]:
        return [self.network]


class Norms(Case):
    """An optimizer that reads the norms of its updates."""

    def made(self, params: Any) -> torch.optim.Optimizer:
        return torch.optim.Adafactor(params)


class Closure(Case):
    """An optimizer that calls the network."""

    def step(self, x: Tensor, y: Tensor) -> Any:
        loss = self.loss(x, y)
        self.optimizer.step(loss.backward)
        self.optimizer.zero_grad()
        return loss.detach()


class Item(Case):
    def step(self, x: Tensor, y: Tensor) -> Any:
        return torch.tensor(super().step(x, y).item())


class Branch(Case):
    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        loss = super().loss(x, y)
        return loss if loss > 1 else 2 * loss


class List(Case):
    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return super().loss(x, y) * x[0].tolist()[0]


class Array(Case):
    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return super().loss(x, y) * float(x.numpy().max())


class Close(Case):
    """A branch by an operator whose result is a flag of Python."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        loss = super().loss(x, y)
        return 2 * loss if torch.allclose(x[:1], y[:1, :1], atol=1.0) else loss


class Address(Case):
    """Code that is no operator of PyTorch writes to a tensor."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        x = x * 2
        ctypes.memset(x.data_ptr(), 0, 4 * WIDTH)
        return super().loss(x, y)


class Storage(Address):
    """As before, by the storage of the tensor."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        x = x * 2
        ctypes.memset(x.untyped_storage().data_ptr(), 0, 4 * WIDTH)
        return super().loss(x, y)


class Shared(Case):
    """NumPy writes to a tensor."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        x = x * 2
        np.from_dlpack(x)
        return super().loss(x, y)


class Capsule(Case):
    """A tensor is given away."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        x = x * 2
        torch.to_dlpack(x)
        return super().loss(x, y)


class Options(Case):
    """An argument that holds a number, which changes."""

    options = types.SimpleNamespace(scale=1.0)

    def arguments(self, i: int) -> Any:
        self.options.scale = 1.0 + i
        return *super().arguments(i), self.options

    def step(self, x: Tensor, y: Tensor, options: Any) -> Any:
        return super().step(x * options.scale, y)


@dataclass
class Output:
    loss: Tensor


class Wrapped(Case):
    """A result within an object."""

    def step(self, x: Tensor, y: Tensor) -> Any:
        return Output(super().step(x, y))


class Sequences(Packed):
    """Sequences that are packed outside of the step."""

    def arguments(self, i: int) -> Any:
        return nn.utils.rnn.pack_padded_sequence(*super().arguments(i), batch_first=True), None

    def loss(self, x: Any, _: None) -> Tensor:
        return self.of_packed(x)


class Reduced(Case):
    """Gradients that are summed over all ranks."""

    def __init__(self) -> None:
        super().__init__()
        if not distributed.is_initialized():
            distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
        self.network = nn.parallel.DistributedDataParallel(self.network)


class Functional(Case):
    """A collective that is an operator by itself, as in graphs."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return super().loss(functional_collectives.all_reduce(x, "sum", [0]), y)


class Rows(Case):
    """How many rows there are depends on values."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        chosen = x[:, 0] > 0
        return super().loss(x[chosen], y[chosen])


class Outside(Case):
    """The optimizer runs outside of the step."""

    def step(self, x: Tensor, y: Tensor) -> Any:
        self.loss(x, y).backward()
        return x

    def after(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


class Replaced(Case):
    """A buffer is replaced in the step, and not written over."""

    def __init__(self) -> None:
        super().__init__()
        self.network.register_buffer("mean", torch.zeros(WIDTH))

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self.network.mean = 0.9 * self.network.mean + x.mean(0)
        return super().loss(x - self.network.mean, y)


class Counted(Case):
    """A number of the network changes in the step."""

    def __init__(self) -> None:
        super().__init__()
        self.network.calls = 0

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self.network.calls += 1
        return super().loss(x, y) / self.network.calls


class Carried(Case):
    """A state that is an attribute of the network, and that the next step reads."""

    def __init__(self) -> None:
        super().__init__()
        self.network.state = torch.zeros(ROWS, WIDTH)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self.network.state = (x + self.network.state) / 2
        return super().loss(self.network.state, y)


class Seeded(Case):
    """Random numbers that are equal in all steps."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        torch.manual_seed(7)
        return super().loss(x, y)


class Checkpointed(Case):
    """Dropout that is computed again by PyTorch, with the same random numbers."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.mse_loss(checkpoint(self.network, x, use_reentrant=False), y)


class Little(Case):
    def limit(self) -> str:
        return "1KiB"


REFUSED: list[type[Case]] = [Columns, Written, Parameter, Other, Beside, Norms, Closure, Item, Branch, List, Array, Rows]
REFUSED += [Outside, Replaced, Counted, Carried, Seeded, Checkpointed, Little]
REFUSED += [Collected, Close, Address, Storage, Shared, Capsule, Options, Wrapped, Packed, Sequences, Reduced, Functional]

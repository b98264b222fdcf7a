"""Steps that replays do as eager PyTorch does, though their arguments, networks or optimizers change between the calls;
and the steps that those of `replay_refused.py` are made from.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

CALLS = 8
ROWS, WIDTH = 16, 20


@torch.library.custom_op("replays::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    return torch.from_numpy(x.numpy() * 2)


def halve(weight: Tensor) -> None:
    assert weight.grad is not None
    weight.grad.mul_(0.5)


class Case:
    """A step, its arguments, and what changes between the calls."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 3))
        self.optimizer = self.made(self.network.parameters())
        self.data = torch.randn(CALLS * ROWS, WIDTH), torch.randn(CALLS * ROWS, 3)

    def made(self, params: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(params, lr=0.05, momentum=0.9)

    def arguments(self, i: int) -> Any:
        x, y = self.data
        return x[i * ROWS : (i + 1) * ROWS].clone(), y[i * ROWS : (i + 1) * ROWS].clone()

    def named(self, i: int) -> dict[str, Any]:
        return {}

    def change(self, i: int) -> None:
        """What happens before a call."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.mse_loss(self.network(x), y)

    def step(self, x: Tensor, y: Tensor) -> Any:
        loss = self.loss(x, y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def limit(self) -> str:
        return "100%"

    def kept(self) -> list[Any]:
        """What the step is given to look at."""
        return [self.network, self.optimizer]

    def after(self) -> None:
        """What is done with the gradients outside of the step."""

    def values(self) -> list[Tensor]:
        state = [x for s in self.optimizer.state.values() for x in s.values() if isinstance(x, Tensor)]
        return [*self.network.parameters(), *self.network.buffers(), *state, *self.data]


class Slices(Case):
    """Batches that are slices of one tensor each, and at the end a batch of its own."""

    def arguments(self, i: int) -> Any:
        x, y = self.data
        own = super().arguments(i)
        return own if i == CALLS - 1 else (x[i * ROWS : (i + 1) * ROWS], y[i * ROWS : (i + 1) * ROWS])


class Columns(Case):
    """Both arguments are in one storage at some calls and not at others."""

    def arguments(self, i: int) -> Any:
        x, y = super().arguments(i)
        together = torch.cat([torch.zeros(ROWS, i), x, y], 1)
        return (x, y) if i % 3 == 0 else (together[:, i : i + WIDTH], together[:, i + WIDTH :])

    def step(self, x: Tensor, y: Tensor) -> Any:
        return super().step(x.contiguous(), y.contiguous())


class Strided(Columns):
    """All arguments have the strides of columns of one tensor, at different places."""

    def arguments(self, i: int) -> Any:
        x, y = Case.arguments(self, i)
        together = torch.cat([torch.zeros(ROWS, i), x, y, torch.zeros(ROWS, CALLS - i)], 1)
        return together[:, i : i + WIDTH], (together if i % 2 else together.clone())[:, i + WIDTH : i + WIDTH + 3]


class Twice(Case):
    """The same tensor is both arguments at some calls; the step only reads them."""

    def arguments(self, i: int) -> Any:
        x = super().arguments(i)[0]
        return (x, x) if i in (0, 1, 4) else (x, x * 2)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.network(x) * y[:, :3]).mean().square()


class Named(Case):
    """Arguments by name."""

    def arguments(self, i: int) -> Any:
        return super().arguments(i)[:1]

    def named(self, i: int) -> dict[str, Any]:
        return {"y": super().arguments(i)[1]}


class Transposed(Case):
    """The step gives its argument other sizes in place, and lets it need gradients."""

    def arguments(self, i: int) -> Any:
        x, y = super().arguments(i)
        return x.t().contiguous(), y

    def step(self, x: Tensor, y: Tensor) -> Any:
        x = x.t_().requires_grad_()
        (gradient,) = torch.autograd.grad(self.loss(x, y), x)
        return super().step(x.detach(), y + gradient.square().sum()), gradient


class Conjugates(Case):
    """Values that are kept as conjugates and negatives of others, and an argument that is a conjugate."""

    def __init__(self) -> None:
        super().__init__()
        self.network.register_parameter("w", nn.Parameter(torch.randn(WIDTH // 2 + 1, dtype=torch.cfloat)))
        self.optimizer = self.made(self.network.parameters())

    def arguments(self, i: int) -> Any:
        x, y = super().arguments(i)
        return x, torch.complex(y, y + 1).conj()

    def step(self, x: Tensor, y: Tensor) -> Any:
        turned = torch.fft.irfft(torch.fft.rfft(x) * self.network.w.conj(), n=WIDTH)
        loss = super().step(turned, (y * y.conj()).real + y.imag)
        return loss, y.conj() * y, y.imag


class Moved(Case):
    """The optimizer's state and the weights are replaced, as by a checkpoint."""

    def change(self, i: int) -> None:
        if i == 2:
            self.saved = copy.deepcopy((self.network.state_dict(), self.optimizer.state_dict()))
        elif i == 5:
            self.network.load_state_dict(self.saved[0])
            self.optimizer.load_state_dict(self.saved[1])
        elif i == 6:
            self.network[0].weight.data = self.network[0].weight.data * 0.5


class MovedAdam(Moved):
    def made(self, params: Any) -> torch.optim.Optimizer:
        return torch.optim.Adam(params, lr=0.01, fused=True)


class Flags(Case):
    """The network's mode, the probability of dropout, and which weights learn."""

    def change(self, i: int) -> None:
        self.network.train(i != 3)
        self.network[2].p = 0.3 if i < 5 else 0.6
        self.network[0].weight.requires_grad_(i != 6)


class Rates(Case):
    """A learning rate that changes."""

    def change(self, i: int) -> None:
        self.optimizer.param_groups[0]["lr"] = 0.05 if i < 4 else 0.01


class Scalars(Rates):
    """As before, with numbers of NumPy."""

    def change(self, i: int) -> None:
        self.optimizer.param_groups[0]["lr"] = np.linspace(0.1, 0.01, CALLS)[i // 3]


class Betas(MovedAdam):
    """Numbers in a list of the optimizer and in a dictionary of the network."""

    def __init__(self) -> None:
        super().__init__()
        self.network.options = {"scales": [1.0, 1.0]}

    def change(self, i: int) -> None:
        super().change(i)
        self.optimizer.param_groups[0]["betas"] = [0.9 if i < 3 else 0.5, 0.999]
        self.network.options["scales"][0] = 1.0 if i < 5 else 3.0

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return super().loss(x, y) * self.network.options["scales"][0]


class Attributes(Case):
    """A tensor that is an attribute of the network is replaced between calls."""

    def change(self, i: int) -> None:
        if i in (0, 3, 4):
            self.network.scale = torch.tensor(1.0 + i)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return super().loss(x, y) * self.network.scale


class Hooks(Case):
    """Functions that change what a layer gives, a gradient, an update and the input of all layers come and go."""

    def change(self, i: int) -> None:
        layer = self.network[0]
        if i == 2:
            layer.register_forward_hook(lambda _, given, out: out * 2)
        elif i == 3:
            layer.weight.register_hook(lambda gradient: gradient * 3)
        elif i == 4:
            layer.weight.register_post_accumulate_grad_hook(halve)
        elif i == 5:
            self.optimizer.register_step_post_hook(lambda *_: layer.bias.data.mul_(0.9))
        elif i == 6:
            self.all = nn.modules.module.register_module_forward_pre_hook(lambda _, given: (given[0] + 1,))

    def after(self) -> None:
        if hasattr(self, "all"):
            self.all.remove()


factor = 1.0


class Variables(Case):
    """A number and a tensor that are attributes of the step's object, and a number of its module, change."""

    def __init__(self) -> None:
        super().__init__()
        self.share, self.weights, self.calls = 1.0, torch.ones(ROWS, 1), 0

    def change(self, i: int) -> None:
        global factor
        factor, self.share = 1.0 if i < 3 else 2.0, 1.0 if i < 4 else 0.5
        # The step does not read this one, and need not be recorded anew.
        self.calls += 1
        if i == 6:
            self.weights = torch.full((ROWS, 1), 3.0)

    def step(self, x: Tensor, y: Tensor) -> Any:
        return super().step(x * self.weights, y * self.share * factor)


class Own(Case):
    """An operator of the user, which runs NumPy inside."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return super().loss(doubled(x), y)


class Passed(Case):
    """Arguments that are no tensors: functions, and the network itself."""

    def arguments(self, i: int) -> Any:
        return *super().arguments(i), nn.functional.mse_loss, self.network, (1, "a", slice(1, 9, 2))

    def step(self, x: Tensor, y: Tensor, function: Any, network: nn.Module, rest: Any) -> Any:
        loss = function(network(x[rest[2]]), y[rest[2]])
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


class RMSprop(Case):
    def made(self, params: Any) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(params, lr=0.01)


class Rprop(Case):
    def made(self, params: Any) -> torch.optim.Optimizer:
        return torch.optim.Rprop(params)


class Adadelta(Case):
    def made(self, params: Any) -> torch.optim.Optimizer:
        return torch.optim.Adadelta(params)


class Adagrad(Case):
    def made(self, params: Any) -> torch.optim.Optimizer:
        return torch.optim.Adagrad(params, lr_decay=0.1, fused=True)


class AdamW(Case):
    def made(self, params: Any) -> torch.optim.Optimizer:
        return torch.optim.AdamW(params, fused=True)


class Default(Case):
    """AdamW as it is by default, whose counters are read in Python, with a rate that changes at each call."""

    def made(self, params: Any) -> torch.optim.Optimizer:
        optimizer = torch.optim.AdamW(params, lr=0.01)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, CALLS)
        return optimizer

    def change(self, i: int) -> None:
        if i:
            self.schedule.step()


class Lists(Default):
    """As before, by operators for lists of tensors; and an argument with flags, which the step reads."""

    def made(self, params: Any) -> torch.optim.Optimizer:
        self.schedule = torch.optim.lr_scheduler.ConstantLR(optimizer := torch.optim.Adam(params, lr=0.01, foreach=True))
        return optimizer

    def named(self, i: int) -> dict[str, Any]:
        return {"mask": torch.arange(ROWS) < (ROWS if i < 5 else 9)}

    def step(self, x: Tensor, y: Tensor, mask: Tensor) -> Any:
        return super().step(x, y) if mask.all() else super().step(x * mask[:, None], y)


class Rectified(Default):
    """RAdam runs other operators from its sixth call on."""

    def made(self, params: Any) -> torch.optim.Optimizer:
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer := torch.optim.RAdam(params, lr=0.01), 0.5)
        return optimizer


class Averaged(Default):
    """ASGD writes over the numbers that it reads in the next step."""

    def made(self, params: Any) -> torch.optim.Optimizer:
        self.schedule = torch.optim.lr_scheduler.ConstantLR(optimizer := torch.optim.ASGD(params, lr=0.1))
        return optimizer


class Both(Default):
    """Two optimizers, of which one has the weights and one the biases."""

    def made(self, params: Any) -> torch.optim.Optimizer:
        params = list(params)
        self.other = torch.optim.NAdam(params[1::2], lr=0.01)
        return super().made(params[::2])

    def step(self, x: Tensor, y: Tensor) -> Any:
        loss = self.loss(x, y)
        loss.backward()
        for each in (self.optimizer, self.other):
            each.step()
            each.zero_grad()
        return loss.detach()

    def kept(self) -> list[Any]:
        return [*super().kept(), self.other]


class Packed(Case):
    """Sequences whose lengths are an argument. Other lengths have the same sum."""

    def arguments(self, i: int) -> Any:
        return super().arguments(i)[0][:4], torch.tensor([9, 5, 4, 2] if i % 2 else [9, 6, 3, 2])

    def loss(self, x: Tensor, lengths: Any) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.of_packed(packed)

    def of_packed(self, packed: Any) -> Tensor:
        scaled = packed._replace(data=packed.data[:, None] * self.network[3].weight[0, :2])
        padded, _ = nn.utils.rnn.pad_packed_sequence(scaled, batch_first=True)
        return padded[:, :5].square().mean()


class Lengths(Packed):
    """Sequences whose lengths are a list."""

    def arguments(self, i: int) -> Any:
        return super().arguments(i)[0], [5, 9, 4, 2]


class Constants(Case):
    """Tensors of Python's numbers, which the step writes over."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        total, weights = torch.tensor(0.0), x.new_tensor([1.0, 2.0])
        for weight in weights.mul_(weights):
            total += weight * super().loss(x, y)
        return total


class Frozen(Case):
    """Batch norm that does not train, and is recomputed."""

    def __init__(self) -> None:
        super().__init__()
        norms = [layer for _ in range(6) for layer in (nn.BatchNorm1d(64).eval(), nn.Sigmoid())]
        self.network = nn.Sequential(nn.Linear(WIDTH, 64), *norms, nn.Linear(64, 3))
        self.optimizer = self.made(self.network.parameters())

    def limit(self) -> str:
        return "90%"


class Normed(Case):
    """Weights that are attributes, and computed anew in each step."""

    def __init__(self) -> None:
        super().__init__()
        nn.utils.weight_norm(self.network[0])
        self.optimizer = self.made(self.network.parameters())


SAME: list[type[Case]] = [Slices, Strided, Twice, Named, Transposed, Conjugates, Moved, MovedAdam]
SAME += [Flags, Rates, RMSprop, Rprop, Adadelta, Adagrad, AdamW, Constants, Frozen, Normed]
SAME += [Default, Lists, Rectified, Averaged, Both]
SAME += [Scalars, Betas, Attributes, Hooks, Variables, Own, Passed, Lengths]

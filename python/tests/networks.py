"""Networks to train: ResNets, a GPT with tied weights, an MLP. `build(name)` is a module that computes the loss, and its inputs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Residual(nn.Module):
    """Convolutions with batch norm beside a short cut; three of them with a narrow middle where `wide` is above 1."""

    def __init__(self, channels: int, out: int, stride: int, wide: int) -> None:
        super().__init__()
        shapes = [(channels, out // wide, 1, 1), (out // wide, out // wide, 3, stride), (out // wide, out, 1, 1)]
        if wide == 1:
            shapes = [(channels, out, 3, stride), (out, out, 3, 1)]
        layers: list[nn.Module] = []
        for a, b, kernel, step in shapes:
            layers += [nn.Conv2d(a, b, kernel, step, kernel // 2, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
        self.body = nn.Sequential(*layers[:-1])
        same = stride == 1 and channels == out
        self.short = nn.Identity() if same else nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.short(x))


class ResNet(nn.Module):
    def __init__(self, counts: tuple[int, ...], wide: int, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        channels = 64
        for stage, count in enumerate(counts):
            out = (64 << stage) * wide
            for i in range(count):
                layers.append(Residual(channels, out, 2 if stage and i == 0 else 1, wide))
                channels = out
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))


class Attention(nn.Module):
    """A transformer block: attention and a wide layer, each behind a norm."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + F.dropout(self.out(y), self.dropout, self.training)
        y = self.down(F.gelu(self.up(self.norms[1](x))))
        return x + F.dropout(y, self.dropout, self.training)


class GPT(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, words: int, length: int, dropout: float) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.body = nn.Sequential(*[Attention(width, heads, dropout) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.body(x))).flatten(0, 1)


class Loss(nn.Module):
    """A network and its loss, so that one graph has both."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.network(x), y)


def build(name: str) -> tuple[Loss, tuple[Tensor, Tensor]]:
    """A network by name, the same each time."""
    torch.manual_seed(0)
    images = {"resnet18": ((2, 2, 2, 2), 1, 32, 112), "resnet50": ((3, 4, 6, 3), 4, 16, 112), "resnet_small": ((1, 1), 1, 8, 64)}
    texts = {"gpt": (4, 256, 8, 1000, 256, 8, 0.0), "gpt_dropout": (4, 256, 8, 1000, 256, 8, 0.1), "gpt_small": (2, 64, 4, 500, 64, 4, 0.1)}
    if name in images:
        counts, wide, batch, side = images[name]
        return Loss(ResNet(counts, wide)), (torch.randn(batch, 3, side, side), torch.randint(0, 1000, (batch,)))
    if name in texts:
        layers, width, heads, words, length, batch, dropout = texts[name]
        tokens = torch.randint(0, words, (2, batch, length))
        return Loss(GPT(layers, width, heads, words, length, dropout)), (tokens[0], tokens[1].flatten())
    mlp = nn.Sequential(nn.Linear(256, 1024), nn.Tanh(), nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 10))
    return Loss(mlp), (torch.randn(4096, 256), torch.randint(0, 10, (4096,)))

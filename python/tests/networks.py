"""Networks to train: ResNets, a U-Net, a GPT with tied weights, a vision transformer, an MLP-Mixer, an LSTM, MLPs. `build(name)` is
a module that computes the loss, and its inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


Norm = Callable[[int], nn.Module]


def group_norm(channels: int) -> nn.Module:
    """Of groups of 16 channels: no running statistics."""
    return nn.GroupNorm(channels // 16, channels)


class Residual(nn.Module):
    """Convolutions with batch norm beside a short cut; three of them with a narrow middle where `wide` is above 1."""

    def __init__(self, channels: int, out: int, stride: int, wide: int, norm: Norm) -> None:
        super().__init__()
        shapes = [(channels, out // wide, 1, 1), (out // wide, out // wide, 3, stride), (out // wide, out, 1, 1)]
        if wide == 1:
            shapes = [(channels, out, 3, stride), (out, out, 3, 1)]
        layers: list[nn.Module] = []
        for a, b, kernel, step in shapes:
            layers += [nn.Conv2d(a, b, kernel, step, kernel // 2, bias=False), norm(b), nn.ReLU(inplace=True)]
        self.body = nn.Sequential(*layers[:-1])
        same = stride == 1 and channels == out
        self.short = nn.Identity() if same else nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), norm(out))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.short(x))


class ResNet(nn.Module):
    def __init__(self, counts: tuple[int, ...], wide: int, norm: Norm, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), norm(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        channels = 64
        for stage, count in enumerate(counts):
            out = (64 << stage) * wide
            for i in range(count):
                layers.append(Residual(channels, out, 2 if stage and i == 0 else 1, wide, norm))
                channels = out
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))


class UNet(nn.Module):
    """Down and up again, with what was made on the way down beside what is made on the way up; a class for each image."""

    def __init__(self, width: int, depth: int, classes: int = 1000) -> None:
        super().__init__()
        widths = [width << i for i in range(depth)]
        self.down = nn.ModuleList([self._pair(a, b) for a, b in zip([3, *widths], widths)])
        self.up = nn.ModuleList([self._pair(a + b, a) for a, b in zip(widths, widths[1:])][::-1])
        self.head = nn.Linear(width, classes)

    @staticmethod
    def _pair(a: int, b: int) -> nn.Module:
        first, second = nn.Conv2d(a, b, 3, padding=1), nn.Conv2d(b, b, 3, padding=1)
        return nn.Sequential(first, group_norm(b), nn.ReLU(), second, group_norm(b), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for i, pair in enumerate(self.down):
            x = pair(F.max_pool2d(x, 2) if i else x)
            kept.append(x)
        kept.pop()
        for pair in self.up:
            x = pair(torch.cat([F.interpolate(x, scale_factor=2), kept.pop()], 1))
        return self.head(x.mean((2, 3)))


class Attention(nn.Module):
    """A transformer block: attention and a wide layer, each behind a norm."""

    def __init__(self, width: int, heads: int, dropout: float, causal: bool = True) -> None:
        super().__init__()
        self.heads, self.dropout, self.causal = heads, dropout, causal
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).reshape(batch, length, width)
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


class Mixing(nn.Module):
    """A block of an MLP-Mixer: two layers over the patches, and two over the channels."""

    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        sizes = [(patches, 4 * patches), (4 * patches, patches), (width, 4 * width), (4 * width, width)]
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in sizes])

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[0](x).transpose(1, 2)
        x = x + self.layers[1](F.gelu(self.layers[0](y))).transpose(1, 2)
        return x + self.layers[3](F.gelu(self.layers[2](self.norms[1](x))))


class Patches(nn.Module):
    """An image as patches of 8 by 8 points, blocks of one kind over them, and their mean as classes."""

    def __init__(self, side: int, width: int, blocks: list[nn.Module], classes: int = 1000) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 8, 8)
        self.places = nn.Parameter(0.02 * torch.randn((side // 8) ** 2, width))
        self.body = nn.Sequential(*blocks)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.norm(self.body(x)).mean(1))


class Recurrent(nn.Module):
    """Layers of LSTM with dropout between them, and a class for each sequence."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.LSTM(width // 2, width, 2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x)[0][:, -1])


class Halved(nn.Module):
    """Layers with layer norm under autocast: values of half precision, weights of single precision. The last layer is of single
    precision, under no autocast."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*(m for _ in range(6) for m in (nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())))
        self.head = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            x = self.body(x)
        with torch.autocast(x.device.type, enabled=False):
            return self.head(x.float())


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
    if name in ("unet", "unet_small"):
        width, batch, side = (32, 8, 64) if name == "unet" else (16, 4, 32)
        return Loss(UNet(width, 4)), (torch.randn(batch, 3, side, side), torch.randint(0, 1000, (batch,)))
    patched = {"vit": (4, 256, 32), "mixer": (6, 256, 32), "vit_small": (2, 64, 8), "mixer_small": (3, 64, 8)}
    if name in patched:
        count, width, batch = patched[name]
        blocks = [Mixing(64, width) if name.startswith("mixer") else Attention(width, width // 32, 0.0, False) for _ in range(count)]
        return Loss(Patches(64, width, blocks)), (torch.randn(batch, 3, 64, 64), torch.randint(0, 1000, (batch,)))
    norm: Norm = group_norm if name.endswith("_gn") else nn.BatchNorm2d
    images = {"resnet18": ((2, 2, 2, 2), 1, 32, 112), "resnet50": ((3, 4, 6, 3), 4, 16, 112), "resnet_small": ((1, 1), 1, 8, 64)}
    images["resnet50_large"] = ((3, 4, 6, 3), 4, 128, 224)
    images |= {"resnet18_gn": images["resnet18"], "resnet_small_gn": images["resnet_small"]}
    texts = {"gpt": (4, 256, 8, 1000, 256, 8, 0.0), "gpt_dropout": (4, 256, 8, 1000, 256, 8, 0.1), "gpt_small": (2, 64, 4, 500, 64, 4, 0.1)}
    texts["gpt2_medium"] = (24, 1024, 16, 50257, 1024, 32, 0.0)
    texts["gpt_plain"] = (*texts["gpt_small"][:-1], 0.0)
    if name in images:
        counts, wide, batch, side = images[name]
        return Loss(ResNet(counts, wide, norm)), (torch.randn(batch, 3, side, side), torch.randint(0, 1000, (batch,)))
    if name in texts:
        layers, width, heads, words, length, batch, dropout = texts[name]
        tokens = torch.randint(0, words, (2, batch, length))
        return Loss(GPT(layers, width, heads, words, length, dropout)), (tokens[0], tokens[1].flatten())
    if name == "lstm":
        return Loss(Recurrent(64)), (torch.randn(8, 40, 32), torch.randint(0, 10, (8,)))
    if name == "mlp_bf16":
        return Loss(Halved(256)), (torch.randn(512, 256), torch.randint(0, 256, (512,)))
    layers = [nn.Linear(256, 512), nn.GELU(), *(m for _ in range(8) for m in (nn.Linear(512, 512), nn.GELU())), nn.Linear(512, 10)]
    return Loss(nn.Sequential(*layers)), (torch.randn(4096, 256), torch.randint(0, 10, (4096,)))

"""A small vision transformer: LayerNorm, no BatchNorm, quick on a CPU.

Paper: Dosovitskiy et al., "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale", ICLR 2021;
section 3.1, equations 1 to 4, figure 1. Attention: Vaswani et al., NeurIPS 2017, section 3.2.

    symbol   name     vit-tiny                    source
    P        patch    4 (small), 16 (large)       section 3.1 has 16; 4 leaves 64 patches of a 32x32 image
    D        width    64                          ViT-Base has 768 (table 1)
    L        depth    4                           ViT-Base has 12
    k        heads    4                           ViT-Base has 12
    MLP      hidden   128                         the paper has 4 D; 2 D here
    E_pos    -        normal, std 0.02            the authors' code
    z_class  -        zero                        the authors' code
    weights  -        Xavier uniform, biases 0    the authors' code (encoder); here also patches and head

How it differs: the size (the network called "tiny" in later papers has 5.7 M parameters), no dropout, a single linear
layer as the head, query, key and value drawn as one matrix. An image whose sides are no multiple of P is padded with
zeros to the right and below. The position embedding ties a network to the (H, W) it was built for.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from indelible.base.errors import InputError
from indelible.models.catalogue import MODELS, ModelInfo, Shape, Stem


class Attention(nn.Module):
    """Multi-head self-attention: (N, tokens, width) to the same shape."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, z: Tensor) -> Tensor:
        """Return what each token gathers from all tokens."""
        q, k, v = self.qkv(z).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        gathered = F.scaled_dot_product_attention(q, k, v)  # each (N, heads, tokens, width / heads)
        mixed: Tensor = self.out(gathered.transpose(1, 2).flatten(2))
        return mixed


class EncoderBlock(nn.Module):
    """Attention and a two-layer perceptron, each behind a LayerNorm and beside a shortcut (equations 2 and 3)."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, z: Tensor) -> Tensor:
        """Return the (N, tokens, width) features one block deeper."""
        z = z + self.attention(self.norm1(z))
        deeper: Tensor = z + self.mlp(self.norm2(z))
        return deeper


class VisionTransformer(nn.Module):
    """A vision transformer: (N, C, H, W) images to (N, classes) logits; the table in the header explains the settings.

    ``heads`` divides ``width``.
    """

    def __init__(
        self, *, classes: int, shape: Shape, patch: int, width: int, depth: int, heads: int, hidden: int
    ) -> None:
        super().__init__()
        channels, *size = shape
        self.size = torch.Size(size)
        down, across = (-(-side // patch) for side in size)
        self.padding = (0, across * patch - size[1], 0, down * patch - size[0])
        self.embed = nn.Conv2d(channels, width, patch, stride=patch)
        self.token = nn.Parameter(torch.empty(1, 1, width))
        self.position = nn.Parameter(torch.empty(1, 1 + down * across, width))
        self.blocks = nn.Sequential(*(EncoderBlock(width, heads, hidden) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)
        nn.init.zeros_(self.token)
        nn.init.normal_(self.position, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                # A patch embedding is a linear layer on a flattened patch.
                nn.init.xavier_uniform_(module.weight.detach().flatten(1))
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]

    def forward(self, images: Tensor) -> Tensor:
        """Return the (N, classes) logits of (N, C, H, W) images."""
        if images.shape[-2:] != self.size:
            expected, came = ("x".join(map(str, size)) for size in (self.size, images.shape[-2:]))
            raise InputError(
                f"this vision transformer was built for {expected} images, got {came}. "
                "Resize them, or build it for their shape."
            )
        patches = self.embed(F.pad(images, self.padding)).flatten(2).transpose(1, 2)  # (N, patches, width)
        z = torch.cat([self.token.expand(images.shape[0], -1, -1), patches], dim=1) + self.position
        logits: Tensor = self.head(self.norm(self.blocks(z))[:, 0])
        return logits


def _build_tiny(*, classes: int, shape: Shape, stem: Stem) -> VisionTransformer:
    patch = 16 if stem == "large" else 4
    return VisionTransformer(classes=classes, shape=shape, patch=patch, width=64, depth=4, heads=4, hidden=128)


_PAPER = "Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021"
_TITLE = "Vision transformer of width 64, four blocks"
MODELS.add(ModelInfo(name="vit-tiny", title=_TITLE, paper=_PAPER, build=_build_tiny))

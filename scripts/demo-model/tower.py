"""The vision tower: SigLIP's layout as Idefics 3 has it, under the names of its checkpoints without their root."""

import math

import torch
import torch.nn.functional as F

CONFIG = dict(hidden=192, ffn=640, layers=4, heads=6, image=96, patch=12, eps=1e-6, factor=2)
SIDE = CONFIG["image"] // CONFIG["patch"]
ROWS = (SIDE // CONFIG["factor"]) ** 2  # of text embeddings, a picture


def places(side, width):
    """Sines and cosines of rows and columns, from which the learned positions start."""
    t = torch.arange(side)[:, None] * 100 ** (-torch.arange(width // 4) / (width // 4)) * 2 * math.pi / side
    one = torch.cat([t.sin(), t.cos()], 1)
    return torch.cat([one[:, None].expand(-1, side, -1), one[None].expand(side, -1, -1)], -1).reshape(side * side, width)


class Tower(torch.nn.Module):
    def __init__(self, c=CONFIG):
        super().__init__()
        self.c, self.w = c, {}
        h, f, p = c["hidden"], c["ffn"], c["patch"]
        self.add("embeddings.patch_embedding.weight", torch.randn(h, 3, p, p) * (3 * p * p) ** -0.5)
        self.add("embeddings.patch_embedding.bias", torch.zeros(h))
        self.add("embeddings.position_embedding.weight", places(SIDE, h) * 0.5)
        for l in range(c["layers"]):
            root = "encoder.layers.%d." % l
            for name, rows, cols, scale in (
                ("self_attn.q_proj", h, h, 1), ("self_attn.k_proj", h, h, 1), ("self_attn.v_proj", h, h, 1), ("self_attn.out_proj", h, h, 0.3),
                ("mlp.fc1", f, h, 1), ("mlp.fc2", h, f, 0.3),
            ):
                self.add(root + name + ".weight", torch.randn(rows, cols) * cols**-0.5 * scale)
                self.add(root + name + ".bias", torch.zeros(rows))
            for name in ("layer_norm1", "layer_norm2"):
                self.add(root + name + ".weight", torch.ones(h))
                self.add(root + name + ".bias", torch.zeros(h))
        self.add("post_layernorm.weight", torch.ones(h))
        self.add("post_layernorm.bias", torch.zeros(h))

    def add(self, name, value):
        self.w[name] = torch.nn.Parameter(value)
        self.register_parameter(name.replace(".", "/"), self.w[name])

    def forward(self, pixels):
        """[pictures, 3, side, side] of -1 to 1 in, [pictures, patches, hidden] out."""
        c, w = self.c, self.w
        b, p, heads = len(pixels), c["patch"], c["heads"]
        x = pixels.reshape(b, 3, SIDE, p, SIDE, p).permute(0, 2, 4, 1, 3, 5).reshape(b, SIDE * SIDE, -1)
        x = F.linear(x, w["embeddings.patch_embedding.weight"].flatten(1), w["embeddings.patch_embedding.bias"]) + w["embeddings.position_embedding.weight"]
        for l in range(c["layers"]):
            root = "encoder.layers.%d." % l
            linear = lambda x, name: F.linear(x, w[root + name + ".weight"], w[root + name + ".bias"])
            norm = lambda name: F.layer_norm(x, (c["hidden"],), w[root + name + ".weight"], w[root + name + ".bias"], c["eps"])
            y = norm("layer_norm1")
            q, k, v = (linear(y, "self_attn.%s_proj" % m).view(b, -1, heads, c["hidden"] // heads).transpose(1, 2) for m in "qkv")
            a = (q * q.shape[-1] ** -0.5) @ k.transpose(2, 3)
            x = x + linear((a.softmax(-1) @ v).transpose(1, 2).reshape(b, -1, c["hidden"]), "self_attn.out_proj")
            x = x + linear(F.gelu(linear(norm("layer_norm2"), "mlp.fc1"), approximate="tanh"), "mlp.fc2")
        return F.layer_norm(x, (c["hidden"],), w["post_layernorm.weight"], w["post_layernorm.bias"], c["eps"])


def shuffle(x, factor=CONFIG["factor"]):
    """Squares of patches side by side, each row by row."""
    n = SIDE // factor
    return x.view(len(x), n, factor, n, factor, -1).permute(0, 1, 3, 2, 4, 5).reshape(len(x), n * n, -1)

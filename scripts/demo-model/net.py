"""The model: Qwen3's layout (RMSNorm before, QK-norm, rotary positions, grouped queries, SwiGLU, tied embeddings)."""

import torch
import torch.nn.functional as F

CONFIG = dict(vocab=2048, hidden=256, layers=6, heads=4, kv_heads=2, head_dim=64, ffn=512, theta=1000000.0, eps=1e-6, context=4096)
BLOCK = 256  # queries computed together: keys after them are skipped


class Net(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.w = torch.nn.ParameterDict()
        h, d = c["hidden"], c["head_dim"]
        self.add("embed", torch.randn(c["vocab"], h) * 0.02)
        for l in range(c["layers"]):
            for name, rows, cols, scale in (
                ("q", c["heads"] * d, h, 1), ("k", c["kv_heads"] * d, h, 1), ("v", c["kv_heads"] * d, h, 1), ("o", h, c["heads"] * d, 0.3),
                ("gate", c["ffn"], h, 1), ("up", c["ffn"], h, 1), ("down", h, c["ffn"], 0.3),
            ):
                self.add("%d_%s" % (l, name), torch.randn(rows, cols) * cols**-0.5 * scale)
            for name, n in (("norm1", h), ("norm2", h), ("qnorm", d), ("knorm", d)):
                self.add("%d_%s" % (l, name), torch.ones(n))
        self.add("norm", torch.ones(h))
        t = torch.arange(c["context"])[:, None] * c["theta"] ** (-torch.arange(0, d, 2) / d)
        self.cos, self.sin = torch.cat([t.cos()] * 2, -1), torch.cat([t.sin()] * 2, -1)

    def add(self, name, value):
        self.w[name] = torch.nn.Parameter(value)

    def norm(self, x, name):
        # The sum of squares needs float32, the rest does not.
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.c["eps"])
        return x * scale.to(x.dtype) * self.w[name]

    def rotate(self, x, turns):
        cos, sin = turns
        half = x.shape[3] // 2
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    def attend(self, x, l, kv, turns):
        c, (b, n, _) = self.c, x.shape
        heads = lambda name, count: F.linear(x, self.w["%d_%s" % (l, name)]).view(b, n, count, c["head_dim"]).transpose(1, 2)
        first = kv[l][0].shape[2] if kv and l in kv else 0
        q = self.rotate(self.norm(heads("q", c["heads"]), "%d_qnorm" % l), turns)
        k = self.rotate(self.norm(heads("k", c["kv_heads"]), "%d_knorm" % l), turns)
        v = heads("v", c["kv_heads"])
        if kv is not None:
            if first:
                k, v = torch.cat([kv[l][0], k], 2), torch.cat([kv[l][1], v], 2)
            kv[l] = k, v
        group = c["heads"] // c["kv_heads"]
        q = q.reshape(b, c["kv_heads"], group, n, c["head_dim"]) * c["head_dim"] ** -0.5
        out = []
        for i in range(0, n, BLOCK):
            rows = min(BLOCK, n - i)
            seen = first + i + rows
            s = q[:, :, :, i : i + rows].reshape(b, c["kv_heads"], group * rows, -1) @ k[:, :, :seen].transpose(2, 3)
            s = s.view(b, c["kv_heads"], group, rows, seen)
            mask = torch.full((rows, rows), -1e9, dtype=s.dtype).triu(1)
            s = torch.cat([s[..., : seen - rows], s[..., seen - rows :] + mask], -1) if seen > rows else s + mask
            o = s.softmax(-1).view(b, c["kv_heads"], group * rows, seen) @ v[:, :, :seen]
            out.append(o.view(b, c["kv_heads"], group, rows, -1))
        o = torch.cat(out, 3).reshape(b, c["heads"], n, -1).transpose(1, 2).reshape(b, n, -1)
        return F.linear(o, self.w["%d_o" % l])

    def forward(self, ids, kv=None, where=None, positions=None, rows=None):
        """Logits of all positions, or of those where the mask is set. kv, a dict, keeps keys and values between calls.
        positions, of the shape of ids, are 0, 1, 2 ... unless they are given. rows is a pair of a mask of positions
        and the embeddings that stand there in place of the tokens'."""
        x = F.embedding(ids, self.w["embed"])
        if rows is not None:
            x = x.masked_scatter(rows[0][..., None], rows[1].to(x.dtype))
        if positions is None:
            first = kv[0][0].shape[2] if kv else 0
            positions = torch.arange(first, first + ids.shape[1])[None]
        turns = [t[positions][:, None].to(x.dtype) for t in (self.cos, self.sin)]
        for l in range(self.c["layers"]):
            x = x + self.attend(self.norm(x, "%d_norm1" % l), l, kv, turns)
            y = self.norm(x, "%d_norm2" % l)
            y = F.silu(F.linear(y, self.w["%d_gate" % l])) * F.linear(y, self.w["%d_up" % l])
            x = x + F.linear(y, self.w["%d_down" % l])
        if where is not None:
            x = x[where]
        return F.linear(self.norm(x, "norm"), self.w["embed"])


def generate(net, ids, end, limit=80):
    """Greedy continuation of ids up to the token end."""
    out = []
    with torch.no_grad():
        kv = {}
        logits = net(torch.tensor([ids]), kv)[0, -1]
        while len(out) < limit:
            token = int(logits.argmax())
            if token == end:
                break
            out.append(token)
            logits = net(torch.tensor([[token]]), kv)[0, -1]
    return out

"""What the families share: small functions in float32, written for reading.

Sequences are whole: every function takes all positions at once and nothing is
cached, so there is no state that could hide a mistake.
"""

import math

import torch


def rms_norm(x, weight, eps):
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def gemma_norm(x, weight, eps):
    return rms_norm(x, 1.0 + weight, eps)


def silu(x):
    return x * torch.sigmoid(x)


def gelu_tanh(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def mlp(x, gate, up, down, act=silu):
    return (act(x @ gate.T) * (x @ up.T)) @ down.T


def cap(x, limit):
    return x if limit is None else limit * torch.tanh(x / limit)


# Rotary positions.


def plain_freqs(theta, dim):
    return 1.0 / theta ** (torch.arange(0, dim, 2).float() / dim)


def linear_freqs(theta, dim, factor):
    return plain_freqs(theta, dim) / factor


def llama3_freqs(theta, dim, s):
    """Long waves are slowed, short ones kept, those between blended."""
    out = []
    original = s["original_max_position_embeddings"]
    for f in plain_freqs(theta, dim).tolist():
        wave = 2 * math.pi / f
        if wave < original / s["high_freq_factor"]:
            out.append(f)
        elif wave > original / s["low_freq_factor"]:
            out.append(f / s["factor"])
        else:
            t = (original / wave - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])
            out.append((1 - t) * f / s["factor"] + t * f)
    return torch.tensor(out)


def yarn_freqs(theta, dim, s):
    """Returns the frequencies and what cosines and sines are multiplied with."""
    factor, original = s["factor"], s["original_max_position_embeddings"]

    def turns(n):  # the dimension that turns n times in the original context
        return dim * math.log(original / (n * 2 * math.pi)) / (2 * math.log(theta))

    low, high = turns(s.get("beta_fast", 32)), turns(s.get("beta_slow", 1))
    if s.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = torch.clamp((torch.arange(dim // 2).float() - low) / (high - low), 0, 1)
    f = plain_freqs(theta, dim)
    attention = s.get("attention_factor")
    if attention is None and s.get("mscale") and s.get("mscale_all_dim"):
        scale = lambda m: 0.1 * m * math.log(factor) + 1
        attention = scale(s["mscale"]) / scale(s["mscale_all_dim"])
    if attention is None:
        attention = 0.1 * math.log(factor) + 1
    return f / factor * ramp + f * (1 - ramp), attention


def longrope_freqs(theta, dim, factors, context, original):
    stretch = context / original
    attention = math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 else 1.0
    return plain_freqs(theta, dim) / torch.tensor(factors), attention


def rotate(x, freqs, attention=1.0):
    """x is [position, head, head dim]; only its first 2 * len(freqs) values turn."""
    angles = torch.arange(x.shape[0]).float()[:, None] * freqs[None, :]
    cos, sin = (torch.cos(angles) * attention)[:, None, :], (torch.sin(angles) * attention)[:, None, :]
    half = len(freqs)
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def rotate_by(x, freqs, sections, positions):
    """As rotate, but positions is [position, 3]: the first of the sections of pairs turns by
    the first number, and so on."""
    which = torch.repeat_interleave(torch.arange(3), torch.tensor(sections))
    angles = positions.float()[:, which] * freqs[None, :]
    cos, sin = torch.cos(angles)[:, None, :], torch.sin(angles)[:, None, :]
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


# Attention.


def attention(q, k, v, scale, window=None, limit=None, groups=()):
    """q is [position, head, head dim]; k and v have fewer heads, each shared by a
    run of query heads. A window counts the position itself. Positions of one of the
    groups [start, end) see each other in addition, later ones and those that the window
    would hide."""
    n, heads, dim = q.shape
    group = heads // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = cap(torch.einsum("qhd,khd->hqk", q, k) * scale, limit)
    at, past = torch.arange(n)[:, None], torch.arange(n)[None, :]
    visible = past <= at
    if window is not None:
        visible &= past > at - window
    for start, end in groups:
        visible[start:end, start:end] = True
    scores = scores.masked_fill(~visible, float("-inf"))
    return torch.einsum("hqk,khd->qhd", torch.softmax(scores, -1), v).reshape(n, heads * dim)


def experts(x, router, active, normalize, expert):
    """Each token goes through its best experts; expert(e, rows) computes one."""
    shares = torch.softmax(x @ router.T, -1)
    best, which = torch.topk(shares, active, -1)
    if normalize:
        best = best / best.sum(-1, keepdim=True)
    out = torch.zeros_like(x)
    for e in range(router.shape[0]):
        rows, rank = torch.where(which == e)
        if len(rows):
            out[rows] += best[rows, rank, None] * expert(e, x[rows])
    return out

"""Weights that Python and Go make alike from a seed, so that none are stored.

Element i of a tensor is mean + width * u, all in float32, where u is one of 65536
steps from -1 to just below 1: the upper 16 bits of splitmix64 over the seed, the
FNV-1a hash of the tensor's name, and i. Only single roundings happen, so every
machine gives the same bits.
"""

import numpy as np
import torch

GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def fnv1a(name):
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = ((h ^ b) * 0x100000001B3) & MASK
    return h


def values(seed, name, shape, mean, width):
    n = int(np.prod(shape))
    start = (seed * GOLDEN + fnv1a(name)) & MASK
    with np.errstate(over="ignore"):
        z = np.uint64(start) + (np.arange(n, dtype=np.uint64) + np.uint64(1)) * np.uint64(GOLDEN)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    u = (z >> np.uint64(48)).astype(np.int64) - 32768
    step = np.float32(width / 32768)
    return (np.float32(mean) + u.astype(np.float32) * step).reshape(shape)


def load(seed, tensors, dtype):
    """The tensors as float32 that hold what the stored type can hold."""
    return {
        name: torch.from_numpy(values(seed, name, shape, mean, width)).to(DTYPES[dtype]).float()
        for name, shape, mean, width in tensors
    }

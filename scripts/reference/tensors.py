"""Writes files with torch.save, and what is in them, which internal/tensorfile is compared
with.

    apt-get install -y --no-install-recommends python3-torch python3-numpy
    /usr/bin/python3 scripts/reference/tensors.py internal/tensorfile/testdata
"""

import json
import os
import sys
from collections import OrderedDict
from pathlib import Path

import torch

NAMES = {
    torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}
SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Call:
    def __reduce__(self):
        return os.system, ("true",)


def describe(name, t):
    t = t.detach().contiguous()
    raw = t.view(SAME_SIZE[t.element_size()]).numpy().tobytes() if t.dim() else t.reshape(1).view(SAME_SIZE[t.element_size()]).numpy().tobytes()
    return {"name": name, "dtype": NAMES[t.dtype], "shape": list(t.shape), "data": raw.hex()}


def good():
    base = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4) - 7.25
    for dtype, name in NAMES.items():
        yield name.lower(), (base > 0 if dtype == torch.bool else (base.abs() if dtype == torch.uint8 else base).to(dtype))
    yield "scalar", torch.tensor(2.5)
    yield "empty", torch.zeros(2, 0, 3)
    yield "slice", base[1, 1:, ::2]
    yield "transposed", base.to(torch.float16).permute(2, 0, 1)
    yield "expanded", base[:1, :, :1].expand(5, 3, 4)
    yield "ones", base[:, :1, :].permute(1, 0, 2)
    yield "gradient", base.clone().requires_grad_()
    yield "parameter", torch.nn.Parameter(base.clone())
    full = {
        "mm_embeddings": base.to(torch.bfloat16), "mm_embedding_special_tokens": torch.tensor([3, 5, 8]),
        "mm_embedding_offsets": torch.tensor([0, 4], dtype=torch.int32),
    }
    yield "dict", full
    yield "ordered", OrderedDict(full)
    yield "lists", {"mm_embeddings": base, "mm_embedding_offsets": [0, -4, 70000, 2**40, -2**40, 300], "sizes": base.shape, "nothing": None, "pair": (1, 2)}
    yield "shared", {"mm_embeddings": base[0], "whole": base, "column": base[:, 0, 1], "mm_embedding_offsets": torch.tensor(4)}
    yield "protocol4", (full, 4)
    yield "state", stateful(base)


def stateful(base):
    d = OrderedDict(mm_embeddings=base)
    d._metadata = OrderedDict(version=1)
    return d


def refused():
    t = torch.arange(4.0)
    yield "complex", torch.complex(t, t), "ComplexFloatStorage"
    yield "sparse", torch.eye(2).to_sparse(), "_rebuild_sparse_tensor"
    yield "quantized", torch.quantize_per_tensor(t, 0.1, 0, torch.qint8), "_rebuild_qtensor"
    yield "call", {"mm_embeddings": t, "x": Call()}, "posix.system"
    yield "module", torch.nn.Linear(2, 1), "torch.nn.modules.linear.Linear"
    yield "tensors", {"mm_embeddings": [t, t]}, "a list where a tensor is expected"
    yield "listed", [t, t], "a list where a tensor or a dictionary"
    yield "unnamed", {"embeddings": t}, "without mm_embeddings"
    yield "nested", {"mm_embeddings": t, "more": {"x": t}}, "a dictionary"
    yield "floats", {"mm_embeddings": t, "more": [0.5]}, "a list with a number"
    yield "numbered", {0: t}, "a number as a key"


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    torch.manual_seed(1)
    files = []
    for name, value in good():
        protocol = 2
        if isinstance(value, tuple):
            value, protocol = value
        torch.save(value, folder / f"{name}.pt", pickle_protocol=protocol)
        tensors = []
        for key, t in (sorted(value.items()) if isinstance(value, dict) else [("", value)]):
            if t is None:
                continue
            tensors.append(describe(key, t if isinstance(t, torch.Tensor) else torch.tensor(list(t))))
        files.append({"file": f"{name}.pt", "tensors": tensors})
    for name, value, why in refused():
        torch.save(value, folder / f"no-{name}.pt")
        files.append({"file": f"no-{name}.pt", "refused": why})
    torch.save(torch.arange(4.0), folder / "no-legacy.pt", _use_new_zipfile_serialization=False)
    files.append({"file": "no-legacy.pt", "refused": "old format of torch.save"})
    (folder / "torch.json").write_text(json.dumps({"torch": torch.__version__, "files": files}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

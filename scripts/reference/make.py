"""Writes the recorded results that internal/engine/cpu is compared with.

    python3 scripts/reference/make.py internal/engine/cpu/testdata/families [case...]
"""

import base64
import functools
import json
import platform
import random
import sys
from pathlib import Path

import numpy as np
import torch

from cases import cases, tensors
from families import FAMILIES
import vision
from weights import load

PROMPT, GREEDY = 44, 64
# Two logits closer than this could change places by rounding alone. A seed that
# gives such a pair anywhere is passed over.
GAP = 0.005


def encode(logits):
    return base64.b64encode(logits.numpy().astype("<f4").tobytes()).decode()


def record(config, names, seed):
    forward = FAMILIES[config["architectures"][0]]
    w = load(seed, names, config["torch_dtype"])
    vocab = w[next(iter(w))].shape[0]
    rng = random.Random(seed)
    prompt = [rng.randrange(vocab) for _ in range(PROMPT)]
    views = vision.record(config, w, seed, config.get("views", []))
    images = list(zip(config.get("images", []), vision.images(config, w, [rows for _, _, _, rows in views])))
    longest = max((start + len(rows) + 4 for start, rows in images), default=0)
    prompt += prompt[: max(longest - PROMPT, 0)]
    for start, rows in images:
        token = config.get("image_token_id") or config["image_token_index"]
        prompt[start : start + len(rows)] = [token] * len(rows)
    if images:
        forward = functools.partial(forward, images=images)
    ids, greedy, logprobs = list(prompt), [], []
    for _ in range(GREEDY):
        logits = forward(config, w, torch.tensor(ids))
        best = torch.topk(logits[-1], 2).values
        if best[0] - best[1] < GAP:
            return None
        ids.append(int(logits[-1].argmax()))
        greedy.append(ids[-1])
        logprobs.append(round(float(torch.log_softmax(logits[-1].double(), -1)[ids[-1]]), 6))
    if len(set(greedy)) < 12:  # a loop of few tokens proves less
        return None
    served = config.get("served_context", 0)
    whole, config = config, {k: v for k, v in config.items() if k not in ("served_context", "views", "images", "sizes", "new_names")}
    golden = {
        "seed": seed, "config": config, "served_context": served, "tensors": names, "prompt": prompt,
        "logits": encode(forward_all(forward, config, served, w, prompt)), "greedy": greedy, "logprobs": logprobs,
    }
    if views:
        golden["views"] = [
            {"w": width, "h": height, "mask": mask, "rows": encode(rows.contiguous())}
            for width, height, mask, rows in views]
    if images:
        golden["images"] = [start for start, _ in images]
    if "sizes" in whole:
        golden["sizes"] = whole["sizes"]
    return golden


def forward_all(forward, config, served, w, prompt):
    if served:
        config = {**config, "served_context": served}
    return forward(config, w, torch.tensor(prompt))


def main(folder, *chosen):
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    made_with = f"torch {torch.__version__}, numpy {np.__version__}, python {platform.python_version()}"
    for name, config in cases():
        if chosen and name not in chosen:
            continue
        names = tensors(config)
        for seed in range(1, 500):
            golden = record(config, names, seed)
            if golden:
                break
        else:
            raise SystemExit(f"{name}: no seed gives {GREEDY} clear choices")
        golden = {"made_with": made_with, **golden}
        path = Path(folder) / f"{name}.json"
        lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in golden.items())
        path.write_text("{\n" + lines + "\n}\n")
        print(f"{name}: seed {seed}, {len(set(golden['greedy']))} different tokens, {path.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

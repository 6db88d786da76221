#!/usr/bin/env python3
"""Measures with PyTorch what dynlab gpu-check measures with its own kernels.

    gpu-check-torch.py FOLDER SHAPES floor     the product of 8192 in all dimensions
    gpu-check-torch.py FOLDER SHAPES shapes    all shapes of the file SHAPES

Results are lines of FOLDER/results.jsonl, as those of gpu-check, in the phase torch; what
has a result there is not measured again. gpu-check.sh calls it; without PyTorch, or
without CUDA in it, it says so and does nothing.
"""

import datetime
import json
import os
import statistics
import sys
import time

ITERATIONS = 20  # of a sample, each with other memory
SAMPLES = 5
ROTATE = 512 << 20  # bytes of weights, far more than caches hold
DONE = ("pass", "skip")


def results_of(path):
    have = {}
    try:
        with open(path) as f:
            for line in f:
                try:
                    r = json.loads(line)
                    have[r["case"]] = r["result"]
                except (ValueError, KeyError, TypeError):
                    pass  # it was cut off
    except FileNotFoundError:
        pass
    return have


class Bench:
    def __init__(self, torch, folder):
        self.torch = torch
        self.path = os.path.join(folder, "results.jsonl")
        self.have = results_of(self.path)
        p = torch.cuda.get_device_properties(0)
        self.about = {
            "phase": "torch",
            "device": p.name,
            "compute_capability": "%d.%d" % (p.major, p.minor),
            "cuda": str(torch.version.cuda),
            "build": "PyTorch " + torch.__version__,
        }

    def random(self, *shape):
        return self.torch.randn(*shape, device="cuda", dtype=self.torch.bfloat16)

    def copies(self, *shape):
        """As many random tensors as iterations find in other memory."""
        values = 2
        for n in shape:
            values *= n
        return [self.random(*shape) for _ in range(max(1, min(ITERATIONS, ROTATE // values)))]

    def measure(self, op):
        """Seconds of op(i): samples of a graph of its iterations."""
        torch = self.torch
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for i in range(3):
                op(i)
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(ITERATIONS):
                op(i)

        def once(replays):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(replays):
                graph.replay()
            end.record()
            end.synchronize()
            return begin.elapsed_time(end) / 1e3

        replays = max(1, min(20, int(0.01 / max(once(1), 1e-6))))
        busy = time.monotonic()
        while time.monotonic() - busy < 0.1:
            once(replays)
        return [once(replays) / (replays * ITERATIONS) for _ in range(SAMPLES)]

    def case(self, name, make, amount=None, unit="us"):
        """Measures what make returns, unless there is a result; a failure is one, too."""
        name = "torch/" + name
        if self.have.get(name) in DONE:
            return
        begin = time.monotonic()
        r = {"case": name, "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}
        r.update(self.about)
        try:
            samples = self.measure(make())
            took = statistics.median(samples)
            r["result"] = "pass"
            r["samples_us"] = [s * 1e6 for s in samples]
            r["figure"], r["unit"] = (took * 1e6 if amount is None else amount / took), unit
        except self.torch.cuda.OutOfMemoryError as e:
            r["result"], r["why"] = "skip", "no room: " + str(e).split("\n")[0]
        except Exception as e:  # the others go on
            r["result"], r["why"] = "fail", "%s: %s" % (type(e).__name__, str(e).split("\n")[0])
        r["seconds"] = time.monotonic() - begin
        self.torch.cuda.empty_cache()
        with open(self.path, "a") as f:
            f.write(json.dumps(r) + "\n")
        print("  %-5s %s%s" % (r["result"], name, ": %.4g %s" % (r["figure"], unit) if "figure" in r else ": " + r["why"]), file=sys.stderr)

    def matmul(self, tokens, rows, inputs):
        x, w = self.random(tokens, inputs), self.copies(rows, inputs)
        return lambda i: self.torch.nn.functional.linear(x, w[i % len(w)])

    def attention(self, sequences, queries, context, heads, kv_heads, dim, causal):
        torch = self.torch
        q = self.random(sequences, heads, queries, dim)
        kv = self.copies(2, sequences, kv_heads, context, dim)

        def op(i):
            k, v = kv[i % len(kv)][0], kv[i % len(kv)][1]
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)

        return op

    def shape(self, s):
        name = s["case"].split("/", 1)[1]  # without the phase
        if s["op"] == "matmul":
            self.case(name, lambda: self.matmul(s["tokens"], s["rows"], s["in"]))
        elif s["op"] == "decode-attention":
            self.case(name, lambda: self.attention(s["sequences"], 1, s["context"], s["heads"], s["kv_heads"], s["head_dim"], False))
        elif s["op"] == "prefill-attention":
            self.case(name, lambda: self.attention(1, s["context"], s["context"], s["heads"], s["kv_heads"], s["head_dim"], True))
        else:
            sys.exit("gpu-check-torch.py: no operation %r" % s["op"])


def main(folder, shapes, what):
    try:
        import torch
    except ImportError as e:
        print("PyTorch is not here (%s): nothing to compare with" % e, file=sys.stderr)
        return
    if not torch.cuda.is_available():
        print("PyTorch %s has no CUDA device here: nothing to compare with" % torch.__version__, file=sys.stderr)
        return
    bench = Bench(torch, folder)
    if what == "floor":
        n = 8192
        bench.case("matmul-8192", lambda: bench.matmul(n, n, n), amount=2 * n**3 / 1e12, unit="TFLOP/s")
        return
    with open(shapes) as f:
        for line in f:
            bench.shape(json.loads(line))


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[3] not in ("floor", "shapes"):
        sys.exit(__doc__)
    main(*sys.argv[1:])

"""Reads the pictures of `dynlab drawings`."""

import collections
import json
import os
import queue
import subprocess
import threading

import torch

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../internal/model/builtin-vision")
Picture = collections.namedtuple("Picture", "kind facts objects asks pixels")


class Drawings:
    """Pictures of one process. facts are (name, size)."""

    def __init__(self, program, seed, kinds, held=False, model=MODEL, count=0):
        args = [program, "drawings", "--seed", str(seed), "--kinds", ",".join("%s=%d" % k for k in kinds.items()), "--count", str(count), "--model", model]
        args += ["--held"] if held else []
        self.process = subprocess.Popen(args, stdout=subprocess.PIPE)
        head = json.loads(self.process.stdout.readline())
        self.facts = [(f["Name"], f["Size"]) for f in head["facts"]]
        self.side = head["side"]

    def draw(self):
        line = self.process.stdout.readline()
        if not line:
            raise EOFError
        p = json.loads(line)
        raw = self.process.stdout.read(3 * self.side**2)
        pixels = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(self.side, self.side, 3).permute(2, 0, 1)
        return Picture(p["kind"], p["facts"], p["objects"], p["asks"], pixels)

    def batch(self, n):
        return [self.draw() for _ in range(n)]

    def close(self):
        self.process.stdout.close()
        self.process.terminate()
        self.process.wait()


def values(pictures):
    """Pixels from -1 to 1, as the preparation makes them."""
    return torch.stack([p.pixels for p in pictures]).float() / 127.5 - 1


def ahead(make, depth=4):
    """Calls make in a thread, so that there is always something ready."""
    ready = queue.Queue(depth)

    def work():
        while True:
            ready.put(make())

    threading.Thread(target=work, daemon=True).start()
    return ready.get

#!/usr/bin/python3
"""Trains the vision tower alone to tell, patch by patch and as a whole, what pictures show.

  train_tower.py DIR [--minutes 25] [--resume]     needs bin/dynlab, see --dynlab

writes DIR/tower.pt. Its heads are thrown away later: train_vision.py connects the tower
to the language model.
"""

import argparse
import os
import random
import time

import torch
import torch.nn.functional as F

import drawings
import halves
import muon
import tower as towers

CLASSES, COLORS, PLACES = 16, 6, 46  # a place is that of a digit, with the digit, or of a bar
NONE = -100
EASY = dict(digits=5, code=3, shapes=3, chart=1, panel=1)
MIX = dict(code=6, shapes=5, chart=1, panel=1)


def labels(picture):
    """Class, color and place of each patch: those of the object over its middle."""
    n = towers.SIDE
    out = [[CLASSES] * n * n, [NONE] * n * n, [NONE] * n * n]
    for kind, color, place, x0, y0, x1, y1 in picture.objects:
        kind, color, place = int(kind), int(color), int(place)
        for y in range(n):
            for x in range(n):
                if x0 <= (x + 0.5) / n < x1 and y0 <= (y + 0.5) / n < y1:
                    at = y * n + x
                    out[0][at] = kind
                    out[1][at] = color if color >= 0 else NONE
                    out[2][at] = NONE if place < 0 else place * 10 + kind if kind < 10 else 40 + place
    return out


class Heads(torch.nn.Module):
    def __init__(self, facts):
        super().__init__()
        h = towers.CONFIG["hidden"]
        self.patch = torch.nn.Linear(h, CLASSES + 1 + COLORS + PLACES)
        self.whole = torch.nn.Linear(h, sum(size for _, size in facts))
        self.sizes = [size for _, size in facts]

    def forward(self, x):
        return self.patch(x).split([CLASSES + 1, COLORS, PLACES], -1), self.whole(x.mean(1)).split(self.sizes, -1)


def losses(heads, x, labels, facts):
    patch, whole = heads(x)
    weight = torch.ones(CLASSES + 1)
    weight[CLASSES] = 0.1
    kind = F.cross_entropy(patch[0].flatten(0, 1), labels[:, 0].flatten(), weight)
    some = lambda scores, want: F.cross_entropy(scores, want, ignore_index=NONE, reduction="sum") / max(1, int((want != NONE).sum()))
    rest = [some(p.flatten(0, 1), labels[:, i + 1].flatten()) for i, p in enumerate(patch[1:])]
    facts = torch.where(facts < 0, NONE, facts)
    whole = sum(F.cross_entropy(scores, facts[:, i], ignore_index=NONE, reduction="sum") for i, scores in enumerate(whole)) / max(1, int((facts != NONE).sum()))
    return kind, *rest, whole


def right(heads, tower, pictures):
    """How often each fact is told, and all four digits."""
    with torch.no_grad():
        whole = torch.cat([torch.stack([s.argmax(-1) for s in heads(tower(drawings.values(pictures[i : i + 64])))[1]], -1) for i in range(0, len(pictures), 64)])
    facts = torch.tensor([p.facts for p in pictures])
    hit, known = whole == facts, facts >= 0
    return hit, known


def report(names, hit, known):
    share = lambda i: float(hit[:, i][known[:, i]].float().mean())
    digits = [i for i, n in enumerate(names) if n.startswith("digit")]
    codes = known[:, digits[0]]
    print("   codes %.1f %%  " % (100 * float(hit[codes][:, digits].all(-1).float().mean())) +
          "  ".join("%s %.0f" % (n, 100 * share(i)) for i, n in enumerate(names)), flush=True)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("dir")
    args.add_argument("--minutes", type=float, default=25)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--batch", type=int, default=28, help="pictures of each process")
    args.add_argument("--processes", type=int, default=2)
    args.add_argument("--rate", type=float, default=0.02)
    args.add_argument("--easy", type=float, default=0.35, help="part of the time with rows of digits among the pictures")
    args.add_argument("--resume", action="store_true")
    args.add_argument("--dynlab", default="dynlab")
    args = args.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    os.makedirs(args.dir, exist_ok=True)
    path = os.path.join(args.dir, "tower.pt")
    held = drawings.Drawings(args.dynlab, 999, MIX)
    test, names = held.batch(640), [n for n, _ in held.facts]
    held.close()
    tower, heads = towers.Tower(), Heads(held.facts)
    if args.resume:
        saved = torch.load(path)
        tower.load_state_dict(saved["tower"])
        heads.load_state_dict(saved["heads"])
    print("%.2f M parameters" % (sum(p.numel() for p in tower.parameters()) / 1e6), flush=True)
    matrices = [p for n, p in tower.w.items() if n.startswith("encoder.") and p.dim() == 2]
    inside = {id(p) for p in matrices}
    opt = muon.Muon(matrices, [p for p in list(tower.parameters()) + list(heads.parameters()) if id(p) not in inside], args.rate)
    begin = saved = time.time()
    done = lambda: (time.time() - begin) / (60 * args.minutes)
    ready = {}

    def compute(rank):
        if not ready:  # each process reads its own pictures
            sources = [drawings.Drawings(args.dynlab, 1000 * args.seed + 10 * rank + i, kinds) for i, kinds in enumerate((EASY, MIX))]

            def make():
                pictures = sources[0 if done() < args.easy else 1].batch(args.batch)
                return drawings.values(pictures), torch.tensor([labels(p) for p in pictures]), torch.tensor([p.facts for p in pictures])

            ready["next"] = drawings.ahead(make)
        pixels, want, facts = ready["next"]()
        parts = losses(heads, tower(pixels), want, facts)
        return parts[0] + parts[1] + parts[2] + 2 * parts[3], torch.stack(parts).detach()

    work, sums = halves.Halves(opt.matrices + opt.others, compute, args.processes), 0
    while done() < 1:
        sums = sums + work.step()
        opt.step(min(1, (opt.steps + 1) / 50) * min(1, (1 - done()) / 0.5) + 0.005)
        if opt.steps % 50 == 0:
            print("%5.1f %%  step %d  class %.3f  color %.3f  place %.3f  facts %.3f" % (100 * done(), opt.steps, *(sums / 50).tolist()), flush=True)
            sums = 0
        if opt.steps % 200 == 0:
            report(names, *right(heads, tower, test))
        if time.time() - saved > 120:
            saved = time.time()
            torch.save(dict(tower=tower.state_dict(), heads=heads.state_dict(), facts=held.facts), path)
    torch.save(dict(tower=tower.state_dict(), heads=heads.state_dict(), facts=held.facts), path)
    report(names, *right(heads, tower, test))
    print("%d pictures" % (opt.steps * args.batch * args.processes))


if __name__ == "__main__":
    main()

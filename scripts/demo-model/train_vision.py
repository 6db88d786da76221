#!/usr/bin/python3
"""Connects the tower of train_tower.py to the language model and trains both to answer.

  train_vision.py DIR [--minutes 30] [--resume]

reads DIR/tower.pt and the weights of dynctl-tiny, and writes DIR/vision.pt.
"""

import argparse
import collections
import os
import random
import time

import torch
import torch.nn.functional as F

import dialogs
import drawings
import golden
import halves
import muon
import sights
import tower as towers
import train_tower

MIX = dict(code=6, shapes=6, chart=2, panel=2)
ROOM = 170  # tokens of a row
WORDS = "red green blue yellow purple orange brown gray white circle square triangle star top bottom left right no"


def texts(r, tok, room):
    """A row of short conversations without pictures, or of facts to recall."""
    if r.random() < 0.4:
        ids, said = tok.chat(dialogs.recall(r, room - 60, lambda text: len(tok.encode(text)), 2))
    else:
        ids, said = [], []
        while len(ids) < room // 2:
            more, mask = tok.chat(dialogs.short(r))
            ids, said = ids + more, said + mask
    return ids[:room], said[:room], [-1] * len(ids[:room])


def asked(r, tok, picture):
    """A row of questions about a picture, as many as there is room for."""
    asks = r.sample(picture.asks, len(picture.asks))
    if picture.kind == "code" and r.random() < 0.7:  # reading is what takes longest to learn
        asks.sort(key=lambda a: a[0] != "code")
    last, bare = r.random() < 0.15, r.random() < 0.2
    for n in range(len(asks), 0, -1):
        row = sights.conversation(tok, asks[:n], last, bare)
        if len(row[0]) <= ROOM:
            return row
    return tuple(part[:ROOM] for part in row)


def report(tok, net, rows_of, pictures):
    count, table = sights.right(tok, net, rows_of, pictures), collections.Counter()
    for topic, (n, all_) in count.items():
        table[sights.general(topic), 0] += n
        table[sights.general(topic), 1] += all_
    print("   " + "  ".join("%s %.1f" % (t, 100 * table[t, 0] / table[t, 1]) for t in sorted({t for t, _ in table})), flush=True)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("dir")
    args.add_argument("--minutes", type=float, default=30)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--batch", type=int, default=20, help="pictures of each process, which its tower learns to tell")
    args.add_argument("--asked", type=int, default=12, help="how many of these are asked about")
    args.add_argument("--processes", type=int, default=2)
    args.add_argument("--texts", type=int, default=2, help="rows without pictures of each process")
    args.add_argument("--test", type=int, default=240)
    args.add_argument("--rate", type=float, default=1)
    args.add_argument("--resume", action="store_true")
    args.add_argument("--dynlab", default="dynlab")
    args = args.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    tok, net = sights.load(golden.MODEL)
    tower = towers.Tower()
    c = towers.CONFIG
    width = c["hidden"] * c["factor"] ** 2
    project = torch.nn.Parameter(torch.randn(net.c["hidden"], width) * width**-0.5 * float(net.w["embed"].std()))
    path = os.path.join(args.dir, "vision.pt")
    held = drawings.Drawings(args.dynlab, 999, MIX, held=True)
    test, heads = held.batch(args.test), train_tower.Heads(held.facts)
    held.close()
    if args.resume:
        saved = torch.load(path)
        tower.load_state_dict(saved["tower"])
        project.data.copy_(saved["project"])
        for n, p in saved["net"].items():
            net.w[n].data.copy_(p)
    else:
        saved = torch.load(os.path.join(args.dir, "tower.pt"))
        tower.load_state_dict(saved["tower"])
    heads.load_state_dict(saved["heads"])
    rows_of = lambda pictures: F.linear(towers.shuffle(tower(drawings.values(pictures))), project).flatten(0, 1)
    weight = torch.ones(len(tok.tokens))
    for word in WORDS.split() + ["circles", "squares", "triangles", "stars"]:
        weight[tok.encode(" " + word)] = 3
    weight[torch.tensor([t.isascii() and t.isdigit() for t in tok.tokens])] = 3  # what tells a right answer from a wrong one

    wide = [p for n, p in net.w.items() if p.dim() == 2 and n != "embed"]
    rest = [p for n, p in net.w.items() if p.dim() != 2 or n == "embed"]
    inner = [p for n, p in tower.w.items() if n.startswith("encoder.") and p.dim() == 2]
    inside = {id(p) for p in inner}
    outer = [p for p in list(tower.parameters()) + list(heads.parameters()) if id(p) not in inside]
    optimizers = [
        muon.Muon([project], [], 0.02 * args.rate),
        muon.Muon(wide, rest, 0.009 * args.rate, 0.0009 * args.rate),
        muon.Muon(inner, outer, 0.005 * args.rate, 0.0005 * args.rate),
    ]
    begin = saved = time.time()
    done = lambda: (time.time() - begin) / (60 * args.minutes)
    state = {}

    def compute(rank):
        if not state:
            source = drawings.Drawings(args.dynlab, 77000 + 1000 * args.seed + rank, MIX)
            r = random.Random(1000 * args.seed + rank)

            def make():
                pictures = source.batch(args.batch)
                rows = [asked(r, tok, p) for p in pictures[: args.asked]] + [texts(r, tok, ROOM) for _ in range(args.texts)]
                told = torch.tensor([train_tower.labels(p) for p in pictures]), torch.tensor([p.facts for p in pictures])
                return drawings.values(pictures), told, *sights.padded(tok, rows)

            state["next"] = drawings.ahead(make)
        pixels, told, ids, said, of = state["next"]()
        seen = tower(pixels)
        parts = train_tower.losses(heads, seen, *told)
        rows = F.linear(towers.shuffle(seen[: args.asked]), project).flatten(0, 1)
        where, follow = said[:, 1:], ids[:, 1:]
        y = follow[where]
        logits = net(ids[:, :-1], where=where, rows=((ids == tok.special[sights.IMAGE])[:, :-1], rows))
        losses, weights = F.cross_entropy(logits, y, reduction="none"), weight[y]
        about = (of[:, 1:] >= 0)[where]
        mean = lambda some: float((losses * weights)[some].sum() / weights[some].sum())
        loss = (losses * weights).sum() / weights.sum()
        return loss + 0.5 * (parts[0] + parts[1] + parts[2] + 2 * parts[3]), torch.tensor([mean(about), mean(~about) if args.texts else 0, float(parts[2]), float(parts[3])])

    work, sums, steps = halves.Halves([project, *wide, *rest, *inner, *outer], compute, args.processes, 4), 0, 0
    while done() < 1:
        sums, steps = sums + work.step(), steps + 1
        scale = min(1, steps / 20) * min(1, (1 - done()) / 0.6) + 0.005
        for o in optimizers:
            o.step(scale)
        if steps % 25 == 0:
            print("%5.1f %%  step %d  pictures %.3f  texts %.3f  place %.3f  facts %.3f" % (100 * done(), steps, *(sums / 25).tolist()), flush=True)
            sums = 0
        if time.time() - saved > 200:
            saved = time.time()
            save(path, tower, heads, project, net)
            report(tok, net, rows_of, test)
            train_tower.report([n for n, _ in held.facts], *train_tower.right(heads, tower, test))
    save(path, tower, heads, project, net)
    report(tok, net, rows_of, test)
    print("%d pictures" % (steps * args.batch * args.processes))


def save(path, tower, heads, project, net):
    torch.save(dict(tower=tower.state_dict(), heads=heads.state_dict(), project=project.data, net={n: p.data for n, p in net.w.items()}), path + ".tmp")
    os.replace(path + ".tmp", path)


if __name__ == "__main__":
    main()

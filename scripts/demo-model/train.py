#!/usr/bin/python3
"""Trains the built-in model. See README.md; python3-torch, python3-regex and libopenblas0 are all it needs.

  train.py DIR [--minutes 70] [--threads 2] [--seed 1] [--resume 0.5]

writes DIR/merges.json and DIR/net.pt, every few minutes and at the end. With
--resume it goes on with the DIR/net.pt of an earlier run, from that fraction
of the plan on: row lengths and learning rate are those of that point.
"""

import argparse
import collections
import json
import math
import os
import random
import time

import torch
import torch.nn.functional as F

import bpe
import dialogs
import net as nets

TOKENS = 8192  # of one step


def corpus(seed):
    """Texts that the vocabulary is made from."""
    r = random.Random(seed)
    facts = dialogs.Facts(r)
    texts = [text for _ in range(20000) for _, text in dialogs.short(r)]
    texts += [dialogs.filler(r) for _ in range(1000)] + ["user\n", "system\n", "assistant\n"] * 100
    return texts + [text for _ in range(700) for text in facts.draw()]


def row(r, tok, length, recall):
    """Ids and learned positions of one row: a long conversation, or short ones one after another."""
    ids, said = [], []
    count = lambda text: len(tok.encode(text))
    if recall:
        questions = r.randrange(4, 9) if length <= 512 else r.randrange(8, 17)
        ids, said = tok.chat(dialogs.recall(r, length - r.randrange(0, max(1, length // 8)), count, questions))
    while len(ids) < length + 1:
        more, mask = tok.chat(dialogs.short(r))
        ids, said = ids + more, said + mask
    return ids[: length + 1], said[1 : length + 1]


def stretched(r, tok, ids, length):
    """Positions of a row with gaps between sentences, so that a short row teaches what lies far apart
    (after Ruoss et al., Randomized Positional Encodings, 2023)."""
    room = nets.CONFIG["context"] - length
    if room == 0 or r.random() < 0.4:
        return list(range(length))
    seams = [i + 1 for i, t in enumerate(ids[: length - 1]) if t in tok.seams]
    gaps = collections.Counter()
    left = r.randrange(room + 1)
    for at in r.sample(seams, min(len(seams), r.randrange(1, 9))):
        gaps[at] = r.randrange(left + 1)
        left -= gaps[at]
    out, shift = [], 0
    for i in range(length):
        shift += gaps[i]
        out.append(i + shift)
    return out


def batch(r, tok, length, share):
    """Ids, positions, ids that follow, which of them are learned, and how much each of these counts."""
    rows = [row(r, tok, length, r.random() < share) for _ in range(TOKENS // length)]
    ids = torch.tensor([i for i, _ in rows])
    said = torch.tensor([s for _, s in rows])
    positions = torch.tensor([stretched(r, tok, i, length) for i, _ in rows])
    x, y = ids[:, :-1], ids[:, 1:]
    weight = tok.weight[y[said]]
    return x, positions, y[said], said, weight / weight.sum()


class Optimizer:
    """Muon (orthogonalized momentum) for the matrices of the layers, Adam for embedding and norms, on float32 masters."""

    def __init__(self, net, work):
        self.net, self.work = net, work
        self.state = {n: (torch.zeros_like(p), torch.zeros_like(p)) for n, p in net.w.items()}
        self.steps = 0

    def step(self, scale):
        self.steps += 1
        for n, p in self.net.w.items():
            g = self.work.w[n].grad.float()
            m, v = self.state[n]
            if p.dim() == 2 and n != "embed":
                m.mul_(0.95).add_(g)
                u = orthogonal(g + 0.95 * m)
                p.data.mul_(1 - 0.01 * 0.02 * scale)
                p.data.add_(u, alpha=-0.02 * scale * max(1, p.shape[0] / p.shape[1]) ** 0.5)
            else:
                m.mul_(0.9).add_(g, alpha=0.1)
                v.mul_(0.98).addcmul_(g, g, value=0.02)
                mh, vh = m / (1 - 0.9**self.steps), v / (1 - 0.98**self.steps)
                p.data.add_(mh / (vh.sqrt() + 1e-8), alpha=-0.003 * scale)
            self.work.w[n].grad = None
            self.work.w[n].data.copy_(p.data)


def orthogonal(g):
    """Newton-Schulz iteration towards the nearest matrix with orthogonal rows (Jordan et al., Muon, 2024)."""
    x = g.bfloat16()
    x = x / (x.float().norm().bfloat16() + 1e-7)
    flip = x.shape[0] > x.shape[1]
    if flip:
        x = x.t()
    for _ in range(5):
        a = x @ x.t()
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return (x.t() if flip else x).float()


def plan(done):
    """Row length and share of recall at a fraction of the training time: short rows first, they teach the same much faster."""
    if done < 0.35:
        return 256, 0.45
    if done < 0.60:
        return 512, 0.5
    if done < 0.75:
        return (1024, 0.6) if random.random() < 0.6 else (256, 0.2)
    draw = random.random()
    return (4096, 1.0) if draw < 0.12 else (2048, 0.8) if draw < 0.6 else (512, 0.4) if draw < 0.8 else (256, 0.1)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("dir")
    args.add_argument("--minutes", type=float, default=70)
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--resume", type=float)
    args = args.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    r = random.Random(args.seed)
    os.makedirs(args.dir, exist_ok=True)
    path = os.path.join(args.dir, "merges.json")
    if not os.path.exists(path):
        with open(path, "w") as f:
            json.dump(bpe.train(corpus(args.seed), nets.CONFIG["vocab"]), f)
    tok = bpe.Tokenizer([tuple(p) for p in json.load(open(path))])
    tok.seams = {i for i, t in enumerate(tok.tokens) if t in (".", "?", ":")} | set(tok.special.values())
    tok.weight = torch.tensor([3.0 if t.isascii() and t.isdigit() else 1.0 for t in tok.tokens])  # a wrong digit is a wrong answer
    net = nets.Net(nets.CONFIG)
    if args.resume is not None:
        for n, value in torch.load(os.path.join(args.dir, "net.pt")).items():
            net.w[n].data.copy_(value)
    work = nets.Net(nets.CONFIG).bfloat16()
    for n, p in net.w.items():
        work.w[n].data.copy_(p.data)
    opt = Optimizer(net, work)
    print("%.2f M parameters" % (sum(p.numel() for p in net.parameters()) / 1e6), flush=True)
    begin = saved = time.process_time()
    seen, losses = 0, []
    while True:
        done = (time.process_time() - begin) / (args.minutes * 60 * args.threads)  # processor time: others may use the machine, too
        if done >= 1:
            break
        if args.resume is not None:
            done = args.resume + (1 - args.resume) * done
        length, share = plan(done)
        x, positions, y, said, weight = batch(r, tok, length, share)
        logits = work(x, where=said, positions=positions)
        loss = (F.cross_entropy(logits.float(), y, reduction="none") * weight).sum()
        loss.backward()
        opt.step(min(1, (opt.steps + 1) / 100) * min(1, (1 - done) / 0.35) + 0.005)
        seen += x.numel()
        losses.append(loss.item())
        if opt.steps % 50 == 0:
            print("%5.1f %%  step %d  rows of %d  %.2f M tokens  loss %.3f" % (100 * done, opt.steps, length, seen / 1e6, sum(losses) / len(losses)), flush=True)
            losses = []
        if time.process_time() - saved > 300:
            saved = time.process_time()
            save(args.dir, net)
    save(args.dir, net)
    print("%.2f M tokens, %d steps" % (seen / 1e6, opt.steps))


def save(path, net):
    tmp = os.path.join(path, "net.tmp")
    torch.save({n: p.data for n, p in net.w.items()}, tmp)
    os.replace(tmp, os.path.join(path, "net.pt"))


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""Measures a trained model on what it has not seen, greedily, with the bf16 weights that are exported.

  evaluate.py DIR [--threads 2] [--count 100] [--report FILE]
"""

import argparse
import json
import os
import random

import torch

import bpe
import dialogs
import net as nets

DISTANCES = [64, 128, 256, 512, 1024, 1536, 2048, 3072, 3900]


def load(path):
    tok = bpe.Tokenizer([tuple(p) for p in json.load(open(os.path.join(path, "merges.json")))])
    net = nets.Net(nets.CONFIG)
    for n, value in torch.load(os.path.join(path, "net.pt")).items():
        net.w[n].data.copy_(value.bfloat16().float())
    return tok, net


class Judge:
    def __init__(self, path):
        self.tok, self.net = load(path)
        self.end = self.tok.special["<|im_end|>"]

    def answer(self, conversation, limit=120):
        ids, _ = self.tok.chat(conversation, open_turn=True)
        return self.tok.decode(nets.generate(self.net, ids, self.end, limit))

    def score(self, pairs):
        """Share of (question, answer) answered word for word, and some that were not."""
        wrong = []
        for q, a in pairs:
            got = self.answer([("user", q)])
            if got != a:
                wrong.append((q, a, got))
        return 1 - len(wrong) / len(pairs), wrong

    def recall(self, r, distance):
        """Whether a fact is known that lies so many tokens before the question."""
        facts = dialogs.Facts(r)
        fact, question, answer = facts.draw()
        count = lambda text: len(self.tok.encode(text))
        dense = r.random() < 0.5
        after, before, used = [], [], 0
        while used < distance:
            line = facts.draw()[0] if r.random() < (0.8 if dense else 0.2) else dialogs.filler(r)
            after.append(line)
            used += count(" " + line)
        room = min(300, nets.CONFIG["context"] - used - 120)
        while room > 0:
            line = dialogs.filler(r)
            before.append(line)
            room -= count(" " + line)
        text = " ".join(before + [fact] + after + [question])
        return self.answer([("user", text)], 40) == answer


def main():
    args = argparse.ArgumentParser()
    args.add_argument("dir")
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--count", type=int, default=100)
    args.add_argument("--report")
    args = args.parse_args()
    torch.set_num_threads(args.threads)
    judge, out = Judge(args.dir), {}
    r = random.Random(20261123)
    share, wrong = judge.score(r.sample(dialogs.HELD, min(len(dialogs.HELD), 4 * args.count)))
    out["unseen phrasings"] = share
    print("unseen phrasings %.3f" % share, wrong[:3], flush=True)
    for name, draw in (("arithmetic", dialogs.sums), ("lists", dialogs.lists)):
        share, wrong = judge.score([draw(r) for _ in range(2 * args.count)])
        out[name] = share
        print("%s %.3f" % (name, share), wrong[:5], flush=True)
    for distance in DISTANCES:
        out["recall %d" % distance] = sum(judge.recall(r, distance) for _ in range(args.count)) / args.count
        print("recall at %d tokens %.2f" % (distance, out["recall %d" % distance]), flush=True)
    for q in ("Hello!", "What does xPyD mean?", "How do I add a prefill worker?", "What is 17 + 25?", "Tell me a story about a fox and a lamp.", "What is the capital of Peru?", "Sort: 42 7 19 3"):
        print("> %s\n%s" % (q, judge.answer([("user", q)])), flush=True)
    if args.report:
        with open(args.report, "w") as f:
            json.dump(out, f, indent=1)


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""Records what PyTorch answers about pictures with the weights that are built in, for a test that compares the CPU engine with it,
and measures how often they are right.

  golden_vision.py --dynlab bin/dynlab [--model DIR] [--measure 400]
"""

import argparse
import collections
import json
import os
import struct

import torch
import torch.nn.functional as F

import drawings
import export
import export_vision
import golden
import report
import sights
import tower as towers

KINDS = ("code", "shapes", "chart", "panel")
TOPICS = dict(code="the four digits", door="the door's color", what="what it shows", shapes="how many shapes", count="how many of a kind", color="the color of one",
              place="the corner of one", leftmost="the leftmost shape", rightmost="the rightmost shape", bars="how many bars", highest="the highest bar", **{"highest color": "its color"},
              workers="how many workers", busiest="the busiest worker")
BEGIN, END = "<!-- pictures -->\n", "<!-- end of pictures -->\n"
FILE = os.path.join(golden.HERE, "../../internal/engine/cpu/cputest/testdata/builtin-vision.json")


def load(path):
    """The tokenizer, the net, and what makes rows of text embeddings of pictures, from an exported directory."""
    tok, net = sights.load(golden.MODEL)
    raw = open(os.path.join(path, "model.safetensors"), "rb").read()
    size = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]

    def value(name):
        begin, end = header[name]["data_offsets"]
        return torch.frombuffer(bytearray(data[begin:end]), dtype=torch.bfloat16).reshape(header[name]["shape"]).float()

    for n, p in net.w.items():
        p.data.copy_(value("model.text_model." + export.name(n)[len("model.") :]))
    tower = towers.Tower()
    for n, p in tower.w.items():
        p.data.copy_(value("model.vision_model." + n))
    project = value("model.connector.modality_projection.proj.weight")
    return tok, net, lambda pictures: F.linear(towers.shuffle(tower(drawings.values(pictures))), project).flatten(0, 1)


def answer(tok, net, rows, ids):
    """Greedy tokens after ids, with the one that ends the turn, as long as each is beyond doubt."""
    end, out = tok.special["<|im_end|>"], []
    with torch.no_grad():
        kv, x = {}, torch.tensor([ids])
        logits = net(x, kv, rows=(x == tok.special[sights.IMAGE], rows))[0, -1]
        while len(out) < golden.LIMIT:
            best = logits.topk(2)
            if float(best.values[0] - best.values[1]) < golden.MARGIN:
                break
            out.append(int(best.indices[0]))
            if out[-1] == end:
                break
            logits = net(torch.tensor([[out[-1]]]), kv)[0, -1]
    return out


def measure(args, tok, net, rows_of):
    """Kind, topic, share of right answers, and how many questions, of pictures that are in no training, asked in ways that are held out."""
    out = []
    for kind in KINDS:
        source = drawings.Drawings(args.dynlab, 4242, {kind: 1}, held=True, model=args.model)
        table = collections.Counter()
        for topic, (n, of) in sights.right(tok, net, rows_of, source.batch(args.measure)).items():
            table[sights.general(topic), 0] += n
            table[sights.general(topic), 1] += of
        source.close()
        for topic in sorted({t for t, _ in table}):
            out.append((kind, topic, table[topic, 0] / table[topic, 1], table[topic, 1]))
            print("%-8s %-14s %5.1f %% of %d" % (kind, topic, 100 * out[-1][2], out[-1][3]), flush=True)
    return out


def document(results, pictures):
    """Puts the table into docs/demo-model.md, between its marks."""
    text = open(report.DOCUMENT).read()
    lines = ["| picture | asked for | answered word for word |", "|---|---|---:|"]
    lines += ["| %s | %s | %.0f %% |" % (kind, TOPICS.get(topic, topic), 100 * share) for kind, topic, share, _ in results]
    head, rest = text.split(BEGIN)
    with open(report.DOCUMENT, "w") as f:
        f.write(head + BEGIN + "\n" + "\n".join(lines) + "\n\n" + END + rest.split(END)[1])


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--dynlab", required=True)
    args.add_argument("--model", default=export_vision.MODEL)
    args.add_argument("--measure", type=int, default=0, help="measure with so many pictures of each kind instead, and write the table of docs/demo-model.md")
    args = args.parse_args()
    torch.set_num_threads(1)
    tok, net, rows_of = load(args.model)
    if args.measure:
        document(measure(args, tok, net, rows_of), args.measure)
        return
    records = []
    for kind in KINDS:
        source = drawings.Drawings(args.dynlab, 7, {kind: 1}, held=True, model=args.model)
        for number in range(3):
            picture = source.draw()
            with torch.no_grad():
                rows = rows_of([picture])
            for topic, question, _, _ in picture.asks[:3]:
                start = tok.special["<|im_start|>"]
                ids = [start] + tok.encode("user\n") + sights.placeholder(tok) + tok.encode(question)
                ids += [tok.special["<|im_end|>"]] + tok.encode("\n") + [start] + tok.encode("assistant\n")
                said = answer(tok, net, rows, ids)
                records.append(dict(kind=kind, seed=7, number=number, question=question, prompt=ids, answer=said, text=tok.decode(said)))
                print("%s %d > %s\n%s" % (kind, number, question, records[-1]["text"]))
        source.close()
    with open(FILE, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(r, ensure_ascii=False) for r in records) + "\n]\n")


if __name__ == "__main__":
    main()

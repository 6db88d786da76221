#!/usr/bin/python3
"""Records what PyTorch answers with the weights that are built in, for a test that compares the CPU engine with it.

  golden.py [MODEL] [FILE]     without arguments: internal/model/builtin, and the test's file
"""

import json
import os
import random
import struct
import sys

import torch

import bpe
import dialogs
import export
import net as nets

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, "../../internal/model/builtin")
FILE = os.path.join(HERE, "../../internal/engine/cpu/cputest/testdata/builtin.json")
LIMIT = 48
# A step whose two best tokens are closer than this may go either way with other sums: the recorded answer ends before it.
MARGIN = 0.05


def load(path):
    """The tokenizer and the net of an exported directory."""
    read = lambda name: json.load(open(os.path.join(path, name)))
    merges = [tuple(m.split(" ")) for m in read("tokenizer.json")["model"]["merges"]]
    config = read("config.json")
    net = nets.Net(dict(
        vocab=config["vocab_size"], hidden=config["hidden_size"], layers=config["num_hidden_layers"], heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"], head_dim=config["head_dim"], ffn=config["intermediate_size"], theta=config["rope_theta"],
        eps=config["rms_norm_eps"], context=config["max_position_embeddings"]))
    raw = open(os.path.join(path, "model.safetensors"), "rb").read()
    size = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    for own, parameter in net.w.items():
        t = header[export.name(own)]
        begin, end = t["data_offsets"]
        value = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.bfloat16).reshape(t["shape"])
        parameter.data.copy_(value.float())
    return bpe.Tokenizer(merges), net


def conversations():
    """Questions of every kind, and facts that lie some way before their question."""
    r = random.Random(7)
    out = [[("user", q)] for q in ("Hello!", "What does xPyD mean?", "How do I add a prefill worker?", "What is 17 + 25?", "Tell me a story about a fox and a lamp.",
                                   "Sort: 42 7 19 3", "Grüße aus 東京 ☃", "What is the capital of Peru?")]
    out.append([("system", "Answer briefly."), ("user", "What is KV cache?"), ("assistant", "It holds keys and values."), ("user", "Reverse: fox lamp river")])
    for lines in (3, 12, 40, 90):
        facts = dialogs.Facts(r)
        known = [facts.draw() for _ in range(lines)]
        out.append([("user", " ".join([fact for fact, _, _ in known] + [known[lines // 3][1]]))])
    return out


def answer(tok, net, ids):
    """Greedy tokens after ids, with the one that ends the turn, as long as each is beyond doubt."""
    end, out = tok.special["<|im_end|>"], []
    with torch.no_grad():
        kv = {}
        logits = net(torch.tensor([ids]), kv)[0, -1]
        while len(out) < LIMIT:
            best = logits.topk(2)
            if float(best.values[0] - best.values[1]) < MARGIN:
                break
            out.append(int(best.indices[0]))
            if out[-1] == end:
                break
            logits = net(torch.tensor([[out[-1]]]), kv)[0, -1]
    return out


def main():
    torch.set_num_threads(1)
    path, file = (sys.argv[1:] + [MODEL, FILE][len(sys.argv) - 1 :])[:2]
    tok, net = load(path)
    records = []
    for conversation in conversations():
        ids, _ = tok.chat(conversation, open_turn=True)
        said = answer(tok, net, ids)
        records.append(dict(messages=[dict(role=role, content=text) for role, text in conversation], prompt=ids, answer=said, text=tok.decode(said)))
        print("> %s\n%s" % (conversation[-1][1][-60:], records[-1]["text"]))
    os.makedirs(os.path.dirname(file), exist_ok=True)
    with open(file, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(r, ensure_ascii=False) for r in records) + "\n]\n")


if __name__ == "__main__":
    main()

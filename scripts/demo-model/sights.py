"""Conversations about pictures, as the built-in vision model reads them."""

import torch

import golden
import tower as towers

IMAGE, AROUND, GLOBAL = "<image>", "<fake_token_around_image>", "<global-img>"


def load(path):
    """dynctl-tiny with tokens for images: its tokenizer and its net."""
    import net as nets

    tok, old = golden.load(path)
    for token in (IMAGE, AROUND, GLOBAL):
        if token not in tok.special:
            tok.special[token] = len(tok.tokens)
            tok.tokens.append(token)
    net = nets.Net(dict(old.c, vocab=len(tok.tokens)))
    for n, p in old.w.items():
        net.w[n].data[: len(p)].copy_(p.data)
    net.w["embed"].data[old.c["vocab"] :] *= 0.5
    return tok, net


def placeholder(tok, bare=False):
    """Ids that stand for a picture; bare as for a file of embeddings."""
    around = tok.special[AROUND]
    if bare:
        return [tok.special[IMAGE]] * towers.ROWS
    return [around, tok.special[GLOBAL]] + [tok.special[IMAGE]] * towers.ROWS + [around]


def conversation(tok, asks, image_last=False, bare=False):
    """Ids of questions about a picture, one after another, which of them the assistant says, and for each the number of its question or -1."""
    start, end = tok.special["<|im_start|>"], tok.special["<|im_end|>"]
    ids, said, of = [], [], []
    for i, (_, question, answer, _) in enumerate(asks):
        text = tok.encode(question)
        picture = placeholder(tok, bare) if i == 0 else []
        head = [start] + tok.encode("user\n") + (text + picture if image_last else picture + text) + [end] + tok.encode("\n") + [start] + tok.encode("assistant\n")
        body = tok.encode(answer) + [end]
        ids += head + body + tok.encode("\n")
        said += [False] * len(head) + [True] * len(body) + [False]
        of += [-1] * len(head) + [i] * len(body) + [-1]
    return ids, said, of


def padded(tok, rows):
    """Rows of (ids, said, of) as tensors of one length."""
    n = max(len(ids) for ids, _, _ in rows)
    pad = tok.special["<|endoftext|>"]
    ids = torch.tensor([ids + [pad] * (n - len(ids)) for ids, _, _ in rows])
    said = torch.tensor([s + [False] * (n - len(s)) for _, s, _ in rows])
    of = torch.tensor([o + [-1] * (n - len(o)) for _, _, o in rows])
    return ids, said, of


def right(tok, net, rows_of, pictures, batch=32):
    """For each topic how many questions are answered word for word, and how many were asked. rows_of makes the rows of
    text embeddings of pictures. Each picture is asked one thing after another; what was answered before is right."""
    count = {}
    for i in range(0, len(pictures), batch):
        part = pictures[i : i + batch]
        for k in range(max(len(p.asks) for p in part)):  # one question at a time: no answer before it gives a hint
            asked = [p for p in part if len(p.asks) > k]
            ids, said, of = padded(tok, [conversation(tok, [p.asks[k]]) for p in asked])
            with torch.no_grad():
                at = ids == tok.special[IMAGE]
                best = net(ids[:, :-1], rows=(at[:, :-1], rows_of(asked))).argmax(-1)
            ok = ((best == ids[:, 1:]) | ~said[:, 1:]).all(-1)
            for p, hit in zip(asked, ok.tolist()):
                topic = p.asks[k][0]
                n, all_ = count.get(topic, (0, 0))
                count[topic] = n + hit, all_ + 1
    return count


def general(topic):
    """Topics of the table: shapes of all names together."""
    return topic.split(" ")[0] if topic.split(" ")[0] in ("count", "color", "place") else topic

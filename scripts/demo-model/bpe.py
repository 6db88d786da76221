"""Byte-level BPE in the layout of Hugging Face's tokenizer.json, digits one by one."""

import collections
import json

import regex

PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def alphabet():
    """The printable character of each byte, in the order of the byte tokens' ids."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b]
    rest = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(rest)}


def train(texts, size):
    """The merges of a vocabulary of that size, most frequent pair first."""
    chars = alphabet()
    words = collections.Counter(w for t in texts for w in regex.findall(PATTERN, t))
    split = [[[chars[b] for b in w.encode()], n] for w, n in words.items()]
    merges = []
    while len(merges) < size - 256 - len(SPECIALS):
        pairs = collections.Counter()
        for symbols, n in split:
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += n
        if not pairs:
            break
        best = max(pairs, key=lambda p: (pairs[p], p))
        merges.append(best)
        for entry in split:
            entry[0] = merge(entry[0], best)
    return merges


def merge(symbols, pair):
    out, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == pair:
            out.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


class Tokenizer:
    def __init__(self, merges):
        self.chars = alphabet()
        self.merges = merges
        self.rank = {p: i for i, p in enumerate(merges)}
        tokens = list(self.chars.values()) + [a + b for a, b in merges]
        self.ids = {t: i for i, t in enumerate(tokens)}
        self.tokens = tokens + SPECIALS
        self.special = {s: len(tokens) + i for i, s in enumerate(SPECIALS)}
        self.cache = {}

    def word(self, w):
        ids = self.cache.get(w)
        if ids is None:
            symbols = [self.chars[b] for b in w.encode()]
            while len(symbols) > 1:
                pair = min(zip(symbols, symbols[1:]), key=lambda p: self.rank.get(p, 1 << 30))
                if pair not in self.rank:
                    break
                symbols = merge(symbols, pair)
            ids = self.cache[w] = [self.ids[s] for s in symbols]
        return ids

    def encode(self, text):
        return [i for w in regex.findall(PATTERN, text) for i in self.word(w)]

    def decode(self, ids):
        byte = {c: b for b, c in self.chars.items()}
        return bytes(byte[c] for i in ids if i < len(self.ids) for c in self.tokens[i]).decode(errors="replace")

    def chat(self, conversation, open_turn=False):
        """Ids of a conversation under the chat template, and which of them the assistant says."""
        start, end = self.special["<|im_start|>"], self.special["<|im_end|>"]
        ids, said = [], []
        for role, text in conversation:
            head, body = [start] + self.encode(role + "\n"), self.encode(text) + [end]
            ids += head + body + self.encode("\n")
            said += [False] * len(head) + [role == "assistant"] * len(body) + [False]
        if open_turn:
            ids += [start] + self.encode("assistant\n")
        return ids, said

    def file(self):
        """tokenizer.json."""
        added = [dict(id=self.special[s], content=s, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True) for s in self.special]
        level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=False, use_regex=False)
        split = dict(type="Split", pattern=dict(Regex=PATTERN), behavior="Isolated", invert=False)
        model = dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False,
                     byte_fallback=False, ignore_merges=False, vocab=self.ids, merges=["%s %s" % p for p in self.merges])
        return json.dumps(dict(version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=dict(type="NFC"),
                               pre_tokenizer=dict(type="Sequence", pretokenizers=[split, level]), post_processor=level, decoder=level, model=model),
                          ensure_ascii=False, indent=0) + "\n"

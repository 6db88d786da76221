"""Turns the checkpoints of TestRecorded into GGUF files for llama.cpp.

    go test ./internal/engine/cpu -run TestRecorded -checkpoints DIR
    /usr/bin/python3 scripts/reference/llamacpp/gguf.py DIR [DIR/NAME...]

Weights stay float32. What differs between the two formats is done here: queries and
keys of Llama-like models are stored for pairs of neighbors, norms of Gemma hold their
one, experts are stacked.
"""

import json
import math
import struct
import sys
from pathlib import Path

import numpy as np

ARCH = {"mistral": "llama", "mixtral": "llama", "qwen3_moe": "qwen3moe", "gemma3_text": "gemma3"}
F32, U32, STR, ARRAY, I32 = 6, 4, 8, 9, 5

LAYER = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "self_attn.qkv_proj": "attn_qkv", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up",
    "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp",
}
GEMMA = {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
EXPERT = {"w1": "gate", "w2": "down", "w3": "up", "gate_proj": "gate", "down_proj": "down", "up_proj": "up"}


def read_safetensors(path):
    raw = Path(path).read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    out = {}
    for name, t in json.loads(raw[8 : 8 + n]).items():
        if name != "__metadata__":
            a, b = t["data_offsets"]
            out[name] = np.frombuffer(raw[8 + n + a : 8 + n + b], "<f4").reshape(t["shape"])
    return out


def neighbors(w, heads):
    """Halves of a head become neighboring rows."""
    return w.reshape(heads, 2, -1, w.shape[-1]).swapaxes(1, 2).reshape(w.shape)


def convert(c, tensors):
    kind = c["model_type"]
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
           "lm_head.weight": "output.weight"}
    out, experts = {}, {}
    for name, w in tensors.items():
        if kind.startswith("gemma") and "norm" in name:
            w = w + np.float32(1)
        if name in top:
            out[top[name]] = w
            continue
        _, _, layer, rest = name.split(".", 3)
        if ".experts." in rest:
            _, rest = rest.split(".experts.")
            e, what, _ = rest.split(".")
            experts.setdefault(f"blk.{layer}.ffn_{EXPERT[what]}_exps.weight", {})[int(e)] = w
            continue
        stem, suffix = rest.rsplit(".", 1)
        to = (GEMMA if kind.startswith("gemma") else {}).get(stem) or LAYER[stem]
        if kind in ("llama", "mistral", "mixtral") and to in ("attn_q", "attn_k"):
            w = neighbors(w, c["num_attention_heads" if to == "attn_q" else "num_key_value_heads"])
        out[f"blk.{layer}.{to}.{suffix}"] = w
    for name, list_ in experts.items():
        out[name] = np.stack([list_[e] for e in range(len(list_))])
    s = c.get("rope_scaling") or {}
    for table in ("long", "short"):
        if table + "_factor" in s:
            out[f"rope_factors_{table}.weight"] = np.array(s[table + "_factor"], "<f4")
    return out


def fields(c):
    arch = ARCH.get(c["model_type"], c["model_type"])
    dim = c["head_dim"]
    s = c.get("rope_scaling") or {}
    f = {
        "block_count": c["num_hidden_layers"], "context_length": c["max_position_embeddings"],
        "embedding_length": c["hidden_size"], "feed_forward_length": c["intermediate_size"],
        "attention.head_count": c["num_attention_heads"], "attention.head_count_kv": c["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": float(c["rms_norm_eps"]), "attention.key_length": dim,
        "attention.value_length": dim, "rope.freq_base": float(c["rope_theta"]),
        "rope.dimension_count": int(dim * c.get("partial_rotary_factor", 1)), "vocab_size": c["vocab_size"],
    }
    if n := c.get("num_experts") or c.get("num_local_experts"):
        f.update({"expert_count": n, "expert_used_count": c["num_experts_per_tok"],
                  "expert_feed_forward_length": c.get("moe_intermediate_size") or c["intermediate_size"]})
    if c["model_type"].startswith("gemma"):
        f["attention.sliding_window"] = c["sliding_window"]
    for ours, theirs in (("attn", "attn_logit_softcapping"), ("final", "final_logit_softcapping")):
        if c.get(theirs):
            f[theirs] = float(c[theirs])
    if s.get("rope_type") == "linear":
        f.update({"rope.scaling.type": "linear", "rope.scaling.factor": float(s["factor"])})
    if "long_factor" in s:
        original = c["original_max_position_embeddings"]
        stretch = c["max_position_embeddings"] / original
        f.update({"rope.scaling.original_context_length": original,
                  "rope.scaling.attn_factor": math.sqrt(1 + math.log(stretch) / math.log(original))})
    return {"general.architecture": arch, "general.name": "recorded", **{f"{arch}.{k}": v for k, v in f.items()}}


def string(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def value(v):
    if isinstance(v, str):
        return struct.pack("<I", STR) + string(v)
    if isinstance(v, float):
        return struct.pack("<If", F32, v)
    if isinstance(v, int):
        return struct.pack("<II", U32, v)
    kind = STR if isinstance(v[0], str) else F32 if isinstance(v[0], float) else I32
    body = b"".join(string(x) if kind == STR else struct.pack("<f" if kind == F32 else "<i", x) for x in v)
    return struct.pack("<IIQ", ARRAY, kind, len(v)) + body


def write(path, meta, tensors):
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(meta))
    head += b"".join(string(k) + value(v) for k, v in meta.items())
    data = b""
    for name, w in tensors.items():
        head += string(name) + struct.pack("<I", w.ndim) + b"".join(struct.pack("<Q", d) for d in reversed(w.shape))
        head += struct.pack("<IQ", 0, len(data))
        data += w.astype("<f4").tobytes()
        data += b"\0" * (-len(data) % 32)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)


def main(folder, *chosen):
    for checkpoint in [Path(p) for p in chosen] or sorted(p for p in Path(folder).iterdir() if p.is_dir()):
        c = json.loads((checkpoint / "config.json").read_text())
        vocab = c["vocab_size"]
        meta = fields(c) | {
            # A tokenizer that is never asked: the recorder passes ids.
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
                                     + [f"t{i}" for i in range(259, vocab)],
            "tokenizer.ggml.scores": [0.0] * vocab,
            "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * (vocab - 259),
            "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0,
        }
        write(checkpoint.with_suffix(".gguf"), meta, convert(c, read_safetensors(checkpoint / "model.safetensors")))


if __name__ == "__main__":
    main(*sys.argv[1:])

#!/usr/bin/python3
"""Writes a trained model as a Hugging Face directory: bf16 safetensors, configuration, tokenizer and chat template.

  export.py DIR OUT --template chat_template.jinja
"""

import argparse
import json
import os
import struct

import torch

import evaluate
import net as nets

NAMES = {
    "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj", "qnorm": "self_attn.q_norm", "knorm": "self_attn.k_norm",
    "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj", "norm1": "input_layernorm", "norm2": "post_attention_layernorm",
}


def name(own):
    if own == "embed":
        return "model.embed_tokens.weight"
    if own == "norm":
        return "model.norm.weight"
    layer, part = own.split("_")
    return "model.layers.%s.%s.weight" % (layer, NAMES[part])


def safetensors(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for n in sorted(tensors):
        t = tensors[n].bfloat16().contiguous()
        raw = t.view(torch.int16).numpy().tobytes()
        header[n] = dict(dtype="BF16", shape=list(t.shape), data_offsets=[len(data), len(data) + len(raw)])
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def put(folder, file, text):
    with open(os.path.join(folder, file), "w") as f:
        f.write(text)


def tokenizer_config(tok, context, template):
    return json.dumps(dict(
        tokenizer_class="PreTrainedTokenizerFast", eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=context,
        chat_template=template), indent=1) + "\n"


def generation_config(tok):
    return json.dumps(dict(do_sample=False, eos_token_id=tok.special["<|im_end|>"], pad_token_id=tok.special["<|endoftext|>"]), indent=1) + "\n"


def main():
    args = argparse.ArgumentParser()
    args.add_argument("dir")
    args.add_argument("out")
    args.add_argument("--template", required=True)
    args = args.parse_args()
    tok, net = evaluate.load(args.dir)
    c = nets.CONFIG
    os.makedirs(args.out, exist_ok=True)
    safetensors(os.path.join(args.out, "model.safetensors"), {name(n): p.data for n, p in net.w.items()})
    end, pad = tok.special["<|im_end|>"], tok.special["<|endoftext|>"]
    config = dict(
        architectures=["Qwen3ForCausalLM"], model_type="qwen3", hidden_size=c["hidden"], num_hidden_layers=c["layers"], num_attention_heads=c["heads"],
        num_key_value_heads=c["kv_heads"], head_dim=c["head_dim"], intermediate_size=c["ffn"], vocab_size=c["vocab"], rope_theta=c["theta"],
        rms_norm_eps=c["eps"], max_position_embeddings=c["context"], tie_word_embeddings=True, hidden_act="silu", attention_bias=False,
        torch_dtype="bfloat16", eos_token_id=end, pad_token_id=pad,
    )
    put(args.out, "config.json", json.dumps(config, indent=1) + "\n")
    put(args.out, "generation_config.json", generation_config(tok))
    put(args.out, "tokenizer.json", tok.file())
    put(args.out, "tokenizer_config.json", tokenizer_config(tok, c["context"], open(args.template).read()))


if __name__ == "__main__":
    main()

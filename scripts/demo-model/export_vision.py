#!/usr/bin/python3
"""Writes what train_vision.py trained as a Hugging Face directory, in the form of Idefics 3.

  export_vision.py DIR [OUT]     OUT is internal/model/builtin-vision, whose config.json and preprocessor_config.json stay
"""

import json
import os
import sys

import torch

import drawings
import export
import golden
import sights

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = drawings.MODEL
TEMPLATE = os.path.join(HERE, "../../internal/model/minitok/chat_template.jinja")
TEXT = """            {%- if part['type'] != 'text' %}
                {{- raise_exception('This model reads text only, not ' + part['type'] + '.') }}
            {%- endif %}
            {{- part['text'] }}
"""
IMAGES = """            {%- if part['type'] == 'image' %}
                {{- '<image>' }}
            {%- elif part['type'] == 'text' %}
                {{- part['text'] }}
            {%- else %}
                {{- raise_exception('This model reads text and images, not ' + part['type'] + '.') }}
            {%- endif %}
"""


def tensors(saved):
    """Name and value of every tensor of the checkpoint."""
    out = {"model.text_model." + export.name(n)[len("model.") :]: p for n, p in saved["net"].items()}
    out |= {"model.vision_model." + n.replace("/", "."): p for n, p in saved["tower"].items()}
    out["model.connector.modality_projection.proj.weight"] = saved["project"]
    return out


def main():
    out = sys.argv[2] if len(sys.argv) > 2 else MODEL
    saved = torch.load(os.path.join(sys.argv[1], "vision.pt"))
    tok, _ = sights.load(golden.MODEL)
    export.safetensors(os.path.join(out, "model.safetensors"), tensors(saved))
    template = open(TEMPLATE).read()
    if TEXT not in template:
        sys.exit("the chat template has no such place for images")
    context = json.load(open(os.path.join(out, "config.json")))["text_config"]["max_position_embeddings"]
    export.put(out, "generation_config.json", export.generation_config(tok))
    export.put(out, "tokenizer.json", tok.file())
    export.put(out, "tokenizer_config.json", export.tokenizer_config(tok, context, template.replace(TEXT, IMAGES)))


if __name__ == "__main__":
    main()

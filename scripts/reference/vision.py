"""Towers and projectors: pixels of a view in, rows of text embeddings out.

Written from the published descriptions; every family in full, and no cache, no batch.
"""

import math

import torch
import torch.nn.functional as F

from parts import gelu_tanh, gemma_norm, plain_freqs, rms_norm, silu
from processors import best_resolution
from weights import values


def gelu(x):
    return 0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))


def quick_gelu(x):
    return x * torch.sigmoid(1.702 * x)


ACTS = {"gelu": gelu, "gelu_pytorch_tanh": gelu_tanh, "quick_gelu": quick_gelu}


def layer_norm(w, name, x, eps):
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * w[name + ".weight"] + w[name + ".bias"]


def linear(w, name, x):
    y = x @ w[name + ".weight"].T
    return y + w[name + ".bias"] if name + ".bias" in w else y


def patches(w, name, pixels, size):
    """Rows of patches, from left to right, then down."""
    out = F.conv2d(pixels[None], w[name + ".weight"], w.get(name + ".bias"), stride=size)
    return out[0].flatten(1).T


def layers(w, prefix, x, c, count, act, eps, seen=None):
    """Every row sees all rows, or those of seen."""
    heads = c["num_attention_heads"]
    for i in range(count):
        p = f"{prefix}encoder.layers.{i}."
        n = layer_norm(w, p + "layer_norm1", x, eps)
        q, k, v = (linear(w, p + f"self_attn.{m}_proj", n).reshape(len(x), heads, -1).transpose(0, 1) for m in "qkv")
        scores = q @ k.transpose(1, 2) * q.shape[-1] ** -0.5
        if seen is not None:
            scores = scores.masked_fill(~seen[None, None, :], float("-inf"))
        a = (torch.softmax(scores, -1) @ v).transpose(0, 1).reshape(len(x), -1)
        x = x + linear(w, p + "self_attn.out_proj", a)
        n = layer_norm(w, p + "layer_norm2", x, eps)
        x = x + linear(w, p + "mlp.fc2", ACTS[act](linear(w, p + "mlp.fc1", n)))
    return x


def bucketed(mask, side):
    """Positions of patches: the place in a whole view at the same fraction of the sides.
    The mask is [rows, columns]; padding has position 0."""
    borders = torch.arange(1 / side, 1.0, 1 / side)

    def places(n):
        at = torch.clamp(torch.arange(n, dtype=torch.float32) * (1.0 / torch.tensor(n, dtype=torch.float32)), max=1.0 - 1e-6)
        return torch.bucketize(at, borders, right=True)

    rows, columns = int(mask[:, 0].sum()), int(mask[0].sum())
    ids = torch.zeros(mask.numel(), dtype=torch.long)
    ids[mask.flatten()] = (places(rows)[:, None] * side + places(columns)[None, :]).flatten()
    return ids


def shuffle(x, factor):
    """Squares of patches side by side, each row by row."""
    side = math.isqrt(len(x))
    x = x.reshape(side // factor, factor, side // factor, factor, -1)
    return x.permute(0, 2, 1, 3, 4).reshape((side // factor) ** 2, -1)


def idefics3(c, w, pixels, mask):
    # Small and masked views take positions of buckets. Masked patches are not seen, but
    # their outputs are shuffled with the others. The norm behind the last layer counts;
    # the projector has no bias.
    v, root = c["vision_config"], "model.vision_model."
    eps, side = v.get("layer_norm_eps", 1e-6), v["image_size"] // v["patch_size"]
    x = patches(w, root + "embeddings.patch_embedding", pixels, v["patch_size"])
    if mask is None:
        mask = torch.ones(pixels.shape[1] // v["patch_size"], pixels.shape[2] // v["patch_size"], dtype=torch.bool)
    x = x + w[root + "embeddings.position_embedding.weight"][bucketed(mask, side)]
    x = layers(w, root, x, v, v.get("num_hidden_layers", 12), v.get("hidden_act", "gelu_pytorch_tanh"), eps, mask.flatten())
    x = layer_norm(w, root + "post_layernorm", x, eps)
    return shuffle(x, c.get("scale_factor", 2)) @ w["model.connector.modality_projection.proj.weight"].T


def llava(c, w, pixels, mask):
    # CLIP: a class token before the patches, which "default" drops again, a norm before
    # the first layer, no bias in the patches, quick GELU. The projector reads the layer
    # before the last one, without the norm behind the layers.
    new = "model.multi_modal_projector.linear_1.weight" in w
    root, project = ("model.vision_tower.vision_model.", "model.multi_modal_projector.") if new else (
        "vision_tower.vision_model.", "multi_modal_projector.")
    v = c["vision_config"]
    clip = v["model_type"] == "clip_vision_model"
    eps = v.get("layer_norm_eps", 1e-5 if clip else 1e-6)
    x = patches(w, root + "embeddings.patch_embedding", pixels, v["patch_size"])
    if clip:
        x = torch.cat([w[root + "embeddings.class_embedding"][None], x])
    x = x + w[root + "embeddings.position_embedding.weight"]
    if clip:
        x = layer_norm(w, root + "pre_layrnorm", x, eps)
    layer = c.get("vision_feature_layer", -2)
    count = layer if layer >= 0 else v["num_hidden_layers"] + 1 + layer
    x = layers(w, root, x, v, count, v.get("hidden_act", "quick_gelu" if clip else "gelu_pytorch_tanh"), eps)
    if c.get("vision_feature_select_strategy", "default") == "default":
        x = x[1:]
    return linear(w, project + "linear_2", ACTS[c.get("projector_hidden_act", "gelu")](linear(w, project + "linear_1", x)))


def gemma3(c, w, pixels, mask):
    # The average of squares of patches, then a norm (1 + weight), then a matrix that is
    # stored as [vision, text].
    v, root = c["vision_config"], "vision_tower.vision_model."
    eps, side = v.get("layer_norm_eps", 1e-6), v["image_size"] // v["patch_size"]
    x = patches(w, root + "embeddings.patch_embedding", pixels, v["patch_size"])
    x = x + w[root + "embeddings.position_embedding.weight"]
    x = layers(w, root, x, v, v["num_hidden_layers"], v.get("hidden_act", "gelu_pytorch_tanh"), eps)
    x = layer_norm(w, root + "post_layernorm", x, eps)
    kernel = side // math.isqrt(c["mm_tokens_per_image"])
    x = F.avg_pool2d(x.T.reshape(1, -1, side, side), kernel)[0].flatten(1).T
    return gemma_norm(x, w["multi_modal_projector.mm_soft_emb_norm.weight"], eps) @ w["multi_modal_projector.mm_input_projection_weight"]


def qwen(c, w, pixels, mask):
    # Patches have frames, and no bias. There are no learned positions: the first half of the
    # pairs of queries and keys turns by the patch's row, the other half by its column. In
    # Qwen2.5-VL most layers see windows of the image, the last ones of a side may be smaller;
    # norms have no mean and no bias, and MLPs are gated. The merger normalizes patches before
    # it joins squares of them; its GELU is the exact one.
    v, newer = c["vision_config"], c["architectures"][0].startswith("Qwen2_5")
    root = "model.visual." if "model.visual.patch_embed.proj.weight" in w else "visual."
    norm = (lambda name, x: rms_norm(x, w[name + ".weight"], 1e-6)) if newer else (lambda name, x: layer_norm(w, name, x, 1e-6))
    patch, merge, heads = v["patch_size"], v["spatial_merge_size"], v["num_heads"]
    x = F.conv3d(pixels[None], w[root + "patch_embed.proj.weight"], stride=(v["temporal_patch_size"], patch, patch))[0, :, 0]
    height, width = x.shape[1:]
    x = x.flatten(1).T
    row = torch.arange(height).repeat_interleave(width)
    column = torch.arange(width).repeat(height)
    freqs = plain_freqs(10000.0, x.shape[1] // heads // 2)
    angles = torch.cat([row[:, None] * freqs, column[:, None] * freqs], -1)[:, None, :]

    def turn(x):
        a, b = x.chunk(2, -1)
        return torch.cat([a * torch.cos(angles) - b * torch.sin(angles), b * torch.cos(angles) + a * torch.sin(angles)], -1)

    everything = torch.ones(len(x), len(x), dtype=torch.bool)
    window = everything
    if newer:
        side = v["window_size"] // merge // patch * merge
        window = (row[:, None] // side == row[None] // side) & (column[:, None] // side == column[None] // side)
    for i in range(v["depth"]):
        p = f"{root}blocks.{i}."
        q, k, value = linear(w, p + "attn.qkv", norm(p + "norm1", x)).reshape(len(x), 3, heads, -1).unbind(1)
        scores = torch.einsum("qhd,khd->hqk", turn(q), turn(k)) * q.shape[-1] ** -0.5
        seen = everything if not newer or i in v["fullatt_block_indexes"] else window
        a = torch.softmax(scores.masked_fill(~seen, float("-inf")), -1)
        x = x + linear(w, p + "attn.proj", torch.einsum("hqk,khd->qhd", a, value).flatten(1))
        n = norm(p + "norm2", x)
        if newer:
            x = x + linear(w, p + "mlp.down_proj", silu(linear(w, p + "mlp.gate_proj", n)) * linear(w, p + "mlp.up_proj", n))
        else:
            x = x + linear(w, p + "mlp.fc2", ACTS[v.get("hidden_act", "quick_gelu")](linear(w, p + "mlp.fc1", n)))
    x = norm(root + "merger.ln_q", x)
    x = x.reshape(height // merge, merge, width // merge, merge, -1).transpose(1, 2).flatten(2).flatten(0, 1)
    x = linear(w, root + "merger.mlp.2", gelu(linear(w, root + "merger.mlp.0", x.flatten(1))))
    x.grid = height // merge, width // merge
    return x


TOWERS = {
    "SmolVLMForConditionalGeneration": idefics3,
    "Idefics3ForConditionalGeneration": idefics3,
    "LlavaForConditionalGeneration": llava,
    "LlavaNextForConditionalGeneration": llava,
    "Gemma3ForConditionalGeneration": gemma3,
    "Qwen2VLForConditionalGeneration": qwen,
    "Qwen2_5_VLForConditionalGeneration": qwen,
}


def record(config, w, seed, views):
    """views are [width, height, mask], mask a list of 0 and 1 for patches, or None."""
    out = []
    for i, (width, height, mask) in enumerate(views):
        frames = [config["vision_config"]["temporal_patch_size"]] if "temporal_patch_size" in config["vision_config"] else []
        pixels = torch.from_numpy(values(seed, f"view.{i}", [3, *frames, height, width], 0.0, 2.0))
        size = config["vision_config"]["patch_size"]
        shaped = None if mask is None else torch.tensor(mask, dtype=torch.bool).reshape(height // size, width // size)
        rows = TOWERS[config["architectures"][0]](config, w, pixels, shaped)
        out.append((width, height, mask, rows))
    return out


def llava_next(c, w, views, size):
    # The features of the tiles form one picture. Of it the part is kept that has the shape
    # of the image, in whole features that are dropped in pairs, and a learned row follows
    # each line. The whole view comes first.
    width, height = size
    patch, side = c["vision_config"]["patch_size"], c["vision_config"]["image_size"]
    bh, bw = best_resolution(height, width, c["image_grid_pinpoints"])
    n = side // patch
    tiles = torch.stack(views[1:]).reshape(bh // side, bw // side, n, n, -1)
    grid = tiles.permute(0, 2, 1, 3, 4).reshape(bh // side * n, bw // side * n, -1)
    rows, columns = grid.shape[:2]
    if width / height > columns / rows:
        cut = (rows - int(round(height * (columns / width), 7))) // 2
        grid = grid[cut : rows - cut]
    else:
        cut = (columns - int(round(width * (rows / height), 7))) // 2
        grid = grid[:, cut : columns - cut]
    newline = w["model.image_newline" if c.get("new_names") else "image_newline"].expand(grid.shape[0], 1, -1)
    return torch.cat([views[0], torch.cat([grid, newline], 1).flatten(0, 1)])


def images(config, w, views):
    """The rows of each image: those of a view, or of the views of tiles."""
    if "sizes" not in config:
        return views
    out = []
    for size in config["sizes"]:
        bh, bw = best_resolution(size[1], size[0], config["image_grid_pinpoints"])
        n = 1 + bh * bw // config["vision_config"]["image_size"] ** 2
        out.append(llava_next(config, w, views[:n], size))
        views = views[n:]
    return out

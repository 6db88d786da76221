"""Writes what image processors make of pictures, which internal/media/prepare is
compared with. The arithmetic is that of the processors of transformers which work with
Pillow and numpy, written anew over whole arrays; it shares nothing with the Go code.

    /usr/bin/python3 scripts/reference/processors.py internal/media/prepare/testdata/processors.json
"""

import hashlib
import json
import math
import random
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from pictures import sample

CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
HALF = [0.5, 0.5, 0.5]
STEPS = {"do_convert_rgb": True, "do_resize": True, "do_rescale": True, "rescale_factor": 0.00392156862745098, "do_normalize": True}


def resize(a, h, w, resample):
    return np.array(Image.fromarray(a).resize((w, h), resample=resample))


def numbers(a, c):
    """Rescale in 64 bits, normalize in 32, channels first."""
    a = (a.astype(np.float64) * c["rescale_factor"]).astype(np.float32)
    mean, std = np.array(c["image_mean"], dtype=np.float32), np.array(c["image_std"], dtype=np.float32)
    return ((a - mean) / std).transpose(2, 0, 1)


# Idefics3 and SmolVLM: image_processing_idefics3.py and processing_idefics3.py.

def even_edge(h, w, longest, cap=4096):
    ratio = w / h
    if w >= h:
        w = longest
        h = int(w / ratio)
        if h % 2 != 0:
            h += 1
    elif h > w:
        h = longest
        w = int(h * ratio)
        if w % 2 != 0:
            w += 1
    h, w = max(h, 1), max(w, 1)
    ratio = w / h
    if w >= h and w > cap:
        w = cap
        h = int(w / ratio)
    elif h > w and h > cap:
        h = cap
        w = int(h * ratio)
    return max(h, 1), max(w, 1)


def multiples(h, w, side):
    ratio = w / h
    if w >= h:
        w = math.ceil(w / side) * side
        h = int(w / ratio)
        h = math.ceil(h / side) * side
    elif h > w:
        h = math.ceil(h / side) * side
        w = int(h * ratio)
        w = math.ceil(w / side) * side
    return h, w


def tiles_grid(h, w, c):
    side = c["max_image_size"]["longest_edge"]
    h, w = even_edge(h, w, c["size"]["longest_edge"])
    if not c["do_image_splitting"]:
        return h, w, 0, 0
    h, w = multiples(h, w, side)
    if h > side or w > side:
        return h, w, math.ceil(h / side), math.ceil(w / side)
    return h, w, 0, 0


def tiles_plan(h, w, c, p, _):
    _, _, rows, cols = tiles_grid(h, w, c)
    fake, image = "<fake_token_around_image>", "<image>" * p["image_seq_len"]
    text = ""
    for r in range(rows):
        for k in range(cols):
            text += fake + f"<row_{r + 1}_col_{k + 1}>" + image
        text += "\n"
    if rows:
        text += "\n"
    text += fake + "<global-img>" + image + fake
    return p["image_seq_len"] * (rows * cols + 1), text, [0, rows, cols]


def tiles_views(a, c):
    side, f = c["max_image_size"]["longest_edge"], c["resample"]
    a = resize(a, *even_edge(*a.shape[:2], c["size"]["longest_edge"]), f)
    frames = []
    if c["do_image_splitting"]:
        h, w = multiples(*a.shape[:2], side)
        a = resize(a, h, w, f)
        if h > side or w > side:
            for y in range(0, h, side):
                for x in range(0, w, side):
                    frames.append(a[y:y + side, x:x + side])
    frames.append(resize(a, side, side, f))
    return [numbers(x, c) for x in frames]


# CLIP, SigLIP, Gemma 3: image_processing_clip.py and image_transforms.py.

def shortest_edge(h, w, edge):
    short, long = (w, h) if w <= h else (h, w)
    new_short, new_long = edge, int(edge * long / short)
    return (new_long, new_short) if w <= h else (new_short, new_long)


def center_crop(a, ch, cw):
    h, w = a.shape[:2]
    top, left = (h - ch) // 2, (w - cw) // 2
    if top >= 0 and top + ch <= h and left >= 0 and left + cw <= w:
        return a[top:top + ch, left:left + cw]
    nh, nw = max(ch, h), max(cw, w)
    out = np.zeros((nh, nw, 3), dtype=a.dtype)
    tp, lp = math.ceil((nh - h) / 2), math.ceil((nw - w) / 2)
    out[tp:tp + h, lp:lp + w] = a
    top, left = top + tp, left + lp
    return out[max(0, top):min(nh, top + ch), max(0, left):min(nw, left + cw)]


def whole_view(a, c):
    size = c["size"]
    target = shortest_edge(*a.shape[:2], size["shortest_edge"]) if "shortest_edge" in size else (size["height"], size["width"])
    a = resize(a, *target, c["resample"])
    if c.get("do_center_crop"):
        a = center_crop(a, c["crop_size"]["height"], c["crop_size"]["width"])
    return [numbers(a, c)]


def llava_plan(h, w, c, p, _):
    size = c.get("crop_size", c["size"])
    n = (size["height"] // p["patch_size"]) * (size["width"] // p["patch_size"]) + p["num_additional_image_tokens"]
    if p["vision_feature_select_strategy"] == "default":
        n -= 1
    return n, "<image>" * n, [0, 0, 0]


def gemma_plan(h, w, c, p, _):
    n = p["image_seq_length"]
    return n, "\n\n<start_of_image>" + "<image_soft_token>" * n + "<end_of_image>\n\n", [0, 0, 0]


# LLaVA-1.6: image_processing_llava_next.py and processing_llava_next.py.

def best_resolution(h, w, sizes):
    best, most, least = None, 0, float("inf")
    for sh, sw in sizes:
        scale = min(sw / w, sh / h)
        dw, dh = int(w * scale), int(h * scale)
        kept = min(dw * dh, w * h)
        wasted = sw * sh - kept
        if kept > most or (kept == most and wasted < least):
            best, most, least = (sh, sw), kept, wasted
    return best


def next_plan(h, w, c, p, _):
    side = c["size"]["shortest_edge"]
    bh, bw = best_resolution(h, w, c["image_grid_pinpoints"])
    ph = pw = side // p["patch_size"]
    ch, cw = ph * (bh // side), pw * (bw // side)
    if w / h > cw / ch:
        nh = int(round(h * (cw / w), 7))
        ch -= (ch - nh) // 2 * 2
    else:
        nw = int(round(w * (ch / h), 7))
        cw -= (cw - nw) // 2 * 2
    n = ch * cw + ch + ph * pw + p["num_additional_image_tokens"]
    if p["vision_feature_select_strategy"] == "default":
        n -= 1
    return n, "<image>" * n, [0, bh // side, bw // side, ch, cw]


def next_views(a, c):
    side, f = c["size"]["shortest_edge"], c["resample"]
    h, w = a.shape[:2]
    bh, bw = best_resolution(h, w, c["image_grid_pinpoints"])
    sw, sh = bw / w, bh / h
    if sw < sh:
        nw, nh = bw, min(math.ceil(h * sw), bh)
    else:
        nh, nw = bh, min(math.ceil(w * sh), bw)
    large = resize(a, nh, nw, f)
    (py, ry), (px, rx) = divmod(bh - nh, 2), divmod(bw - nw, 2)
    padded = np.pad(large, ((py, py + ry), (px, px + rx), (0, 0)))
    frames = [resize(a, side, side, f)]
    for y in range(0, bh, side):
        for x in range(0, bw, side):
            frames.append(padded[y:y + side, x:x + side])
    return [numbers(center_crop(resize(x, side, side, f), side, side), c) for x in frames]


# Qwen2-VL: image_processing_qwen2_vl.py.

def smart_resize(h, w, factor, fewest, most):
    if max(h, w) / min(h, w) > 200:
        return None
    hb, wb = round(h / factor) * factor, round(w / factor) * factor
    if hb * wb > most:
        beta = math.sqrt((h * w) / most)
        hb = max(factor, math.floor(h / beta / factor) * factor)
        wb = max(factor, math.floor(w / beta / factor) * factor)
    elif hb * wb < fewest:
        beta = math.sqrt(fewest / (h * w))
        hb = math.ceil(h * beta / factor) * factor
        wb = math.ceil(w * beta / factor) * factor
    return hb, wb


def qwen_size(h, w, c):
    fewest = c.get("min_pixels") or c["size"]["shortest_edge"]
    most = c.get("max_pixels") or c["size"]["longest_edge"]
    return smart_resize(h, w, c["patch_size"] * c["merge_size"], fewest, most)


def qwen_plan(h, w, c, p, _):
    size = qwen_size(h, w, c)
    if size is None:
        return 0, "", None
    gh, gw = size[0] // c["patch_size"], size[1] // c["patch_size"]
    n = gh * gw // c["merge_size"]**2
    return n, "<|image_pad|>" * n, [1, gh, gw]


def qwen_views(a, c):
    a = resize(a, *qwen_size(*a.shape[:2], c), c["resample"])
    t, m, s = c["temporal_patch_size"], c["merge_size"], c["patch_size"]
    frames = np.repeat(numbers(a, c)[np.newaxis], t, axis=0)
    gh, gw = a.shape[0] // s, a.shape[1] // s
    x = frames.reshape(1, t, 3, gh // m, m, s, gw // m, m, s)
    x = x.transpose(0, 3, 6, 4, 7, 2, 1, 5, 8)
    return [x.reshape(gh * gw, 3 * t * s * s)]


def cases():
    clip = {**STEPS, "image_mean": CLIP_MEAN, "image_std": CLIP_STD, "resample": 3, "image_processor_type": "CLIPImageProcessor"}
    half = {**STEPS, "image_mean": HALF, "image_std": HALF}
    smol = {
        **half, "resample": 1, "size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}, "do_image_splitting": True,
        "do_pad": True, "image_processor_type": "Idefics3ImageProcessor",
    }
    llava = {"patch_size": 14, "num_additional_image_tokens": 1, "vision_feature_select_strategy": "default", "image_token": "<image>"}
    crop = {**clip, "size": {"shortest_edge": 336}, "do_center_crop": True, "crop_size": {"height": 336, "width": 336}}
    nextc = {**crop, "do_pad": True, "image_processor_type": "LlavaNextImageProcessor", "image_grid_pinpoints": [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]}
    qwen = {**clip, "image_processor_type": "Qwen2VLImageProcessor", "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
    photo, strip, tower, small = (500, 375), (900, 40), (70, 700), (37, 53)
    yield "smolvlm", smol, {"processor_class": "Idefics3Processor", "image_seq_len": 64}, {}, tiles_plan, tiles_views, [small, (300, 100)]
    yield "smolvlm-cap", {**smol, "size": {"longest_edge": 8192}, "max_image_size": {"longest_edge": 1024}}, {"processor_class": "SmolVLMProcessor", "image_seq_len": 81}, {}, tiles_plan, tiles_views, []
    yield "smolvlm-tiny", {**smol, "size": {"longest_edge": 96}, "max_image_size": {"longest_edge": 32}, "image_processor_type": "SmolVLMImageProcessor"}, {"processor_class": "SmolVLMProcessor", "image_seq_len": 4}, {}, tiles_plan, tiles_views, [photo, strip, tower, small, (1, 1), (1, 90), (300, 300), (61, 60)]
    yield "smolvlm-odd", {**smol, "size": {"longest_edge": 101}, "max_image_size": {"longest_edge": 30}, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.7, 0.6, 0.9]}, {"processor_class": "Idefics3Processor", "image_seq_len": 3}, {}, tiles_plan, tiles_views, [photo, strip, tower]
    yield "smolvlm-single", {**smol, "size": {"longest_edge": 28}, "max_image_size": {"longest_edge": 32}}, {"processor_class": "Idefics3Processor", "image_seq_len": 64}, {}, tiles_plan, tiles_views, [photo, tower]
    yield "smolvlm-nosplit", {**smol, "size": {"longest_edge": 96}, "max_image_size": {"longest_edge": 64}, "do_image_splitting": False}, {"processor_class": "Idefics3Processor", "image_seq_len": 64}, {}, tiles_plan, tiles_views, [photo, tower]
    yield "llava", crop, {"processor_class": "LlavaProcessor", **llava}, {}, llava_plan, whole_view, [photo, strip, tower, small, (7, 1200)]
    yield "llava-full", {**crop, "size": {"shortest_edge": 20}, "crop_size": {"height": 33, "width": 28}}, {"processor_class": "LlavaProcessor", **llava, "vision_feature_select_strategy": "full"}, {}, llava_plan, whole_view, [photo, tower, (20, 20), (9, 50)]
    yield "llava-siglip", {**half, "resample": 3, "size": {"height": 96, "width": 80}, "image_processor_type": "SiglipImageProcessor"}, {"processor_class": "LlavaProcessor", **llava, "patch_size": 16, "num_additional_image_tokens": 0, "vision_feature_select_strategy": "full"}, {}, llava_plan, whole_view, [photo, small]
    yield "gemma3", {**half, "do_pan_and_scan": None, "do_convert_rgb": None, "resample": 2, "size": {"height": 896, "width": 896}, "image_seq_length": 256, "image_processor_type": "Gemma3ImageProcessor"}, {"processor_class": "Gemma3Processor", "image_seq_length": 256}, {}, gemma_plan, whole_view, [photo]
    yield "llava-next", nextc, {"processor_class": "LlavaNextProcessor", **llava}, {}, next_plan, next_views, [photo, strip]
    yield "llava-next-tiny", {**nextc, "size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 28}, "image_grid_pinpoints": [[28, 56], [56, 28], [56, 56], [84, 28], [28, 84]]}, {"processor_class": "LlavaNextProcessor", **llava, "patch_size": 7}, {}, next_plan, next_views, [photo, strip, tower, small, (1, 1), (3, 200), (57, 31)]
    yield "qwen2-vl", {**qwen, "min_pixels": 3136, "max_pixels": 12845056, "image_processor_type": "Qwen2VLImageProcessor"}, {"processor_class": "Qwen2VLProcessor"}, {}, qwen_plan, qwen_views, [small, (70, 42), (98, 126), (14, 14), (3, 7), (500, 11)]
    yield "qwen2.5-vl-small", {**qwen, "size": {"shortest_edge": 6272, "longest_edge": 50176}, "image_processor_type": "Qwen2VLImageProcessorFast"}, {"processor_class": "Qwen2_5_VLProcessor"}, {}, qwen_plan, qwen_views, [photo, strip, tower]
    yield "qwen3-vl", {**qwen, "patch_size": 16, "image_mean": HALF, "image_std": HALF, "size": {"shortest_edge": 65536, "longest_edge": 16777216}}, {"processor_class": "Qwen3VLProcessor"}, {}, qwen_plan, qwen_views, [small]


def main(path):
    rng = random.Random(11)
    out = []
    for name, c, p, model, plan, views, sizes in cases():
        plans = []
        for _ in range(80):
            w, h = int(2**rng.uniform(0, 12.5)), int(2**rng.uniform(0, 12.5))
            # Sides in a simple ratio, and those that end in half a block.
            if rng.random() < 0.3:
                w, h = rng.choice([(14 * k, 14 * j) for k in range(1, 60, 2) for j in range(1, 60, 7)])
            if len(plans) < 4:
                w, h = [(9000, 1), (1, 9000), (9000, 2), (3, 9000)][len(plans)]
            tokens, text, grid = plan(h, w, c, p, model)
            plans.append([w, h, tokens, hashlib.sha256(text.encode()).hexdigest()[:16], grid])
        pictures = []
        for w, h in sizes:
            arrays = views(sample(w, h, 3), c)
            pictures.append({"w": w, "h": h, "shapes": [list(a.shape) for a in arrays], "sha256": [
                hashlib.sha256(np.ascontiguousarray(a, dtype="<f4").tobytes()).hexdigest()[:32] for a in arrays]})
        out.append({"name": name, "preprocessor": c, "processor": p, "plans": plans, "pictures": pictures})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(json.dumps(e) for e in out) + "\n]\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

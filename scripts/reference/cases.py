"""The checkpoints: config.json as it would be published, and the tensors with it.

Every trap of a family is in at least one of its cases: windows shorter than the
prompt, scalings whose original context the prompt leaves, sizes that differ where a
mix-up would go unseen if they were equal.
"""

import math

VOCAB = 160


def common(arch, model_type, **fields):
    c = {
        "architectures": [arch], "model_type": model_type, "hidden_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 80, "vocab_size": VOCAB,
        "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": False, "torch_dtype": "float32",
    }
    c.update(fields)
    return {k: v for k, v in c.items() if v != "absent"}


def tower(kind, **fields):
    # The eps is so large that another one shows.
    return {"model_type": kind, "hidden_size": 40, "intermediate_size": 56, "num_hidden_layers": 3, "num_attention_heads": 2,
            "layer_norm_eps": 0.02, **fields}


def images(arch, model_type, **fields):
    text = common("LlamaForCausalLM", "llama", hidden_size=32, intermediate_size=52)
    return {"architectures": [arch], "model_type": model_type, "torch_dtype": "float32", "text_config": text, **fields}


def box(side, rows, columns):
    """A mask of the first rows and columns of a view."""
    return [int(i // side < rows and i % side < columns) for i in range(side * side)]


def factors(n, low, high):
    return [round(low + (high - low) * i / (n - 1), 3) for i in range(n)]


def cases():
    llama = lambda **f: common("LlamaForCausalLM", "llama", **f)
    yield "llama2", llama(num_key_value_heads=4, rope_theta="absent", num_hidden_layers=3)
    yield "llama3", llama(
        num_attention_heads=6, num_key_value_heads=2, rope_theta=500000.0, tie_word_embeddings=True,
        rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 24})
    yield "llama-linear-biases", llama(
        num_key_value_heads=1, head_dim=20, attention_bias=True, mlp_bias=True, torch_dtype="bfloat16",
        rope_scaling={"type": "linear", "factor": 4.0})
    yield "llama-yarn", llama(
        head_dim=32, rope_scaling={"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32,
                                   "beta_fast": 4.0, "truncate": False, "mscale": 0.7, "mscale_all_dim": 1.2})
    mistral = lambda **f: common("MistralForCausalLM", "mistral", **f)
    yield "mistral", mistral(num_attention_heads=6, num_key_value_heads=3, head_dim=10, sliding_window=11)
    yield "mistral-no-window", mistral(sliding_window=None, torch_dtype="float16", num_key_value_heads=1)
    mixtral = lambda **f: common("MixtralForCausalLM", "mixtral", **f)
    yield "mixtral", mixtral(num_local_experts=5, intermediate_size=40, num_experts_per_tok="absent", rope_theta=1e6)
    yield "mixtral-window", mixtral(
        num_local_experts=4, num_experts_per_tok=3, intermediate_size=36, sliding_window=9, torch_dtype="bfloat16")
    qwen2 = lambda **f: common("Qwen2ForCausalLM", "qwen2", rms_norm_eps=1e-6, **f)
    yield "qwen2", qwen2(
        tie_word_embeddings=True, use_sliding_window=False, sliding_window=7, max_window_layers=1, rope_theta=1e6,
        rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}, torch_dtype="bfloat16")
    yield "qwen2-window", qwen2(num_hidden_layers=4, use_sliding_window=True, sliding_window=7, max_window_layers=1)
    yield "qwen3", common(
        "Qwen3ForCausalLM", "qwen3", head_dim=20, tie_word_embeddings=True, rope_theta=1e6, torch_dtype="bfloat16")
    moe = lambda **f: common("Qwen3MoeForCausalLM", "qwen3_moe", head_dim=16, num_hidden_layers=4, **f)
    yield "qwen3-moe", moe(
        num_experts=8, num_experts_per_tok=3, moe_intermediate_size=28, norm_topk_prob=True, decoder_sparse_step=1,
        mlp_only_layers=[2], torch_dtype="bfloat16")
    yield "qwen3-moe-stacked", moe(
        num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, decoder_sparse_step=2, mlp_only_layers=[])
    gemma2 = lambda **f: common(
        "Gemma2ForCausalLM", "gemma2", hidden_activation="gelu_pytorch_tanh", hidden_act="gelu_pytorch_tanh",
        head_dim=16, rms_norm_eps=1e-6, **f)
    yield "gemma2", gemma2(
        num_hidden_layers=3, query_pre_attn_scalar=9, sliding_window=8, attn_logit_softcapping=5.0,
        final_logit_softcapping=15.0, tie_word_embeddings="absent", torch_dtype="bfloat16")
    yield "gemma2-one-cap", gemma2(
        query_pre_attn_scalar=30, sliding_window=13, attn_logit_softcapping=None, tie_word_embeddings=True,
        num_key_value_heads=1)
    gemma3 = lambda **f: common(
        "Gemma3ForCausalLM", "gemma3_text", hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6,
        tie_word_embeddings="absent", **f)
    yield "gemma3", gemma3(
        num_hidden_layers=6, head_dim=16, query_pre_attn_scalar=11, sliding_window=10, sliding_window_pattern=3,
        rope_theta=1000000.0, rope_local_base_freq=500.0, rope_scaling={"rope_type": "linear", "factor": 8.0},
        torch_dtype="bfloat16")
    yield "gemma3-images", {
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "torch_dtype": "float32",
        "mm_tokens_per_image": 9, "image_token_index": VOCAB - 3, "views": [[24, 24, None], [24, 24, None]],
        "vision_config": tower("siglip_vision_model", image_size=24, patch_size=4),
        "text_config": {
            "model_type": "gemma3_text", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3,
            "vocab_size": VOCAB, "sliding_window": 6, "max_position_embeddings": 512,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}}
    seen = lambda **f: gemma3(torch_dtype="absent", head_dim=16, query_pre_attn_scalar=11, **f)
    yield "gemma3-one-image", {
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "torch_dtype": "bfloat16",
        "mm_tokens_per_image": 9, "image_token_index": VOCAB - 3, "views": [[24, 24, None]], "images": [7],
        "vision_config": tower("siglip_vision_model", image_size=24, patch_size=4),
        "text_config": seen(num_hidden_layers=3, sliding_window=6, sliding_window_pattern=3, rope_local_base_freq=500.0)}
    yield "gemma3-two-images", {
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "torch_dtype": "float32",
        "mm_tokens_per_image": 16, "image_token_index": VOCAB - 3, "views": [[32, 32, None], [32, 32, None]], "images": [2, 19],
        "vision_config": tower("siglip_vision_model", image_size=32, patch_size=4),
        "text_config": seen(num_hidden_layers=4, sliding_window=21, sliding_window_pattern=2, num_key_value_heads=1)}
    yield "smolvlm", images(
        "SmolVLMForConditionalGeneration", "smolvlm", scale_factor=4, image_token_id=VOCAB - 3,
        vision_config=tower("smolvlm_vision", image_size=98, patch_size=4, num_hidden_layers=2),
        views=[[98, 98, None], [50, 50, None], [98, 98, box(24, 21, 19)]])
    yield "idefics3", images(
        "Idefics3ForConditionalGeneration", "idefics3", torch_dtype="bfloat16", image_token_id=VOCAB - 3,
        vision_config=tower("idefics3_vision", image_size=36, patch_size=6, hidden_act="gelu", intermediate_size=43),
        views=[[36, 36, None], [24, 24, None], [36, 36, box(6, 5, 4)], [24, 24, box(4, 1, 3)]])
    yield "llava", images(
        "LlavaForConditionalGeneration", "llava", image_token_index=VOCAB - 3, torch_dtype="float16",
        vision_config=tower("clip_vision_model", image_size=70, patch_size=14), views=[[70, 70, None], [70, 70, None]])
    yield "llava-full", images(
        "LlavaForConditionalGeneration", "llava", image_token_index=VOCAB - 3, vision_feature_select_strategy="full",
        vision_feature_layer=2, projector_hidden_act="gelu_pytorch_tanh", multimodal_projector_bias=False,
        vision_config=tower("clip_vision_model", image_size=17, patch_size=5, hidden_act="gelu_pytorch_tanh"), views=[[17, 17, None]])
    yield "llava-siglip", images(
        "LlavaForConditionalGeneration", "llava", image_token_index=VOCAB - 3, vision_feature_select_strategy="full",
        vision_feature_layer=-1, new_names=True,
        vision_config=tower("siglip_vision_model", image_size=32, patch_size=8, hidden_act="quick_gelu"), views=[[32, 32, None]])
    tiled = lambda text, **f: images(
        "LlavaNextForConditionalGeneration", "llava_next", image_token_index=VOCAB - 3, text_config=text,
        image_grid_pinpoints=[[21, 42], [42, 21], [42, 42]], **f)
    yield "llava-next", tiled(
        llama(hidden_size=32, intermediate_size=52), torch_dtype="bfloat16", sizes=[[60, 10], [10, 61]], images=[3, 20],
        vision_config=tower("clip_vision_model", image_size=21, patch_size=7), views=[[21, 21, None]] * 6)
    yield "llava-next-square", tiled(
        mistral(hidden_size=32, intermediate_size=52, sliding_window=15), sizes=[[44, 41]], images=[5], new_names=True,
        vision_feature_select_strategy="full", vision_feature_layer=-1,
        vision_config=tower("siglip_vision_model", image_size=21, patch_size=7), views=[[21, 21, None]] * 5)
    yield "llava-next-qwen2", tiled(
        qwen2(hidden_size=32, intermediate_size=52), sizes=[[31, 41]], images=[0],
        vision_config=tower("clip_vision_model", image_size=21, patch_size=7), views=[[21, 21, None]] * 5)
    sections = lambda *n: {"type": "mrope", "mrope_section": list(n)}
    small = {"temporal_patch_size": 2, "patch_size": 4, "spatial_merge_size": 2, "num_heads": 2}
    yield "qwen2-vl", common(
        "Qwen2VLForConditionalGeneration", "qwen2_vl", tie_word_embeddings=True, torch_dtype="bfloat16",
        rope_theta=1000000.0, rope_scaling=sections(2, 1, 3), image_token_id=VOCAB - 3, views=[[40, 24, None]], images=[5],
        vision_config={"depth": 2, "embed_dim": 40, "hidden_size": 48, "mlp_ratio": 2, **small})
    inside = dict(rope_theta="absent", rms_norm_eps="absent", torch_dtype="absent", tie_word_embeddings="absent")
    yield "qwen2-vl-images", {
        "architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl", "torch_dtype": "float32", "new_names": True,
        "image_token_id": VOCAB - 3, "views": [[24, 12, None], [24, 48, None], [12, 12, None]], "images": [0, 9, 20],
        "text_config": common("", "qwen2_vl_text", rope_scaling={"rope_type": "default", "mrope_section": [1, 3, 2]}, **inside),
        "vision_config": {"depth": 3, "embed_dim": 48, "hidden_size": 48, "hidden_act": "gelu", **small, "patch_size": 6, "temporal_patch_size": 3, "num_heads": 4}}
    yield "qwen2.5-vl", common(
        "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", rope_scaling=sections(1, 2, 3), image_token_id=VOCAB - 3,
        views=[[56, 40, None]], images=[3],
        vision_config={"depth": 3, "hidden_size": 40, "intermediate_size": 43, "out_hidden_size": 48, "window_size": 24, "fullatt_block_indexes": [1], **small})
    yield "qwen2.5-vl-images", {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", "torch_dtype": "bfloat16", "new_names": True,
        "image_token_id": VOCAB - 3, "views": [[16, 48, None], [8, 8, None], [72, 16, None]], "images": [2, 14, 23],
        "text_config": common("", "qwen2_5_vl_text", rope_scaling=sections(2, 2, 2), **inside),
        "vision_config": {"depth": 4, "hidden_size": 40, "intermediate_size": 64, "out_hidden_size": 48, "window_size": 20, "fullatt_block_indexes": [0, 2], **small}}
    phi3 = lambda **f: common("Phi3ForCausalLM", "phi3", **f)
    long = dict(
        original_max_position_embeddings=128, rope_scaling={
            "type": "longrope", "short_factor": factors(6, 1.0, 1.3), "long_factor": factors(6, 1.1, 14.0)})
    yield "phi3-long", phi3(**long)
    yield "phi3-short", phi3(served_context=128, **long)
    yield "phi3-partial", phi3(
        head_dim=16, partial_rotary_factor=0.75, sliding_window=9, torch_dtype="bfloat16", num_key_value_heads=4)


def tensors(c):
    """Names, shapes, means and widths, in the order of a published file."""
    family, root, whole = c["architectures"][0], "model.", c
    tied = c.get("tie_word_embeddings", family.startswith("Gemma"))
    if "text_config" in c:
        root = "language_model.model."
        c = c["text_config"]
        if family.startswith("Gemma"):
            c = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, **c}
    if family.startswith(("SmolVLM", "Idefics3")):
        root = "model.text_model."
    if whole.get("new_names"):
        root = "model.language_model."
    h, ffn = c["hidden_size"], c.get("intermediate_size")
    dim = c.get("head_dim") or h // c["num_attention_heads"]
    q, kv = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
    gemma = family.startswith("Gemma")
    out = []

    def matrix(name, rows, cols, deviation=1.0, experts=None):
        shape = [rows, cols] if experts is None else [experts, rows, cols]
        out.append((name, shape, 0.0, round(deviation * math.sqrt(3 / cols), 4)))

    def norm(name, size, mean=1.0, width=0.3):
        out.append((name, [size], mean - 1 if gemma else mean, width))

    def bias(name, size):
        out.append((name, [size], 0.0, 0.3))

    matrix(root + "embed_tokens.weight", c["vocab_size"], h)
    for i in range(c["num_hidden_layers"]):
        p = f"{root}layers.{i}."
        a, m = p + "self_attn.", p + "mlp."
        norm(p + "input_layernorm.weight", h)
        if family == "Phi3ForCausalLM":
            matrix(a + "qkv_proj.weight", q + 2 * kv, h, 1.5)
        else:
            for name, rows, deviation in (("q", q, 1.7), ("k", kv, 1.7), ("v", kv, 1.0)):
                matrix(a + name + "_proj.weight", rows, h, deviation)
                if c["model_type"].startswith("qwen2") or c.get("attention_bias"):
                    bias(a + name + "_proj.bias", rows)
        matrix(a + "o_proj.weight", h, q, 2.0)
        if c.get("attention_bias"):
            bias(a + "o_proj.bias", h)
        if family.startswith(("Qwen3", "Gemma3")):
            norm(a + "q_norm.weight", dim, 1.6)
            norm(a + "k_norm.weight", dim, 1.6)
        norm(p + "post_attention_layernorm.weight", h, 2.5 if gemma else 1.0)
        if gemma:
            norm(p + "pre_feedforward_layernorm.weight", h)
            norm(p + "post_feedforward_layernorm.weight", h, 2.5)
        if family == "MixtralForCausalLM":
            m = p + "block_sparse_moe."
            matrix(m + "gate.weight", c["num_local_experts"], h)
            for e in range(c["num_local_experts"]):
                for name, rows, cols in (("w1", ffn, h), ("w2", h, ffn), ("w3", ffn, h)):
                    matrix(m + f"experts.{e}.{name}.weight", rows, cols, 2.0 if name == "w2" else 1.0)
            continue
        if family == "Qwen3MoeForCausalLM" and (i + 1) % c["decoder_sparse_step"] == 0 and i not in c["mlp_only_layers"]:
            n, inner = c["num_experts"], c["moe_intermediate_size"]
            matrix(m + "gate.weight", n, h)
            if not c.get("norm_topk_prob"):
                matrix(m + "experts.gate_up_proj", 2 * inner, h, 1.0, n)
                matrix(m + "experts.down_proj", h, inner, 3.0, n)
                continue
            for e in range(n):
                for name, rows, cols in (("gate", inner, h), ("up", inner, h), ("down", h, inner)):
                    matrix(m + f"experts.{e}.{name}_proj.weight", rows, cols, 2.0 if name == "down" else 1.0)
            continue
        if family == "Phi3ForCausalLM":
            matrix(m + "gate_up_proj.weight", 2 * ffn, h)
            matrix(m + "down_proj.weight", h, ffn, 2.0)
            continue
        for name, rows, cols in (("gate", ffn, h), ("up", ffn, h), ("down", h, ffn)):
            matrix(m + name + "_proj.weight", rows, cols, 2.0 if name == "down" else 1.0)
            if c.get("mlp_bias"):
                bias(m + name + "_proj.bias", rows)
    norm(root + "norm.weight", h, 3.0)
    if not tied:
        matrix(root.removesuffix("model.") + "lm_head.weight" if root == "language_model.model." else "lm_head.weight", c["vocab_size"], h)
    if "vision_config" in whole:
        vision(whole, h, matrix, norm, bias, out)
    return out


def vision(c, hidden, matrix, norm, bias, out):
    """The tensors of tower and projector."""
    if c["architectures"][0].startswith("Qwen"):
        qwen_vision(c, hidden, matrix, norm, bias, out)
        return
    family, v = c["architectures"][0], c["vision_config"]
    clip, h, side = v["model_type"] == "clip_vision_model", v["hidden_size"], v["image_size"] // v["patch_size"]
    smol = family.startswith(("SmolVLM", "Idefics3"))
    root = "model.vision_model." if smol else "vision_tower.vision_model."
    project = "model.connector." if smol else "multi_modal_projector."
    if c.get("new_names"):
        root, project = "model." + root, "model." + project

    def layer_norm(name):
        out.append((name + ".weight", [h], 1.0, 0.3))
        bias(name + ".bias", h)

    def linear(name, rows, cols, deviation=1.0, has_bias=True):
        matrix(name + ".weight", rows, cols, deviation)
        if has_bias:
            bias(name + ".bias", rows)

    values = 3 * v["patch_size"] ** 2
    out.append((root + "embeddings.patch_embedding.weight", [h, 3, v["patch_size"], v["patch_size"]], 0.0, round(math.sqrt(3 / values), 4)))
    if clip:
        out.append((root + "embeddings.class_embedding", [h], 0.0, 1.5))
    else:
        bias(root + "embeddings.patch_embedding.bias", h)
    out.append((root + "embeddings.position_embedding.weight", [side * side + clip, h], 0.0, 1.5))
    if clip:
        layer_norm(root + "pre_layrnorm")
    for i in range(v["num_hidden_layers"]):
        p = f"{root}encoder.layers.{i}."
        layer_norm(p + "layer_norm1")
        for name, deviation in (("q", 1.7), ("k", 1.7), ("v", 1.0), ("out", 2.0)):
            linear(p + f"self_attn.{name}_proj", h, h, deviation)
        layer_norm(p + "layer_norm2")
        linear(p + "mlp.fc1", v["intermediate_size"], h, 1.5)
        linear(p + "mlp.fc2", h, v["intermediate_size"], 2.0)
    layer_norm(root + "post_layernorm")
    if smol:
        linear(project + "modality_projection.proj", hidden, h * c.get("scale_factor", 2) ** 2, has_bias=False)
    elif family.startswith("Llava"):
        linear(project + "linear_1", hidden, h, has_bias=c.get("multimodal_projector_bias", True))
        linear(project + "linear_2", hidden, hidden, has_bias=c.get("multimodal_projector_bias", True))
        if family.startswith("LlavaNext"):
            out.append((project.removesuffix("multi_modal_projector.") + "image_newline", [hidden], 0.0, 1.5))
    else:
        norm(project + "mm_soft_emb_norm.weight", h)
        out.append((project + "mm_input_projection_weight", [h, hidden], 0.0, round(math.sqrt(3 / h), 4)))


def qwen_vision(c, hidden, matrix, norm, bias, out):
    v, newer = c["vision_config"], c["architectures"][0].startswith("Qwen2_5")
    root = "model.visual." if c.get("new_names") else "visual."
    h = v["hidden_size"] if newer else v["embed_dim"]
    ffn = v["intermediate_size"] if newer else h * v.get("mlp_ratio", 4)

    def layer_norm(name):
        norm(name + ".weight", h)
        if not newer:
            bias(name + ".bias", h)

    def linear(name, rows, cols, deviation=1.0):
        matrix(name + ".weight", rows, cols, deviation)
        bias(name + ".bias", rows)

    shape = [h, 3, v["temporal_patch_size"], v["patch_size"], v["patch_size"]]
    out.append((root + "patch_embed.proj.weight", shape, 0.0, round(math.sqrt(3 / math.prod(shape[1:])), 4)))
    for i in range(v["depth"]):
        p = f"{root}blocks.{i}."
        layer_norm(p + "norm1")
        layer_norm(p + "norm2")
        linear(p + "attn.qkv", 3 * h, h, 1.5)
        linear(p + "attn.proj", h, h, 2.0)
        if newer:
            linear(p + "mlp.gate_proj", ffn, h)
            linear(p + "mlp.up_proj", ffn, h)
            linear(p + "mlp.down_proj", h, ffn, 2.0)
        else:
            linear(p + "mlp.fc1", ffn, h, 1.5)
            linear(p + "mlp.fc2", h, ffn, 2.0)
    layer_norm(root + "merger.ln_q")
    inner = h * v["spatial_merge_size"] ** 2
    linear(root + "merger.mlp.0", inner, inner)
    linear(root + "merger.mlp.2", hidden, inner)

"""One function per family: config and weights in, logits of all positions out.

Each is written out in full from the family's own published description and names
what is easy to get wrong. None knows that the others exist.
"""

import math

import torch

from parts import (attention, cap, experts, gelu_tanh, gemma_norm, linear_freqs, llama3_freqs, longrope_freqs,
                   mlp, plain_freqs, rms_norm, rotate, rotate_by, silu, yarn_freqs)
from weights import DTYPES


def heads_of(x, dim):
    return x.reshape(x.shape[0], -1, dim)


def linear(w, name, x):
    y = x @ w[name + ".weight"].T
    bias = w.get(name + ".bias")
    return y if bias is None else y + bias


def head(c, w, x, tied):
    return x @ w["model.embed_tokens.weight" if c.get("tie_word_embeddings", tied) else "lm_head.weight"].T


def placed(x, images):
    """Rows of images in place of embeddings: images are [start, rows]."""
    for start, rows in images:
        x[start : start + len(rows)] = rows
    return x


def llama(c, w, ids, images=()):
    # rope_theta is 10000 when absent (Llama 2). Biases are those of the file; they
    # are on the output too, unlike Qwen2's.
    dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    theta, s, factor = c.get("rope_theta", 10000.0), c.get("rope_scaling"), 1.0
    kind = s and (s.get("rope_type") or s.get("type"))
    if kind == "llama3":
        freqs = llama3_freqs(theta, dim, s)
    elif kind == "linear":
        freqs = linear_freqs(theta, dim, s["factor"])
    elif kind == "yarn":
        freqs, factor = yarn_freqs(theta, dim, s)
    else:
        freqs = plain_freqs(theta, dim)
    eps = c["rms_norm_eps"]
    x = placed(w["model.embed_tokens.weight"][ids], images)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        n = rms_norm(x, w[p + "input_layernorm.weight"], eps)
        q = rotate(heads_of(linear(w, p + "self_attn.q_proj", n), dim), freqs, factor)
        k = rotate(heads_of(linear(w, p + "self_attn.k_proj", n), dim), freqs, factor)
        v = heads_of(linear(w, p + "self_attn.v_proj", n), dim)
        x = x + linear(w, p + "self_attn.o_proj", attention(q, k, v, dim**-0.5))
        n = rms_norm(x, w[p + "post_attention_layernorm.weight"], eps)
        a = silu(linear(w, p + "mlp.gate_proj", n)) * linear(w, p + "mlp.up_proj", n)
        x = x + linear(w, p + "mlp.down_proj", a)
    return head(c, w, rms_norm(x, w["model.norm.weight"], eps), False)


def mistral(c, w, ids, images=()):
    # The window is that of all layers; absent it is 4096, null switches it off.
    # head_dim times heads need not be the hidden size.
    dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    window = c.get("sliding_window", 4096)
    freqs, eps = plain_freqs(c["rope_theta"], dim), c["rms_norm_eps"]
    x = placed(w["model.embed_tokens.weight"][ids], images)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        n = rms_norm(x, w[p + "input_layernorm.weight"], eps)
        q = rotate(heads_of(n @ w[p + "self_attn.q_proj.weight"].T, dim), freqs)
        k = rotate(heads_of(n @ w[p + "self_attn.k_proj.weight"].T, dim), freqs)
        v = heads_of(n @ w[p + "self_attn.v_proj.weight"].T, dim)
        x = x + attention(q, k, v, dim**-0.5, window) @ w[p + "self_attn.o_proj.weight"].T
        n = rms_norm(x, w[p + "post_attention_layernorm.weight"], eps)
        x = x + mlp(n, *(w[p + f"mlp.{m}_proj.weight"] for m in ("gate", "up", "down")))
    return head(c, w, rms_norm(x, w["model.norm.weight"], eps), False)


def mixtral(c, w, ids):
    # w1 is the gate, w3 is up, w2 is down. Shares always add up to one. The window
    # is off when absent, unlike Mistral's.
    dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    window = c.get("sliding_window")
    freqs, eps = plain_freqs(c["rope_theta"], dim), c["rms_norm_eps"]
    x = w["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        n = rms_norm(x, w[p + "input_layernorm.weight"], eps)
        q = rotate(heads_of(n @ w[p + "self_attn.q_proj.weight"].T, dim), freqs)
        k = rotate(heads_of(n @ w[p + "self_attn.k_proj.weight"].T, dim), freqs)
        v = heads_of(n @ w[p + "self_attn.v_proj.weight"].T, dim)
        x = x + attention(q, k, v, dim**-0.5, window) @ w[p + "self_attn.o_proj.weight"].T
        n = rms_norm(x, w[p + "post_attention_layernorm.weight"], eps)
        m = p + "block_sparse_moe."

        def expert(e, rows):
            return mlp(rows, *(w[m + f"experts.{e}.{name}.weight"] for name in ("w1", "w3", "w2")))

        x = x + experts(n, w[m + "gate.weight"], c.get("num_experts_per_tok", 2), True, expert)
    return head(c, w, rms_norm(x, w["model.norm.weight"], eps), False)


def qwen2(c, w, ids, images=()):
    # q, k and v have biases that the config does not mention, o has none. The layers
    # from max_window_layers on slide, those before see everything, and nothing
    # slides unless use_sliding_window says so.
    dim = c["hidden_size"] // c["num_attention_heads"]
    theta, s, factor = c.get("rope_theta", 10000.0), c.get("rope_scaling"), 1.0
    if s:
        freqs, factor = yarn_freqs(theta, dim, s)
    else:
        freqs = plain_freqs(theta, dim)
    eps = c["rms_norm_eps"]
    x = placed(w["model.embed_tokens.weight"][ids], images)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        window = c["sliding_window"] if c.get("use_sliding_window") and i >= c["max_window_layers"] else None
        n = rms_norm(x, w[p + "input_layernorm.weight"], eps)
        qkv = [n @ w[p + f"self_attn.{m}_proj.weight"].T + w[p + f"self_attn.{m}_proj.bias"] for m in "qkv"]
        q, k, v = (heads_of(m, dim) for m in qkv)
        a = attention(rotate(q, freqs, factor), rotate(k, freqs, factor), v, dim**-0.5, window)
        x = x + a @ w[p + "self_attn.o_proj.weight"].T
        n = rms_norm(x, w[p + "post_attention_layernorm.weight"], eps)
        x = x + mlp(n, *(w[p + f"mlp.{m}_proj.weight"] for m in ("gate", "up", "down")))
    return head(c, w, rms_norm(x, w["model.norm.weight"], eps), False)


def qwen3(c, w, ids):
    # Queries and keys are normalized per head before they are rotated. head_dim is
    # 128 when absent, whatever the hidden size.
    dim = c.get("head_dim", 128)
    freqs, eps = plain_freqs(c["rope_theta"], dim), c["rms_norm_eps"]
    x = w["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        n = rms_norm(x, w[p + "input_layernorm.weight"], eps)
        q = rms_norm(heads_of(n @ w[p + "self_attn.q_proj.weight"].T, dim), w[p + "self_attn.q_norm.weight"], eps)
        k = rms_norm(heads_of(n @ w[p + "self_attn.k_proj.weight"].T, dim), w[p + "self_attn.k_norm.weight"], eps)
        v = heads_of(n @ w[p + "self_attn.v_proj.weight"].T, dim)
        a = attention(rotate(q, freqs), rotate(k, freqs), v, dim**-0.5)
        x = x + a @ w[p + "self_attn.o_proj.weight"].T
        n = rms_norm(x, w[p + "post_attention_layernorm.weight"], eps)
        x = x + mlp(n, *(w[p + f"mlp.{m}_proj.weight"] for m in ("gate", "up", "down")))
    return head(c, w, rms_norm(x, w["model.norm.weight"], eps), False)


def qwen3_moe(c, w, ids):
    # Layer i is sparse when decoder_sparse_step divides i + 1 (not i) and
    # mlp_only_layers does not list it. norm_topk_prob is false when absent: shares
    # then add up to less than one. Stacked experts hold gate rows, then up rows.
    dim = c["head_dim"]
    freqs, eps = plain_freqs(c["rope_theta"], dim), c["rms_norm_eps"]
    width = c["moe_intermediate_size"]
    x = w["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        n = rms_norm(x, w[p + "input_layernorm.weight"], eps)
        q = rms_norm(heads_of(n @ w[p + "self_attn.q_proj.weight"].T, dim), w[p + "self_attn.q_norm.weight"], eps)
        k = rms_norm(heads_of(n @ w[p + "self_attn.k_proj.weight"].T, dim), w[p + "self_attn.k_norm.weight"], eps)
        v = heads_of(n @ w[p + "self_attn.v_proj.weight"].T, dim)
        a = attention(rotate(q, freqs), rotate(k, freqs), v, dim**-0.5)
        x = x + a @ w[p + "self_attn.o_proj.weight"].T
        n = rms_norm(x, w[p + "post_attention_layernorm.weight"], eps)
        m = p + "mlp."
        if (i + 1) % c.get("decoder_sparse_step", 1) != 0 or i in c.get("mlp_only_layers", []):
            x = x + mlp(n, *(w[m + f"{name}_proj.weight"] for name in ("gate", "up", "down")))
            continue

        def expert(e, rows):
            stacked = w.get(m + "experts.gate_up_proj")
            if stacked is not None:
                return mlp(rows, stacked[e, :width], stacked[e, width:], w[m + "experts.down_proj"][e])
            return mlp(rows, *(w[m + f"experts.{e}.{name}_proj.weight"] for name in ("gate", "up", "down")))

        x = x + experts(n, w[m + "gate.weight"], c["num_experts_per_tok"], c.get("norm_topk_prob", False), expert)
    return head(c, w, rms_norm(x, w["model.norm.weight"], eps), False)


def gemma_embed(c, w, name, ids, dtype):
    # The factor is rounded to the type of the weights: 55.5 for √3072 in bf16.
    return w[name][ids] * torch.tensor(c["hidden_size"] ** 0.5, dtype=DTYPES[dtype]).float()


def gemma2(c, w, ids):
    # Four norms a layer, all 1 + weight; the two "post" ones act on the output of
    # attention and MLP before the residual is added. Even layers slide. The scale is
    # that of query_pre_attn_scalar, not of head_dim. Scores are capped before the
    # mask, logits at the end; null switches a cap off, absence does not.
    dim, eps = c["head_dim"], c["rms_norm_eps"]
    freqs = plain_freqs(c.get("rope_theta", 10000.0), dim)
    scale = c.get("query_pre_attn_scalar", 256) ** -0.5
    limit = c.get("attn_logit_softcapping", 50.0)
    x = gemma_embed(c, w, "model.embed_tokens.weight", ids, c["torch_dtype"])
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        window = c["sliding_window"] if i % 2 == 0 else None
        n = gemma_norm(x, w[p + "input_layernorm.weight"], eps)
        q = rotate(heads_of(n @ w[p + "self_attn.q_proj.weight"].T, dim), freqs)
        k = rotate(heads_of(n @ w[p + "self_attn.k_proj.weight"].T, dim), freqs)
        v = heads_of(n @ w[p + "self_attn.v_proj.weight"].T, dim)
        a = attention(q, k, v, scale, window, limit) @ w[p + "self_attn.o_proj.weight"].T
        x = x + gemma_norm(a, w[p + "post_attention_layernorm.weight"], eps)
        n = gemma_norm(x, w[p + "pre_feedforward_layernorm.weight"], eps)
        a = mlp(n, *(w[p + f"mlp.{m}_proj.weight"] for m in ("gate", "up", "down")), gelu_tanh)
        x = x + gemma_norm(a, w[p + "post_feedforward_layernorm.weight"], eps)
    logits = head(c, w, gemma_norm(x, w["model.norm.weight"], eps), True)
    return cap(logits, c.get("final_logit_softcapping", 30.0))


def gemma3(c, w, ids, images=()):
    # As Gemma 2 with norms (1 + weight) on queries and keys and without caps. Layers
    # with a window turn by rope_local_base_freq unscaled, the others by rope_theta
    # with rope_scaling. Without layer_types every sliding_window_pattern-th layer,
    # counted from one, sees everything. Rows of an image are not multiplied as embeddings
    # are, and see each other in layers of both kinds.
    root = "model."
    if "text_config" in c:
        root, dtype, c = "language_model.model.", c["torch_dtype"], c["text_config"]
    else:
        dtype = c["torch_dtype"]
    dim, eps = c.get("head_dim", 256), c.get("rms_norm_eps", 1e-6)
    sets = c.get("rope_parameters")
    if sets:
        local = plain_freqs(sets["sliding_attention"]["rope_theta"], dim)
        scaling, theta = sets["full_attention"], sets["full_attention"]["rope_theta"]
    else:
        local = plain_freqs(c.get("rope_local_base_freq", 10000.0), dim)
        scaling, theta = c.get("rope_scaling"), c.get("rope_theta", 1000000.0)
    far = linear_freqs(theta, dim, scaling["factor"]) if scaling else plain_freqs(theta, dim)
    scale = c.get("query_pre_attn_scalar", 256) ** -0.5
    types, pattern = c.get("layer_types"), c.get("sliding_window_pattern", 6)
    x = placed(gemma_embed(c, w, root + "embed_tokens.weight", ids, dtype), images)
    groups = [(start, start + len(rows)) for start, rows in images]
    for i in range(c["num_hidden_layers"]):
        p = f"{root}layers.{i}."
        slides = types[i] == "sliding_attention" if types else (i + 1) % pattern != 0
        freqs, window = (local, c["sliding_window"]) if slides else (far, None)
        n = gemma_norm(x, w[p + "input_layernorm.weight"], eps)
        q = gemma_norm(heads_of(n @ w[p + "self_attn.q_proj.weight"].T, dim), w[p + "self_attn.q_norm.weight"], eps)
        k = gemma_norm(heads_of(n @ w[p + "self_attn.k_proj.weight"].T, dim), w[p + "self_attn.k_norm.weight"], eps)
        v = heads_of(n @ w[p + "self_attn.v_proj.weight"].T, dim)
        a = attention(rotate(q, freqs), rotate(k, freqs), v, scale, window, None, groups) @ w[p + "self_attn.o_proj.weight"].T
        x = x + gemma_norm(a, w[p + "post_attention_layernorm.weight"], eps)
        n = gemma_norm(x, w[p + "pre_feedforward_layernorm.weight"], eps)
        a = mlp(n, *(w[p + f"mlp.{m}_proj.weight"] for m in ("gate", "up", "down")), gelu_tanh)
        x = x + gemma_norm(a, w[p + "post_feedforward_layernorm.weight"], eps)
    return gemma_norm(x, w[root + "norm.weight"], eps) @ w[root + "embed_tokens.weight"].T


def phi3(c, w, ids):
    # qkv_proj holds the rows of q, then k, then v; gate_up_proj those of gate, then
    # up. A partial rotation turns the first values of a head, in halves of that part.
    # The long factors serve contexts above the original one: all sequences of a
    # server, because cached keys cannot be turned again. The window is off when
    # absent.
    dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    turned = int(dim * c.get("partial_rotary_factor", 1.0))
    s, factor = c.get("rope_scaling"), 1.0
    if s:
        original = c["original_max_position_embeddings"]
        served = c.get("served_context", c["max_position_embeddings"])
        factors = s["long_factor"] if served > original else s["short_factor"]
        freqs, factor = longrope_freqs(c["rope_theta"], turned, factors, c["max_position_embeddings"], original)
    else:
        freqs = plain_freqs(c["rope_theta"], turned)
    eps = c["rms_norm_eps"]
    rows, kv_rows = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
    x = w["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        n = rms_norm(x, w[p + "input_layernorm.weight"], eps)
        q, k, v = (n @ w[p + "self_attn.qkv_proj.weight"].T).split([rows, kv_rows, kv_rows], -1)
        q, k = rotate(heads_of(q, dim), freqs, factor), rotate(heads_of(k, dim), freqs, factor)
        a = attention(q, k, heads_of(v, dim), dim**-0.5, c.get("sliding_window"))
        x = x + a @ w[p + "self_attn.o_proj.weight"].T
        n = rms_norm(x, w[p + "post_attention_layernorm.weight"], eps)
        gate, up = w[p + "mlp.gate_up_proj.weight"].chunk(2)
        x = x + mlp(n, gate, up, w[p + "mlp.down_proj.weight"])
    return head(c, w, rms_norm(x, w["model.norm.weight"], eps), False)


def grid_positions(n, images):
    """Three numbers for each of n tokens, for time, height and width. Text counts up in all of
    them. Rows of an image count along the sides of its grid, from where the text would go on,
    and the text behind it begins one above the largest number so far."""
    out = []
    for start, rows in images:
        text = max(map(max, out), default=-1) + 1
        out += [[text + i] * 3 for i in range(start - len(out))]
        first = max(map(max, out), default=-1) + 1
        height, width = rows.grid
        out += [[first, first + y, first + x] for y in range(height) for x in range(width)]
    text = max(map(max, out), default=-1) + 1
    out += [[text + i] * 3 for i in range(n - len(out))]
    return torch.tensor(out)


def qwen2_vl(c, w, ids, images=()):
    # A Qwen2 whose pairs turn by three positions in sections. The fields of the text model
    # are at the top of older files. eps is 1e-5 and rope_theta a million when absent.
    root, tied = "model.", c.get("tie_word_embeddings", False)
    if "text_config" in c:
        root, c = "model.language_model.", c["text_config"]
    dim = c["hidden_size"] // c["num_attention_heads"]
    freqs, sections = plain_freqs(c.get("rope_theta", 1e6), dim), c["rope_scaling"]["mrope_section"]
    eps = c.get("rms_norm_eps", 1e-5)
    x = w[root + "embed_tokens.weight"][ids]
    for start, rows in images:
        x[start : start + len(rows)] = rows
    at = grid_positions(len(ids), images)
    for i in range(c["num_hidden_layers"]):
        p = f"{root}layers.{i}."
        n = rms_norm(x, w[p + "input_layernorm.weight"], eps)
        q, k, v = (heads_of(linear(w, p + f"self_attn.{m}_proj", n), dim) for m in "qkv")
        a = attention(rotate_by(q, freqs, sections, at), rotate_by(k, freqs, sections, at), v, dim**-0.5)
        x = x + linear(w, p + "self_attn.o_proj", a)
        n = rms_norm(x, w[p + "post_attention_layernorm.weight"], eps)
        x = x + mlp(n, *(w[p + f"mlp.{m}_proj.weight"] for m in ("gate", "up", "down")))
    x = rms_norm(x, w[root + "norm.weight"], eps)
    return x @ w[root + "embed_tokens.weight" if tied else "lm_head.weight"].T


def llama_inside(root, head):
    """The Llama, or another decoder, of a model that reads images: names have other
    beginnings."""

    def forward(c, w, ids, images=()):
        inner = {"model." + k[len(root) :]: v for k, v in w.items() if k.startswith(root)}
        inner["lm_head.weight"] = w[head]
        text = {"llama": llama, "mistral": mistral, "qwen2": qwen2}[c["text_config"].get("model_type", "llama")]
        return text(c["text_config"], inner, ids, images)

    return forward


def llava(c, w, ids, images=()):
    new = "model.language_model.embed_tokens.weight" in w
    inside = llama_inside("model.language_model.", "lm_head.weight") if new else llama_inside(
        "language_model.model.", "language_model.lm_head.weight")
    return inside(c, w, ids, images)


FAMILIES = {
    "SmolVLMForConditionalGeneration": llama_inside("model.text_model.", "lm_head.weight"),
    "Idefics3ForConditionalGeneration": llama_inside("model.text_model.", "lm_head.weight"),
    "LlavaForConditionalGeneration": llava,
    "LlavaNextForConditionalGeneration": llava,
    "LlamaForCausalLM": llama,
    "MistralForCausalLM": mistral,
    "MixtralForCausalLM": mixtral,
    "Qwen2ForCausalLM": qwen2,
    "Qwen2VLForConditionalGeneration": qwen2_vl,
    "Qwen2_5_VLForConditionalGeneration": qwen2_vl,
    "Qwen3ForCausalLM": qwen3,
    "Qwen3MoeForCausalLM": qwen3_moe,
    "Gemma2ForCausalLM": gemma2,
    "Gemma3ForCausalLM": gemma3,
    "Gemma3ForConditionalGeneration": gemma3,
    "Phi3ForCausalLM": phi3,
}

"""tests/data/families.py: the tiny models, at least one for every name in models/arch.def. Used by make.py.

Each function writes a family's forward pass with the parts of reference.py and returns the logits. Sources: the
papers and published code of each family. A case is named after its function unless CASES says otherwise.
"""
import numpy as np
from reference import Model, V, f32, gelu, relu2, sigmoid, silu, softmax, softplus  # noqa: F401


def pre_norm(m, x, attn, ffn, second="ffn_norm", scale=1.0, post=(None, None)):
    """x += attn(norm x); x += ffn(norm x), for every block."""
    after = lambda y, i, name: m.norm(y, f"blk.{i}.{name}") if name else y
    for i in range(m.L):
        x = x + scale * after(attn(i, m.norm(x, f"blk.{i}.attn_norm")), i, post[0])
        x = x + scale * after(ffn(i, m.norm(x, f"blk.{i}.{second}")), i, post[1])
    return x


def llama(m, moe=False, skip=0, factors=False, linear=0, yarn=None, yarn_log=0, temperature=0, tied=False, n=64, F=96,
          L=2, KV=2, alibi=0, relu=False, norms=""):
    m.common(L=L, n=n, F=F, KV=KV)
    how = {}
    if factors:
        how["divide"] = m.weight("rope_freqs", m.d // 2, scale=0.3, offset=2.0)
    if linear:
        m.key("rope.scaling.type", "linear")
        how["divide"], how["mag"] = m.key("rope.scaling.factor", linear), m.key("rope.scaling.attn_factor", 1.1)
    if yarn:
        m.key("rope.scaling.type", "yarn")
        m.key("rope.scaling.factor", yarn[0]), m.key("rope.scaling.original_context_length", yarn[1])
        mag = 1 + 0.1 * np.log(yarn[0])
        if yarn_log:
            mag /= 1 + 0.1 * m.key("rope.scaling.yarn_log_multiplier", yarn_log) * np.log(yarn[0])
        how.update(yarn=yarn, mag=mag)
    t = (m.key("attention.temperature_scale", temperature), yarn[1]) if temperature else None
    if moe:
        m.experts()
    rope = m.rope(**how)
    has_rope = lambda i: not alibi and not (skip and (i + 1) % skip == 0)
    attn = lambda i, h: m.attention(i, h, rope if has_rope(i) else None, neox=False, temperature=t, alibi=alibi, norms=norms)
    ffn = (lambda i, h: m.ffn(i, h, relu2, "plain")) if relu else m.moe if moe else m.ffn
    return m.head(pre_norm(m, m.embed(), attn, ffn), tied=tied)


def deci(m, H=(0, 4, 4, 0, 4), KV=(0, 2, 0, 0, 4), F=(96, 48, 96, 0, 0)):
    """Blocks without attention, with one matrix in its place, without feed-forward, and without both."""
    m.common(L=5, d=16)
    m.key("attention.head_count", list(H)), m.key("attention.head_count_kv", list(KV))
    m.key("feed_forward_length", list(F))
    rope, x = m.rope(divide=m.weight("rope_freqs", 8, scale=0.3, offset=2.0)), m.embed()
    for i in range(m.L):
        b = f"blk.{i}."
        if H[i]:
            h = m.norm(x, b + "attn_norm")
            x = x + (m.attention(i, h, rope, neox=False, KV=KV[i]) if KV[i] else m.mm(b + "attn_output", h, m.n))
        if F[i]:
            x = x + m.ffn(i, m.norm(x, b + "ffn_norm"), F=F[i])
    return m.head(x)


def deepseek1(m, dense=1, KV=4, normalise=False):
    m.common(L=3, KV=KV)
    m.experts(shared=48, shared_count=1)
    if dense:
        m.key("leading_dense_block_count", dense)
    if normalise:
        m.key("expert_weights_norm", True)
    rope = m.rope()
    ffn = lambda i, h: m.moe(i, h, normalise=normalise) if i >= dense else m.ffn(i, h)
    return m.head(pre_norm(m, m.embed(), lambda i, h: m.attention(i, h, rope, neox=False), ffn))


def ernie(m, moe=False):
    m.common(L=3)
    if moe:
        m.experts(shared=48, shared_feed_forward_length=48), m.key("leading_dense_block_count", 1)
    rope = m.rope()
    ffn = lambda i, h: m.moe(i, h, choose_bias=True) if moe and i >= 1 else m.ffn(i, h)
    return m.head(pre_norm(m, m.embed(), lambda i, h: m.attention(i, h, rope, neox=False), ffn))


def granite(m, moe=False, hybrid=False, n=64):
    KV = [0, 2, 0] if hybrid else [2, 2, 2]
    m.common(L=3, KV=KV if hybrid else 2)
    m.KV = 2
    if moe:
        m.experts(shared=32, shared_feed_forward_length=32)
    if hybrid:
        m.mamba2_keys()
    if hybrid and moe:
        m.key("rope.scaling.finetuned", False)
    rope = None if hybrid and moe else m.rope()
    if m.arch == "minicpm":
        m.key("rope.scaling.type", "longrope"), m.key("rope.scaling.original_context_length", 4096)
        m.weight("rope_factors_long", m.d // 2, scale=0.2, offset=4.0)
        rope = m.rope(divide=m.weight("rope_factors_short", m.d // 2, scale=0.2, offset=1.5))
    scale = None if m.arch == "minicpm" else m.key("attention.scale", 0.3)
    mix = lambda i, h: m.attention(i, h, rope, neox=False, scale=scale) if KV[i] else m.mamba2(i, h)
    x = m.embed(m.key("embedding_scale", 1.5))
    x = pre_norm(m, x, mix, m.moe if moe else m.ffn, scale=m.key("residual_scale", 0.6))
    return m.head(x, tied=True, scale=1 / m.key("logit_scale", 3.0))


def qwen(m, bias=False, norms="", moe=None, second="ffn_norm", sections=False, D=0, d=None, n=64, F=96, L=2,
         factors=False, KV=2, out_bias=False):
    m.common(L=L, n=n, F=F, d=d, KV=KV)
    if D:
        m.key("rope.dimension_count", D)
    if sections:
        m.key("rope.dimension_sections", [4, 2, 2, 0])
    if moe:
        m.experts(**moe[0])
    rope = m.rope(D or None, divide=m.weight("rope_freqs", m.d // 2, scale=0.3, offset=2.0) if factors else None)
    ffn = (lambda i, h: m.moe(i, h, **moe[1])) if moe else m.ffn
    attn = lambda i, h: m.attention(i, h, rope, bias=bias, norms=norms, out_bias=out_bias)
    return m.head(pre_norm(m, m.embed(), attn, ffn, second))


def mellum(m):
    m.common(L=4, d=16), m.experts()
    m.key("attention.sliding_window", 8)
    m.key("rope.scaling.type", "yarn"), m.key("rope.scaling.factor", 4.0)
    m.key("rope.scaling.original_context_length", 16)
    full, short = m.rope(yarn=(4.0, 16), mag=1 + 0.1 * np.log(4)), m.rope()
    attn = lambda i, h: m.attention(i, h, short if i % 4 < 3 else full, norms="head", window=8 if i % 4 < 3 else 0)
    return m.head(pre_norm(m, m.embed(), attn, m.moe))


def delta(m, is_next=False, moe=False, attends=(1, 3), fused=False):
    m.common(L=4, d=16)
    m.key("full_attention_interval", 2)
    if attends != (1, 3):
        m.key("attention.recurrent_layers", [i not in attends for i in range(4)])
    K, S, G, R = m.delta = (4, 16, 2, 4)
    for name, value in (("conv_kernel", K), ("state_size", S), ("group_count", G), ("time_step_rank", R),
                        ("inner_size", S * R)):
        m.key("ssm." + name, value)
    m.key("rope.dimension_count", 8)
    if not is_next:
        m.key("rope.dimension_sections", [2, 1, 1, 0])
    if moe:
        m.experts(shared=32, shared_feed_forward_length=32)
    rope = m.rope(8)
    mix = lambda i, h: (m.attention(i, h, rope, norms="head", gated=True, fused=fused) if i in attends
                        else m.delta_net(i, h, is_next))
    ffn = (lambda i, h: m.moe(i, h, shared_gate=True)) if moe else m.ffn
    return m.head(pre_norm(m, m.embed(), mix, ffn, "post_attention_norm"))


def gemma(m, generation=1):
    m.common(L=3 if generation < 3 else 6, d=16)
    window = m.key("attention.sliding_window", 8) if generation > 1 else 0
    caps = (m.key("attn_logit_softcapping", 3.0), m.key("final_logit_softcapping", 5.0)) if generation == 2 else (0, 0)
    period = (1, 2, 6)[generation - 1]
    ropes = [m.rope(base=m.key("rope.freq_base", 1e6)), m.rope(base=1e4)] if generation == 3 else [m.rope()] * 2
    def attn(i, h):
        short = i % period < period - 1
        return m.attention(i, h, ropes[short], window=window if short else 0, cap=caps[0],
                           norms="head" if generation == 3 else "")
    post = ("post_attention_norm", "post_ffw_norm") if generation > 1 else (None, None)
    x = pre_norm(m, m.embed(np.sqrt(m.n)), attn, lambda i, h: m.ffn(i, h, gelu), post=post)
    return m.head(x, tied=True, cap=caps[1])


def gemma4(m, moe=False):
    k, e = (0, 0) if moe else (2, 8)
    m.common(L=6, d=32)
    m.key("attention.key_length_swa", 16), m.key("attention.value_length_swa", 16)
    m.key("rope.dimension_count", 32), m.key("rope.dimension_count_swa", 16)
    m.key("rope.freq_base", 1e6), m.key("rope.freq_base_swa", 1e4)
    m.key("attention.sliding_window", 8)
    short = [i % 2 == 0 for i in range(6)]
    m.key("attention.sliding_window_pattern", short)
    m.key("attention.shared_kv_layers", k), m.key("embedding_length_per_layer_input", e)
    cap = m.key("final_logit_softcapping", 5.0)
    if moe:
        m.experts()
    ropes = m.rope(32, 1e6, divide=m.weight("rope_freqs", 16, scale=0.2, offset=1.0)), m.rope(16, 1e4)
    x = m.embed(np.sqrt(m.n))
    T, u = len(x), None
    if e:
        u = m.mm("per_layer_model_proj", x, e * m.L).reshape(T, m.L, e) / np.sqrt(m.n)
        table = m.weight("per_layer_token_embd", e * m.L, V, scale=1.0)[m.ids].reshape(T, m.L, e)
        u = (m.norm(u, "per_layer_proj_norm") + np.sqrt(e) * table) / np.sqrt(2)
    owned = {}
    for i in range(m.L):
        b, d, rope = f"blk.{i}.", 16 if short[i] else 32, ropes[short[i]]
        h = m.norm(x, b + "attn_norm")
        heads = lambda y: y.reshape(T, -1, d)
        q = m.rotate(m.norm(heads(m.mm(b + "attn_q", h, m.H * d)), b + "attn_q_norm"), rope, True)
        if i < m.L - k:
            kk = heads(m.mm(b + "attn_k", h, m.KV * d))
            v = kk if moe and not short[i] else heads(m.mm(b + "attn_v", h, m.KV * d))
            owned[short[i]] = m.rotate(m.norm(kk, b + "attn_k_norm"), rope, True), m.norm(v, "")
        o = m.scores(q, *owned[short[i]], scale=1.0, window=8 if short[i] else 0)
        x = x + m.norm(m.mm(b + "attn_output", o, m.n), b + "post_attention_norm")
        f = m.ffn(i, m.norm(x, b + "ffn_norm"), gelu)
        if moe:
            r = m.norm(x, "") / np.sqrt(m.n) * m.weight(b + "ffn_gate_inp.scale", m.n, scale=0.2, offset=8.0)
            y = m.moe(i, m.norm(x, b + "pre_ffw_norm_2"), act=gelu, joined=True, router_in=r, down_scale=True)
            f = m.norm(f, b + "post_ffw_norm_1") + m.norm(y, b + "post_ffw_norm_2")
        x = x + m.norm(f, b + "post_ffw_norm")
        if e:
            g = gelu(m.mm(b + "inp_gate", x, e)) * u[:, i]
            x = x + m.norm(m.mm(b + "proj", g, m.n), b + "post_norm")
        x = x * m.weight(b + "layer_output_scale", 1, scale=0.1, offset=0.9)
    return m.head(x, tied=True, cap=cap)


def gpt_oss(m, number_format=False):
    m.common(L=2, d=16)
    m.experts(**(dict(Fe=64) if number_format else {}))
    m.key("attention.sliding_window", 8)
    m.key("rope.scaling.type", "yarn"), m.key("rope.scaling.factor", 4.0)
    m.key("rope.scaling.original_context_length", 16)
    rope = m.rope(yarn=(4.0, 16), mag=1 + 0.1 * np.log(4))
    attn = lambda i, h: m.attention(i, h, rope, bias=True, out_bias=True, sinks=True, window=8 if i % 2 == 0 else 0)
    return m.head(pre_norm(m, m.embed(), attn, lambda i, h: m.moe(i, h, score="after", oai=True),
                           "post_attention_norm"))


def deepseek(m, is_mistral=False, lite=False):
    m.common(L=3)
    rq, r, dk, dv, D = m.mla = (0 if lite else 32, 32, 24, 16, 8)
    m.key("attention.head_count_kv", 1)
    m.key("attention.key_length", r + D), m.key("attention.value_length", r)
    m.key("attention.key_length_mla", dk), m.key("attention.value_length_mla", dv), m.key("attention.kv_lora_rank", r)
    if rq:
        m.key("attention.q_lora_rank", rq)
    m.key("rope.dimension_count", D), m.key("leading_dense_block_count", 1)
    mu, how, temperature = 1.0, {}, None
    if not lite:
        m.key("rope.scaling.type", "yarn"), m.key("rope.scaling.factor", 4.0)
        m.key("rope.scaling.original_context_length", 16)
        kappa, log_s = m.key("rope.scaling.yarn_log_multiplier", 0.2 if is_mistral else 0.0707), np.log(4.0)
        mag = (1 + 0.1 * log_s) / (1 + kappa * log_s) if is_mistral else 1.0
        mu, how = mag * (1 + kappa * log_s), dict(yarn=(4.0, 16), mag=mag)
    if is_mistral:
        temperature = m.key("attention.temperature_scale", 0.3), m.key("attention.temperature_length", 8)
    groups = (1, 1) if lite or is_mistral else (4, 2)
    keys = dict(shared_count=1, weights_norm=not lite)
    if groups[0] > 1:
        keys.update(gating_func=2, group_count=4, group_used_count=2, weights_scale=1.5)
    m.experts(shared=48, **keys)
    rope = m.rope(D, **how)
    full = groups[0] > 1
    moe = lambda i, h: m.moe(i, h, score="sigmoid" if full else "softmax", normalise=not lite, choose_bias=full,
                             groups=groups, scale=1.5 if full else 1.0)
    return m.head(pre_norm(m, m.embed(), lambda i, h: m.latent(i, h, rope, mu, temperature),
                           lambda i, h: moe(i, h) if i >= 1 else m.ffn(i, h)))


def plm(m):
    m.common(d=24)
    _, r, dk, dv, D = m.mla = 0, 32, 24, 16, 8
    m.key("attention.value_length", dv), m.key("attention.kv_lora_rank", r)
    rope = m.rope(m.key("rope.dimension_count", D))
    return m.head(pre_norm(m, m.embed(), lambda i, h: m.latent(i, h, rope, 1.0),
                           lambda i, h: m.ffn(i, h, relu2, "plain")), tied=True)


def post_norm(m, is_olmo=True, L=4, n=64, H=4, F=96, window=0):
    m.common(L=L, n=n, H=H, F=F)
    full = short = m.rope()
    if window:
        m.key("attention.sliding_window", window)
        if is_olmo:
            m.key("rope.scaling.type", "yarn"), m.key("rope.scaling.factor", 4.0)
            m.key("rope.scaling.original_context_length", 16)
            full = m.rope(yarn=(4.0, 16), mag=m.key("rope.scaling.attn_factor", 1.25))
        else:
            full = None
    x = m.embed()
    for i in range(L):
        is_short = window and i % 4 < 3
        y = m.attention(i, x, short if is_short else full, norms="whole" if is_olmo else "head",
                        window=window if is_short else 0)
        x = x + m.norm(y, f"blk.{i}.post_attention_norm")
        x = x + m.norm(m.ffn(i, x), f"blk.{i}.post_ffw_norm")
    return m.head(x)


def glm4(m, sections=False):
    m.common()
    if sections:
        m.key("rope.dimension_sections", [2, 1, 1, 0])
    rope = m.rope(m.key("rope.dimension_count", 8))
    return m.head(pre_norm(m, m.embed(), lambda i, h: m.attention(i, h, rope, neox=sections, bias=True),
                           lambda i, h: m.ffn(i, h, kind="fused"), post=("post_attention_norm", "post_ffw_norm")))


def chatglm(m):
    m.common()
    rope = m.rope(m.key("rope.dimension_count", 8))
    return m.head(pre_norm(m, m.embed(), lambda i, h: m.attention(i, h, rope, neox=False, bias=True, fused=True),
                           lambda i, h: m.ffn(i, h, kind="fused")))


def glm4moe(m):
    m.common(L=3, d=16)
    m.key("leading_dense_block_count", 1), m.key("nextn_predict_layers", 1)
    m.experts(shared=48, shared_count=1, gating_func=2, weights_norm=True, weights_scale=1.5)
    rope = m.rope(m.key("rope.dimension_count", 8))
    ffn = lambda i, h: m.moe(i, h, "sigmoid", choose_bias=True, scale=1.5) if i >= 1 else m.ffn(i, h)
    attn = lambda i, h: m.attention(i, h, rope, bias=True, norms="head")
    run = lambda x: pre_norm(m, x, attn, ffn, "post_attention_norm")
    run(m.embed())  # names the tensors of the last block, which predicts further tokens and is not run
    for name in ("enorm", "hnorm", "shared_head_norm"):
        m.weight(f"blk.2.nextn.{name}", m.n)
    m.weight("blk.2.nextn.eh_proj", 2 * m.n, m.n)
    m.L = 2
    return m.head(run(m.embed()))


def bailing(m):
    m.common(L=3, d=16)
    m.key("leading_dense_block_count", 1)
    m.experts(shared=48, shared_count=1, gating_func=2, weights_norm=True, weights_scale=2.5, group_count=4,
              group_used_count=2)
    rope = m.rope(m.key("rope.dimension_count", 8))
    moe = lambda i, h: m.moe(i, h, "sigmoid", choose_bias=True, groups=(4, 2), scale=2.5)
    return m.head(pre_norm(m, m.embed(), lambda i, h: m.attention(i, h, rope, norms="head", fused=True),
                           lambda i, h: moe(i, h) if i >= 1 else m.ffn(i, h)))


def dots(m, windows=False, is_afmoe=False, further=0, bare_bias=False):
    m.common(L=4 if windows else 3, d=16)
    if not bare_bias:  # Files of Hy 3 do not tell it.
        m.key("leading_dense_block_count", 1)
    m.experts(shared=48, shared_count=1, gating_func=2, weights_norm=True, weights_scale=1.5)
    window = m.key("attention.sliding_window", 8) if windows else 0
    if further:  # The array of windows tells nothing of the last block, which predicts further tokens and is not run.
        m.key("attention.sliding_window_pattern", [i % 4 < 3 for i in range(m.L)])
        m.key("block_count", m.L + further), m.key("nextn_predict_layers", further)
        m.weight(f"blk.{m.L}.nextn.eh_proj", 2 * m.n, m.n)
    rope = m.rope()
    def attn(i, h):
        short = i % 4 < 3
        return m.attention(i, h, rope if short or not windows else None, norms="head", window=window if short else 0,
                           gated="apart" if is_afmoe else False)
    bias = "exp_probs_b" if bare_bias else True
    ffn = lambda i, h: m.moe(i, h, "sigmoid", choose_bias=bias, scale=1.5) if i >= 1 else m.ffn(i, h)
    post = ("post_attention_norm", "post_ffw_norm") if is_afmoe else (None, None)
    return m.head(pre_norm(m, m.embed(np.sqrt(m.n) if is_afmoe else 1.0), attn, ffn, post=post))


def cohere(m, second=False):
    m.common(L=4 if second else 2, ln=True)
    window = m.key("attention.sliding_window", 8) if second else 0
    rope, x = m.rope(), m.embed()
    for i in range(m.L):
        short = second and i % 4 < 3
        h = m.norm(x, f"blk.{i}.attn_norm", False)
        attn = m.attention(i, h, rope if short or not second else None, neox=False, window=window if short else 0,
                           norms="" if second else "own")
        x = x + attn + m.ffn(i, h)
    return m.head(x, tied=True, scale=m.key("logit_scale", 0.25), ln_bias=False)


def cohere2moe(m):
    m.common(L=5, d=16)
    m.key("leading_dense_block_count", 1), m.key("logit_scale", 0.25)
    m.experts(shared=48, shared_count=1, weights_norm=True)
    window = m.key("attention.sliding_window", 8)
    rope, x = m.rope(), m.embed()
    for i in range(m.L):  # Of the layers that see all, only the dense ones have rope.
        short = i % 4 > 0
        h = m.norm(x, f"blk.{i}.attn_norm")
        attn = m.attention(i, h, None if i and not short else rope, neox=False, window=window if short else 0)
        x = x + attn + (m.moe(i, h, "sigmoid", average=True) if i else m.ffn(i, h))
    return m.head(x, tied=True, scale=0.25)


def phi3(m, is_long=True):
    m.common()
    m.key("rope.scaling.original_context_length", 128 if is_long else 4096)
    factors = {s: m.weight(f"rope_factors_{s}", m.d // 2, scale=0.2, offset=o) for s, o in (("long", 4.0), ("short", 1.5))}
    rope = m.rope(divide=factors["long" if is_long else "short"], mag=m.key("rope.scaling.attn_factor", 1.19))
    return m.head(pre_norm(m, m.embed(), lambda i, h: m.attention(i, h, rope, fused=True),
                           lambda i, h: m.ffn(i, h, kind="fused")))


def lfm2(m, moe=False):
    KV = [0, 2, 0, 2]
    m.common(L=4, KV=KV)
    m.KV, K = 2, m.key("shortconv.l_cache", 3)
    if moe:
        m.experts(gating_func=2), m.key("leading_dense_block_count", 1)
    rope = m.rope()
    def mix(i, h):
        b = f"blk.{i}.shortconv."
        if KV[i]:
            return m.attention(i, h, rope, norms="head")
        B, C, X = np.split(m.mm(b + "in_proj", h, 3 * m.n), 3, axis=-1)
        return m.mm(b + "out_proj", C * m.conv(B * X, m.weight(b + "conv", K, m.n)), m.n)
    ffn = lambda i, h: m.moe(i, h, "sigmoid", choose_bias=True) if moe and i >= 1 else m.ffn(i, h)
    return m.head(pre_norm(m, m.embed(), mix, ffn), "token_embd_norm", tied=True)


def mamba2(m):
    m.common(H=0, F=0, d=16)
    for name in ("head_count_kv", "key_length", "value_length"):
        del m.keys["mamba2.attention." + name]
    m.mamba2_keys()
    x = m.embed()
    for i in range(m.L):
        x = x + m.mamba2(i, m.norm(x, f"blk.{i}.attn_norm"))
    return m.head(x, tied=True)


def nemotron(m, moe=False):
    KV, F = [0, 0, 2, 0, 0], [0, 96, 0, 0, 96]
    m.common(L=5, KV=KV)
    m.KV, m.F = 2, 96
    m.key("feed_forward_length", F), m.mamba2_keys()
    if moe:
        m.experts(shared=48, shared_feed_forward_length=48, gating_func=2, weights_norm=True, weights_scale=2.5)
        m.key("moe_latent_size", 32)
    x = m.embed()
    for i in range(m.L):
        h = m.norm(x, f"blk.{i}.attn_norm")
        if F[i] and moe:
            x = x + m.moe(i, h, "sigmoid", choose_bias=True, scale=2.5, act=relu2, gated=False, latent=32)
        elif F[i]:
            x = x + m.ffn(i, h, relu2, "plain")
        else:
            x = x + (m.attention(i, h, None) if KV[i] else m.mamba2(i, h))
    return m.head(x)


def falcon_h1(m):
    m.common(d=16)
    m.mamba2_keys()
    rope, x = m.rope(base=m.key("rope.freq_base", 1e11)), m.embed()
    for i in range(m.L):
        h = m.norm(x, f"blk.{i}.attn_norm")
        x = x + m.attention(i, h, rope) + m.mamba2(i, h, norm=False)
        x = x + m.ffn(i, m.norm(x, f"blk.{i}.ffn_norm"))
    return m.head(x)


def gpt(m, rope=True, learned=False, parallel=False, two_norms=False, one_norm=False, fused=False, bias=True, tied=False,
        gated=False, KV=4, alibi=0.0, clip=0.0, D=0, ln_bias=True, norms="", head_bias=False, ctx=256, act=gelu,
        embed_norm=False, bare_norms=False, scale=None):
    m.common(ln=True, KV=KV, ctx=ctx)
    if alibi and not embed_norm:  # BLOOM's files do not tell it.
        m.key("attention.max_alibi_bias", alibi)
    if clip:
        m.key("attention.clamp_kqv", clip)
    if D:
        m.key("rope.dimension_count", D)
    x = m.embed()
    if learned:
        x = x + m.weight("position_embd", m.n, ctx, scale=1.0)[m.p]
    if embed_norm:
        x = m.norm(x, "token_embd_norm")
    table = m.rope(D or None) if rope else None
    for i in range(m.L):
        b = f"blk.{i}."
        attn = lambda h: m.attention(i, h, table, neox=not bare_norms, bias=bias, out_bias=bias and gated != "stablelm",
                                     fused=fused, alibi=alibi, clip=clip, norms=norms, scale=scale)
        ffn = lambda h: (m.ffn(i, h, bias=bias and gated != "stablelm") if gated else
                         m.ffn(i, h, act, "plain", bias=bias))
        if bare_norms:
            x = x + attn(m.norm(x, "", False))
            x = x + ffn(m.norm(x, "", False))
            continue
        h = m.norm(x, b + "attn_norm", ln_bias)
        if parallel:
            a = m.norm(x, b + "attn_norm_2") if two_norms else h
            f = h if one_norm or two_norms else m.norm(x, b + "ffn_norm", ln_bias)
            x = x + attn(a) + ffn(f)
        else:
            x = x + attn(h)
            x = x + ffn(m.norm(x, b + "ffn_norm", ln_bias))
    return m.head(x, "" if bare_norms else "output_norm", tied=tied, ln_bias=ln_bias, bias=head_bias)


def encoder(m, L=3, ln=True, **how):
    m.common(L=L, ln=ln, **how)
    m.both_ways = True
    m.key("attention.causal", False)


PAIR = [1, 3, 20, 2, 3, 7, 2]  # <s> q </s> d </s> in the tiny vocabulary


def score(m, x, labels, head=np.tanh, head_norm=False, default=2):
    """cls and cls.output over the pooled row; of two labels the share of the first."""
    y = m.pool(x, 4, default)
    if head:
        y = head(m.mm("cls", y, m.n, m.name != "modern-bert-reranker"))
    if head_norm:
        y = m.norm(y, "cls.norm", False)
    y = m.mm("cls.output", y, labels, labels == 1, scale=0.125)
    m.score = float(softmax(y)[0] if labels == 2 else y[0])


def bert(m, rope=False, positions=True, alibi=0.0, act=gelu, kind="plain", bias=True, again=False, norms="", pooling=1,
         labels=0, moe=False):
    encoder(m, KV=4, ctx=128)
    if moe:
        m.experts(Fe=96), m.key("moe_every_n_layers", 2)
    m.keys["tokenizer.ggml.token_type_count"] = 2
    x = m.embed() + m.weight("token_types", m.n, 2, scale=0.5)[0]
    if positions:
        x = x + m.weight("position_embd", m.n, 128, scale=0.5)[m.p]
    x = m.norm(x, "token_embd_norm")
    table = m.rope() if rope else None
    for i in range(m.L):
        b = f"blk.{i}."
        y = m.norm(x + m.attention(i, x, table, bias=bias, out_bias=bias, alibi=alibi, norms=norms),
                   b + "attn_output_norm")
        if again:
            y = m.norm(y + x, b + "attn_norm_2")
        f = m.moe(i, y, normalise=False, act=act, gated=False) if moe and i % 2 else m.ffn(i, y, act, kind, bias=bias)
        x = m.norm(y + f, b + "layer_output_norm")
    if labels:
        score(m, x, labels)
    else:
        m.pool(x, pooling, 1)


def modern_bert(m, labels=0):
    encoder(m, L=4, KV=4)
    m.key("attention.sliding_window", 9), m.key("rope.freq_base", 160000.0)
    ropes = [m.rope(base=160000.0), m.rope(base=1e4)]
    x = m.norm(m.embed(), "token_embd_norm", False)
    for i in range(m.L):
        short = i % 3 != 0
        h = m.norm(x, f"blk.{i}.attn_norm", False) if i else x
        x = x + m.attention(i, h, ropes[short], fused=True, window=5 if short else 0)
        x = x + m.ffn(i, m.norm(x, f"blk.{i}.ffn_norm", False), gelu, "fused")
    x = m.norm(x, "output_norm", False)
    if labels:
        score(m, x, labels, gelu, True, default=1)
    else:
        m.pool(x, 2)


def both_ways(m, neox=True, norms="", pooling=1):
    """A family of text models whose tokens see later ones, too."""
    encoder(m, ln=False, d=16)
    rope = m.rope()
    x = pre_norm(m, m.embed(), lambda i, h: m.attention(i, h, rope, neox=neox, norms=norms), m.ffn)
    m.pool(m.norm(x, "output_norm"), pooling)


def gemma_embedding(m):
    encoder(m, L=6, ln=False, d=16)
    m.key("attention.sliding_window", 8), m.key("rope.freq_base", 1e6), m.key("rope.freq_base_swa", 1e4)
    m.has_dense = True
    m.key("dense_2_feat_in", 64), m.key("dense_2_feat_out", 80), m.key("dense_3_feat_in", 80), m.key("dense_3_feat_out", 64)
    ropes = [m.rope(base=1e6), m.rope(base=1e4)]
    x = pre_norm(m, m.embed(np.sqrt(m.n)),
                 lambda i, h: m.attention(i, h, ropes[i % 6 < 5], window=5 if i % 6 < 5 else 0, norms="head"),
                 lambda i, h: m.ffn(i, h, gelu), post=("post_attention_norm", "post_ffw_norm"))
    m.pool(m.norm(x, "output_norm"), 1)


def qwen3_reranker(m):
    logits = qwen(m, norms="head", d=16)
    m.keys["tokenizer.chat_template.rerank"] = "{query}{document}"
    m.key("classifier.output_labels", ["yes", "no"])
    score(m, m.last_rows, 2, head=None, default=3)
    return logits


def case(name, arch, build, how=None, **of_model):
    return name, arch, build, how or {}, of_model


MOE_SHARED = (dict(shared=48, shared_feed_forward_length=48), {})
CASES = [
    case("llama-gqa", "llama", llama),
    case("llama-mqa-tied-llama3rope", "llama", llama, dict(KV=1, factors=True, tied=True)),
    case("llama-rope-linear", "llama", llama, dict(linear=4.0)),
    case("llama-rope-yarn", "llama", llama, dict(yarn=(4.0, 16))),
    case("mixtral", "llama", llama, dict(moe=True)),
    case("q-F16", "llama", llama, dict(n=256, F=256), number_format="F16", n_tok=48),
    case("q-Q4_K_M", "llama", llama, dict(n=256, F=256), number_format="Q4_K"),
    case("formats", "llama", llama, dict(n=256, F=256, L=1)),
    case("mistral3", "mistral3", llama, dict(yarn=(4.0, 16), yarn_log=1.0, temperature=0.3)),
    case("internlm2", "internlm2", llama, dict(KV=4)),
    case("llama-embed", "llama-embed", both_ways, dict(neox=False)),
    case("smollm3", "smollm3", llama, dict(skip=4, L=4)),
    case("arcee", "arcee", llama, dict(relu=True)),
    case("maincoder", "maincoder", llama, dict(norms="after", tied=True)),
    case("deci", "deci", deci),
    case("xverse", "xverse", llama, dict(KV=4)),
    case("baichuan", "baichuan", llama, dict(KV=4)),
    case("baichuan-40layers", "baichuan", llama, dict(KV=4, L=40, n=32, F=32, alibi=8.0)),
    case("refact", "refact", llama, dict(KV=1, alibi=8.0)),
    case("deepseek", "deepseek", deepseek1),
    case("bailingmoe", "bailingmoe", deepseek1, dict(dense=0, KV=2, normalise=True)),
    case("ernie4_5", "ernie4_5", ernie),
    case("ernie4_5-moe", "ernie4_5-moe", ernie, dict(moe=True)),
    case("granite", "granite", granite),
    case("granitemoe", "granitemoe", granite, dict(moe=True)),
    case("granitehybrid", "granitehybrid", granite, dict(hybrid=True)),
    case("granitehybrid-moe", "granitehybrid", granite, dict(hybrid=True, moe=True)),
    case("minicpm", "minicpm", granite),
    case("qwen2", "qwen2", qwen, dict(bias=True)),
    case("qwen2moe", "qwen2moe", qwen, dict(bias=True, moe=(MOE_SHARED[0], dict(normalise=False, shared_gate=True)))),
    case("qwen3", "qwen3", qwen, dict(norms="head", d=16)),
    case("qwen3-embedding", "qwen3", qwen, dict(norms="head", d=16), n_tok=9),
    case("qwen3moe", "qwen3moe", qwen, dict(norms="head", moe=({}, {}), d=16)),
    case("qwen2vl", "qwen2vl", qwen, dict(bias=True, sections=True)),
    case("qwen3vl", "qwen3vl", qwen, dict(norms="head", sections=True, d=16)),
    case("qwen3vlmoe", "qwen3vlmoe", qwen, dict(norms="head", sections=True, moe=({}, {}), d=16)),
    case("seed_oss", "seed_oss", qwen, dict(bias=True, second="post_attention_norm", d=16)),
    case("hunyuan-moe", "hunyuan-moe", qwen, dict(norms="after", moe=MOE_SHARED)),
    case("hunyuan-dense", "hunyuan-dense", qwen, dict(norms="after", d=16)),
    case("exaone", "exaone", qwen, dict(factors=True)),
    case("olmoe", "olmoe", qwen, dict(norms="whole", F=48, KV=4, moe=({}, dict(normalise=False)))),
    case("minimax-m2", "minimax-m2", qwen, dict(norms="whole", D=8, d=16, moe=(
        dict(gating_func=2), dict(score="sigmoid", choose_bias=True)))),
    case("mellum", "mellum", mellum),
    case("pangu-embedded", "pangu-embedded", qwen, dict(bias=True, out_bias=True)),
    case("qwen3next", "qwen3next", delta, dict(is_next=True, moe=True)),
    case("qwen35", "qwen35", delta),
    case("long-qwen35", "qwen35", delta, n_tok=300),
    case("qwen35-layers", "qwen35", delta, dict(attends=(0, 3), fused=True)),
    case("qwen35moe", "qwen35moe", delta, dict(moe=True)),
    case("gemma", "gemma", gemma),
    case("gemma2", "gemma2", gemma, dict(generation=2)),
    case("gemma3", "gemma3", gemma, dict(generation=3)),
    case("long-gemma3", "gemma3", gemma, dict(generation=3), n_tok=150),
    case("gpt-oss", "gpt-oss", gpt_oss),
    case("gpt-oss-mxfp4", "gpt-oss", gpt_oss, dict(number_format=True), number_format="MXFP4"),
    case("gemma4", "gemma4", gemma4),
    case("gemma4-moe", "gemma4", gemma4, dict(moe=True)),
    case("deepseek2", "deepseek2", deepseek),
    case("deepseek2-lite", "deepseek2", deepseek, dict(lite=True)),
    case("mistral4", "mistral4", deepseek, dict(is_mistral=True)),
    case("plm", "plm", plm),
    case("olmo2", "olmo2", post_norm),
    case("olmo3", "olmo2", post_norm, dict(window=8)),
    case("exaone4", "exaone4", post_norm, dict(is_olmo=False)),
    case("exaone4-64layers-swa", "exaone4", post_norm, dict(is_olmo=False, L=64, n=32, H=2, F=32, window=8)),
    case("glm4", "glm4", glm4),
    case("glm4-vision", "glm4", glm4, dict(sections=True)),
    case("chatglm", "chatglm", chatglm),
    case("glm4moe", "glm4moe", glm4moe),
    case("bailingmoe2", "bailingmoe2", bailing),
    case("dots1", "dots1", dots),
    case("exaone-moe", "exaone-moe", dots, dict(windows=True, further=1)),
    case("afmoe", "afmoe", dots, dict(windows=True, is_afmoe=True)),
    case("hy_v3", "hy_v3", dots, dict(bare_bias=True)),
    case("command-r", "command-r", cohere),
    case("cohere2", "cohere2", cohere, dict(second=True)),
    case("cohere2moe", "cohere2moe", cohere2moe),
    case("phi3-longrope-long", "phi3", phi3),
    case("phi3-longrope-short", "phi3", phi3, dict(is_long=False)),
    case("lfm2", "lfm2", lfm2),
    case("lfm2moe", "lfm2moe", lfm2, dict(moe=True)),
    case("nemotron_h", "nemotron_h", nemotron),
    case("nemotron_h_moe", "nemotron_h_moe", nemotron, dict(moe=True)),
    case("falcon-h1", "falcon-h1", falcon_h1),
    case("mamba2", "mamba2", mamba2),
    case("gpt2", "gpt2", gpt, dict(rope=False, learned=True, fused=True, tied=True, ctx=128)),
    case("starcoder", "starcoder", gpt, dict(rope=False, learned=True, fused=True, tied=True, KV=1, ctx=128)),
    case("starcoder2", "starcoder2", gpt, dict(KV=2)),
    case("codeshell", "codeshell", gpt, dict(KV=2)),
    case("nemotron", "nemotron", gpt, dict(KV=2, bias=False, D=8, act=relu2)),
    case("jais2", "jais2", gpt, dict(act=relu2)),
    case("bloom", "bloom", gpt, dict(rope=False, fused=True, tied=True, alibi=8.0, embed_norm=True)),
    case("falcon", "falcon", gpt, dict(parallel=True, one_norm=True, fused=True, bias=False, KV=1)),
    case("falcon-two-norms", "falcon", gpt, dict(parallel=True, two_norms=True, fused=True, bias=False, KV=2)),
    case("phi2", "phi2", gpt, dict(parallel=True, one_norm=True, fused=True, D=8, head_bias=True)),
    case("gptneox", "gptneox", gpt, dict(parallel=True, fused=True, D=8)),
    case("stablelm", "stablelm", gpt, dict(gated="stablelm", D=8)),
    case("orion", "orion", gpt, dict(gated=True, KV=2, bias=False)),
    case("jais", "jais", gpt, dict(rope=False, gated=True, fused=True, alibi=8.0, scale=1 / 16)),
    case("olmo", "olmo", gpt, dict(gated=True, bias=False, clip=1.5, ln_bias=False, bare_norms=True, tied=True)),
    case("bert", "bert", bert),
    case("long-bert", "bert", bert, dict(pooling=2), n_tok=120),
    case("bert-reranker", "bert", bert, dict(labels=1), ids=PAIR),
    case("nomic-bert", "nomic-bert", bert, dict(rope=True, positions=False, act=silu, kind="gated", bias=False)),
    case("nomic-bert-moe", "nomic-bert-moe", bert, dict(rope=True, positions=False, moe=True)),
    case("jina-bert-v3", "jina-bert-v3", bert, dict(rope=True, positions=False, pooling=2)),
    case("eurobert", "eurobert", both_ways, dict(pooling=3)),
    case("qwen3-both-ways", "qwen3", both_ways, dict(norms="head")),
    case("jina-bert-v2", "jina-bert-v2", bert, dict(positions=False, alibi=8.0, kind="gated", norms="whole")),
    case("jina-bert-v2-code", "jina-bert-v2", bert, dict(positions=False, alibi=8.0, kind="fused", again=True,
                                                         pooling=0)),
    case("long-jina-bert-v2", "jina-bert-v2", bert, dict(positions=False, alibi=8.0, kind="gated", pooling=3), n_tok=128),
    case("modern-bert", "modern-bert", modern_bert),
    case("long-modern-bert", "modern-bert", modern_bert, n_tok=200),
    case("modern-bert-reranker", "modern-bert", modern_bert, dict(labels=1), ids=PAIR),
    case("gemma-embedding", "gemma-embedding", gemma_embedding),
    case("qwen3-reranker", "qwen3", qwen3_reranker, ids=[1, 3, 20, 7]),
    case("mpt", "mpt", gpt, dict(rope=False, fused=True, bias=False, alibi=8.0, clip=1.5, ln_bias=False, tied=True)),
]


def all_models():
    for name, arch, build, how, of_model in CASES:
        ids = of_model.pop("ids", None)
        m = Model(name, arch, **of_model)
        m.ids = ids or m.ids
        if ids == PAIR:
            m.keys["tokenizer.ggml.add_eos_token"] = True
        yield m, build(m, **how)

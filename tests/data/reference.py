"""tests/data/reference.py: every model family as a few lines of numpy in f64, written from the published formulas.

It owns the tiny models: a family function names the keys and tensors of its file while it computes the logits, so
what is written to models.txt is what was computed. It knows nothing of Duet's code. Used by make.py.

Values of a tensor follow from its name (Model.weight), so no weights are stored. Notation: T tokens, n width, L blocks,
H heads, KV heads of keys, d head size, F hidden width, V vocabulary.
"""
import numpy as np

V = 96
f32 = lambda v: float(np.float32(v))
sigmoid = lambda x: 1 / (1 + np.exp(-x))
silu = lambda x: x * sigmoid(x)
softplus = lambda x: np.log1p(np.exp(x))
gelu = lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
relu2 = lambda x: np.maximum(x, 0) ** 2


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def random_values(name, count):
    """Bell-shaped values from whole numbers: the C++ reader of models.txt makes the same bits."""
    seed = np.uint64(14695981039346656037)
    with np.errstate(over="ignore"):
        for byte in name.encode():  # FNV-1a
            seed = (seed ^ np.uint64(byte)) * np.uint64(1099511628211)
        z = seed + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # splitmix64
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    total = sum(((z >> np.uint64(s)) & np.uint64(0xFFFF)).astype(np.int64) for s in (0, 16, 32, 48)) - 131070
    return total.astype(np.float64) * 2.0**-15


class Model:
    def __init__(m, name, arch, n_tok=28, number_format=""):
        m.name, m.arch, m.number_format = name, arch, number_format
        m.keys, m.tensors = {"general.architecture": arch}, {}
        m.ids = [1] + [3 + (17 * i * i + 29 * i + len(name)) % (V - 3) for i in range(n_tok - 1)]
        m.embedding = m.pooled = m.score = None
        m.both_ways = m.has_dense = False

    def key(m, name, value):
        m.keys[m.arch + "." + name] = value
        return f32(value) if isinstance(value, float) else value

    def weight(m, name, *dims, scale=None, offset=0.0):
        """A tensor of that name, dims in file order; its array has them reversed."""
        if name.rsplit(".", 1)[-1] not in ("weight", "bias", "scale") and not name.endswith(("ssm_a", "ssm_d", "probs_b")):
            name += ".weight"
        if scale is None:
            scale = float("%.4g" % (dims[0] ** -0.5)) if len(dims) > 1 else 0.2
            offset = 1.0 if len(dims) == 1 and name.endswith("norm.weight") else offset
        old = m.tensors.setdefault(name, (scale, offset, dims))
        assert old == (scale, offset, dims), (name, old, dims)
        x = (offset + scale * random_values(m.name + "/" + name, int(np.prod(dims)))).astype(np.float32)
        return x.astype(np.float64).reshape(dims[::-1])

    def mm(m, name, x, n_out, bias=False, **how):
        y = x @ m.weight(name, x.shape[-1], n_out, **how).T
        return y + m.weight(name + ".bias", n_out) if bias else y

    def common(m, L=2, n=64, H=4, KV=2, F=96, d=None, ctx=256, ln=False):
        m.L, m.n, m.H, m.KV, m.F, m.ln, m.d = L, n, H, KV, F, ln, d or n // H
        m.eps = f32(1e-5)
        m.key("block_count", L), m.key("embedding_length", n), m.key("context_length", ctx)
        m.key("attention.head_count", H), m.key("attention.head_count_kv", KV), m.key("feed_forward_length", F)
        m.key("attention.layer_norm_epsilon" if ln else "attention.layer_norm_rms_epsilon", 1e-5)
        if d:
            m.key("attention.key_length", d), m.key("attention.value_length", d)
        m.p = np.arange(len(m.ids))
        return m

    def norm(m, x, name, bias=True):
        """rms norm, or layer norm in the families that have it; the weights' shape is the last axis's."""
        n = x.shape[-1]
        w = m.weight(name, n, scale=0.2, offset=1.0) if name else 1.0
        if not m.ln:
            return x / np.sqrt((x**2).mean(-1, keepdims=True) + m.eps) * w
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + m.eps) * w + (m.weight(name + ".bias", n) if bias else 0)

    def embed(m, scale=1.0):
        return scale * m.weight("token_embd", m.n, V, scale=1.0)[m.ids]

    def head(m, x, name="output_norm", tied=False, scale=1.0, cap=0, ln_bias=True, bias=False):
        x = m.last_rows = m.norm(x, name, ln_bias)
        m.embedding = x[-1]
        w = m.weight("token_embd", m.n, V, scale=1.0) if tied else m.weight("output", m.n, V, scale=0.25)
        y = x @ w.T * scale
        if bias:
            y = y + m.weight("output.bias", V)
        return cap * np.tanh(y / cap) if cap else y

    def pool(m, x, kind, default=None):
        """The file's pooling of the rows: 1 mean, 2 first, 3 last, 4 as `default`, for a scorer; then length 1."""
        if kind:
            m.key("pooling_type", kind)
        kind = default if kind in (0, 4) else kind
        rows = x.mean(0) if kind == 1 else x[0] if kind == 2 else x[-1]
        m.pooled = rows
        for name, n_out in (("dense_2", 80), ("dense_3", m.n)) if m.has_dense else ():
            m.pooled = m.mm(name, m.pooled, n_out)
        m.pooled = m.pooled / np.sqrt((m.pooled**2).sum())
        return rows

    # ---- rope: a table of frequencies and a magnitude

    def rope(m, D=None, base=10000.0, divide=None, yarn=None, mag=1.0):
        """yarn: (factor, original context)"""
        D = D or m.d
        f = f32(base) ** (-2.0 * np.arange(D // 2) / D)
        if divide is not None:
            f = f / divide
        if yarn:
            s, c = f32(yarn[0]), yarn[1]
            beta = lambda b: D * np.log(c / (2 * np.pi * b)) / (2 * np.log(f32(base)))
            lo, hi = max(0, np.floor(beta(32))), min(D - 1, np.ceil(beta(1)))
            keep = 1 - np.clip((np.arange(D // 2) - lo) / max(0.001, hi - lo), 0, 1)
            f = f / s * (1 - keep) + f * keep
        return f, mag

    def rotate(m, x, table, neox):
        """x (T, heads, d)"""
        if table is None:
            return x
        f, mag = table
        a = (m.p[:, None] * f)[:, None, :]
        k = len(f)
        i, j = (np.arange(k), np.arange(k) + k) if neox else (2 * np.arange(k), 2 * np.arange(k) + 1)
        y = x.copy()
        y[..., i] = (x[..., i] * np.cos(a) - x[..., j] * np.sin(a)) * mag
        y[..., j] = (x[..., i] * np.sin(a) + x[..., j] * np.cos(a)) * mag
        return y

    def scores(m, q, k, v, scale=None, window=0, cap=0, sinks=None, alibi=0):
        T, H, d = q.shape
        k, v = (np.repeat(a, H // a.shape[1], axis=1) for a in (k, v))
        s = np.einsum("qhd,khd->hqk", q, k) * (scale or d**-0.5)
        if cap:
            s = cap * np.tanh(s / cap)
        distance = m.p[:, None] - m.p[None, :]
        if m.both_ways:  # a window reaches to both sides, and ALiBi counts the distance
            distance = np.abs(distance)
        if alibi:  # Press et al. 2022; H is a power of two here
            s = s - 2.0 ** (-alibi * (np.arange(H) + 1) / H)[:, None, None] * distance
        s = np.where((distance < 0) | ((window > 0) & (distance >= window)), -np.inf, s)
        if sinks is not None:
            s = np.concatenate([s, np.broadcast_to(sinks[:, None, None], (H, T, 1))], -1)
        return np.einsum("hqk,khd->qhd", softmax(s)[..., :T], v).reshape(T, -1)

    def attention(m, i, h, rope, neox=True, norms="", bias=False, out_bias=False, fused=False, gated=False, sinks=False,
                  temperature=None, clip=0, KV=None, **how):
        b, T, H, d, KV = f"blk.{i}.", len(h), m.H, m.d, KV or m.KV
        split = lambda x: x.reshape(T, -1, d)
        gate = m.mm(b + "attn_gate", h, H * d) if gated == "apart" else None
        gated = gated is True
        if fused:
            n_q = H * d * (2 if gated else 1)
            qkv = m.mm(b + "attn_qkv", h, n_q + 2 * KV * d, bias)
            q, k, v = np.split(qkv, [n_q, n_q + KV * d], axis=-1)
        else:
            q = m.mm(b + "attn_q", h, H * d * (2 if gated else 1), bias)
            k, v = m.mm(b + "attn_k", h, KV * d, bias), m.mm(b + "attn_v", h, KV * d, bias)
        if clip:
            q, k, v = (np.clip(x, -clip, clip) for x in (q, k, v))
        if norms == "whole":
            q, k = m.norm(q, b + "attn_q_norm"), m.norm(k, b + "attn_k_norm")
        if gated:
            q = q.reshape(T, H, 2 * d)
            q, gate = q[..., :d], q[..., d:].reshape(T, -1)
        q, k, v = split(q), split(k), split(v)
        if norms == "after":
            q, k, rope = m.rotate(q, rope, neox), m.rotate(k, rope, neox), None
        if norms in ("head", "after"):
            q, k = m.norm(q, b + "attn_q_norm"), m.norm(k, b + "attn_k_norm")
        if norms == "own":  # layer norm without bias, each head its own weights
            own = lambda x, name: m.norm(x, "", False) * m.weight(b + name, d, x.shape[1], scale=0.2, offset=1.0)
            q, k = own(q, "attn_q_norm"), own(k, "attn_k_norm")
        q, k = m.rotate(q, rope, neox), m.rotate(k, rope, neox)
        if temperature:
            q = q * (1 + temperature[0] * np.log(np.floor(m.p / temperature[1]) + 1))[:, None, None]
        z = m.weight(b + "attn_sinks", H, scale=1.0) if sinks else None
        o = m.scores(q, k, v, sinks=z, **how)
        if gate is not None:
            o = o * sigmoid(gate)
        return m.mm(b + "attn_output", o, m.n, out_bias)

    def ffn(m, i, h, act=silu, kind="gated", F=None, bias=False, suffix=""):
        b, F = f"blk.{i}.", F or m.F
        if kind == "fused":
            both = m.mm(b + "ffn_up", h, 2 * F)
            a = act(both[:, :F]) * both[:, F:]
        elif kind == "gated":
            a = act(m.mm(b + "ffn_gate" + suffix, h, F, bias)) * m.mm(b + "ffn_up" + suffix, h, F, bias)
        else:
            a = act(m.mm(b + "ffn_up" + suffix, h, F, bias))
        return m.mm(b + "ffn_down" + suffix, a, h.shape[-1], bias)

    def experts(m, E=8, U=2, Fe=48, shared=0, **keys):
        """The keys of the experts; Fe is told by expert_feed_forward_length."""
        m.E, m.U, m.Fe, m.shared = E, U, Fe, shared
        m.key("expert_count", E), m.key("expert_used_count", U), m.key("expert_feed_forward_length", Fe)
        for name, value in keys.items():
            m.key("expert_" + name, value)

    def moe(m, i, h, score="softmax", normalise=True, choose_bias=False, groups=(1, 1), scale=1.0, shared_gate=False,
            act=silu, gated=True, oai=False, joined=False, latent=0, router_in=None, down_scale=False, average=False):
        b, T, E, U, Fe = f"blk.{i}.", len(h), m.E, m.U, m.Fe
        z = m.mm(b + "ffn_gate_inp", h if router_in is None else router_in, E, bias=oai, scale=0.5)
        P = softmax(z) if score == "softmax" else sigmoid(z) if score == "sigmoid" else z
        name = choose_bias if isinstance(choose_bias, str) else "exp_probs_b.bias"
        S = P + (m.weight(b + name, E, scale=0.2) if choose_bias else 0)
        if groups[0] > 1:
            runs = np.sort(S.reshape(T, groups[0], -1), -1)[..., -2:].sum(-1)
            shut = np.argsort(-runs, -1, kind="stable")[:, groups[1]:]
            S = S.reshape(T, groups[0], -1).copy()
            np.put_along_axis(S, shut[..., None], -np.inf, 1)
            S = S.reshape(T, E)
        chosen = np.argsort(-S, -1, kind="stable")[:, :U]
        w = np.take_along_axis(P, chosen, -1)
        if score == "after":
            w = softmax(w)
        elif normalise:
            w = w / w.sum(-1, keepdims=True)
        x = m.mm(b + "ffn_latent_down", h, latent) if latent else h
        n_in = x.shape[-1]
        each = lambda name, x, n_out: np.einsum("...i,eoi->...eo", x, m.weight(b + name, x.shape[-1], n_out, E))
        if joined:
            both = each("ffn_gate_up_exps", x, 2 * Fe)
            a = act(both[..., :Fe]) * both[..., Fe:]
        else:
            up = each("ffn_up_exps", x, Fe) + (m.weight(b + "ffn_up_exps.bias", Fe, E) if oai else 0)
            if gated:
                g = each("ffn_gate_exps", x, Fe) + (m.weight(b + "ffn_gate_exps.bias", Fe, E) if oai else 0)
            if oai:
                g, up = np.minimum(g, 7), np.clip(up, -7, 7)
                a = g * sigmoid(1.702 * g) * (up + 1)
            else:
                a = act(g) * up if gated else act(up)
        y = np.einsum("tei,eoi->teo", a, m.weight(b + "ffn_down_exps", Fe, n_in, E))
        if oai:
            y = y + m.weight(b + "ffn_down_exps.bias", n_in, E)
        if down_scale:
            y = y * m.weight(b + "ffn_down_exps.scale", E, scale=0.2, offset=1.0)[:, None]
        out = scale * np.einsum("tu,tuo->to", w, np.take_along_axis(y, chosen[..., None], 1))
        if latent:
            out = m.mm(b + "ffn_latent_up", out, m.n)
        if m.shared:
            s = m.ffn(i, h, act, "gated" if gated else "plain", m.shared, suffix="_shexp")
            out = out + (sigmoid(h @ m.weight(b + "ffn_gate_inp_shexp", m.n))[:, None] * s if shared_gate else s)
            out = out / 2 if average else out
        return out

    # ---- recurrent parts

    def conv(m, u, w, bias=0):
        """w (channels, taps); the last tap is the token's own"""
        K = w.shape[1]
        past = np.concatenate([np.zeros((K - 1, u.shape[1])), u])
        return sum(w[:, j] * past[j:j + len(u)] for j in range(K)) + bias

    def mamba2_keys(m, K=4, I=128, S=16, R=8, G=2):
        m.ssm = K, I, S, R, G
        for name, value in zip(("conv_kernel", "inner_size", "state_size", "time_step_rank", "group_count"), m.ssm):
            m.key("ssm." + name, value)

    def mamba2(m, i, h, norm=True):
        (K, I, S, R, G), b, T = m.ssm, f"blk.{i}.", len(h)
        z, u, dt = np.split(m.mm(b + "ssm_in", h, 2 * I + 2 * G * S + R), [I, 2 * I + 2 * G * S], axis=-1)
        C = I + 2 * G * S
        u = silu(m.conv(u, m.weight(b + "ssm_conv1d", K, C), m.weight(b + "ssm_conv1d.bias", C)))
        x, B, Cs = u[:, :I].reshape(T, R, -1), u[:, I:I + G * S].reshape(T, G, S), u[:, I + G * S:].reshape(T, G, S)
        step = softplus(dt + m.weight(b + "ssm_dt.bias", R))
        a = m.weight(b + "ssm_a", 1, R, scale=0.2, offset=-1.0)[:, 0]
        D = m.weight(b + "ssm_d", 1, R, scale=0.2, offset=1.0)[:, 0]
        g = np.arange(R) * G // R
        M, y = np.zeros((R, I // R, S)), np.zeros((T, R, I // R))
        for t in range(T):
            M = np.exp(step[t] * a)[:, None, None] * M + np.einsum("r,rp,rs->rps", step[t], x[t], B[t][g])
            y[t] = np.einsum("rps,rs->rp", M, Cs[t][g]) + D[:, None] * x[t]
        y = (y.reshape(T, I) * silu(z)).reshape(T, G, I // G)
        if norm:
            w = m.weight(b + "ssm_norm", I // G, G, scale=0.2, offset=1.0)
            y = y / np.sqrt((y**2).mean(-1, keepdims=True) + m.eps) * w
        return m.mm(b + "ssm_out", y.reshape(T, I), m.n)

    def delta_net(m, i, h, is_next):
        (K, S, G, R), b, T = m.delta, f"blk.{i}.", len(h)
        C = 2 * S * G + S * R
        u = silu(m.conv(m.mm(b + "attn_qkv", h, C), m.weight(b + "ssm_conv1d", K, C)))
        z = m.mm(b + "attn_gate", h, S * R).reshape(T, R, S)
        q, k, v = u[:, :S * G].reshape(T, G, S), u[:, S * G:2 * S * G].reshape(T, G, S), u[:, 2 * S * G:].reshape(T, R, S)
        q, k = (x / np.maximum(np.sqrt((x**2).sum(-1, keepdims=True)), m.eps) for x in (q, k))
        if is_next:
            ba = m.mm(b + "ssm_ba", h, 2 * R).reshape(T, G, 2, R // G)
            beta, a = ba[:, :, 0].reshape(T, R), ba[:, :, 1].reshape(T, R)
        else:
            beta, a = m.mm(b + "ssm_beta", h, R), m.mm(b + "ssm_alpha", h, R)
        beta = sigmoid(beta)
        g = m.weight(b + "ssm_a", R, scale=0.2, offset=-1.0) * softplus(a + m.weight(b + "ssm_dt.bias", R))
        head = np.arange(R) * G // R if is_next else np.arange(R) % G
        M, o = np.zeros((R, S, S)), np.zeros((T, R, S))
        for t in range(T):
            qt, kt = q[t][head], k[t][head]
            M = np.exp(g[t])[:, None, None] * M
            e = beta[t][:, None] * (v[t] - np.einsum("rij,ri->rj", M, kt))
            M = M + kt[:, :, None] * e[:, None, :]
            o[t] = np.einsum("rij,ri->rj", M, qt) / np.sqrt(S)
        y = m.norm(o, b + "ssm_norm") * silu(z)
        return m.mm(b + "ssm_out", y.reshape(T, S * R), m.n)

    def latent(m, i, h, table, mu, temperature=None):
        """Multi-head latent attention: keys and values of all heads from one short row."""
        (rq, r, dk, dv, D), b, T, H = m.mla, f"blk.{i}.", len(h), m.H
        if rq:
            q = m.mm(b + "attn_q_b", m.norm(m.mm(b + "attn_q_a", h, rq), b + "attn_q_a_norm"), H * dk)
        else:
            q = m.mm(b + "attn_q", h, H * dk)
        q = q.reshape(T, H, dk)
        c = m.mm(b + "attn_kv_a_mqa", h, r + D)
        k_rope = m.rotate(c[:, None, r:], table, False)
        c = m.norm(c[:, :r], b + "attn_kv_a_norm")
        k = np.einsum("tr,hri->thi", c, m.weight(b + "attn_k_b", dk - D, r, H))
        v = np.einsum("tr,hjr->thj", c, m.weight(b + "attn_v_b", r, dv, H))
        q = np.concatenate([q[..., :dk - D], m.rotate(q[..., dk - D:], table, False)], -1)
        if temperature:
            q = q * (1 + temperature[0] * np.log(np.floor(m.p / temperature[1]) + 1))[:, None, None]
        k = np.concatenate([k, np.repeat(k_rope, H, axis=1)], -1)
        return m.mm(b + "attn_output", m.scores(q, k, v, scale=mu**2 / np.sqrt(dk)), m.n)

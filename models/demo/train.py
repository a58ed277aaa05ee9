"""Makes models/demo.gguf: tokenizer, training, sampling and export of the demo model.

Knows the GGUF names of the llama architecture and its forward pass; knows nothing of what the stories say (corpus.py does).
Runs on one CPU core with jax, numpy, sentencepiece and gguf; none of them is needed to build or use Duet.

    python models/demo/train.py tokenizer              tokenizer from the corpus, into the work folder
    python models/demo/train.py train --steps 1200     resumes from the newest checkpoint, if there is one
    python models/demo/train.py sample -p "One day"    the forward pass here, as a check of the exported file
    python models/demo/train.py export                 newest checkpoint -> models/demo.gguf

With GLIBC_TUNABLES=glibc.malloc.hugetlb=1 in the environment a step takes two thirds of the time: fewer page faults.
Everything on the way (tokenizer, checkpoint, log) lies in --work, outside the tree.
"""
import argparse
import math
import os
import pickle
import random
import sys
import tempfile
import time

# One core: the threads of the matrix library gain nothing on models of this size.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import jax.numpy as jnp
import numpy as np
import sentencepiece

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import corpus

HERE = os.path.dirname(os.path.abspath(__file__))
GGUF_PATH = os.path.join(HERE, "..", "demo.gguf")

# Inputs of matrices are multiples of 32, the block length of Q8_0. Two query groups of three heads exercise grouped attention.
CONFIG = dict(n_vocab=2048, dim=192, n_layers=6, n_heads=6, n_kv_heads=2, head_dim=32, hidden_dim=512,
              n_ctx=512, rope_theta=10000.0, norm_eps=1e-5)
UNK, BOS, EOS = 0, 1, 2
SEED = 20240
BATCH_TOK = 4096
BUCKETS = (192, 224, 256, 288, 320, 352, 400)  # padded story lengths; one compiled program each
CHUNK = 4096                                    # stories written, sorted into buckets and shuffled together


# ---- tokenizer and batches ----------------------------------------------------------------------------------------

def tokenizer_path(work):
    return os.path.join(work, "tokenizer.model")


def train_tokenizer(work):
    rng = random.Random(SEED)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(corpus.story(rng) for _ in range(20000)), model_prefix=tokenizer_path(work)[:-len(".model")],
        model_type="bpe", vocab_size=CONFIG["n_vocab"], byte_fallback=True, unk_id=UNK, bos_id=BOS, eos_id=EOS, pad_id=-1,
        normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=True,
        character_coverage=1.0, num_threads=1, minloglevel=2)


def load_tokenizer(work):
    return sentencepiece.SentencePieceProcessor(model_file=tokenizer_path(work))


def chunk_batches(sp, seed):
    """One chunk of fresh stories as shuffled (n_story, length) arrays; padding is -1. Stories are never repeated."""
    rng = random.Random(seed)
    rows = {length: [] for length in BUCKETS}
    for text in (corpus.story(rng) for _ in range(CHUNK)):
        ids = [BOS] + sp.encode(text) + [EOS]
        ids = ids[:BUCKETS[-1] + 1]
        length = next(b for b in BUCKETS if b >= len(ids) - 1)
        rows[length].append(ids + [-1] * (length + 1 - len(ids)))
    batches = []
    for length, stories in rows.items():
        n = BATCH_TOK // length
        batches += [np.array(stories[i:i + n], np.int32) for i in range(0, len(stories) - n + 1, n)]
    rng.shuffle(batches)
    return batches


def endless_batches(sp, skip_steps):
    """Batch number i is the same in every run, so that a resumed run sees what the interrupted one would have seen."""
    step = 0
    for i_chunk in range(1 << 30):
        for batch in chunk_batches(sp, SEED + 1 + i_chunk):
            if step >= skip_steps:
                yield batch
            step += 1


# ---- the model: architecture llama of GGUF ------------------------------------------------------------------------

def init_params(key):
    """Matrices are (n_in, n_out) here, for the speed of the gradients, and are turned round on export."""
    c = CONFIG
    q_dim, kv_dim = c["n_heads"] * c["head_dim"], c["n_kv_heads"] * c["head_dim"]
    shapes = dict(attn_q=(c["dim"], q_dim), attn_k=(c["dim"], kv_dim), attn_v=(c["dim"], kv_dim), attn_output=(q_dim, c["dim"]),
                  ffn_gate=(c["dim"], c["hidden_dim"]), ffn_up=(c["dim"], c["hidden_dim"]), ffn_down=(c["hidden_dim"], c["dim"]))
    into_residual = ("attn_output", "ffn_down")  # smaller, so that the sum over layers starts near the embedding
    layers = []
    for _ in range(c["n_layers"]):
        layer = dict(attn_norm=jnp.ones(c["dim"]), ffn_norm=jnp.ones(c["dim"]))
        for name, shape in shapes.items():
            key, sub = jax.random.split(key)
            scale = 1 / math.sqrt(shape[0]) / (math.sqrt(2 * c["n_layers"]) if name in into_residual else 1)
            layer[name] = jax.random.normal(sub, shape) * scale
        layers.append(layer)
    return dict(token_embd=jax.random.normal(key, (c["n_vocab"], c["dim"])) * 0.05, output_norm=jnp.ones(c["dim"]), layers=layers)


def rms(x, weight):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + CONFIG["norm_eps"]) * weight


def rope(x):
    """x (n_seq, n_tok, n_heads, head_dim); pairs are neighbours (2i, 2i+1), the form this architecture has in GGUF."""
    n_tok, d = x.shape[1], x.shape[-1]
    freq = CONFIG["rope_theta"] ** (-np.arange(0, d, 2) / d)
    angle = np.arange(n_tok)[:, None] * freq
    cos, sin = (jnp.asarray(f(angle), jnp.float32)[None, :, None, :] for f in (np.cos, np.sin))
    even, odd = x[..., 0::2], x[..., 1::2]
    return jnp.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape)


def attention(layer, x, n_seq):
    """Written as plain batched matrix products over (sequence, kv head): einsum over five axes takes twice the time."""
    c = CONFIG
    n_tok, n_kv, d = x.shape[0] // n_seq, c["n_kv_heads"], c["head_dim"]
    group = c["n_heads"] // n_kv  # query head h reads kv head h // group
    split = lambda y: y.reshape(n_seq, n_tok, -1, d)
    q, k, v = (split(x @ layer[name]) for name in ("attn_q", "attn_k", "attn_v"))
    q = rope(q / math.sqrt(d)).transpose(0, 2, 1, 3).reshape(n_seq * n_kv, group * n_tok, d)
    k = rope(k).transpose(0, 2, 3, 1).reshape(n_seq * n_kv, d, n_tok)
    v = v.transpose(0, 2, 1, 3).reshape(n_seq * n_kv, n_tok, d)
    may_see = np.tile(np.tril(np.ones((n_tok, n_tok), bool)), (group, 1))
    weights = jax.nn.softmax(jnp.where(may_see, q @ k, -1e30), -1)
    out = (weights @ v).reshape(n_seq, c["n_heads"], n_tok, d).transpose(0, 2, 1, 3).reshape(n_seq * n_tok, -1)
    return out @ layer["attn_output"]


def final_state(params, ids):
    """ids (n_seq, n_tok) -> (n_seq * n_tok, dim), what the output matrix multiplies."""
    x = params["token_embd"][ids.reshape(-1)]
    for layer in params["layers"]:
        x = x + attention(layer, rms(x, layer["attn_norm"]), ids.shape[0])
        h = rms(x, layer["ffn_norm"])
        x = x + (jax.nn.silu(h @ layer["ffn_gate"]) * (h @ layer["ffn_up"])) @ layer["ffn_down"]
    return rms(x, params["output_norm"])


def loss_fn(params, batch):
    """Mean over real tokens of log sum exp(logits) - logit of the target; never stores the log probabilities."""
    ids, target = jnp.maximum(batch[:, :-1], 0), batch[:, 1:].reshape(-1)
    x = final_state(params, ids)
    wanted = jnp.sum(x * params["token_embd"][jnp.maximum(target, 0)], -1)
    nll = jax.nn.logsumexp(x @ params["token_embd"].T, -1) - wanted
    return jnp.sum(nll * (target >= 0)) / jnp.sum(target >= 0)


# ---- training -----------------------------------------------------------------------------------------------------

@jax.jit
def adamw_step(params, moments, batch, step, lr):
    """AdamW (Loshchilov and Hutter 2019) with the gradient clipped to norm 1; norm weights are not decayed."""
    loss, grad = jax.value_and_grad(loss_fn)(params, batch)
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grad)))
    clip = jnp.minimum(1.0, 1.0 / (norm + 1e-6))
    beta1, beta2, eps, decay = 0.9, 0.98, 1e-8, 0.05

    def update(p, m, v, g):
        g = g * clip
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        change = (m / (1 - beta1 ** step)) / (jnp.sqrt(v / (1 - beta2 ** step)) + eps)
        return p - lr * (change + (decay * p if p.ndim == 2 else 0)), m, v

    new = jax.tree.map(update, params, *moments, grad)
    pick = lambda i: jax.tree.map(lambda _, t: t[i], params, new)
    return pick(0), (pick(1), pick(2)), loss


def learning_rate(step, n_steps, peak):
    """Warm up, hold, then fall to zero over the last 40%: the flat part can be lengthened when a run is resumed."""
    return peak * min(1.0, step / 150, max(0.0, (n_steps - step) / (0.4 * n_steps)))


def checkpoint_path(work):
    return os.path.join(work, "checkpoint.pkl")


def save_checkpoint(work, params, moments, step):
    state = jax.tree.map(np.asarray, dict(params=params, moments=moments)) | dict(step=step)
    with open(checkpoint_path(work) + ".new", "wb") as f:
        pickle.dump(state, f)
    os.replace(checkpoint_path(work) + ".new", checkpoint_path(work))


def load_checkpoint(work):
    with open(checkpoint_path(work), "rb") as f:
        return pickle.load(f)


def train(work, n_steps, peak):
    sp = load_tokenizer(work)
    params = init_params(jax.random.key(SEED))
    moments = tuple(jax.tree.map(jnp.zeros_like, params) for _ in range(2))
    step = 0
    if os.path.exists(checkpoint_path(work)):
        state = load_checkpoint(work)
        params, moments, step = state["params"], state["moments"], state["step"]
    print(f"{sum(p.size for p in jax.tree.leaves(params))} parameters, from step {step}", flush=True)
    held_out = chunk_batches(sp, SEED)[:16]
    eval_loss = jax.jit(loss_fn)
    start = last_save = time.time()
    n_tok, losses = 0, []
    for batch in endless_batches(sp, step):
        step += 1
        params, moments, loss = adamw_step(params, moments, batch, jnp.float32(step), jnp.float32(learning_rate(step, n_steps, peak)))
        n_tok += int((batch[:, 1:] >= 0).sum())
        losses.append(loss)
        if step % 50 == 0:
            print(f"step {step} loss {np.mean(losses):.4f} {n_tok / (time.time() - start):.0f} tok/s {n_tok} tok", flush=True)
            losses = []
        if time.time() - last_save > 180 or step >= n_steps:
            save_checkpoint(work, params, moments, step)
            print(f"step {step} held-out loss {np.mean([eval_loss(params, b) for b in held_out]):.4f}", flush=True)
            last_save = time.time()
        if step >= n_steps:
            return


# ---- use ----------------------------------------------------------------------------------------------------------

def sample(work, prompt, n_tok, temperature, seed):
    """Runs the whole padded sequence for every token: slow, and independent of any cache."""
    sp, params = load_tokenizer(work), jax.tree.map(jnp.asarray, load_checkpoint(work)["params"])
    ids, rng = [BOS] + sp.encode(prompt), np.random.default_rng(seed)
    logits_at = jax.jit(lambda ids, last: final_state(params, ids[None])[last] @ params["token_embd"].T)
    for _ in range(n_tok):
        padded = np.zeros(len(ids) // 128 * 128 + 128, np.int32)
        padded[:len(ids)] = ids
        logits = np.asarray(logits_at(padded, len(ids) - 1), np.float64)
        if temperature == 0:
            token = int(logits.argmax())
        else:
            p = np.exp((logits - logits.max()) / temperature)
            token = int(rng.choice(len(p), p=p / p.sum()))
        if token == EOS:
            break
        ids.append(token)
    print(ids)
    print(sp.decode(ids), "\n")


def export(work, path):
    import gguf
    c, sp, params = CONFIG, load_tokenizer(work), load_checkpoint(work)["params"]
    out = gguf.GGUFWriter(path, "llama")
    out.add_name("Duet demo")
    out.add_description("Writes short stories for children; trained on generated text, see models/demo/README.md")
    out.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    out.add_quantization_version(gguf.GGML_QUANT_VERSION)
    out.add_vocab_size(c["n_vocab"])
    out.add_context_length(c["n_ctx"])
    out.add_embedding_length(c["dim"])
    out.add_block_count(c["n_layers"])
    out.add_feed_forward_length(c["hidden_dim"])
    out.add_head_count(c["n_heads"])
    out.add_head_count_kv(c["n_kv_heads"])
    out.add_rope_dimension_count(c["head_dim"])
    out.add_rope_freq_base(c["rope_theta"])
    out.add_layer_norm_rms_eps(c["norm_eps"])

    kind = lambda i: (gguf.TokenType.UNKNOWN if sp.is_unknown(i) else gguf.TokenType.CONTROL if sp.is_control(i) else
                      gguf.TokenType.BYTE if sp.is_byte(i) else gguf.TokenType.NORMAL)
    ids = range(c["n_vocab"])
    out.add_tokenizer_model("llama")
    out.add_tokenizer_pre("default")
    out.add_token_list([sp.id_to_piece(i).encode() for i in ids])
    out.add_token_scores([sp.get_score(i) for i in ids])
    out.add_token_types([int(kind(i)) for i in ids])
    out.add_bos_token_id(BOS)
    out.add_eos_token_id(EOS)
    out.add_unk_token_id(UNK)
    out.add_add_bos_token(True)
    out.add_add_eos_token(False)
    out.add_add_space_prefix(True)

    def add(name, weight):
        weight = np.asarray(weight, np.float32)
        q8_0 = gguf.GGMLQuantizationType.Q8_0
        if weight.ndim == 2:  # vectors (norms) stay F32
            out.add_tensor(name + ".weight", gguf.quants.quantize(weight, q8_0), raw_dtype=q8_0)
        else:
            out.add_tensor(name + ".weight", weight)

    add("token_embd", params["token_embd"])  # there is no output.weight: the embedding serves for both
    add("output_norm", params["output_norm"])
    for i, layer in enumerate(params["layers"]):
        for name, weight in layer.items():
            add(f"blk.{i}.{name}", np.ascontiguousarray(np.asarray(weight).T))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    print(os.path.getsize(path), "bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["tokenizer", "train", "sample", "export"])
    parser.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "duet-demo"))
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("-p", "--prompt", default="Once upon a time")
    parser.add_argument("-n", "--n-tok", type=int, default=300)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default=GGUF_PATH)
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    if args.command == "tokenizer":
        train_tokenizer(args.work)
    elif args.command == "train":
        train(args.work, args.steps, args.lr)
    elif args.command == "sample":
        sample(args.work, args.prompt, args.n_tok, args.temperature, args.seed)
    else:
        export(args.work, args.out)


if __name__ == "__main__":
    main()

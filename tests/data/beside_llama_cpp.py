#!/usr/bin/env python3
"""tests/data/beside_llama_cpp.py: what llama.cpp computes of the models of models.txt, beside the values that stand there (and that
Duet's tests compare). By hand, when a family is new: no test calls it.

  pip install numpy llama-cpp-python      then: python3 tests/data/beside_llama_cpp.py [MODEL ...]

Prints for each model the largest difference of a logit of the last position, of a value of the vector or of the score, and the largest
value. models.txt has four digits behind the point (5e-05); llama.cpp looks up GELU in a table of f16 (up to 1e-02). Where llama.cpp wants
other keys or shapes than the model has, CHANGES makes a variant; it has no values in models.txt, so bin/logits computes it. Each model
has a process of its own, because llama.cpp ends the program on some files.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tiny_gguf  # noqa: E402

def blocks(first, end):
    return f"blk.{','.join(map(str, range(first, end)))}."


EXPERTS_ALONE = [("u .feed_forward_length 96", "u .feed_forward_length 48")]
RMS_TOO = [("f .attention.layer_norm_rms_epsilon 1e-05", "f .attention.layer_norm_rms_epsilon 1e-05\nf .attention.layer_norm_epsilon 1e-05")]
KV_HEADS = [("u .attention.head_count_kv 2", "u .attention.head_count_kv 4"), ("attn_k.weight F32 0.125 0 64 32", "attn_k.weight F32 0.125 0 64 64"),
            ("attn_v.weight F32 0.125 0 64 32", "attn_v.weight F32 0.125 0 64 64")]
# (text of the model's lines, what takes its place)
CHANGES = {
    "baichuan": [("u .block_count 2", "u .block_count 32"), (blocks(0, 2), blocks(0, 32))],  # It tells sizes by this number.
    "command-r": [("w blk.0,1.attn_q_norm.weight F32 0.2 1 16 4", ""), ("w blk.0,1.attn_k_norm.weight F32 0.2 1 16 2", "")],
    "deci": [("U .attention.head_count 0 ", "U .attention.head_count 4 "), ("U .attention.head_count_kv 0 ", "U .attention.head_count_kv 2 "),
             ("U .feed_forward_length 96 48 96 0 0", "U .feed_forward_length 96 48 96 0 96"), ("blk.1,4.attn_q", "blk.0,1,4.attn_q"),
             ("blk.1,2,4.attn_", "blk.0,1,2,4.attn_"), ("blk.1.attn_", "blk.0,1.attn_"), ("blk.0,2.ffn_", "blk.0,2,4.ffn_"),
             ("blk.0,1,2.ffn_norm", "blk.0,1,2,4.ffn_norm")],
    "deepseek2-lite": [("u .block_count 3", "u .block_count 27"), (blocks(0, 3), blocks(0, 27)), (blocks(1, 3), blocks(1, 27))],
    "dots1": KV_HEADS,
    "exaone-moe": [("u .block_count 5", "u .block_count 4"), ("u .nextn_predict_layers 1", ""), ("w blk.4.nextn.eh_proj.weight F32 0.08839 0 128 64", "")],
    "ernie4_5-moe": [("u .expert_count 8", "u .expert_count 8\nu .interleave_moe_layer_step 1")],
    "falcon-h1": [(".ffn_norm.weight", ".ffn_norm")],
    "gptneox": [("u .block_count", "b .use_parallel_residual 1\nu .block_count")],
    "granitehybrid-moe": EXPERTS_ALONE, "granitemoe": EXPERTS_ALONE, "hunyuan-moe": EXPERTS_ALONE, "minimax-m2": EXPERTS_ALONE,
    "mixtral": EXPERTS_ALONE, "nemotron_h": RMS_TOO, "nemotron_h_moe": RMS_TOO,
    "olmo3": [("f .rope.scaling.attn_factor 1.25", "")],  # Their code takes it for a factor of the magnitude.
    "plm": [("u .attention.head_count_kv 2", "u .attention.head_count_kv 4"), ("attn_k_b.weight F32 0.25 0 16 32 4", "attn_kv_b.weight F32 0.25 0 32 128"),
            ("w blk.0,1.attn_v_b.weight F32 0.1768 0 32 16 4", "")],
}


def variant(name):
    """The lines of the model as llama.cpp takes it."""
    text = "\n".join(tiny_gguf.lines_of(name))
    for old, new in CHANGES.get(name, []):
        if old not in text:
            raise ValueError(f"{name}: no line has {old!r}")
        text = text.replace(old, new)
    return [line for line in text.split("\n") if line]


def peer(path, ids, has_logits, pooling):
    """llama.cpp's logits of the last position, or the vector or score of the whole text."""
    from llama_cpp import llama_cpp as c
    params = c.llama_model_default_params()
    params.n_gpu_layers = 0
    model = c.llama_model_load_from_file(path.encode(), params)
    if not model:
        raise RuntimeError("llama.cpp refuses the file")
    params = c.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 512
    params.type_k = params.type_v = 0  # f32
    params.flash_attn_type = 0
    params.embeddings = not has_logits
    params.pooling_type = pooling
    context = c.llama_init_from_model(model, params)
    batch = c.llama_batch_init(512, 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, not has_logits or i == len(ids) - 1
        batch.seq_id[i][0] = 0
    if c.llama_decode(context, batch):
        raise RuntimeError("llama.cpp does not compute it")
    if has_logits:
        return np.ctypeslib.as_array(c.llama_get_logits_ith(context, len(ids) - 1), shape=(tiny_gguf.V,))
    at = c.llama_get_embeddings_seq(context, 0)
    return np.ctypeslib.as_array(at, shape=(1 if c.llama_pooling_type(context) == 4 else c.llama_model_n_embd_out(model),))


def compare(name):
    lines = variant(name)
    values = {letter: [float(x) for line in lines if line[:2] == letter + " " for x in line[2:].split()] for letter in "ilpr"}
    ids = [int(x) for x in values["i"]]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        tiny_gguf.lines_of = lambda _: lines
        tiny_gguf.write(name, path)
        has_pooling = any(line.startswith("u .pooling_type") for line in lines)
        theirs = peer(path, ids, bool(values["l"]), -1 if has_pooling else 1)  # As the file says, or the mean.
        ours = np.array(values["l"] or values["r"] or values["p"])
        if name in CHANGES:
            out = os.path.join(folder, "logits")
            subprocess.run(["bin/logits", "-m", path, "--device", "cpu", "-c", "512", "-ctk", "f32", "--ids", ",".join(map(str, ids)), "-o", out], check=True)
            ours = np.fromfile(out, np.float32)[-tiny_gguf.V:]
    if values["p"] and not values["r"]:
        ours, theirs = ours / np.linalg.norm(ours), theirs / np.linalg.norm(theirs)
    print(f"{name}: {np.abs(ours - theirs).max():.1e} of {np.abs(ours).max():.2f}{' (a variant)' if name in CHANGES else ''}")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        compare(sys.argv[1])
        sys.exit()
    with open(os.path.join(tiny_gguf.HERE, "models.txt"), encoding="utf-8") as file:
        names = sys.argv[1:] or [line.split()[1] for line in file if line.startswith("model ")]
    for name in names:
        done = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, errors="replace")
        said = [line for line in done.stderr.splitlines() if "rror" in line or "ASSERT" in line]
        print(done.stdout.strip() or f"{name}: not compared: {' '.join(said)[:160]}", flush=True)

#!/usr/bin/env python3
"""Compares Duet's vectors and scores of texts with llama.cpp's, of the same files: the tiny encoders and rerankers of tests/data, in F32.

    pip install ./bindings/python llama-cpp-python numpy && python3 benchmarks/embeddings.py

Prints for each model the cosine and the largest difference between the two vectors (of length 1), or the two scores. It ends with
an error where a cosine is not above 0.9999. llama.cpp's AMX kernels crash on some machines; a build without them:
CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON" pip install llama-cpp-python
"""
import os
import sys
import tempfile

import llama_cpp
import numpy as np

import duet

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "data"))
import tiny_gguf  # noqa: E402

VECTORS = ["bert", "long-bert", "nomic-bert", "jina-bert-v2", "jina-bert-v2-code", "long-jina-bert-v2", "modern-bert", "long-modern-bert",
           "gemma-embedding", "qwen3-embedding"]
SCORES = ["bert-reranker", "modern-bert-reranker", "qwen3-reranker"]
MEAN, LAST, RANK = 1, 3, 4  # of llama.cpp's pooling types


@llama_cpp.llama_log_callback
def be_silent(level, text, data):
    pass


def of_llama(path, ids, pooling):
    model_params = llama_cpp.llama_model_default_params()
    model_params.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(path.encode(), model_params)
    if not model:
        return None
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 256
    params.n_threads = params.n_threads_batch = 1
    params.embeddings = True
    params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED  # it rounds keys and values to f16
    if pooling is not None:
        params.pooling_type = pooling
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        return None
    batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, id in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = id, i, 1, 1
        batch.seq_id[i][0] = 0
    if llama_cpp.llama_decode(context, batch) != 0:
        return None
    n = 1 if pooling == RANK else llama_cpp.llama_model_n_embd_out(model)
    row = np.array(llama_cpp.llama_get_embeddings_seq(context, 0)[:n], np.float64)
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return row


def main():
    llama_cpp.llama_log_set(be_silent, None)
    llama_cpp.llama_backend_init()
    print(f"Duet {duet.version()}, {duet.build_info().split(';')[0]}; llama.cpp of llama-cpp-python {llama_cpp.__version__}; F32, one thread")
    print("| model | tokens | cosine | largest difference |\n|---|---:|---:|---:|")
    is_bad = False
    with tempfile.TemporaryDirectory() as folder:
        for name in VECTORS + SCORES:
            path = os.path.join(folder, name + ".gguf")
            tiny_gguf.write(name, path)
            ids, is_score = tiny_gguf.values_of(name, "i", int), name in SCORES
            with duet.Model(path, device="cpu") as model, model.session(cache_type="f32") as session:
                if is_score:
                    ours = session.rerank("q", ["d"]).astype(np.float64)
                else:
                    ours = session.embed([ids])[0].astype(np.float64)
            key = tiny_gguf.lines_of(name)
            has_pooling = any(line.startswith("u .pooling_type") for line in key)
            encodes = any(line.startswith("b .attention.causal 0") for line in key)
            theirs = of_llama(path, ids, RANK if is_score else None if has_pooling else MEAN if encodes else LAST)
            if theirs is None:
                print(f"| `{name}` | {len(ids)} | llama.cpp does not load it | |")
            elif is_score:
                print(f"| `{name}` | {len(ids)} | scores {ours[0]:.6f}, {theirs[0]:.6f} | {abs(ours[0] - theirs[0]):.1e} |")
                is_bad |= not abs(ours[0] - theirs[0]) < 1e-3
            else:
                theirs /= np.sqrt((theirs**2).sum())
                cosine = float(ours @ theirs / np.sqrt((ours**2).sum() * (theirs**2).sum()))
                print(f"| `{name}` | {len(ids)} | {cosine:.9f} | {np.abs(ours - theirs).max():.1e} |")
                is_bad |= not cosine > 0.9999
    if is_bad:
        sys.exit("want cosines above 0.9999")


main()

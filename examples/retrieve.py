"""examples/retrieve.py: asks a folder of texts: the passages that are nearest to a question, by the vectors of an
embedding model; with a reranker, the best of the nearest 20 by its scores.

    pip install ./bindings/python numpy && python3 examples/retrieve.py model.gguf folder "a question" [reranker.gguf]
"""
import pathlib
import sys

import duet


def open_session(path: str) -> duet.Session:
    model = duet.Model(path)
    # 16 texts at once; of encoders keys and values cost little in full precision
    return model.session(n_seqs=16, cache_tokens=8192, cache_type="f32" if model.info.is_encoder else "f16")


def text_of(file: pathlib.Path) -> str:
    """What cannot be read is left out."""
    try:
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""


def main() -> None:
    if len(sys.argv) not in (4, 5):
        sys.exit(f"usage: {sys.argv[0]} MODEL FOLDER QUESTION [RERANKER]")
    path, folder, question = sys.argv[1:4]
    files = [file for file in sorted(pathlib.Path(folder).rglob("*")) if file.suffix in (".txt", ".md")]
    passages = [(str(file), text) for file in files
                for text in text_of(file).split("\n\n") if text.strip()]
    if not passages:
        sys.exit(f"retrieve: no .txt or .md in {folder}")
    try:
        with open_session(path) as session:
            vectors = session.embed([text for _, text in passages], cut=True)
            scores = vectors @ session.embed([question], cut=True)[0]  # of length 1: the product is the cosine
        found = sorted(zip(scores.tolist(), passages), reverse=True)[:20]
        if len(sys.argv) == 5:
            with open_session(sys.argv[4]) as session:
                scores = session.rerank(question, [text for _, (_, text) in found])
            found = sorted(zip(scores.tolist(), (passage for _, passage in found)), reverse=True)
    except duet.DuetError as error:
        sys.exit(f"retrieve: {error}")
    for score, (name, text) in found[:3]:
        print(f"{score:.3f} {name}\n{text}\n")


if __name__ == "__main__":
    main()

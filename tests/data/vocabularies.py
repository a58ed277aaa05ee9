"""tests/data/vocabularies.py: tiny vocabularies of every kind and the ids that other programs give. Used by make.py.

Ids come from the tokenizers and sentencepiece packages, and for ranks by id from the definition in ranked(). The
patterns are those of models/pretokenizers.def: an engine that is not ours matches them, but a pattern that is wrong
there is wrong here too.
"""
import io
import json
import os
import re

import sentencepiece
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

TEXTS = [
    "Once upon a time there was a small village.", "I'll say it's DON'T, we'Ve and they'RE o'clock",
    "12345 1,234.56 0x1F 7th 100000000", "a  b   c\t d \n\n e\r\n  \n", "trailing spaces   ", "   leading", "\n\n\n",
    "camelCaseWords HTTPServer snake_case_name XMLHttpRequest2", "for (int i = 0; i < n; ++i) { x[i] += y; } // done!!",
    "Größe, naïve café, Ærø, straße — “quoted” …", "cafe\u0301 n\u0303 o\u0308 combining", "Привет, мир! Ёлка 2024 года",
    "你好，世界。日本語のテキスト 한국어 텍스트 三千", "مرحبا بالعالم ١٢٣", "हिन्दी पाठ १२३ ไทย", "😀👍🏽 👩‍👩‍👧 ½ ² Ⅷ ①",
    "$5.00+tax=~6^2|`code`<tag>", "don’t http://example.com/a?b=c&d=e#f user@mail.org", "\u00a0no-break\u3000wide\u2009thin",
    "zzzzqqqq xxxxxx", "x", " ", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "end.\n", "Ａｂｃ ﬁne ①②",
]
CORPUS = TEXTS + [
    "The old man walked down the road to the village and there he met a small dog that was looking for the other end.",
    "When the time came, they were all there: the teller, the miller, and the small girl from the other side.",
    "Every number is a sum of smaller numbers, and every word is a sum of smaller words. The words were there.",
    "Er ging die Straße hinunter und sah die Größe der Welt, die er nicht kannte, und der Hund lief hinterher.",
    "for (int i = 0; i < size; ++i) { sum += values[i]; } return sum / size; // the mean of the values",
    "Привет всем, кто пришёл сегодня; мир стал больше. 日本語のテキスト、世界の言葉。",
]


def escape(text):
    data = text if isinstance(text, bytes) else text.encode()
    return "".join(chr(b) if 0x21 <= b <= 0x7E and b != 0x5C else f"\\x{b:02x}" for b in data)


def pretokenizer_rows(root):
    text = open(os.path.join(root, "models/pretokenizers.def"), encoding="utf-8").read()
    patterns = {n: p for n, p in re.findall(r'^PATTERN\((\w+),\s*R"\((.*)\)"\)$', text, re.M)}
    for names, flags, used in re.findall(r'^PRETOKENIZER\("([^"]+)",\s*([^,]+?),\s*(.*)\)$', text, re.M):
        yield names.split()[0], flags, [patterns[u.strip()[len("pattern_"):]] for u in used.split(",")]


def cut(patterns, *more):
    split = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    return pre_tokenizers.Sequence(split + list(more))


def train_bpe():
    """(tokens, merges) of a byte-level BPE; ids: 256 bytes in the order of their letters, then merges by rank."""
    tok = Tokenizer(models.BPE())
    # merges that cross words, digits and marks: ids then tell where a pre-tokenizer cut
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=256 + 400, initial_alphabet=alphabet,
                                                        max_token_length=4, show_progress=False))
    model = json.loads(tok.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return tokens, [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]


def ranked(piece, vocab):
    """Byte pair encoding by ids: any two neighbours that make a token merge, lowest id first, leftmost of equals."""
    parts = list(piece)
    while True:
        pairs = [(vocab[a + b], i) for i, (a, b) in enumerate(zip(parts, parts[1:])) if a + b in vocab]
        if not pairs:
            return [vocab[p] for p in parts]
        i = min(pairs)[1]
        parts[i:i + 2] = [parts[i] + parts[i + 1]]


def bpe_ids(flags, patterns, tokens, merges):
    vocab = {t: i for i, t in enumerate(tokens)}
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges="kPreWholeFirst" in flags))
    tok.pre_tokenizer = cut(patterns, byte_level)
    normal = normalizers.NFC() if "kPreNfc" in flags else None
    for text in TEXTS:
        text = normal.normalize_str(text) if normal else text
        if "kPreRankById" not in flags:
            yield tok.encode(text).ids
            continue
        ids = []
        for piece, _ in tok.pre_tokenizer.pre_tokenize_str(text):
            ids += [vocab[piece]] if piece in vocab else ranked(piece, vocab)
        yield ids


def raw_utf8():
    """BPE over characters with spaces marked, bytes for the rest: (tokens, types, merges, ids of each text)."""
    mark = "\u2581"
    special = ["<pad>", "<eos>", "<bos>", "<unk>"]
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", mark)
    trained.train_from_iterator(CORPUS[-6:] + TEXTS[:8], trainers.BpeTrainer(vocab_size=150, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    words = sorted(model["vocab"], key=model["vocab"].get)
    tokens = special + bytes_ + words
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    tok = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges, byte_fallback=True,
                               fuse_unk=True, unk_token="<unk>"))
    tok.normalizer = normalizers.Replace(" ", mark)
    tok.pre_tokenizer = cut([r"[^\n]+|[\n]+"])
    types = [3, 3, 3, 2] + [6] * 256 + [1] * len(words)
    return tokens, types, merges, [tok.encode(t).ids for t in TEXTS]


def wordpiece():
    """The commonest beginnings and insides of words; the package's own trainer gives other pieces in every run."""
    normal, words = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    counts = {}
    for text in CORPUS:
        for word, _ in words.pre_tokenize_str(normal.normalize_str(text)):
            for a in range(len(word)):
                for piece in (word[a:b] for b in range(a + 1, min(a + 6, len(word)) + 1)):
                    piece = piece if a == 0 else "##" + piece
                    counts[piece] = counts.get(piece, 0) + 1
    is_letter = lambda piece: len(piece.removeprefix("##")) == 1
    found = sorted(counts, key=lambda piece: (not is_letter(piece), -counts[piece], piece))
    tokens = special + found[:330 - len(special)]
    tok = Tokenizer(models.WordPiece(vocab={t: i for i, t in enumerate(tokens)}, unk_token="[UNK]"))
    tok.normalizer, tok.pre_tokenizer = normal, words
    spell = lambda t: t if t in special else t[2:] if t.startswith("##") else "\u2581" + t
    return [spell(t) for t in tokens], [3 if t in special else 1 for t in tokens], [tok.encode(t).ids for t in TEXTS]


def sentence_pieces(kind):
    """SentencePiece's own trainer and encoder; unigram with a small table of rules for characters."""
    how = dict(vocab_size=259 + 160, byte_fallback=True, normalization_rule_name="identity",
               remove_extra_whitespaces=False) if kind == "bpe" else dict(vocab_size=200)
    if kind == "unigram":
        rules = "/tmp/duet_rules.tsv"
        with open(rules, "w", encoding="utf-8") as f:
            for a, b in (("ﬁ", "fi"), ("①", "1"), ("②", "2"), ("Ａ", "A"), ("ｂ", "b"), ("\u3000", " "), ("e\u0301", "é")):
                f.write(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n")
        how["normalization_rule_tsv"] = rules
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(t.replace("\n", " ") for t in TEXTS[:9] + CORPUS[-6:-1]), model_writer=out, model_type=kind,
        character_coverage=0.98, minloglevel=2, hard_vocab_limit=False, **how)
    sp = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    kinds = lambda i: 2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1
    n = range(sp.get_piece_size())
    charsmap = b""
    if kind == "unigram":
        from sentencepiece import sentencepiece_model_pb2 as pb
        model = pb.ModelProto()
        model.ParseFromString(out.getvalue())
        charsmap = model.normalizer_spec.precompiled_charsmap
    return ([sp.id_to_piece(i) for i in n], [kinds(i) for i in n], [sp.get_score(i) for i in n], charsmap,
            [sp.encode(t) for t in TEXTS])


def lines(root):
    yield from (f"text {escape(t)}" for t in TEXTS)

    def vocabulary(name, tokens, types=None, scores=None, merges=(), charsmap=b"", **keys):
        yield f"vocab {name}"
        yield from (f"key {k} {v}" for k, v in keys.items())
        for i, t in enumerate(tokens):
            yield f"token {types[i] if types else 1} {f'{scores[i]:.9g}' if scores else 0} {escape(t)}"
        yield from (f"merge {escape(a)} {escape(b)}" for a, b in merges)
        if charsmap:
            yield f"charsmap {escape(charsmap)}"

    def answers(by_row):
        """Rows with equal ids share a line: ids <text> <rows> : ids"""
        for i in range(len(TEXTS)):
            groups = {}
            for row, ids in by_row.items():
                groups.setdefault(tuple(ids[i]), []).append(row)
            for ids, rows in groups.items():
                yield f"ids {i} {','.join(rows)} : {' '.join(map(str, ids))}".rstrip()

    tokens, merges = train_bpe()
    rows = list(pretokenizer_rows(root))
    yield from vocabulary("gpt2", tokens, merges=merges)
    yield from answers({name: list(bpe_ids(flags, patterns, tokens, merges)) for name, flags, patterns in rows
                        if "kPreRawUtf8" not in flags})
    tokens, types, merges, ids = raw_utf8()
    yield from vocabulary("gemma4", tokens, types, merges=merges, unknown_token_id=3, bos_token_id=2, eos_token_id=1)
    yield from answers({"gemma4": ids})
    tokens, types, ids = wordpiece()
    yield from vocabulary("bert", tokens, types, unknown_token_id=1, cls_token_id=2, seperator_token_id=3)
    yield from answers({"-": ids})
    for kind, name in (("bpe", "llama"), ("unigram", "t5")):
        tokens, types, scores, charsmap, ids = sentence_pieces(kind)
        yield from vocabulary(name, tokens, types, scores, charsmap=charsmap, unknown_token_id=0, bos_token_id=1,
                              eos_token_id=2)
        yield from answers({"-": ids})

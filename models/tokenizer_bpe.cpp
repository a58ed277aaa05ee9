// models/tokenizer_bpe.cpp: byte-level BPE, BPE over characters, and SPM, which is BPE by scores.
// Owns: which symbols are merged, and what characters without a token become. Must not know: special tokens.
// Main path: models/tokenizer.cpp -> [models/tokenizer_bpe.cpp] -> models/pretokenizer.h, models/merge_queue.h
//
// Algorithms: huggingface/tokenizers:tokenizers/src/models/bpe (merges by rank, leftmost first; ignore_merges),
// openai/tiktoken:src/lib.rs (the rank of a merge is the id of its result), google/sentencepiece:src/bpe_model.cc
// (scores; unused tokens are taken apart again).
#include "merge_queue.h"
#include "tokenizer_vocab.h"
#include "unicode.h"

#include <unordered_map>

namespace duet {
namespace {

void append_symbol(std::vector<merge_symbol>* symbols, size_t start, int32_t id) {
    uint32_t i = (uint32_t)symbols->size();
    if (i > 0) symbols->back().next = i;
    symbols->push_back({i > 0 ? i - 1 : kNoSymbol, kNoSymbol, (uint32_t)start, id});
}

size_t symbol_end(const std::vector<merge_symbol>& symbols, uint32_t i, std::string_view text) {
    return symbols[i].next == kNoSymbol ? text.size() : symbols[symbols[i].next].start;
}

// Returns a smaller rank for a higher score, and kNoRank where there is no finite score.
uint32_t rank_of_score(float score) {
    uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 and 0 are the same score.
    return bits >> 31 ? bits : ~(bits | 0x80000000u);
}

}  // namespace

void vocabulary::append_token(int32_t id, std::string_view text, bool* was_unknown, std::vector<int32_t>* ids) const {
    if (id >= 0) ids->push_back(id);
    else if (has_byte_fallback)
        for (char c : text) ids->push_back(byte_ids[(uint8_t)c]);
    else if (unk >= 0 && !*was_unknown) ids->push_back(unk);  // Neighbours that are unknown become one token.
    *was_unknown = id < 0;
}

// Merges one piece of the pre-tokenizer.
void vocabulary::merge_pieces(std::string_view text, std::vector<int32_t>* ids) const {
    bool is_raw = pre.flags() & kPreRawUtf8, is_by_id = (pre.flags() & kPreRankById) != 0;
    // SPM-like BPE has tokens for runs of newlines that no merge makes (ggml-org/llama.cpp pull request 21343).
    bool is_whole_first =
        is_raw ? text.find_first_not_of('\n') == std::string_view::npos : (pre.flags() & kPreWholeFirst) != 0;
    if (is_whole_first || text.size() == 1) {
        int32_t id = index.find(text);
        if (id >= 0) return ids->push_back(id);
    }
    std::vector<merge_symbol> symbols;
    symbols.reserve(text.size());
    bool was_unknown = false;
    for (size_t pos = 0; pos < text.size();) {
        const size_t n_bytes = is_raw ? char_bytes(text, pos) : 1;
        int32_t id = is_raw ? index.find(text.substr(pos, n_bytes)) : byte_ids[(uint8_t)text[pos]];
        if (id < 0 && is_raw && has_byte_fallback)
            for (size_t i = 0; i < n_bytes; ++i) append_symbol(&symbols, pos + i, byte_ids[(uint8_t)text[pos + i]]);
        // Byte-level models leave out characters for which they have no token.
        else if (id >= 0 || (is_raw && unk >= 0 && !was_unknown)) append_symbol(&symbols, pos, id >= 0 ? id : unk);
        was_unknown = id < 0;
        pos += n_bytes;
    }
    merge_symbols(symbols, [&](uint32_t i, uint32_t j) {
        if (is_by_id) {
            int32_t id = index.find(text.substr(symbols[i].start, symbol_end(symbols, j, text) - symbols[i].start));
            if (id < 0) return;
            symbols[i].rank = (uint32_t)id;
            symbols[i].merged = id;
        } else if (const merge_row& m = merges.row(merge_key(symbols[i].id, symbols[j].id)); m.id >= 0) {
            symbols[i].rank = m.rank;
            symbols[i].merged = m.id;
        }
    });
    for (uint32_t i = 0; i != kNoSymbol && i < symbols.size(); i = symbols[i].next) ids->push_back(symbols[i].id);
}

void vocabulary::encode_bpe(std::string_view text, std::vector<int32_t>* ids) const {
    std::string changed;
    if (pre.flags() & kPreNfc) text = changed = unicode_nfc(text);
    if (pre.flags() & kPreRawUtf8) {
        changed.reserve(text.size());
        for (char c : text) c == ' ' ? changed += kSpaceMark : changed += c;
        text = changed;
    }
    std::vector<uint32_t> piece_ends;
    pre.split(text, &piece_ends);
    size_t start = 0;
    for (uint32_t end : piece_ends) {
        merge_pieces(text.substr(start, end - start), ids);
        start = end;
    }
}

void vocabulary::encode_spm(std::string_view raw, bool is_prefixed, std::vector<int32_t>* ids) const {
    std::string text = is_prefixed ? std::string(kSpaceMark) : std::string();
    text.reserve(text.size() + raw.size() + raw.size() / 2);
    size_t first = 0, last = raw.size();
    if (remove_extra_spaces) {
        while (first < last && raw[first] == ' ') ++first;
        while (last > first && raw[last - 1] == ' ') --last;
        if (first == last) return;
    }
    for (size_t i = first; i < last; ++i) {
        if (raw[i] != ' ') text += raw[i];
        else if (!remove_extra_spaces || raw[i - 1] != ' ') text += kSpaceMark;
    }

    std::vector<merge_symbol> symbols;
    symbols.reserve(text.size());
    for (size_t pos = 0; pos < text.size();) {
        const size_t n_bytes = char_bytes(text, pos);
        append_symbol(&symbols, pos, index.find(std::string_view(text).substr(pos, n_bytes)));
        pos += n_bytes;
    }
    // Merges may pass through unused tokens. These are taken apart again, the way they were last put together.
    std::unordered_map<std::string_view, size_t> unused_splits;
    std::string_view all = text;
    merge_symbols(symbols, [&](uint32_t i, uint32_t j) {
        size_t start = symbols[i].start, n_bytes = symbol_end(symbols, j, all) - start;
        if (n_bytes > max_bytes) return;
        int32_t id = index.find(all.substr(start, n_bytes));
        if (id < 0) return;
        symbols[i].rank = rank_of_score(scores[id]);
        symbols[i].merged = id;
        if (types[id] == kTokenUnused) unused_splits[all.substr(start, n_bytes)] = symbols[j].start - start;
    });
    bool was_unknown = false;
    std::vector<std::string_view> open;  // parts that may have to be taken apart
    for (uint32_t i = 0; i != kNoSymbol && i < symbols.size(); i = symbols[i].next) {
        open.push_back(all.substr(symbols[i].start, symbol_end(symbols, i, all) - symbols[i].start));
        while (!open.empty()) {
            std::string_view part = open.back();
            open.pop_back();
            int32_t id = index.find(part);
            auto split = id >= 0 && types[id] == kTokenUnused ? unused_splits.find(part) : unused_splits.end();
            if (split != unused_splits.end()) {
                open.push_back(part.substr(split->second));
                open.push_back(part.substr(0, split->second));
            } else {
                append_token(id, part, &was_unknown, ids);
            }
        }
    }
}

}  // namespace duet

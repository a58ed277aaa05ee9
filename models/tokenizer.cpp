// models/tokenizer.cpp: text <-> ids: special tokens, BOS and EOS, and the way back. The algorithms are in
// tokenizer_*.cpp. Owns: the line between text and special tokens. Must not know: models, chat templates, sampling.
// Main path: runtime/model.cpp -> [models/tokenizer.cpp] -> models/tokenizer_vocab.h
#include "tokenizer.h"

#include "tokenizer_vocab.h"

namespace duet {

constexpr size_t kMaxEncodeBytes = 1 << 30;  // Spaces grow to three bytes, and offsets have 32 bits.

duet_status tokenizer::load(const gguf_file& file, error_text& err) {
    auto loaded = std::make_shared<vocabulary>();
    DUET_TRY(loaded->load(file, err));
    vocab_ = std::move(loaded);
    return DUET_OK;
}

// Encodes text, in which control tokens are found in the trusted stretches only, and user-defined ones everywhere.
duet_status tokenizer::encode_trusted(std::string_view text, std::span<const stretch> trusted, bool add_bos,
                                      std::vector<int32_t>* ids, std::vector<mark>* marks, error_text& err) const {
    ids->clear();
    marks->clear();
    if (!vocab_) return fail(err, DUET_ERR_ARG, "tokenizer: want a loaded vocabulary, got none");
    if (text.size() > kMaxEncodeBytes)
        return fail(err, DUET_ERR_ARG, "text: want at most %zu bytes, got %zu", kMaxEncodeBytes, text.size());
    const vocabulary& vocab = *vocab_;
    if (add_bos && vocab.add_bos) ids->push_back(vocab.bos);
    const bool has_bos = !ids->empty();
    // SPM and unigram put a space before text that begins a sequence or follows a special token.
    bool is_prefixed = vocab.add_space_prefix;
    auto put_text = [&](std::string_view part) {
        if (part.empty()) return;
        switch (vocab.kind) {
        case vocab_kind::bpe: vocab.encode_bpe(part, ids); break;
        case vocab_kind::spm: vocab.encode_spm(part, is_prefixed, ids); break;
        case vocab_kind::unigram: vocab.encode_unigram(part, is_prefixed, ids); break;
        case vocab_kind::wordpiece: vocab.encode_wordpiece(part, ids); break;
        }
    };
    size_t start = 0, i_stretch = 0;
    for (size_t pos = 0; pos < text.size();) {
        while (i_stretch < trusted.size() && trusted[i_stretch].end <= pos) ++i_stretch;
        const size_t end = i_stretch < trusted.size() && trusted[i_stretch].begin <= pos ? trusted[i_stretch].end : 0;
        size_t longest = 0;
        int32_t id = -1;
        const auto take_longest = [&](size_t n, int32_t found) {
            if (n < longest) return;
            longest = n;
            id = found;
        };
        vocab.user_defined.prefixes(text.substr(pos), take_longest);
        if (end > pos) vocab.all_special.prefixes(text.substr(pos, end - pos), take_longest);
        if (longest == 0) {
            ++pos;
            continue;
        }
        put_text(text.substr(start, pos - start));
        marks->push_back({pos, ids->size()});
        ids->push_back(id);
        start = pos += longest;
        while (vocab.takes_spaces(id) && pos < text.size() &&
               (text[pos] == ' ' || (text[pos] >= '\t' && text[pos] <= '\r')))
            start = ++pos;
    }
    put_text(text.substr(start));
    if (!has_bos || ids->size() < 2 || (*ids)[1] != vocab.bos) return DUET_OK;
    ids->erase(ids->begin());  // the text brings its own
    for (mark& m : *marks) m.n_ids_before--;
    return DUET_OK;
}

duet_status tokenizer::encode(std::string_view text, bool add_bos_eos, bool parse_special, std::vector<int32_t>* ids,
                              error_text& err) const {
    const stretch whole{0, text.size()};
    std::vector<mark> marks;
    DUET_TRY(encode_trusted(text, {&whole, parse_special ? 1u : 0u}, add_bos_eos, ids, &marks, err));
    const int32_t last = vocab_->last();
    if (add_bos_eos && last >= 0 && (ids->size() <= vocab_->add_bos || ids->back() != last)) ids->push_back(last);
    return DUET_OK;
}

duet_status tokenizer::encode_pair(std::string_view a, std::string_view b, std::vector<int32_t>* ids,
                                   error_text& err) const {
    std::vector<int32_t> second;
    DUET_TRY(encode(a, false, false, ids, err));
    DUET_TRY(encode(b, false, false, &second, err));
    const vocabulary& vocab = *vocab_;
    if (vocab.add_bos) ids->insert(ids->begin(), vocab.bos);
    if (vocab.add_eos) ids->push_back(vocab.eos);
    if (vocab.add_sep) ids->push_back(vocab.sep);
    ids->insert(ids->end(), second.begin(), second.end());
    if (vocab.last() >= 0) ids->push_back(vocab.last());
    return DUET_OK;
}

duet_status tokenizer::encode_prompt(std::string_view text, const std::vector<stretch>& trusted,
                                     std::vector<int32_t>* ids, std::vector<int64_t>* starts, error_text& err) const {
    std::vector<mark> marks;
    DUET_TRY(encode_trusted(text, trusted, true, ids, &marks, err));
    if (!starts) return DUET_OK;
    // Special tokens stand at known bytes; an offset between two of them counts the ids up to the first of the two.
    size_t i_mark = 0, n_ids = 0;
    for (int64_t& start : *starts) {
        if (start < 0) continue;
        for (; i_mark < marks.size() && marks[i_mark].byte < (size_t)start; ++i_mark)
            n_ids = marks[i_mark].n_ids_before + 1;
        if (i_mark < marks.size() && marks[i_mark].byte == (size_t)start) n_ids = marks[i_mark].n_ids_before;
        start = (int64_t)n_ids;
    }
    return DUET_OK;
}

std::string_view tokenizer::piece(int32_t id) const {
    return id >= 0 && id < n_vocab() ? vocab_->piece(id) : std::string_view();
}

std::string_view tokenizer::spelling(int32_t id) const {
    return id >= 0 && id < n_vocab() ? vocab_->spellings[id] : std::string_view();
}

void tokenizer::decode(const int32_t* ids, size_t n_ids, bool special, std::string* out) const {
    if (!vocab_) return;
    const vocabulary& vocab = *vocab_;
    // encode() puts a space before the text, or before its first word. This space is not text.
    bool is_start = true;
    for (size_t i = 0; i < n_ids; ++i) {
        int32_t id = ids[i];
        if (id < 0 || id >= vocab.n_tokens()) continue;
        if (vocab.is_special(id)) {
            if (special) *out += vocab.spellings[id];
            is_start = is_start || vocab.kind != vocab_kind::wordpiece;
            continue;
        }
        std::string_view text = vocab.piece(id);
        bool has_prefix = vocab.add_space_prefix || vocab.kind == vocab_kind::wordpiece;
        if (is_start && has_prefix && vocab.types[id] == kTokenNormal && text.starts_with(' ')) text.remove_prefix(1);
        *out += text;
        is_start = vocab.types[id] == kTokenUserDefined && vocab.kind != vocab_kind::wordpiece;
    }
}

int32_t tokenizer::n_vocab() const { return vocab_ ? vocab_->n_tokens() : 0; }
int32_t tokenizer::bos() const { return vocab_ ? vocab_->bos : -1; }
int32_t tokenizer::eos() const { return vocab_ ? vocab_->eos : -1; }

bool tokenizer::is_end(int32_t id) const { return id >= 0 && id < n_vocab() && vocab_->ends[id]; }
bool tokenizer::is_control(int32_t id) const { return id >= 0 && id < n_vocab() && vocab_->types[id] == kTokenControl; }

}  // namespace duet

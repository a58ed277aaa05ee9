// models/tokenizer.h: text <-> token ids, with the vocabulary of a GGUF file: SPM, byte-level BPE, unigram, WordPiece.
// Owns: the vocabulary, its checks, and the ids of a text. Must not know: models, chat templates, sampling, devices.
// Main path: runtime/model.cpp -> [models/tokenizer] -> runtime/generate.cpp -> runtime/session.cpp (the batch)
#pragma once
#include "gguf.h"

#include <memory>
#include <span>

namespace duet {

struct vocabulary;  // tokenizer_vocab.h

// It is built once from a file and then only read: any thread may make const calls. It keeps views into the file, which
// must outlive it.
class tokenizer {
  public:
    // Checks and indexes the whole vocabulary. DUET_ERR_FORMAT: the file contradicts itself (the message has key,
    // index, wanted, found). DUET_ERR_UNSUPPORTED: there is no code for tokenizer.ggml.model or .pre (the message names
    // the known ones), or the file has no vocabulary.
    duet_status load(const gguf_file& file, error_text& err);

    // Replaces *ids by the ids of the text. Any bytes are accepted. add_bos_eos: adds BOS and EOS if the metadata asks
    // for them, but never twice. parse_special: a control token that is spelled out in the text becomes that token.
    // DUET_ERR_ARG: the text has more than 2^30 bytes, or nothing is loaded.
    duet_status encode(std::string_view text, bool add_bos_eos, bool parse_special, std::vector<int32_t>* ids,
                       error_text& err) const;

    // Replaces *ids by those of two texts as classifiers read pairs: a separator stands behind each, as the metadata
    // asks. Errors as encode().
    duet_status encode_pair(std::string_view a, std::string_view b, std::vector<int32_t>* ids, error_text& err) const;

    // A prompt of which only some stretches are trusted to name control tokens: text outside of them stays text even
    // where it spells one. trusted: disjoint stretches in ascending order. BOS comes first as the metadata asks, never
    // twice; nothing is put at the end. *starts, when given: for each of the byte offsets in it (ascending) the number
    // of ids that stand for earlier bytes; a token that spans an offset does not count.
    struct stretch {
        size_t begin, end;
    };
    duet_status encode_prompt(std::string_view text, const std::vector<stretch>& trusted, std::vector<int32_t>* ids,
                              std::vector<int64_t>* starts, error_text& err) const;

    // The bytes of a token that follows other text; empty for control tokens and out of range. The view is valid as
    // long as the tokenizer.
    std::string_view piece(int32_t id) const;
    // The token as the file spells it; empty out of range.
    std::string_view spelling(int32_t id) const;

    // The inverse of encode: appends the text to *out, without the space that SPM puts before it, and with spaces
    // between words of WordPiece. special: control tokens are written as spelled; otherwise they give nothing.
    void decode(const int32_t* ids, size_t n_ids, bool special, std::string* out) const;

    int32_t n_vocab() const;
    int32_t bos() const;            // -1: none
    int32_t eos() const;            // -1: none
    bool is_end(int32_t id) const;  // The token ends a generation: EOS, end of turn, ...
    bool is_control(int32_t id) const;

  private:
    struct mark {  // of a special token in a text
        size_t byte, n_ids_before;
    };
    duet_status encode_trusted(std::string_view text, std::span<const stretch> trusted, bool add_bos,
                               std::vector<int32_t>* ids, std::vector<mark>* marks, error_text& err) const;
    std::shared_ptr<const vocabulary> vocab_;  // null: nothing is loaded
};

}  // namespace duet

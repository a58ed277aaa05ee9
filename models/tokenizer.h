// models/tokenizer.h: text <-> token ids, from the vocabulary of a GGUF file: SPM, byte-level BPE, unigram, WordPiece.
// Owns: the vocabulary, its checks, and what text becomes. Must not know: models, chat templates, sampling, devices.
// Main path: runtime.cpp -> [models/tokenizer] -> runtime.cpp (batch)
#pragma once
#include "gguf.h"

#include <memory>

namespace duet {

// Built once from a file, read-only afterwards: const calls from any thread. Keeps views into the file, which must
// outlive it.
class tokenizer {
  public:
    tokenizer();
    ~tokenizer();
    tokenizer(tokenizer&&) noexcept;
    tokenizer& operator=(tokenizer&&) noexcept;

    // Checks and indexes the whole vocabulary. DUET_ERR_FORMAT: the file contradicts itself (key, index, wanted,
    // found); DUET_ERR_UNSUPPORTED: a tokenizer.ggml.model or .pre without code here (names the known ones), or no
    // vocabulary at all.
    duet_status load(const gguf_file& file, error_text& err);

    // Text to ids, replacing *ids. Any bytes are accepted. add_bos_eos: as the metadata asks, never twice.
    // parse_special: control tokens spelled out in the text become those tokens. DUET_ERR_ARG: more than 2^31 - 1
    // bytes, or nothing loaded.
    duet_status encode(std::string_view text, bool add_bos_eos, bool parse_special, std::vector<int32_t>* ids,
                       error_text& err) const;

    // Bytes of a token that follows other text; empty for control tokens and out of range. Valid as long as the
    // tokenizer.
    std::string_view piece(int32_t id) const;
    // As in the file; empty out of range.
    std::string_view spelling(int32_t id) const;

    // Inverse of encode, appended to *out: without the space prefix SPM puts before the text, words of WordPiece
    // joined by spaces. special: control tokens are written as spelled, otherwise they give nothing.
    void decode(const int32_t* ids, size_t n_ids, bool special, std::string* out) const;

    int32_t n_vocab() const;
    int32_t bos() const;            // -1: none
    int32_t eos() const;            // -1: none
    bool is_end(int32_t id) const;  // ends a generation: EOS, end of turn, ...
    bool is_control(int32_t id) const;

  private:
    struct impl;
    std::unique_ptr<impl> impl_;
};

}  // namespace duet

// runtime/embed.cpp: vectors and scores of texts: which texts run together, pooling of their rows, the layers behind
// it. A text's bits do not depend on the texts beside it. Must not know: ops' insides, devices. Main path: runtime.cpp
// -> [runtime/embed.cpp] -> runtime/session.cpp
#include "calls.h"
#include "../quant/blocks.h"
#include "../quant/exact.h"
#include "../quant/formats.h"

#include <algorithm>
#include <cmath>

namespace duet {
namespace {

// A text, or a piece of one that is longer than the context.
struct text_piece {
    std::vector<int32_t> ids;
    int32_t text = 0;
};

pooling_kind pooling_of(const duet_model& m, int32_t asked, bool scores) {
    const pooling_kind kind = asked ? (pooling_kind)asked : m.graph.pooling;
    return scores || kind == pooling_kind::rank ? m.graph.rank_pooling : kind;
}

// Tokens [first, first + n) of a piece in a batch.
struct batch_part {
    int32_t piece;
    size_t first, n;
};

// Computes the pieces, as many at once as the session has room for, and sums the wanted rows of each in f64.
class pooled_rows {
  public:
    pooled_rows(duet_session& s, const std::vector<text_piece>& pieces, pooling_kind kind)
        : s_(s), pieces_(pieces), kind_(kind), dim_((size_t)s.model->graph.dim), sums_(pieces.size() * dim_) {
        clear();
    }
    pooled_rows(const pooled_rows&) = delete;
    ~pooled_rows() { clear(); }

    duet_status run() {
        for (size_t i = 0; i < pieces_.size();) {
            std::vector<batch_part> parts;
            size_t n_tok = 0, n_rows = 0, n_pages = 0;
            const size_t begin = i, room = (size_t)(room_of(s_) / kAttnChunk);
            for (; i < pieces_.size() && parts.size() < (size_t)s_.limits.n_seqs; i++) {
                const size_t n = pieces_[i].ids.size();
                n_tok += n;
                n_rows += kind_ == pooling_kind::mean ? n : 1;
                n_pages += (size_t)pages_of((int64_t)n);
                const bool fits = n_tok <= (size_t)s_.limits.max_batch && n_rows <= (size_t)s_.limits.max_wanted;
                if (!fits || (n_pages > room && i > begin)) break;
                parts.push_back({(int32_t)i, 0, n});
            }
            if (!parts.empty()) DUET_TRY(run_parts(parts));
            else DUET_TRY(run_long((int32_t)i++));
            clear();
        }
        return DUET_OK;
    }

    // The pooled vector of a piece, times its weight.
    void add_to(size_t piece, double weight, double* out) const {
        const double n = kind_ == pooling_kind::mean ? (double)pieces_[piece].ids.size() : 1.0;
        for (size_t j = 0; j < dim_; j++) out[j] += sums_[piece * dim_ + j] / n * weight;
    }

  private:
    void clear() {
        for (int32_t q = 0; q < s_.limits.n_seqs; q++) clear_sequence(s_, q);
    }

    // A piece of more tokens or rows than a batch has. Encoders have none.
    duet_status run_long(int32_t piece) {
        const size_t n = pieces_[(size_t)piece].ids.size(),
                     step = (size_t)std::min(s_.limits.max_batch, s_.limits.max_wanted);
        for (size_t at = 0; at < n; at += step) DUET_TRY(run_parts({{piece, at, std::min(step, n - at)}}));
        return DUET_OK;
    }

    duet_status run_parts(const std::vector<batch_part>& parts) {
        std::vector<int32_t> token, seq, owner;
        std::vector<uint8_t> want;
        for (size_t k = 0; k < parts.size(); k++)
            for (size_t i = parts[k].first; i < parts[k].first + parts[k].n; i++) {
                const std::vector<int32_t>& ids = pieces_[(size_t)parts[k].piece].ids;
                const bool is_wanted = kind_ == pooling_kind::mean    ? true
                                       : kind_ == pooling_kind::first ? i == 0
                                                                      : i + 1 == ids.size();
                token.push_back(ids[i]);
                seq.push_back((int32_t)k);
                want.push_back(is_wanted);
                if (is_wanted) owner.push_back(parts[k].piece);
            }
        auto b = defaults_of<duet_batch>();
        b.n_tok = (int32_t)token.size();
        b.token = token.data();
        b.seq = seq.data();
        b.want_logits = want.data();
        DUET_TRY(decode(s_, b, {false, false, true}));
        for (size_t i = 0; i < owner.size(); i++) {
            const float* x = s_.model->exec->wanted_row(s_.exec_context, s_.model->graph.embedding_buffer, (int32_t)i);
            if (!x) return fail(s_.err, DUET_ERR_DEVICE, "reading the hidden states from the device failed");
            double* sum = &sums_[(size_t)owner[i] * dim_];
            for (size_t j = 0; j < dim_; j++) sum[j] += (double)x[j];
        }
        return DUET_OK;
    }

    duet_session& s_;
    const std::vector<text_piece>& pieces_;
    const pooling_kind kind_;
    const size_t dim_;
    std::vector<double> sums_;
};

std::vector<float> run_layer(const model_graph& g, const pooled_layer& l, const std::vector<float>& x) {
    const weight& w = g.weights[(size_t)l.w];
    const auto vector_of = [&](weight_id id) { return id < 0 ? nullptr : (const float*)g.weights[(size_t)id].data; };
    const float *b = vector_of(l.b), *norm = vector_of(l.norm);
    std::vector<float> row((size_t)w.n_in), y((size_t)w.n_out);
    for (size_t i = 0; i < y.size(); i++) {
        decode_row(w.type, w.data + i * w.row_bytes, w.n_in, row.data());
        const float v = exact_dot_float((const float_f32*)row.data(), (int)w.n_in, x.data()) + (b ? b[i] : 0.0f);
        y[i] = l.act == pooled_act::tanh ? exact_tanh(v) : l.act == pooled_act::gelu ? exact_gelu(v) : v;
    }
    if (!norm) return y;
    std::vector<float> z(y.size());
    exact_layer_norm(y.data(), norm, nullptr, (int)y.size(), g.eps, z.data());
    return z;
}

std::vector<float> finish_vector(const model_graph& g, const std::vector<pooled_layer>& layers,
                                 const std::vector<double>& pooled) {
    std::vector<float> x(pooled.begin(), pooled.end());
    for (const pooled_layer& l : layers) x = run_layer(g, l, x);
    return x;
}

duet_status check_texts(duet_session& s, const char* call, const void* texts, int32_t n_texts, const void* out) {
    DUET_TRY(check_session(s, call));
    if (n_texts < 0 || (n_texts > 0 && (!texts || !out)))
        return fail(s.err, DUET_ERR_ARG, "%s: want 0 or more texts and room for their results, got %d%s", call, n_texts,
                    n_texts > 0 ? " and NULL" : "");
    return DUET_OK;
}

// The most tokens of a text: the context, or less where the pages of the cache are fewer.
size_t most_tokens(const duet_session& s) {
    int64_t n = s.limits.n_ctx;
    for (size_t g = 0; g < s.pools.size(); g++)
        if (!s.model->graph.groups[g].window) n = std::min<int64_t>(n, (int64_t)s.limits.n_pages[g] * kAttnChunk);
    return (size_t)n;
}

duet_status check_length(duet_session& s, int32_t i, size_t n, const char* hint) {
    const size_t most = most_tokens(s);
    if (n == 0) return fail(s.err, DUET_ERR_ARG, "text %d: want at least 1 token, got none", i);
    if (n <= most) return DUET_OK;
    return fail(s.err, DUET_ERR_FULL, "text %d: %zu tokens do not fit the %s of %zu%s", i, n,
                most < (size_t)s.limits.n_ctx ? "cache (cache_tokens)" : "context", most, hint);
}

// Adds a text as one piece, or as several of like lengths that all begin and end with the same special tokens.
duet_status add_pieces(duet_session& s, int32_t i, const std::vector<int32_t>& ids, size_t n_begin, size_t n_end,
                       bool cut, std::vector<text_piece>* pieces) {
    // Texts are tokenized before the first batch, which would be stopped: 0.1 s for a megabyte.
    if (s.cancel.exchange(0)) return fail(s.err, DUET_ERR_CANCELLED, "reading the texts was cancelled");
    const size_t n_special = n_begin + n_end, most = most_tokens(s);
    if (!cut || ids.size() <= most || most <= n_special) {
        DUET_TRY(check_length(s, i, ids.size(), cut ? "" : "; ask for pieces (cut), or make it larger"));
        pieces->push_back({ids, i});
        return DUET_OK;
    }
    const size_t n = ids.size() - n_special, room = most - n_special, n_pieces = (n + room - 1) / room;
    for (size_t k = 0; k < n_pieces; k++) {
        text_piece p{{ids.begin(), ids.begin() + (ptrdiff_t)n_begin}, i};
        const auto at = ids.begin() + (ptrdiff_t)n_begin;
        p.ids.insert(p.ids.end(), at + (ptrdiff_t)(n * k / n_pieces), at + (ptrdiff_t)(n * (k + 1) / n_pieces));
        p.ids.insert(p.ids.end(), ids.end() - (ptrdiff_t)n_end, ids.end());
        pieces->push_back(std::move(p));
    }
    return DUET_OK;
}

duet_status embed_pieces(duet_session& s, const std::vector<text_piece>& all, const duet_embed_params& p, float* out) {
    const model_graph& g = s.model->graph;
    pooled_rows rows(s, all, pooling_of(*s.model, p.pooling, false));
    DUET_TRY(rows.run());
    for (size_t i = 0; i < all.size();) {
        size_t end = i, n_tok = 0;
        for (; end < all.size() && all[end].text == all[i].text; end++) n_tok += all[end].ids.size();
        std::vector<double> whole((size_t)g.dim);
        const int32_t text = all[i].text;
        for (const bool is_one = end == i + 1; i < end; i++)
            rows.add_to(i, is_one ? 1.0 : (double)all[i].ids.size() / (double)n_tok, whole.data());
        std::vector<float> v = finish_vector(g, g.dense, whole);
        double sum = 0;
        for (const float x : v) sum += (double)x * (double)x;
        if (!std::isfinite(sum)) return fail(s.err, DUET_ERR_NAN, "text %d: the vector holds NaN or infinity", text);
        const double length = p.normalise && sum > 0 ? std::sqrt(sum) : 1.0;
        for (size_t j = 0; j < v.size(); j++) out[(size_t)text * v.size() + j] = (float)((double)v[j] / length);
    }
    return DUET_OK;
}

duet_status read_params(duet_session& s, const duet_embed_params* params, duet_embed_params* p) {
    *p = defaults_of<duet_embed_params>();
    DUET_TRY(read_struct("duet_embed_params", params, p, s.err));
    if (p->pooling < DUET_POOL_FILE || p->pooling > DUET_POOL_LAST)
        return fail(s.err, DUET_ERR_ARG, "duet_embed_params.pooling: want 0 to 3, got %d", p->pooling);
    return DUET_OK;
}

// Qwen3 Reranker's prompt (its model card), for files that bring none.
constexpr const char* kYesNoPrompt =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a "
    "web search query, retrieve relevant passages that answer the query\n<Query>: {query}\n<Document>: "
    "{document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

// Fills a prompt's {query} and {document}. Their text stays text, even where it spells control tokens.
duet_status fill_prompt(duet_session& s, std::string_view prompt, std::string_view query, std::string_view document,
                        std::vector<int32_t>* ids) {
    std::string text;
    std::vector<tokenizer::stretch> trusted;
    while (!prompt.empty()) {
        const size_t q = prompt.find("{query}"), d = prompt.find("{document}"), at = std::min({q, d, prompt.size()});
        trusted.push_back({text.size(), text.size() + at});
        text += prompt.substr(0, at);
        if (at == prompt.size()) break;
        text += q < d ? query : document;
        // A file's prompt may name them any number of times.
        if (text.size() > (query.size() + document.size() + 65536) * 4)
            return fail(s.err, DUET_ERR_FULL, "tokenizer.chat_template.rerank: makes too long a text");
        prompt.remove_prefix(at + (q < d ? sizeof "{query}" : sizeof "{document}") - 1);
    }
    return s.model->vocab.encode_prompt(text, trusted, ids, nullptr, s.err);
}

// How a model says how relevant a document is: by its scorer, or by the logits of "yes" and "no".
struct scoring {
    std::string_view prompt;
    int32_t yes = -1, no = -1;
};

duet_status find_scoring(duet_session& s, scoring* out) {
    const duet_model& m = *s.model;
    DUET_TRY(m.source.file.get_string("tokenizer.chat_template.rerank", false, &out->prompt, s.err));
    if (!m.graph.scorer.empty()) return DUET_OK;
    std::vector<int32_t> ids;
    const auto only_id = [&](const char* text, bool special, int32_t* id) -> duet_status {
        DUET_TRY(m.vocab.encode(text, false, special, &ids, s.err));
        *id = ids.size() == 1 ? ids[0] : -1;
        return DUET_OK;
    };
    int32_t start = -1;
    DUET_TRY(only_id("yes", false, &out->yes));
    DUET_TRY(only_id("no", false, &out->no));
    DUET_TRY(only_id("<|im_start|>", true, &start));
    if (out->prompt.empty() && m.vocab.is_control(start)) out->prompt = kYesNoPrompt;
    if (m.graph.logits_buffer < 0 || out->yes < 0 || out->no < 0 || out->prompt.empty())
        return fail(s.err, DUET_ERR_UNSUPPORTED,
                    "the model scores no pairs: it has no tensor cls.weight or cls.output.weight, nor a prompt for yes "
                    "and no");
    return DUET_OK;
}

double yes_share(double yes, double no) { return 1.0 / (1.0 + (double)exact_exp((float)(no - yes))); }

// A decoder's way: the logits behind each pair, in a session whose sequences are empty.
duet_status score_by_logits(duet_session& s, const std::vector<text_piece>& pairs, const scoring& how, float* scores) {
    for (const text_piece& pair : pairs) {
        auto b = defaults_of<duet_batch>();
        b.n_tok = (int32_t)pair.ids.size();
        b.token = pair.ids.data();
        const duet_status st = decode(s, b, {});
        const float* logits = st == DUET_OK ? kept_logits(s, 0) : nullptr;
        if (logits) scores[pair.text] = (float)yes_share((double)logits[how.yes], (double)logits[how.no]);
        clear_sequence(s, 0);
        if (st != DUET_OK) return st;
        if (!logits) return fail(s.err, DUET_ERR_DEVICE, "reading the logits from the device failed");
    }
    return DUET_OK;
}

}  // namespace

duet_status embed(duet_session& s, const duet_string* texts, int32_t n, const duet_embed_params* params, float* out) {
    DUET_TRY(check_texts(s, "duet_embed", texts, n, out));
    duet_embed_params p;
    DUET_TRY(read_params(s, params, &p));
    std::vector<text_piece> pieces;
    std::vector<int32_t> ids, plain;
    for (int32_t i = 0; i < n; i++) {
        const std::string_view text = as_view(texts[i].data, texts[i].n_bytes);
        DUET_TRY(s.model->vocab.encode(text, true, false, &ids, s.err));
        size_t n_special = 0;  // only a text that is cut asks for them
        if (p.cut && ids.size() > most_tokens(s)) {
            DUET_TRY(s.model->vocab.encode(text, false, false, &plain, s.err));
            n_special = ids.size() - std::min(plain.size(), ids.size());
        }
        const size_t n_begin = n_special > 0 && ids[0] == s.model->vocab.bos() ? 1 : 0;
        DUET_TRY(add_pieces(s, i, ids, n_begin, n_special - n_begin, p.cut != 0, &pieces));
    }
    return embed_pieces(s, pieces, p, out);
}

duet_status embed_ids(duet_session& s, const int32_t* ids, const int32_t* n_ids, int32_t n_texts,
                      const duet_embed_params* params, float* out) {
    DUET_TRY(check_texts(s, "duet_embed_ids", n_ids && ids ? n_ids : nullptr, n_texts, out));
    duet_embed_params p;
    DUET_TRY(read_params(s, params, &p));
    std::vector<text_piece> pieces;
    for (int32_t i = 0; i < n_texts; ids += n_ids[i++]) {
        if (n_ids[i] < 1) return fail(s.err, DUET_ERR_ARG, "text %d: want at least 1 token, got %d", i, n_ids[i]);
        DUET_TRY(add_pieces(s, i, {ids, ids + n_ids[i]}, 0, 0, p.cut != 0, &pieces));
    }
    return embed_pieces(s, pieces, p, out);
}

duet_status rerank(duet_session& s, std::string_view query, const duet_string* texts, int32_t n_texts, float* scores) {
    DUET_TRY(check_texts(s, "duet_rerank", texts, n_texts, scores));
    const duet_model& m = *s.model;
    scoring how;
    DUET_TRY(find_scoring(s, &how));
    std::vector<text_piece> pairs;
    for (int32_t i = 0; i < n_texts; i++) {
        const std::string_view text = as_view(texts[i].data, texts[i].n_bytes);
        if (s.cancel.exchange(0)) return fail(s.err, DUET_ERR_CANCELLED, "reading the texts was cancelled");
        text_piece pair{{}, i};
        if (how.prompt.empty()) DUET_TRY(m.vocab.encode_pair(query, text, &pair.ids, s.err));
        else DUET_TRY(fill_prompt(s, how.prompt, query, text, &pair.ids));
        DUET_TRY(check_length(s, i, pair.ids.size(), ", query included"));
        pairs.push_back(std::move(pair));
    }
    const bool has_head = !m.graph.scorer.empty();
    pooled_rows rows(s, pairs, pooling_of(m, 0, true));
    DUET_TRY(has_head ? rows.run() : score_by_logits(s, pairs, how, scores));
    for (size_t i = 0; i < pairs.size(); i++) {
        if (has_head) {
            std::vector<double> pooled((size_t)m.graph.dim);
            rows.add_to(i, 1.0, pooled.data());
            const std::vector<float> labels = finish_vector(m.graph, m.graph.scorer, pooled);
            scores[i] = m.graph.softmax_scores && labels.size() == 2
                            ? (float)yes_share((double)labels[0], (double)labels[1])
                            : labels[0];
        }
        if (!std::isfinite(scores[i])) return fail(s.err, DUET_ERR_NAN, "text %zu: the score is NaN or infinite", i);
    }
    return DUET_OK;
}

}  // namespace duet

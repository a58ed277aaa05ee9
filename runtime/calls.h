// runtime/calls.h: what stands behind each function of runtime.cpp. These may throw (runtime.cpp catches), and they
// take handles that are not NULL.
// Must not know: the guard.
// Main path: runtime.cpp -> [runtime/calls.h] -> runtime/<subject>.cpp
#pragma once
#include "handles.h"

namespace duet {

// A caller's bytes, which may be NULL.
inline std::string_view as_view(const char* data, uint64_t n_bytes) noexcept {
    return {data ? data : "", data ? n_bytes : 0};
}
inline duet_string as_string(std::string_view text) noexcept { return {text.data(), text.size()}; }

// ---- formats.cpp

int32_t count_types();
const duet_type_info* type_row(int32_t i_row);
const duet_type_info* type_by_name(const char* name);
const duet_type_info* type_by_id(int32_t id);
duet_status quantize_row(int32_t type_id, const float* src, int64_t n_elems, const float* importance, void* dst,
                         error_text& err);
duet_status dequantize_row(int32_t type_id, const void* src, int64_t n_elems, float* dst, error_text& err);

// ---- file.cpp

duet_status file_kv(const duet_file& file, int64_t i, duet_kv* out, error_text& err);
duet_status file_tensor(const duet_file& file, int64_t i, duet_tensor* out, error_text& err);
duet_status file_get_int(const duet_file& file, int64_t i_kv, uint64_t i_value, int64_t* out, error_text& err);
duet_status file_get_float(const duet_file& file, int64_t i_kv, uint64_t i_value, double* out, error_text& err);
duet_status file_get_string(const duet_file& file, int64_t i_kv, uint64_t i_value, duet_string* out, error_text& err);

// ---- commit.cpp, model.cpp

const char* build_commit();
const char* build_info();

// Opens a new model whose file comes from one of three places.
struct model_source {
    const char* path = nullptr;
    const void* data = nullptr;
    duet_read_fn read = nullptr;
    void* user = nullptr;
    uint64_t n_bytes = 0;
    const char* call = "";  // the function of runtime.h, for messages
};
duet_status open_model(duet_model& m, const model_source& from, const duet_model_params* params);
duet_status model_info(const duet_model& m, duet_model_info* out, error_text& err);

duet_status tokenize(const duet_model& m, const char* text, size_t n_bytes, int32_t flags, int32_t* ids, size_t max_ids,
                     size_t* n_ids, error_text& err);
duet_status detokenize(const duet_model& m, const int32_t* ids, size_t n_ids, int32_t special, char* out,
                       size_t max_bytes, size_t* n_bytes, error_text& err);

// ---- session.cpp

duet_status plan_session(const duet_model& m, const duet_session_params* want, duet_memory_plan* out, error_text& err);
duet_status create_session(duet_session& s, const duet_model* m, const duet_session_params* params);

// Whether the session was made; else says so.
duet_status check_session(duet_session& s, const char* call);

// duet_decode. rows_later: logits may stay on the device until kept_logits() asks for them. has_embedding: the last
// token's hidden state is computed although it asked for no logits. hidden: the tokens that ask get their hidden state,
// as the executor's wanted rows in order, and no logits.
struct decode_options {
    bool rows_later = false, has_embedding = true, hidden = false;
};
duet_status decode(duet_session& s, const duet_batch& b, decode_options options);

// Kept row i's logits, read from the device if they are there still; null when i is out of range, or that failed.
float* kept_logits(duet_session& s, int32_t i);
const float* last_embedding(duet_session& s);

duet_status take_profile(duet_session& s, int32_t* n_rows);

// ---- sequences.cpp

bool has_sequence(const duet_session& s, int32_t seq);
duet_status check_sequence(duet_session& s, const char* call, int32_t seq);

// Empties a sequence: pages back to the pools, length 0. Its recurrent state is zeroed when it grows again.
void clear_sequence(duet_session& s, int32_t seq) noexcept;

// The tokens of a sequence changed: logits that are kept of it are another sequence's from now on.
void change_content(duet_session& s, int32_t seq) noexcept;

// Gives back the pages of windowed groups that no token from position `from` on can see.
void release_unseen(duet_session& s, int32_t seq, int32_t from) noexcept;

// Makes positions [from, to) of a sequence writable: pages of its own, shared ones copied. with_windows: in windowed
// groups, too. After an error drop_unused gives back what was taken.
duet_status reserve_positions(duet_session& s, int32_t seq, int32_t from, int32_t to, bool with_windows);
void drop_unused(duet_session& s, int32_t seq) noexcept;
int64_t room_of(const duet_session& s);  // tokens for which there are free pages

// Makes room for the ids of n_tok tokens of a sequence, so that adding them cannot fail.
void reserve_ids(duet_session& s, int32_t seq, int32_t n_tok);

// First page of group g that tokens after n_tok can see.
int32_t first_page(const duet_session& s, size_t g, int32_t n_tok);
int32_t pages_of(int64_t n_tok);  // pages that hold so many tokens

const int32_t* ids_of_sequence(const duet_session& s, int32_t seq) noexcept;  // never null
duet_status trim_sequence(duet_session& s, int32_t seq, int32_t n_tok);
int32_t reuse_sequence(duet_session& s, int32_t seq, const int32_t* ids, size_t n_ids) noexcept;
duet_status copy_sequence(duet_session& s, int32_t src, int32_t dst);

// ---- embed.cpp

duet_status embed(duet_session& s, const duet_string* texts, int32_t n, const duet_embed_params* params, float* out);
duet_status embed_ids(duet_session& s, const int32_t* ids, const int32_t* n_ids, int32_t n_texts,
                      const duet_embed_params* params, float* out);
duet_status rerank(duet_session& s, std::string_view query, const duet_string* texts, int32_t n_texts, float* scores);

// ---- saved_state.cpp

// A checksum, a word at a time: a state can be gigabytes. What no other part of a header vouches for is the seed.
uint64_t hash_words(const uint8_t* data, uint64_t n, uint64_t seed);
duet_status save_sequence(duet_session& s, int32_t seq, void* out, uint64_t max_bytes, uint64_t* n_bytes);
duet_status load_sequence(duet_session& s, int32_t seq, const void* data, uint64_t n_bytes);

// ---- grammar.cpp

// Adds what a text must match: the rules of a GBNF text, or the values of a schema.
duet_status add_body(const duet_grammar_params& p, grammar_builder& b, grammar_builder::expr* out, error_text& err);
duet_status create_grammar(const duet_model* m, const duet_grammar_params* params, duet_grammar& out);

// Compiles a part of a builder for the vocabulary of a model; the part is the whole text. *out is set on success only.
duet_status make_grammar(const duet_model& m, grammar_builder& builder, grammar_builder::expr part, duet_grammar* out,
                         error_text& err);

duet_status set_grammar(duet_sampler& s, const duet_grammar* grammar);

// ---- generate.cpp

duet_status gate_create(duet_text_gate& g, const char* const* stop, int32_t n_stop);
duet_status gate_add(duet_text_gate& g, const char* bytes, size_t n_bytes, duet_string* text, int32_t* stopped);
duet_status gate_finish(duet_text_gate& g, duet_string* text);
duet_status begin_generation(duet_session& s, duet_sampler* sampler, const int32_t* ids, size_t n_ids,
                             const duet_generate_params* params, duet_generation** out);
duet_status next_of_generation(duet_generation& g, duet_token_event* event);
duet_status result_of_generation(const duet_generation& g, duet_generate_result* out);
duet_status generate(duet_session& s, duet_sampler* sampler, const int32_t* ids, size_t n_ids,
                     const duet_generate_params* params, duet_token_fn on_token, void* user,
                     duet_generate_result* result);

}  // namespace duet

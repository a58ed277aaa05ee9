// runtime/handles.h: what stands behind the handles of runtime.h.
// Owns: the members of each handle. Must not know: how they are filled (the .cpp file of each subject).
// Main path: runtime.cpp -> [runtime/handles.h] -> models/arch.h, models/executor.h
#pragma once
#include "guard.h"
#include "text_gate.h"
#include "../models/arch.h"
#include "../models/executor.h"
#include "../models/grammar.h"
#include "../models/gguf.h"
#include "../models/sampler.h"
#include "../models/tokenizer.h"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

struct duet_file {
    duet::gguf_file file;
    duet::error_text err;  // of the opening; later errors are the threads'
    const uint64_t number = duet::new_handle_number();
};

struct duet_writer {
    duet::gguf_writer writer;
    duet::error_text err;
};

struct duet_sampler {
    duet::sampler sampler{0};
    duet::error_text err;
};

struct duet_grammar {
    std::shared_ptr<duet::constraint> rules;  // null: it was not made
    duet::error_text err;
};

struct duet_text_gate {
    duet::text_gate gate;
    duet::error_text err;
    std::string shown;  // the text of the last call
};

namespace duet {

class chat_format;

// What is made of a model's text when it is first needed: the texts of its tokens by the first grammar, the file's own
// chat template by the first chat that uses it.
struct text_store {
    std::mutex mutex;
    std::shared_ptr<const token_tree> tokens;
    std::shared_ptr<const chat_format> format;
};

}  // namespace duet

// Read-only once it was opened.
struct duet_model {
    duet_file source;  // the file and the text of the opening's error
    duet::tokenizer vocab;
    duet::model_graph graph;
    duet_model_params params{};
    bool vocab_only = false;
    bool has_vocab = false;
    bool can_run = false;  // all of it was opened
    bool fast = false;     // mode fast was asked for and has an effect
    const duet::executor* exec = nullptr;
    const std::shared_ptr<duet::exec_store> store = std::make_shared<duet::exec_store>();
    const std::shared_ptr<duet::text_store> texts = std::make_shared<duet::text_store>();
    std::string isa;  // as asked for: "auto" leaves the ways of matmuls to their speed
    std::string device, device_text, name, main_type;
    int32_t n_threads = 1;
    uint64_t n_params = 0, weight_bytes = 0, fingerprint = 0;
    std::vector<int32_t> end_ids;         // tokens that end a generation
    std::vector<int64_t> suppressed_ids;  // tokens that no text may hold, as the file says; their logits are -inf
};

namespace duet {

// Pages of one cache group: reference counts and the free ones. Nothing allocates after start().
struct page_pool {
    std::vector<int32_t> n_users, free_pages;
    void start(int32_t n_pages) {
        n_users.assign((size_t)n_pages, 0);
        free_pages.resize((size_t)n_pages);
        for (int32_t i = 0; i < n_pages; i++) free_pages[(size_t)i] = n_pages - 1 - i;
    }
    int32_t take() noexcept {
        if (free_pages.empty()) return -1;
        const int32_t page = free_pages.back();
        free_pages.pop_back();
        n_users[(size_t)page] = 1;
        return page;
    }
    void release(int32_t page) noexcept {
        if (page >= 0 && --n_users[(size_t)page] == 0) free_pages.push_back(page);
    }
};

// Logits that the last duet_decode left. They belong to the sequence as it was then: `content` is the sequence's.
struct logits_row {
    int32_t seq;
    uint64_t content;
    int32_t row;
    float* data;  // null: still with the executor, as its wanted row `row`
};

// Bytes of a UTF-8 character that the last generation of a sequence did not complete.
struct cut_character {
    uint64_t content = 0;
    int32_t n_bytes = 0;
    std::array<char, 4> bytes{};
};

}  // namespace duet

struct duet_session {
    const duet_model* model = nullptr;
    duet::error_text err;
    duet_session_params params{};
    duet::exec_limits limits;
    void* exec_context = nullptr;                          // null: the session was not made
    std::vector<duet::page_pool> pools;                    // of each cache group
    std::vector<std::vector<std::vector<int32_t>>> pages;  // [group][seq][position / kAttnChunk]; -1: given back
    std::vector<int32_t> length;                           // tokens each sequence holds
    std::vector<std::vector<int32_t>> ids;                 // of each sequence: its tokens
    std::vector<uint64_t> content;  // of each sequence: a number that changes whenever its tokens do
    uint64_t n_contents = 0;        // numbers given
    std::vector<duet::cut_character> cut;
    std::vector<duet::logits_row> kept;  // logits of the last duet_decode
    std::vector<float> kept_data;        // their storage when the batch was cut into pieces
    int32_t embedding_row = -1;          // the executor's wanted row of the last token; -1: nothing ran
    std::atomic<int32_t> cancel{0};
    std::vector<duet::profile_entry> profile_entries;  // the last picture, and as it is shown
    std::vector<duet_profile_row> profile_rows;

    ~duet_session() {
        if (exec_context) model->exec->destroy(exec_context);
    }
};

struct duet_generation {
    duet_session& session;
    duet::sampler& sampler;
    duet::error_text& err;  // the session's
    duet_generate_params params{};
    std::vector<int32_t> ids;  // the prompt
    size_t n_run = 0;          // of its tokens
    duet::text_gate gate;
    std::string text;  // of the last event
    duet_generate_result result{};
    bool is_over = false;
    int32_t end_id = -1;   // the end token that the model chose
    uint64_t content = 0;  // of the sequence, as the last step left it

    duet_generation(duet_session& s, duet::sampler& with) : session(s), sampler(with), err(s.err) {}
};

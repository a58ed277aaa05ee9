// runtime/handles.h: what stands behind the handles of runtime.h. Shared by the files of runtime/.
#pragma once
#include "../models/arch.h"
#include "../models/executor.h"
#include "file_handle.h"
#include "../models/tokenizer.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <new>

struct duet_model {
    duet_file source;  // the file and the model's error text
    duet::tokenizer vocab;
    duet::model_graph graph;
    duet_model_params params{};
    bool vocab_only = false;
    bool has_vocab = false;
    bool can_run = false;  // all of it was opened
    bool fast = false;     // mode fast was asked for and has an effect
    const duet::executor* exec = nullptr;
    std::string isa, device, device_text, name, main_type;
    int32_t n_threads = 1;
    uint64_t n_params = 0, weight_bytes = 0, fingerprint = 0;
    std::vector<int32_t> end_ids;  // tokens that end a generation

    duet::error_text& error() const { return const_cast<duet::error_text&>(source.err); }
};

namespace duet {

// Pages of one cache group: reference counts and the free ones.
struct page_pool {
    std::vector<int32_t> n_users, free_pages;
    int32_t take() {
        if (free_pages.empty()) return -1;
        const int32_t page = free_pages.back();
        free_pages.pop_back();
        n_users[(size_t)page] = 1;
        return page;
    }
    void release(int32_t page) {
        if (page >= 0 && --n_users[(size_t)page] == 0) free_pages.push_back(page);
    }
};

struct logits_row {
    int32_t seq, pos, row;
    float* data;  // null: still with the executor, as its wanted row `row`
};

}  // namespace duet

struct duet_session {
    const duet_model* model = nullptr;
    duet::error_text err;
    duet_session_params params{};
    duet::exec_limits limits;
    void* exec_context = nullptr;
    std::vector<duet::page_pool> pools;                    // of each cache group
    std::vector<std::vector<std::vector<int32_t>>> pages;  // [group][seq][position / kAttnChunk]; -1: given back
    std::vector<int32_t> length;                           // tokens each sequence holds
    std::vector<duet::logits_row> kept;                    // logits of the last duet_decode
    std::vector<float> kept_data;                          // their storage when the batch was cut into pieces
    std::vector<float> embedding;                          // when the batch was cut into pieces
    int32_t embedding_row = -1;                            // else: wanted row of the executor
    std::atomic<int32_t> cancel{0};
    std::vector<duet_profile_row> profile_rows;

    ~duet_session() {
        if (exec_context) model->exec->destroy(exec_context);
    }
};

namespace duet {

// A caller's parameters over the defaults in *out; older callers know fewer fields.
template <class P>
duet_status read_params(const char* name, const P* given, P* out, error_text& err) {
    if (!given) return DUET_OK;
    if (given->struct_size < sizeof(uint32_t) || given->struct_size > sizeof *out)
        return fail(err, DUET_ERR_ARG, "%s.struct_size: want %zu, got %u", name, sizeof *out, given->struct_size);
    memcpy(out, given, given->struct_size);
    out->struct_size = sizeof *out;
    return DUET_OK;
}

// Empties a sequence: pages back to the pools, length 0. Its recurrent state is zeroed when it grows again.
void clear_sequence(duet_session& s, int32_t seq);

// Kept row i's logits, read from the device if they are there still; null when that failed.
float* kept_logits(duet_session& s, size_t i);

// duet_decode; rows_later: logits may stay on the device until kept_logits() asks for them.
duet_status decode(duet_session& s, const duet_batch& b, bool rows_later);

}  // namespace duet

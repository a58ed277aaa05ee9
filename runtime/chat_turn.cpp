// runtime/chat_turn.cpp: a whole turn of a conversation: messages in, events of the answer out; and conversations as
// bytes.
// Owns: what of the sequence is reused, when a turn ends, how the answer joins the messages. Must not know: templates,
// forms of calls, how a token is computed.
// Main path: runtime.cpp -> [runtime/chat_turn.cpp] -> runtime/chat_answer.cpp, runtime/generate.cpp
#include "calls.h"
#include "chat.h"
#include "../quant/exact.h"

namespace duet {

namespace {

duet_status start_turn(duet_chat_turn& t, duet_sampler& sampler, const duet_chat_turn_params& p) {
    duet_chat& c = t.chat;
    chat_prompt prompt;
    DUET_TRY(render_chat(c, p.flags, &prompt, c.err));
    const size_t n = prompt.ids.size();
    const int32_t n_ctx = t.session.limits.n_ctx;
    if (n >= (size_t)n_ctx)
        return fail(c.err, DUET_ERR_FULL,
                    "the messages do not fit the context: %zu tokens and room for an answer, n_ctx is %d; remove "
                    "messages or raise it",
                    n, n_ctx);
    if (n == 0) return fail(c.err, DUET_ERR_ARG, "duet_chat_begin: the template makes an empty prompt of the messages");
    if (const auto st = create_parser(t.parser, c, prompt_opens_thinking(prompt.text, c.thinking), p.stop, p.n_stop))
        return fail(c.err, st, "duet_chat_begin: %s", t.parser.err.text.c_str());
    const size_t n_reused = (size_t)reuse_sequence(t.session, p.seq, prompt.ids.data(), n - 1);
    // The prompt's tokens count for the penalties, whether they are computed or reused. The answer is a new text for
    // the sampler's grammar.
    sampler.sampler.history.assign(prompt.ids.begin(), prompt.ids.begin() + (ptrdiff_t)n_reused);
    sampler.sampler.restart_grammar();
    auto g = defaults_of<duet_generate_params>();
    g.seq = p.seq;
    g.max_new_tok = p.max_new_tok;
    duet_generation* generation = nullptr;
    const duet_status st =
        begin_generation(t.session, &sampler, prompt.ids.data() + n_reused, n - n_reused, &g, &generation);
    if (st != DUET_OK) return fail(c.err, st, "%s", t.session.err.text.c_str());
    t.generation.reset(generation);
    t.n_prompt_tok = (int32_t)n;
    t.n_reused_tok = (int32_t)n_reused;
    t.continues_last = (p.flags & DUET_CHAT_CONTINUE_LAST) != 0;
    std::swap(c.prompt, prompt);
    return DUET_OK;
}

// The answer ends: what waited for more comes out as events.
void end_answer(duet_chat_turn& t, duet_status status, int32_t reason) {
    t.status = status;
    t.stop_reason = reason;
    t.is_over = true;
    if (status != DUET_OK) t.err.text = t.session.err.text;
    if (!t.parser.has_ended) (void)guarded(t.parser.err, [&] { return finish_answer(t.parser); });
    if (t.parser.has_stopped && status == DUET_OK) t.stop_reason = DUET_STOP_STRING;
}

// Computes until something is to be told. Returns true with the event of a piece of the prompt.
bool compute(duet_chat_turn& t, duet_chat_event* out) {
    auto token = sized<duet_token_event>();
    const duet_status st = next_of_generation(*t.generation, &token);
    if (token.id >= 0) {
        const duet_status read = guarded(t.session.err, [&] { return add_token(t.parser, token.id); });
        if (read != DUET_OK) end_answer(t, read, DUET_STOP_ERROR);
        else if (t.parser.has_stopped) end_answer(t, DUET_OK, DUET_STOP_STRING);
        return false;
    }
    if (st == DUET_OK && token.stop_reason == DUET_STOP_NONE) {
        out->kind = DUET_CHAT_PROMPT;
        out->n_done_tok = token.pos;
        return true;
    }
    // The token that ends an answer may be a marker of its form.
    if (token.stop_reason == DUET_STOP_END && t.generation->end_id >= 0) {
        (void)add_token(t.parser, t.generation->end_id);
        t.parser.n_tok--;
    }
    end_answer(t, st, token.stop_reason);
    return false;
}

}  // namespace

duet_status begin_turn(duet_chat& c, duet_session* session, duet_sampler* sampler, const duet_chat_turn_params* params,
                       duet_chat_turn** out) {
    constexpr const char* kCall = "duet_chat_begin";
    if (!out) return fail(c.err, DUET_ERR_ARG, "%s: out is NULL", kCall);
    DUET_TRY(check_chat(c, kCall, c.err));
    if (!session || !sampler || !session->exec_context)
        return fail(c.err, DUET_ERR_ARG, "%s: want a session that was made and a sampler", kCall);
    if (session->model != c.model)
        return fail(c.err, DUET_ERR_ARG, "%s: the session is of another model than the chat", kCall);
    auto p = defaults_of<duet_chat_turn_params>();
    DUET_TRY(read_struct("duet_chat_turn_params", params, &p, c.err));
    if (!has_sequence(*session, p.seq) || p.max_new_tok < -1 || (p.flags & ~DUET_CHAT_CONTINUE_LAST))
        return fail(c.err, DUET_ERR_ARG,
                    "%s: want seq in 0..%d, max_new_tok from -1, flags 0 or DUET_CHAT_CONTINUE_LAST; got %d, %d, %d",
                    kCall, session->limits.n_seqs - 1, p.seq, p.max_new_tok, p.flags);
    auto turn = std::make_unique<duet_chat_turn>(c, *session);
    DUET_TRY(start_turn(*turn, *sampler, p));
    *out = turn.release();
    return DUET_OK;
}

duet_status next_of_turn(duet_chat_turn& t, duet_chat_event* event) {
    DUET_TRY(check_room("duet_chat_event", event, t.err));
    auto e = sized<duet_chat_event>();
    if (t.is_kept) return fail(t.err, DUET_ERR_STATE, "duet_chat_next: the turn has ended");
    bool has_event = take_event(t.parser, &e);
    while (!has_event && !t.is_over) has_event = compute(t, &e) || take_event(t.parser, &e);
    e.n_prompt_tok = t.n_prompt_tok;
    e.n_reused_tok = t.n_reused_tok;
    if (!has_event) {
        e.kind = DUET_CHAT_END;
        e.stop_reason = t.stop_reason;
        e.i_stop = t.parser.text.i_stop();
        keep_answer(t);
    }
    write_struct(e, event);
    return has_event ? DUET_OK : t.status;
}

void keep_answer(duet_chat_turn& t) {
    if (t.is_kept) return;
    if (!t.parser.has_ended) (void)finish_answer(t.parser);
    const value answer = message_of_answer(t.parser);
    std::vector<value>& messages = t.chat.messages;
    if (!t.continues_last || messages.empty()) {
        messages.push_back(answer);
        t.is_kept = true;
        return;
    }
    // The answer's members go on from those of the message that it continues.
    std::vector<value_member> joined = messages.back().members();
    for (const value_member& m : answer.members()) {
        value_member* before = nullptr;
        for (value_member& j : joined)
            if (j.key.is_string() && j.key.as_string() == m.key.as_string()) before = &j;
        if (!before) joined.push_back(m);
        else if (before->val.is_list() && m.key.as_string() != "reasoning_content") {
            std::vector<value> items = before->val.items();  // calls, or the parts of a content
            if (m.val.is_list()) items.insert(items.end(), m.val.items().begin(), m.val.items().end());
            else items.push_back(value::of_map({{"type", value::of_string("text")}, {"text", m.val}}));
            before->val = value::of_list(std::move(items));
        } else if (m.key.as_string() != "role" && before->val.is_string())
            before->val = value::of_string(std::string(before->val.as_string()) + std::string(m.val.as_string()));
        else if (before->val.is_null()) before->val = m.val;
    }
    messages.back() = value::of_map(std::move(joined));
    t.is_kept = true;
}

// ---- conversations as bytes -----------------------------------------------------------------------------------------

namespace {

constexpr char kChatMagic[8] = {'D', 'U', 'E', 'T', 'C', 'H', 'T', '1'};

struct chat_header {
    char magic[8];
    uint64_t n_json_bytes, n_state_bytes;
    uint64_t json_hash;
};

// The state follows the messages at a multiple of 8 bytes, which its reader wants.
uint64_t padded(uint64_t n_bytes) { return (n_bytes + 7) / 8 * 8; }

}  // namespace

duet_status save_chat(duet_chat& c, duet_session* s, int32_t seq, void* out, uint64_t max_bytes, uint64_t* n_bytes) {
    constexpr const char* kCall = "duet_chat_save";
    DUET_TRY(check_chat(c, kCall, c.err));
    if (!n_bytes) return fail(c.err, DUET_ERR_ARG, "%s: n_bytes is NULL", kCall);
    if (s && !has_sequence(*s, seq))
        return fail(c.err, DUET_ERR_ARG, "%s: sequence %d is not of the session", kCall, seq);
    traced_text json;
    DUET_TRY(write_json(value::of_list(c.messages), {}, &json, c.err));
    chat_header h{};
    memcpy(h.magic, kChatMagic, sizeof h.magic);
    h.n_json_bytes = json.bytes.size();
    json.bytes.resize(padded(h.n_json_bytes));
    h.json_hash = hash_words((const uint8_t*)json.bytes.data(), json.bytes.size(), h.n_json_bytes);
    const uint64_t state_at = sizeof h + json.bytes.size();
    const auto save_state = [&](void* to, uint64_t room) -> duet_status {
        const duet_status st = save_sequence(*s, seq, to, room, &h.n_state_bytes);
        return st == DUET_OK ? st : fail(c.err, st, "%s", s->err.text.c_str());
    };
    if (s) DUET_TRY(save_state(nullptr, 0));
    *n_bytes = state_at + h.n_state_bytes;
    if (!out) return DUET_OK;
    if (max_bytes < *n_bytes)
        return fail(c.err, DUET_ERR_FULL, "%s: the conversation has %llu bytes, there is room for %llu", kCall,
                    (unsigned long long)*n_bytes, (unsigned long long)max_bytes);
    if (s) DUET_TRY(save_state((uint8_t*)out + state_at, h.n_state_bytes));
    memcpy(out, &h, sizeof h);
    memcpy((uint8_t*)out + sizeof h, json.bytes.data(), json.bytes.size());
    return DUET_OK;
}

duet_status load_chat(duet_chat& c, duet_session* session, int32_t seq, const void* data, uint64_t n_bytes) {
    constexpr const char* kCall = "duet_chat_load";
    DUET_TRY(check_chat(c, kCall, c.err));
    if (!data) return fail(c.err, DUET_ERR_ARG, "%s: data is NULL", kCall);
    if (session && (session->model != c.model || !has_sequence(*session, seq)))
        return fail(c.err, DUET_ERR_ARG, "%s: want a session of the chat's model and its sequence, got %d", kCall, seq);
    chat_header h{};
    if (n_bytes >= sizeof h) memcpy(&h, data, sizeof h);
    const uint64_t rest = n_bytes - std::min<uint64_t>(n_bytes, sizeof h);
    const uint8_t* const json = (const uint8_t*)data + sizeof h;
    if (memcmp(h.magic, kChatMagic, sizeof h.magic) != 0)
        return fail(c.err, DUET_ERR_FORMAT, "%s: the bytes are no saved conversation", kCall);
    if (h.n_json_bytes > rest || padded(h.n_json_bytes) > rest || h.n_state_bytes != rest - padded(h.n_json_bytes) ||
        h.json_hash != hash_words(json, padded(h.n_json_bytes), h.n_json_bytes))
        return fail(c.err, DUET_ERR_FORMAT, "%s: the conversation is damaged", kCall);
    value list;
    std::vector<value> messages;
    json_limits limits;
    limits.max_depth++;  // each message was parsed alone; here all of them stand in a list
    DUET_TRY(parse_json({(const char*)json, (size_t)h.n_json_bytes}, &list, c.err, limits));
    if (!list.is_list()) return fail(c.err, DUET_ERR_FORMAT, "%s: the conversation is damaged", kCall);
    DUET_TRY(read_messages(list, kCall, &messages, c.err));
    if (session && !h.n_state_bytes) clear_sequence(*session, seq);
    if (session && h.n_state_bytes)
        if (const duet_status st = load_sequence(*session, seq, json + padded(h.n_json_bytes), h.n_state_bytes);
            st != DUET_OK)
            return fail(c.err, st, "%s", session->err.text.c_str());
    c.messages.swap(messages);
    return DUET_OK;
}

}  // namespace duet

// runtime/grammar.cpp: grammars and JSON schemas, compiled for the vocabulary of a model.
// Owns: which text each token of a model stands for in grammars, and what triggers mean. Must not know: how a text is
// matched.
// Main path: runtime.cpp -> [runtime/grammar.cpp] -> models/schema.cpp or GBNF text -> models/grammar_build.cpp
#include "calls.h"
#include "../models/schema.h"

#include <cstring>

namespace duet {

namespace {

// Gives the tokens of a vocabulary their texts, one after the other.
struct token_texts {
    const tokenizer& vocab;
    std::string& marked;  // of the last control token

    std::string_view of(int32_t id) const {
        if (vocab.is_control(id)) {
            marked.assign(1, (char)kControlMark);
            return marked += vocab.spelling(id);
        }
        // No text in UTF-8 has the byte that marks control tokens.
        const std::string_view text = vocab.piece(id);
        return text.find((char)kControlMark) == std::string_view::npos ? text : std::string_view();
    }
};

duet_status tokens_of(const duet_model& m, std::shared_ptr<const token_tree>* out, error_text& err) {
    const std::lock_guard lock(m.texts->mutex);
    if (!m.texts->tokens) {
        std::string marked;
        const token_texts texts{m.vocab, marked};
        const auto text = [](int32_t id, const void* user) { return ((const token_texts*)user)->of(id); };
        DUET_TRY(token_tree::make(m.vocab.n_vocab(), text, &texts, m.end_ids, &m.texts->tokens, err));
    }
    *out = m.texts->tokens;
    return DUET_OK;
}

duet_status check_grammar_params(const duet_grammar_params& p, error_text& err) {
    if (!p.gbnf == !p.json_schema)
        return fail(err, DUET_ERR_ARG, "duet_grammar_create: want one of gbnf and json_schema, got %s",
                    p.gbnf ? "both" : "none");
    if (p.n_triggers < 0 || p.n_triggers > 64 || (p.n_triggers > 0 && !p.triggers))
        return fail(err, DUET_ERR_ARG, "duet_grammar_create: n_triggers: want 0..64, got %d, triggers is %s",
                    p.n_triggers, p.triggers ? "set" : "NULL");
    for (int32_t i = 0; i < p.n_triggers; i++)
        if (!p.triggers[i] || !*p.triggers[i])
            return fail(err, DUET_ERR_ARG, "duet_grammar_create: trigger %d is empty", i);
    if (p.max_indent < 0 || p.max_indent > 1024)
        return fail(err, DUET_ERR_ARG, "duet_grammar_create: max_indent: want 0..1024, got %d", p.max_indent);
    return DUET_OK;
}

// A trigger that no text of the grammar begins with could never be written.
duet_status check_triggers(const duet_grammar& body, const std::vector<std::string>& triggers, error_text& err) {
    for (const std::string& trigger : triggers) {
        grammar_matcher text(body.rules);
        const duet_status st = text.accept_bytes(trigger, err);
        if (st == DUET_ERR_ARG)
            return fail(err, st, "duet_grammar_create: trigger \"%s\": no text of the grammar begins with it",
                        printable(trigger).c_str());
        DUET_TRY(st);
    }
    return DUET_OK;
}

}  // namespace

duet_status make_grammar(const duet_model& m, grammar_builder& builder, grammar_builder::expr part, duet_grammar* out,
                         error_text& err) {
    if (!m.has_vocab)
        return fail(err, DUET_ERR_UNSUPPORTED, "duet_grammar_create: %s: no vocabulary was read from it",
                    m.source.file.path.c_str());
    const uint32_t whole = builder.add_rule("root");
    builder.define(whole, part);
    grammar rules;
    DUET_TRY(builder.build(whole, &rules, err));
    std::shared_ptr<const token_tree> tokens;
    DUET_TRY(tokens_of(m, &tokens, err));
    auto made = std::make_shared<constraint>(std::move(rules), std::move(tokens));
    grammar_matcher start(made);
    if (start.must_end() && !start.can_end())
        return fail(err, DUET_ERR_FULL, "grammar: too many ways to begin the text");
    out->rules = std::move(made);
    return DUET_OK;
}

duet_status add_body(const duet_grammar_params& p, grammar_builder& b, grammar_builder::expr* out, error_text& err) {
    if (p.json_schema) {
        value schema;
        if (const size_t n = strlen(p.json_schema); n > kGrammarMaxText)
            return fail(err, DUET_ERR_FULL, "schema: want at most %zu bytes, got %zu", kGrammarMaxText, n);
        json_limits limits;
        limits.max_depth = 2 * kSchemaMaxDepth;
        if (const duet_status st = parse_json(p.json_schema, &schema, err, limits); st != DUET_OK)
            return fail(err, st, "schema: %s", std::string(err.text).c_str());
        return add_schema(schema, {(uint32_t)p.max_indent}, b, out, err);
    }
    uint32_t root = 0;
    DUET_TRY(parse_gbnf(p.gbnf, p.root ? p.root : "root", b, &root, err));
    *out = b.call(root);
    return DUET_OK;
}

duet_status create_grammar(const duet_model* m, const duet_grammar_params* params, duet_grammar& out) {
    if (!m) return fail(out.err, DUET_ERR_ARG, "duet_grammar_create: model is NULL");
    auto p = defaults_of<duet_grammar_params>();
    DUET_TRY(read_struct("duet_grammar_params", params, &p, out.err));
    DUET_TRY(check_grammar_params(p, out.err));
    grammar_builder builder;
    grammar_builder::expr body = builder.nothing();
    DUET_TRY(add_body(p, builder, &body, out.err));
    if (p.n_triggers == 0) return make_grammar(*m, builder, body, &out, out.err);
    const std::vector<std::string> triggers(p.triggers, p.triggers + p.n_triggers);
    duet_grammar alone;
    DUET_TRY(make_grammar(*m, builder, body, &alone, out.err));
    DUET_TRY(check_triggers(alone, triggers, out.err));
    // free text until one of the triggers begins
    body = builder.sequence({builder.without(triggers), builder.optional(body)});
    return make_grammar(*m, builder, body, &out, out.err);
}

duet_status set_grammar(duet_sampler& s, const duet_grammar* grammar) {
    if (grammar && !grammar->rules)
        return fail(s.err, DUET_ERR_ARG, "duet_sampler_grammar: grammar was not made: %s", grammar->err.text.c_str());
    s.sampler.set_grammar(grammar ? grammar->rules : nullptr);
    return DUET_OK;
}

}  // namespace duet

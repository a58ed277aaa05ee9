// models/chat_grammar.cpp: turns the CHAT_SHAPE rows of chat_forms.def into parts of a grammar.
#include "chat_grammar.h"
#include "chat_values.h"
#include "schema.h"

#include <algorithm>

namespace duet {

namespace {

struct shape_row {
    chat_form form;
    std::string_view trigger, list_begin, call_begin, name_end, call_end, separator, list_end, param_begin, key_end,
        param_end;
};

// Writes the calls of one row. The first error is kept in status.
struct call_writer {
    using expr = grammar_builder::expr;
    grammar_builder& b;
    const shape_row& row;
    error_text& err;
    duet_status status = DUET_OK;
    bool is_lenient = false;  // of the tool that is written

    // Matches the bytes as they are, with a number for '#'.
    expr literal(std::string_view bytes) {
        const size_t n = bytes.find('#');
        if (n == std::string_view::npos) return b.spelled(bytes);
        const expr digit = b.one_of_texts({"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"});
        return b.sequence({literal(bytes.substr(0, n)), b.repeat(digit, 1, 4), literal(bytes.substr(n + 1))});
    }

    expr json(const value& schema, const value* root = nullptr) {
        expr out = b.nothing();
        if (status == DUET_OK) status = add_schema(schema, {.root = root, .is_lenient = is_lenient}, b, &out, err);
        return out;
    }

    // Matches a value of Gemma's literals. The contents of lists and objects are free.
    expr gemma_value(uint32_t types) {
        const auto bracket = [&](const char* open, expr item, const char* close) {
            const expr more = b.repeat(b.sequence({b.literal(","), item}), 0);
            return b.sequence({b.literal(open), b.optional(b.sequence({item, more})), b.literal(close)});
        };
        const uint32_t rule = b.add_rule("gemma value");
        const char* quote = row.trigger == "<|tool_call>" ? "<|\"|>" : "<escape>";
        const expr string = b.sequence({b.spelled(quote), b.without({quote}, false), b.spelled(quote)});
        const expr number = json(value::of_map({{"type", value::of_string("number")}}));
        const expr scalar = b.any_of({number, b.one_of_texts({"true", "false", "null"})});
        const expr list = bracket("[", b.call(rule), "]");
        const expr key = b.repeat(b.one_char({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}), 1, kMaxChatName);
        const expr map = bracket("{", b.sequence({key, b.literal(":"), b.call(rule)}), "}");
        b.define(rule, b.any_of({string, scalar, list, map}));
        std::vector<expr> choices;
        if (!types || (types & kJsonString)) choices.push_back(string);
        if (!types || (types & (kJsonNumber | kJsonBool | kJsonNull))) choices.push_back(scalar);
        if (!types || (types & kJsonList)) choices.push_back(list);
        if (!types || (types & kJsonMap)) choices.push_back(map);
        return b.any_of(choices);
    }

    // Matches one argument's value. root has the definitions that the schema may refer to.
    expr argument(const value& schema, const value& root) {
        const uint32_t types = schema_types(root, schema);
        if (row.form == chat_form::gemma)
            return types && !(types & (kJsonString | kJsonList | kJsonMap)) ? json(schema, &root) : gemma_value(types);
        if (row.param_begin.empty()) {  // Python's words, beside JSON's
            if (types == kJsonBool) return b.one_of_texts({"True", "False"});
            return types & kJsonNull ? b.any_of({json(schema, &root), b.literal("None")}) : json(schema, &root);
        }
        if (types && !(types & kJsonString)) return json(schema, &root);
        const value ref = member_of(schema, "$ref");
        const value* to = ref.is_string() ? find_place(root, ref.as_string()) : nullptr;
        const value &at = to ? *to : schema, one = member_of(at, "const"), many = member_of(at, "enum"),
                    list = one.is_string() ? value::of_list({one}) : many;
        if (list.is_list() && (types & kJsonString)) {
            std::vector<std::string> texts;
            std::vector<expr> all;
            for (const value& v : list.items())
                if (v.is_string()) texts.emplace_back(v.as_string());
                else all.push_back(json(value::of_map({{"const", v}})));
            all.push_back(b.one_of_texts(texts));
            return b.any_of(all);
        }
        const size_t close = row.param_end.find('<');
        return b.without({std::string(row.param_end.substr(close, row.param_end.find('>') + 1 - close))}, false);
    }

    expr parameter(const value& schema, const value& root, std::string_view key) {
        std::string end(row.key_end);
        if (end.ends_with("string=\"")) end += schema_types(root, schema) == kJsonString ? "true\">" : "false\">";
        return b.sequence(
            {literal(row.param_begin), b.literal(key), literal(end), argument(schema, root), literal(row.param_end)});
    }

    // Matches arguments one after the other. State 2 i means that i parameters were passed and none was written, state
    // 2 i + 1 that some were.
    expr parameters(const value& schema) {
        const value *properties = schema.find("properties"), *required = schema.find("required");
        const size_t n = properties && properties->is_map() ? properties->members().size() : 0;
        std::vector<grammar_builder::graph_edge> edges;
        for (uint32_t i = 0; i < n; i++) {
            const value_member& m = properties->members()[i];
            const expr part = parameter(m.val, schema, m.key.as_string());
            const expr next = row.param_begin.empty() ? b.sequence({b.one_of_texts({",", ", "}), part}) : part;
            edges.insert(edges.end(), {{2 * i, part, 2 * i + 3}, {2 * i + 1, next, 2 * i + 3}});
            const auto is_it = [&](const value& v) { return compare_keys(v, m.key) == 0; };
            if (required && required->is_list() && std::ranges::any_of(required->items(), is_it)) continue;
            edges.insert(edges.end(), {{2 * i, b.empty(), 2 * i + 2}, {2 * i + 1, b.empty(), 2 * i + 3}});
        }
        return b.graph((uint32_t)(2 * n + 2), edges, {(uint32_t)(2 * n), (uint32_t)(2 * n + 1)});
    }

    expr call(const chat_tool& tool) {
        std::vector<value_member> members;
        if (tool.parameters.is_map()) members = tool.parameters.members();
        members.emplace_back("type", value::of_string("object"));  // the parser reads no others
        const value schema = value::of_map(std::move(members));
        is_lenient = !tool.is_strict;
        const expr arguments = row.key_end.empty() ? json(schema) : parameters(schema);
        return b.sequence(
            {literal(row.call_begin), b.literal(tool.name), literal(row.name_end), arguments, literal(row.call_end)});
    }

    expr calls(const std::vector<chat_tool>& tools, bool parallel) {
        std::vector<expr> choices;
        for (const chat_tool& t : tools) choices.push_back(call(t));
        const uint32_t rule = b.add_rule("call");
        b.define(rule, b.any_of(choices));
        const expr again = b.repeat(b.sequence({literal(row.separator), b.call(rule)}), 0);
        return b.sequence({literal(row.list_begin), b.call(rule), parallel ? again : b.empty(), literal(row.list_end)});
    }
};

}  // namespace

duet_status add_calls(chat_form form, std::string_view text, const std::vector<chat_tool>& tools, bool parallel,
                      grammar_builder& builder, grammar_builder::expr* out, std::vector<std::string>* triggers,
                      error_text& err) {
    static const shape_row kRows[] = {
#define CHAT_SHAPE(form, trigger, list_begin, call_begin, name_end, call_end, separator, list_end, param_begin,        \
                   key_end, param_end)                                                                                 \
    {chat_form::form, trigger,  list_begin,  call_begin, name_end, call_end,                                           \
     separator,       list_end, param_begin, key_end,    param_end},
#include "chat_forms.def"
#undef CHAT_SHAPE
    };
    if (tools.empty()) return fail(err, DUET_ERR_ARG, "calls: no tool to call");
    const auto is_shown = [&](const shape_row& r) { return r.form == form && text.find(r.trigger) != text.npos; };
    const bool has_shown = form != chat_form::harmony && std::ranges::any_of(kRows, is_shown);
    std::vector<grammar_builder::expr> choices;
    triggers->clear();
    for (const shape_row& row : kRows) {
        if (row.form != form || (has_shown && !is_shown(row))) continue;
        call_writer writer{builder, row, err};
        choices.push_back(writer.calls(tools, parallel && is_parallel(form)));
        DUET_TRY(writer.status);
        if (!row.trigger.empty()) triggers->emplace_back(row.trigger);
        for (const chat_tool& t : tools)  // calls that no marker begins
            if (row.trigger.empty()) triggers->push_back("[" + t.name + "(");
    }
    if (choices.empty())
        return fail(err, DUET_ERR_UNSUPPORTED, "calls: the template has no known form (\"%s\")", form_name(form));
    *out = builder.any_of(choices);
    return DUET_OK;
}

}  // namespace duet

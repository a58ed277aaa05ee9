// models/chat_forms.cpp: which form a template writes, and what its calls must look like; all from chat_forms.def.
#include "chat_parser.h"
#include "chat_values.h"

#include <algorithm>

namespace duet {

// ---- choosing -------------------------------------------------------------------------------------------------------

static bool has_text(std::string_view text, std::string_view needle) {
    return text.find(needle) != std::string_view::npos;
}

chat_form choose_form(std::string_view template_text) {
    static const struct {
        chat_form form;
        const char *a, *b, *absent;
    } kSigns[] = {
#define CHAT_SIGN(form, a, b, absent) {chat_form::form, a, b, absent},
#include "chat_forms.def"
#undef CHAT_SIGN
    };
    for (const auto& s : kSigns)
        if (has_text(template_text, s.a) && has_text(template_text, s.b) &&
            (!*s.absent || !has_text(template_text, s.absent)))
            return s.form;
    return chat_form::none;
}

static const struct {
    chat_thinking thinking;
    const char *open, *close;
} kMarkers[] = {
#define CHAT_THINKING(id, name, open, close) {chat_thinking::id, open, close},
#include "chat_forms.def"
#undef CHAT_THINKING
};

chat_thinking choose_thinking(std::string_view template_text) {
    for (const auto& m : kMarkers)
        if (has_text(template_text, m.close)) return m.thinking;
    return chat_thinking::none;
}

static const char* const kNames[] = {
#define CHAT_FORM(id, name, parallel) name,
#include "chat_forms.def"
#undef CHAT_FORM
};

const char* form_name(chat_form form) { return kNames[(size_t)form]; }

bool find_form(std::string_view name, chat_form* form) {
    for (size_t i = 0; i < std::size(kNames); i++)
        if (name == kNames[i]) return *form = (chat_form)i, true;
    return false;
}

bool prompt_opens_thinking(std::string_view prompt, chat_thinking thinking) {
    while (!prompt.empty() && is_blank(prompt.back())) prompt.remove_suffix(1);
    for (const auto& m : kMarkers)
        if (m.thinking == thinking) return prompt.ends_with(m.open);
    return false;
}

// Looks at how "arguments" is used: behind a + it is joined to a string, unless the template asks first what it is.
bool wants_string_arguments(std::string_view template_text) {
    static const std::string_view kWord = "arguments";
    bool joins = false;
    for (size_t at = template_text.find(kWord); at != std::string_view::npos; at = template_text.find(kWord, at + 1)) {
        std::string_view behind = template_text.substr(at + kWord.size()), before = template_text.substr(0, at);
        while (!behind.empty() && std::string_view("'\"] )").find(behind[0]) != std::string_view::npos)
            behind.remove_prefix(1);
        if (behind.substr(0, 3) == "is " || behind.substr(0, 1) == "|" || behind.substr(0, 6) == ".items") return false;
        const size_t start = before.find_last_of("+~{=,\n");
        joins |= start != std::string_view::npos && before[start] == '+' && !has_text(before.substr(start), "\\");
    }
    return joins;
}

// ---- calls for constrained decoding ---------------------------------------------------------------------------------

using shape_kind = call_shape::kind;

static call_shape of_parts(shape_kind what, std::vector<call_shape> parts) {
    call_shape s;
    s.what = what;
    s.parts = std::move(parts);
    return s;
}

static call_shape of_value(shape_kind what, const value& schema, std::string bytes) {
    call_shape s;
    s.what = what;
    s.schema = schema;
    s.bytes = std::move(bytes);
    return s;
}

// The bytes as they are, with a choice of digits for '#'.
static void add_literal(std::string_view bytes, std::vector<call_shape>* out) {
    while (!bytes.empty()) {
        const size_t n = std::min(bytes.find('#'), bytes.size());
        if (n) out->push_back(of_value(shape_kind::literal, {}, std::string(bytes.substr(0, n))));
        bytes.remove_prefix(n);
        if (bytes.empty()) return;
        bytes.remove_prefix(1);
        call_shape digits = of_parts(shape_kind::alternatives, {});
        for (char d = '0'; d <= '9'; d++) digits.parts.push_back(of_value(shape_kind::literal, {}, std::string(1, d)));
        out->push_back(std::move(digits));
    }
}

struct shape_row {
    chat_form form;
    std::string_view trigger, list_begin, call_begin, name_end, call_end, separator, list_end, param_begin, key_end,
        param_end;
};

static call_shape shape_of_parameter(const shape_row& row, const value& schema, const value& root, std::string_view key,
                                     bool comma) {
    call_shape s = of_parts(shape_kind::sequence, {});
    std::string head = comma ? ", " : "";
    ((head += row.param_begin) += key) += row.key_end;
    if (row.param_begin.empty()) {
        add_literal(head, &s.parts);
        s.parts.push_back(of_value(row.form == chat_form::gemma ? shape_kind::gemma : shape_kind::python, schema, ""));
        return s;
    }
    if (row.key_end.ends_with("string=\"")) head += schema_types(root, schema) == kJsonString ? "true\">" : "false\">";
    s.parts.push_back(of_value(shape_kind::literal, {}, head));
    s.parts.push_back(of_value(shape_kind::tagged_value, schema, std::string(row.param_end)));
    s.parts.push_back(of_value(shape_kind::literal, {}, std::string(row.param_end)));
    return s;
}

// Arguments one after the other. With commas: required ones first, so that a comma stands before each further one; when
// none is required, the first one that is given stands without.
static void add_parameters(const shape_row& row, const value& schema, std::vector<call_shape>* out) {
    const bool commas = row.param_begin.empty();
    const value* properties = schema.find("properties");
    const value* required = schema.find("required");
    if (!properties || !properties->is_map()) return;
    std::vector<const value_member*> must, may;
    for (const value_member& m : properties->members()) {
        const auto is_it = [&](const value& v) { return v.is_string() && v.as_string() == m.key.as_string(); };
        const bool needed =
            required && required->is_list() && std::any_of(required->items().begin(), required->items().end(), is_it);
        (needed ? must : may).push_back(&m);
    }
    const auto part = [&](const value_member* m, bool comma) {
        return shape_of_parameter(row, m->val, schema, m->key.as_string(), comma);
    };
    for (size_t i = 0; i < must.size(); i++) out->push_back(part(must[i], commas && i));
    const auto add_rest = [&](size_t from, std::vector<call_shape>* to) {
        for (size_t i = from; i < may.size(); i++)
            to->push_back(of_parts(shape_kind::optional, {part(may[i], commas)}));
    };
    if (!must.empty() || !commas) return add_rest(0, out);
    call_shape first = of_parts(shape_kind::alternatives, {});
    for (size_t i = 0; i < may.size(); i++) {
        first.parts.push_back(of_parts(shape_kind::sequence, {part(may[i], false)}));
        add_rest(i + 1, &first.parts.back().parts);
    }
    if (!may.empty()) out->push_back(of_parts(shape_kind::optional, {std::move(first)}));
}

static call_shape shape_of_call(const shape_row& row, const chat_tool& tool) {
    call_shape s = of_parts(shape_kind::sequence, {});
    add_literal(row.call_begin, &s.parts);
    s.parts.push_back(of_value(shape_kind::literal, {}, tool.name));
    add_literal(row.name_end, &s.parts);
    if (row.key_end.empty()) s.parts.push_back(of_value(shape_kind::json, tool.parameters, ""));
    else add_parameters(row, tool.parameters, &s.parts);
    add_literal(row.call_end, &s.parts);
    return s;
}

duet_status describe_calls(chat_form form, const std::vector<chat_tool>& tools, bool parallel, call_grammar* out,
                           error_text& err) {
    static const shape_row kRows[] = {
#define CHAT_SHAPE(form, trigger, list_begin, call_begin, name_end, call_end, separator, list_end, param_begin,        \
                   key_end, param_end)                                                                                 \
    {chat_form::form, trigger,  list_begin,  call_begin, name_end, call_end,                                           \
     separator,       list_end, param_begin, key_end,    param_end},
#include "chat_forms.def"
#undef CHAT_SHAPE
    };
    static const bool kParallel[] = {
#define CHAT_FORM(id, name, parallel) parallel,
#include "chat_forms.def"
#undef CHAT_FORM
    };
    if (tools.empty()) return fail(err, DUET_ERR_ARG, "calls: no tool to call");
    *out = {of_parts(shape_kind::alternatives, {}), {}};
    for (const shape_row& row : kRows) {
        if (row.form != form) continue;
        call_shape any = of_parts(shape_kind::alternatives, {});
        for (const chat_tool& t : tools) any.parts.push_back(shape_of_call(row, t));
        call_shape whole = of_parts(shape_kind::sequence, {});
        add_literal(row.list_begin, &whole.parts);
        if (parallel && kParallel[(size_t)form])
            whole.parts.push_back(of_parts(
                shape_kind::repeat, {std::move(any), of_value(shape_kind::literal, {}, std::string(row.separator))}));
        else whole.parts.push_back(std::move(any));
        add_literal(row.list_end, &whole.parts);
        out->shape.parts.push_back(std::move(whole));
        if (!row.trigger.empty()) out->triggers.emplace_back(row.trigger);
        else
            for (const chat_tool& t : tools) out->triggers.push_back("[" + t.name + "(");  // calls without a marker
    }
    if (out->shape.parts.empty())
        return fail(err, DUET_ERR_UNSUPPORTED, "calls: the form \"%s\" has no tool calls", form_name(form));
    return DUET_OK;
}

}  // namespace duet

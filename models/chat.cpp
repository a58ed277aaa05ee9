// models/chat.cpp: turns messages into prompts. It finds the template, probes what the template expects, renders it,
// and tokenizes so that text of messages stays text.
// Main path: runtime/chat.cpp -> [models/chat.cpp] -> models/template.h -> models/tokenizer.h
#include "chat.h"

#include "template_text.h"

#include <algorithm>

namespace duet {
namespace {

constexpr std::pair<const char*, const char*> kBuiltins[] = {
// names and texts
#define CHAT_TEMPLATE(name, text) {name, text},
#include "chat_templates.def"
#undef CHAT_TEMPLATE
};

constexpr const char* kTemplateKey = "tokenizer.chat_template";

// Returns the map with a member set. A member that exists keeps its place.
value with(const value& map, std::string_view key, value v) {
    std::vector<value_member> members = map.members();
    members.push_back({value::of_trusted(std::string(key)), std::move(v)});  // the last of equal keys counts
    return value::of_map(std::move(members));
}

// Leaves out a member that holds nothing: templates may only ask whether it is there.
value without_empty(const value& map, std::string_view key) {
    const value v = member_of(map, key);
    const bool is_kept = v.is_list() ? !v.items().empty() : v.is_string() ? !v.as_string().empty() : !v.is_null();
    std::vector<value_member> members = map.members();
    std::erase_if(members, [&](auto& m) { return !is_kept && m.key.is_string() && m.key.as_string() == key; });
    return value::of_map(std::move(members));
}

value message_of(const char* role, value content) {
    return value::of_map({{"role", value::of_trusted(role)}, {"content", std::move(content)}});
}

value text_part(value text) { return value::of_map({{"type", value::of_trusted("text")}, {"text", std::move(text)}}); }

// The content of a message, as parts where the template wants them.
value content_of(value text, bool as_parts) { return as_parts ? value::of_list({text_part(std::move(text))}) : text; }

// Roles of letters alone cannot spell a control token by themselves, and templates build control tokens around them.
bool is_plain_role(std::string_view role) {
    return !role.empty() && role.size() <= 32 &&
           std::all_of(role.begin(), role.end(), [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
}

// Joins a list of text parts into one text. Anything else stays as it is.
value joined_parts(const value& content) {
    if (!content.is_list()) return content;
    traced_text all;
    for (const value& part : content.items()) {
        const value text = part.is_string() ? part : member_of(part, "text");
        if (!text.is_string()) return content;
        all.append(text.as_text());
    }
    return value::of_text(std::move(all));
}

// Gives each tool a description and parameters where they are null or, if asked to, absent.
value whole_tools(const value& tools, bool adds_absent) {
    const value none = value::of_map({{"type", value::of_trusted("object")}, {"properties", value::of_map({})}});
    std::vector<value> out = tools.items();
    for (value& tool : out) {
        value function = member_of(tool, "function");
        for (const char* key : {"description", "parameters"})
            if (const value* v = function.find(key); function.is_map() && (v ? v->is_null() : adds_absent))
                function = with(function, key, *key == 'd' ? value::of_trusted("") : none);
        if (function.is_map()) tool = with(tool, "function", function);
    }
    return value::of_list(std::move(out));
}

// Gives the arguments of calls in the form that the template wants: JSON text, or the object that the text stands for.
value adapted_call(const value& call, bool wants_text) {
    const value function = member_of(call, "function");
    const value& holder = function.is_map() ? function : call;
    const value arguments = member_of(holder, "arguments");
    value changed;
    error_text ignored;
    if (wants_text && arguments.is_map()) {
        traced_text json;
        if (write_json(arguments, {}, &json, ignored) != DUET_OK) return call;
        changed = value::of_text(std::move(json));
    } else if (!wants_text && (arguments.is_null() || (arguments.is_string() && arguments.as_string().empty()))) {
        changed = value::of_map({});
    } else if (!wants_text && arguments.is_string()) {
        if (parse_json(arguments.as_string(), &changed, ignored) != DUET_OK || !changed.is_map()) return call;
    } else return call;
    const value new_holder = with(holder, "arguments", std::move(changed));
    return function.is_map() ? with(call, "function", new_holder) : new_holder;
}

std::vector<tokenizer::stretch> trusted_stretches(const traced_text& text) {
    std::vector<tokenizer::stretch> out;
    size_t begin = 0;
    bool is_input = text.starts_with_input;
    for (size_t i = 0; i <= text.flips.size(); i++, is_input = !is_input) {
        const size_t end = i < text.flips.size() ? text.flips[i] : text.size();
        if (!is_input && end > begin) out.push_back({begin, end});
        begin = end;
    }
    return out;
}

const std::string kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";

}  // namespace

std::string builtin_chat_templates() {
    std::string names;
    for (const auto& t : kBuiltins) names += (names.empty() ? "" : ", ") + std::string(t.first);
    return names;
}

duet_status chat_format::open(const gguf_file& file, const tokenizer& vocab, std::string_view text,
                              std::string_view name, error_text& err) {
    bos_ = vocab.spelling(vocab.bos());
    eos_ = vocab.spelling(vocab.eos());
    plain_ = for_tools_ = {};
    std::string& source = plain_.source;
    const auto named = [&](const std::string& key, std::string* out) {
        const gguf_kv* kv = file.find(key.c_str());
        if (kv && (kv->type == DUET_KV_STRING || kv->array_type == DUET_KV_STRING) && !kv->strings.empty())
            *out = kv->strings[0];
        return !out->empty();
    };
    if (!text.empty()) source = text;
    else if (!name.empty()) {
        for (const auto& [own_name, own_text] : kBuiltins)
            if (name == own_name) source = own_text;
        if (source.empty() && name == "default") named(kTemplateKey, &source);
        if (source.empty() && !named(kTemplateKey + ("." + std::string(name)), &source)) {
            std::string names;
            for (const gguf_kv& kv : file.kvs)
                if (kv.key.starts_with("tokenizer.chat_template."))
                    names += printable(kv.key.substr(sizeof "tokenizer.chat_template." - 1)) + ", ";
            return fail(err, DUET_ERR_ARG,
                        "chat template '%s': want one of the file's (%sdefault) or a built-in one (%s)",
                        printable(name).c_str(), names.c_str(), builtin_chat_templates().c_str());
        }
    } else {
        named("tokenizer.chat_template.tool_use", &for_tools_.source);
        if (!named(kTemplateKey, &source) && !named("tokenizer.chat_template.default", &source))
            return fail(err, DUET_ERR_STATE,
                        "%s has no chat template (tokenizer.chat_template): name a built-in one (%s) or give a text",
                        file.path.c_str(), builtin_chat_templates().c_str());
    }
    DUET_TRY(compile(&plain_, err));
    return for_tools_.source.empty() ? DUET_OK : compile(&for_tools_, err);
}

// Renders probes. If a template drops a needle or refuses the probe, it wants the messages in another way.
duet_status chat_format::compile(probed_template* out, error_text& err) {
    const std::string_view source = out->source;
    DUET_TRY(chat_template::compile(source, &out->compiled, err));
    if (source.find("reasoning_content") == std::string_view::npos)
        for (const char* key : {"thinking", "reasoning"})
            if (!out->thinking_key && source.find("message." + std::string(key)) != std::string_view::npos)
                out->thinking_key = key;
    out->wants_one_call = source.find("function_call") != source.npos && source.find("tool_calls") == source.npos;
    const auto shows = [&](std::vector<value> messages, std::string_view needle) {
        chat_request probe;
        probe.messages = value::of_list(std::move(messages));
        rendered_template r;
        error_text ignored;
        return out->compiled.render(variables_of(probe), {2026, 1, 2, 3, 4, 5}, &r, ignored) == DUET_OK &&
               r.text.bytes.find(needle) != std::string::npos;
    };
    const value question = value::of_string("NEEDLE-U"), parts = value::of_list({text_part(question)});
    if (!shows({message_of("user", question)}, "NEEDLE-U"))
        out->wants_parts = shows({message_of("user", parts)}, "NEEDLE-U");
    const auto content = [&](const char* text) { return content_of(value::of_string(text), out->wants_parts); };
    const value user = message_of("user", content("NEEDLE-U"));
    const value system = message_of("system", content("NEEDLE-S")), later = message_of("system", content("NEEDLE-L"));
    out->has_system = shows({system, user}, "NEEDLE-S");
    // Some templates show one system message, the first or the last.
    const std::vector<value> two = {system, user, message_of("assistant", content("x")), later, user};
    out->has_later_system = shows(two, "NEEDLE-L") && shows(two, "NEEDLE-S");
    out->has_developer = shows({message_of("developer", content("NEEDLE-D")), user}, "NEEDLE-D");
    // A call with arguments as an object, and one as text: the template prints one of them as JSON without extra
    // quotes.
    const auto call = [&](value arguments) {
        const value function = value::of_map({{"name", value::of_string("look")}, {"arguments", std::move(arguments)}});
        const value list = value::of_list({value::of_map(
            {{"id", value::of_string("call12345")}, {"type", value::of_trusted("function")}, {"function", function}})});
        return with(message_of("assistant", out->wants_null ? value() : content("")), "tool_calls", list);
    };
    // A call is tried with a text, then with null: call() looks at what is found.
    out->wants_null = !shows({user, call(value::of_string("{}"))}, "look");
    out->wants_null = out->wants_null && shows({user, call(value::of_string("{}"))}, "look");
    value object;
    DUET_TRY(parse_json("{\"needle\": \"NEEDLE-A\"}", &object, err));
    const bool shows_object = shows({user, call(object)}, "NEEDLE-A");
    const bool shows_text = shows({user, call(value::of_string("{\"needle\": \"NEEDLE-A\"}"))}, "NEEDLE-A\"}") &&
                            !shows({user, call(value::of_string("{\"needle\": \"NEEDLE-A\"}"))}, "\\\"NEEDLE-A");
    out->wants_text_arguments = shows_text && (!shows_object || shows({user, call(object)}, "'NEEDLE-A'"));
    return DUET_OK;
}

value chat_format::variables_of(const chat_request& request) const {
    std::vector<value_member> all;
    const auto put = [&](const char* name, value v) { all.emplace_back(name, std::move(v)); };
    put("messages", request.messages);
    put("tools", request.tools);
    put("documents", request.documents);
    put("add_generation_prompt", value::of_bool(request.asks_answer && !request.continues_last));
    if (!bos_.empty()) put("bos_token", value::of_trusted(bos_));
    if (!eos_.empty()) put("eos_token", value::of_trusted(eos_));
    for (const char* name : {"enable_thinking", "thinking", "reasoning"})  // as templates of 2024 to 2026 call it
        if (request.thinking >= 0) put(name, value::of_bool(request.thinking != 0));
    if (request.thinking == 0) put("thinking_budget", value::of_int(0));
    if (request.variables.is_map())
        for (const value_member& m : request.variables.members()) all.push_back(m);
    return value::of_map(std::move(all));
}

// Makes the messages that the template wants. origin[i] is the request's message that item i was made of.
value chat_format::adapt_messages(const value& messages, const probed_template& t, std::vector<size_t>* origin) const {
    std::vector<value> out;
    value folded;  // a system message that waits for the user message after it
    size_t folded_at = 0;
    for (size_t i = 0; i < messages.items().size(); i++) {
        value m = messages.items()[i], content = joined_parts(member_of(m, "content"));
        if (content.is_null()) content = value::of_trusted("");  // templates would write None, or fail
        const value role = member_of(m, "role");
        std::string name(role.is_string() ? role.as_string() : "");
        if (name == "developer" && !t.has_developer) name = "system";
        if (is_plain_role(name)) m = with(m, "role", value::of_trusted(name));
        const auto joined = [&] {
            return folded.is_string() ? joined_parts(value::of_list({folded, value::of_string("\n\n"), content}))
                                      : content;
        };
        const bool is_system = name == "system" || name == "developer";
        const bool is_shown = out.empty() ? t.has_system || name == "developer" : t.has_later_system;
        if (is_system && !is_shown && content.is_string()) {
            if (!folded.is_string()) folded_at = i;
            folded = joined();
            continue;
        }
        const bool takes_folded = folded.is_string() && name == "user" && content.is_string();
        if (takes_folded) {
            content = joined();
            folded = value();
        }
        m = with(m, "content", content.is_string() ? content_of(content, t.wants_parts) : content);
        for (const char* key : {"tool_calls", "reasoning_content"}) m = without_empty(m, key);
        const value thoughts = member_of(m, "reasoning_content");
        const bool has_text = content.is_string() && !content.as_string().empty();
        // gpt-oss refuses messages with calls that have both.
        if (t.thinking_key && thoughts.is_string() && !(has_text && member_of(m, "tool_calls").is_list()))
            m = with(m, t.thinking_key, thoughts);
        if (const value calls = member_of(m, "tool_calls"); calls.is_list()) {
            std::vector<value> adapted;
            for (const value& call : calls.items()) adapted.push_back(adapted_call(call, t.wants_text_arguments));
            if (t.wants_one_call) m = with(m, "function_call", member_of(adapted[0], "function"));
            m = with(m, "tool_calls", value::of_list(std::move(adapted)));
            if (t.wants_null) m = with(m, "content", value());
        }
        origin->push_back(takes_folded ? folded_at : i);
        out.push_back(std::move(m));
    }
    if (folded.is_string()) {  // no user message came after it
        origin->push_back(folded_at);
        out.push_back(message_of("user", content_of(folded, t.wants_parts)));
    }
    return value::of_list(std::move(out));
}

duet_status chat_format::render(const chat_request& request, const tokenizer& vocab, chat_prompt* out,
                                error_text& err) const {
    if (!request.messages.is_list() || request.messages.items().empty())
        return fail(err, DUET_ERR_ARG, "chat: want a list of at least one message");
    for (size_t i = 0; i < request.messages.items().size(); i++)
        if (!member_of(request.messages.items()[i], "role").is_string())
            return fail(err, DUET_ERR_ARG, "chat: message %zu: want an object with a \"role\" of text", i);
    const bool has_any_tools = request.tools.is_list();
    const probed_template& t = choose(has_any_tools && !request.tools.items().empty());
    chat_request adapted = request;
    std::vector<size_t> origin;
    adapted.messages = adapt_messages(request.messages, t, &origin);
    if (request.continues_last) {
        std::vector<value> messages = adapted.messages.items();
        value content = joined_parts(member_of(messages.back(), "content"));
        if (!content.is_string())
            return fail(err, DUET_ERR_ARG, "chat: to be continued, the last message wants a content of text");
        traced_text text = content.as_text();
        text.append(kContinueTag, true);
        messages.back() = with(messages.back(), "content", content_of(value::of_text(std::move(text)), t.wants_parts));
        adapted.messages = value::of_list(std::move(messages));
    }
    rendered_template r;
    if (has_any_tools) adapted.tools = whole_tools(request.tools, false);
    duet_status status = t.compiled.render(variables_of(adapted), request.now, &r, err);
    if (status == DUET_ERR_ARG && has_any_tools) {  // some templates refuse tools that lack something
        adapted.tools = whole_tools(request.tools, true);
        r = {};
        status = t.compiled.render(variables_of(adapted), request.now, &r, err);
    }
    DUET_TRY(status);
    if (request.continues_last) {  // the text ends where the tag begins; a trimming template removed the tag's blank
        const std::string_view tag(kContinueTag.data(), kContinueTag.size() - 1);
        const size_t at = r.text.bytes.rfind(tag);
        if (at == std::string::npos)
            return fail(err, DUET_ERR_ARG, "chat: the template leaves out the last message, which was to be continued");
        const bool is_whole = r.text.bytes.compare(at, kContinueTag.size(), kContinueTag) == 0;
        r.text = r.text.slice(0, is_whole ? at : stripped_end(std::string_view(r.text.bytes).substr(0, at)));
    }
    // Messages in the order of their offsets, as the tokenizer wants them.
    std::vector<std::pair<int64_t, size_t>> starts;
    for (size_t i = 0; i < r.message_starts.size() && i < origin.size(); i++)
        if (r.message_starts[i] >= 0 && (size_t)r.message_starts[i] <= r.text.size())
            starts.push_back({r.message_starts[i], origin[i]});
    std::sort(starts.begin(), starts.end());
    std::vector<int64_t> offsets;
    for (const auto& s : starts) offsets.push_back(s.first);
    DUET_TRY(vocab.encode_prompt(r.text.bytes, trusted_stretches(r.text), &out->ids, &offsets, err));
    out->first_byte.assign(request.messages.items().size(), -1);
    out->first_id = out->first_byte;
    out->first_byte[0] = out->first_id[0] = 0;
    for (size_t i = 0; i < starts.size(); i++) {
        out->first_byte[starts[i].second] = starts[i].first;
        out->first_id[starts[i].second] = offsets[i];
    }
    out->text = std::move(r.text.bytes);
    return DUET_OK;
}

}  // namespace duet

// models/chat_calls.cpp: reads calls of all forms, from the marker that begins a call to the marker that ends it.
// chat_parser.cpp finds the beginnings; chat_machine.h says how bytes are taken.
#include "chat_machine.h"
#include "unicode.h"

#include <algorithm>
#include <cstring>

namespace duet {

bool is_name_byte(char c) { return is_letter_or_digit(c) || (uint8_t)c >= 0x80 || (c && strchr("_-./:$@", c)); }

// ---- begin and end --------------------------------------------------------------------------------------------------

void chat_machine::begin_block(const chat_block& b) {
    block = &b;
    has_bracket = false;
    n_items = 0;
    id.clear();
    at = b.syntax == call_syntax::json || b.syntax == call_syntax::literal ? state::item : state::section;
}

bool chat_machine::is_known(std::string_view tool) const {
    const auto has_name = [&](const chat_tool& t) { return t.name == tool; };
    return !tool.empty() && (options.any_tool || std::any_of(options.tools.begin(), options.tools.end(), has_name));
}

bool chat_machine::begin_call() {
    if (!is_known(name)) return false;
    schema = nullptr;
    for (const chat_tool& t : options.tools)
        if (t.name == name) schema = &t.parameters;
    n_calls++;
    is_open = true;
    is_thinking = is_output_start = false;
    n_params = 0;
    commit(chat_event_kind::call_begin, name);
    pending_id = id;
    return true;
}

void chat_machine::end_call(bool is_complete) {
    commit(chat_event_kind::call_end);
    pending.is_complete = is_complete;
    is_open = false;
    n_items++;
}

// The next state; true: there is more to do.
bool chat_machine::go_to(state next) { return at = next, true; }

// The bytes held back are text, and so are those that follow. If call_begin was sent, the call ends before them.
bool chat_machine::fail(bool from_start) {
    const size_t seen = from_start ? pos : cur;
    if (is_open) {
        cur = pos;
        end_call(false);
    }
    cur = seen;
    pass_prose();
    return_to_prose();
    return true;
}

// The output ends in the middle of a call, or of bytes that might have become one.
void chat_machine::cut() {
    const bool is_behind_call = n_items && (at == state::item || at == state::section || at == state::close);
    if (!is_open && is_behind_call) {
        cur = pos;
        after_marker();
        while (step()) {}
    }
    if (!is_open) return;
    const size_t end = buffer.size();
    if (at == state::text_value)
        for (; cur < end; cur++) append_json_byte(buffer[cur], &value_text);
    if (at == state::typed_value) value_text.assign(buffer, token, end - token);
    if (at == state::literal) literals.flush(&value_text);
    cur = end;
    if (!value_text.empty()) pass_value();
    end_call(false);
}

// Returns true if another byte comes, or if too much is held.
bool chat_machine::skip_blanks() {
    while (!at_end() && is_blank(buffer[cur]) && !is_held_full()) cur++;
    return !at_end() || is_held_full();
}

// Goes on behind the marker, if it comes next or after blanks.
chat_machine::found chat_machine::go_behind(std::string_view marker, state next) {
    size_t end;
    const found f = look_behind_blanks(cur, marker, &end);
    if (f != found::yes) return f;
    cur = token = end;
    at = next;
    return f;
}

// ---- sections and lists ---------------------------------------------------------------------------------------------

// In a section, the next call or the end comes. The end may also be bytes that are no longer part of the section.
bool chat_machine::step_section() {
    const found opens = go_behind(block->call_open, state::name);
    if (opens != found::no) return opens == found::yes;
    if (!n_items) {  // the model wrote JSON calls where tags were expected
        for (const char* bracket : {"{", "["})
            if (look_behind_blanks(cur, bracket) == found::yes) return go_to(state::item);
        return fail();
    }
    const found closes = go_behind(block->section_close, state::prose);
    if (closes == found::partial) return false;
    if (closes == found::yes) commit(chat_event_kind::markup);
    after_marker();
    return true;
}

// Between calls as JSON or as literals come brackets, separators, and the marker that ends the section.
bool chat_machine::step_item() {
    const bool is_json = block->syntax != call_syntax::literal;
    const std::string_view end = block->section_close.empty() ? block->call_close : block->section_close;
    const auto leave = [&] {
        if (!n_items) return fail();
        cur = pos;
        after_marker();
        return true;
    };
    if (!skip_blanks()) return false;
    if (is_held_full()) return leave();
    const char c = buffer[cur];
    if (n_items && !end.empty()) {
        const found f = look(cur, end);
        if (f == found::partial) return false;
        if (f == found::yes) {
            cur += end.size();
            commit(chat_event_kind::markup);
            after_marker();
            return true;
        }
    }
    if (c == ']' && has_bracket && n_items) {
        cur++;
        commit(chat_event_kind::markup);
        has_bracket = false;
        if (end.empty()) after_marker();
        return true;
    }
    if (!is_json && c == '`') {
        const std::string_view fence = n_items ? "```" : "```python";
        const found f = look(cur, fence);
        if (f == found::yes) cur += fence.size();
        return f == found::no ? leave() : f == found::yes;
    }
    if (c == '[' && !has_bracket && !n_items) has_bracket = true;
    else if (!n_items || (c != ',' && c != ';')) {
        if (is_json && c == '{') return begin_object(false);
        if (is_json || !is_name_byte(c)) return leave();
        token = cur;
        return go_to(state::name);
    }
    cur++;
    return true;
}

// ---- names ----------------------------------------------------------------------------------------------------------

bool chat_machine::step_name() {
    while (!at_end() && is_blank(buffer[cur]) && cur == token && !is_held_full()) token = ++cur;
    while (!at_end() && is_name_byte(buffer[cur]) && cur - token <= kMaxChatName) cur++;
    if (at_end()) return false;
    const char c = buffer[cur];
    const bool is_named = block->syntax == call_syntax::named;
    const found ends_id = is_named && !block->key_end.empty() ? look(cur, block->key_end) : found::no;
    if (ends_id == found::partial) return false;
    if (ends_id == found::yes) {
        id.assign(buffer, token, cur - token);
        token = cur += block->key_end.size();
        return true;
    }
    if (cur == token && block->syntax != call_syntax::literal && (c == '{' || c == '[')) return go_to(state::item);
    if (cur == token || cur - token > kMaxChatName) return fail();
    const found f = look(cur, block->name_end);
    if (f == found::partial) return false;
    if (f == found::no && !(is_named && (c == '{' || c == '[' || is_blank(c)))) return fail();
    name.assign(buffer, token, cur - token);
    if (block->flags & kPrefixed) {
        id = name;
        if (name.compare(0, 10, "functions.") == 0) name.erase(0, 10);
        const size_t colon = name.rfind(':');
        if (colon != std::string::npos && name.find_first_not_of("0123456789", colon + 1) == std::string::npos)
            name.erase(colon);
    }
    if (is_named) {
        if (f == found::yes) cur += block->name_end.size();
        return go_to(state::before_json);
    }
    if (block->syntax == call_syntax::tags) {
        if (block->name_end.empty()) {  // only the next tag ends the name
            const found a = look_behind_blanks(cur, block->param_open);
            const found b = look_behind_blanks(cur, block->call_close);
            if (a == found::partial || b == found::partial) return false;
            if (a == found::no && b == found::no) return fail();
        }
        cur += block->name_end.size();
        at = state::param;
        return begin_call() ? true : fail();
    }
    size_t i = cur + 1;  // behind the bracket: an argument's name, or the end of the bracket
    while (i < buffer.size() && is_blank(buffer[i]) && i - cur < kMaxChatBlanks) i++;
    if (!(block->flags & kGemma) && i < buffer.size() && buffer[i] != ')') {
        const size_t begin = i;
        while (i < buffer.size() && (is_name_byte(buffer[i]) || is_blank(buffer[i])) && i - begin < kMaxChatName) i++;
        if (i < buffer.size() && (i == begin || buffer[i] != '=')) return fail();
    }
    if (i >= buffer.size()) return false;
    cur++;
    if (!begin_call()) return fail();
    value_text.clear();
    literals.reset(block->name_end[0], (block->flags & kGemma) != 0, &value_text);
    return go_to(state::literal);
}

bool chat_machine::step_before_json() {
    static const std::string_view kCallId = "[CALL_ID]", kJson = "```json";
    if (!skip_blanks()) return false;
    if (is_held_full()) return fail();
    if (buffer[cur] == '{') return begin_call() ? begin_object(true) : fail();
    for (const std::string_view m : {block->name_end, kCallId, kJson}) {
        if (m.empty()) continue;
        const found f = look(cur, m);
        if (f == found::partial) return false;
        if (f == found::no) continue;
        size_t end = cur + m.size();
        if (m == kCallId) {
            while (end < buffer.size() && is_name_byte(buffer[end]) && end - cur < kMaxChatName) end++;
            if (end == buffer.size()) return false;
            id.assign(buffer, cur + m.size(), end - cur - m.size());
        }
        cur = end;
        return true;
    }
    if (!(block->flags & kFence) || name != "function" || !is_name_byte(buffer[cur])) return fail();
    token = cur;  // "function" was the type of the call
    return go_to(state::name);
}

// ---- calls and arguments as JSON ------------------------------------------------------------------------------------

bool chat_machine::begin_object(bool whole) {
    scanner.reset();
    is_whole = streams = whole;
    is_nested = is_name_value = has_name = false;
    args_begin = args_end = 0;
    if (!whole) id.clear();
    return go_to(state::object);
}

// Passes JSON on as it is, except that control characters inside strings are escaped.
static std::string clean_json(std::string_view json) {
    std::string out;
    json_scanner s;
    for (const char c : json) {
        if ((uint8_t)c < 0x20 && s.is_in_string()) {
            append_json_byte(c, &out);
            continue;
        }
        s.push(c);
        out += c;
    }
    return out;
}

bool chat_machine::step_object() {
    while (!at_end()) {
        const char c = buffer[cur];
        if (streams && (uint8_t)c < 0x20 && scanner.is_in_string()) {
            pass(chat_event_kind::call_arguments);
            std::string escaped;
            append_json_byte(c, &escaped);
            cur++;
            commit(chat_event_kind::call_arguments, escaped);
            continue;
        }
        const json_scanner::step s = scanner.push(c);
        const bool was_streaming = streams;
        const bool is_open_bracket = s == json_scanner::step::value_begin && (c == '{' || c == '[');
        const size_t level = scanner.depth() - is_open_bracket;
        if (s == json_scanner::step::bad || (!is_whole && !take_object_step(s, level))) {
            if (was_streaming) pass(chat_event_kind::call_arguments);
            return fail();
        }
        cur++;
        if (was_streaming && !streams) pass(chat_event_kind::call_arguments);  // the arguments have ended
        if (scanner.is_done()) return end_object();
        if (streams || !is_held_full()) continue;
        if (!is_open) return fail();
        commit(chat_event_kind::markup);
    }
    if (streams) pass(chat_event_kind::call_arguments);
    return false;
}

// Takes one step of the scanner inside {"name": .., "arguments": ..}. Returns false if this is no call. The byte at cur
// is not yet taken.
bool chat_machine::take_object_step(json_scanner::step s, size_t level) {
    using step = json_scanner::step;
    const bool matters = level == 1 || (is_nested && level == 2);
    if (s == step::more || !matters) return true;
    if (is_open) {
        if (s == step::value_end) streams = false;
        return true;
    }
    const bool is_arguments = (block->flags & kNameIsKey) || key == "arguments" || key == "parameters";
    switch (s) {
    case step::key_begin: token = cur; return true;
    case step::key_end: key.assign(buffer, token + 1, cur - token - 1); return true;
    case step::value_begin:
        token = cur;
        is_name_value = (key == "name" || key == "tool_name" || key == "function") && buffer[cur] == '"';
        if (block->flags & kNameIsKey) {
            name = key;
            has_name = true;
        }
        if (is_arguments) {
            if (buffer[cur] != '{') return false;
            if (!has_name) args_begin = cur;
            streams = has_name && begin_call();
            return streams || !has_name;
        }
        if (key == "function" && buffer[cur] == '{') is_nested = true;
        else if (block->is_bare() && !is_name_value && key != "type" && key != "id") return false;
        return true;
    case step::value_end: {
        const std::string_view text = std::string_view(buffer).substr(token + 1, cur - token - 1);
        if (is_arguments && !args_end) args_end = cur + 1;
        if (key == "id" || key == "tool_call_id") id = text.substr(0, kMaxChatName);
        if (!is_name_value) return true;
        name = text;
        is_name_value = false;
        has_name = is_known(name);
        if (!has_name || !args_end) return has_name;
        const size_t here = cur;
        cur = args_begin;
        begin_call();
        cur = args_end;
        commit(chat_event_kind::call_arguments, clean_json(std::string_view(buffer).substr(pos, cur - pos)));
        cur = here;
        return true;
    }
    default: return true;
    }
}

// Called when the object has ended just before cur.
bool chat_machine::end_object() {
    if (is_whole) {
        pass(chat_event_kind::call_arguments);
        end_call(true);
        return go_to(state::close);
    }
    if (!is_open) {
        if (!has_name || args_begin || !begin_call()) return fail();
        emit(chat_event_kind::call_arguments, "{}", pos, pos);
    }
    end_call(true);
    return go_to(state::item);
}

// ---- arguments between tags -----------------------------------------------------------------------------------------

bool chat_machine::step_param() {
    size_t end;
    const found opens = go_behind(block->param_open, state::key);
    if (opens == found::yes) return true;
    const found closes = go_behind(block->call_close, state::param);
    found leaves = found::no;
    if (!block->section_close.empty()) leaves = look_behind_blanks(cur, block->section_close);
    if (closes == found::yes || leaves == found::yes) return end_tags();
    if (opens == found::partial || closes == found::partial || leaves == found::partial) return false;
    if (n_params || look_behind_blanks(cur, "{", &end) != found::yes) return fail();
    cur = end - 1;  // the model wrote JSON arguments where tags were expected
    commit(chat_event_kind::markup);
    return begin_object(true);
}

bool chat_machine::end_tags() {
    commit(chat_event_kind::call_arguments, n_params ? "}" : "{}");
    end_call(true);
    at = state::section;
    if (block->section_close.empty()) after_marker();
    return true;
}

bool chat_machine::step_key() {
    const found f = seek(block->key_end, token + kMaxChatName + 1);
    if (f == found::partial) return false;
    if (f == found::no) return fail(true);
    key.assign(buffer, token, cur - token);
    token = cur += block->key_end.size();
    return go_to(state::value_open);
}

bool chat_machine::step_value_open() {
    uint32_t t = 0;
    const value* properties = schema ? schema->find("properties") : nullptr;
    if (const value* p = properties ? properties->find(key) : nullptr) t = schema_types(*schema, *p);
    if (block->value_open == ">") {  // the tag itself may say whether the value is a string
        const size_t end = buffer.find('>', cur);
        if (end == std::string::npos && buffer.size() - cur < kMaxChatBlanks) return false;
        if (end == std::string::npos || end - cur >= kMaxChatBlanks) return fail(true);
        const std::string_view attributes = std::string_view(buffer).substr(cur, end - cur);
        if (attributes.find("string=\"true\"") != std::string_view::npos) t = kJsonString;
        else if (attributes.find("string=\"false\"") != std::string_view::npos) t = ~(uint32_t)kJsonString;
        cur = end + 1;
    } else if (!block->value_open.empty()) {
        const found f = go_behind(block->value_open, at);
        if (f == found::partial) return false;
        if (f == found::no) return fail(true);
    }
    std::string text = n_params++ ? ", \"" : "{\"";
    for (const char c : key) append_json_byte(c, &text);
    text += t == kJsonString ? "\": \"" : "\": ";
    commit(chat_event_kind::call_arguments, text);
    types = t;
    token = cur;
    value_text.clear();
    value_end = block->value_close;
    skips_break = block->value_open.empty() || (block->flags & kCdata);
    passes_json = false;
    at = t == kJsonString ? state::text_value : state::typed_value;
    return true;
}

// Returns whether the value ends at cur. A tag that can come next must follow the tag that closes the value.
chat_machine::found chat_machine::find_value_end(size_t* tag_end) const {
    const bool has_break = block->value_open.empty() && buffer[cur] == '\n';
    if (has_break && cur + 1 == buffer.size()) return is_final ? found::no : found::partial;
    const found f = look(cur + has_break, value_end);
    if (f != found::yes) return f;
    *tag_end = cur + has_break + value_end.size();
    size_t i = *tag_end;
    while (i < buffer.size() && is_blank(buffer[i]) && i - *tag_end < kMaxChatBlanks) i++;
    found best = found::no;
    for (const std::string_view m : {block->param_open, block->call_close, block->section_close}) {
        if (m.empty()) continue;
        best = std::max(best, look_behind_blanks(*tag_end, m));
        if (is_final && m.substr(0, buffer.size() - i) == std::string_view(buffer).substr(i)) best = found::yes;
    }
    return best;
}

// Returns the JSON of a value whose text is known, by the rules of chat_parser.h.
static std::string typed_json(std::string_view text, uint32_t types) {
    std::string_view t = text;
    while (!t.empty() && is_blank(t.front())) t.remove_prefix(1);
    while (!t.empty() && is_blank(t.back())) t.remove_suffix(1);
    value v;
    error_text err;
    if (parse_json(t, &v, err) == DUET_OK && (!types || !(types & kJsonString) || (types & json_type_of(v))))
        return std::string(t);
    if ((types & kJsonNull) && t == "None") return "null";
    std::string out;
    if (types && !(types & kJsonString)) {
        literal_reader reader;
        reader.reset(0, false, &out);
        bool is_good = !t.empty();
        for (const char c : t) is_good = is_good && reader.push(c, &out) != literal_reader::step::bad;
        if (is_good && reader.finish(&out)) return out;
    }
    out = "\"";
    for (const char c : text) append_json_byte(c, &out);
    return out += '"';
}

// The value is too long to wait for its end. It is passed on as JSON if it looks like JSON, otherwise as a string.
bool chat_machine::give_up_typing() {
    const size_t first = buffer.find_first_not_of(" \n\t\r", token);
    passes_json =
        first < cur && (buffer[first] == '{' || buffer[first] == '[') && (!types || (types & (kJsonMap | kJsonList)));
    if (!passes_json) {
        value_text = '"';
        at = state::text_value;
    }
    cur = token;
    return true;
}

bool chat_machine::step_value() {
    if (skips_break) {
        if (at_end()) return false;
        if (block->flags & kCdata) {
            const found f = look(cur, "<![CDATA[");
            if (f == found::partial) return false;
            if (f == found::yes) {
                cur += 9;
                value_end = "]]></param>";
            }
        } else if (buffer[cur] == '\n') {
            size_t tag_end;  // an empty value may have one break only
            const found f = find_value_end(&tag_end);
            if (f == found::partial) return false;
            if (f == found::no) cur++;
        }
        token = cur;
        skips_break = false;
    }
    const bool is_text = at == state::text_value;
    for (; !at_end(); cur++) {
        const char c = buffer[cur];
        if (!is_text && !passes_json && cur - token == kMaxChatHeld) return give_up_typing();
        if (c == '\n' || c == value_end[0]) {
            size_t tag_end;
            const found f = find_value_end(&tag_end);
            if (f == found::partial) break;
            if (f == found::yes) {
                if (is_text) value_text += '"';
                else if (!passes_json)
                    value_text = typed_json(std::string_view(buffer).substr(token, cur - token), types);
                cur = tag_end;
                pass_value();
                return go_to(state::param);
            }
        }
        if (is_text) append_json_byte(c, &value_text);
        else if (passes_json) value_text += c;
    }
    if (is_text || passes_json) pass_value();
    return false;
}

// ---- literals, ends -------------------------------------------------------------------------------------------------

bool chat_machine::step_literal() {
    for (; !at_end(); cur++) {
        const literal_reader::step s = literals.push(buffer[cur], &value_text);
        if (s == literal_reader::step::more) continue;
        if (s == literal_reader::step::done) cur++;
        pass_value();
        if (s == literal_reader::step::bad) return fail();
        end_call(true);
        at = block->flags & kGemma ? state::close : state::item;
        return true;
    }
    pass_value();
    return false;
}

bool chat_machine::step_close() {
    size_t end = cur, behind = cur;
    found f = found::no;
    for (const std::string_view m : {std::string_view(block->flags & kFence ? "```" : ""), block->call_close}) {
        f = m.empty() ? found::no : look_behind_blanks(end, m, &behind);
        if (f == found::partial) return false;
        if (f == found::yes) end = behind;
    }
    if (f == found::yes) {  // the end of the call; a fence alone stays text
        cur = end;
        commit(chat_event_kind::markup);
    }
    at = state::section;
    if (block->section_close.empty()) after_marker();
    return true;
}

}  // namespace duet

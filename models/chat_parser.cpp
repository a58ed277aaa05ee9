// models/chat_parser.cpp: tells text, thinking and the beginnings of calls apart. chat_calls.cpp reads the calls.
#include "chat_machine.h"

#include <algorithm>

namespace duet {

std::span<const chat_block> chat_blocks() {
    using enum call_syntax;
    static constexpr chat_block rows[] = {
#define CHAT_BLOCK(form, syntax, section_open, call_open, name_end, call_close, section_close, param_open, key_end,    \
                   value_open, value_close, flags)                                                                     \
    {chat_form::form, syntax,     section_open, call_open,  name_end,    call_close,                                   \
     section_close,   param_open, key_end,      value_open, value_close, flags},
#include "chat_forms.def"
#undef CHAT_BLOCK
    };
    return rows;
}

static constexpr std::pair<chat_form, const char*> kMarkup[] = {
#define CHAT_MARKUP(form, marker) {chat_form::form, marker},
#include "chat_forms.def"
#undef CHAT_MARKUP
};

static bool has_headers(chat_form form) { return form == chat_form::harmony || form == chat_form::atem; }

// ---- events ---------------------------------------------------------------------------------------------------------

void chat_machine::emit(chat_event_kind kind, std::string_view bytes, size_t raw_begin, size_t raw_end) {
    const bool joins = kind != chat_event_kind::call_begin && kind != chat_event_kind::call_end;
    if (joins && bytes.empty() && raw_begin == raw_end) return;
    if (!has_pending || pending.kind != kind || !joins) {
        flush();
        pending = {kind, false, is_open ? n_calls - 1 : -1, {}, {}, {}};
        has_pending = true;
    }
    pending_bytes += bytes;
    pending_raw.append(buffer, raw_begin, raw_end - raw_begin);
}

void chat_machine::flush() {
    if (!has_pending) return;
    pending.bytes = pending_bytes;
    pending.id = pending_id;
    pending.raw = pending_raw;
    has_pending = false;
    sink.event(sink.user, pending);
    pending_bytes.clear();
    pending_id.clear();
    pending_raw.clear();
}

// ---- markers --------------------------------------------------------------------------------------------------------

chat_machine::found chat_machine::look(size_t from, std::string_view marker) const {
    const size_t n = std::min(marker.size(), buffer.size() - from);
    if (buffer.compare(from, n, marker, 0, n) != 0) return found::no;
    return n == marker.size() ? found::yes : is_final ? found::no : found::partial;
}

// Moves cur to the marker. partial: the bytes end before the limit, and the marker may still come.
chat_machine::found chat_machine::seek(std::string_view marker, size_t limit) {
    for (; cur < limit && !at_end(); cur++)
        if (const found f = look(cur, marker); f != found::no) return f;
    return cur < limit ? found::partial : found::no;
}

chat_machine::found chat_machine::look_behind_blanks(size_t from, std::string_view marker, size_t* end) const {
    size_t i = from;
    while (i < buffer.size() && i - from < kMaxChatBlanks && is_blank(buffer[i])) i++;
    if (end) *end = i + marker.size();
    return look(i, marker);
}

const std::pair<size_t, size_t>* chat_machine::control_at_cur() const {
    for (const auto& c : controls)
        if (c.first == cur) return &c;
    return nullptr;
}

// The marks of these options: all markers that can stand in text and in thinking.
void chat_machine::begin() {
    const thinking_markers& think = thinking_markers_of(options.thinking);
    const bool splits = options.split_thinking && !think.open.empty();
    if (splits) {
        marks.push_back({think.open, mark_kind::think_open, nullptr, false, true, false});
        marks.push_back({think.close, mark_kind::think_close, nullptr, false, false, true});
    } else own_spellings = {std::string(think.open), std::string(think.close)};
    is_thinking = options.thinking_is_open && splits;
    trims = is_thinking;
    for (const chat_block& b : chat_blocks()) {
        if (b.form != options.form) continue;
        for (const std::string_view open : {b.section_open, b.call_open}) {
            if (open.empty() || b.form == chat_form::harmony) continue;  // its headers begin calls
            if (!options.parse_calls) own_spellings.emplace_back(open);
            else marks.push_back({open, mark_kind::begin, &b, false, false, (b.flags & kEndsThinking) != 0});
        }
        if (!options.parse_calls) {
            for (const std::string_view m : {b.call_close, b.section_close}) own_spellings.emplace_back(m);
        } else if (b.is_bare()) {
            marks.push_back({"[", mark_kind::begin, &b, true, false, false});
            if (b.syntax == call_syntax::json) marks.push_back({"{", mark_kind::begin, &b, true, false, false});
        }
    }
    for (const auto& [form, marker] : kMarkup)
        if (form == options.form && (splits || marker != think.close))
            marks.push_back({marker, mark_kind::markup, nullptr, false, false, true});
    if (has_headers(options.form)) {
        for (const char* open : {"<|start|>", "<|channel|>", "<|message|>"})
            marks.push_back({open, mark_kind::header, nullptr, false, false, true});
        for (const char* open : {" to=", "to="})
            marks.push_back({open, mark_kind::header, nullptr, false, true, false});
    }
    for (const mark& m : marks) is_first_byte[(uint8_t)m.text[0]] = true;
}

// Finds the longest mark at cur. It is partial while a longer one may still come.
chat_machine::found chat_machine::find_mark(bool is_control, const mark** out) const {
    *out = nullptr;
    size_t n_partial = 0;
    for (const mark& m : marks) {
        if (is_thinking && !m.in_thinking) continue;
        if ((m.at_start && !is_fresh && !is_control) || (m.at_line_start && !is_line_start)) continue;
        if (m.kind == mark_kind::think_close && !is_thinking && !is_output_start) continue;
        const found f = look(cur, m.text);
        if (f == found::partial) n_partial = std::max(n_partial, m.text.size());
        if (f == found::yes && (!*out || (*out)->text.size() < m.text.size())) *out = &m;
    }
    return n_partial > (*out ? (*out)->text.size() : 0) ? found::partial : *out ? found::yes : found::no;
}

void chat_machine::after_marker() {
    at = state::prose;
    trims = is_fresh = is_line_start = true;
    n_blanks = 0;
}

// Prose goes on at cur, and no marker stands just before it.
void chat_machine::return_to_prose() {
    at = state::prose;
    trims = is_fresh = is_line_start = is_output_start = false;
    n_blanks = 0;
}

// ---- text and thinking ----------------------------------------------------------------------------------------------

bool chat_machine::step_prose() {
    if (trims) {
        while (!at_end() && is_blank(buffer[cur])) cur++;
        if (cur > pos) commit(chat_event_kind::markup);
        if (at_end()) return false;
        trims = false;
    }
    bool waits = false;
    for (; !at_end(); cur++) {
        const auto* control = controls.empty() ? nullptr : control_at_cur();
        const uint8_t c = (uint8_t)buffer[cur];
        if (control || is_first_byte[c]) {
            const mark* m = nullptr;
            const found f = find_mark(control != nullptr, &m);
            waits = f == found::partial;
            if (waits) break;
            const size_t n_held = n_blanks <= kMaxChatBlanks ? n_blanks : 0, end = cur;
            if (f == found::yes) {
                cur -= n_held;
                if (cur > pos) pass_prose();
                cur = end;
                return take(*m);
            }
            const std::string_view spelled = control ? std::string_view(buffer).substr(cur, control->second - cur) : "";
            if (control && std::find(own_spellings.begin(), own_spellings.end(), spelled) == own_spellings.end()) {
                n_blanks = 0;
                pass_prose();
                cur = control->second;
                commit(chat_event_kind::markup);
                return true;
            }
        }
        n_blanks = is_blank((char)c) ? n_blanks + 1 : 0;
        is_line_start = c == '\n' || (is_line_start && is_blank((char)c));
        if (!n_blanks) is_fresh = is_output_start = false;
    }
    const size_t seen = cur;
    if (n_blanks <= kMaxChatBlanks && (waits || !is_final)) cur -= n_blanks;
    if (cur > pos) pass_prose();
    cur = seen;
    return false;
}

// A mark stands at cur, and [pos, cur) are the blanks before it.
bool chat_machine::take(const mark& m) {
    if (m.kind == mark_kind::header) return go_to(state::header);
    if (m.kind == mark_kind::begin) {
        begin_block(*m.block);
        if (m.block->is_bare()) return true;
        cur += m.text.size();
        if (m.text != m.block->call_open) return true;
        token = cur;
        return go_to(state::name);
    }
    cur += m.text.size();
    commit(chat_event_kind::markup);
    if (m.kind != mark_kind::markup) is_thinking = m.kind == mark_kind::think_open;
    else if (has_headers(options.form)) is_thinking = false;
    after_marker();
    return true;
}

// ---- messages with headers ------------------------------------------------------------------------------------------

static std::string_view word_behind(std::string_view text, std::string_view what) {
    const size_t i = text.find(what);
    if (i == std::string_view::npos) return {};
    text.remove_prefix(i + what.size());
    return text.substr(0, text.find_first_of(" \n\t<"));
}

// Reads up to <|message|>. A header that is too long, or that read_header refuses, is text.
bool chat_machine::step_header() {
    static const std::string_view kEnd = "<|message|>";
    const found f = seek(kEnd, pos + kMaxChatName + kMaxChatBlanks);
    if (f == found::partial && !is_final) return false;
    if (f != found::yes) return fail();
    const std::string_view header = std::string_view(buffer).substr(pos, cur - pos);
    cur += kEnd.size();
    return read_header(header) ? true : fail();
}

bool chat_machine::read_header(std::string_view header) {
    const std::string_view channel = word_behind(header, "<|channel|>");
    std::string_view to = word_behind(header, "to=");
    const bool thinks = channel == "analysis" || to == "self";
    if (to.substr(0, 10) == "functions.") to.remove_prefix(10);
    if (options.form == chat_form::harmony && options.parse_calls && !to.empty() && is_known(to)) {
        for (const chat_block& b : chat_blocks())
            if (b.form == options.form) begin_block(b);
        name = to;
        return go_to(state::before_json);
    }
    if ((thinks && !options.split_thinking) || (options.form == chat_form::harmony && !to.empty() && !thinks))
        return false;
    commit(chat_event_kind::markup);
    is_thinking = thinks;
    is_output_start = false;
    after_marker();
    return true;
}

// ---- the parser -----------------------------------------------------------------------------------------------------

bool chat_machine::step() {
    using m = chat_machine;
    // The order is that of the states.
    static bool (m::* const kSteps[])() = {&m::step_prose,       &m::step_header,     &m::step_section, &m::step_name,
                                           &m::step_before_json, &m::step_object,     &m::step_item,    &m::step_param,
                                           &m::step_key,         &m::step_value_open, &m::step_value,   &m::step_value,
                                           &m::step_literal,     &m::step_close};
    return (this->*kSteps[(size_t)at])();
}

void chat_machine::run() {
    while (step()) {}
    if (is_final) {
        if (at != state::prose) cut();
        cur = buffer.size();
        pass_prose();
    }
    flush();
    buffer.erase(0, pos);
    for (size_t* offset : {&cur, &token, &args_begin, &args_end}) *offset -= std::min(*offset, pos);
    std::erase_if(controls, [&](const auto& c) { return c.second <= pos; });
    for (auto& c : controls) c = {c.first - std::min(c.first, pos), c.second - pos};
    pos = 0;
}

void chat_parser::start(chat_parser_options options, chat_sink sink) {
    machine_ = {new chat_machine, [](chat_machine* m) { delete m; }};
    machine_->options = std::move(options);
    machine_->sink = sink;
    machine_->begin();
}

void chat_parser::feed(std::string_view bytes, bool is_control) {
    chat_machine& m = *machine_;
    if (is_control && !bytes.empty()) m.controls.push_back({m.buffer.size(), m.buffer.size() + bytes.size()});
    m.buffer += bytes;
    m.run();
}

void chat_parser::finish() {
    machine_->is_final = true;
    machine_->run();
}

size_t chat_parser::n_held_bytes() const { return machine_ ? machine_->buffer.size() : 0; }

bool chat_parser::is_thinking() const { return machine_ && machine_->is_thinking; }

}  // namespace duet

// models/chat_machine.h: the state of a chat parser, shared by its two halves: chat_parser.cpp reads text and thinking,
// chat_calls.cpp reads calls.
//
// Bytes wait in `buffer`. The bytes [pos, cur) were looked at and belong to no event yet; [cur, end) were not looked
// at. A step takes bytes from cur on, and returns false when it cannot go on without more input. No step looks back
// before pos. When more input has come, a step repeats at most the longest marker and kMaxChatBlanks.
#pragma once
#include "chat_parser.h"
#include "chat_values.h"

#include <span>

namespace duet {

enum class call_syntax : uint8_t { json, named, tags, literal };
enum chat_block_flags { kNameIsKey = 1, kGemma = 2, kFence = 4, kEndsThinking = 8, kPrefixed = 16, kCdata = 32 };

// A row CHAT_BLOCK of chat_forms.def.
struct chat_block {
    chat_form form;
    call_syntax syntax;
    std::string_view section_open, call_open, name_end, call_close, section_close;
    std::string_view param_open, key_end, value_open, value_close;
    uint32_t flags;
    bool is_bare() const { return section_open.empty() && call_open.empty(); }
};
std::span<const chat_block> chat_blocks();

struct chat_machine {
    enum class state : uint8_t {
        prose,        // text or thinking
        header,       // the header of a message, up to <|message|>
        section,      // behind the marker that opens calls, or behind a call: the next call is wanted
        name,         // the name of a call
        before_json,  // behind the name: the arguments are wanted
        object,       // inside {"name": .., "arguments": ..}, or inside the arguments alone
        item,         // between the items of a list of calls
        param,        // between arguments in tags
        key,          // the name of an argument
        value_open,   // behind the name of an argument
        text_value,   // a value that is a string, passed on as it comes
        typed_value,  // a value that is held back until its type is clear
        literal,      // arguments as literals
        close,        // behind the arguments: the end marker of the call is wanted
    };
    enum class found : uint8_t { no, partial, yes };
    enum class mark_kind : uint8_t { think_open, think_close, begin, header, markup };
    struct mark {
        std::string_view text;
        mark_kind kind;
        const chat_block* block;
        bool at_line_start, at_start;  // the mark counts only after a line break; only after a marker
        bool in_thinking;              // it counts in thinking, too
    };

    chat_parser_options options;
    chat_sink sink{};
    std::vector<mark> marks;
    bool is_first_byte[256] = {};
    std::vector<std::string> own_spellings;  // markers that stay text when they are switched off

    std::string buffer;
    size_t pos = 0, cur = 0;
    bool is_final = false;
    std::vector<std::pair<size_t, size_t>> controls;  // begin and end of control tokens in the buffer, ascending

    // prose
    state at = state::prose;
    bool is_thinking = false;
    bool trims = false;           // blanks here belong to the marker before them
    bool is_output_start = true;  // no prose yet
    bool is_fresh = true;         // no prose since the last marker
    bool is_line_start = true;    // only blanks since the last break
    size_t n_blanks = 0;          // blanks just before cur

    // calls
    const chat_block* block = nullptr;
    bool has_bracket = false, is_open = false;  // is_open: call_begin was sent, call_end not yet
    size_t n_items = 0;                         // calls of this section
    int32_t n_calls = 0;
    std::string name, id, key, value_text;
    size_t token = 0;               // where in the buffer a name or key began
    const value* schema = nullptr;  // of the call's arguments
    json_scanner scanner;
    literal_reader literals;
    bool is_whole = false;   // the scanner reads the arguments alone
    bool streams = false;    // the scanner's bytes are arguments
    bool is_nested = false;  // inside {"function": {..}}
    bool is_name_value = false, has_name = false;
    size_t args_begin = 0, args_end = 0;  // arguments that came before the name and are held
    size_t n_params = 0;
    bool skips_break = false;  // drop a line break that begins the value, or the mark of a CDATA block
    std::string_view value_end;
    bool passes_json = false;  // a typed value has become too long and is passed on as it is
    uint32_t types = 0;

    // One event gathers bytes until an event of another kind comes.
    chat_event pending{};
    std::string pending_bytes, pending_id, pending_raw;
    bool has_pending = false;

    // ---- chat_parser.cpp
    void begin();
    void run();
    void emit(chat_event_kind kind, std::string_view bytes, size_t raw_begin, size_t raw_end);
    void flush();
    // Turns the bytes [pos, cur) into an event.
    void commit(chat_event_kind kind, std::string_view bytes = {}) {
        emit(kind, bytes, pos, cur);
        pos = cur;
    }
    // Passes the bytes [pos, cur) on as they are.
    void pass(chat_event_kind kind) { commit(kind, std::string_view(buffer).substr(pos, cur - pos)); }
    void pass_prose() { pass(is_thinking ? chat_event_kind::thinking : chat_event_kind::text); }
    // Passes on what became of the value so far.
    void pass_value() {
        commit(chat_event_kind::call_arguments, value_text);
        value_text.clear();
    }
    bool at_end() const { return cur == buffer.size(); }
    bool is_held_full() const { return cur - pos > kMaxChatHeld; }
    found look(size_t from, std::string_view marker) const;
    found look_behind_blanks(size_t from, std::string_view marker, size_t* end = nullptr) const;
    found seek(std::string_view marker, size_t limit);
    void after_marker();
    void return_to_prose();
    bool step();
    bool step_prose();
    bool step_header();
    bool read_header(std::string_view header);
    bool take(const mark& m);
    found find_mark(bool is_control, const mark** out) const;
    const std::pair<size_t, size_t>* control_at_cur() const;

    // ---- chat_calls.cpp
    void begin_block(const chat_block& b);
    bool is_known(std::string_view tool) const;
    bool begin_call();  // false: no tool has this name
    void end_call(bool is_complete);
    bool fail(bool from_start = false);  // the bytes held back are text; from_start: those of the step, too
    bool go_to(state next);
    void cut();  // the output ends here
    bool skip_blanks();
    found go_behind(std::string_view marker, state next);
    bool step_section();
    bool step_item();
    bool step_name();
    bool step_before_json();
    bool step_object();
    bool step_param();
    bool step_key();
    bool step_value_open();
    bool give_up_typing();
    bool step_value();
    bool step_literal();
    bool step_close();
    bool begin_object(bool whole);
    bool take_object_step(json_scanner::step s, size_t level);
    bool end_object();
    found find_value_end(size_t* tag_end) const;
    bool end_tags();
};

}  // namespace duet

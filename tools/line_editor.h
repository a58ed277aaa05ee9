// tools/line_editor.h: lines typed by a person. An editor with history on a terminal, plain lines elsewhere.
// Owns: keys, what stands on the screen, and the terminal's modes. Must not know: what the lines are for.
// Bytes go in (feed), bytes for the screen come out (draw), so tests need no terminal; terminal_lines connects both.
#pragma once
#include "../runtime.h"
#include "os.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

// Decodes the character at the beginning of text. Returns its bytes, 1 for a byte that is no UTF-8 (then *c is U+FFFD).
inline size_t decode_utf8(std::string_view text, char32_t* c) {
    const size_t n = duet_utf8_length(text.data(), text.size());
    constexpr uint8_t kMask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    *c = n ? (uint8_t)text[0] & kMask[n] : 0xfffd;
    for (size_t i = 1; i < n; i++) *c = *c << 6 | ((uint8_t)text[i] & 0x3f);
    return n ? n : 1;
}

// Returns the columns that a character takes: 0 (it joins the one before), 1 or 2. The system's table is older than
// some emoji, which are wide. It needs a locale of UTF-8, which terminal_lines sets.
inline int columns_of(char32_t c) {
    if (c < 0x7f) return 1;
    const int n = os::columns_of(c);
    return n >= 0 ? n : c >= 0x1f000 && c < 0x20000 ? 2 : 1;
}

class line_editor {
  public:
    enum outcome { kNothing, kLine, kInterrupt, kEnd, kSuspend };

    // Begins a line. Colour codes may stand around the prompt, not in it.
    void begin(const std::string& prompt, const std::string& before = "", const std::string& behind = "") {
        prompt_ = prompt;
        before_ = before;
        behind_ = behind;
        text_.clear();
        at_ = cursor_row_ = 0;
        i_history_ = history_.size();
    }
    const std::string& text() const { return text_; }
    size_t cursor() const { return at_; }
    void clear() { text_.clear(), at_ = 0; }

    // Takes the line that was finished; it becomes the last one of the history.
    std::string take() {
        if (!text_.empty() && (history_.empty() || history_.back() != text_)) history_.push_back(text_);
        if (history_.size() > 1000) history_.erase(history_.begin());
        return text_;
    }

    // Takes one byte from the keyboard.
    outcome feed(char byte) {
        const uint8_t c = (uint8_t)byte;
        if (!key_.empty() && key_[0] == '\x1b') return feed_escape(byte);
        if (c == 0x1b) return key_ = byte, kNothing;
        if (c >= 0x80) return feed_utf8(byte), kNothing;
        key_.clear();
        if (is_paste_) {
            if (c == '\r' || (c == '\n' && !was_return_)) insert("\n");
            else if (c == '\t' || (c >= 0x20 && c != 0x7f)) insert({&byte, 1});
            was_return_ = c == '\r';
            is_paste_ = c != 0x03;  // Ctrl-C: the end of what was pasted never came
            return kNothing;
        }
        return c >= 0x20 && c != 0x7f ? (insert({&byte, 1}), kNothing) : control(c);
    }

    // Returns what shows the line on a terminal of this size, where the cursor stands as the last draw left it. Rows
    // are broken here, never by the terminal, and of more rows than the terminal has those around the cursor are shown.
    std::string draw(int width, int height) {
        width = std::max(width, 4);
        height = std::max(height, 2);
        std::vector<std::string> rows(1, before_ + prompt_ + behind_);
        int column = (int)prompt_.size() % width, cursor_column = 0;
        size_t cursor_row = 0;
        auto next_row = [&] { rows.emplace_back(), column = 0; };
        for (size_t i = 0; i <= text_.size();) {
            char32_t c = ' ';
            const size_t n = i < text_.size() ? decode_utf8(std::string_view(text_).substr(i), &c) : 1;
            const int n_columns = c == '\n' ? 0 : columns_of(c);
            if (column + n_columns > width) next_row();
            if (i == at_) cursor_row = rows.size() - 1, cursor_column = std::min(column, width - 1);
            if (c == '\n') next_row();
            else if (i < text_.size()) c == '\t' ? rows.back() += ' ' : rows.back().append(text_, i, n);
            column += n_columns;
            i += n;
        }
        const size_t first = cursor_row < (size_t)height ? 0 : cursor_row - (size_t)height + 1;
        const size_t end = std::min(rows.size(), first + (size_t)height);
        std::string out = cursor_row_ ? "\x1b[" + std::to_string(cursor_row_) + "A" : "";
        out = clears_screen_ ? "\x1b[H\x1b[2J" : out + "\r\x1b[J";
        clears_screen_ = false;
        for (size_t i = first; i < end; i++) out += (i > first ? "\r\n" : "") + rows[i];
        if (end - 1 > cursor_row) out += "\x1b[" + std::to_string(end - 1 - cursor_row) + "A";
        out += cursor_column ? "\r\x1b[" + std::to_string(cursor_column) + "C" : "\r";
        cursor_row_ = cursor_row - first;
        return out;
    }
    // Returns what shows the whole line and puts the cursor below it.
    std::string draw_end(int width, int height) {
        at_ = text_.size();
        const std::string out = draw(width, height) + "\r\n";
        cursor_row_ = 0;
        return out;
    }

  private:
    void insert(std::string_view bytes) {
        text_.insert(at_, bytes);
        at_ += bytes.size();
    }
    // Where the next, or the previous character begins. Marks that join a character move with it.
    size_t next(size_t at) const {
        char32_t c = 0;
        if (at < text_.size()) at += decode_utf8(std::string_view(text_).substr(at), &c);
        while (at < text_.size()) {
            const size_t n = decode_utf8(std::string_view(text_).substr(at), &c);
            if (c == '\n' || columns_of(c) != 0) break;
            at += n;
        }
        return at;
    }
    size_t previous(size_t at) const {
        char32_t c = 0;
        while (at > 0) {
            do at--;
            while (at > 0 && ((uint8_t)text_[at] & 0xc0) == 0x80);
            decode_utf8(std::string_view(text_).substr(at), &c);
            if (c == '\n' || columns_of(c) != 0) break;
        }
        return at;
    }
    bool is_blank(size_t at) const { return text_[at] == ' ' || text_[at] == '\n' || text_[at] == '\t'; }
    size_t word_end(size_t at) const {
        while (at < text_.size() && is_blank(at)) at++;
        while (at < text_.size() && !is_blank(at)) at++;
        return at;
    }
    size_t word_begin(size_t at) const {
        while (at > 0 && is_blank(at - 1)) at--;
        while (at > 0 && !is_blank(at - 1)) at--;
        return at;
    }
    size_t line_begin() const { return at_ ? text_.rfind('\n', at_ - 1) + 1 : 0; }
    size_t line_end() const { return std::min(text_.find('\n', at_), text_.size()); }

    // Deletes from one place to another; the text may be put back with Ctrl-Y.
    void cut(size_t begin, size_t end) {
        killed_ = text_.substr(begin, end - begin);
        text_.erase(begin, end - begin);
        at_ = begin;
    }
    // Goes a line up (-1) or down (1): in the text, and past its first or last line in the history.
    void go(int step) {
        const size_t begin = line_begin(), end = line_end(), column = at_ - begin;
        if (step < 0 && begin > 0) {
            const size_t above = begin > 1 ? text_.rfind('\n', begin - 2) + 1 : 0;
            at_ = std::min(above + column, begin - 1);
        } else if (step > 0 && end < text_.size()) {
            at_ = std::min(end + 1 + column, std::min(text_.find('\n', end + 1), text_.size()));
        } else if (step < 0 ? i_history_ > 0 : i_history_ < history_.size()) {
            if (i_history_ == history_.size()) draft_ = text_;
            i_history_ += (size_t)step;
            text_ = i_history_ == history_.size() ? draft_ : history_[i_history_];
            at_ = text_.size();
        }
        while (at_ > 0 && at_ < text_.size() && ((uint8_t)text_[at_] & 0xc0) == 0x80) at_--;
    }

    outcome control(uint8_t c) {
        constexpr auto ctrl = [](char letter) { return (uint8_t)(letter & 0x1f); };
        if (c == '\r' || c == '\n') {
            if (text_.empty() || text_.back() != '\\') return kLine;
            text_.back() = '\n';
            at_ = text_.size();
        } else if (c == ctrl('C')) return kInterrupt;
        else if (c == ctrl('D') && text_.empty()) return kEnd;
        else if (c == ctrl('Z')) return kSuspend;
        else if (c == ctrl('D')) text_.erase(at_, next(at_) - at_);
        else if (c == 0x7f || c == ctrl('H')) {
            const size_t begin = previous(at_);
            text_.erase(begin, at_ - begin);
            at_ = begin;
        } else if (c == ctrl('A')) at_ = line_begin();
        else if (c == ctrl('E')) at_ = line_end();
        else if (c == ctrl('B')) at_ = previous(at_);
        else if (c == ctrl('F')) at_ = next(at_);
        else if (c == ctrl('K')) cut(at_, line_end());
        else if (c == ctrl('U')) cut(line_begin(), at_);
        else if (c == ctrl('W')) cut(word_begin(at_), at_);
        else if (c == ctrl('Y')) insert(killed_);
        else if (c == ctrl('P')) go(-1);
        else if (c == ctrl('N')) go(1);
        else if (c == ctrl('L')) clears_screen_ = true;
        return kNothing;
    }

    outcome feed_escape(char byte) {
        if (key_.size() == 1 && byte == '\x1b') return kNothing;
        key_ += byte;
        const bool is_csi = key_.size() > 1 && (key_[1] == '[' || key_[1] == 'O');
        if (is_csi && (key_.size() == 2 || (key_.size() < 32 && byte >= 0x20 && byte < 0x40))) return kNothing;
        const std::string key = key_.substr(1);
        key_.clear();
        if (key == "[201~") is_paste_ = false;
        if (is_paste_) return kNothing;
        const bool is_word = key.find(";5") != key.npos || key.find(";3") != key.npos;
        const char last = key.back();
        if (key == "[200~") is_paste_ = true, was_return_ = false;
        else if (key == "\r" || key == "\n") insert("\n");
        else if (key == "[3~") text_.erase(at_, next(at_) - at_);
        else if (key == "[1~" || key == "[7~" || (is_csi && last == 'H')) at_ = line_begin();
        else if (key == "[4~" || key == "[8~" || (is_csi && last == 'F')) at_ = line_end();
        else if (key == "f" || (is_csi && last == 'C' && is_word)) at_ = word_end(at_);
        else if (key == "b" || (is_csi && last == 'D' && is_word)) at_ = word_begin(at_);
        else if (key == "d") cut(at_, word_end(at_));
        else if (key == "\x7f") cut(word_begin(at_), at_);
        else if (is_csi && last == 'A') go(-1);
        else if (is_csi && last == 'B') go(1);
        else if (is_csi && last == 'C') at_ = next(at_);
        else if (is_csi && last == 'D') at_ = previous(at_);
        return kNothing;
    }

    void feed_utf8(char byte) {
        if (((uint8_t)byte & 0xc0) == 0xc0) key_.clear();
        key_ += byte;
        char32_t c = 0;
        if (duet_utf8_length(key_.data(), key_.size()) == 0 && key_.size() < 4) return;
        if (decode_utf8(key_, &c) == key_.size() && c >= 0xa0) insert(key_);
        key_.clear();
    }

    std::string prompt_, before_, behind_, text_, draft_, killed_, key_;
    std::vector<std::string> history_;
    size_t at_ = 0, cursor_row_ = 0, i_history_ = 0;
    bool is_paste_ = false, was_return_ = false, clears_screen_ = false;
};

// ---- the terminal ----

class terminal_lines {
  public:
    // The screen is stdout where that is a terminal, else stderr. Without a screen, or with input that is no terminal,
    // lines are read as they come.
    terminal_lines() : screen_(os::is_terminal(1) ? 1 : os::is_terminal(2) ? 2 : -1) {
        os::use_utf8_columns();
        is_terminal_ = screen_ >= 0 && os::terminal::begin();
    }
    ~terminal_lines() {
        if (is_terminal_) os::terminal::end();
    }
    terminal_lines(const terminal_lines&) = delete;
    bool is_terminal() const { return is_terminal_; }

    // Reads a line; a backslash at its end, or Alt-Enter, goes on in a new one. Returns kLine, kInterrupt (Ctrl-C, what
    // was typed is gone; *line says what it was) or kEnd.
    line_editor::outcome read(const std::string& prompt, bool has_colours, std::string* line) {
        if (!is_terminal_) {
            if (os::is_terminal(0)) show(prompt);
            return read_plain(line);
        }
        os::terminal::typing();
        editor_.begin(prompt, has_colours ? "\x1b[1m" : "", has_colours ? "\x1b[0m" : "");
        show("\x1b[?2004h");
        line_editor::outcome outcome = line_editor::kNothing;
        while (outcome == line_editor::kNothing) {
            if (i_typed_ == typed_.size()) {
                if (!os::terminal::has_key()) draw(false);
                outcome = read_keys();
            } else outcome = editor_.feed(typed_[i_typed_++]);
            if (outcome == line_editor::kSuspend) suspend(), outcome = line_editor::kNothing;
        }
        draw(true);
        show("\x1b[?2004l");
        os::terminal::answering();
        *line = outcome == line_editor::kLine ? editor_.take() : editor_.text();
        return outcome;
    }

  private:
    void show(std::string_view bytes) const {
        while (!bytes.empty()) {
            const int64_t n = os::terminal::write(screen_, bytes.data(), bytes.size());
            if (n < 0 && errno != EINTR && errno != EAGAIN) return;
            bytes.remove_prefix(n > 0 ? (size_t)n : 0);
        }
    }
    void draw(bool is_end) {
        int width = 0, height = 0;
        os::terminal::size(screen_, &width, &height);
        show(is_end ? editor_.draw_end(width, height) : editor_.draw(width, height));
    }
    // Waits for keys. What was pasted or typed ahead comes in large pieces and is drawn once.
    line_editor::outcome read_keys() {
        char bytes[4096];
        const int64_t n = os::terminal::read_keys(bytes, sizeof bytes);
        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) return line_editor::kEnd;
        typed_.assign(bytes, n > 0 ? (size_t)n : 0);
        i_typed_ = 0;
        return line_editor::kNothing;
    }
    void suspend() {
        show("\r\n\x1b[?2004l");
        os::terminal::suspend();
        show("\x1b[?2004h");
    }
    line_editor::outcome read_plain(std::string* line) {
        line->clear();
        for (;;) {
            const size_t end = typed_.find('\n', i_typed_);
            line->append(typed_, i_typed_, end == typed_.npos ? end : end - i_typed_);
            i_typed_ = end == typed_.npos ? typed_.size() : end + 1;
            if (line->starts_with("\xef\xbb\xbf")) line->erase(0, 3);  // the mark before a file of Windows
            if (end != typed_.npos) {
                if (line->ends_with('\r')) line->pop_back();
                if (line->empty() || line->back() != '\\') return line_editor::kLine;
                line->back() = '\n';
            } else if (errno = 0; read_keys() == line_editor::kEnd)
                return line->empty() ? line_editor::kEnd : line_editor::kLine;
            else if (errno == EINTR) return line_editor::kInterrupt;
        }
    }

    int screen_;
    bool is_terminal_ = false;
    line_editor editor_;
    std::string typed_;
    size_t i_typed_ = 0;
};

// tests/test_line_editor.cpp: the line editor of `run --chat`, without a terminal. Keys go in as bytes; what it draws
// is put on a small screen that knows the escape sequences which the editor writes.
#include "doctest.h"

#include "../tools/line_editor.h"

#include <clocale>

namespace {

// Feeds keys and returns the last outcome that is not kNothing.
line_editor::outcome type(line_editor& editor, std::string_view keys) {
    line_editor::outcome last = line_editor::kNothing;
    for (char c : keys)
        if (const auto outcome = editor.feed(c)) last = outcome;
    return last;
}

// Types keys into an empty line and returns the text with '|' where the cursor is.
std::string typed(line_editor& editor, std::string_view keys) {
    editor.begin("> ");
    CHECK(type(editor, keys) == line_editor::kNothing);
    std::string text = editor.text();
    return text.insert(editor.cursor(), "|");
}
std::string typed(std::string_view keys) {
    line_editor editor;
    return typed(editor, keys);
}

// A terminal of a few rows. A character that does not fit its row fails the test: rows are the editor's work.
struct screen {
    explicit screen(int width, int height) : width(width), rows((size_t)height) {}
    void show(std::string_view out) {
        for (size_t i = 0; i < out.size();) {
            char32_t c = 0;
            const size_t n = decode_utf8(out.substr(i), &c);
            if (c == '\r') column = 0;
            else if (c == '\n' && ++row == (int)rows.size()) {
                rows.erase(rows.begin());
                rows.emplace_back();
                row--;
            } else if (c == 0x1b) {
                const size_t end = out.find_first_of("AJCHm", i);
                REQUIRE(end != out.npos);
                const int count = i + 2 < end ? std::stoi(std::string(out.substr(i + 2, end - i - 2))) : 1;
                if (out[end] == 'A') row -= count;
                if (out[end] == 'C') column += count;
                if (out[end] == 'H') row = column = 0;
                if (out[end] == 'J')
                    for (size_t r = (size_t)row; r < rows.size(); r++)
                        rows[r].resize(r > (size_t)row ? 0 : (size_t)column);
                CHECK(row >= 0);
                i = end + 1;
                continue;
            } else if (c != '\n' && columns_of(c) > 0) {
                CHECK(column + columns_of(c) <= width);
                rows[(size_t)row].resize((size_t)column, U' ');
                rows[(size_t)row] += c;
                if (columns_of(c) == 2) rows[(size_t)row] += U'_';
                column += columns_of(c);
            }
            i += n;
        }
    }
    std::string row_text(int i) const {
        std::string out;
        for (char32_t c : rows[(size_t)i]) c < 0x80 ? out += (char)c : out += '#';
        return out;
    }
    int width, row = 0, column = 0;
    std::vector<std::u32string> rows;
};

}  // namespace

TEST_CASE("line editor: keys") {
    std::setlocale(LC_CTYPE, "C.UTF-8");
    CHECK(typed("hello") == "hello|");
    CHECK(typed("hello\x1b[D\x1b[DX") == "helX|lo");
    CHECK(typed("hello\x1b[HX\x1b[FY") == "XhelloY|");
    CHECK(typed("hello\x1bOHX") == "X|hello");
    CHECK(typed("hello\x01X\x05Y") == "XhelloY|");
    CHECK(typed("one two three\x1b[1;5D\x1b"
                "bX") == "one X|two three");
    CHECK(typed("one two three\x01\x1b[1;5CX\x1b"
                "fY") == "oneX twoY| three");
    CHECK(typed("one two\x17X") == "one X|");
    CHECK(typed("one two\x15X") == "X|");
    CHECK(typed("one two\x01\x1b[1;5C\x0b") == "one|");
    CHECK(typed("one two\x17\x01\x19") == "two|one ");
    CHECK(typed("abc\x7f\x08") == "a|");
    CHECK(typed("abc\x01\x04\x1b[3~") == "|c");
    CHECK(typed("one two\x1b\x7f") == "one |");
    CHECK(typed("\x7f\x08\x1b[D\x1b[A\x1b[B\x0b\x15\x17\x1b[3~\x1b[1;5D\x1b"
                "d") == "|");                                                     // an empty line stands it all
    CHECK(typed("a\x1b[31;99mb\x1b[<0;1;1Mc\x1bQd\x02\x06\x07\x1c") == "abcd|");  // unknown keys are nothing
    line_editor editor;
    editor.begin("> ");
    CHECK(type(editor, "ab\x04") == line_editor::kNothing);
    CHECK(type(editor, "\x03") == line_editor::kInterrupt);
    CHECK(type(editor, "\r") == line_editor::kLine);
    editor.begin("> ");
    CHECK(type(editor, "\x04") == line_editor::kEnd);
    CHECK(type(editor, "\x1a") == line_editor::kSuspend);
}

TEST_CASE("line editor: characters of several bytes and columns") {
    std::setlocale(LC_CTYPE, "C.UTF-8");
    CHECK(typed("\xc3\xa9\xe6\xbc\xa2\x1b[Dx") == "\xc3\xa9x|\xe6\xbc\xa2");
    CHECK(typed("e\xcc\x81x\x1b[D\x7f") == "|x");   // a mark goes with its letter
    CHECK(typed("a\xf0\x9f\x98\x80\x7f") == "a|");  // an emoji
    CHECK(typed("a\xff\xc3\x28\xe6\xbc"
                "b\xc2\x9b"
                "c") == "a(bc|");  // broken bytes and C1 controls are dropped
    line_editor editor;
    editor.begin("> ");
    type(editor, "\xe6\xbc\xa2\xe5\xad\x97"
                 "a");
    screen s(8, 4);
    s.show(editor.draw(8, 4));
    CHECK(s.row_text(0) == "> #_#_a");
    CHECK(s.column == 7);
    type(editor, "\xe6\xbc\xa2");  // does not fit the last column
    s.show(editor.draw(8, 4));
    CHECK(s.row_text(0) == "> #_#_a");
    CHECK(s.row_text(1) == "#_");
    CHECK((s.row == 1 && s.column == 2));
}

TEST_CASE("line editor: rows") {
    line_editor editor;
    editor.begin("> ", "\x1b[1m", "\x1b[0m");
    screen s(10, 5);
    s.row = 2;  // the line begins in the middle of the screen and pushes it up
    for (char c : std::string("abcdefghijklmnopqrstuvwxyz")) {
        editor.feed(c);
        s.show(editor.draw(10, 5));
    }
    CHECK(s.row_text(2) == "> abcdefgh");
    CHECK(s.row_text(3) == "ijklmnopqr");
    CHECK(s.row_text(4) == "stuvwxyz");
    CHECK((s.row == 4 && s.column == 8));
    type(editor, "\x01");
    s.show(editor.draw(10, 5));
    CHECK((s.row == 2 && s.column == 2));
    type(editor, "\x0b");
    s.show(editor.draw(10, 5));
    CHECK(s.row_text(2) == "> ");
    CHECK((s.row_text(3).empty() && s.row_text(4).empty()));
    // A text taller than the screen shows the rows around the cursor, and leaves no other behind.
    type(editor, "one\x1b\rtwo\x1b\rthree\x1b\rfour\x1b\rfive\x1b\rsix\x1b\rseven");
    s.show(editor.draw(10, 5));
    CHECK(s.row_text(0) == "three");
    CHECK(s.row_text(4) == "seven");
    type(editor, "\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A");
    s.show(editor.draw(10, 5));
    CHECK(s.row_text(0) == "> one");
    CHECK(s.row_text(4) == "five");
    CHECK((s.row == 0 && s.column == 5));
    s.show(editor.draw_end(10, 5));
    CHECK(s.row_text(3) == "seven");
    CHECK((s.row == 4 && s.column == 0));
}

TEST_CASE("line editor: several lines and pasted text") {
    line_editor editor;
    editor.begin("> ");
    CHECK(type(editor, "one\\\rtwo\x1b\rthree") == line_editor::kNothing);
    CHECK(editor.text() == "one\ntwo\nthree");
    type(editor, "\x1b[A!\x1b[A\x01?\x1b[B\x05.");
    CHECK(editor.text() == "?one\ntwo!.\nthree");
    CHECK(type(editor, "\r") == line_editor::kLine);
    editor.begin("> ");
    CHECK(type(editor, "\x1b[200~a\r\nb\tc\rd\ne\x1b[A\x03\x1b[201~f") == line_editor::kNothing);
    CHECK(editor.text() == "a\nb\tc\nd\nef");
    editor.begin("> ");  // the end of what is pasted never comes: Ctrl-C, and keys are keys again
    CHECK(type(editor, "\x1b[200~a\x03"
                       "b\x03") == line_editor::kInterrupt);
}

TEST_CASE("line editor: history") {
    line_editor editor;
    for (const char* line : {"one", "two", "two", ""}) {
        editor.begin("> ");
        CHECK(type(editor, std::string(line) + "\r") == line_editor::kLine);
        CHECK(editor.take() == line);
    }
    CHECK(typed(editor, "draft\x1b[A") == "two|");
    CHECK(typed(editor, "draft\x1b[A\x1b[A") == "one|");
    CHECK(typed(editor, "draft\x1b[A\x1b[A\x1b[A") == "one|");
    CHECK(typed(editor, "draft\x10\x10\x0e\x0e\x0e") == "draft|");
    CHECK(typed(editor, "\x1b[Ax") == "twox|");
    CHECK(typed(editor, "\x1b[A") == "two|");  // an entry that was edited and not sent is as it was
}

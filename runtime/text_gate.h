// runtime/text_gate.h: bytes of tokens in, text that is certain out: whole UTF-8 characters, free of stop strings and
// of what may still become one.
// Must not know: tokens, models, sessions.
// Main path: runtime/generate.cpp -> [runtime/text_gate.h] -> models/unicode.h
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace duet {

class text_gate {
  public:
    void set_stops(const char* const* stop, int32_t n_stop);

    // Adds bytes; returns the text that may be shown now. stopped() tells whether a stop string was met.
    std::string add(std::string_view bytes);

    // What is left at the end. is_last: a character that is cut off becomes U+FFFD; else it stays in cut().
    std::string finish(bool is_last);

    bool stopped() const { return stopped_; }
    std::string_view cut() const { return raw_; }  // fewer than 4 bytes of a character that is not complete

    // The gate as it was, to take back what an add did.
    struct mark {
        std::string raw, text;
        bool stopped = false;
    };
    mark remember() const { return {raw_, text_, stopped_}; }
    void take_back(mark& before) noexcept {
        raw_.swap(before.raw);
        text_.swap(before.text);
        stopped_ = before.stopped;
    }

  private:
    void move_whole_characters(bool is_last);
    std::string take(bool is_last);

    std::vector<std::string> stops_;
    std::string raw_, text_;  // bytes not yet whole; text not yet shown
    bool stopped_ = false;
};

}  // namespace duet

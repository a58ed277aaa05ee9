// runtime/text_gate.h: bytes of tokens in, text that is certain out: whole UTF-8 characters, free of stop strings and
// of what may still become one.
// Must not know: tokens, models, sessions.
// Main path: runtime/generate.cpp -> [runtime/text_gate.h] -> models/unicode.h
#pragma once
#include "../models/status.h"

#include <string>
#include <string_view>
#include <vector>

namespace duet {

class text_gate {
  public:
    // DUET_ERR_ARG: n_stop does not fit `stop`. call: begins the message.
    duet_status set_stops(const char* call, const char* const* stop, int32_t n_stop, error_text& err);

    // Adds bytes; returns the text that may be shown now. stopped() tells whether a stop string was met.
    std::string add(std::string_view bytes);

    // What is left at the end. is_last: a character that is cut off becomes U+FFFD; else it stays in cut().
    std::string finish(bool is_last);

    bool stopped() const { return i_stop_ >= 0; }
    int32_t i_stop() const { return i_stop_; }     // the stop string that was met; -1: none
    std::string_view cut() const { return raw_; }  // fewer than 4 bytes of a character that is not complete

    // The gate as it was, to take back what an add did.
    struct mark {
        std::string raw, text;
        int32_t i_stop = -1;
    };
    mark remember() const { return {raw_, text_, i_stop_}; }
    void take_back(mark& before) noexcept {
        raw_.swap(before.raw);
        text_.swap(before.text);
        i_stop_ = before.i_stop;
    }

  private:
    void move_whole_characters(bool is_last);
    std::string take(bool is_last);

    std::vector<std::string> stops_;  // an empty one is never met
    std::string raw_, text_;          // bytes not yet whole; text not yet shown
    int32_t i_stop_ = -1;
};

}  // namespace duet

// runtime/text_gate.cpp: see text_gate.h.
#include "text_gate.h"

#include "../models/unicode.h"

#include <algorithm>

namespace duet {

duet_status text_gate::set_stops(const char* call, const char* const* stop, int32_t n_stop, error_text& err) {
    if (n_stop < 0 || (n_stop > 0 && !stop))
        return fail(err, DUET_ERR_ARG, "%s: n_stop is %d, stop is %s", call, n_stop, stop ? "set" : "NULL");
    for (int32_t i = 0; i < n_stop; i++) stops_.push_back(stop[i] ? stop[i] : "");
    return DUET_OK;
}

std::string text_gate::add(std::string_view bytes) {
    if (stopped()) return {};
    raw_ += bytes;
    move_whole_characters(false);
    return take(false);
}

std::string text_gate::finish(bool is_last) {
    move_whole_characters(is_last);
    return take(true);
}

void text_gate::move_whole_characters(bool is_last) {
    size_t at = 0;
    while (at < raw_.size()) {
        const std::string_view rest = std::string_view(raw_).substr(at);
        const size_t n = utf8_length(rest);
        if (n == 0 && !is_last && utf8_is_cut(rest)) break;
        if (n > 0) text_ += rest.substr(0, n);
        else text_ += "\xef\xbf\xbd";
        at += n > 0 ? n : 1;
    }
    raw_.erase(0, at);
}

std::string text_gate::take(bool is_last) {
    if (stopped()) return {};
    size_t safe = text_.size();
    for (size_t i = 0; i < stops_.size(); i++)
        if (const size_t at = text_.find(stops_[i]); !stops_[i].empty() && at < safe) {
            safe = at;
            i_stop_ = (int32_t)i;
        }
    if (!stopped() && !is_last) {
        for (const std::string& stop : stops_)  // the longest end of the text that begins a stop string waits
            for (size_t n = std::min(std::max(stop.size(), (size_t)1) - 1, text_.size()); n > 0; n--)
                if (text_.compare(text_.size() - n, n, stop, 0, n) == 0) {
                    safe = std::min(safe, text_.size() - n);
                    break;
                }
        while (safe > 0 && safe < text_.size() && ((uint8_t)text_[safe] & 0xc0) == 0x80) safe--;
    }
    std::string out = text_.substr(0, safe);
    text_.erase(0, safe);
    return out;
}

}  // namespace duet

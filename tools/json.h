// tools/json.h: writes text as JSON strings. The output is valid UTF-8 and valid JSON for any input bytes.
// Must not know: what is printed.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

// Returns the length of the well-formed UTF-8 character at the start of bytes (no overlong forms, no surrogates), or 0
// if there is none.
inline size_t utf8_length(std::string_view bytes) {
    const uint8_t lead = bytes.empty() ? 0xff : (uint8_t)bytes[0];
    const size_t n = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (n == 0 || n > bytes.size()) return 0;
    for (size_t i = 1; i < n; i++)
        if (((uint8_t)bytes[i] & 0xc0) != 0x80) return 0;
    const uint8_t next = n > 1 ? (uint8_t)bytes[1] : 0;
    if ((lead == 0xe0 && next < 0xa0) || (lead == 0xed && next > 0x9f) || (lead == 0xf0 && next < 0x90) ||
        (lead == 0xf4 && next > 0x8f))
        return 0;
    return n;
}

// Returns the text in quotes. Bytes that are not UTF-8 become \u00XX; control characters and DEL are escaped.
inline std::string json_string(std::string_view bytes) {
    std::string out = "\"";
    while (!bytes.empty()) {
        const size_t n = utf8_length(bytes);
        const uint8_t c = (uint8_t)bytes[0];
        char escape[8];
        if (c == '"' || c == '\\') {
            out += '\\';
            out += (char)c;
        } else if (c == '\n') out += "\\n";
        else if (c == '\t') out += "\\t";
        else if (n == 0 || c < 0x20 || c == 0x7f) {
            std::snprintf(escape, sizeof escape, "\\u%04x", c);
            out += escape;
        } else out.append(bytes.data(), n);
        bytes.remove_prefix(n ? n : 1);
    }
    return out + "\"";
}

// tools/json.h: text as JSON strings and back, and the members of JSON objects. What is written is valid UTF-8 and
// valid JSON for any input bytes. Must not know: what is printed. The library checks JSON; here it is only taken apart.
#pragma once
#include "../runtime.h"

#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

// Returns the text in quotes. Bytes that are not UTF-8 become \u00XX; control characters (C0, DEL, C1) are escaped.
inline std::string json_string(std::string_view bytes) {
    std::string out = "\"";
    while (!bytes.empty()) {
        const size_t n = duet_utf8_length(bytes.data(), bytes.size());
        const uint8_t c = (uint8_t)bytes[0];
        const bool is_c1 = n == 2 && c == 0xc2 && (uint8_t)bytes[1] < 0xa0;
        char escape[8];
        if (c == '"' || c == '\\') out += {'\\', (char)c};
        else if (c == '\n') out += "\\n";
        else if (c == '\t') out += "\\t";
        else if (n == 0 || c < 0x20 || c == 0x7f || is_c1) {
            std::snprintf(escape, sizeof escape, "\\u%04x", is_c1 ? (uint8_t)bytes[1] : c);
            out += escape;
        } else out.append(bytes.data(), n);
        bytes.remove_prefix(n ? n : 1);
    }
    return out + "\"";
}

// Returns the text of a JSON string; "" for what is none. Half of a surrogate pair becomes U+FFFD.
inline std::string json_text(std::string_view json) {
    std::string out;
    if (json.size() < 2 || json.front() != '"' || json.back() != '"') return out;
    json = json.substr(1, json.size() - 2);
    auto unit_at = [&](size_t i) {
        uint32_t unit = 0;
        if (i + 6 > json.size() || json[i] != '\\' || json[i + 1] != 'u') return UINT32_MAX;
        const char *const from = json.data() + i + 2, *const end = from + 4;
        return std::from_chars(from, end, unit, 16).ptr == end ? unit : UINT32_MAX;
    };
    for (size_t i = 0; i < json.size(); i++) {
        if (json[i] != '\\' || i + 1 == json.size()) {
            out += json[i];
            continue;
        }
        uint32_t c = unit_at(i);
        if (c == UINT32_MAX) {
            const size_t at = std::string_view("nrtbf").find(json[++i]);
            out += at == std::string_view::npos ? json[i] : "\n\r\t\b\f"[at];
            continue;
        }
        i += 5;
        const uint32_t low = c >= 0xd800 && c < 0xdc00 ? unit_at(i + 1) : 0;
        if (low >= 0xdc00 && low < 0xe000) {
            c = 0x10000 + ((c & 0x3ff) << 10 | (low & 0x3ff));
            i += 6;
        } else if (c >= 0xd800 && c < 0xe000) c = 0xfffd;
        constexpr uint8_t kFirst[] = {0, 0xc0, 0xe0, 0xf0};  // of a character with so many bytes behind the first
        int n_behind = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
        out += (char)(kFirst[n_behind] | c >> 6 * n_behind);
        while (n_behind-- > 0) out += (char)(0x80 | (c >> 6 * n_behind & 0x3f));
    }
    return out;
}

struct json_member {
    std::string name;        // "" in a list
    std::string_view value;  // as it stands in the text
};

// Returns the members of an object, or of a list; none for other values. It finds members of valid JSON and does not
// look inside them.
inline std::vector<json_member> json_members(std::string_view json) {
    std::vector<json_member> out;
    const size_t first = json.find_first_not_of(" \t\r\n");
    if (first == json.npos || (json[first] != '{' && json[first] != '[')) return out;
    json_member member;
    size_t begin = json.npos, end = 0;  // of the value
    int depth = 0;
    for (size_t i = first; i < json.size(); i++) {
        const char c = json[i];
        const size_t at = i;
        if (c == '"')
            while (++i < json.size() && json[i] != '"') i += json[i] == '\\';
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') depth--;
        const bool is_end = depth == 0 || (depth == 1 && c == ',');
        if (is_end && begin != json.npos) {
            member.value = json.substr(begin, end - begin);
            out.push_back(member);
            begin = json.npos;
        }
        if (depth == 0) break;
        if (is_end || at == first || c == ' ' || c == '\t' || c == '\r' || c == '\n') continue;
        if (depth == 1 && c == ':' && json[first] == '{') {
            member.name = begin == json.npos ? "" : json_text(json.substr(begin, end - begin));
            begin = json.npos;
            continue;
        }
        if (begin == json.npos) begin = at;
        end = std::min(i + 1, json.size());
    }
    return out;
}

// Returns the value of an object's member as it stands in the text; "" when there is none.
inline std::string_view json_find(std::string_view object, std::string_view name) {
    std::string_view found;
    for (const json_member& member : json_members(object))
        if (member.name == name) found = member.value;
    return found;
}

// models/status.h: how errors travel inside the library: a code that is returned, and a text that stays on the object.
// Knows nothing else. Used by every part; the codes are runtime.h's.
#pragma once
#include "../runtime.h"

#include <cstdarg>
#include <cstdio>
#include <string>
#include <string_view>

namespace duet {

// The last error of an object. Owned by the handle; passed down by reference.
struct error_text {
    std::string text;
};

// Stores the message (printf form) and returns the code: `return fail(err, DUET_ERR_FORMAT, "%s: ...", ...)`.
[[gnu::format(printf, 3, 4)]] inline duet_status fail(error_text& err, duet_status code, const char* format, ...) {
    char buffer[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(buffer, sizeof buffer, format, args);
    va_end(args);
    err.text = buffer;
    return code;
}

// Bytes of a file made safe to print: control characters, quotes, backslashes, characters that turn the direction of
// writing and invalid UTF-8 become \xNN; at most max_bytes bytes are kept ("..." stands for the rest).
std::string printable(std::string_view bytes, size_t max_bytes = 80);

#define DUET_TRY(call)                                                                                                 \
    do {                                                                                                               \
        if (duet_status try_status_ = (call); try_status_ != DUET_OK) return try_status_;                              \
    } while (0)

}  // namespace duet

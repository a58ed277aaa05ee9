// models/status.h: how errors travel inside the library. A function returns a code, and the text stays on the object.
// Must not know: anything else. Every part uses this file; the codes are those of runtime.h.
#pragma once
#include "../runtime.h"

#include <cstdarg>
#include <cstdio>
#include <string>
#include <string_view>

namespace duet {

// The last error of an object. The handle owns it and passes it down by reference.
struct error_text {
    std::string text;
};

#if defined(__MINGW32__)  // otherwise Microsoft's old printf, which does not know %zu
#if !__USE_MINGW_ANSI_STDIO && !defined(_UCRT)
#error "want -D__USE_MINGW_ANSI_STDIO=1"
#endif
#define DUET_PRINTF_FORM gnu_printf
#else
#define DUET_PRINTF_FORM printf
#endif

// Stores the message (printf form) and returns the code: `return fail(err, DUET_ERR_FORMAT, "%s: ...", ...)`.
[[gnu::format(DUET_PRINTF_FORM, 3, 4)]] duet_status fail(error_text& err, duet_status code, const char* format, ...);

// Makes bytes of a file safe to print. Control characters, quotes, backslashes, characters that change the writing
// direction and invalid UTF-8 become \xNN. At most max_bytes bytes are kept; "..." stands for the rest. The backslashes
// of a path stay: Windows has them between folders.
std::string printable(std::string_view bytes, size_t max_bytes = 80);
std::string printable_path(std::string_view path);  // of 300 bytes

// Says whether the list, words with one space between them, has the word.
bool has_word(std::string_view list, std::string_view word);

// Prints the arguments of a function with "..." (printf form) to the array `text`.
#define DUET_PRINT_ARGS(text, format)                                                                                  \
    va_list args_;                                                                                                     \
    va_start(args_, format);                                                                                           \
    vsnprintf(text, sizeof text, format, args_);                                                                       \
    va_end(args_)

#define DUET_TRY(call)                                                                                                 \
    do {                                                                                                               \
        if (duet_status try_status_ = (call); try_status_ != DUET_OK) return try_status_;                              \
    } while (0)

}  // namespace duet

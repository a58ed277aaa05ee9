// models/status.cpp: the text of an error. Must not know: anything else.
// Main path: models/status.h -> [models/status.cpp]
#include "status.h"

#include <algorithm>

namespace duet {

duet_status fail(error_text& err, duet_status code, const char* format, ...) {
    char buffer[1024];
    DUET_PRINT_ARGS(buffer, format);
    err.text = buffer;
    return code;
}

bool has_word(std::string_view list, std::string_view word) {
    for (size_t pos = 0, end; pos < list.size(); pos = end + 1) {
        end = std::min(list.find(' ', pos), list.size());
        if (list.substr(pos, end - pos) == word) return true;
    }
    return false;
}

}  // namespace duet

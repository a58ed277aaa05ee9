// models/status.cpp: the text of an error. Must not know: anything else.
// Main path: models/status.h -> [models/status.cpp]
#include "status.h"

#include <cstdarg>

namespace duet {

duet_status fail(error_text& err, duet_status code, const char* format, ...) {
    char buffer[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(buffer, sizeof buffer, format, args);
    va_end(args);
    err.text = buffer;
    return code;
}

}  // namespace duet

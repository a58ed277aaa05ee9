// runtime/file_handle.h: what stands behind the public duet_file: the reader and the text of its last error; and the
// guard in which public calls run. Shared by the files of runtime/ (a model hands out its file).
#pragma once
#include "../models/gguf.h"

#include <new>

struct duet_file {
    duet::gguf_file file;
    duet::error_text err;
};

namespace duet {

// Runs f, which may run out of memory: the only exception the library knows ends here. The message fits into the
// string itself.
template <class F>
duet_status guarded(error_text& err, F f) {
    try {
        return f();
    } catch (const std::bad_alloc&) {
        err.text = "out of memory";
        return DUET_ERR_MEMORY;
    }
}

}  // namespace duet

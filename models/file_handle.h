// models/file_handle.h: what stands behind the public duet_file: the reader and the text of its last error.
// Shared by runtime_file.cpp (the file API) and runtime.cpp (a model hands out its file).
#pragma once
#include "gguf.h"

struct duet_file {
    duet::gguf_file  file;
    duet::error_text err;
};

// tools/run_cache.h: the file of `run --prompt-cache`: the state of a sequence, kept from one run to the next.
// Must not know: what the sequence holds.
#pragma once
#include "common.h"

// Asks save(out, max_bytes, &n_bytes) for its size and then for its bytes.
template <class save_fn> duet_status saved_bytes(save_fn save, std::string* out) {
    uint64_t n_bytes = 0;
    const duet_status status = save(nullptr, 0, &n_bytes);
    if (status != DUET_OK && status != DUET_ERR_FULL) return status;
    out->resize(n_bytes);
    return save(out->data(), out->size(), &n_bytes);
}

// Returns whether the file may be written over: what begins with magic, an empty file, and what is no regular file.
inline bool is_saved_state(const std::string& path, std::string_view magic) {
    char begin[8];
    if (os::kind_of(path) != os::file_kind::regular) return true;
    const int fd = os::open_to_read(path);
    const int64_t n = fd < 0 ? -1 : os::read(fd, begin, magic.size());
    if (fd >= 0) os::close(fd);
    return n == 0 || (n > 0 && std::string_view(begin, (size_t)n) == magic);
}

class prompt_cache {
  public:
    prompt_cache(std::string path, duet_session* session) : path_(std::move(path)), session_(session) {}

    // Tells before the work what cannot be written after it, and another file, which would be written over.
    static duet_status check(const std::string& path, tool_error* error) {
        if (!is_saved_state(path, "DUETSEQ"))
            return error->set(DUET_ERR_FORMAT, path + ": want a saved state or a new file, found another file");
        return os::kind_of(path) == os::file_kind::special ? DUET_OK : check_output(path, {}, error);
    }
    // Puts the file's state into the session. Without a file nothing happens; a state that cannot be used is told, and
    // everything is computed anew.
    duet_status load(tool_error* error) const {
        std::string state;
        if (path_.empty() || os::kind_of(path_) == os::file_kind::none) return DUET_OK;
        if (!read_text(path_, &state, error, kMaxBytes))
            if (const duet_status bad = duet_seq_load(session_, 0, state.data(), state.size()))
                error->set(bad, path_ + ": " + duet_session_error(session_));
        if (error->status)
            std::fprintf(stderr, "run: --prompt-cache: %s; the prompt is computed anew\n", error->message.c_str());
        return error->set(DUET_OK, "");
    }
    duet_status save(tool_error* error) const {
        if (path_.empty()) return DUET_OK;
        std::string state;
        const duet_status status =
            saved_bytes([this](auto... to) { return duet_seq_save(session_, 0, to...); }, &state);
        if (status != DUET_OK) return error->set(status, duet_session_error(session_));
        return write_file(path_, state, error, true);
    }
    static constexpr size_t kMaxBytes = (size_t)1 << 40;  // states of long contexts are large; memory is the limit

  private:
    std::string path_;
    duet_session* session_;
};

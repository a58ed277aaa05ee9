// runtime/guard.cpp: see guard.h.
#include "guard.h"

#include <atomic>
#include <cstdlib>
#include <exception>
#include <new>
#include <stdexcept>
#include <system_error>

namespace duet {

// The shared library has it instead of libstdc++'s handler, which prints the exception and brings 50 KB along for that.
[[gnu::used]] void end_process() { std::abort(); }

namespace {

struct error_of_thread {
    uint64_t handle;
    char text[1024];
};
// Plain memory, neither built nor destroyed. The first is that of calls without a handle.
thread_local error_of_thread last_errors[7];

// "out of memory" and "internal error" fit into an empty std::string, and a text that does not is given up for them.
duet_status caught_with_text(error_text& err, duet_status status, const char* what) noexcept {
    const char* const kind = status == DUET_ERR_MEMORY ? "out of memory" : "internal error";
    try {
        fail(err, status, "%s: %s", kind, what);
    } catch (...) { err.text = kind; }
    return status;
}

}  // namespace

uint64_t new_handle_number() noexcept {
    static std::atomic<uint64_t> n_handles{0};
    return n_handles.fetch_add(1) + 1;
}

void keep_thread_error(uint64_t handle, const char* text) noexcept {
    error_of_thread& last = last_errors[handle ? 1 + handle % 6 : 0];
    last.handle = handle;
    snprintf(last.text, sizeof last.text, "%s", text);
}

const char* thread_error(uint64_t handle) noexcept {
    const error_of_thread& last = last_errors[handle ? 1 + handle % 6 : 0];
    return last.handle == handle && last.text[0] ? last.text : nullptr;
}

const char* thread_error() noexcept { return last_errors[0].text; }

duet_status caught(error_text& err) noexcept {
    try {
        throw;
    } catch (const std::bad_alloc&) {
        err.text = "out of memory";
        return DUET_ERR_MEMORY;
    } catch (const std::length_error& e) {  // a container of more elements than there are addresses
        return caught_with_text(err, DUET_ERR_MEMORY, e.what());
    } catch (const std::system_error& e) {  // a thread or a lock that the system does not give
        const bool is_short =
            e.code() == std::errc::resource_unavailable_try_again || e.code() == std::errc::not_enough_memory;
        return caught_with_text(err, is_short ? DUET_ERR_MEMORY : DUET_ERR_INTERNAL, e.what());
    } catch (const std::exception& e) {  // all others of the standard library
        return caught_with_text(err, DUET_ERR_INTERNAL, e.what());
    } catch (...) { return caught_with_text(err, DUET_ERR_INTERNAL, "an exception that is no std::exception"); }
}

}  // namespace duet

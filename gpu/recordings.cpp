// gpu/recordings.cpp: small batches by recordings. The launches of a shape that comes again are recorded once and then
// played by one call. Runtimes were seen to play with old data, so the first plays are computed again without the
// recording, and a difference ends recording for the model. Must not know: ops, families, vendors.
// Main path: gpu/launch.cpp -> [gpu/recordings.cpp] -> gpu/driver.h
#include "context.h"

namespace duet {
namespace {

constexpr int kUnprovenPlays = 2, kMostFailed = 2;  // failed: another thread may have broken it

void tell(const gpu_context& c, const std::string& why, const char* what = "recorded decoding") {
    const exec_place& place = c.limits.place;
    const std::string text = std::string(c.store->info.name) + ": " + what + " is off from here on: " + why;
    if (place.log) place.log(place.log_user, DUET_LOG_WARN, text.c_str());
}

// Records the batch's launches. Nothing runs meanwhile, so after a failure the batch can run without a recording.
duet_status record(gpu_context& c, gpu_recording* r, error_text& err) {
    DUET_TRY(c.driver->record_begin(c.device, err));
    duet_status launched = DUET_ERR_MEMORY;
    try {
        launched = launch_batch(c, nullptr, err);
    } catch (const std::bad_alloc&) {}  // The recording has to be ended.
    error_text unused;
    const duet_status ended = c.driver->record_end(c.device, &r->recording, launched == DUET_OK ? err : unused);
    if (launched != DUET_OK && ended == DUET_OK) c.driver->free_recording(c.device, r->recording);
    return launched != DUET_OK ? launched : ended;
}

// Changes a kernel's number to that of a walk of two formats. False: the walk does not have it.
bool enter_walk(int32_t type, int32_t second, walk_entry& e) {
    const int32_t was = e.kernel;
    e.kernel = walk_none;
#define WALKED(name, ...)                                                                                              \
    if (was == kernel_##name) e.kernel = walk_##name;
    DUET_WALKED(WALKED)
#undef WALKED
    const bool is_second = was == kernel_of(second, kMatvec);
    if (was == kernel_of(type, kEmbed)) e.kernel = walk_embed;
    else if (was == kernel_of(second, kEmbed)) e.kernel = walk_embed2;
    else if (is_second || was == kernel_of(type, kMatvec) || was == pair_kernel(type, second)) e.kernel = walk_matvec;
    if (is_second)
        for (matrix_part& p : ((matrix_args*)e.args)->part) p.is_second = 1;
    return e.kernel != walk_none;
}

duet_status launch_walk(gpu_context& c, const gpu_recording& r, size_t n, error_text& err) {
    const gpu_grid grid{(uint32_t)c.store->info.n_resident, 1, 1, kGpuThreads, r.shared_bytes, true};
    const walk_args a{c.walk_list, (uint32_t*)c.best_ints() + kBestWalk, (int32_t)n, (int32_t)grid.x};
    return c.driver->launch(c.device, r.walk, grid, &a, sizeof a, err);
}

// Makes a walk of the batch's launches, and asks the driver whether it takes one. False: there will be none.
bool make_walk(gpu_context& c, gpu_recording* r, error_text& why) {
    c.kept = r;
    const duet_status st = launch_batch(c, nullptr, why);
    c.kept = nullptr;
    if (st != DUET_OK) return false;
    const std::vector<walk_entry> all = std::move(r->list);
    auto try_walk = [&](int32_t type, int32_t second, int32_t kernel) {
        r->list = all;
        if (std::ranges::all_of(r->list, [&](walk_entry& e) { return enter_walk(type, second, e); }))
            r->walk = c.store->kernels[kernel];
    };
    why = {"one launch cannot do a token of this model with this driver"};
#define KERNEL(name, args, threads, ...)
#define KERNEL_WALK(id, W, id2, W2)                                                                                    \
    if (!r->walk && c.store->info.n_resident) try_walk(type_id::id, type_id::id2, kernel_walk_##id##_##id2);
#include "kernels.def"
    return r->walk && r->list.size() * sizeof(walk_entry) <= c.layout.walk_bytes && !launch_walk(c, *r, 0, why);
}

// Copies to the device through the batch's memory, which is filled again.
duet_status put_staged(gpu_context& c, void* to, const void* from, uint64_t n_bytes, error_text& err) {
    DUET_TRY(put_bytes(c, to, from, n_bytes, c.staging, c.layout.input_bytes(), err));
    fill_batch(c);
    c.is_running = true;  // What is launched next reads it.
    return DUET_OK;
}

duet_status play_one(gpu_context& c, const gpu_recording& r, error_text& err) {
    if (!r.walk) return c.driver->play(c.device, r.recording, err);
    if (c.walk_shape != r.shape) {
        DUET_TRY(put_staged(c, c.walk_list, r.list.data(), r.list.size() * sizeof(walk_entry), err));
        c.walk_shape = r.shape;
    }
    return launch_walk(c, r, r.list.size(), err);
}

void keep(gpu_context& c, const gpu_recording& r) {
    // A model that shares its ops with the CPU has one recording for each of its parts.
    const auto n_borders = std::ranges::count_if(c.graph.ops, &op::after_border);
    if (c.recordings.size() >= kMostRecordings * (size_t)std::max<ptrdiff_t>(1, n_borders)) {
        const auto oldest = std::ranges::min_element(c.recordings, {}, &gpu_recording::last_use);
        c.driver->free_recording(c.device, oldest->recording);
        c.recordings.erase(oldest);
    }
    c.recordings.push_back(r);
}

using device_memory = std::vector<std::span<uint8_t>>;
// Gives what a batch writes: the rows of all buffers, the states, and the cache pages, of each token the one it is
// appended to and the one of the position before, where a play with an old position would have written.
device_memory written_memory(const gpu_context& c) {
    const exec_batch& b = *c.batch;
    device_memory all;
    for (size_t i = 0; i < c.graph.buffers.size(); i++)
        all.push_back({c.rows_of(i), c.size_of_rows(i, c.n_rows({.buffer = (int32_t)i}))});
    for (int i = 0; i < b.n_tok; i++) {
        if (!c.graph.states.empty()) all.push_back(gpu_page(c, kStates, b.state_slot[b.seq[i]]));
        for (size_t g = 0; g < c.graph.groups.size(); g++)
            for (int32_t k = b.pos[i] / kAttnChunk; k >= 0 && k >= (b.pos[i] - 1) / kAttnChunk; k--)
                if (const int32_t page = (*b.pages)[g][(size_t)b.seq[i]][k]; page >= 0)
                    all.push_back(gpu_page(c, (int32_t)g, page));
    }
    return all;
}

duet_status read_memory(gpu_context& c, const device_memory& from, std::vector<uint8_t>* out, error_text& err) {
    size_t n = 0, at = 0;
    for (const std::span<uint8_t> part : from) n += part.size();
    out->resize(n);  // At once, because the pages of a batch of 16 sequences are 100 MB and more.
    for (const std::span<uint8_t> part : from) {
        DUET_TRY(c.driver->download(c.device, out->data() + at, part.data(), part.size(), err));
        at += part.size();
    }
    return DUET_OK;
}

// Plays a recording, puts the memory back, runs the batch without it (which counts), and compares all they wrote.
duet_status play_watched(gpu_context& c, gpu_recording& r, error_text& err) {
    const device_memory memory = written_memory(c);
    std::vector<uint8_t> before, played;
    DUET_TRY(read_memory(c, memory, &before, err));
    DUET_TRY(play_one(c, r, err));
    r.n_unproven--;
    DUET_TRY(read_memory(c, memory, &played, err));
    const uint8_t* from = before.data();
    for (const std::span<uint8_t> part : memory) {
        DUET_TRY(put_staged(c, part.data(), from, part.size(), err));
        from += part.size();
    }
    // A play whose nodes ran in a wrong order may have left counts.
    DUET_TRY(copy_words(c, c.counters, nullptr, c.layout.counter_count * sizeof(uint32_t), err));
    DUET_TRY(launch_batch(c, nullptr, err));
    DUET_TRY(read_memory(c, memory, &before, err));
    if (played == before) return DUET_OK;
    c.store->recording = gpu_recording_use::off;
    tell(c, "a played recording gave other bits than its launches; please report this (docs/gpu.md)");
    return DUET_OK;
}

duet_status play(gpu_context& c, gpu_recording& r, error_text& err) {
    r.last_use = ++c.n_plays;
    const int32_t n_unproven = r.n_unproven;
    const duet_status st = n_unproven > 0 ? play_watched(c, r, err) : play_one(c, r, err);
    if (st != DUET_ERR_MEMORY || r.n_unproven < n_unproven) return st;
    c.no_recording = true;  // Nothing was played. Launches want less memory.
    tell(c, err.text);
    return launch_batch(c, nullptr, err);
}

}  // namespace

duet_status run_recorded(gpu_context& c, error_text& err) {
    const gpu_recording_use use = c.store->recording;
    if (use == gpu_recording_use::off || c.no_recording) return launch_batch(c, nullptr, err);
    const batch_shape shape{c.batch->first_op, c.batch->last_op, c.batch->n_tok,
                            c.batch->n_wanted, c.n_chunks,       c.finds_best};
    for (gpu_recording& r : c.recordings)
        if (r.shape == shape) return play(c, r, err);
    // A shape that comes only once, as the end of a prompt does, is not worth a recording.
    if (c.batch->first_op == 0) c.is_again = std::exchange(c.last_shape, shape) == shape;
    if (!c.is_again) return launch_batch(c, nullptr, err);
    c.recordings.reserve(c.recordings.size() + 1);  // What is recorded is freed with them.
    gpu_recording r{.shape = shape, .n_unproven = use == gpu_recording_use::trusted ? 0 : kUnprovenPlays};
    error_text why;
    if (use == gpu_recording_use::walk && !c.no_walk && shape.n_tok == 1 && !shape.first_op && !make_walk(c, &r, why)) {
        c.no_walk = true;
        tell(c, why.text, "decoding by one launch");
        r.walk = nullptr;
    }
    if (!r.walk && record(c, &r, why) != DUET_OK) {
        if ((c.no_recording = ++c.n_failed > kMostFailed)) tell(c, why.text);
        return launch_batch(c, nullptr, err);
    }
    keep(c, r);
    return play(c, c.recordings.back(), err);
}

}  // namespace duet

// gpu/store.cpp: brings the weights to a device: file -> ring of pinned pieces -> device, where a kernel rearranges
// matrices. Threads read the next piece meanwhile. Some drivers hang on mapped pages, so none is handed to a driver.
// Owns: the open device, the weights' memory. Must not know: families, vendors.
// Main path: gpu/launch.cpp -> [gpu/store.cpp] -> gpu/driver.h, gpu/arrange.cuh
#include "store.h"
#include "args.h"
#include "executor.h"
#include "weights.h"
#include "../cpu/threads.h"
#include "../models/layout.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <numeric>

namespace duet {
namespace {

constexpr uint64_t kPieceBytes = 8 << 20;  // Copying 8 MB takes 0.2 to 1 ms, long beside the wait after it.
constexpr size_t kReadBytes = 256 << 10;   // what a thread reads at a time
constexpr int64_t kMaxTiles = 32768;       // limit of a grid's second dimension
constexpr int kMaxReaders = 4;

int64_t tiles_of(const weight& w) { return (w.n_out + kRowTile - 1) / kRowTile; }
// Rows of one matrix that fit a piece, in whole tiles.
int64_t tiles_per_piece(const weight& w) {
    return std::clamp<int64_t>((int64_t)(kPieceBytes / (w.row_bytes * kRowTile)), 1, kMaxTiles);
}

struct loader {
    gpu_store& store;
    const store_layout& layout;
    const exec_place& place;
    uint8_t* ring[kRingPieces] = {};
    uint8_t* arrived = nullptr;  // on the device: a piece that is not rearranged yet
    uint64_t done = 0;
    int turn = 0;
    thread_pool pool{};

    ~loader() {
        for (uint8_t* r : ring) store.driver->free_host(store.device, r);
        store.driver->free(store.device, arrived);
    }

    duet_status start(int32_t n_threads, error_text& err) {
        if (!pool.start(std::clamp(n_threads, 1, kMaxReaders)))
            return fail(err, DUET_ERR_MEMORY, "the system gives no threads to read weights");
        for (uint8_t*& r : ring) DUET_TRY(store.driver->alloc_host(store.device, layout.piece_bytes, (void**)&r, err));
        return store.driver->alloc(store.device, layout.piece_bytes, (void**)&arrived, err);
    }

    // Reads a piece while the one before is on its way, waits for that one, and sends the new piece.
    duet_status send(const uint8_t* from, uint64_t n_bytes, void* to, error_text& err) {
        uint8_t* pinned = ring[turn];
        turn = (turn + 1) % kRingPieces;
        pool.for_each((int)((n_bytes + kReadBytes - 1) / kReadBytes), [&](int, int i) {
            const size_t at = (size_t)i * kReadBytes;
            memcpy(pinned + at, from + at, std::min<size_t>(kReadBytes, n_bytes - at));
        });
        DUET_TRY(store.driver->sync(store.device, err));
        DUET_TRY(store.driver->upload(store.device, to, pinned, n_bytes, err));
        done += n_bytes;
        if (place.progress &&
            place.progress(place.progress_user, (float)((double)done / (double)layout.file_bytes)) != 0)
            return fail(err, DUET_ERR_CANCELLED, "loading to the device was cancelled");
        return DUET_OK;
    }

    template <class Args>
    duet_status launch(int32_t kernel, const gpu_grid& grid, const Args& args, error_text& err) {
        return store.driver->launch(store.device, store.kernels[kernel], grid, &args, sizeof args, err);
    }

    duet_status load_vector(const weight& w, uint8_t* to, error_text& err) {
        constexpr uint32_t kBlocks = 64;
        for (uint64_t at = 0; at < w.n_bytes; at += layout.piece_bytes) {
            const uint64_t n_bytes = std::min(layout.piece_bytes, w.n_bytes - at);
            DUET_TRY(send(w.data + at, n_bytes, arrived, err));
            const words_args a{(const uint32_t*)arrived, (uint32_t*)(to + at), n_bytes / 4, kBlocks, 0};
            DUET_TRY(launch(kernel_words, {kBlocks, 1, 1, kGpuThreads}, a, err));
        }
        return DUET_OK;
    }

    duet_status load_matrices(const weight& w, uint8_t* to, error_text& err) {
        const size_t tile_bytes = gpu_weight_bytes(w.type, w.n_in, kRowTile);
        const int64_t step = tiles_per_piece(w);
        for (int64_t m = 0; m < w.n_mats; m++)
            for (int64_t tile = 0; tile < tiles_of(w); tile += step) {
                const int64_t first = tile * kRowTile, n_rows = std::min(step * kRowTile, w.n_out - first);
                DUET_TRY(send(w.data + (uint64_t)(m * w.n_out + first) * w.row_bytes, (uint64_t)n_rows * w.row_bytes,
                              arrived, err));
                const arrange_args a{arrived, to + (size_t)(m * tiles_of(w) + tile) * tile_bytes, w.row_bytes,
                                     (int32_t)w.n_in, (int32_t)n_rows};
                const uint32_t groups = (uint32_t)((w.n_in + kGroup - 1) / kGroup),
                               tiles = (uint32_t)((n_rows + kRowTile - 1) / kRowTile);
                DUET_TRY(launch(kernel_of(w.type, kArrange), {(groups + 7) / 8, tiles, 1, 8 * kRowTile}, a, err));
            }
        return DUET_OK;
    }
};

}  // namespace

store_layout plan_store(const model_graph& g) {
    store_layout l;
    l.places.resize(g.weights.size());
    auto need = [&](weight_id id, int32_t layer, bool is_matrix) {
        if (id < 0 || l.places[(size_t)id].block >= 0) return;
        const weight& w = g.weights[(size_t)id];
        const size_t block = (size_t)(layer + 1);
        if (block >= l.block_bytes.size()) l.block_bytes.resize(block + 1);
        l.places[(size_t)id] = {(int32_t)block, l.block_bytes[block], is_matrix};
        l.block_bytes[block] +=
            round_up(is_matrix ? gpu_weight_bytes(w.type, w.n_in, w.n_out) * (uint64_t)w.n_mats : w.n_bytes, 256);
        l.file_bytes += w.n_bytes;
        const uint64_t most = is_matrix ? w.row_bytes * (uint64_t)std::min(w.n_out, tiles_per_piece(w) * kRowTile)
                                        : std::min(w.n_bytes, kPieceBytes);
        l.piece_bytes = std::max<uint64_t>(l.piece_bytes, round_up(most, 256));
    };
    for (const op& o : g.ops) {
        need(o.w, o.layer, has_matrix(o.kind));
        need(o.b, o.layer, false);
        need(o.w2, o.layer, false);
    }
    l.weight_bytes = std::accumulate(l.block_bytes.begin(), l.block_bytes.end(), (uint64_t)0);
    return l;
}

constexpr struct {
    int32_t type;
    const char* part;
    int32_t first_kernel;
} kTypes[] = {
#define FLOAT_TYPE(id, NAME, gguf_id, bytes)                  {gguf_id, #id, kernel_arrange_##id},
#define QUANT_TYPE(id, NAME, gguf_id, elems, bytes, max_nmse) {gguf_id, #id, kernel_arrange_##id},
#include "../quant/types.def"
};

int32_t kernel_of(int32_t type, type_kernel which) {
    for (const auto& t : kTypes)
        if (t.type == type) return t.first_kernel + which;
    return -1;
}

static duet_status find_kernels(gpu_store& s, int32_t first, int32_t n, const char* part, error_text& err) {
    constexpr const char* kNames[] = {
#define KERNEL(name, args, threads, ...) #name,
#include "kernels.def"
    };
    for (int32_t k = first; k < first + n; k++)
        if (!s.kernels[k])
            DUET_TRY(s.driver->kernel(s.device, part, kNames[k], &s.kernels[k], &s.info.tile_threads, err));
    return DUET_OK;
}

duet_status find_type_kernels(const model_graph& g, gpu_store& s, error_text& err) {
    for (const op& o : g.ops)
        for (const auto& t : kTypes) {
            if (!has_matrix(o.kind) || t.type != g.weights[(size_t)o.w].type) continue;
            DUET_TRY(find_kernels(s, t.first_kernel, is_quantized(t.type) ? kFast : kFast + 1, t.part, err));
            error_text unused;  // Without a walk recordings serve.
#define KERNEL(name, args, threads, ...)
#define KERNEL_WALK(id, W, id2, W2)                                                                                    \
    if (t.type == type_id::id && s.recording == gpu_recording_use::walk)                                               \
        (void)find_kernels(s, kernel_walk_##id##_##id2, 1, t.part, unused);
#include "kernels.def"
            for (const auto& second : kTypes)
                if (const int32_t pair = pair_kernel(t.type, second.type); pair >= 0)
                    DUET_TRY(find_kernels(s, pair, 2, t.part, err));
        }
    return DUET_OK;
}

int32_t pair_kernel(int32_t type, int32_t second) {
    const int32_t of_first = kernel_of(type, kArrange), of_second = kernel_of(second, kArrange);
#define KERNEL(name, args, threads, ...)
#define KERNEL_PAIR(id, id2)                                                                                           \
    if (of_first == kernel_arrange_##id && of_second == kernel_arrange_##id2) return kernel_matvec_##id##_##id2;
#include "kernels.def"
    return -1;
}

#if defined(DUET_NO_EMULATOR)
constinit const gpu_driver* const kDrivers[] = {&kCudaDriver, &kHipDriver};
#else
constinit const gpu_driver* const kDrivers[] = {&kCudaDriver, &kHipDriver, &kEmu32Driver, &kEmu64Driver};
#endif
constinit const std::span<const gpu_driver* const> kGpuDrivers = kDrivers;

const gpu_driver* find_driver(std::string_view id, int32_t* index) {
    const size_t colon = id.find(':');
    *index = 0;
    if (colon != std::string_view::npos) {
        const char *digits = id.data() + colon + 1, *end = id.data() + id.size();
        if (digits == end || *digits == '-' || end - digits > 3 || std::from_chars(digits, end, *index).ptr != end)
            return nullptr;
    }
    for (const gpu_driver* d : kGpuDrivers)
        if (id.substr(0, colon) == d->name) return d;
    return nullptr;
}

duet_status open_store(const exec_place& place, const char* device, std::shared_ptr<gpu_store>* out, error_text& err) {
    int32_t index = 0;
    const gpu_driver* driver = find_driver(device, &index);
    if (!driver) return fail(err, DUET_ERR_DEVICE, "device '%s': no driver", device);
    auto kept = place.store ? std::static_pointer_cast<gpu_store>(place.store->kept) : nullptr;
    if (kept && kept->driver == driver) {
        DUET_TRY(kept->check(err));
        *out = kept;
        return DUET_OK;
    }
    auto s = std::make_shared<gpu_store>();
    s->driver = driver;
    DUET_TRY(driver->open(index, &s->device, &s->info, err));
    DUET_TRY(find_kernels(*s, 0, kernel_arrange_f32, "common", err));
    // 100 ms on a chip of two units: 8.8 G instructions of 32 lanes in a second, about 1,000 of them for 4,096 products
    // (docs/gpu_internals.md). A longer launch would stop the display that the chip may serve.
    constexpr uint64_t kUnitProducts = 1'700'000'000;
    if (s->info.n_units > 0) s->launch_products = kUnitProducts * (uint64_t)s->info.n_units;
    if (gpu_setup().launch_products) s->launch_products = gpu_setup().launch_products;
    // What the caller says counts more than the environment, and that more than what is known of the driver.
    const char* asked = getenv("DUET_GPU_RECORDING");
    const int32_t use = asked && asked[0] >= '0' && asked[0] <= '2' ? asked[0] - '0' : (int32_t)s->info.recording;
    s->recording = (gpu_recording_use)(place.recording >= 0 ? place.recording : use);
    *out = s;
    return DUET_OK;
}

duet_status load_store(const model_graph& g, const std::shared_ptr<gpu_store>& s, const exec_place& place,
                       int32_t n_threads, error_text& err) {
    if (place.store && place.store->kept == s) return DUET_OK;
    const store_layout l = plan_store(g);
    for (uint64_t n_bytes : l.block_bytes) {
        s->blocks.push_back(nullptr);
        if (n_bytes == 0) continue;
        if (duet_status st = s->driver->alloc(s->device, n_bytes, &s->blocks.back(), err); st != DUET_OK) {
            err.text = "weights (" + std::to_string(l.weight_bytes >> 20) + " MB in all): " + err.text;
            return st;
        }
    }
    s->weights.assign(g.weights.size(), nullptr);
    loader load{*s, l, place};
    DUET_TRY(load.start(n_threads, err));
    std::vector<size_t> order(g.weights.size());
    std::iota(order.begin(), order.end(), (size_t)0);
    // The weights are read in the order of the file.
    std::ranges::sort(order, {}, [&](size_t i) { return g.weights[i].data; });
    for (size_t i : order) {
        const weight_place& p = l.places[i];
        if (p.block < 0) continue;
        uint8_t* to = (uint8_t*)s->blocks[(size_t)p.block] + p.offset;
        s->weights[i] = to;
        DUET_TRY(p.is_matrix ? load.load_matrices(g.weights[i], to, err) : load.load_vector(g.weights[i], to, err));
    }
    DUET_TRY(s->driver->sync(s->device, err));
    if (place.store) place.store->kept = s;
    return DUET_OK;
}

}  // namespace duet

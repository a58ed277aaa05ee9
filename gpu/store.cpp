// gpu/store.cpp: weights from the file to a device, matrices in the order of gpu/weights.h. Owns: their memory there, the way they take.
// Must not know: kernels, families, which vendor.
// Main path: gpu/launch.cpp -> [gpu/store.cpp] -> gpu/weights.cpp, gpu/driver.h
#include "store.h"
#include "weights.h"

#include <cstring>
#include <mutex>

namespace duet {
namespace {

// Matrices are rearranged (gpu/weights.h), vectors copied as they lie.
duet_status upload_weight(gpu_store& s, const weight& w, bool is_matrix, void** out, error_text& err) {
    const size_t n_bytes = is_matrix ? gpu_weight_bytes(w.type, w.n_in, w.n_out) : (size_t)w.n_bytes;
    DUET_TRY(s.driver->alloc(s.device, n_bytes, out, err));
    const int64_t n_pieces = is_matrix ? (w.n_out + kRowTile - 1) / kRowTile : 1;
    const size_t piece_bytes = n_bytes / (size_t)n_pieces;
    void* staging = nullptr;
    DUET_TRY(s.driver->alloc_host(s.device, piece_bytes, &staging, err));
    duet_status st = DUET_OK;
    for (int64_t i = 0; i < n_pieces && st == DUET_OK; i++) {
        if (is_matrix) gpu_arrange_tile(w.type, w.data, w.row_bytes, w.n_in, w.n_out, i, (uint8_t*)staging);
        else memcpy(staging, w.data, n_bytes);
        st = s.driver->upload(s.device, (uint8_t*)*out + (size_t)i * piece_bytes, staging, piece_bytes, err);
        if (st == DUET_OK) st = s.driver->sync(s.device, err);
    }
    s.driver->free_host(s.device, staging);
    return st;
}

std::mutex gpu_store_lock;   // guards the making of a graph's store

}  // namespace

duet_status get_store(const model_graph& g, const gpu_driver* driver, int32_t index, std::shared_ptr<gpu_store>* out, error_text& err) {
    const std::lock_guard<std::mutex> lock(gpu_store_lock);
    if (auto kept = std::static_pointer_cast<gpu_store>(g.device_store.lock()); kept && kept->driver == driver) {
        *out = kept;
        return DUET_OK;
    }
    auto s = std::make_shared<gpu_store>();
    s->driver = driver;
    DUET_TRY(driver->open(index, &s->device, &s->info, err));
    s->weights.assign(g.weights.size(), nullptr);
    auto need = [&](weight_id w, bool is_matrix) -> duet_status {
        if (w < 0 || s->weights[(size_t)w]) return DUET_OK;
        return upload_weight(*s, g.weights[(size_t)w], is_matrix, &s->weights[(size_t)w], err);
    };
    for (const op& o : g.ops) {
        DUET_TRY(need(o.w, o.kind == op_kind::embed || o.kind == op_kind::matmul));
        DUET_TRY(need(o.b, false));
    }
    g.device_store = s;
    *out = s;
    return DUET_OK;
}

}  // namespace duet

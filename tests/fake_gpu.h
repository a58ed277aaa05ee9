// tests/fake_gpu.h: the shared half of the stand-ins for libcuda.so.1 and libamdhip64.so.6. It is a driver that runs
// the kernels on the emulator that the test hands in, does queued work only when it is waited for, counts live objects,
// notes misuse, and fails any chosen call. The test reads and sets fake_control, which each stand-in returns from
// fake_control_of().
#pragma once
#include "../gpu/args.h"
#include "../gpu/driver.h"

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

struct fake_control {
    // The test sets these.
    const duet::gpu_driver* backend = nullptr;  // emulator that runs kernels
    int64_t fail_at = 0, lost_at = 0;           // this call fails with fail_code; from this one on all fail (0: none)
    int fail_code = 0, fail_times = 1;
    const char* fail_call = nullptr;  // the first call whose name has this in it fails with fail_code; launches: while
                                      // they are recorded
    bool others_capture = false;      // another thread captures: who has not relaxed his mode may not allocate or wait
    bool no_room = false;             // a launch that is recorded throws, as where the process's memory runs out
    bool stale = false;               // copies to the device are seen only after the graph that is launched behind them
    int skip_node = 0;                // played graphs leave out this node: 1 is the first, -1 the last
    int cut_node = 0;                 // played graphs run this node without its last block: 1 is the first
    int n_devices = 1, version = 0, integrated = 0;  // integrated: one bit per device
    char chip[4][32] = {};                           // "sm_90"
    uint64_t memory_bytes = 1ull << 30;              // of each device; an allocation above it fails
    const char* missing_kernel = nullptr;
    int fail_walk = 0;
    // The stand-in sets these.
    int64_t n_calls = 0, n_played = 0, n_launches = 0, n_early = 0, n_pinned = 0;  // n_early: of n_launches
    int64_t n_walks = 0;  // cooperative launches, of which fail_walk counts down to the one that fails
    int n_live = 0, n_opened = 0, n_modules = 0;  // n_live: objects; the others: contexts or streams, modules ever made
    char failed_call[64] = {}, misuse[256] = {};
};

#if defined(DUET_FAKE_GPU)

#ifdef _WIN32
#define FAKE_EXPORT extern "C" __declspec(dllexport)
#else
#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace fake {

enum code {
    kGood = 0,
    kInvalid = 1,
    kNoMemory = 2,
    kNoDevice = 100,
    kNoContext = 201,
    kNotFound = 500,
    kLost = 719,
    kCapturing = 900,
    kSpoilt = 901
};
enum class kind { memory, host, stream, module, function, graph, exec, context };

using work = std::function<int()>;
struct object {
    kind what;
    int device;
    uint64_t n_bytes;
};
struct stream {
    std::vector<work> queued, captured, late;                       // late: copies that a graph does not see
    bool is_capturing = false, is_spoilt = false, is_dead = false;  // dead: after a capture that failed, as HIP's
};
struct function {
    const char* name;
    void* kernel;
    size_t args_bytes;
    unsigned shared_bytes;  // allowed
    bool is_text;           // of a module of intermediate code
};

inline fake_control control;
inline std::map<const void*, object> live;
inline std::vector<int> context;  // devices, the current one last
inline std::vector<std::unique_ptr<function>> functions;
inline int sticky = 0, capture_mode = 0;
inline void* emulated = nullptr;  // the backend's device; lives until fake_reset

struct kernel_row {
    const char* name;
    size_t args_bytes;
};
inline const kernel_row kKernels[] = {
#define KERNEL(name, args, threads, ...) {#name, sizeof(duet::args)},
#include "../gpu/kernels.def"
};

inline int misuse(const char* call, const char* what) {
    if (!control.misuse[0]) snprintf(control.misuse, sizeof control.misuse, "%s: %s", call, what);
    return kInvalid;
}

inline bool is_capturing();
// Counts the call. Returns the code to fail with, if this call was chosen to fail.
inline int begin(const char* call) {
    const int64_t n = ++control.n_calls;
    if (control.lost_at && n >= control.lost_at) return sticky = kLost;
    const bool is_named =
        control.fail_call && strstr(call, control.fail_call) && (is_capturing() || !strstr(call, "LaunchKernel"));
    if (is_named && --control.fail_times == 0) control.fail_call = nullptr;
    if (n != control.fail_at && !is_named) return sticky;
    snprintf(control.failed_call, sizeof control.failed_call, "%s", call);
    return control.fail_code;
}
#define FAKE_BEGIN(call)                                                                                               \
    if (const int chosen = fake::begin(call)) return chosen
inline int current(const char* call) { return context.empty() ? -misuse(call, "no current device") : context.back(); }
#define FAKE_CURRENT(call)                                                                                             \
    const int device = fake::current(call);                                                                            \
    if (device < 0) return kNoContext

inline void* add(kind what, int device, uint64_t n_bytes, void* at) {
    live[at] = {what, device, n_bytes};
    control.n_live++;
    return at;
}
inline object* find(const void* at, kind what) {
    auto it = live.find(at);
    return it != live.end() && it->second.what == what ? &it->second : nullptr;
}
inline bool remove(const char* call, void* at, kind what) {
    if (!find(at, what)) return misuse(call, "not a live object"), false;
    live.erase(at);
    control.n_live--;
    return true;
}
inline bool inside(const void* at, uint64_t n_bytes, kind what) {
    auto it = live.upper_bound(at);
    if (it == live.begin()) return false;
    --it;
    return it->second.what == what && (const uint8_t*)at + n_bytes <= (const uint8_t*)it->first + it->second.n_bytes;
}

// ---- calls with the same meaning in both; `call` is the entry point's name ----

inline int run_queue(stream& s) {
    std::vector<work> queued;
    queued.swap(s.queued);
    for (work& l : s.late) queued.push_back(std::move(l));
    s.late.clear();
    for (work& w : queued)
        if (const int code = w()) return sticky = code;
    return kGood;
}
inline int run_all() {
    int code = kGood;
    for (auto& [at, o] : live)
        if (o.what == kind::stream && !code) code = run_queue(*(stream*)at);
    return code;
}
inline int enqueue(const char* call, void* at, work w) {
    stream* s = find(at, kind::stream) ? (stream*)at : nullptr;
    if (!s) return misuse(call, "not a stream");
    if (s->is_dead) return kSpoilt;
    for (work& l : s->late) s->queued.push_back(std::move(l));
    s->late.clear();
    (s->is_capturing ? s->captured : s->queued).push_back(std::move(w));
    return kGood;
}
inline bool is_capturing() {
    for (auto& [at, o] : live)
        if (o.what == kind::stream && ((stream*)at)->is_capturing) return true;
    return false;
}

inline int init(const char* call, unsigned flags) {
    FAKE_BEGIN(call);
    return control.n_devices == 0 ? kNoDevice : flags ? kInvalid : kGood;
}
inline int version(const char* call, int* out) {
    FAKE_BEGIN(call);
    *out = control.version;
    return kGood;
}
inline int count(const char* call, int* n) {
    FAKE_BEGIN(call);
    *n = control.n_devices;
    return kGood;
}
inline int device(const char* call, int* out, int index) {
    FAKE_BEGIN(call);
    *out = index;
    return index < 0 || index >= control.n_devices ? 101 : kGood;
}
inline int device_name(const char* call, char* out, int n, int index) {
    FAKE_BEGIN(call);
    snprintf(out, (size_t)n, "Stand-in %d", index);
    return kGood;
}
inline int device_memory(const char* call, size_t* out, int) {
    FAKE_BEGIN(call);
    *out = control.memory_bytes;
    return kGood;
}
inline uint64_t bytes_in_use(int device) {
    uint64_t n = 0;
    for (auto& [at, o] : live) n += o.what == kind::memory && o.device == device ? o.n_bytes : 0;
    return n;
}
inline int memory_info(const char* call, size_t* n_free, size_t* n_all) {
    FAKE_BEGIN(call);
    FAKE_CURRENT(call);
    *n_all = control.memory_bytes;
    *n_free = control.memory_bytes - bytes_in_use(device);
    return kGood;
}
inline int allocate(const char* call, kind what, void** out, size_t n_bytes) {
    FAKE_BEGIN(call);
    FAKE_CURRENT(call);
    for (auto& [at, o] : live)
        if (o.what == kind::stream && ((stream*)at)->is_capturing) return ((stream*)at)->is_spoilt = true, kCapturing;
    if (control.others_capture && capture_mode != 2) return kCapturing;
    if (n_bytes == 0) return kInvalid;
    if (what == kind::memory && bytes_in_use(device) + n_bytes > control.memory_bytes) return kNoMemory;
    void* p = ::operator new(n_bytes, std::align_val_t{256});
    memset(p, 0xa5, n_bytes);  // nothing may rest on zeros
    *out = add(what, device, n_bytes, p);
    control.n_pinned += what == kind::host;
    return kGood;
}
inline int exchange_mode(const char* call, int* mode) {
    FAKE_BEGIN(call);
    std::swap(*mode, capture_mode);
    return kGood;
}
inline int release(const char* call, kind what, void* at) {
    if (control.others_capture && capture_mode != 2) misuse(call, "disturbs a capture");
    const int chosen = begin(call);  // what is given back is given back, whatever it returns
    if (!chosen) run_all();
    if (remove(call, at, what)) ::operator delete(at, std::align_val_t{256});
    return chosen;
}
inline int transfer(const char* call, void* to, const void* from, size_t n_bytes, void* s, bool to_device,
                    bool from_device) {
    FAKE_BEGIN(call);
    FAKE_CURRENT(call);
    const work copy = [=]() -> int {
        if (to_device && !inside(to, n_bytes, kind::memory)) return misuse(call, "writes outside of device memory");
        if (from_device && !inside(from, n_bytes, kind::memory)) return misuse(call, "reads outside of device memory");
        if (!from_device && !inside(from, n_bytes, kind::host))
            return misuse(call, "uploads memory that is not pinned");
        memmove(to, from, n_bytes);
        return kGood;
    };
    if (is_capturing()) return misuse(call, "a copy in a recording");
    if (!control.stale || !find(s, kind::stream) || !to_device) return enqueue(call, s, copy);
    ((stream*)s)->late.push_back(copy);
    return kGood;
}
inline int fill(const char* call, void* at, unsigned char value, size_t n_bytes, void* s) {
    FAKE_BEGIN(call);
    FAKE_CURRENT(call);
    if (is_capturing()) return misuse(call, "clears in a recording");
    return enqueue(call, s, [=]() -> int {
        if (!inside(at, n_bytes, kind::memory)) return misuse(call, "clears outside of device memory");
        memset(at, value, n_bytes);
        return kGood;
    });
}
inline int stream_create(const char* call, void** out, unsigned) {
    FAKE_BEGIN(call);
    FAKE_CURRENT(call);
    *out = add(kind::stream, device, 0, new stream);
    control.n_opened++;
    return kGood;
}
inline int stream_destroy(const char* call, void* s) {
    const int chosen = begin(call);
    if (remove(call, s, kind::stream)) delete (stream*)s;
    return chosen;
}
inline int stream_sync(const char* call, void* s) {
    FAKE_BEGIN(call);
    FAKE_CURRENT(call);
    if (!find(s, kind::stream)) return misuse(call, "not a stream");
    if (((stream*)s)->is_dead) return kSpoilt;
    if (control.others_capture && capture_mode != 2) return misuse(call, "disturbs a capture");
    if (((stream*)s)->is_capturing) return ((stream*)s)->is_spoilt = true, kCapturing;
    return run_queue(*(stream*)s);
}
inline int module_load(const char* call, void** out, const void* image) {
    FAKE_BEGIN(call);
    FAKE_CURRENT(call);
    // "code of sm_90" has all kernels and runs there; "text of q4_K", on any chip, has those of one format
    const std::string text((const char*)image);
    const bool is_text = text.compare(0, 8, "text of ") == 0;
    if (!is_text && text != std::string("code of ") + control.chip[device]) return 209;  // no binary for this chip
    *out = add(kind::module, device, 0, new std::string(is_text ? text.substr(8) : ""));
    control.n_modules++;
    return kGood;
}
inline int module_unload(const char* call, void* m) {
    const int chosen = begin(call);
    if (remove(call, m, kind::module)) delete (std::string*)m;
    return chosen;
}
inline int get_function(const char* call, void** out, void* m, const char* name) {
    FAKE_BEGIN(call);
    if (!find(m, kind::module)) return misuse(call, "not a module");
    duet::error_text err;
    void* kernel = nullptr;
    int32_t tile = 0;
    const std::string part = *(const std::string*)m, entry = name;
    if (part == "common" ? entry.find("_q4_") != entry.npos : !part.empty() && entry.find("_" + part) == entry.npos)
        return kNotFound;
    for (const kernel_row& row : kKernels)
        if (!strcmp(row.name, name) && (!control.missing_kernel || strcmp(name, control.missing_kernel) != 0) &&
            control.backend && control.backend->kernel(nullptr, "common", name, &kernel, &tile, err) == DUET_OK) {
            functions.push_back(
                std::make_unique<function>(function{row.name, kernel, row.args_bytes, 48 << 10, !part.empty()}));
            *out = functions.back().get();
            return kGood;
        }
    return kNotFound;
}
inline bool cuts = false;  // a launch lacks its last block
// The matmuls of quantized weights, whose blocks have fewer threads on some chips.
inline bool is_tile_matmul(const char* kernel) {
    if (strncmp(kernel, "kernel_matmul_", 14) != 0) return false;
    for (const char* floats : {"f32", "f16", "bf16"})
        if (!strcmp(kernel + 14, floats)) return false;
    return true;
}
// NVIDIA's code for sm_80 and newer has 128. "text" stands for that of compute_75. All devices agree in this.
inline unsigned tile_threads_of(const function& f) {
    return !f.is_text && !strncmp(control.chip[0], "sm_", 3) && atoi(control.chip[0] + 3) >= 80 ? 128 : 256;
}
inline int launch(const char* call, void* f, const duet::gpu_grid& grid, void* s, void** args) {
    FAKE_BEGIN(call);
    FAKE_CURRENT(call);
    if (control.no_room && is_capturing()) throw std::bad_alloc();
    const function fn = *(function*)f;
    if (!grid.x || !grid.y || !grid.z || grid.y > 65535 || grid.z > 65535 || !grid.threads || grid.threads > 1024 ||
        grid.shared_bytes > fn.shared_bytes)
        return kInvalid;
    if (is_tile_matmul(fn.name) && grid.threads != tile_threads_of(fn)) return misuse(call, "threads of a matmul");
    control.n_launches++;
    std::vector<uint8_t> bytes((const uint8_t*)args[0], (const uint8_t*)args[0] + fn.args_bytes);
    return enqueue(call, s, [=]() -> int {
        duet::error_text err;
        duet::gpu_info info;
        if (!emulated && control.backend->open(0, &emulated, &info, err) != DUET_OK) return kLost;
        duet::gpu_grid run = grid;
        if (is_tile_matmul(fn.name)) run.threads = 256;  // as the emulator's code wants, whatever the chip's does
        if (cuts && run.x > 1) run.x--;
        const duet_status st = control.backend->launch(emulated, fn.kernel, run, bytes.data(), bytes.size(), err);
        return st == DUET_OK ? kGood : (misuse(fn.name, err.text.c_str()), kLost);
    });
}
// A cooperative launch of a walk. The emulator runs one block after another, so a block walks alone.
inline int launch_walk(const char* call, void* f, const duet::gpu_grid& grid, void* s, void** args) {
    duet::walk_args a = *(const duet::walk_args*)args[0];
    if (is_capturing()) return misuse(call, "waits for blocks in a recording");
    if (a.n_blocks < 2 || grid.x != (unsigned)a.n_blocks || grid.y != 1 || grid.z != 1 || !control.n_launches)
        return misuse(call, "a grid that is not the walk's");
    control.n_walks++;
    if (control.fail_walk && --control.fail_walk == 0) return control.fail_code;
    a.n_blocks = 1;
    void* alone[] = {&a};
    return launch(call, f, {1, 1, 1, grid.threads, grid.shared_bytes, true}, s, alone);
}
inline int capture_begin(const char* call, void* s, int mode) {
    FAKE_BEGIN(call);
    FAKE_CURRENT(call);
    if (!find(s, kind::stream) || mode != 1 || ((stream*)s)->is_capturing) return misuse(call, "wrong stream or mode");
    ((stream*)s)->is_capturing = true;
    ((stream*)s)->is_spoilt = false;
    return kGood;
}
inline int capture_end(const char* call, void* s, void** graph) {
    const int chosen = begin(call);
    if (!find(s, kind::stream) || !((stream*)s)->is_capturing) return misuse(call, "no capture");
    auto& captured = ((stream*)s)->captured;
    ((stream*)s)->is_capturing = false;
    std::vector<work> taken;
    taken.swap(captured);
    ((stream*)s)->is_dead = chosen || ((stream*)s)->is_spoilt;
    if (((stream*)s)->is_dead) return chosen ? chosen : kSpoilt;
    *graph = add(kind::graph, 0, 0, new std::vector<work>(std::move(taken)));
    return kGood;
}
inline int instantiate(const char* call, void** exec, void* graph, unsigned long long) {
    FAKE_BEGIN(call);
    if (!find(graph, kind::graph)) return misuse(call, "not a graph");
    *exec = add(kind::exec, 0, 0, new std::vector<work>(*(std::vector<work>*)graph));
    return kGood;
}
inline int destroy_works(const char* call, void* at, kind what) {
    const int chosen = begin(call);
    if (remove(call, at, what)) delete (std::vector<work>*)at;
    return chosen;
}
inline int graph_launch(const char* call, void* exec, void* s) {
    FAKE_BEGIN(call);
    FAKE_CURRENT(call);
    if (!find(exec, kind::exec)) return misuse(call, "not an executable graph");
    control.n_played++;
    const std::vector<work>& nodes = *(std::vector<work>*)exec;
    const int n = (int)nodes.size(), skipped = control.skip_node < 0 ? n + control.skip_node : control.skip_node - 1;
    std::vector<work> late;
    late.swap(((stream*)s)->late);
    for (int i = 0; i < n; i++) {
        work w = nodes[(size_t)i];
        if (i == control.cut_node - 1)
            w = [whole = w] {
                cuts = true;
                const int code = whole();
                cuts = false;
                return code;
            };
        if (const int code = i == skipped ? 0 : enqueue(call, s, w)) return code;
    }
    late.swap(((stream*)s)->late);
    return kGood;
}

}  // namespace fake

FAKE_EXPORT fake_control* fake_control_of() { return &fake::control; }
// Resets the errors, as a new process would.
FAKE_EXPORT void fake_reset(bool is_last) {
    fake::sticky = fake::capture_mode = 0, fake::context.clear(), fake::functions.clear();
    if (is_last && fake::emulated) fake::control.backend->close(fake::emulated), fake::emulated = nullptr;
}

// These entry points pass their arguments on unchanged.
#define FAKE_CALL(name, member, arguments, ...)                                                                        \
    FAKE_EXPORT int name arguments { return fake::member(#name __VA_OPT__(, ) __VA_ARGS__); }

#endif

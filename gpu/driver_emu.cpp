// gpu/driver_emu.cpp: the SIMT emulator. It runs the kernels on the CPU, with a fiber per thread.
// Owns: fibers, barriers and exchanges that wait for a block or a segment, range and race checks of shared memory. A
// barrier that not all threads reach, an index out of range, or a race ends the launch with an error that names kernel
// and line. Must not know: ops, formats. DUET_NO_EMULATOR leaves it out of applications, which do not need it.
// Main path: gpu/launch.cpp -> gpu/driver.h -> [gpu/driver_emu.cpp] -> gpu/kernels.def
#if !defined(DUET_NO_EMULATOR)
#include "driver.h"
#include "kernels.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define DUET_EMU_ASAN 1
#elif defined(__has_feature)
#define DUET_EMU_ASAN __has_feature(address_sanitizer)
#endif
#if DUET_EMU_ASAN
#include <sanitizer/common_interface_defs.h>
constexpr size_t kEmuStack = 256 << 10;
#else
constexpr size_t kEmuStack = 64 << 10;
#endif

// Pushes the callee-saved registers on the old stack, stores its pointer in *from, and pops them from the stack `to`.
extern "C" void duet_emu_switch(void** from, void* to) __asm__("duet_emu_switch");
#if defined(__x86_64__) && defined(_WIN32)
// There rdi, rsi and xmm6 to xmm15 are the callee's too, the thread's block holds the bounds of its stack (gs:8 and
// gs:16), and a function may write 32 bytes above its return address.
__asm__(".text\n duet_emu_switch:\n push %rbp\n push %rbx\n push %rdi\n push %rsi\n push %r12\n push %r13\n push %r14\n"
        "push %r15\n pushq %gs:8\n pushq %gs:16\n sub $160, %rsp\n"
        "movups %xmm6, (%rsp)\n movups %xmm7, 16(%rsp)\n movups %xmm8, 32(%rsp)\n movups %xmm9, 48(%rsp)\n"
        "movups %xmm10, 64(%rsp)\n movups %xmm11, 80(%rsp)\n movups %xmm12, 96(%rsp)\n movups %xmm13, 112(%rsp)\n"
        "movups %xmm14, 128(%rsp)\n movups %xmm15, 144(%rsp)\n mov %rsp, (%rcx)\n mov %rdx, %rsp\n"
        "movups (%rsp), %xmm6\n movups 16(%rsp), %xmm7\n movups 32(%rsp), %xmm8\n movups 48(%rsp), %xmm9\n"
        "movups 64(%rsp), %xmm10\n movups 80(%rsp), %xmm11\n movups 96(%rsp), %xmm12\n movups 112(%rsp), %xmm13\n"
        "movups 128(%rsp), %xmm14\n movups 144(%rsp), %xmm15\n add $160, %rsp\n popq %gs:16\n popq %gs:8\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rsi\n pop %rdi\n pop %rbx\n pop %rbp\n ret\n");
constexpr int kEmuFibers = 1, kEmuFrameWords = 36, kEmuEntryWord = 30, kEmuBoundsWord = 20;
#elif defined(__x86_64__)
__asm__(".text\n duet_emu_switch:\n push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n mov %rsp, "
        "(%rdi)\n mov %rsi, %rsp\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");
constexpr int kEmuFibers = 1, kEmuFrameWords = 8, kEmuEntryWord = 6, kEmuBoundsWord = 0;  // where ret looks
#elif defined(__aarch64__)
__asm__(".text\n .align 4\n duet_emu_switch:\n sub sp, sp, #160\n"
        "stp x19, x20, [sp, #0]\n stp x21, x22, [sp, #16]\n stp x23, x24, [sp, #32]\n stp x25, x26, [sp, #48]\n"
        "stp x27, x28, [sp, #64]\n stp x29, x30, [sp, #80]\n stp d8, d9, [sp, #96]\n stp d10, d11, [sp, #112]\n"
        "stp d12, d13, [sp, #128]\n stp d14, d15, [sp, #144]\n mov x9, sp\n str x9, [x0]\n mov sp, x1\n"
        "ldp x19, x20, [sp, #0]\n ldp x21, x22, [sp, #16]\n ldp x23, x24, [sp, #32]\n ldp x25, x26, [sp, #48]\n"
        "ldp x27, x28, [sp, #64]\n ldp x29, x30, [sp, #80]\n ldp d8, d9, [sp, #96]\n ldp d10, d11, [sp, #112]\n"
        "ldp d12, d13, [sp, #128]\n ldp d14, d15, [sp, #144]\n add sp, sp, #160\n ret\n");
constexpr int kEmuFibers = 1, kEmuFrameWords = 20, kEmuEntryWord = 11, kEmuBoundsWord = 0;  // x30
#else
void duet_emu_switch(void**, void*) {}
constexpr int kEmuFibers = 0, kEmuFrameWords = 1, kEmuEntryWord = 0, kEmuBoundsWord = 0;  // no emulated devices
#endif

namespace duet {

thread_local constinit const emu_place* emu_self = nullptr;

namespace {

constexpr int kEmuMaxThreads = 1024;
constexpr size_t kEmuSharedBytes = 48 << 10;  // what CUDA gives without being asked
constexpr std::align_val_t kEmuAlign{256};

enum class emu_wait : uint8_t { none, segment, block, done };

struct emu_stack {
    void* pointer = nullptr;
    void* fake = nullptr;  // used by the address sanitizer
    const void* bottom = nullptr;
    size_t size = 0;
};

struct emu_fiber {
    emu_place place;
    emu_wait wait = emu_wait::none;
    int line = 0;
    uint32_t value[2] = {};  // of exchanges, in turn: the next one may come before the last one's readers
    int turn = 0;
    std::unique_ptr<uint8_t[]> memory{new uint8_t[kEmuStack]};  // of the stack
    emu_stack stack{nullptr, nullptr, memory.get(), kEmuStack};
};

// The threads that touched a word of shared memory since the last barrier.
struct emu_mark {
    uint32_t epoch = 0;
    int16_t writer = -1, reader = -1;  // -1: none; reader -2: several
};

struct emu_machine {
    std::vector<emu_fiber> fibers;
    std::vector<uint8_t> shared;
    std::vector<emu_mark> marks;
    std::vector<int> order;
    uint32_t epoch = 1, seed = 0;
    size_t shared_bytes = 0;
    int n_threads = 0;
    emu_fiber* current = nullptr;
    emu_stack scheduler;
    void (*body)(const void*) = nullptr;
    const void* args = nullptr;
    bool failed = false;
    char message[200] = {};
};

thread_local emu_machine* emu_now = nullptr;  // the launch that runs in this host thread
thread_local struct {
    emu_watch_fn tell = nullptr;
    void* user = nullptr;
} emu_watcher;
thread_local bool emu_is_dry = false;
thread_local int32_t emu_units = 4, emu_vec_blocks = 2;  // so that tests have both: tiles that blocks share, and others
thread_local uint32_t emu_thread_seed = 0;

// What all devices have allocated, and the limits that tests set.
struct emu_memory_state {
    std::mutex lock;
    emu_usage usage;
    std::map<const uint8_t*, uint64_t, std::greater<>> pinned;  // what is allocated, the last first, with its size
    uint64_t limit = 0;
    int64_t fail_at = 0;
} emu_mem;

void* emu_first_frame(const emu_stack& stack, void (*entry)()) {
    uintptr_t* top = (uintptr_t*)(((uintptr_t)stack.bottom + stack.size) & ~(uintptr_t)15) - kEmuFrameWords;
    memset(top, 0, kEmuFrameWords * sizeof *top);
    top[kEmuEntryWord] = (uintptr_t)entry;
    if constexpr (kEmuBoundsWord > 0) {
        top[kEmuBoundsWord] = (uintptr_t)stack.bottom;
        top[kEmuBoundsWord + 1] = (uintptr_t)stack.bottom + stack.size;
    }
    return top;
}

void emu_swap(emu_stack& from, const emu_stack& to, [[maybe_unused]] bool for_ever = false) {
#if DUET_EMU_ASAN
    __sanitizer_start_switch_fiber(for_ever ? nullptr : &from.fake, to.bottom, to.size);
#endif
    duet_emu_switch(&from.pointer, to.pointer);
#if DUET_EMU_ASAN
    __sanitizer_finish_switch_fiber(from.fake, nullptr, nullptr);
#endif
}

void emu_fiber_main() {
    emu_machine& m = *emu_now;
#if DUET_EMU_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &m.scheduler.bottom, &m.scheduler.size);
#endif
    m.body(m.args);
    m.current->wait = emu_wait::done;
    emu_swap(m.current->stack, m.scheduler, true);
    __builtin_trap();
}

void emu_wait_for(emu_wait kind, int line) {
    emu_machine& m = *emu_now;
    m.current->wait = kind, m.current->line = line;
    emu_swap(m.current->stack, m.scheduler);
}

void emu_fail(emu_machine& m, const char* what, long index, long n, int line) {
    if (m.failed) return;
    m.failed = true;
    const emu_place& p = m.current->place;
    snprintf(m.message, sizeof m.message, "%s %ld (of %ld), line %d, thread %d of block (%d, %d, %d)", what, index, n,
             line, p.tid, p.bx, p.by, p.bz);
}

// Lets the fibers go on if all of them wait for the same.
bool emu_release(std::span<emu_fiber> fibers, emu_wait kind) {
    if (!std::ranges::all_of(fibers, [&](const emu_fiber& f) { return f.wait == kind; })) return false;
    for (emu_fiber& f : fibers) f.wait = emu_wait::none;
    return true;
}

void emu_fail_stuck(emu_machine& m, std::span<emu_fiber> block) {
    m.current = &*std::ranges::find_if(block, [](const emu_fiber& f) { return f.wait != emu_wait::done; });
    const char* what = m.current->wait == emu_wait::block ? "a barrier that not all threads reach, threads there:"
                                                          : "an exchange that not all lanes make, at barriers:";
    const auto n = std::ranges::count(block, emu_wait::block, &emu_fiber::wait);
    emu_fail(m, what, n, m.n_threads, m.current->line);
}

void emu_run_block(emu_machine& m, int bx, int by, int bz, int width) {
    const std::span block(m.fibers.data(), (size_t)m.n_threads);
    for (int i = 0; i < m.n_threads; i++) {
        emu_fiber& f = block[(size_t)i];
        f.place = {i, m.n_threads, bx, by, bz, width};
        f.wait = emu_wait::none, f.turn = 0;
        f.stack.pointer = emu_first_frame(f.stack, emu_fiber_main);
    }
    memset(m.shared.data(), 0x7f, m.shared_bytes);  // Large numbers show a read that comes before the write.
    m.epoch++;
    while (!m.failed) {
        for (const int segment : m.order) {
            const int lo = segment * kSegment, hi = std::min(lo + kSegment, m.n_threads);
            do {
                for (int i = 0; i < hi - lo && !m.failed; i++) {
                    // Threads run forward, or backward if the seed says so.
                    emu_fiber& f = block[(size_t)(m.seed % 2 ? hi - 1 - i : lo + i)];
                    if (f.wait != emu_wait::none) continue;
                    m.current = &f;
                    emu_self = &f.place;
                    emu_swap(m.scheduler, f.stack);
                }
            } while (!m.failed && emu_release(block.subspan((size_t)lo, (size_t)(hi - lo)), emu_wait::segment));
        }
        if (m.failed || emu_release(block, emu_wait::done)) return;
        if (emu_release(block, emu_wait::block)) m.epoch++;
        else emu_fail_stuck(m, block);
    }
}

struct emu_kernel {
    const char* name;
    void (*body)(const void*);
    size_t args_bytes;
    int max_threads;
};

const emu_kernel kEmuKernels[] = {
#define KERNEL(name, args, threads, ...)                                                                               \
    {#name, [](const void* a) { __VA_ARGS__(*(const args*)a); }, sizeof(args), (threads) % 1024},
#include "kernels.def"
};

using emu_recording = std::vector<std::function<duet_status(error_text&)>>;

struct emu_device {
    int width = 32;
    emu_machine machine;
    std::unique_ptr<emu_recording> recording;
};

void emu_tell(const char* what, const void* at, const void* data, uint64_t n_bytes, const char* kernel = nullptr,
              const gpu_grid& grid = {}) {
    if (emu_watcher.tell) emu_watcher.tell(emu_watcher.user, {what, at, data, n_bytes, kernel, grid});
}

// Tells the bytes of pinned memory that a launch can read, because the computer writes there without a call.
void emu_tell_pinned(const void* args, size_t n_bytes) {
    for (size_t i = 0; emu_watcher.tell && i + 8 <= n_bytes; i += 8) {
        const uint8_t* at = nullptr;
        memcpy(&at, (const uint8_t*)args + i, 8);
        const std::lock_guard<std::mutex> lock(emu_mem.lock);
        const auto p = emu_mem.pinned.lower_bound(at);
        if (p != emu_mem.pinned.end() && at < p->first + p->second) emu_tell("upload", p->first, p->first, p->second);
    }
}

void emu_make_room(emu_machine& m, int n_threads) {
    m.shared.resize(kEmuSharedBytes);
    m.marks.resize(kEmuSharedBytes / 4);
    if ((int)m.fibers.size() < n_threads) m.fibers.resize((size_t)n_threads);
    m.order.resize((size_t)(n_threads + kSegment - 1) / kSegment);
    std::iota(m.order.begin(), m.order.end(), 0);
    uint32_t state = m.seed * 2654435761u;
    for (size_t i = m.order.size(); m.seed && i > 1; i--) {
        state = state * 1664525u + 1013904223u;
        std::swap(m.order[i - 1], m.order[state % i]);
    }
}

// ---- the driver's functions ----
duet_status emu_count(int32_t* n, error_text&) { return *n = kEmuFibers, DUET_OK; }

template <int kWidth>
duet_status emu_describe(int32_t index, gpu_info* info, error_text& err) {
    if (index < 0 || index >= kEmuFibers)
        return fail(err, DUET_ERR_DEVICE, "emu%d:%d: this machine has %d emulated devices", kWidth, index, kEmuFibers);
    const std::lock_guard<std::mutex> lock(emu_mem.lock);
    info->memory_bytes = emu_mem.limit;
    info->recording = gpu_recording_use::trusted;
    info->n_units = emu_units, info->vec_blocks = emu_vec_blocks;
    info->starts_early = kWidth == 64;  // so that tests have both
    info->n_resident = 1, info->has_fast = true;
    info->free_bytes = emu_mem.limit - std::min(emu_mem.limit, emu_mem.usage.in_use);
    snprintf(info->name, sizeof info->name, "emulator, warps of %d", kWidth);
    snprintf(info->chip, sizeof info->chip, "emu%d", kWidth);
    return DUET_OK;
}

template <int kWidth>
duet_status emu_open(int32_t index, void** device, gpu_info* info, error_text& err) {
    DUET_TRY(emu_describe<kWidth>(index, info, err));
    *device = new emu_device{kWidth, {}, {}};
    return DUET_OK;
}
duet_status emu_queue(void* device, void** queue, error_text&) {
    return *queue = new emu_device{((const emu_device*)device)->width, {}, {}}, DUET_OK;
}
void emu_close(void* device) { delete (emu_device*)device; }

// The size is stored in front of the memory, so that emu_free can subtract it.
template <bool kPinned>
duet_status emu_alloc(void*, uint64_t n_bytes, void** out, error_text& err) {
    const std::lock_guard<std::mutex> lock(emu_mem.lock);
    emu_usage& u = emu_mem.usage;
    const bool fits = kPinned || !emu_mem.limit || u.in_use + n_bytes <= emu_mem.limit;
    uint8_t* p = ++u.n_allocs == emu_mem.fail_at || !fits
                     ? nullptr
                     : (uint8_t*)::operator new((size_t)n_bytes + 256, kEmuAlign, std::nothrow);
    if (!p)
        return fail(err, DUET_ERR_MEMORY, "emulator: no memory for %llu bytes%s", (unsigned long long)n_bytes,
                    kPinned ? " (pinned)" : "");
    memcpy(p, &n_bytes, 8);
    memset(p + 256, 0, (size_t)n_bytes);
    *out = p + 256;
    (kPinned ? u.pinned : u.in_use) += n_bytes;
    u.most = std::max(u.most, u.in_use);
    u.pinned_most = std::max(u.pinned_most, u.pinned);
    if (kPinned) emu_mem.pinned[p + 256] = n_bytes;
    emu_tell("alloc", *out, nullptr, n_bytes);
    return DUET_OK;
}
template <bool kPinned>
void emu_free(void*, void* memory) {
    if (!memory) return;
    const std::lock_guard<std::mutex> lock(emu_mem.lock);
    uint64_t n_bytes = 0;
    memcpy(&n_bytes, (uint8_t*)memory - 256, 8);
    (kPinned ? emu_mem.usage.pinned : emu_mem.usage.in_use) -= n_bytes;
    if (kPinned) emu_mem.pinned.erase((uint8_t*)memory);
    emu_tell("free", memory, nullptr, n_bytes);
    ::operator delete((uint8_t*)memory - 256, kEmuAlign);
}

constexpr char kUpload[] = "upload", kDownload[] = "download", kCopy[] = "copy";
template <const auto& kWhat>
duet_status emu_move(void*, void* to, const void* from, uint64_t n_bytes, error_text&) {
    memcpy(to, from, n_bytes);
    const bool is_back = *kWhat == 'd';
    emu_tell(kWhat, is_back ? from : to, is_back ? to : from, n_bytes);
    return DUET_OK;
}
duet_status emu_sync(void*, error_text&) { return DUET_OK; }

duet_status emu_find_kernel(void*, const char*, const char* kernel_name, void** out, int32_t*, error_text& err) {
    const emu_kernel* k = std::ranges::find(kEmuKernels, std::string_view(kernel_name), &emu_kernel::name);
    if (k == std::end(kEmuKernels)) return fail(err, DUET_ERR_UNSUPPORTED, "emulator: no kernel %s", kernel_name);
    *out = (void*)k;
    return DUET_OK;
}

duet_status emu_launch(void* device, void* kernel, const gpu_grid& grid, const void* args, size_t args_bytes,
                       error_text& err) {
    emu_device& d = *(emu_device*)device;
    const emu_kernel& k = *(const emu_kernel*)kernel;
    emu_machine& m = d.machine;
    if (args_bytes != k.args_bytes || grid.threads < 1 || (int)grid.threads > k.max_threads ||
        grid.shared_bytes > kEmuSharedBytes)
        return fail(err, DUET_ERR_DEVICE, "emulator: %s: %zu bytes for %zu, %u threads of %d, %u shared of %zu", k.name,
                    args_bytes, k.args_bytes, grid.threads, k.max_threads, grid.shared_bytes, kEmuSharedBytes);
    if (d.recording) {
        const std::vector<uint8_t> kept((const uint8_t*)args, (const uint8_t*)args + args_bytes);
        d.recording->push_back([=](error_text& e) -> duet_status {
            return emu_launch(device, kernel, grid, kept.data(), kept.size(), e);
        });
        return DUET_OK;
    }
    m.seed = emu_thread_seed, m.n_threads = (int)grid.threads, m.shared_bytes = grid.shared_bytes;
    m.body = k.body, m.args = args, m.failed = false;
    emu_make_room(m, m.n_threads);
    emu_tell_pinned(args, args_bytes);
    if (grid.is_resident)  // A walk's launches have their arguments in its list.
        emu_tell_pinned(((const walk_args*)args)->list, (size_t)((const walk_args*)args)->n * sizeof(walk_entry));
    emu_tell("launch", nullptr, args, args_bytes, k.name, grid);
    if (emu_is_dry) return DUET_OK;
    emu_machine* before = emu_now;
    emu_now = &m;
    for (uint32_t z = 0; z < grid.z && !m.failed; z++)
        for (uint32_t y = 0; y < grid.y && !m.failed; y++)
            for (uint32_t x = 0; x < grid.x && !m.failed; x++) emu_run_block(m, (int)x, (int)y, (int)z, d.width);
    emu_now = before, emu_self = nullptr;
    return m.failed ? fail(err, DUET_ERR_DEVICE, "emulator: %s: %s", k.name, m.message) : DUET_OK;
}

duet_status emu_record_begin(void* device, error_text&) {  // One that memory ran out in is forgotten.
    return ((emu_device*)device)->recording = std::make_unique<emu_recording>(), DUET_OK;
}
duet_status emu_record_end(void* device, void** recording, error_text& err) {
    emu_device& d = *(emu_device*)device;
    if (!d.recording) return fail(err, DUET_ERR_DEVICE, "emulator: no recording has begun");
    *recording = d.recording.release();
    return DUET_OK;
}
duet_status emu_play(void*, void* recording, error_text& err) {
    emu_tell("play", nullptr, nullptr, 0);
    for (const auto& call : *(const emu_recording*)recording) DUET_TRY(call(err));
    return DUET_OK;
}
void emu_free_recording(void*, void* recording) { delete (emu_recording*)recording; }

template <int kWidth>
constexpr const char* emu_name = kWidth == 32 ? "emu32" : "emu64";
template <int kWidth>
constexpr gpu_driver kEmuDriver = {
    emu_name<kWidth>,  emu_count,           emu_describe<kWidth>, emu_open<kWidth>, emu_queue,
    emu_close,         emu_alloc<false>,    emu_free<false>,      emu_alloc<true>,  emu_free<true>,
    emu_move<kUpload>, emu_move<kDownload>, emu_move<kCopy>,      emu_sync,         emu_find_kernel,
    emu_launch,        emu_record_begin,    emu_record_end,       emu_play,         emu_free_recording};

}  // namespace

// ---- what kernels call ----
void emu_sync_block(int line) { emu_wait_for(emu_wait::block, line); }

uint32_t emu_exchange(uint32_t v, int mask, int line) {
    emu_machine& m = *emu_now;
    emu_fiber& f = *m.current;
    const int turn = f.turn++ & 1, other = f.place.tid ^ mask;
    f.value[turn] = v;
    emu_wait_for(emu_wait::segment, line);
    if (other >= m.n_threads) emu_fault("exchange with lane", other, m.n_threads, line);
    return m.fibers[(size_t)other].value[turn];
}

uint8_t* emu_shared(size_t offset, size_t n_bytes, int line) {
    emu_machine& m = *emu_now;
    if (offset % 4 || offset + n_bytes > m.shared_bytes)
        emu_fault("shared memory up to byte", (long)(offset + n_bytes), (long)m.shared_bytes, line);
    return m.shared.data() + offset;
}

void emu_fault(const char* what, long index, long n, int line) {
    emu_machine& m = *emu_now;
    emu_fail(m, what, index, n, line);
    emu_wait_for(emu_wait::done, line);  // The launch ends, and nobody wakes this fiber.
    __builtin_unreachable();
}

void emu_touch(const void* word, bool write, int line) {
    emu_machine& m = *emu_now;
    const int16_t me = (int16_t)emu_self->tid;
    const size_t i = (size_t)((const uint8_t*)word - m.shared.data()) / 4;
    emu_mark& mark = m.marks[i];
    if (mark.epoch != m.epoch) mark = {m.epoch, -1, -1};
    const bool other_wrote = mark.writer >= 0 && mark.writer != me, other_read = mark.reader != -1 && mark.reader != me;
    if (other_wrote || (write && other_read)) emu_fault("race on word", (long)i, (long)(m.shared_bytes / 4), line);
    if (write) mark.writer = me;
    else mark.reader = mark.reader == -1 || mark.reader == me ? me : (int16_t)-2;
}

void emu_watch(emu_watch_fn watch, void* user) { emu_watcher = {watch, user}; }
void emu_dry(bool is_dry, int32_t n_units, int32_t n) { emu_is_dry = is_dry, emu_units = n_units, emu_vec_blocks = n; }
duet_status emu_run(void* device, const char* name, void (*body)(const void*), const gpu_grid& grid, error_text& err) {
    emu_kernel k{name, body, 0, kEmuMaxThreads};
    return emu_launch(device, &k, grid, nullptr, 0, err);
}
void emu_seed(uint32_t seed) { emu_thread_seed = seed; }
emu_usage emu_memory() {
    const std::lock_guard<std::mutex> lock(emu_mem.lock);
    return emu_mem.usage;
}
void emu_limit(uint64_t memory_bytes, int64_t fail_at) {
    const std::lock_guard<std::mutex> lock(emu_mem.lock);
    emu_usage& u = emu_mem.usage;
    emu_mem.limit = memory_bytes, emu_mem.fail_at = fail_at;
    u = {u.in_use, u.in_use, u.pinned, u.pinned, 0};
}

constexpr gpu_driver kEmu32Driver = kEmuDriver<32>, kEmu64Driver = kEmuDriver<64>;

}  // namespace duet
#endif

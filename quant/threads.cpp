// quant/threads.cpp: see threads.h.
#include "threads.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>
#if defined(__linux__)
#include <sched.h>
#endif

namespace duet {

int physical_cores() {
    const int logical = std::max(1, (int)std::thread::hardware_concurrency());
#if defined(__linux__)
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) return logical;
    std::set<std::pair<int, int>> cores;
    int n_allowed = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &mask)) continue;
        n_allowed++;
        int ids[2] = {-1, cpu};
        const char* names[2] = {"physical_package_id", "core_id"};
        for (int k = 0; k < 2; k++) {
            char path[96];
            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, names[k]);
            if (FILE* f = fopen(path, "r")) {
                if (fscanf(f, "%d", &ids[k]) != 1) ids[k] = k == 0 ? -1 : cpu;
                fclose(f);
            }
        }
        cores.insert({ids[0], ids[1]});
    }
    return std::max(1, std::min((int)cores.size(), n_allowed));
#else
    return logical;
#endif
}

namespace {
inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}
// Spins before sleeping: about 20 us, longer than the gap between two ops, far shorter than a scheduler's slice.
constexpr int kSpins = 400;
}  // namespace

struct thread_pool::impl {
    std::vector<std::thread> threads;
    std::mutex               mutex;
    std::condition_variable  wake, done;
    // one job at a time; `epoch` changes when a job is ready. next_piece carries the job's epoch in its high half, so that a thread that
    // comes late cannot take a piece of the next job with the old job's function.
    std::atomic<uint32_t>    epoch{0};
    std::atomic<uint64_t>    next_piece{0};
    std::atomic<int>         n_left{0};     // pieces not finished
    std::atomic<int>         n_sleeping{0};
    std::atomic<bool>        stop{false};
    bool                     caller_waits = false;
    std::atomic<int>         n_pieces{0};
    std::atomic<work_fn>     work{nullptr};
    std::atomic<void*>       context{nullptr};

    // Takes pieces of job e until none is left.
    void take_pieces(uint32_t e, int i_thread) {
        const int n = n_pieces.load(std::memory_order_acquire);
        const work_fn f = work.load(std::memory_order_relaxed);
        void* const   c = context.load(std::memory_order_relaxed);
        uint64_t at = next_piece.load(std::memory_order_acquire);
        for (;;) {
            if ((uint32_t)(at >> 32) != e || (int)(uint32_t)at >= n) return;
            if (!next_piece.compare_exchange_weak(at, at + 1, std::memory_order_acq_rel)) continue;
            f(c, i_thread, (int)(uint32_t)at);
            if (n_left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
                std::lock_guard<std::mutex> lock(mutex);
                if (caller_waits) done.notify_one();
            }
            at = next_piece.load(std::memory_order_acquire);
        }
    }

    void worker(int i_thread) {
        uint32_t seen = 0;
        for (;;) {
            for (int i = 0; i < kSpins && epoch.load(std::memory_order_acquire) == seen; i++) relax();
            if (epoch.load(std::memory_order_acquire) == seen) {
                std::unique_lock<std::mutex> lock(mutex);
                n_sleeping.fetch_add(1);
                wake.wait(lock, [&] { return stop.load() || epoch.load() != seen; });
                n_sleeping.fetch_sub(1);
            }
            if (stop.load()) return;
            seen = epoch.load(std::memory_order_acquire);
            take_pieces(seen, i_thread);
        }
    }
};

thread_pool::thread_pool() = default;

bool thread_pool::start(int n_threads) {
    impl_ = std::make_unique<impl>();
    try {
        for (int i = 1; i < n_threads; i++) impl_->threads.emplace_back([p = impl_.get(), i] { p->worker(i); });
    } catch (const std::system_error&) {
        return false;
    }
    return true;
}

thread_pool::~thread_pool() {
    if (!impl_) return;
    {
        std::lock_guard<std::mutex> lock(impl_->mutex);
        impl_->stop.store(true);
        impl_->epoch.fetch_add(1);
    }
    impl_->wake.notify_all();
    for (std::thread& t : impl_->threads) t.join();
}

int thread_pool::size() const { return impl_ ? (int)impl_->threads.size() + 1 : 1; }

void thread_pool::run(int n_pieces, work_fn work, void* context) {
    if (n_pieces <= 0) return;
    if (size() == 1 || n_pieces == 1) {
        for (int i = 0; i < n_pieces; i++) work(context, 0, i);
        return;
    }
    impl& p = *impl_;
    const uint32_t e = p.epoch.load(std::memory_order_relaxed) + 1;
    p.n_left.store(n_pieces, std::memory_order_relaxed);
    p.work.store(work, std::memory_order_relaxed);
    p.context.store(context, std::memory_order_relaxed);
    p.n_pieces.store(n_pieces, std::memory_order_relaxed);
    p.next_piece.store((uint64_t)e << 32, std::memory_order_release);
    p.epoch.store(e, std::memory_order_seq_cst);
    if (p.n_sleeping.load(std::memory_order_seq_cst) > 0) {
        { std::lock_guard<std::mutex> lock(p.mutex); }
        p.wake.notify_all();
    }
    p.take_pieces(e, 0);
    for (int i = 0; i < 20 * kSpins && p.n_left.load(std::memory_order_acquire) > 0; i++) relax();
    if (p.n_left.load(std::memory_order_acquire) > 0) {   // a thread was preempted inside its piece: sleep until it is done
        std::unique_lock<std::mutex> lock(p.mutex);
        p.caller_waits = true;
        p.done.wait(lock, [&] { return p.n_left.load() == 0; });
        p.caller_waits = false;
    }
}

}  // namespace duet

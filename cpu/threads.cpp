// cpu/threads.cpp: the pool that cpu/threads.h describes.
// Main path: cpu/threads.h -> [cpu/threads.cpp]
#include "threads.h"
#include "../models/executor.h"
#include "../models/os.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace duet {

namespace {
inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}
// How long a thread spins before it sleeps. Waking one costs about 50 us in a virtual machine, and the gap between two
// ops may last as long: sleeps in these gaps took a tenth of a token's time (docs/measurements/2026-11-23-cpu.md). The
// time is measured, because a pause takes 10 to 60 ns. The caller spins five times as long. Where threads wait for a
// core, spinning takes it from those that work.
constexpr uint64_t kSpinNs = 200'000, kCrowdedSpinNs = 5'000;
template <class F> void spin(uint64_t ns, F is_done) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 1; !is_done() && (i % 64 != 0 || ns_since(start) < ns); i++) relax();
}

// The pieces that a thread has left: [next, end) in the low bits and the job's epoch above them. Because of the epoch,
// a late thread cannot take a piece of the next job with the old job's function. The owner takes from the front, and so
// reads memory in order; thieves take from the back.
struct alignas(64) piece_range {
    std::atomic<uint64_t> state{0};
    static uint64_t make(uint32_t epoch, int next, int end) {
        return (uint64_t)epoch << 32 | (uint64_t)next << 16 | (uint64_t)end;
    }

    // Takes up to `most` neighbouring pieces, but at most half of what is left, so that the threads end together.
    // Returns the first of them, or -1 when none is left.
    int take(uint32_t epoch, bool front, int most, int* n) {
        uint64_t s = state.load(std::memory_order_acquire);
        for (;;) {
            const int next = (int)(s >> 16 & 0xffff), end = (int)(s & 0xffff);
            if ((uint32_t)(s >> 32) != epoch || next >= end) return -1;
            *n = std::min(most, (end - next + 1) / 2);
            const uint64_t rest = front ? make(epoch, next + *n, end) : make(epoch, next, end - *n);
            if (state.compare_exchange_weak(s, rest, std::memory_order_acq_rel, std::memory_order_acquire))
                return front ? next : end - *n;
        }
    }
};
constexpr int kMostPieces = 0xffff;
}  // namespace

struct thread_pool::impl {
    std::vector<std::thread> threads;
    std::mutex mutex;
    std::condition_variable wake, done;
    std::unique_ptr<piece_range[]> ranges;  // one range for each thread
    int n_threads = 1;
    uint64_t spin_ns = kSpinNs;
    // There is one job at a time. `epoch` changes when a job is ready.
    std::atomic<uint32_t> epoch{0};
    std::atomic<int> n_left{0};  // pieces that are not finished
    std::atomic<int> n_sleeping{0};
    std::atomic<bool> stop{false};
    bool caller_waits = false;
    std::atomic<work_fn> work{nullptr};
    std::atomic<void*> context{nullptr};
    std::atomic<int> n_whole{0}, step{1}, most{1};  // work items, the items of a piece, most pieces taken at once

    // Takes pieces of job e until none is left.
    void take_pieces(uint32_t e, int i_thread) {
        const work_fn f = work.load(std::memory_order_relaxed);
        void* const c = context.load(std::memory_order_relaxed);
        const int n = n_whole.load(std::memory_order_relaxed), s = step.load(std::memory_order_relaxed);
        const int at_once = most.load(std::memory_order_relaxed);
        // What is done is counted once for a range, because a change of n_left takes its line from the other threads.
        for (int k = 0, taken, n_done = 0; k < n_threads; k++, n_done = 0) {
            for (int piece; (piece = ranges[(i_thread + k) % n_threads].take(e, k == 0, at_once, &taken)) >= 0;) {
                f(c, i_thread, piece * s, std::min(n, (piece + taken) * s));
                n_done += taken;
            }
            if (n_done == 0 || n_left.fetch_sub(n_done, std::memory_order_acq_rel) != n_done) continue;
            std::lock_guard<std::mutex> lock(mutex);
            if (caller_waits) done.notify_one();
        }
    }

    void worker(int i_thread) {
        uint32_t seen = 0;
        for (;;) {
            spin(spin_ns, [&] { return epoch.load(std::memory_order_acquire) != seen; });
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
    impl_->ranges = std::make_unique<piece_range[]>((size_t)n_threads);
    impl_->n_threads = n_threads;
    if (n_threads > 2 * os_physical_cores()) impl_->spin_ns = kCrowdedSpinNs;
    try {
        for (int i = 1; i < n_threads; i++) impl_->threads.emplace_back([p = impl_.get(), i] { p->worker(i); });
    } catch (const std::system_error&) { return false; }
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

void thread_pool::run(int n_pieces, int most, work_fn work, void* context) {
    if (n_pieces <= 0) return;
    if (size() == 1 || n_pieces == 1) {
        for (int i = 0; i < n_pieces; i += most) work(context, 0, i, std::min(n_pieces, i + most));
        return;
    }
    impl& p = *impl_;
    const uint32_t e = p.epoch.load(std::memory_order_relaxed) + 1;
    const int step = (n_pieces - 1) / kMostPieces + 1, n = (n_pieces - 1) / step + 1;
    p.n_left.store(n, std::memory_order_relaxed);
    p.work.store(work, std::memory_order_relaxed);
    p.context.store(context, std::memory_order_relaxed);
    p.n_whole.store(n_pieces, std::memory_order_relaxed);
    p.step.store(step, std::memory_order_relaxed);
    p.most.store(std::max(1, most / step), std::memory_order_relaxed);
    for (int t = 0; t < p.n_threads; t++)
        p.ranges[t].state.store(
            piece_range::make(e, (int)((int64_t)n * t / p.n_threads), (int)((int64_t)n * (t + 1) / p.n_threads)),
            std::memory_order_release);
    p.epoch.store(e, std::memory_order_seq_cst);
    if (p.n_sleeping.load(std::memory_order_seq_cst) > 0) {
        { std::lock_guard<std::mutex> lock(p.mutex); }
        p.wake.notify_all();
    }
    p.take_pieces(e, 0);
    spin(5 * p.spin_ns, [&] { return p.n_left.load(std::memory_order_acquire) == 0; });
    // A thread was preempted inside its piece: the caller sleeps until that piece is done.
    if (p.n_left.load(std::memory_order_acquire) > 0) {
        std::unique_lock<std::mutex> lock(p.mutex);
        p.caller_waits = true;
        p.done.wait(lock, [&] { return p.n_left.load() == 0; });
        p.caller_waits = false;
    }
}

}  // namespace duet

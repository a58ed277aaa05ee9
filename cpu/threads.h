// cpu/threads.h: a work-stealing pool. Each thread owns a contiguous range of pieces; idle threads steal from the
// others, so a preempted thread delays the rest by at most what it has taken. Threads without work spin, then sleep.
// Must not know: what the work is.
// Main path: cpu/ops.cpp -> [cpu/threads.h] -> cpu/kernels_<isa>.cpp
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

namespace duet {

class thread_pool {
  public:
    thread_pool();
    ~thread_pool();
    // n_threads >= 1 counts the calling thread. The result is false when the system gives no more threads.
    bool start(int n_threads);
    int size() const;

    // Calls work(context, i_thread, first, end) for parts of at most `most` neighbouring pieces (of more than 65,535
    // pieces, as many as are needed to count them), which are smaller at the end and cover the pieces 0..n_pieces-1
    // once, on all threads. It returns when all pieces are done.
    using work_fn = void (*)(void* context, int i_thread, int first, int end);
    void run(int n_pieces, int most, work_fn work, void* context);

    template <class F>
    void for_parts(int n_pieces, int most, F f) {
        run(n_pieces, most, [](void* c, int t, int first, int end) { (*(F*)c)(t, first, end); }, &f);
    }
    template <class F>
    void for_each(int n_pieces, F f) {
        for_parts(n_pieces, 1, [&f](int t, int first, int end) {
            for (int i = first; i < end; i++) f(t, i);
        });
    }

  private:
    struct impl;
    std::unique_ptr<impl> impl_;
};

}  // namespace duet

// cpu/threads.h: a work-stealing pool. Each thread owns a contiguous range of pieces; idle threads steal from the
// others, so a preempted thread delays the rest by at most one piece. Threads without work sleep.
// Must not know: what the work is.
// Main path: cpu/ops.cpp -> [cpu/threads.h] -> cpu/kernels_<isa>.cpp
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

namespace duet {

// Returns the number of physical cores that this process may use, at least 1.
int physical_cores();

class thread_pool {
  public:
    thread_pool();
    ~thread_pool();
    // n_threads >= 1 counts the calling thread. The result is false when the system gives no more threads.
    bool start(int n_threads);
    int size() const;

    // Calls work(context, i_thread, i_piece) once for every piece 0..n_pieces-1, on all threads. It returns when all
    // pieces are done.
    using work_fn = void (*)(void* context, int i_thread, int i_piece);
    void run(int n_pieces, work_fn work, void* context);

    template <class F>
    void for_each(int n_pieces, F f) {
        run(n_pieces, [](void* c, int t, int i) { (*(F*)c)(t, i); }, &f);
    }

  private:
    struct impl;
    std::unique_ptr<impl> impl_;
};

}  // namespace duet

// runtime_selftest.cpp: duet_self_test: every op and number format in small on a user's own device, compared with the scalar CPU executor.
// Main path: runtime.h -> [runtime_selftest.cpp] -> runtime_cases.h
#include "runtime_cases.h"

#include <new>

using namespace duet;

duet_status duet_self_test(const char* device, duet_self_test_fn report, void* user) {
    if (!device || !report) return DUET_ERR_ARG;
    try {
        error_text err;
        if (strcmp(device, "cpu") != 0 && !find_gpu_executor(device, err)) return DUET_ERR_DEVICE;
        bool is_stopped = false;
        gpu_cases::for_each_case([&](gpu_cases::graph_case& c) {
            if (is_stopped) return;
            const std::string difference = gpu_cases::compare_case(c, device);
            is_stopped = report(user, c.name.c_str(), difference.empty() ? nullptr : difference.c_str()) != 0;
        });
        return is_stopped ? DUET_ERR_CANCELLED : DUET_OK;
    } catch (const std::bad_alloc&) {
        return DUET_ERR_MEMORY;
    }
}

// runtime/self_test.cpp: whether a device of this machine computes the bits of the plain C++ code.
// Must not know: how ops are computed.
// Main path: tools/selftest.h -> runtime.cpp -> [runtime/self_test.cpp] -> runtime/self_test_cases.h
#include "devices.h"
#include "self_test_cases.h"
#include "../cpu/kernels.h"

namespace duet {

duet_status run_self_test(const char* device, const char* cpu_isa, duet_self_test_fn report, void* user,
                          error_text& err) {
    std::string id = device, isa = cpu_isa ? cpu_isa : "auto";
    gpu_info info;
    if (id != "cpu" && (choose_gpu(device, &id, err) || gpu_device_info(id.c_str(), &info, err)))
        return DUET_ERR_DEVICE;
    if (id == "cpu" && !find_cpu_kernels(isa.c_str()))
        return fail(err, DUET_ERR_DEVICE, "cpu isa '%s': this machine runs: %s", printable(isa).c_str(),
                    cpu_isa_names());
    bool is_stopped = false;
    self_test::for_each_case([&](self_test::graph_case& c) {
        if (is_stopped) return;
        const std::string difference = self_test::compare_case(c, id.c_str(), isa.c_str());
        is_stopped = report(user, c.name.c_str(), difference.empty() ? nullptr : difference.c_str()) != 0;
    });
    return is_stopped ? fail(err, DUET_ERR_CANCELLED, "the self test was stopped by its report") : DUET_OK;
}

}  // namespace duet

// runtime_devices.cpp: the devices half of runtime.h: what can compute here, what is used and why not the rest, how fast its memory is, and
// whether it computes the bits of the scalar CPU executor. Must not know: models.
// Main path: tools/run.cpp -> runtime.h -> [runtime_devices.cpp] -> gpu/device.cpp
#include "runtime_cases.h"
#include "runtime_internal.h"
#include "quant/threads.h"

#include <fstream>

namespace duet {
namespace {

// What follows "key ... :" in a file of /proc; "" where there is none.
std::string proc_value(const char* path, std::string_view key) {
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);)
        if (line.compare(0, key.size(), key) == 0) {
            const size_t at = line.find_first_not_of(" \t", line.find(':') + 1);
            return at == std::string::npos ? "" : line.substr(at);
        }
    return "";
}

void fill_cpu(duet_device_info* d, std::string& name, std::string& driver) {
    const cpu_kernels* kernels = find_cpu_kernels("auto");
    name = proc_value("/proc/cpuinfo", "model name");
    driver = std::to_string(physical_cores()) + " cores";
    d->id = "cpu";
    d->name = name.empty() ? "CPU" : name.c_str();
    d->chip = kernels->name;
    d->driver = driver.c_str();
    d->memory_bytes = strtoull(proc_value("/proc/meminfo", "MemTotal").c_str(), nullptr, 10) * 1024;
    d->free_bytes = strtoull(proc_value("/proc/meminfo", "MemAvailable").c_str(), nullptr, 10) * 1024;
    d->is_usable = 1;
}

}  // namespace
}  // namespace duet

using namespace duet;

extern "C" {

duet_status duet_list_devices(duet_device_fn each, void* user) {
    if (!each) return DUET_ERR_ARG;
    error_text err;
    return guarded(err, [&] {
        const std::vector<gpu_found> gpus = list_gpus();
        std::string name, driver;
        duet_device_info cpu{};
        cpu.struct_size = sizeof cpu;
        cpu.why = "";
        cpu.is_default = 1;
        fill_cpu(&cpu, name, driver);
        for (const gpu_found& g : gpus)
            if (g.is_default) cpu.is_default = 0, cpu.why = "a GPU is used";
        each(user, &cpu);
        for (const gpu_found& g : gpus) {
            duet_device_info d{sizeof d, g.is_usable, g.is_default, g.info.is_integrated, g.id.c_str(), g.info.name, g.info.chip, g.info.driver,
                               g.why.c_str(), g.info.memory_bytes, g.info.free_bytes};
            each(user, &d);
        }
        return DUET_OK;
    });
}

duet_status duet_self_test(const char* device, const char* cpu_isa, duet_self_test_fn report, void* user) {
    error_text err;
    gpu_info   info;
    if (!device || !report) return DUET_ERR_ARG;
    return guarded(err, [&]() -> duet_status {
        const char* isa = cpu_isa ? cpu_isa : "auto";
        if (strcmp(device, "cpu") == 0 ? !find_cpu_kernels(isa) : gpu_device_info(device, &info, err) != DUET_OK) return DUET_ERR_DEVICE;
        bool is_stopped = false;
        runtime_cases::for_each_case([&](runtime_cases::graph_case& c) {
            if (is_stopped) return;
            const std::string difference = runtime_cases::compare_case(c, device, isa);
            is_stopped = report(user, c.name.c_str(), difference.empty() ? nullptr : difference.c_str()) != 0;
        });
        return is_stopped ? DUET_ERR_CANCELLED : DUET_OK;
    });
}

double duet_measure_bandwidth_gbps(const char* device, int32_t n_threads) {
    double     gbps = 0;
    error_text err;
    guarded(err, [&] {
        gbps = device && strcmp(device, "cpu") != 0 ? gpu_copy_gbps(device) : measure_read_gbps(n_threads > 0 ? std::min(n_threads, 1024) : physical_cores());
        return DUET_OK;
    });
    return gbps;
}

}  // extern "C"

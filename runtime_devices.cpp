// runtime_devices.cpp: the devices half of runtime.h: what can compute here, what is used and why not the rest. Must not know: models.
// Main path: tools/run.cpp -> runtime.h -> [runtime_devices.cpp] -> gpu/device.cpp
#include "runtime_internal.h"
#include "gpu/device.h"
#include "quant/cpu_kernels.h"
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

}  // extern "C"

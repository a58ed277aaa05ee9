// runtime/devices.cpp: the devices half of runtime.h: what can compute here, what is used and why not the rest, how
// fast its memory is, and whether it computes the bits of the scalar CPU executor. Owns: the reasons why a device is
// not used, and what they advise. A device that is not chosen is never opened. Must not know: models, how drivers
// work.
// Main path: tools/run.cpp -> runtime.h -> [runtime/devices.cpp] -> gpu/driver.h
#include "cases.h"
#include "devices.h"
#include "handles.h"
#include "../cpu/threads.h"

#include <algorithm>
#include <cerrno>
#include <fstream>

#if !defined(_WIN32)
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>
#endif

namespace duet {
namespace {

constexpr uint64_t kLeastMemory = 512u << 20;  // below it not even a small model's cache fits

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

bool is_emulator(std::string_view id) { return id.substr(0, 3) == "emu"; }

#if defined(_WIN32)
std::string missing_hardware(bool) { return ""; }
std::string forbidden_node() { return ""; }
#else
std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    if (DIR* dir = opendir(folder.c_str())) {
        while (const dirent* entry = readdir(dir))
            if (entry->d_name[0] != '.') names.push_back(entry->d_name);
        closedir(dir);
    }
    std::sort(names.begin(), names.end());
    return names;
}

std::string first_word(const std::string& path) {
    std::string word;
    std::ifstream(path) >> word;
    return word;
}

// Says that the machine has no card of this vendor; "" when it has one, or nobody knows.
std::string missing_hardware(bool is_amd) {
    const std::string folder = std::string(gpu_setup().root) + "/sys/bus/pci/devices/";
    const std::vector<std::string> cards = names_in(folder);
    for (const std::string& card : cards) {
        const std::string kind = first_word(folder + card + "/class");  // 0x03....: display, 0x12....: accelerator
        if (first_word(folder + card + "/vendor") == (is_amd ? "0x1002" : "0x10de") &&
            (kind.substr(0, 4) == "0x03" || kind.substr(0, 4) == "0x12"))
            return "";
    }
    return cards.empty() ? "" : is_amd ? "no AMD card in this machine" : "no NVIDIA card in this machine";
}

// What keeps the process from the device files AMD's runtime needs, and the command that grants it; "": nothing.
std::string forbidden_node() {
    const std::string root = gpu_setup().root;
    std::vector<std::string> nodes = {"/dev/kfd"};
    for (const std::string& name : names_in(root + "/sys/class/drm"))
        if (name.substr(0, 7) == "renderD" &&
            first_word(root + "/sys/class/drm/" + name + "/device/vendor") == "0x1002")
            nodes.push_back("/dev/dri/" + name);
    for (const std::string& node : nodes) {
        const int fd = ::open((root + node).c_str(), O_RDWR | O_CLOEXEC);
        const int code = errno;
        if (fd >= 0) {
            ::close(fd);
            continue;
        }
        if (code == ENOENT)
            return node + " is not there: load the kernel's amdgpu module (sudo modprobe amdgpu); a container needs "
                          "--device /dev/kfd --device /dev/dri";
        if (code == EACCES || code == EPERM)
            return node + " may not be opened by this user: sudo usermod -aG render,video $USER, then log in again; a "
                          "container needs --group-add";
        return node + " cannot be opened: " + strerror(code);
    }
    return "";
}
#endif

// A driver without a device: the reason that helps most.
std::string why_none(const gpu_driver& driver, const std::string& told) {
    const bool is_amd = &driver == &kHipDriver;
    if (const std::string none = missing_hardware(is_amd); !none.empty()) return none;
    for (const char* other : {"not found", "too old"})
        if (told.find(other) != std::string::npos) return told;  // the library is the reason
    const std::string node = is_amd ? forbidden_node() : "";
    return node.empty() ? told : node + " (" + told + ")";
}

gpu_found* best_of(std::vector<gpu_found>& all, std::string_view driver) {
    gpu_found* best = nullptr;
    for (gpu_found& d : all) {
        if (!d.is_usable || is_emulator(d.id) ||
            (!driver.empty() && d.id.substr(0, driver.size() + 1) != std::string(driver) + ":"))
            continue;
        auto rank = [](const gpu_found& f) { return std::pair(!f.info.is_integrated, f.info.memory_bytes); };
        if (!best || rank(d) > rank(*best)) best = &d;
    }
    return best;
}

// Bytes read and written by copies from and to a device's memory, GB/s; 0: it cannot be used, or has too little
// memory.
double gpu_copy_gbps(const char* id) {
    constexpr int kPasses = 3, kCopies = 8;
    error_text err;
    int32_t index = 0;
    gpu_info info;
    void *device = nullptr, *from = nullptr, *to = nullptr;
    const gpu_driver* driver = find_driver(id, &index);
    if (!driver || driver->open(index, &device, &info, err) != DUET_OK) return 0;
    const uint64_t n_bytes = std::clamp<uint64_t>(info.free_bytes / 8, 16u << 20, 1u << 30);  // beyond all caches
    double best = 0;
    bool ok =
        driver->alloc(device, n_bytes, &from, err) == DUET_OK && driver->alloc(device, n_bytes, &to, err) == DUET_OK;
    for (int pass = 0; ok && pass < kPasses; pass++) {
        ok = driver->sync(device, err) == DUET_OK;
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < kCopies; i++) ok = ok && driver->copy(device, to, from, n_bytes, err) == DUET_OK;
        ok = ok && driver->sync(device, err) == DUET_OK;
        if (ok) best = std::max(best, 2.0 * kCopies * (double)n_bytes / (double)ns_since(start));
    }
    for (void* memory : {from, to}) driver->free(device, memory);
    driver->close(device);
    return best;
}

}  // namespace

std::vector<gpu_found> list_gpus() {
    std::vector<gpu_found> all;
    for (const gpu_driver* driver : kGpuDrivers) {
        error_text err;
        int32_t n = 0;
        if (driver->count(&n, err) != DUET_OK)
            all.push_back({driver->name, {}, false, false, why_none(*driver, err.text)});
        for (int32_t i = 0; i < n; i++) {
            gpu_found d;
            d.id = is_emulator(driver->name) ? driver->name : std::string(driver->name) + ":" + std::to_string(i);
            d.is_usable = driver->describe(i, &d.info, err) == DUET_OK;
            if (!d.is_usable) d.why = err.text;
            else if (is_emulator(d.id))
                d.info.memory_bytes = d.info.free_bytes = 0, d.why = "for tests: used only when it is named";
            else if (d.info.memory_bytes < kLeastMemory)
                d.is_usable = false, d.why = "too little memory: want 512 MB at least";
            all.push_back(std::move(d));
        }
    }
    // A chip that shares the processor's memory may crash its driver where a card is the device meant (docs/gpu.md):
    // it has to be named.
    const bool has_card = std::any_of(all.begin(), all.end(),
                                      [](const gpu_found& d) { return d.info.memory_bytes && !d.info.is_integrated; });
    gpu_found* best = best_of(all, "");
    if (best && !(best->info.is_integrated && has_card)) best->is_default = true;
    for (gpu_found& d : all)
        if (d.is_usable && !d.is_default && !is_emulator(d.id))
            d.why = d.info.is_integrated && has_card ? "integrated, beside a card: used only when it is named"
                                                     : "another device is better: used when it is named";
    return all;
}

duet_status choose_gpu(std::string_view name, std::string* id, error_text& err) {
    int32_t index = 0, n_devices = 0;
    const bool is_auto = name == "auto", is_exact = name.find(':') != std::string_view::npos;
    if (!is_auto && !find_driver(name, &index)) return DUET_ERR_ARG;
    if (is_emulator(name)) return *id = name, DUET_OK;
    if (is_auto && gpu_code_list() == "none")
        return fail(err, DUET_ERR_DEVICE,
                    "this build has no GPU code (make GPU_TARGETS=native or all; run --devices tells more)");
    std::vector<gpu_found> all = list_gpus();
    const std::string_view vendor = name.substr(0, name.find(':'));
    const gpu_found* best = is_auto || is_exact ? nullptr : best_of(all, name);
    std::string why;  // the reasons of the devices that the name could have meant
    for (const gpu_found& d : all) {
        const bool is_vendors = d.id.substr(0, d.id.find(':')) == vendor;
        n_devices += is_vendors;
        if (is_auto ? d.is_default : is_exact && d.id == name) best = &d;
        if (is_auto ? !is_emulator(d.id) : is_exact ? d.id == name || d.id == vendor : is_vendors)
            why += (why.empty() ? "" : "; ") + (d.why.compare(0, d.id.size(), d.id) == 0 ? "" : d.id + ": ") + d.why;
    }
    if (best && best->is_usable) return *id = best->id, DUET_OK;
    if (why.empty()) why = "this machine has " + std::to_string(n_devices) + " of these devices";
    return fail(err, DUET_ERR_DEVICE, "%s", why.c_str());
}

duet_status gpu_device_info(const char* id, gpu_info* out, error_text& err) {
    int32_t index = 0;
    void* device = nullptr;
    const gpu_driver* driver = find_driver(id, &index);
    if (!driver) return fail(err, DUET_ERR_DEVICE, "device '%s': no driver", id);
    DUET_TRY(driver->open(index, &device, out, err));
    driver->close(device);
    return DUET_OK;
}

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
            duet_device_info d{sizeof d,      g.is_usable,         g.is_default,     g.info.is_integrated,
                               g.id.c_str(),  g.info.name,         g.info.chip,      g.info.driver,
                               g.why.c_str(), g.info.memory_bytes, g.info.free_bytes};
            each(user, &d);
        }
        return DUET_OK;
    });
}

duet_status duet_self_test(const char* device, const char* cpu_isa, duet_self_test_fn report, void* user) {
    error_text err;
    gpu_info info;
    if (!device || !report) return DUET_ERR_ARG;
    return guarded(err, [&]() -> duet_status {
        const char* isa = cpu_isa ? cpu_isa : "auto";
        if (strcmp(device, "cpu") == 0 ? !find_cpu_kernels(isa) : gpu_device_info(device, &info, err) != DUET_OK)
            return DUET_ERR_DEVICE;
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
    double gbps = 0;
    error_text err;
    guarded(err, [&] {
        gbps = device && strcmp(device, "cpu") != 0
                   ? gpu_copy_gbps(device)
                   : measure_read_gbps(n_threads > 0 ? std::min(n_threads, 1024) : physical_cores());
        return DUET_OK;
    });
    return gbps;
}

}  // extern "C"

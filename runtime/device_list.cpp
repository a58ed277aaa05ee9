// runtime/device_list.cpp: what exists in this machine: the processor, cards, drivers, and why a driver finds nothing.
// Owns: the reasons why a device is not used, and what they advise. A device is asked for its name and attributes,
// never opened. Must not know: models, how drivers work. Main path: runtime.cpp -> [runtime/device_list.cpp] ->
// gpu/driver.h
#include "guard.h"
#include "devices.h"
#include "../cpu/kernels.h"
#include "../models/os.h"

#include <algorithm>
#include <cerrno>

#if !defined(_WIN32)
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>
#endif

namespace duet {
namespace {

constexpr uint64_t kLeastMemory = 512u << 20;  // below it not even a small model's cache fits

#if defined(_WIN32)
bool has_pci_card(bool is_amd) { return os_has_display_card(is_amd ? "1002" : "10DE"); }
bool is_pci_hidden() { return false; }
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

std::string pci_folder() { return std::string(gpu_setup().root) + "/sys/bus/pci/devices/"; }

bool has_pci_card(bool is_amd) {
    for (const std::string& card : names_in(pci_folder())) {
        const std::string kind =
            os_value_in(pci_folder() + card + "/class");  // 0x03....: display, 0x12....: accelerator
        if (os_value_in(pci_folder() + card + "/vendor") == (is_amd ? "0x1002" : "0x10de") &&
            (kind.substr(0, 4) == "0x03" || kind.substr(0, 4) == "0x12"))
            return true;
    }
    return false;
}

// Whether nobody can know what is on the bus, or the GPU is on none, as in WSL and on a Jetson.
bool is_pci_hidden() {
    const std::string root = gpu_setup().root;
    return access(pci_folder().c_str(), F_OK) || !access((root + "/dev/dxg").c_str(), F_OK) ||
           !access((root + "/dev/nvhost-gpu").c_str(), F_OK);
}

// Says that the machine has no card of this vendor; "" when it has one, or nobody knows.
std::string missing_hardware(bool is_amd) {
    if (has_pci_card(is_amd) || is_pci_hidden() || names_in(pci_folder()).empty()) return "";
    return is_amd ? "no AMD card in this machine" : "no NVIDIA card in this machine";
}

// What keeps the process from the device files AMD's runtime needs, and the command that grants it; "": nothing.
std::string forbidden_node() {
    const std::string root = gpu_setup().root;
    std::vector<std::string> nodes = {access((root + "/dev/dxg").c_str(), F_OK) ? "/dev/kfd" : "/dev/dxg"};  // WSL's
    for (const std::string& name : names_in(root + "/sys/class/drm"))
        if (name.substr(0, 7) == "renderD" &&
            os_value_in(root + "/sys/class/drm/" + name + "/device/vendor") == "0x1002")
            nodes.push_back("/dev/dri/" + name);
    for (const std::string& node : nodes) {
        const int fd = ::open((root + node).c_str(), O_RDWR | O_CLOEXEC), code = errno;
        if (fd >= 0 && ::close(fd) == 0) continue;
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
    // The library is the reason.
    if (told.find("no driver for") != told.npos || told.find("too old") != told.npos) return told;
    const std::string node = is_amd ? forbidden_node() : "";
    return node.empty() ? told : node + " (" + told + ")";
}

}  // namespace

bool is_emulator(std::string_view id) { return id.substr(0, 3) == "emu"; }

std::vector<gpu_found> list_gpus(std::string_view only) {
    std::vector<gpu_found> all;
    for (const gpu_driver* driver : kGpuDrivers) {
        if (!only.empty() && only != driver->name) continue;
        error_text err;
        int32_t n = 0;
        if (driver->count(&n, err)) all.push_back({driver->name, {}, false, false, why_none(*driver, err.text)});
        for (int32_t i = 0; i < n; i++) {
            gpu_found d;
            d.id = is_emulator(driver->name) ? driver->name : std::string(driver->name) + ":" + std::to_string(i);
            d.is_usable = driver->describe(i, &d.info, err) == DUET_OK;
            if (!d.is_usable) d.why = err.text;
            else if (is_emulator(d.id)) {
                d.info.memory_bytes = d.info.free_bytes = 0;
                d.why = "for tests: used only when it is named";
            } else if (d.info.memory_bytes < kLeastMemory && !d.info.is_integrated)  // it shares the computer's
                d.why = "too little memory (want 512 MB at least): used only when it is named";
            all.push_back(std::move(d));
        }
    }
    // A chip that shares the processor's memory may crash its driver where a card is the device meant (docs/gpu.md):
    // it has to be named.
    const bool has_card = std::any_of(all.begin(), all.end(),
                                      [](const gpu_found& d) { return d.info.memory_bytes && !d.info.is_integrated; });
    gpu_found* best = best_gpu(all, "");
    if (best && best->why.empty() && !(best->info.is_integrated && has_card)) best->is_default = true;
    for (gpu_found& d : all)
        if (d.is_usable && !d.is_default && d.why.empty())
            d.why = d.info.is_integrated && has_card ? "integrated, beside a card: used only when it is named"
                                                     : "another device is better: used when it is named";
    return all;
}

bool may_have_card() {
    if (has_pci_card(false) || has_pci_card(true)) return true;
    for (const gpu_found& d : list_gpus())
        if (d.id.find(':') != std::string::npos) return true;
    return is_pci_hidden();
}

duet_status tell_devices(duet_device_fn each, void* user, error_text&) {
    const std::vector<gpu_found> gpus = list_gpus();
    const os_machine machine = os_describe();
    const std::string n_cores = std::to_string(os_physical_cores()) + " cores";
    const bool uses_gpu = std::ranges::any_of(gpus, &gpu_found::is_default);
    auto cpu = sized<duet_device_info>();
    cpu.id = "cpu";
    cpu.name = machine.cpu_name.empty() ? "CPU" : machine.cpu_name.c_str();
    cpu.chip = find_cpu_kernels("auto")->name;
    cpu.driver = n_cores.c_str();
    cpu.why = uses_gpu ? "a GPU is used" : "";
    cpu.memory_bytes = machine.memory_bytes;
    cpu.free_bytes = machine.free_bytes;
    cpu.is_usable = 1;
    cpu.is_default = !uses_gpu;
    each(user, &cpu);
    for (const gpu_found& g : gpus) {
        duet_device_info d{sizeof d,      g.is_usable,         g.is_default,     g.info.is_integrated,
                           g.id.c_str(),  g.info.name,         g.info.chip,      g.info.driver,
                           g.why.c_str(), g.info.memory_bytes, g.info.free_bytes};
        each(user, &d);
    }
    return DUET_OK;
}

}  // namespace duet

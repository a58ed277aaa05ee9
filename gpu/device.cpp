// gpu/device.cpp: lists GPUs and chooses one. Owns: the reasons why a device is not used, and what they advise. A device that is not chosen
// is never opened. Must not know: ops, kernels, how drivers work.
// Main path: runtime.cpp -> [gpu/device.cpp] -> gpu/driver.h
#include "device.h"
#include "../quant/threads.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

#if !defined(_WIN32)
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>
#endif

namespace duet {
namespace {

constexpr const gpu_driver* kDrivers[] = {&kCudaDriver, &kHipDriver, &kEmu32Driver, &kEmu64Driver};
constexpr uint64_t          kLeastMemory = 512u << 20;   // below it not even a small model's cache fits

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
        const std::string kind = first_word(folder + card + "/class");   // 0x03....: display, 0x12....: accelerator
        if (first_word(folder + card + "/vendor") == (is_amd ? "0x1002" : "0x10de") && (kind.substr(0, 4) == "0x03" || kind.substr(0, 4) == "0x12"))
            return "";
    }
    return cards.empty() ? "" : is_amd ? "no AMD card in this machine" : "no NVIDIA card in this machine";
}

// What keeps the process from the device files AMD's runtime needs, and the command that grants it; "": nothing.
std::string forbidden_node() {
    const std::string        root = gpu_setup().root;
    std::vector<std::string> nodes = {"/dev/kfd"};
    for (const std::string& name : names_in(root + "/sys/class/drm"))
        if (name.substr(0, 7) == "renderD" && first_word(root + "/sys/class/drm/" + name + "/device/vendor") == "0x1002") nodes.push_back("/dev/dri/" + name);
    for (const std::string& node : nodes) {
        const int fd = ::open((root + node).c_str(), O_RDWR | O_CLOEXEC);
        const int code = errno;
        if (fd >= 0) {
            ::close(fd);
            continue;
        }
        if (code == ENOENT)
            return node + " is not there: load the kernel's amdgpu module (sudo modprobe amdgpu); a container needs --device /dev/kfd --device /dev/dri";
        if (code == EACCES || code == EPERM)
            return node + " may not be opened by this user: sudo usermod -aG render,video $USER, then log in again; a container needs --group-add";
        return node + " cannot be opened: " + strerror(code);
    }
    return "";
}
#endif

// A driver without a device: the reason that helps most.
std::string why_none(const gpu_driver& driver, const std::string& told) {
    const bool is_amd = &driver == &kHipDriver;
    if (const std::string none = missing_hardware(is_amd); !none.empty()) return none;
    for (const char* other : {"not found", "too old"}) if (told.find(other) != std::string::npos) return told;   // the library is the reason
    const std::string node = is_amd ? forbidden_node() : "";
    return node.empty() ? told : node + " (" + told + ")";
}

gpu_found* best_of(std::vector<gpu_found>& all, std::string_view driver) {
    gpu_found* best = nullptr;
    for (gpu_found& d : all) {
        if (!d.is_usable || is_emulator(d.id) || (!driver.empty() && d.id.substr(0, driver.size() + 1) != std::string(driver) + ":")) continue;
        auto rank = [](const gpu_found& f) { return std::pair(!f.info.is_integrated, f.info.memory_bytes); };
        if (!best || rank(d) > rank(*best)) best = &d;
    }
    return best;
}

}  // namespace

std::vector<gpu_found> list_gpus() {
    std::vector<gpu_found> all;
    for (const gpu_driver* driver : kDrivers) {
        error_text err;
        int32_t    n = 0;
        if (driver->count(&n, err) != DUET_OK) all.push_back({driver->name, {}, false, false, why_none(*driver, err.text)});
        for (int32_t i = 0; i < n; i++) {
            gpu_found d;
            d.id = is_emulator(driver->name) ? driver->name : std::string(driver->name) + ":" + std::to_string(i);
            d.is_usable = driver->describe(i, &d.info, err) == DUET_OK;
            if (!d.is_usable) d.why = err.text;
            else if (is_emulator(d.id)) d.info.memory_bytes = d.info.free_bytes = 0, d.why = "for tests: used only when it is named";
            else if (d.info.memory_bytes < kLeastMemory) d.is_usable = false, d.why = "too little memory: want 512 MB at least";
            all.push_back(std::move(d));
        }
    }
    // A chip that shares the processor's memory may crash its driver where a card is the device meant (docs/gpu.md): it has to be named.
    const bool has_card = std::any_of(all.begin(), all.end(), [](const gpu_found& d) { return d.info.memory_bytes && !d.info.is_integrated; });
    gpu_found* best = best_of(all, "");
    if (best && !(best->info.is_integrated && has_card)) best->is_default = true;
    for (gpu_found& d : all)
        if (d.is_usable && !d.is_default && !is_emulator(d.id))
            d.why = d.info.is_integrated && has_card ? "integrated, beside a card: used only when it is named" : "another device is better: used when it is named";
    return all;
}

duet_status choose_gpu(std::string_view name, std::string* id, error_text& err) {
    int32_t    index = 0, n_devices = 0;
    const bool is_auto = name == "auto", is_exact = name.find(':') != std::string_view::npos;
    if (!is_auto && !find_driver(name, &index)) return DUET_ERR_ARG;
    if (is_emulator(name)) return *id = name, DUET_OK;
    if (is_auto && gpu_code_list() == "none")
        return fail(err, DUET_ERR_DEVICE, "this build has no GPU code (make GPU_TARGETS=native or all; run --devices tells more)");
    std::vector<gpu_found> all = list_gpus();
    const std::string_view vendor = name.substr(0, name.find(':'));
    const gpu_found* best = is_auto || is_exact ? nullptr : best_of(all, name);
    std::string why;   // the reasons of the devices that the name could have meant
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

const gpu_driver* find_driver(std::string_view id, int32_t* index) {
    const size_t colon = id.find(':');
    *index = 0;
    if (colon != std::string_view::npos) {
        const char *digits = id.data() + colon + 1, *end = id.data() + id.size();
        if (digits == end || *digits == '-' || end - digits > 3 || std::from_chars(digits, end, *index).ptr != end) return nullptr;
    }
    for (const gpu_driver* d : kDrivers)
        if (id.substr(0, colon) == d->name) return d;
    return nullptr;
}

duet_status gpu_device_info(const char* id, gpu_info* out, error_text& err) {
    int32_t           index = 0;
    void*             device = nullptr;
    const gpu_driver* driver = find_driver(id, &index);
    if (!driver) return fail(err, DUET_ERR_DEVICE, "device '%s': no driver", id);
    DUET_TRY(driver->open(index, &device, out, err));
    driver->close(device);
    return DUET_OK;
}

double gpu_copy_gbps(const char* id) {
    constexpr int     kPasses = 3, kCopies = 8;
    error_text        err;
    int32_t           index = 0;
    gpu_info          info;
    void *            device = nullptr, *from = nullptr, *to = nullptr;
    const gpu_driver* driver = find_driver(id, &index);
    if (!driver || driver->open(index, &device, &info, err) != DUET_OK) return 0;
    const uint64_t n_bytes = std::clamp<uint64_t>(info.free_bytes / 8, 16u << 20, 1u << 30);   // beyond all caches
    double         best = 0;
    bool           ok = driver->alloc(device, n_bytes, &from, err) == DUET_OK && driver->alloc(device, n_bytes, &to, err) == DUET_OK;
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

}  // namespace duet

// runtime/device_choice.cpp: which of the devices a name means, and which one "auto" takes.
// Must not know: models, how drivers work.
// Main path: runtime/model.cpp -> [runtime/device_choice.cpp] -> runtime/device_list.cpp
#include "devices.h"

namespace duet {

gpu_found* best_gpu(std::vector<gpu_found>& all, std::string_view driver) {
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

duet_status choose_gpu(std::string_view name, std::string* id, error_text& err) {
    int32_t index = 0, n_devices = 0;
    const bool is_auto = name == "auto", is_exact = name.find(':') != std::string_view::npos;
    if (!is_auto && !find_driver(name, &index))
        return fail(err, DUET_ERR_ARG,
                    "device '%s': want auto, cpu, cuda, hip (or one of them as cuda:0), emu32 or emu64",
                    printable(name).c_str());
    if (is_emulator(name)) return *id = name, DUET_OK;
    if (is_auto && gpu_code_list() == "none")
        return fail(err, DUET_ERR_DEVICE,
                    "this build has no GPU code (make GPU_TARGETS=all, or its chip's name; run --devices tells more)");
    const std::string_view vendor = name.substr(0, name.find(':'));
    std::vector<gpu_found> all = list_gpus(is_auto ? "" : vendor);  // Another vendor's runtime may crash.
    const gpu_found* best = is_auto || is_exact ? nullptr : best_gpu(all, name);
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

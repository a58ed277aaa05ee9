// gpu/driver_hip.cpp: AMD's HIP runtime behind gpu/driver.h: names, chip, version rules; the work is gpu/driver_vendor.cpp's.
// Main path: gpu/launch.cpp -> gpu/driver.h -> [gpu/driver_hip.cpp] -> gpu/driver_vendor.cpp -> libamdhip64.so.7, .6 or .5
#include "driver_vendor.h"

#include <cstring>
#include <vector>

namespace duet {
namespace {

#if defined(_WIN32)
constexpr const char* kHipLibraries[] = {"amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll", nullptr};
#else
constexpr const char* kHipLibraries[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", nullptr};
#endif

// The chip's name is a string in a structure that grew from release to release (R0600 has 1,472 bytes, the one before 792). Both begin with
// the device's name in 256 bytes; after those, the only text that begins with "gfx" is the chip, in 256 bytes of its own. So it is looked
// for, in memory far larger than any of the structures.
duet_status hip_chip(const vendor_library& lib, int device, char (&chip)[32], error_text& err) {
    std::vector<char> properties(16384, 0);
    DUET_TRY(vendor_try(lib, device, err, lib.properties, (void*)properties.data(), device));
    for (size_t i = 256; i + sizeof chip < properties.size(); i++) {
        const char* at = &properties[i];
        if (memcmp(at, "gfx", 3) != 0) continue;
        const size_t n = strspn(at + 3, "0123456789abcdef") + 3;   // "gfx90a:sramecc+:xnack-": the rest is modes
        if (n < 6 || n >= sizeof chip) continue;
        memcpy(chip, at, n);
        chip[n] = 0;
        return DUET_OK;
    }
    return fail(err, DUET_ERR_DEVICE, "hip:%d: %s: want the chip's name (gfx...) in the properties, found none", device, lib.properties.name);
}

}  // namespace

// 5.3 brought the last of the entry points (hipGraphInstantiateWithFlags).
constexpr vendor kHip = {"hip", "HIP", kHipLibraries, "install AMD's HIP runtime (package hip-runtime-amd of ROCm, libamdhip64-5 of Debian)",
                         16,    10000000, 50300000, hip_chip};

}  // namespace duet

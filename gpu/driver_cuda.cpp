// gpu/driver_cuda.cpp: NVIDIA's driver behind gpu/driver.h: names, chip, version rules; the work is gpu/driver_vendor.cpp's.
// Main path: gpu/launch.cpp -> gpu/driver.h -> [gpu/driver_cuda.cpp] -> gpu/driver_vendor.cpp -> libcuda.so.1
#include "driver_vendor.h"

namespace duet {
namespace {

#if defined(_WIN32)
constexpr const char* kCudaLibraries[] = {"nvcuda.dll", nullptr};
#else
constexpr const char* kCudaLibraries[] = {"libcuda.so.1", nullptr};
#endif
constexpr int kCudaMajor = 75, kCudaMinor = 76;   // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...

duet_status cuda_chip(const vendor_library& lib, int device, char (&chip)[32], error_text& err) {
    int major = 0, minor = 0;
    DUET_TRY(vendor_try(lib, device, err, lib.attribute, &major, kCudaMajor, device));
    DUET_TRY(vendor_try(lib, device, err, lib.attribute, &minor, kCudaMinor, device));
    snprintf(chip, sizeof chip, "sm_%d%d", major, minor);
    return DUET_OK;
}

}  // namespace

// 11.4 brought the last of the entry points (cuGraphInstantiateWithFlags).
constexpr vendor kCuda = {"cuda", "CUDA", kCudaLibraries, "install NVIDIA's driver", 18, 1000, 11040, cuda_chip};

}  // namespace duet

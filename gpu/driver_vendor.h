// gpu/driver_vendor.h: what the drivers of CUDA and HIP share: the table of entry points with both names, and what a vendor adds to it.
// The two interfaces have the same calls with the same arguments in the same order (a CUdeviceptr is an integer of a pointer's size; enums
// are ints), so that one piece of code drives both. No SDK header is used. Must not know: ops, kernels' names.
// Sources of the signatures and numbers: NVIDIA's driver API reference and cuda.h; ROCm/rocm-systems:projects/hip/include/hip/
// hip_runtime_api.h (6, 7) and monorimet/rocm-5.5-libs:include/hip/hip_runtime_api.h (5): attribute numbers are the same in all three.
// Main path: gpu/driver.h -> gpu/driver_cuda.cpp, gpu/driver_hip.cpp -> [gpu/driver_vendor.h] -> the vendor's library
#pragma once
#include "driver.h"

namespace duet {

// X(member, arguments, CUDA's entry point, HIP's); nullptr: the vendor has none or it is not needed.
#define DUET_VENDOR_CALLS(X)                                                                                          \
    X(init, (unsigned flags), "cuInit", "hipInit")                                                                    \
    X(version, (int* version), "cuDriverGetVersion", "hipRuntimeGetVersion")                                          \
    X(count, (int* n), "cuDeviceGetCount", "hipGetDeviceCount")                                                       \
    X(device, (int* device, int index), "cuDeviceGet", "hipDeviceGet")                                                \
    X(device_name, (char* name, int n_bytes, int device), "cuDeviceGetName", "hipDeviceGetName")                      \
    X(device_memory, (size_t* n_bytes, int device), "cuDeviceTotalMem_v2", "hipDeviceTotalMem")                       \
    X(attribute, (int* value, int attribute, int device), "cuDeviceGetAttribute", "hipDeviceGetAttribute")            \
    X(properties, (void* properties, int device), nullptr, "hipGetDevicePropertiesR0600")                             \
    X(retain, (void** context, int device), "cuDevicePrimaryCtxRetain", nullptr)                                      \
    X(release, (int device), "cuDevicePrimaryCtxRelease_v2", nullptr)                                                 \
    X(push, (void* context), "cuCtxPushCurrent_v2", nullptr)                                                          \
    X(pop, (void** context), "cuCtxPopCurrent_v2", nullptr)                                                           \
    X(get_device, (int* device), nullptr, "hipGetDevice")                                                             \
    X(set_device, (int device), nullptr, "hipSetDevice")                                                              \
    X(memory_info, (size_t* n_free, size_t* n_all), "cuMemGetInfo_v2", "hipMemGetInfo")                               \
    X(alloc, (void** memory, size_t n_bytes), "cuMemAlloc_v2", "hipMalloc")                                           \
    X(free, (void* memory), "cuMemFree_v2", "hipFree")                                                                \
    X(alloc_host, (void** memory, size_t n_bytes, unsigned flags), "cuMemHostAlloc", "hipHostMalloc")                 \
    X(free_host, (void* memory), "cuMemFreeHost", "hipHostFree")                                                      \
    X(upload, (void* to, const void* from, size_t n_bytes, void* stream), "cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync")   \
    X(download, (void* to, void* from, size_t n_bytes, void* stream), "cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync")   \
    X(copy, (void* to, void* from, size_t n_bytes, void* stream), "cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync")       \
    X(fill, (void* at, unsigned char value, size_t n_bytes, void* stream), "cuMemsetD8Async", "hipMemsetD8Async")     \
    X(stream_create, (void** stream, unsigned flags), "cuStreamCreate", "hipStreamCreateWithFlags")                   \
    X(stream_destroy, (void* stream), "cuStreamDestroy_v2", "hipStreamDestroy")                                       \
    X(stream_sync, (void* stream), "cuStreamSynchronize", "hipStreamSynchronize")                                     \
    X(module_load, (void** module, const void* image), "cuModuleLoadData", "hipModuleLoadData")                       \
    X(module_unload, (void* module), "cuModuleUnload", "hipModuleUnload")                                             \
    X(function, (void** function, void* module, const char* name), "cuModuleGetFunction", "hipModuleGetFunction")     \
    X(launch, (void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared_bytes, \
               void* stream, void** args, void** extra), "cuLaunchKernel", "hipModuleLaunchKernel")                   \
    X(capture_begin, (void* stream, int mode), "cuStreamBeginCapture_v2", "hipStreamBeginCapture")                    \
    X(capture_end, (void* stream, void** graph), "cuStreamEndCapture", "hipStreamEndCapture")                         \
    X(instantiate, (void** exec, void* graph, unsigned long long flags), "cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags") \
    X(graph_destroy, (void* graph), "cuGraphDestroy", "hipGraphDestroy")                                              \
    X(graph_launch, (void* exec, void* stream), "cuGraphLaunch", "hipGraphLaunch")                                    \
    X(exec_destroy, (void* exec), "cuGraphExecDestroy", "hipGraphExecDestroy")

template <class F>
struct vendor_call {
    F*          at = nullptr;
    const char* name = nullptr;   // as in the library
};

struct vendor;
struct vendor_library {
    const vendor* v = nullptr;
    void*         handle = nullptr;
#define DUET_VENDOR_MEMBER(member, arguments, cuda, hip) vendor_call<int arguments> member;
    DUET_VENDOR_CALLS(DUET_VENDOR_MEMBER)
#undef DUET_VENDOR_MEMBER
    const char* (*hip_error_name)(int) = nullptr;
    const char* (*hip_error_text)(int) = nullptr;
    int (*cuda_error_name)(int, const char**) = nullptr;
    int (*cuda_error_text)(int, const char**) = nullptr;
};

// What differs.
struct vendor {
    const char*        name;              // "cuda"
    const char*        text;              // "CUDA"
    const char* const* libraries;         // file names, the newest first; nullptr ends
    const char*        install;           // what to do when none is there
    int                integrated;        // number of an attribute
    int                version_unit;      // driver's version number: major = n / unit, minor = n / (unit / 100) % 100 ...
    int                oldest;            // version number of the oldest driver with all entry points
    duet_status (*chip)(const vendor_library& lib, int device, char (&chip)[32], error_text& err);
};
extern const vendor kCuda, kHip;

duet_status vendor_fail(const vendor_library& lib, int index, const char* call, int code, error_text& err);

// Calls; a code that is not 0 becomes a status and a text that names device (none: -1), call and code.
template <class... P, class... A>
duet_status vendor_try(const vendor_library& lib, int index, error_text& err, const vendor_call<int(P...)>& call, A... args) {
    const int code = call.at(args...);
    return code == 0 ? DUET_OK : vendor_fail(lib, index, call.name, code, err);
}

}  // namespace duet

// tests/fake_hip.cpp: a stand-in for libamdhip64.so.6, built as a library of its own for tests/test_drivers.cpp. The
// signatures are those of hip_runtime_api.h. With DUET_FAKE_OLD_HIP it stands in for release 5, where the plain name
// hipGetDeviceProperties fills the older structure.
#define DUET_FAKE_GPU
#include "fake_gpu.h"

FAKE_CALL(hipInit, init, (unsigned flags), flags)
FAKE_CALL(hipRuntimeGetVersion, version, (int* v), v)
FAKE_CALL(hipGetDeviceCount, count, (int* n), n)
FAKE_CALL(hipDeviceGet, device, (int* d, int i), d, i)
FAKE_CALL(hipDeviceGetName, device_name, (char* out, int n, int d), out, n, d)
FAKE_CALL(hipDeviceTotalMem, device_memory, (size_t* n, int d), n, d)
FAKE_CALL(hipMemGetInfo, memory_info, (size_t* f, size_t* a), f, a)
FAKE_CALL(hipMalloc, allocate, (void** out, size_t n), fake::kind::memory, out, n)
FAKE_CALL(hipFree, release, (void* p), fake::kind::memory, p)
FAKE_CALL(hipHostMalloc, allocate, (void** out, size_t n, unsigned), fake::kind::host, out, n)
FAKE_CALL(hipHostFree, release, (void* p), fake::kind::host, p)
FAKE_CALL(hipMemcpyHtoDAsync, transfer, (void* to, const void* from, size_t n, void* s), to, from, n, s, true, false)
FAKE_CALL(hipMemcpyDtoHAsync, transfer, (void* to, void* from, size_t n, void* s), to, from, n, s, false, true)
FAKE_CALL(hipMemcpyDtoDAsync, transfer, (void* to, void* from, size_t n, void* s), to, from, n, s, true, true)
FAKE_CALL(hipMemsetD8Async, fill, (void* p, unsigned char value, size_t n, void* s), p, value, n, s)
FAKE_CALL(hipStreamCreateWithFlags, stream_create, (void** s, unsigned flags), s, flags)
FAKE_CALL(hipStreamDestroy, stream_destroy, (void* s), s)
FAKE_CALL(hipStreamSynchronize, stream_sync, (void* s), s)
FAKE_CALL(hipModuleLoadData, module_load, (void** m, const void* image), m, image)
FAKE_CALL(hipModuleUnload, module_unload, (void* m), m)
FAKE_CALL(hipModuleGetFunction, get_function, (void** f, void* m, const char* name), f, m, name)
FAKE_CALL(hipStreamBeginCapture, capture_begin, (void* s, int mode), s, mode)
FAKE_CALL(hipStreamEndCapture, capture_end, (void* s, void** graph), s, graph)
FAKE_CALL(hipGraphInstantiateWithFlags, instantiate, (void** exec, void* graph, unsigned long long flags), exec, graph,
          flags)
FAKE_CALL(hipGraphDestroy, destroy_works, (void* graph), graph, fake::kind::graph)
FAKE_CALL(hipThreadExchangeStreamCaptureMode, exchange_mode, (int* mode), mode)
FAKE_CALL(hipGraphLaunch, graph_launch, (void* exec, void* s), exec, s)
FAKE_CALL(hipGraphExecDestroy, destroy_works, (void* exec), exec, fake::kind::exec)

FAKE_EXPORT int hipModuleLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                      unsigned bz, unsigned shared, void* s, void** args, void** extra) {
    if (by != 1 || bz != 1 || extra || !args) return fake::misuse("hipModuleLaunchKernel", "unknown form");
    return fake::launch("hipModuleLaunchKernel", f, {gx, gy, gz, bx, shared}, s, args);
}

#if !defined(DUET_FAKE_OLD_HIP)  // It came with release 5.5.
FAKE_EXPORT int hipModuleLaunchCooperativeKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                                 unsigned by, unsigned bz, unsigned shared, void* s, void** args) {
    if (by != 1 || bz != 1 || !args) return fake::misuse("hipModuleLaunchCooperativeKernel", "unknown form");
    return fake::launch_walk("hipModuleLaunchCooperativeKernel", f, {gx, gy, gz, bx, shared}, s, args);
}
#endif

FAKE_EXPORT int hipDeviceGetAttribute(int* value, int attribute, int device) {
    FAKE_BEGIN("hipDeviceGetAttribute");
    switch (attribute) {
    case 16: *value = fake::control.integrated >> device & 1; return 0;
    case 63: *value = 96; return 0;
    case 74: *value = 64 << 10; return 0;
    default: return fake::kInvalid;
    }
}

// Only the fields up to the chip's name have to match the real structures: the device's name and numbers.
#if defined(DUET_FAKE_OLD_HIP)
constexpr int kChipAt = 396, kPropertiesBytes = 792;
#define PROPERTIES hipGetDeviceProperties
#else
constexpr int kChipAt = 1160, kPropertiesBytes = 1472;
#define PROPERTIES hipGetDevicePropertiesR0600
#endif
FAKE_EXPORT int PROPERTIES(void* out, int device) {
    FAKE_BEGIN("hipGetDeviceProperties");
    memset(out, 0x11, kPropertiesBytes);
    snprintf((char*)out, 256, "gfx9999 as a name");
    snprintf((char*)out + kChipAt, 256, "%s:sramecc+:xnack-", fake::control.chip[device]);
    return 0;
}

// The runtime's current device is 0 until a thread sets another.
FAKE_EXPORT int hipGetDevice(int* device) {
    FAKE_BEGIN("hipGetDevice");
    *device = fake::context.empty() ? 0 : fake::context.back();
    return 0;
}
FAKE_EXPORT int hipSetDevice(int device) {
    FAKE_BEGIN("hipSetDevice");
    fake::context = {device};
    return device < 0 || device >= fake::control.n_devices ? 101 : 0;
}

FAKE_EXPORT const char* hipGetErrorName(int code) {
    return code == fake::kNoMemory ? "hipErrorOutOfMemory"
           : code == fake::kLost   ? "hipErrorLaunchFailure"
                                   : "hipErrorUnknown";
}
FAKE_EXPORT const char* hipGetErrorString(int code) {
    return code == fake::kNoMemory ? "out of memory"
           : code == fake::kLost   ? "unspecified launch failure"
                                   : "unknown error";
}

// tests/fake_cuda.cpp: a stand-in for libcuda.so.1, built as a library of its own for tests/test_drivers.cpp. The
// signatures are those of cuda.h.
#define DUET_FAKE_GPU
#include "fake_gpu.h"

using ptr = unsigned long long;  // CUdeviceptr
namespace {
void* at(ptr p) { return (void*)(uintptr_t)p; }
char contexts[4];
int n_retained[4];
}  // namespace

FAKE_CALL(cuInit, init, (unsigned flags), flags)
FAKE_CALL(cuDriverGetVersion, version, (int* v), v)
FAKE_CALL(cuDeviceGetCount, count, (int* n), n)
FAKE_CALL(cuDeviceGet, device, (int* d, int i), d, i)
FAKE_CALL(cuDeviceGetName, device_name, (char* out, int n, int d), out, n, d)
FAKE_CALL(cuDeviceTotalMem_v2, device_memory, (size_t* n, int d), n, d)
FAKE_CALL(cuMemGetInfo_v2, memory_info, (size_t* f, size_t* a), f, a)
FAKE_CALL(cuMemAlloc_v2, allocate, (ptr * out, size_t n), fake::kind::memory, (void**)out, n)
FAKE_CALL(cuMemFree_v2, release, (ptr p), fake::kind::memory, at(p))
FAKE_CALL(cuMemHostAlloc, allocate, (void** out, size_t n, unsigned), fake::kind::host, out, n)
FAKE_CALL(cuMemFreeHost, release, (void* p), fake::kind::host, p)
FAKE_CALL(cuMemcpyHtoDAsync_v2, transfer, (ptr to, const void* from, size_t n, void* s), at(to), from, n, s, true,
          false)
FAKE_CALL(cuMemcpyDtoHAsync_v2, transfer, (void* to, ptr from, size_t n, void* s), to, at(from), n, s, false, true)
FAKE_CALL(cuMemcpyDtoDAsync_v2, transfer, (ptr to, ptr from, size_t n, void* s), at(to), at(from), n, s, true, true)
FAKE_CALL(cuMemsetD8Async, fill, (ptr p, unsigned char value, size_t n, void* s), at(p), value, n, s)
FAKE_CALL(cuStreamCreate, stream_create, (void** s, unsigned flags), s, flags)
FAKE_CALL(cuStreamDestroy_v2, stream_destroy, (void* s), s)
FAKE_CALL(cuStreamSynchronize, stream_sync, (void* s), s)
FAKE_CALL(cuModuleLoadData, module_load, (void** m, const void* image), m, image)
FAKE_CALL(cuModuleUnload, module_unload, (void* m), m)
FAKE_CALL(cuModuleGetFunction, get_function, (void** f, void* m, const char* name), f, m, name)
FAKE_CALL(cuStreamBeginCapture_v2, capture_begin, (void* s, int mode), s, mode)
FAKE_CALL(cuStreamEndCapture, capture_end, (void* s, void** graph), s, graph)
FAKE_CALL(cuGraphInstantiateWithFlags, instantiate, (void** exec, void* graph, unsigned long long flags), exec, graph,
          flags)
FAKE_CALL(cuGraphDestroy, destroy_works, (void* graph), graph, fake::kind::graph)
FAKE_CALL(cuThreadExchangeStreamCaptureMode, exchange_mode, (int* mode), mode)
FAKE_CALL(cuGraphLaunch, graph_launch, (void* exec, void* s), exec, s)
FAKE_CALL(cuGraphExecDestroy, destroy_works, (void* exec), exec, fake::kind::exec)

FAKE_EXPORT int cuLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                               unsigned shared, void* s, void** args, void** extra) {
    if (by != 1 || bz != 1 || extra || !args) return fake::misuse("cuLaunchKernel", "unknown form");
    return fake::launch("cuLaunchKernel", f, {gx, gy, gz, bx, shared}, s, args);
}

FAKE_EXPORT int cuLaunchCooperativeKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                          unsigned bz, unsigned shared, void* s, void** args) {
    if (by != 1 || bz != 1 || !args) return fake::misuse("cuLaunchCooperativeKernel", "unknown form");
    return fake::launch_walk("cuLaunchCooperativeKernel", f, {gx, gy, gz, bx, shared}, s, args);
}

// CUlaunchConfig and CUlaunchAttribute of cuda.h
FAKE_EXPORT int cuLaunchKernelEx(const void* config, void* f, void** args, void** extra) {
    struct attribute {
        int32_t id, pad, value[16];
    };
    struct launch_config {
        unsigned gx, gy, gz, bx, by, bz, shared;
        void* stream;
        const attribute* attributes;
        unsigned n_attributes;
    };
    static_assert(sizeof(attribute) == 72 && sizeof(launch_config) == 56);
    const launch_config& c = *(const launch_config*)config;
    if (c.by != 1 || c.bz != 1 || extra || !args || c.n_attributes != 1 || c.attributes->id != 6 ||
        c.attributes->value[0] != 1)
        return fake::misuse("cuLaunchKernelEx", "unknown form");
    fake::control.n_early++;
    return fake::launch("cuLaunchKernelEx", f, {c.gx, c.gy, c.gz, c.bx, c.shared}, c.stream, args);
}

FAKE_EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
    FAKE_BEGIN("cuDeviceGetAttribute");
    const int chip = atoi(fake::control.chip[device] + 3);
    switch (attribute) {
    case 75: *value = chip / 10; return 0;
    case 76: *value = chip % 10; return 0;
    case 18: *value = fake::control.integrated >> device & 1; return 0;
    case 16: *value = 132; return 0;
    case 8: *value = 48 << 10; return 0;
    default: return fake::kInvalid;
    }
}

FAKE_EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
    FAKE_BEGIN("cuDevicePrimaryCtxRetain");
    n_retained[device]++;
    fake::control.n_live++;
    *context = &contexts[device];
    return 0;
}
FAKE_EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
    const int chosen = fake::begin("cuDevicePrimaryCtxRelease_v2");
    if (n_retained[device]-- <= 0) return fake::misuse("cuDevicePrimaryCtxRelease_v2", "more often than retained");
    fake::control.n_live--;
    return chosen;
}
FAKE_EXPORT int cuCtxPushCurrent_v2(void* context) {
    FAKE_BEGIN("cuCtxPushCurrent_v2");
    const int device = (int)((char*)context - contexts);
    if (device < 0 || device > 3 || !n_retained[device]) return fake::misuse("cuCtxPushCurrent_v2", "not a context");
    fake::context.push_back(device);
    return 0;
}
FAKE_EXPORT int cuCtxPopCurrent_v2(void** context) {
    const int chosen = fake::begin("cuCtxPopCurrent_v2");
    if (fake::context.empty()) return fake::misuse("cuCtxPopCurrent_v2", "more often than pushed");
    *context = &contexts[fake::context.back()];
    fake::context.pop_back();
    return chosen;
}

FAKE_EXPORT int cuGetErrorName(int code, const char** out) {
    *out = code == fake::kNoMemory ? "CUDA_ERROR_OUT_OF_MEMORY"
           : code == fake::kLost   ? "CUDA_ERROR_LAUNCH_FAILED"
                                   : nullptr;
    return *out ? 0 : 1;
}
FAKE_EXPORT int cuGetErrorString(int code, const char** out) {
    *out = code == fake::kNoMemory ? "out of memory" : code == fake::kLost ? "unspecified launch failure" : nullptr;
    return *out ? 0 : 1;
}

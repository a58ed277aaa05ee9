// gpu/driver_cuda_hip.cpp: CUDA's and HIP's devices behind gpu/driver.h. Every error becomes a status that names
// device, call and code. The two interfaces have the same calls with the same arguments in the same order (a
// CUdeviceptr is an integer of a pointer's size; enums are ints), so one piece of code drives both, without SDK
// headers. Owns: libraries, contexts, streams, modules. A library stays loaded, because its threads need it; nothing
// else is global. Must not know: ops, kernels' names. Sources of the signatures and numbers: NVIDIA's driver API
// reference and cuda.h; ROCm/rocm-systems:projects/hip/include/hip/hip_runtime_api.h (6, 7) and
// monorimet/rocm-5.5-libs:include/hip/hip_runtime_api.h (5). Attribute numbers are the same in all three.
// Main path: gpu/launch.cpp -> gpu/driver.h -> [gpu/driver_cuda_hip.cpp] -> libcuda.so.1; libamdhip64.so.7, .6 or .5
#include "driver.h"
#include "simt.h"
#include "../models/os.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

namespace duet {
namespace {

constexpr int kOutOfMemory = 2, kNoDevice = 100;                 // the same numbers in both interfaces
constexpr int kNonBlocking = 1, kThreadLocal = 1, kRelaxed = 2;  // flag of a stream, modes of a capture
constexpr int kUnitBlocks = 2;                                   // of 256 threads, for which kernels keep registers
constexpr int kEarlyDriver = 12030;              // CUDA 12.3 is the first that records launches that start early
constexpr int kCudaMajor = 75, kCudaMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...

#define DUET_LAUNCH                                                                                                    \
    void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,                      \
        unsigned shared_bytes, void *stream, void **args
// X(member, arguments, CUDA's entry point, HIP's). nullptr: the vendor has no such call, or it is not needed.
#define DUET_VENDOR_CALLS(X)                                                                                           \
    X(init, (unsigned flags), "cuInit", "hipInit")                                                                     \
    X(version, (int* version), "cuDriverGetVersion", "hipRuntimeGetVersion")                                           \
    X(count, (int* n), "cuDeviceGetCount", "hipGetDeviceCount")                                                        \
    X(device, (int* device, int index), "cuDeviceGet", "hipDeviceGet")                                                 \
    X(device_name, (char* name, int n_bytes, int device), "cuDeviceGetName", "hipDeviceGetName")                       \
    X(device_memory, (size_t* n_bytes, int device), "cuDeviceTotalMem_v2", "hipDeviceTotalMem")                        \
    X(attribute, (int* value, int attribute, int device), "cuDeviceGetAttribute", "hipDeviceGetAttribute")             \
    X(properties, (void* properties, int device), nullptr, "hipGetDevicePropertiesR0600")                              \
    X(retain, (void** context, int device), "cuDevicePrimaryCtxRetain", nullptr)                                       \
    X(release, (int device), "cuDevicePrimaryCtxRelease_v2", nullptr)                                                  \
    X(push, (void* context), "cuCtxPushCurrent_v2", nullptr)                                                           \
    X(pop, (void** context), "cuCtxPopCurrent_v2", nullptr)                                                            \
    X(get_device, (int* device), nullptr, "hipGetDevice")                                                              \
    X(set_device, (int device), nullptr, "hipSetDevice")                                                               \
    X(memory_info, (size_t* n_free, size_t* n_all), "cuMemGetInfo_v2", "hipMemGetInfo")                                \
    X(alloc, (void** memory, size_t n_bytes), "cuMemAlloc_v2", "hipMalloc")                                            \
    X(free, (void* memory), "cuMemFree_v2", "hipFree")                                                                 \
    X(alloc_host, (void** memory, size_t n_bytes, unsigned flags), "cuMemHostAlloc", "hipHostMalloc")                  \
    X(free_host, (void* memory), "cuMemFreeHost", "hipHostFree")                                                       \
    X(upload, (void* to, const void* from, size_t n, void* stream), "cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync")      \
    X(download, (void* to, void* from, size_t n_bytes, void* stream), "cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync")    \
    X(copy, (void* to, void* from, size_t n_bytes, void* stream), "cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync")        \
    X(fill, (void* at, unsigned char value, size_t n_bytes, void* stream), "cuMemsetD8Async", "hipMemsetD8Async")      \
    X(stream_create, (void** stream, unsigned flags), "cuStreamCreate", "hipStreamCreateWithFlags")                    \
    X(stream_destroy, (void* stream), "cuStreamDestroy_v2", "hipStreamDestroy")                                        \
    X(stream_sync, (void* stream), "cuStreamSynchronize", "hipStreamSynchronize")                                      \
    X(module_load, (void** module, const void* image), "cuModuleLoadData", "hipModuleLoadData")                        \
    X(module_unload, (void* module), "cuModuleUnload", "hipModuleUnload")                                              \
    X(function, (void** function, void* module, const char* name), "cuModuleGetFunction", "hipModuleGetFunction")      \
    X(launch, (DUET_LAUNCH, void** extra), "cuLaunchKernel", "hipModuleLaunchKernel")                                  \
    X(capture_begin, (void* stream, int mode), "cuStreamBeginCapture_v2", "hipStreamBeginCapture")                     \
    X(capture_end, (void* stream, void** graph), "cuStreamEndCapture", "hipStreamEndCapture")                          \
    X(instantiate, (void** exec, void* graph, unsigned long long flags), "cuGraphInstantiateWithFlags",                \
      "hipGraphInstantiateWithFlags")                                                                                  \
    X(graph_destroy, (void* graph), "cuGraphDestroy", "hipGraphDestroy")                                               \
    X(exchange_mode, (int* mode), "cuThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode")           \
    X(graph_launch, (void* exec, void* stream), "cuGraphLaunch", "hipGraphLaunch")                                     \
    X(exec_destroy, (void* exec), "cuGraphExecDestroy", "hipGraphExecDestroy")
// Calls that an older library may lack. launch_with: with attributes, from CUDA 11.8 on.
#define DUET_VENDOR_EXTRAS(X)                                                                                          \
    X(launch_resident, (DUET_LAUNCH), "cuLaunchCooperativeKernel", "hipModuleLaunchCooperativeKernel")                 \
    X(launch_with, (const void* config, void* function, void** args, void** extra), "cuLaunchKernelEx", nullptr)       \
    X(error_name, (int code, const char** name), "cuGetErrorName", nullptr)                                            \
    X(error_text, (int code, const char** text), "cuGetErrorString", nullptr)                                          \
    X(last_error, (), nullptr, "hipGetLastError")

template <class F>
struct vendor_call {
    F* at = nullptr;
    const char* name = nullptr;  // name in the library
};

struct vendor;
struct vendor_library {
    const vendor* v = nullptr;
    std::shared_ptr<void> handle;
#define DUET_VENDOR_MEMBER(member, arguments, cuda, hip) vendor_call<int arguments> member;
    DUET_VENDOR_CALLS(DUET_VENDOR_MEMBER)
    DUET_VENDOR_EXTRAS(DUET_VENDOR_MEMBER)
#undef DUET_VENDOR_MEMBER
    int driver_version = 0;
    const char* (*hip_error_name)(int) = nullptr;
    const char* (*hip_error_text)(int) = nullptr;
};

// What differs between the vendors.
struct vendor {
    const char* name;              // "cuda"
    const char* text;              // "CUDA"
    const char* const* libraries;  // file names, the newest first; nullptr ends
    const char* install;           // what the user should do when no library is found
    int integrated, units;         // numbers of the attributes "integrated", "multiprocessors"
    int version_unit;              // driver's version number: major = n / unit, minor = n % unit / (unit / 100)
    int oldest;                    // oldest driver version that has all entry points
    unsigned host_flags;           // of pinned memory: devices see it, and no cache keeps it
    duet_status (*chip)(const vendor_library& lib, int device, char (&chip)[32], error_text& err);
};

duet_status vendor_fail(const vendor_library& lib, int index, const char* call, int code, error_text& err) {
    const char *name = nullptr, *text = nullptr;
    if (index < 0 && code == kNoDevice) return fail(err, DUET_ERR_DEVICE, "the %s driver finds no device", lib.v->text);
    if (lib.error_name.at && lib.error_name.at(code, &name) != 0) name = nullptr;
    if (lib.error_text.at && lib.error_text.at(code, &text) != 0) text = nullptr;
    if (lib.hip_error_name) name = lib.hip_error_name(code);
    if (lib.hip_error_text) text = lib.hip_error_text(code);
    if (lib.last_error.at) lib.last_error.at();  // else the application's next check finds it
    char where[32] = "";
    if (index >= 0) snprintf(where, sizeof where, ":%d", index);
    return fail(err, code == kOutOfMemory ? DUET_ERR_MEMORY : DUET_ERR_DEVICE, "%s%s: %s: error %d, %s: %s",
                lib.v->name, where, call, code, name ? name : "unknown", text ? text : "no text");
}

// Makes a call. A code other than 0 becomes a status and a text. index: of the device; -1: none.
template <class... P, class... A>
duet_status vendor_try(const vendor_library& lib, int index, error_text& err, const vendor_call<int(P...)>& call,
                       A... args) {
    const int code = call.at(args...);
    return code == 0 ? DUET_OK : vendor_fail(lib, index, call.name, code, err);
}

#if defined(_WIN32)
constexpr const char* kCudaLibraries[] = {"nvcuda.dll", nullptr};
constexpr const char* kHipLibraries[] = {"amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll", nullptr};
constexpr const char *kCudaInstall = "install NVIDIA's driver", *kHipInstall = "install AMD's driver";
#else
constexpr const char* kCudaInstall = "install NVIDIA's driver; a container needs --gpus all";
constexpr const char* kCudaLibraries[] = {"libcuda.so.1", nullptr};
// ROCm's packages need not tell the loader of its folder.
#define DUET_HIP_IN(folder) folder "libamdhip64.so.7", folder "libamdhip64.so.6", folder "libamdhip64.so.5"
constexpr const char* kHipLibraries[] = {DUET_HIP_IN(""), "libamdhip64.so", DUET_HIP_IN("/opt/rocm/lib/"),
                                         DUET_HIP_IN("/opt/rocm/core/lib/"), nullptr};
constexpr const char* kHipInstall = "install AMD's HIP runtime (hip-runtime-amd of ROCm, libamdhip64-5 of Debian 13) "
                                    "or name its folder in LD_LIBRARY_PATH";
#endif

duet_status cuda_chip(const vendor_library& lib, int device, char (&chip)[32], error_text& err) {
    int major = 0, minor = 0;
    DUET_TRY(vendor_try(lib, device, err, lib.attribute, &major, kCudaMajor, device));
    DUET_TRY(vendor_try(lib, device, err, lib.attribute, &minor, kCudaMinor, device));
    snprintf(chip, sizeof chip, "sm_%d%d", major, minor);
    return DUET_OK;
}

// The chip's name is a string in a structure that grew from release to release (R0600 has 1,472 bytes, the one before
// 792). Both begin with the device's name in 256 bytes. After it, the chip's name, in 256 bytes of its own, is the only
// text that begins with "gfx". So this function searches for it, in memory far larger than any of the structures.
duet_status hip_chip(const vendor_library& lib, int device, char (&chip)[32], error_text& err) {
    std::string properties(16384, 0);
    DUET_TRY(vendor_try(lib, device, err, lib.properties, (void*)properties.data(), device));
    for (size_t i = properties.find("gfx", 256); i < properties.size() - sizeof chip;
         i = properties.find("gfx", i + 1)) {
        // "gfx90a:sramecc+:xnack-": modes follow the name.
        const size_t n = properties.find_first_not_of("0123456789abcdef", i + 3) - i;
        if (n < 6 || n >= sizeof chip) continue;
        chip[properties.copy(chip, n, i)] = 0;
        return DUET_OK;
    }
    return fail(err, DUET_ERR_DEVICE, "hip:%d: %s: want the chip's name (gfx...) in the properties, found none", device,
                lib.properties.name);
}

// CUDA 11.4 brought the last of the entry points; before HIP 5.3 launches were done while they were recorded.
constexpr vendor kCuda = {"cuda", "CUDA", kCudaLibraries, kCudaInstall, 18, 16, 1000, 11040, 2, cuda_chip};
constexpr vendor kHip = {"hip", "HIP", kHipLibraries, kHipInstall, 16, 63, 10000000, 50300000, 0x40000002, hip_chip};

// ---- opening a library ----
duet_status load_library(const vendor& v, vendor_library* lib, error_text& err) {
    const bool is_cuda = &v == &kCuda;
    lib->v = &v;
    const char* const asked[] = {is_cuda ? gpu_setup().cuda_library : gpu_setup().hip_library, nullptr};
    std::string tried, why;
    for (const bool loaded : {true, false})  // A second runtime beside the application's may not start.
        for (const char* const* name = *asked ? asked : v.libraries; *name && !lib->handle; name++) {
            if (void* opened = os_open_library(*name, loaded, &why)) lib->handle.reset(opened, os_close_library);
            if (!loaded || lib->handle) tried += (tried.empty() ? "" : ", ") + std::string(*name);
        }
    if (!lib->handle)
        return fail(err, DUET_ERR_DEVICE, "no driver for %s: %s; %s", v.text,
                    (why.empty() ? tried + " not found" : why).c_str(), v.install);
    const char* missing = nullptr;
    auto find = [&]<class F>(const char* name, F** to) { return (*to = (F*)os_find_symbol(lib->handle.get(), name)); };
#define DUET_VENDOR_FIND(member, arguments, cuda, hip)                                                                 \
    lib->member.name = is_cuda ? (cuda) : (hip);                                                                       \
    if (lib->member.name && !find(lib->member.name, &lib->member.at)) missing = lib->member.name;
    DUET_VENDOR_EXTRAS(DUET_VENDOR_FIND)
    missing = nullptr;
    DUET_VENDOR_CALLS(DUET_VENDOR_FIND)
#undef DUET_VENDOR_FIND
    if (!is_cuda) {  // A library may load one of the other vendor's names.
        find("hipGetErrorName", &lib->hip_error_name);
        find("hipGetErrorString", &lib->hip_error_text);
    }
    // Before version 6 the plain name has the older structure.
    if (!lib->properties.at && find("hipGetDeviceProperties", &lib->properties.at)) {
        if (missing == lib->properties.name) missing = nullptr;
        lib->properties.name = "hipGetDeviceProperties";
    }
    if (missing)
        return fail(err, DUET_ERR_DEVICE, "%s: no entry point %s: the driver is too old; %s", tried.c_str(), missing,
                    v.install);
    return DUET_OK;
}

std::string version_text(const vendor& v, int version) {
    const int minor = version % v.version_unit / (v.version_unit / 100);
    return std::string(v.text) + " " + std::to_string(version / v.version_unit) + "." + std::to_string(minor);
}

// Loads the library and asks it for the number of devices. This makes no context.
duet_status start_vendor(const vendor& v, vendor_library* lib, int* n, error_text& err) {
    DUET_TRY(load_library(v, lib, err));
    DUET_TRY(vendor_try(*lib, -1, err, lib->init, 0u));
    DUET_TRY(vendor_try(*lib, -1, err, lib->version, &lib->driver_version));
    if (lib->driver_version < v.oldest)
        return fail(err, DUET_ERR_DEVICE, "the driver is too old: want %s or newer, found %s; %s",
                    version_text(v, v.oldest).c_str(), version_text(v, lib->driver_version).c_str(), v.install);
    DUET_TRY(vendor_try(*lib, -1, err, lib->count, n));
    return *n > 0 ? DUET_OK : vendor_fail(*lib, -1, lib->count.name, kNoDevice, err);
}

// The row of targets.def for a chip or its code: "gfx1100", "sm_90", "compute_120_q4_K".
gpu_target row_of(const char* chip) {
    return chip[0] == 'g' ? target_of(chip) : target_of(atoi(strchr(chip, '_') + 1) * 10);
}

// Before HIP 6.2 the runtime does not tell of them that they share the processor's memory.
constexpr char kApus[] = "gfx902 gfx909 gfx90c gfx1013 gfx1033 gfx1035 gfx1036 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153";

duet_status describe_device(const vendor_library& lib, int index, int* device, gpu_info* info, error_text& err) {
    const vendor& v = *lib.v;
    const int version = lib.driver_version;
    int integrated = 0;
    size_t memory = 0;
    snprintf(info->driver, sizeof info->driver, "%s", version_text(v, version).c_str());
    DUET_TRY(vendor_try(lib, index, err, lib.device, device, index));
    DUET_TRY(vendor_try(lib, index, err, lib.device_name, info->name, (int)sizeof info->name - 1, *device));
    DUET_TRY(vendor_try(lib, index, err, lib.device_memory, &memory, *device));
    DUET_TRY(vendor_try(lib, index, err, lib.attribute, &integrated, v.integrated, *device));
    DUET_TRY(vendor_try(lib, index, err, lib.attribute, &info->n_units, v.units, *device));
    if (lib.launch_resident.at) info->n_resident = kUnitBlocks * info->n_units;
    info->memory_bytes = memory;
    DUET_TRY(v.chip(lib, *device, info->chip, err));
    info->is_integrated = integrated != 0 || strstr(kApus, info->chip);
    // Played recordings saw old data with HIP 7.2 (ROCm/hip#3887, ROCm/clr#279), on gfx950 always (ROCm/hip#3902).
    if (version / 100000 == 702 || !strcmp(info->chip, "gfx950")) info->recording = gpu_recording_use::off;
    else if (row_of(info->chip).decode == gpu_decode::walk) info->recording = gpu_recording_use::walk;
    const gpu_code* code = find_gpu_code(info->chip);
    if (!code)
        return fail(err, DUET_ERR_UNSUPPORTED,
                    "%s:%d: no code for this chip (%s) was built in (there is: %s); build with: make GPU_TARGETS=%s",
                    v.name, index, info->chip, gpu_code_list().c_str(), info->chip);
    info->has_fast = has_float_tiles(row_of(code->chip));  // Code for an older chip, which this one runs, may lack it.
    info->starts_early = lib.launch_with.at && version >= kEarlyDriver && row_of(code->chip).start == gpu_start::early;
    if (!strcmp(code->chip, "sm_90")) info->vec_blocks = 4;
    if (version < code->driver)
        return fail(err, DUET_ERR_DEVICE,
                    "%s:%d: the driver is too old for the code that was built in: want %s, found %s; %s", v.name, index,
                    version_text(v, code->driver).c_str(), info->driver, v.install);
    return DUET_OK;
}

// ---- an open device ----
struct vendor_device {
    vendor_library lib;
    int index = 0, device = 0;
    void *context = nullptr, *stream = nullptr;
    std::string chip = {};
    // Loaded modules. Some runtimes go on reading the bytes, so they stay until the modules are gone.
    struct loaded {
        const gpu_code* code;
        void* module;
        std::vector<uint8_t> bytes;
    };
    std::vector<loaded> modules = {};
    vendor_device* owner = nullptr;        // not null: this is a queue of that device, and only the stream is its own
    std::atomic<bool> starts_early{true};  // All code that is loaded waits for the launches before by itself.
    bool is_recording = false, record_failed = false;

    template <class F, class... A>
    duet_status call(error_text& err, const vendor_call<F>& what, A... args) {
        const duet_status st = vendor_try(lib, index, err, what, args...);
        record_failed = record_failed || st != DUET_OK;
        return st;
    }
};

// Makes d the thread's current device while this object lives, and restores the one before. Meanwhile the thread's
// calls do not disturb an application that captures on another thread.
struct vendor_scope {
    vendor_device& d;
    int before = -1, mode = kRelaxed;
    const bool is_relaxed = d.lib.exchange_mode.at(&mode) == 0;
    duet_status st;
    vendor_scope(vendor_device& device, error_text& err) : d(device), st(enter(err)) {}
    vendor_scope(const vendor_scope&) = delete;
    duet_status enter(error_text& err) {
        if (d.lib.push.at) return d.call(err, d.lib.push, d.context);
        DUET_TRY(d.call(err, d.lib.get_device, &before));
        return d.call(err, d.lib.set_device, d.device);
    }
    ~vendor_scope() {
        void* context = nullptr;
        if (is_relaxed) d.lib.exchange_mode.at(&mode);
        if (st != DUET_OK) return;
        if (d.lib.pop.at) d.lib.pop.at(&context);
        else if (before != d.device) d.lib.set_device.at(before);
    }
};
#define DUET_ENTER(pointer)                                                                                            \
    vendor_device& d = *(vendor_device*)pointer;                                                                       \
    const vendor_scope here(d, err);                                                                                   \
    DUET_TRY(here.st)

void vendor_close(void* device) {
    std::unique_ptr<vendor_device> d((vendor_device*)device);
    if (d->context || !d->lib.retain.at) {
        error_text err;
        const vendor_scope here(*d, err);
        void* graph = nullptr;
        if (d->is_recording && d->lib.capture_end.at(d->stream, &graph) == 0 && graph) d->lib.graph_destroy.at(graph);
        for (const vendor_device::loaded& m : d->modules) d->lib.module_unload.at(m.module);
        if (d->stream) d->lib.stream_destroy.at(d->stream);
    }
    if (d->context && !d->owner) d->lib.release.at(d->device);
}

duet_status vendor_queue(void* device, void** queue, error_text& err) {
    DUET_ENTER(device);
    std::unique_ptr<vendor_device> q(
        new vendor_device{.lib = d.lib, .index = d.index, .device = d.device, .context = d.context, .owner = &d});
    DUET_TRY(q->call(err, d.lib.stream_create, &q->stream, (unsigned)kNonBlocking));
    *queue = q.release();
    return DUET_OK;
}

duet_status vendor_sync(void* device, error_text& err) {
    DUET_ENTER(device);
    return d.call(err, d.lib.stream_sync, d.stream);
}

template <auto kCall>
void give_back(void* device, void* what) {
    vendor_device& d = *(vendor_device*)device;
    error_text err;
    if (!what) return;
    const vendor_scope here(d, err);
    (d.lib.*kCall).at(what);
}

duet_status add_size(duet_status st, uint64_t n_bytes, error_text& err) {
    if (st != DUET_OK) err.text += ", wanted " + std::to_string(n_bytes) + " bytes";
    return st;
}

duet_status vendor_alloc(void* device, uint64_t n_bytes, void** out, error_text& err) {
    DUET_ENTER(device);
    *out = nullptr;
    DUET_TRY(add_size(d.call(err, d.lib.alloc, out, (size_t)std::max<uint64_t>(n_bytes, 1)), n_bytes, err));
    if (n_bytes == 0) return DUET_OK;
    const duet_status st = d.call(err, d.lib.fill, *out, (unsigned char)0, (size_t)n_bytes, d.stream);
    if (st != DUET_OK) give_back<&vendor_library::free>(device, std::exchange(*out, nullptr));
    return st;
}

duet_status vendor_alloc_host(void* device, uint64_t n_bytes, void** out, error_text& err) {
    DUET_ENTER(device);
    *out = nullptr;
    DUET_TRY(add_size(d.call(err, d.lib.alloc_host, out, (size_t)std::max<uint64_t>(n_bytes, 1), d.lib.v->host_flags),
                      n_bytes, err));
    memset(*out, 0, (size_t)n_bytes);
    return DUET_OK;
}

void vendor_free_host(void* device, void* memory) {
    error_text err;
    if (memory) vendor_sync(device, err);  // An upload may still read it.
    give_back<&vendor_library::free_host>(device, memory);
}

template <auto kCall, bool Waits = false>
duet_status vendor_move(void* device, void* to, const void* from, uint64_t n_bytes, error_text& err) {
    if (n_bytes == 0) return DUET_OK;
    DUET_ENTER(device);
    DUET_TRY(d.call(err, d.lib.*kCall, to, (void*)from, (size_t)n_bytes, d.stream));
    return Waits ? d.call(err, d.lib.stream_sync, d.stream) : DUET_OK;
}

duet_status load_module(vendor_device& d, const gpu_code& code, error_text& err) {
    std::vector<uint8_t> bytes;
    if (!unpack_gpu_code(code, &bytes))
        return fail(err, DUET_ERR_FORMAT, "%s:%d: the code for %s in this program is damaged", d.lib.v->name, d.index,
                    code.chip);
    void* module = nullptr;
    DUET_TRY(d.call(err, d.lib.module_load, &module, (const void*)bytes.data()));
    d.modules.push_back({&code, module, std::move(bytes)});
    if (row_of(code.chip).start != gpu_start::early) d.starts_early = false;
    return DUET_OK;
}

// The first kernel of a module loads it, so that nobody waits for the translation of formats that his model lacks.
duet_status vendor_kernel(void* device, const char* part, const char* name, void** to, int32_t* tile, error_text& err) {
    DUET_ENTER(device);
    const gpu_code* code = find_gpu_code(d.chip, part);
    const gpu_code* text = find_gpu_code(d.chip, part, true);  // for a chip that does not run a relative's code
    auto found = std::ranges::find_if(d.modules, [&](const auto& m) { return m.code == code || m.code == text; });
    if (found == d.modules.end()) {
        if (!code)
            return fail(err, DUET_ERR_UNSUPPORTED, "%s:%d: no code of %s for %s", d.lib.v->name, d.index, part,
                        d.chip.c_str());
        duet_status st = load_module(d, *code, err);
        if (st == DUET_ERR_DEVICE && text && text != code && code->chip != d.chip) st = load_module(d, *text, err);
        DUET_TRY(st);
        found = d.modules.end() - 1;
        if (const int n = tile_threads(has_fragments(row_of(found->code->chip))); *tile != n) *tile = n;
    }
    const duet_status st = d.call(err, d.lib.function, to, found->module, name);
    if (st != DUET_OK) err.text += std::string(", kernel ") + name;
    return st;
}

duet_status vendor_launch(void* device, void* kernel, const gpu_grid& grid, const void* args, size_t, error_text& err) {
    DUET_ENTER(device);
    void* one[] = {(void*)args};  // The driver copies the arguments during the call.
    if (grid.is_resident)
        return d.call(err, d.lib.launch_resident, kernel, grid.x, grid.y, grid.z, grid.threads, 1u, 1u,
                      grid.shared_bytes, d.stream, (void**)one);
    if (d.lib.launch_with.at && d.lib.driver_version >= kEarlyDriver && (d.owner ? d.owner : &d)->starts_early) {
        // CUlaunchAttribute and CUlaunchConfig of cuda.h. The launch may start before the one before it ends.
        struct {
            int32_t id = 6, unused = 0;  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            int32_t value[16] = {1};
        } attribute;
        struct {
            uint32_t grid[3], block[3], shared_bytes;
            void *stream, *attributes;
            uint32_t n_attributes;
        } config = {{grid.x, grid.y, grid.z}, {grid.threads, 1, 1}, grid.shared_bytes, d.stream, &attribute, 1};
        return d.call(err, d.lib.launch_with, (const void*)&config, kernel, (void**)one, (void**)nullptr);
    }
    return d.call(err, d.lib.launch, kernel, grid.x, grid.y, grid.z, grid.threads, 1u, 1u, grid.shared_bytes, d.stream,
                  (void**)one, (void**)nullptr);
}

duet_status vendor_record_begin(void* device, error_text& err) {
    DUET_ENTER(device);
    DUET_TRY(d.call(err, d.lib.stream_sync, d.stream));  // A recording that fails takes the stream with it.
    DUET_TRY(d.call(err, d.lib.capture_begin, d.stream, kThreadLocal));
    d.is_recording = true, d.record_failed = false;
    return DUET_OK;
}

duet_status vendor_record_end(void* device, void** recording, error_text& err) {
    DUET_ENTER(device);
    void* graph = *recording = nullptr;
    if (!d.is_recording) return fail(err, DUET_ERR_STATE, "%s:%d: no recording was begun", d.lib.v->name, d.index);
    duet_status st = d.call(err, d.lib.capture_end, d.stream, &graph);
    d.is_recording = false;
    // HIP leaves the stream unusable after a capture that another thread has disturbed. No work waits in it.
    if (void* fresh; st != DUET_OK && d.lib.stream_create.at(&fresh, (unsigned)kNonBlocking) == 0)
        d.lib.stream_destroy.at(std::exchange(d.stream, fresh));
    if (st == DUET_OK && d.record_failed)
        st = fail(err, DUET_ERR_STATE, "%s:%d: a call failed while it was recorded", d.lib.v->name, d.index);
    if (st == DUET_OK) st = d.call(err, d.lib.instantiate, recording, graph, 0ull);
    if (graph) d.lib.graph_destroy.at(graph);
    return st;
}

duet_status vendor_play(void* device, void* recording, error_text& err) {
    DUET_ENTER(device);
    return d.call(err, d.lib.graph_launch, recording, d.stream);
}

template <const vendor& kVendor>
duet_status vendor_count(int32_t* n, error_text& err) {
    vendor_library lib;
    *n = 0;
    return start_vendor(kVendor, &lib, n, err);
}

template <const vendor& kVendor>
duet_status vendor_describe(int32_t index, gpu_info* info, error_text& err) {
    vendor_library lib;
    int count = 0, device = 0;
    DUET_TRY(start_vendor(kVendor, &lib, &count, err));
    return describe_device(lib, index, &device, info, err);
}

// Opens the process's own context of the device. All that open the device share its memory.
duet_status open_device(vendor_device& opened, gpu_info* info, error_text& err) {
    if (opened.lib.retain.at) DUET_TRY(opened.call(err, opened.lib.retain, &opened.context, opened.device));
    DUET_ENTER(&opened);
    DUET_TRY(d.call(err, d.lib.stream_create, &d.stream, (unsigned)kNonBlocking));
    size_t n_free = 0, n_all = 0;
    DUET_TRY(d.call(err, d.lib.memory_info, &n_free, &n_all));
    n_free = std::min(n_free, n_all);  // HIP 7.13 tells more than all for gfx1151.
    // An NVIDIA chip that shares the computer's memory counts the files that the system keeps there as used.
    const bool is_shared = info->is_integrated && d.lib.v == &kCuda;
    info->free_bytes = is_shared ? std::clamp<uint64_t>(os_describe().free_bytes, n_free, n_all) : n_free;
    // Where a chip shares the computer's memory, the attribute tells a part set aside, and this the whole.
    info->memory_bytes = std::max<uint64_t>(info->memory_bytes, n_all);
    return DUET_OK;
}

template <const vendor& kVendor> duet_status vendor_open(int32_t index, void** to, gpu_info* info, error_text& err) {
    auto d = std::make_unique<vendor_device>();
    d->index = index;
    int count = 0;
    DUET_TRY(start_vendor(kVendor, &d->lib, &count, err));
    if (index < 0 || index >= count)
        return fail(err, DUET_ERR_DEVICE, "%s:%d: this machine has %d of these devices", kVendor.name, index, count);
    DUET_TRY(describe_device(d->lib, index, &d->device, info, err));
    d->chip = info->chip;
    const duet_status st = open_device(*d, info, err);
    if (st != DUET_OK) vendor_close(d.release());
    else *to = d.release();
    return st;
}

constexpr auto vendor_free = give_back<&vendor_library::free>;
constexpr auto vendor_free_recording = give_back<&vendor_library::exec_destroy>;
constexpr auto vendor_upload = vendor_move<&vendor_library::upload>, vendor_copy = vendor_move<&vendor_library::copy>;
constexpr auto vendor_download = vendor_move<&vendor_library::download, true>;
template <const vendor& kVendor>
// clang-format off
constexpr gpu_driver kVendorDriver = {
    kVendor.name, vendor_count<kVendor>, vendor_describe<kVendor>, vendor_open<kVendor>, vendor_queue, vendor_close,
    vendor_alloc, vendor_free, vendor_alloc_host, vendor_free_host, vendor_upload, vendor_download, vendor_copy,
    vendor_sync, vendor_kernel, vendor_launch, vendor_record_begin, vendor_record_end, vendor_play, vendor_free_recording};
// clang-format on

}  // namespace

constexpr gpu_driver kCudaDriver = kVendorDriver<kCuda>, kHipDriver = kVendorDriver<kHip>;

}  // namespace duet

// gpu/driver.h: what the executor asks of a GPU, as a struct of pointers: the CUDA and HIP drivers and the emulator
// fill one each.
// Errors are statuses with a message that names call, device and code. Must not know: ops, kernels' arguments.
// Main path: gpu/launch.cpp -> [gpu/driver.h] -> gpu/driver_cuda_hip.cpp or gpu/driver_emu.cpp
#pragma once
#include "../models/status.h"

#include <cstdint>
#include <vector>

namespace duet {

struct gpu_info {
    char name[64] = {};
    char chip[32] = {};                         // row of targets.def: "sm_90", "gfx1100", "emu32"
    char driver[48] = {};                       // "CUDA 12.4"
    uint64_t memory_bytes = 0, free_bytes = 0;  // free: known when open
    bool is_integrated = false;
};

struct gpu_grid {
    uint32_t x = 1, y = 1, z = 1, threads = 1, shared_bytes = 0;
};

// All calls on one device's one queue, in order; `device` is what open() gave. A call after a lost device returns
// DUET_ERR_DEVICE.
struct gpu_driver {
    const char* name;                                   // "cuda", "hip", "emu32"
    duet_status (*count)(int32_t* n, error_text& err);  // opens the vendor's library
    duet_status (*describe)(int32_t index, gpu_info* info,
                            error_text& err);  // without touching the device; err: why not usable
    duet_status (*open)(int32_t index, void** device, gpu_info* info, error_text& err);
    duet_status (*queue)(void* device, void** queue,
                         error_text& err);  // another one of an open device, for all the calls below; closed before it
    void (*close)(void* device);
    duet_status (*alloc)(void* device, uint64_t n_bytes, void** out, error_text& err);  // zeroed
    void (*free)(void* device, void* memory);
    duet_status (*alloc_host)(void* device, uint64_t n_bytes, void** out, error_text& err);  // pinned
    void (*free_host)(void* device, void* memory);
    duet_status (*upload)(void* device, void* to, const void* from, uint64_t n_bytes,
                          error_text& err);  // from: pinned, kept until sync
    duet_status (*download)(void* device, void* to, const void* from, uint64_t n_bytes, error_text& err);  // waits
    duet_status (*copy)(void* device, void* to, const void* from, uint64_t n_bytes, error_text& err);
    duet_status (*clear)(void* device, void* at, uint64_t n_bytes, error_text& err);
    duet_status (*sync)(void* device, error_text& err);
    duet_status (*kernel)(void* device, const char* kernel_name, void** out, error_text& err);
    duet_status (*launch)(void* device, void* kernel, const gpu_grid& grid, const void* args, size_t args_bytes,
                          error_text& err);
    // Uploads, copies, clears, launches and downloads between record_begin and record_end are kept, not run; play runs
    // them (a download's bytes are there after sync). record_end ends a recording in which a call failed too, with an
    // error.
    duet_status (*record_begin)(void* device, error_text& err);
    duet_status (*record_end)(void* device, void** recording, error_text& err);
    duet_status (*play)(void* device, void* recording, error_text& err);
    void (*free_recording)(void* device, void* recording);
};

extern const gpu_driver kEmu32Driver, kEmu64Driver;  // gpu/driver_emu.cpp
extern const gpu_driver kCudaDriver, kHipDriver;     // gpu/driver_cuda_hip.cpp
extern const gpu_driver* const kGpuDrivers[4];       // all of them

// Code built in for a chip, as a gzip file or plain: gpu/code.cpp.
struct gpu_code {
    const char* chip;  // "sm_90", "gfx1100"; "compute_120": CUDA's intermediate code, for this and later chips
    const uint8_t* data;
    uint64_t n_bytes;
    int32_t driver;  // oldest driver that loads it, as the driver counts (13000); 0: any
};
// The chip's own; for CUDA else the same major version's highest below it, else intermediate code; or nullptr.
const gpu_code* find_gpu_code(std::string_view chip);
bool unpack_gpu_code(const gpu_code& code, std::vector<uint8_t>* out);  // with a zero behind it; false: damaged
std::string gpu_code_list();                                            // "sm_90 gfx1100", "none"
extern const char kGpuBuilt[];                                          // what was built in, " sm_90 gfx1100"; ""

// For tests, of this thread; nullptr switches off: files opened instead of the vendors' libraries, code instead of
// what was built in, a folder in which /dev and /sys are looked up.
struct gpu_test_setup {
    const char* cuda_library = nullptr;
    const char* hip_library = nullptr;
    const gpu_code* code = nullptr;
    int32_t n_code = 0;
    const char* root = "";
};
const gpu_test_setup* gpu_test(const gpu_test_setup* setup);  // gives back the one before
const gpu_test_setup& gpu_setup();

// For tests: what an emulated device does, as it happens (memory at allocation, uploads, launches, downloads); null
// switches off.
struct emu_event {
    const char* what;  // "alloc", "free", "upload", "clear", "copy", "launch", "download", "play"
    const void* at;    // device address
    const void* data;  // upload, download: the bytes; copy: the source; launch: the arguments
    uint64_t n_bytes;
    const char* kernel;
    gpu_grid grid;
};
using emu_watch_fn = void (*)(void* user, const emu_event& event);
void emu_watch(emu_watch_fn watch, void* user);  // of this thread
void emu_seed(uint32_t seed);                    // of this thread: order in which threads of a block run; 0: forward
// Runs a function as a kernel on an open emulated device.
duet_status emu_run(void* device, const char* kernel_name, void (*body)(const void*), const gpu_grid& grid,
                    error_text& err);
// Memory of all emulated devices, and pinned memory of theirs; most: since the last emu_limit.
struct emu_usage {
    uint64_t in_use = 0, most = 0, pinned = 0, pinned_most = 0;
    int64_t n_allocs = 0;  // of both kinds
};
emu_usage emu_memory();
// From now on the emulated devices have memory_bytes together (0: no limit), and the fail_at-th allocation of either
// kind fails (0: none).
void emu_limit(uint64_t memory_bytes, int64_t fail_at);

}  // namespace duet

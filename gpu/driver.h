// gpu/driver.h: everything the executor asks of a GPU, as a struct of pointers. The CUDA driver, the HIP driver and the
// emulator fill one each. An error is a status with a message that names call, device and code. Must not know: ops,
// kernels' arguments. Main path: gpu/launch.cpp -> [gpu/driver.h] -> gpu/driver_cuda_hip.cpp or gpu/driver_emu.cpp
#pragma once
#include "../models/status.h"

#include <cstdint>
#include <span>
#include <vector>

namespace duet {

// How far recorded launches are trusted. watched: the first plays of each recording are computed again without it.
// walk: the same, and launches of one token are walked in one (gpu/walk.cuh).
enum class gpu_recording_use : int32_t { off, watched, walk, trusted };

struct gpu_info {
    char name[128] = {};
    char chip[32] = {};                         // row of targets.def: "sm_90", "gfx1100", "emu32"
    char driver[48] = {};                       // "CUDA 12.4"
    uint64_t memory_bytes = 0, free_bytes = 0;  // free_bytes: known after open()
    bool is_integrated = false;
    bool has_fast = false;       // Mode fast has an effect (gpu/matmul.cuh).
    bool starts_early = false;   // A launch starts while the one before it ends.
    int32_t vec_blocks = 2;      // blocks of a unit for which kernels with vec_threads of 2,304 keep registers
    int32_t tile_threads = 256;  // of a block of matmul_quant, as the code is that is loaded
    int32_t n_units = 0;         // multiprocessors or compute units; 0: not known
    int32_t n_resident = 0;      // blocks of 256 threads that may wait for each other; 0: none
    gpu_recording_use recording = gpu_recording_use::watched;
};

struct gpu_grid {
    uint32_t x = 1, y = 1, z = 1, threads = 1, shared_bytes = 0;
    bool is_resident = false;  // The blocks wait for each other, so all run at once or the launch fails.
};

// `device` is what open() or queue() gave. Calls run in order, on one queue. Once lost, all return DUET_ERR_DEVICE.
struct gpu_driver {
    const char* name;  // "cuda", "hip", "emu32"
    // Opens the vendor's library and counts its devices.
    duet_status (*count)(int32_t* n, error_text& err);
    // Describes a device without touching it. An error says why the device cannot be used.
    duet_status (*describe)(int32_t index, gpu_info* info, error_text& err);
    duet_status (*open)(int32_t index, void** device, gpu_info* info, error_text& err);
    // Creates one more queue (stream), which is accepted wherever `device` is and closed before it.
    duet_status (*queue)(void* device, void** queue, error_text& err);
    void (*close)(void* device);
    // Memory of the device, set to zero.
    duet_status (*alloc)(void* device, uint64_t n_bytes, void** out, error_text& err);
    void (*free)(void* device, void* memory);
    // Pinned memory of the computer. Only such memory may be uploaded, and kernels may read it.
    duet_status (*alloc_host)(void* device, uint64_t n_bytes, void** out, error_text& err);
    void (*free_host)(void* device, void* memory);
    // Starts a copy to the device. `from` is pinned, and its bytes stay as they are until sync.
    duet_status (*upload)(void* device, void* to, const void* from, uint64_t n_bytes, error_text& err);
    // Copies to the computer and waits for the copy.
    duet_status (*download)(void* device, void* to, const void* from, uint64_t n_bytes, error_text& err);
    duet_status (*copy)(void* device, void* to, const void* from, uint64_t n_bytes, error_text& err);
    duet_status (*sync)(void* device, error_text& err);  // waits for everything on the queue
    // part: the module that has the kernel where code is built in parts: a format of quant/types.def, or "common".
    // tile: the tile_threads of that code, which is not the one for the chip where the vendor's driver refuses that.
    duet_status (*kernel)(void* device, const char* part, const char* name, void** out, int32_t* tile, error_text& err);
    duet_status (*launch)(void* device, void* kernel, const gpu_grid& grid, const void* args, size_t args_bytes,
                          error_text& err);
    // Between record_begin and record_end launches are kept, not run, and nothing else may be called. play runs them.
    // When a launch failed during the recording, record_end still ends the recording, and returns an error.
    duet_status (*record_begin)(void* device, error_text& err);
    duet_status (*record_end)(void* device, void** recording, error_text& err);
    duet_status (*play)(void* device, void* recording, error_text& err);
    void (*free_recording)(void* device, void* recording);
};

extern const gpu_driver kEmu32Driver, kEmu64Driver;           // gpu/driver_emu.cpp; not there with DUET_NO_EMULATOR
extern const gpu_driver kCudaDriver, kHipDriver;              // gpu/driver_cuda_hip.cpp
extern const std::span<const gpu_driver* const> kGpuDrivers;  // all of them

// Machine code that was built in for one chip, as a gzip file or plain (gpu/code.cpp).
struct gpu_code {
    // "sm_90"; "gfx11_generic": for the family; "compute_80_q4_K": CUDA's intermediate code from sm_80 on, one format
    const char* chip;
    const uint8_t* data;
    uint64_t n_bytes;
    int32_t driver;  // oldest driver version that loads the code, as the driver counts (13000); 0: any
};
// Finds code for a chip: the chip's own; for CUDA otherwise the highest lower chip of the same major version (not for
// sm_87, alone with its code), or its text; for HIP the family's; or nullptr. any_text: only intermediate code (text).
const gpu_code* find_gpu_code(std::string_view chip, std::string_view part = "common", bool any_text = false);
// Unpacks code and puts a zero behind it. False: the code is damaged.
bool unpack_gpu_code(const gpu_code& code, std::vector<uint8_t>* out);
std::string gpu_code_list();    // "sm_90 gfx1100", or "none"
extern const char kGpuBuilt[];  // the chips that were built in: " sm_90 gfx1100", or ""

// For tests: replaces, for the calling thread, vendors' libraries, the built-in code and the folder of /dev and /sys.
struct gpu_test_setup {
    const char* cuda_library = nullptr;
    const char* hip_library = nullptr;
    const gpu_code* code = nullptr;
    int32_t n_code = 0;
    const char* root = "";
    uint64_t launch_products = 0;  // most multiplications of one launch; 0: by the chip's size
};
// Sets the calling thread's setup and returns the one before; nullptr removes it.
const gpu_test_setup* gpu_test(const gpu_test_setup* setup);
const gpu_test_setup& gpu_setup();

// For tests: the events of emulated devices as they happen (memory at allocation, uploads, launches, downloads).
struct emu_event {
    // "alloc", "free" (memory of both kinds), "upload", "copy", "launch" (before it, "upload" of the pinned memory that
    // its arguments point to), "download", "play"
    const char* what;
    const void* at;    // device address
    const void* data;  // upload, download: the bytes; copy: the source; launch: the arguments
    uint64_t n_bytes;
    const char* kernel;
    gpu_grid grid;
};
using emu_watch_fn = void (*)(void* user, const emu_event& event);
void emu_watch(emu_watch_fn watch, void* user);  // watches the calling thread's devices; null stops it
void emu_dry(bool is_dry, int32_t n_units, int32_t vec_blocks = 2);  // for this thread: launches are told, but not run
void emu_seed(uint32_t seed);  // sets the order of a block's threads, for this thread; 0: forward
// Runs a function as a kernel on an open emulated device.
duet_status emu_run(void* device, const char* name, void (*body)(const void*), const gpu_grid& grid, error_text& err);
// Device memory of all emulated devices, and their pinned memory. `most` counts since the last emu_limit.
struct emu_usage {
    uint64_t in_use = 0, most = 0, pinned = 0, pinned_most = 0;
    int64_t n_allocs = 0;  // allocations of both kinds
};
emu_usage emu_memory();
// Limits all emulated devices to memory_bytes together (0: no limit); the fail_at-th allocation fails (0: none).
void emu_limit(uint64_t memory_bytes, int64_t fail_at);

}  // namespace duet

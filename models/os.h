// models/os.h: what differs between operating systems. Paths and texts are UTF-8 on all of them; a failed call leaves
// its reason with os_error_text() or, where a function says so, in errno.
// Must not know: what the files, libraries and memory are for.
// Main path: models/file_map.cpp, gpu/driver_cuda_hip.cpp -> [models/os.h] -> models/os_posix.cpp or os_windows.cpp
#pragma once
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>

namespace duet {

// ---- files that are read ----

constexpr intptr_t kNoFile = -1;

struct os_file {
    intptr_t handle = kNoFile;
    uint64_t n_bytes = 0;
    const char* kind = nullptr;  // what the path is instead of a regular file ("a directory"); nullptr: it is one
};

// Opens a file without waiting (a FIFO has no writer). Others may rename and delete it meanwhile.
bool os_open(const char* path, os_file* out);
void os_close(intptr_t file);
bool os_file_size(intptr_t file, uint64_t* n_bytes);
// Reads at most n_bytes. Returns how many; 0 at the end of the file, -1 when it failed.
int64_t os_read_at(intptr_t file, uint64_t offset, void* to, uint64_t n_bytes);
// Maps a whole file read-only. Returns nullptr when it failed; *is_memory: because memory ran out.
void* os_map(intptr_t file, uint64_t n_bytes, bool* is_memory);
void os_unmap(void* data, uint64_t n_bytes);
void os_will_need(const void* data, uint64_t n_bytes);  // asks for these bytes of a mapped file ahead

std::string os_error_text();  // why the last call failed

// ---- files that are written; a failure is in errno ----

std::FILE* os_create(const char* path, bool is_new);  // is_new: EEXIST where the path exists already
int os_remove(const char* path);
int os_rename(const char* from, const char* to);  // replaces a file that is there
// The file that a symbolic link leads to, which need not be there, else the path itself.
std::string os_resolved(std::string path);
// Whether the path is there and no regular file: a rename would replace it.
bool os_is_special(const char* path);

// ---- the machine ----

struct os_machine {
    std::string cpu_name;  // "" where nobody knows
    uint64_t memory_bytes = 0, free_bytes = 0;
};
// Where control groups are mounted and those of the process are listed, absolute. Containers are limited by them. Only
// on Linux. Sources: its cgroup-v2.rst (cpu.max, memory.max); of version 1, sched-bwc.rst and memory.rst.
struct os_groups {
    std::string root = "/sys/fs/cgroup", list = "/proc/self/cgroup";
};
os_machine os_describe(const os_groups& at = {});  // no more memory than the control groups leave the process
// Returns what follows "key ... :", or the key alone, in a file of /proc, and without a key its first line; "" where
// there is none.
std::string os_value_in(const std::string& path, std::string_view key = {});  // not on Windows
int os_physical_cores();  // of those that the process may use; at most os_cpu_quota(), at least 1
// Returns how many CPUs' time the control groups leave the process, rounded up. 1 to 1024, which also stands for no
// limit. Only on Linux.
int os_cpu_quota(const os_groups& at = {});
int os_system_number(const char* name);               // of sysctl; 0: there is none. Only on macOS.
void os_use_large_pages(void* data, size_t n_bytes);  // advice for large blocks; large pages save TLB misses
std::tm os_local_time();
#ifdef _WIN32
bool os_has_display_card(const char* pci_vendor);  // pci_vendor: "10DE"
#endif

// ---- libraries ----

// A driver stays loaded for ever, because its threads need it. A bare name means the system's own folders; on Windows
// neither the program's folder nor the current one is searched, where a download could have put a file of that name.
// loaded: only one that the process has already. why: what the system says of a library that is there; may be null.
void* os_open_library(const char* name, bool loaded, std::string* why = nullptr);
void* os_find_symbol(void* library, const char* name);
void os_close_library(void* library);

}  // namespace duet

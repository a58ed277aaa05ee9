// models/os_posix.cpp: models/os.h on Linux and macOS.
// Main path: models/os.h -> [models/os_posix.cpp]
#ifndef _WIN32
#include "os.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <memory>
#include <set>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace duet {

// Names what a path is instead of a regular file; nullptr: it is one.
static const char* other_than_file(mode_t mode) {
    if (S_ISREG(mode)) return nullptr;
    if (S_ISDIR(mode)) return "a directory";
    if (S_ISFIFO(mode)) return "a FIFO (named pipe)";
    if (S_ISCHR(mode)) return "a character device";
    return S_ISBLK(mode) ? "a block device" : S_ISSOCK(mode) ? "a socket" : "no regular file";
}

std::string os_value_in(const std::string& path, std::string_view key) {
    std::FILE* const file = std::fopen(path.c_str(), "re");  // not a stream of C++, which would bring its locales along
    char part[256];
    std::string_view value;
    while (file && value.empty() && std::fgets(part, sizeof part, file)) {
        const std::string_view line(part, strcspn(part, "\n"));
        if (line.substr(0, key.size()) == key)
            value = line.substr(
                std::min(line.size(), line.find_first_not_of(" \t", std::max(key.size(), line.find(':') + 1))));
    }
    if (file) std::fclose(file);
    return std::string(value);
}

std::string os_error_text() { return std::generic_category().message(errno); }

bool os_open(const char* path, os_file* out) {
    // With O_NONBLOCK, opening a FIFO does not wait for a writer. It does not matter for a regular file.
    out->handle = ::open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat info;
    if (out->handle < 0 || fstat((int)out->handle, &info) != 0) return false;
    out->kind = other_than_file(info.st_mode);
    out->n_bytes = (uint64_t)info.st_size;
    return true;
}

void os_close(intptr_t file) { ::close((int)file); }

bool os_file_size(intptr_t file, uint64_t* n_bytes) {
    struct stat info;
    if (fstat((int)file, &info) != 0) return false;
    *n_bytes = (uint64_t)info.st_size;
    return true;
}

int64_t os_read_at(intptr_t file, uint64_t offset, void* to, uint64_t n_bytes) {
    for (;;) {
        const ssize_t n = pread((int)file, to, (size_t)std::min<uint64_t>(n_bytes, 1u << 30), (off_t)offset);
        if (n >= 0 || errno != EINTR) return n;
    }
}

void* os_map(intptr_t file, uint64_t n_bytes, bool* is_memory) {
    void* data = mmap(nullptr, (size_t)n_bytes, PROT_READ, MAP_PRIVATE, (int)file, 0);
    *is_memory = data == MAP_FAILED && errno == ENOMEM;
#if defined(MADV_HUGEPAGE)  // Later reads from disk come in huge pages, where the file system has them.
    if (data != MAP_FAILED) madvise(data, (size_t)n_bytes, MADV_HUGEPAGE);
#endif
    return data == MAP_FAILED ? nullptr : data;
}

void os_unmap(void* data, uint64_t n_bytes) { munmap(data, (size_t)n_bytes); }

void os_will_need(const void* data, uint64_t n_bytes) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)data, first = at / page * page;
    madvise((void*)first, (size_t)(at - first + n_bytes), MADV_WILLNEED);
}

std::FILE* os_create(const char* path, bool is_new) { return std::fopen(path, is_new ? "wbx" : "wb"); }
int os_remove(const char* path) { return std::remove(path); }
int os_rename(const char* from, const char* to) { return std::rename(from, to); }

std::string os_resolved(std::string path) {
    char to[4096];
    ssize_t n;
    for (int i = 0; i < 40 && (n = readlink(path.c_str(), to, sizeof to)) > 0; i++)  // 40: as Linux follows
        path = (to[0] == '/' ? "" : path.substr(0, path.rfind('/') + 1)) + std::string(to, (size_t)n);
    return path;
}

bool os_is_special(const char* path) {
    struct stat info;
    return stat(path, &info) == 0 && !S_ISREG(info.st_mode);
}

#if defined(__APPLE__)
int os_system_number(const char* name) {
    int n = 0;
    size_t n_bytes = sizeof n;
    return sysctlbyname(name, &n, &n_bytes, nullptr, 0) == 0 ? n : 0;
}

os_machine os_describe(const os_groups&) {
    os_machine m;
    char name[128] = "";
    size_t n_name = sizeof name, n_memory = sizeof m.memory_bytes;
    if (sysctlbyname("machdep.cpu.brand_string", name, &n_name, nullptr, 0) == 0) m.cpu_name = name;
    sysctlbyname("hw.memsize", &m.memory_bytes, &n_memory, nullptr, 0);
    return m;
}
#else
namespace {

uint64_t number_in(const std::string& path, std::string_view key = {}) {
    return strtoull(os_value_in(path, key).c_str(), nullptr, 10);  // 0: "max", or there is none
}

// Calls each(folder, is_old) for the process's control group of this kind and for the groups around it, whose limits
// hold for it, too. is_old: of version 1. In a container its own group is the root, and what is listed may be the path
// on the host.
template <class F>
void for_groups(const os_groups& at, const std::string& kind, F each) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(at.list.c_str(), "re"), std::fclose);
    for (char text[4096]; file && std::fgets(text, sizeof text, file.get());) {  // "4:cpu,cpuacct:/a/b", or "0::/a/b"
        const std::string line(text, strcspn(text, "\n"));
        const size_t from = line.find(':') + 1, path = line.find(":/");
        const std::string kinds = "," + line.substr(from, path - from) + ",",
                          top = at.root + (kinds == ",," ? "" : "/" + kind);
        if (path == line.npos || (kinds != ",," && kinds.find("," + kind + ",") == line.npos)) continue;
        std::string folder = top + line.substr(path + 1);
        for (; folder.size() >= top.size(); folder.resize(folder.rfind('/'))) each(folder, kinds != ",,");
    }
}

}  // namespace

os_machine os_describe(const os_groups& at) {
    os_machine m{os_value_in("/proc/cpuinfo", "model name"), number_in("/proc/meminfo", "MemTotal") * 1024,
                 number_in("/proc/meminfo", "MemAvailable") * 1024};
    for_groups(at, "memory", [&](const std::string& group, bool is_old) {
        const std::string total = is_old ? "total_" : "", stat = group + "/memory.stat";
        // The pages of files make room for others.
        const uint64_t limit = number_in(group + (is_old ? "/memory.limit_in_bytes" : "/memory.max")),
                       used = number_in(group + (is_old ? "/memory.usage_in_bytes" : "/memory.current")),
                       files = number_in(stat, total + "inactive_file") + number_in(stat, total + "active_file");
        if (limit == 0) return;
        m.memory_bytes = std::min(m.memory_bytes, limit);
        m.free_bytes = std::min(m.free_bytes, limit - std::min(limit, used - std::min(used, files)));
    });
    return m;
}

int os_cpu_quota(const os_groups& at) {
    long long least = 1024;
    for_groups(at, "cpu", [&](const std::string& group, bool is_old) {
        long long quota = 0, period = 0;
        const std::string text =
            is_old ? os_value_in(group + "/cpu.cfs_quota_us") + " " + os_value_in(group + "/cpu.cfs_period_us")
                   : os_value_in(group + "/cpu.max");
        if (sscanf(text.c_str(), "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0)
            least = std::min(least, (quota - 1) / period + 1);
    });
    return (int)least;
}
#endif

int os_physical_cores() {
    const int logical = std::max(1, (int)std::thread::hardware_concurrency());
#if defined(__linux__)
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) return std::min(logical, os_cpu_quota());
    std::set<std::string> cores;  // by the numbers of their threads
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &mask)) continue;
        const std::string n = std::to_string(cpu);
        const std::string threads = os_value_in("/sys/devices/system/cpu/cpu" + n + "/topology/thread_siblings_list");
        cores.insert(threads.empty() ? n : threads);
    }
    return std::clamp((int)cores.size(), 1, os_cpu_quota());
#elif defined(__APPLE__)
    return std::clamp(os_system_number("hw.physicalcpu"), 1, logical);
#else
    return logical;
#endif
}

void os_use_large_pages([[maybe_unused]] void* data, [[maybe_unused]] size_t n_bytes) {
#if defined(MADV_HUGEPAGE)
    const uintptr_t page = 2u << 20, first = ((uintptr_t)data + page - 1) / page * page,
                    end = ((uintptr_t)data + n_bytes) / page * page;
    if (n_bytes > 32u << 20) madvise((void*)first, end - first, MADV_HUGEPAGE);
#endif
}

std::tm os_local_time() {
    const time_t now = std::time(nullptr);
    std::tm t = {};
    localtime_r(&now, &t);
    return t;
}

void* os_open_library(const char* name, bool loaded, std::string* why) {
    void* library = dlopen(name, RTLD_NOW | RTLD_NODELETE | loaded * RTLD_NOLOAD);
    // A library that needs another one is not missing. musl has a text also for one that is only not loaded yet.
    const char* text = library || loaded || !why ? nullptr : dlerror();
    if (text && !(strstr(text, name) && strstr(text, "No such"))) *why = std::string(name) + " does not load: " + text;
    return library;
}
void* os_find_symbol(void* library, const char* name) { return dlsym(library, name); }
void os_close_library(void* library) { dlclose(library); }

}  // namespace duet
#endif

// models/os_windows.cpp: models/os.h on Windows, by the wide forms of its calls.
// Sources: Microsoft's documentation of each call.
// Main path: models/os.h -> [models/os_windows.cpp]
#ifdef _WIN32
#include "os.h"

#include <algorithm>
#include <cerrno>
#include <cwchar>
#include <fcntl.h>
#include <io.h>
#include <thread>
#include <vector>
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#undef near  // words of the years of 16 bits, which other files use in the all-in-one source
#undef far

namespace duet {
namespace {

std::wstring os_wide(const char* text) {
    const int n = MultiByteToWideChar(CP_UTF8, 0, text, -1, nullptr, 0);
    std::wstring out((size_t)std::max(n, 1), L'\0');
    MultiByteToWideChar(CP_UTF8, 0, text, -1, out.data(), n);
    out.pop_back();  // the zero
    return out;
}

std::string os_narrow(const wchar_t* text) {
    const int n = WideCharToMultiByte(CP_UTF8, 0, text, -1, nullptr, 0, nullptr, nullptr);
    std::string out((size_t)std::max(n, 1), '\0');
    WideCharToMultiByte(CP_UTF8, 0, text, -1, out.data(), n, nullptr, nullptr);
    out.pop_back();
    return out;
}

// The form of a path that may have more than 260 characters: absolute, with backslashes, behind "\\?\". A short path
// stays as it is, because names such as NUL mean something only there.
std::wstring wide_path(const char* path) {
    constexpr size_t kLongest = 240;  // of the plain form; a folder's has to leave room for a name of 12
    std::wstring out = os_wide(path);
    const DWORD n = GetFullPathNameW(out.c_str(), 0, nullptr, nullptr);
    if (n < kLongest || out.starts_with(L"\\\\?\\")) return out;
    std::wstring full(n, L'\0');
    full.resize(GetFullPathNameW(out.c_str(), n, full.data(), nullptr));
    return full.starts_with(L"\\\\") ? L"\\\\?\\UNC\\" + full.substr(2) : L"\\\\?\\" + full;
}

// The number of the C library that is nearest to a failure of the system.
int errno_of(DWORD code) {
    switch (code) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
    case ERROR_INVALID_NAME: return ENOENT;
    case ERROR_FILE_EXISTS:
    case ERROR_ALREADY_EXISTS: return EEXIST;
    case ERROR_ACCESS_DENIED:
    case ERROR_SHARING_VIOLATION:
    case ERROR_USER_MAPPED_FILE: return EACCES;
    case ERROR_DISK_FULL: return ENOSPC;
    case ERROR_NOT_ENOUGH_MEMORY: return ENOMEM;
    default: return EIO;
    }
}

// Others may read, write, rename and delete the file while it is open, as on other systems.
constexpr DWORD kShareAll = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

HANDLE handle_of(intptr_t file) { return (HANDLE)file; }

}  // namespace

std::string os_error_text() {
    const DWORD code = GetLastError();
    wchar_t text[512];
    DWORD n = FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, nullptr, code, 0, text, 512,
                             nullptr);
    while (n > 0 && (text[n - 1] == L'\r' || text[n - 1] == L'\n' || text[n - 1] == L'.')) n--;
    if (n == 0) return "error " + std::to_string(code);
    return os_narrow(std::wstring(text, n).c_str());
}

bool os_open(const char* path, os_file* out) {
    const std::wstring name = wide_path(path);
    const DWORD attributes = GetFileAttributesW(name.c_str());
    if (attributes != INVALID_FILE_ATTRIBUTES && attributes & FILE_ATTRIBUTE_DIRECTORY) {
        out->kind = "a directory";  // CreateFile would say "access denied"
        return true;
    }
    const HANDLE handle =
        CreateFileW(name.c_str(), GENERIC_READ, kShareAll, nullptr, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr);
    if (handle == INVALID_HANDLE_VALUE) return false;
    out->handle = (intptr_t)handle;
    const DWORD type = GetFileType(handle);
    if (type != FILE_TYPE_DISK) {
        out->kind = type == FILE_TYPE_PIPE ? "a pipe" : "a device";
        return true;
    }
    return os_file_size(out->handle, &out->n_bytes);
}

void os_close(intptr_t file) { CloseHandle(handle_of(file)); }

bool os_file_size(intptr_t file, uint64_t* n_bytes) {
    LARGE_INTEGER size;
    if (!GetFileSizeEx(handle_of(file), &size)) return false;
    *n_bytes = (uint64_t)size.QuadPart;
    return true;
}

int64_t os_read_at(intptr_t file, uint64_t offset, void* to, uint64_t n_bytes) {
    OVERLAPPED at = {};
    at.Offset = (DWORD)offset;
    at.OffsetHigh = (DWORD)(offset >> 32);
    DWORD n = 0;
    if (ReadFile(handle_of(file), to, (DWORD)std::min<uint64_t>(n_bytes, 1u << 30), &n, &at)) return n;
    return GetLastError() == ERROR_HANDLE_EOF ? 0 : -1;
}

// A view keeps the mapping alive, so its handle is closed at once.
void* os_map(intptr_t file, uint64_t n_bytes, bool* is_memory) {
    const HANDLE mapping = CreateFileMappingW(handle_of(file), nullptr, PAGE_READONLY, 0, 0, nullptr);
    void* data = mapping ? MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, (SIZE_T)n_bytes) : nullptr;
    const DWORD code = GetLastError();
    if (mapping) CloseHandle(mapping);
    *is_memory = !data && (code == ERROR_NOT_ENOUGH_MEMORY || code == ERROR_COMMITMENT_LIMIT);
    SetLastError(code);
    return data;
}

void os_unmap(void* data, uint64_t) { UnmapViewOfFile(data); }

void os_will_need(const void* data, uint64_t n_bytes) {
    WIN32_MEMORY_RANGE_ENTRY range = {(void*)data, (SIZE_T)n_bytes};
    PrefetchVirtualMemory(GetCurrentProcess(), 1, &range, 0);
}

std::FILE* os_create(const char* path, bool is_new) {
    const HANDLE handle = CreateFileW(wide_path(path).c_str(), GENERIC_WRITE, kShareAll, nullptr,
                                      is_new ? CREATE_NEW : CREATE_ALWAYS, FILE_ATTRIBUTE_NORMAL, nullptr);
    if (handle == INVALID_HANDLE_VALUE) return errno = errno_of(GetLastError()), nullptr;
    const int fd = _open_osfhandle((intptr_t)handle, _O_BINARY);
    std::FILE* const file = fd < 0 ? nullptr : _fdopen(fd, "wb");
    if (!file) fd < 0 ? (void)CloseHandle(handle) : (void)_close(fd);
    return file;
}

int os_remove(const char* path) {
    return DeleteFileW(wide_path(path).c_str()) ? 0 : (errno = errno_of(GetLastError()), -1);
}

int os_rename(const char* from, const char* to) {
    const std::wstring target = wide_path(to);
    if (MoveFileExW(wide_path(from).c_str(), target.c_str(), MOVEFILE_REPLACE_EXISTING)) return 0;
    errno = errno_of(GetLastError());
    const DWORD attributes = GetFileAttributesW(target.c_str());
    if (attributes != INVALID_FILE_ATTRIBUTES && attributes & FILE_ATTRIBUTE_DIRECTORY) errno = EISDIR;
    return -1;
}

std::string os_resolved(std::string path) { return path; }

// NUL, CON and pipes.
bool os_is_special(const char* path) {
    const HANDLE handle = CreateFileW(wide_path(path).c_str(), 0, kShareAll, nullptr, OPEN_EXISTING, 0, nullptr);
    if (handle == INVALID_HANDLE_VALUE) return false;
    const DWORD type = GetFileType(handle);
    CloseHandle(handle);
    return type != FILE_TYPE_DISK;
}

os_machine os_describe(const os_groups&) {
    os_machine m;
    wchar_t name[128] = L"";
    DWORD n_bytes = sizeof name - sizeof name[0];
    if (RegGetValueW(HKEY_LOCAL_MACHINE, L"HARDWARE\\DESCRIPTION\\System\\CentralProcessor\\0", L"ProcessorNameString",
                     RRF_RT_REG_SZ, nullptr, name, &n_bytes) == ERROR_SUCCESS)
        m.cpu_name = os_narrow(name);
    m.cpu_name.resize(m.cpu_name.find_last_not_of(' ') + 1);
    MEMORYSTATUSEX memory = {};
    memory.dwLength = sizeof memory;
    if (GlobalMemoryStatusEx(&memory)) m.memory_bytes = memory.ullTotalPhys, m.free_bytes = memory.ullAvailPhys;
    return m;
}

// Cores of the process's affinity mask, which speaks of one group of at most 64 processors; a process without one has
// them all.
int os_physical_cores() {
    const int logical = std::max(1, (int)std::thread::hardware_concurrency());
    DWORD_PTR allowed = 0, all = 0;
    DWORD n_bytes = 0;
    GetProcessAffinityMask(GetCurrentProcess(), &allowed, &all);
    GetLogicalProcessorInformationEx(RelationProcessorCore, nullptr, &n_bytes);
    std::vector<uint64_t> buffer(n_bytes / 8 + 1);
    auto* const first = (SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX*)buffer.data();
    if (n_bytes == 0 || !GetLogicalProcessorInformationEx(RelationProcessorCore, first, &n_bytes)) return logical;
    int n = 0;
    for (DWORD at = 0; at < n_bytes;) {
        const auto* core = (const SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX*)((const uint8_t*)buffer.data() + at);
        const GROUP_AFFINITY& where = core->Processor.GroupMask[0];
        n += allowed == all || (where.Mask & allowed) != 0;
        at += core->Size;
    }
    return n > 0 ? n : logical;
}

void os_use_large_pages(void*, size_t) {}  // they want a privilege that users do not have

bool os_has_display_card(const char* pci_vendor) {
    const std::wstring id = L"PCI\\VEN_" + os_wide(pci_vendor);
    DISPLAY_DEVICEW card = {};
    card.cb = sizeof card;
    for (DWORD i = 0; EnumDisplayDevicesW(nullptr, i, &card, 0); i++)
        if (std::wstring(card.DeviceID).starts_with(id)) return true;
    return false;
}

std::tm os_local_time() {
    const time_t now = std::time(nullptr);
    std::tm t = {};
    localtime_s(&t, &now);
    return t;
}

void* os_open_library(const char* name, bool loaded, std::string*) {
    std::wstring path = os_wide(name);
    std::replace(path.begin(), path.end(), L'/', L'\\');
    const bool is_bare = path.find(L'\\') == std::wstring::npos;
    if (loaded) return (void*)GetModuleHandleW(path.c_str());
    return (void*)LoadLibraryExW(path.c_str(), nullptr,
                                 LOAD_LIBRARY_SEARCH_SYSTEM32 | (is_bare ? 0 : LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR));
}
void* os_find_symbol(void* library, const char* name) { return (void*)GetProcAddress((HMODULE)library, name); }
void os_close_library(void*) {}

}  // namespace duet
#endif

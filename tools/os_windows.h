// tools/os_windows.h: tools/os.h on Windows. Sources: Microsoft's documentation of each call.
// A console gets and gives UTF-16 here, so that no code page matters; files and pipes are bytes, without changed ends
// of lines.
#pragma once
#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <fcntl.h>
#include <io.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <thread>
#include <utility>
#include <vector>
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>

#include <psapi.h>
#include <shellapi.h>

namespace os {

inline std::wstring wide(std::string_view text) {
    std::wstring out(text.size(), L'\0');  // never more units than bytes
    out.resize((size_t)MultiByteToWideChar(CP_UTF8, 0, text.data(), (int)text.size(), out.data(), (int)out.size()));
    return out;
}
inline std::string narrow(std::wstring_view text) {
    std::string out(text.size() * 3, '\0');
    out.resize((size_t)WideCharToMultiByte(CP_UTF8, 0, text.data(), (int)text.size(), out.data(), (int)out.size(),
                                           nullptr, nullptr));
    return out;
}
// A path of more than 260 characters has to be absolute and behind "\\?\".
inline std::wstring wide_path(const std::string& path) {
    constexpr DWORD kLongest = 240;
    std::wstring out = wide(path);
    const DWORD n = GetFullPathNameW(out.c_str(), 0, nullptr, nullptr);
    if (n < kLongest || out.starts_with(L"\\\\?\\")) return out;
    std::wstring full(n, L'\0');
    full.resize(GetFullPathNameW(out.c_str(), n, full.data(), nullptr));
    return full.starts_with(L"\\\\") ? L"\\\\?\\UNC\\" + full.substr(2) : L"\\\\?\\" + full;
}

inline HANDLE stream_handle(int stream) {
    return GetStdHandle(stream == 0 ? STD_INPUT_HANDLE : stream == 1 ? STD_OUTPUT_HANDLE : STD_ERROR_HANDLE);
}
// NUL is a character device too, but has no modes.
inline bool is_terminal(int stream) {
    DWORD mode = 0;
    return GetConsoleMode(stream_handle(stream), &mode) != 0;
}

// ---- the program ----

inline std::vector<std::string> arguments(int, char**) {
    // What the C library prints on a console is UTF-8. The console's own setting comes back at the end.
    static const UINT code_page = GetConsoleOutputCP();
    if (code_page != 0 && code_page != CP_UTF8 && SetConsoleOutputCP(CP_UTF8))
        std::atexit([] { SetConsoleOutputCP(code_page); });
    for (int stream : {0, 1, 2}) _setmode(stream, _O_BINARY);
    // A console gets what was written since the last flush at once: byte by byte it would not always join the bytes of
    // a character.
    if (is_terminal(1)) setvbuf(stdout, nullptr, _IOFBF, 1 << 16);
    std::vector<std::string> out;
    int n = 0;
    wchar_t** const words = CommandLineToArgvW(GetCommandLineW(), &n);
    for (int i = 1; i < n; i++) out.push_back(narrow(words[i]));
    LocalFree(words);
    return out;
}

inline void report_large_files() {}
inline uint64_t process_id() { return GetCurrentProcessId(); }

// The handler runs in a thread of its own. Closing the window, logging off and shutting down count as an end.
struct interrupts {
    inline static void (*volatile handler)(int) = nullptr;
    inline static bool is_once = false, is_end = false;
    inline static const HANDLE came = CreateEventW(nullptr, FALSE, FALSE, nullptr);  // for who waits for a pipe
    static BOOL WINAPI take(DWORD event) {
        void (*const chosen)(int) = handler;
        if (!chosen || (event != CTRL_C_EVENT && event != CTRL_BREAK_EVENT && !is_end)) return FALSE;
        if (is_once) handler = nullptr;
        chosen(event == CTRL_C_EVENT ? SIGINT : SIGTERM);
        SetEvent(came);
        if (event != CTRL_C_EVENT && event != CTRL_BREAK_EVENT) Sleep(INFINITE);  // the process ends when this returns
        return TRUE;
    }
    static void set(void (*wanted)(int), bool once, bool end) {
        handler = wanted;
        is_once = once;
        is_end = end;
        SetConsoleCtrlHandler(take, TRUE);
    }
};
inline void on_interrupt(void (*handler)(int), bool is_once) { interrupts::set(handler, is_once, false); }
inline void on_end(void (*handler)(int)) { interrupts::set(handler, false, true); }

// Ctrl-C, and the end that closing the window brings, are told as SIGTERM, which the server waits for.
inline void prepare_server() {
    on_end([](int) { std::raise(SIGTERM); });
}
constexpr bool kReusesAddress = false;  // it would be that of another program, too
inline std::string host_name() {
    wchar_t name[256];
    DWORD n = 256;
    return GetComputerNameExW(ComputerNameDnsHostname, name, &n) ? narrow({name, n}) : "";
}

// ---- files ----

constexpr const char* kSlashes = "/\\";
enum class file_kind { none, regular, folder, special };

struct open_handle {
    HANDLE handle;
    explicit open_handle(const std::string& path)  // no rights: its attributes only; folders too
        : handle(CreateFileW(wide_path(path).c_str(), 0, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                             nullptr, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, nullptr)) {}
    ~open_handle() {
        if (handle != INVALID_HANDLE_VALUE) CloseHandle(handle);
    }
    open_handle(const open_handle&) = delete;
    bool info(BY_HANDLE_FILE_INFORMATION* out) const { return GetFileInformationByHandle(handle, out) != 0; }
};
inline file_kind kind_of(const std::string& path) {
    const open_handle file(path);
    if (file.handle == INVALID_HANDLE_VALUE) return file_kind::none;
    BY_HANDLE_FILE_INFORMATION info;
    if (GetFileType(file.handle) != FILE_TYPE_DISK || !file.info(&info)) return file_kind::special;
    return info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY ? file_kind::folder : file_kind::regular;
}
inline bool is_same_file(const std::string& a, const std::string& b) {
    const open_handle fa(a), fb(b);
    BY_HANDLE_FILE_INFORMATION ia, ib;
    return fa.info(&ia) && fb.info(&ib) && ia.dwVolumeSerialNumber == ib.dwVolumeSerialNumber &&
           ia.nFileIndexHigh == ib.nFileIndexHigh && ia.nFileIndexLow == ib.nFileIndexLow;
}
inline uint64_t disk_free(const std::string& path) {
    const size_t slash = path.find_last_of(kSlashes);
    ULARGE_INTEGER n_free;
    const std::wstring folder = wide_path(slash == std::string::npos ? "." : path.substr(0, slash + 1));
    return GetDiskFreeSpaceExW(folder.c_str(), &n_free, nullptr, nullptr) ? n_free.QuadPart : UINT64_MAX;
}

inline int open_to_read(const std::string& path) {
    if (kind_of(path) == file_kind::folder) return errno = EISDIR, -1;
    return _wopen(wide_path(path).c_str(), _O_RDONLY | _O_BINARY | _O_NOINHERIT);
}

// Reads from the console on stdin, in the line form or key by key as its mode says. Half a character that is left over
// waits for the next call.
inline int64_t read_console(char* to, size_t n_bytes) {
    static wchar_t kept = 0;
    static std::string rest;
    if (rest.empty()) {
        wchar_t units[1024];
        DWORD n = 0;
        if (kept) units[0] = kept;
        SetLastError(0);
        if (!ReadConsoleW(stream_handle(0), units + (kept != 0), 1023, &n, nullptr)) return errno = EIO, -1;
        if (n == 0) return GetLastError() == ERROR_OPERATION_ABORTED ? (errno = EINTR, -1) : 0;  // Ctrl-C
        n += kept != 0;
        kept = units[n - 1] >= 0xd800 && units[n - 1] < 0xdc00 ? units[--n] : L'\0';
        rest = narrow({units, n});
        DWORD mode = 0;
        const bool is_lines = GetConsoleMode(stream_handle(0), &mode) && (mode & ENABLE_LINE_INPUT);
        if (is_lines && !rest.empty() && rest[0] == 0x1a) return rest.clear(), 0;  // Ctrl-Z and Enter: the end
        if (is_lines) rest.erase(std::remove(rest.begin(), rest.end(), '\r'), rest.end());
    }
    const size_t n = std::min(n_bytes, rest.size());
    std::memcpy(to, rest.data(), n);
    rest.erase(0, n);
    return n ? (int64_t)n : read_console(to, n_bytes);
}
inline int64_t read(int fd, char* to, size_t n_bytes) {
    if (fd != 0 || !is_terminal(0)) return _read(fd, to, (unsigned)std::min<size_t>(n_bytes, 1u << 30));
    for (;;) {
        const int64_t n = read_console(to, n_bytes);
        if (n >= 0 || errno != EINTR) return n;
    }
}
inline void close(int fd) { _close(fd); }

inline FILE* create(const std::string& path) { return _wfopen(wide_path(path).c_str(), L"wb"); }
inline void remove(const std::string& path) { DeleteFileW(wide_path(path).c_str()); }
inline bool rename(const std::string& from, const std::string& to) {
    return MoveFileExW(wide_path(from).c_str(), wide_path(to).c_str(), MOVEFILE_REPLACE_EXISTING) != 0;
}
inline std::string resolved(const std::string& path) { return path; }

inline int replace_file(const std::string& path, std::string_view bytes, bool) {
    std::string part;
    int fd = -1;
    for (int i = 0; fd < 0 && (i == 0 || (errno == EEXIST && i < 100)); i++) {
        part = path + "." + std::to_string(process_id()) + "-" + std::to_string(i);
        fd = _wopen(wide_path(part).c_str(), _O_WRONLY | _O_CREAT | _O_EXCL | _O_BINARY | _O_NOINHERIT,
                    _S_IREAD | _S_IWRITE);
    }
    bool is_good = fd >= 0;
    while (is_good && !bytes.empty()) {
        const int n = _write(fd, bytes.data(), (unsigned)std::min<size_t>(bytes.size(), 1u << 30));
        is_good = n > 0;
        bytes.remove_prefix(n > 0 ? (size_t)n : 0);
    }
    int why = errno;
    if (fd >= 0 && _close(fd) != 0 && is_good) is_good = false, why = errno;
    if (is_good && rename(part, path)) return 0;
    if (fd >= 0) remove(part);
    return is_good ? EACCES : why;
}

// ---- the machine ----

inline PROCESS_MEMORY_COUNTERS memory_counters() {
    PROCESS_MEMORY_COUNTERS counters = {};
    counters.cb = sizeof counters;
    GetProcessMemoryInfo(GetCurrentProcess(), &counters, sizeof counters);
    return counters;
}
inline uint64_t memory_used() { return memory_counters().WorkingSetSize; }
inline uint64_t memory_peak() { return memory_counters().PeakWorkingSetSize; }

inline void* allocate_pages(uint64_t n_bytes) {
    return VirtualAlloc(nullptr, (SIZE_T)n_bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}
inline void free_pages(void* pages, uint64_t) { VirtualFree(pages, 0, MEM_RELEASE); }

struct usage {
    double cpu_seconds = 0;
    long peak_kib = 0;
};
inline usage usage_now() {
    FILETIME begin, end, kernel, user;
    if (!GetProcessTimes(GetCurrentProcess(), &begin, &end, &kernel, &user)) return {};
    const auto seconds = [](const FILETIME& t) {
        return 1e-7 * (double)((uint64_t)t.dwHighDateTime << 32 | t.dwLowDateTime);
    };
    return {seconds(kernel) + seconds(user), (long)(memory_peak() / 1024)};
}

// Calls each(entry) for what the system says about processors of this relation.
template <class F>
void for_processors(LOGICAL_PROCESSOR_RELATIONSHIP relation, F each) {
    DWORD n_bytes = 0;
    GetLogicalProcessorInformationEx(relation, nullptr, &n_bytes);
    std::vector<uint64_t> buffer(n_bytes / 8 + 1);
    auto* const first = (SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX*)buffer.data();
    if (n_bytes == 0 || !GetLogicalProcessorInformationEx(relation, first, &n_bytes)) return;
    for (DWORD at = 0; at < n_bytes;) {
        const auto& entry = *(const SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX*)((const char*)first + at);
        each(entry);
        at += entry.Size;
    }
}
inline uint64_t largest_cache_bytes() {
    uint64_t largest = 0;
    for_processors(RelationCache, [&](const SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX& entry) {
        if (entry.Cache.Level >= 2) largest = std::max<uint64_t>(largest, entry.Cache.CacheSize);
    });
    return largest;
}

// ---- the terminal ----

// Characters that join the one before, and wide ones: the main blocks of Unicode's EastAsianWidth.txt.
inline int columns_of(char32_t c) {
    constexpr char32_t kJoined[][2] = {{0x300, 0x36f},   {0x483, 0x489},   {0x591, 0x5bd},   {0x610, 0x61a},
                                       {0x64b, 0x65f},   {0x900, 0x902},   {0x93a, 0x93a},   {0x93c, 0x93c},
                                       {0x941, 0x948},   {0x94d, 0x94d},   {0xe31, 0xe31},   {0xe34, 0xe3a},
                                       {0xe47, 0xe4e},   {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x200b, 0x200f},
                                       {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xe0100, 0xe01ef}};
    constexpr char32_t kWide[][2] = {{0x1100, 0x115f},   {0x2e80, 0x303e},  {0x3041, 0x33ff},   {0x3400, 0x4dbf},
                                     {0x4e00, 0xa4cf},   {0xac00, 0xd7a3},  {0xf900, 0xfaff},   {0xfe30, 0xfe6f},
                                     {0xff00, 0xff60},   {0xffe0, 0xffe6},  {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff},
                                     {0x1f900, 0x1faff}, {0x20000, 0x3fffd}};
    for (const auto& range : kJoined)
        if (c >= range[0] && c <= range[1]) return 0;
    for (const auto& range : kWide)
        if (c >= range[0] && c <= range[1]) return 2;
    return c < 0x20 || (c >= 0x7f && c < 0xa0) ? -1 : 1;
}
inline void use_utf8_columns() {}

// The modes of the consoles on stdin and on the screen. Keys come as the bytes of a terminal, which Windows 10 makes.
struct terminal {
    inline static DWORD original = 0, screen_modes[3] = {};

    static void set(DWORD mode) {
        SetConsoleMode(stream_handle(0), mode | ENABLE_EXTENDED_FLAGS | ENABLE_VIRTUAL_TERMINAL_INPUT);
    }
    static void typing() { set(0); }
    static void answering() { set(ENABLE_PROCESSED_INPUT); }
    static bool begin() {
        if (!GetConsoleMode(stream_handle(0), &original)) return false;
        for (int screen : {1, 2})
            if (GetConsoleMode(stream_handle(screen), &screen_modes[screen]) &&
                !SetConsoleMode(stream_handle(screen),
                                screen_modes[screen] | ENABLE_PROCESSED_OUTPUT | ENABLE_VIRTUAL_TERMINAL_PROCESSING))
                return false;
        answering();
        return true;
    }
    static void end() {
        SetConsoleMode(stream_handle(0), original);
        for (int screen : {1, 2})
            if (screen_modes[screen]) SetConsoleMode(stream_handle(screen), screen_modes[screen]);
    }
    static void suspend() {}  // programs are not suspended here

    static void size(int screen, int* n_columns, int* n_rows) {
        CONSOLE_SCREEN_BUFFER_INFO info;
        const bool is_known = GetConsoleScreenBufferInfo(stream_handle(screen), &info) != 0;
        *n_columns = is_known ? info.srWindow.Right - info.srWindow.Left + 1 : 80;
        *n_rows = is_known ? info.srWindow.Bottom - info.srWindow.Top + 1 : 24;
    }
    static bool has_key() {
        INPUT_RECORD events[64];
        DWORD n = 0;
        if (!PeekConsoleInputW(stream_handle(0), events, 64, &n)) return false;
        return std::any_of(events, events + n, [](const INPUT_RECORD& event) {
            return event.EventType == KEY_EVENT && event.Event.KeyEvent.bKeyDown &&
                   event.Event.KeyEvent.uChar.UnicodeChar != 0;
        });
    }
    // A read of a pipe goes on at Ctrl-C, so it has a thread of its own.
    struct pipe_reader {
        const HANDLE wanted = CreateEventW(nullptr, FALSE, FALSE, nullptr);
        const HANDLE come = CreateEventW(nullptr, FALSE, FALSE, nullptr);
        std::string bytes;
        bool is_asked = false;
        void run() {
            for (;; SetEvent(come)) {
                WaitForSingleObject(wanted, INFINITE);
                bytes.resize(4096);
                DWORD n = 0;
                ReadFile(stream_handle(0), bytes.data(), (DWORD)bytes.size(), &n, nullptr);
                bytes.resize(n);  // 0: the end, or it failed
            }
        }
        int64_t read(char* to, size_t n_bytes) {
            if (is_asked || bytes.empty()) {
                ResetEvent(interrupts::came);
                if (!std::exchange(is_asked, true)) SetEvent(wanted);
                const HANDLE either[] = {come, interrupts::came};
                if (WaitForMultipleObjects(2, either, FALSE, INFINITE) != WAIT_OBJECT_0) return errno = EINTR, -1;
                is_asked = false;
            }
            n_bytes = std::min(n_bytes, bytes.size());
            std::memcpy(to, bytes.data(), n_bytes);
            bytes.erase(0, n_bytes);
            return (int64_t)n_bytes;
        }
    };
    static int64_t read_keys(char* to, size_t n_bytes) {
        if (os::is_terminal(0)) return read_console(to, n_bytes);
        static pipe_reader* const reader = [] {
            auto* const made = new pipe_reader;
            std::thread([made] { made->run(); }).detach();
            return made;
        }();
        return reader->read(to, n_bytes);
    }
    static int64_t write(int screen, const char* from, size_t n_bytes) {
        const std::wstring text = wide({from, n_bytes});
        DWORD n = 0;
        if (WriteConsoleW(stream_handle(screen), text.data(), (DWORD)text.size(), &n, nullptr)) return (int64_t)n_bytes;
        return _write(screen, from, (unsigned)n_bytes);
    }
};

}  // namespace os

// mingw-w64's fprintf writes stderr byte by byte, and a console does not always join the bytes of a character: there it
// gets each text in one piece.
namespace std {
__attribute__((format(gnu_printf, 2, 3))) inline int fprintf_whole(FILE* to, const char* format, ...) {
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    string text((size_t)max(vsnprintf(nullptr, 0, format, list), 0) + 1, '\0');
    vsnprintf(text.data(), text.size(), format, again);
    va_end(again);
    va_end(list);
    if (to == stderr && os::is_terminal(2)) return (int)os::terminal::write(2, text.data(), text.size() - 1);
    return fwrite(text.data(), 1, text.size() - 1, to) < text.size() - 1 ? -1 : (int)text.size() - 1;
}
}  // namespace std
#define fprintf(...) fprintf_whole(__VA_ARGS__)

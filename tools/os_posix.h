// tools/os_posix.h: tools/os.h on Linux and macOS.
#pragma once
#include <algorithm>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <termios.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace os {

// ---- the program ----

// Returns the arguments in UTF-8, without the program's name, and prepares the standard streams.
inline std::vector<std::string> arguments(int argc, char** argv) {
    // A standard stream that is closed stays so: else the first file that is opened would take its number, and messages
    // would be written into that file, or input read from it. Each is opened for the direction that nobody uses.
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0) ::_exit(1);
    return argc > 1 ? std::vector<std::string>(argv + 1, argv + argc) : std::vector<std::string>();
}

// A limit on file sizes becomes a write error like any other; its signal does not kill the program.
inline void report_large_files() { std::signal(SIGXFSZ, SIG_IGN); }

inline bool is_terminal(int stream) { return isatty(stream) == 1; }
inline uint64_t process_id() { return (uint64_t)getpid(); }

// Calls handler at Ctrl-C. is_once: the next Ctrl-C ends the program.
inline void on_interrupt(void (*handler)(int), bool is_once) {
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART | (is_once ? (int)SA_RESETHAND : 0);  // what is being written is not cut
    sigaction(SIGINT, &action, nullptr);
}

// Sets what happens at a signal, where the program does not ignore it (nohup).
inline void take_signal(int number, const struct sigaction& action) {
    struct sigaction present = {};
    if (sigaction(number, nullptr, &present) == 0 && present.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);
}

// Calls handler when the program is asked to end.
inline void on_end(void (*handler)(int)) {
    struct sigaction action = {};
    action.sa_handler = handler;
    for (int number : {SIGINT, SIGTERM, SIGHUP}) take_signal(number, action);
}

// What a server asks of the system: many open files, of which the soft limit is often 1,024, and that neither a
// connection that is gone nor a closed terminal ends it.
inline void prepare_server() {
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGHUP, SIG_IGN);
    rlimit limit = {};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 16384);
    ::setrlimit(RLIMIT_NOFILE, &limit);
}
constexpr bool kReusesAddress = true;  // of a listener that ended a moment ago
inline std::string host_name() {
    char name[256] = "";
    return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

// ---- files ----

constexpr const char* kSlashes = "/";
enum class file_kind { none, regular, folder, special };
inline file_kind kind_of(const std::string& path) {
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) return file_kind::none;
    return S_ISREG(info.st_mode) ? file_kind::regular : S_ISDIR(info.st_mode) ? file_kind::folder : file_kind::special;
}
inline bool is_same_file(const std::string& a, const std::string& b) {
    struct stat sa, sb;
    return stat(a.c_str(), &sa) == 0 && stat(b.c_str(), &sb) == 0 && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

// Returns the free bytes of the disk that a new file would be on; UINT64_MAX where nobody knows.
inline uint64_t disk_free(const std::string& path) {
    const size_t slash = path.rfind('/');
    struct statvfs disk;
    if (::statvfs(slash == path.npos ? "." : path.substr(0, slash + 1).c_str(), &disk) != 0 || disk.f_blocks == 0)
        return UINT64_MAX;
    return (uint64_t)disk.f_bavail * disk.f_frsize;
}

// Opens a file to be read, without waiting: a FIFO without a writer reads as empty. Returns -1 when it failed.
inline int open_to_read(const std::string& path) { return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC); }

// Reads some bytes, of stdin too (0), and waits for them. Returns 0 at the end, -1 when it failed.
inline int64_t read(int fd, char* to, size_t n_bytes) {
    for (;;) {
        const ssize_t n = ::read(fd, to, n_bytes);
        if (n >= 0 || (errno != EAGAIN && errno != EINTR)) return n;
        pollfd waiting = {fd, POLLIN, 0};
        if (::poll(&waiting, 1, -1) < 0 && errno != EINTR) return -1;
    }
}
inline void close(int fd) { ::close(fd); }

inline FILE* create(const std::string& path) { return std::fopen(path.c_str(), "wb"); }
inline void remove(const std::string& path) { std::remove(path.c_str()); }
inline bool rename(const std::string& from, const std::string& to) {
    return std::rename(from.c_str(), to.c_str()) == 0;
}

// Returns the file that a symbolic link leads to, which need not be there, else the path itself: a file that is renamed
// would replace the link.
inline std::string resolved(std::string path) {
    char to[4096];
    ssize_t n;
    for (int i = 0; i < 40 && (n = ::readlink(path.c_str(), to, sizeof to)) > 0; i++)  // 40: as Linux follows
        path = (to[0] == '/' ? "" : path.substr(0, path.rfind('/') + 1)) + std::string(to, (size_t)n);
    return path;
}

// Writes a file beside the path and renames it: a failure leaves no half file, and an older file as it was. A device or
// a FIFO is written to. is_private: other users may not read it, whatever the umask says. Returns 0, or the errno of
// the failure.
inline int replace_file(const std::string& path, std::string_view bytes, bool is_private) {
    const bool is_special = kind_of(path) > file_kind::regular;
    const std::string target = resolved(path);
    std::string part = target + ".XXXXXX";
    const int fd = is_special ? ::open(path.c_str(), O_WRONLY | O_CLOEXEC) : mkstemp(part.data());
    const mode_t mask = ::umask(077);
    ::umask(mask);
    bool is_good = fd >= 0;
    if (is_good && !is_special && !is_private && ::fchmod(fd, 0666 & ~mask) != 0) {}  // some disks know no modes
    while (is_good && !bytes.empty()) {
        const ssize_t n = ::write(fd, bytes.data(), bytes.size());
        is_good = n > 0 || (n < 0 && errno == EINTR);
        bytes.remove_prefix(n > 0 ? (size_t)n : 0);
    }
    int why = errno;
    if (fd >= 0 && ::close(fd) != 0 && is_good) is_good = false, why = errno;
    if (is_good && !is_special && !rename(part, target)) is_good = false, why = errno;
    if (is_good) return 0;
    if (fd >= 0 && !is_special) ::unlink(part.c_str());
    return why;
}

// ---- the machine ----

// Reads one number of /proc ("VmRSS:" of self/status), in bytes. Returns 0 if it is not there.
inline uint64_t proc_bytes(const char* path, const char* key) {
    uint64_t kib = 0;
    if (FILE* file = std::fopen(path, "r")) {
        char line[256];
        while (kib == 0 && std::fgets(line, sizeof line, file))
            if (std::strncmp(line, key, std::strlen(key)) == 0)
                kib = std::strtoull(line + std::strlen(key), nullptr, 10);
        std::fclose(file);
    }
    return kib * 1024;
}
// What this process has now and had at most. 0: nobody knows.
inline uint64_t memory_used() { return proc_bytes("/proc/self/status", "VmRSS:"); }
inline uint64_t memory_peak() { return proc_bytes("/proc/self/status", "VmHWM:"); }

// Returns fresh zeroed pages; nullptr: there are not so many.
inline void* allocate_pages(uint64_t n_bytes) {
    void* pages = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? nullptr : pages;
}
inline void free_pages(void* pages, uint64_t n_bytes) { munmap(pages, n_bytes); }

// The processor time of this process, and the most memory it had.
struct usage {
    double cpu_seconds = 0;
    long peak_kib = 0;
};
inline usage usage_now() {
    rusage u = {};
    getrusage(RUSAGE_SELF, &u);
    return {(double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec),
            u.ru_maxrss};
}

// Bytes of this processor's largest cache; 0 if the system does not say.
inline uint64_t largest_cache_bytes() {
    long largest = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
    largest = std::max({sysconf(_SC_LEVEL2_CACHE_SIZE), sysconf(_SC_LEVEL3_CACHE_SIZE), 0L});
#endif
    return (uint64_t)largest;
}

// ---- the terminal ----

// Returns the columns that a character takes, -1 if the system's table does not know it. It needs a locale of UTF-8,
// which use_utf8_columns sets.
inline int columns_of(char32_t c) { return wcwidth((wchar_t)c); }
inline void use_utf8_columns() {
    if (!std::setlocale(LC_CTYPE, "C.UTF-8")) std::setlocale(LC_CTYPE, "");
}

// The modes of the terminal on stdin. They stand alone because signal handlers use them: a program that ends by a
// signal leaves the terminal as it was, and one that goes on after Ctrl-Z sets its own modes again.
struct terminal {
    inline static termios original = {}, keys = {}, quiet = {};
    inline static const termios* volatile present = nullptr;
    // A pipe: a new size ends a wait for keys also when it comes just before it.
    inline static int resized[2] = {-1, -1};

    static void set(const termios& mode) {
        present = &mode;
        tcsetattr(0, TCSADRAIN, &mode);
    }
    static void on_end(int signal) {
        tcsetattr(0, TCSANOW, &original);
        // The end of pastes in brackets, and of dimmed text.
        if (::write(isatty(1) ? 1 : 2, "\x1b[?2004l\x1b[22m", 13) < 0) {}
        std::signal(signal, SIG_DFL);
        raise(signal);
    }
    static void on_continue(int) {
        const int error = errno;
        if (present) tcsetattr(0, TCSANOW, present);
        errno = error;
    }
    static void on_resize(int) {
        const int error = errno;
        if (::write(resized[1], "", 1) < 0) {}  // full: it is told already
        errno = error;
    }
    // While a line is typed all keys are bytes. While an answer comes nothing that is typed is shown, it waits for the
    // next line, and Ctrl-C is a signal.
    static void typing() { set(keys); }
    static void answering() { set(quiet); }
    static bool begin() {
        const char* const kind = std::getenv("TERM");
        if ((kind && std::string_view(kind) == "dumb") || !isatty(0) || tcgetattr(0, &original) != 0) return false;
        quiet = original;
        quiet.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        quiet.c_cc[VMIN] = 1;
        quiet.c_cc[VTIME] = 0;
        keys = quiet;
        keys.c_lflag &= ~(tcflag_t)(ISIG | IEXTEN);
        keys.c_iflag &= ~(tcflag_t)(ICRNL | INLCR | IXON | ISTRIP);
        struct sigaction action = {};
        action.sa_flags = SA_RESTART;
        action.sa_handler = on_end;
        for (int signal : {SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) take_signal(signal, action);
        action.sa_handler = on_continue;
        sigaction(SIGCONT, &action, nullptr);
        if (resized[0] < 0 && pipe(resized) != 0) return false;
        for (int fd : resized) {
            fcntl(fd, F_SETFL, O_NONBLOCK);
            fcntl(fd, F_SETFD, FD_CLOEXEC);
        }
        action.sa_handler = on_resize;
        sigaction(SIGWINCH, &action, nullptr);
        answering();
        return true;
    }
    static void end() {
        present = nullptr;
        tcsetattr(0, TCSADRAIN, &original);
    }
    // Ctrl-Z: the shell goes on, until it continues this program.
    static void suspend() {
        tcsetattr(0, TCSADRAIN, &original);
        raise(SIGTSTP);
        typing();
    }

    static void size(int screen, int* n_columns, int* n_rows) {
        winsize size = {};
        const bool is_known = ioctl(screen, TIOCGWINSZ, &size) == 0 && size.ws_col != 0;
        *n_columns = is_known ? size.ws_col : 80;
        *n_rows = is_known ? size.ws_row : 24;
    }
    static bool has_key() {
        pollfd more = {0, POLLIN, 0};
        return poll(&more, 1, 0) > 0;
    }
    // Waits for keys, or lines where stdin is no terminal. Returns 0 at the end, -1 when a signal or a new size came
    // (EINTR) or it failed.
    static int64_t read_keys(char* to, size_t n_bytes) {
        pollfd waiting[] = {{0, POLLIN, 0}, {resized[0], POLLIN, 0}};
        if (poll(waiting, 2, -1) < 0) return -1;
        char told[64];
        if (waiting[1].revents && ::read(resized[0], told, sizeof told) > 0) return errno = EINTR, -1;
        return ::read(0, to, n_bytes);
    }
    // Writes to the screen (stdout or stderr) without a buffer. Returns -1 when it failed.
    static int64_t write(int screen, const char* from, size_t n_bytes) { return ::write(screen, from, n_bytes); }
};

}  // namespace os

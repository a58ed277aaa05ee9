// tests/main.cpp: the test program's main function. It is doctest's own, with two additions. --jobs=N runs the cases in
// N processes, each of which takes the next case. The summary lists skipped cases with their reasons, so that a run
// that could not prove something does not look like one that did. Each subject has its own file, test_<subject>.cpp.
#define DOCTEST_CONFIG_IMPLEMENT
#include "doctest.h"
#include "test_data.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sstream>
#ifndef _WIN32
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

// Tests ask for more memory than there is: the address sanitizer lets such an allocation fail as the system does. It
// finds this function only where it is visible.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
    return "allocator_may_return_null=1";
}

namespace {

// Counters of all processes, in shared memory.
struct run_totals {
    std::atomic<int> next_case{1}, passed{0}, failed{0}, skipped{0}, in_part{0}, asserts{0}, asserts_failed{0};
    std::atomic<int> was_run{0};
    std::atomic<size_t> n_text{0};
    char text[1 << 16];  // reasons of skipped cases, one line each

    void add(const doctest::CurrentTestCaseStats& st) {
        const std::string lines = take_skipped_lines();
        (!st.testCaseSuccess ? failed : lines.empty() ? passed : st.numAssertsCurrentTest ? in_part : skipped)++;
        asserts += st.numAssertsCurrentTest;
        asserts_failed += st.numAssertsFailedCurrentTest;
        const size_t at = n_text.fetch_add(lines.size());
        if (at + lines.size() < sizeof text) memcpy(text + at, lines.data(), lines.size());
    }

    int print() const {
        const int n = passed + failed + skipped + in_part;
        std::printf("===============================================================================\n");
        std::printf("test cases: %d | %d passed | %d failed | %d skipped | %d skipped in part\n", n, passed.load(),
                    failed.load(), skipped.load(), in_part.load());
        std::printf("assertions: %d | %d passed | %d failed\n", asserts.load(), asserts - asserts_failed,
                    asserts_failed.load());
        if (n_text) std::printf("not proved here:\n");
        for (const char* at = text; *at; at = std::strchr(at, '\n') + 1)
            std::printf("  %.*s\n", (int)(std::strchr(at, '\n') - at), at);
        if (n == 0) std::printf("no test case has such a name\n");
        const bool is_good = n > 0 && failed == 0;
        std::printf("%s\n", is_good ? "SUCCESS" : "FAILURE");
        return is_good ? 0 : 1;
    }
};

run_totals* totals = nullptr;
int n_selected = 0;                         // cases that the command line chose, known after the first run
std::ostringstream* kept_output = nullptr;  // output of the running case, in a process of --jobs

struct totals_reporter : doctest::ConsoleReporter {
    using ConsoleReporter::ConsoleReporter;
    void test_case_end(const doctest::CurrentTestCaseStats& st) override {
        ConsoleReporter::test_case_end(st);
        totals->add(st);
    }
    void test_case_exception(const doctest::TestCaseException& e) override {
        ConsoleReporter::test_case_exception(e);
        if (e.is_crash && kept_output) std::fputs(kept_output->str().c_str(), stdout), std::fflush(stdout);
    }
    void test_run_end(const doctest::TestRunStats& p) override {
        totals->was_run = 1;
        n_selected = (int)p.numTestCasesPassingFilters;
    }
};
REGISTER_REPORTER("totals", 1, totals_reporter);

void prepare(doctest::Context& context, int argc, char** argv) {
    context.setOption("reporters", "totals");
    context.setOption("no-version", true);
    context.applyCommandLine(argc, argv);
}

#ifndef _WIN32
// The work of one process of --jobs: it runs one case after the other, and prints each case's output in one piece.
[[noreturn]] void run_cases(int argc, char** argv) {
    doctest::Context context;
    prepare(context, argc, argv);
    context.setOption("no-intro", true);
    do {
        const int i = totals->next_case++;
        std::ostringstream out;
        kept_output = &out;
        context.setCout(&out);
        context.setOption("first", i);
        context.setOption("last", i);
        context.run();
        std::fputs(out.str().c_str(), stdout);
        std::fflush(stdout);
        if (i >= n_selected) break;
    } while (!context.shouldExit());
    std::exit(0);
}

int run_jobs(int n_jobs, int argc, char** argv) {
    for (int i = 0; i < n_jobs; i++) {
        const pid_t child = fork();
        if (child < 0) return std::perror("fork"), 1;
        if (child == 0) run_cases(argc, argv);
    }
    for (int status; wait(&status) > 0;)
        if (status != 0) {
            std::printf("a test process ended with status 0x%x; its case counts as failed\n", status);
            totals->failed++;
        }
    return totals->print();
}

void* shared_bytes(size_t n_bytes) {
    void* const shared = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? nullptr : shared;
}
#else  // no fork: one process; tests/windows.sh starts several, each with a range of cases
int run_jobs(int, int, char**) { return std::printf("--jobs: one process only here (--first=N --last=N)\n"), 1; }
void* shared_bytes(size_t n_bytes) { return ::operator new(n_bytes); }
#endif

}  // namespace

int main(int argc, char** argv) {
    set_program_folder(argv[0]);
    void* shared = shared_bytes(sizeof(run_totals));
    if (!shared) return std::perror("mmap"), 1;
    totals = new (shared) run_totals;
    int n_jobs = 1;
    for (int i = 1; i < argc; i++)
        if (std::strncmp(argv[i], "--jobs=", 7) == 0) n_jobs = std::atoi(argv[i] + 7);
    if (n_jobs > 1) return run_jobs(n_jobs, argc, argv);
    doctest::Context context;
    prepare(context, argc, argv);
    context.run();
    return totals->was_run ? totals->print() : 0;
}

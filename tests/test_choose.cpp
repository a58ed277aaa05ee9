// tests/test_choose.cpp: candidates that take turns (cpu/choose.h), by a clock of its own: a winner that no neighbour
// changes, few turns, and one decision for all threads.
#include "doctest.h"
#include "../cpu/context.h"
#include "../models/os.h"

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>
#if defined(__linux__)
#include <unistd.h>
#endif

using namespace duet;

namespace {

// Does pieces until all is decided and returns the winner; *n_slow counts the pieces that losers did.
// true_ns: of a unit of work. noise: the share of pieces that a neighbour makes up to four times as slow.
int winner_of(const std::vector<double>& true_ns, double noise, uint32_t seed, int* n_pieces) {
    std::mt19937 rng(seed);
    std::uniform_real_distribution<double> chance(0, 1);
    timed_choice choice;
    const int n = (int)true_ns.size();
    int i = 0;
    for (; !choice.is_decided(n); i++) {
        REQUIRE(i < 10000);
        const int turn = choice.turn(n, i);
        REQUIRE(turn < n);
        if (turn < 0) continue;
        const uint64_t work = 1000 + rng() % 100000;  // matrices differ in size
        const double slower = (1 + 0.01 * chance(rng)) * (chance(rng) < noise ? 1 + 3 * chance(rng) : 1);
        choice.tell(turn, (uint64_t)(true_ns[(size_t)turn] * slower * (double)work) + 1, work);
    }
    if (n_pieces) *n_pieces = i;
    const int best = choice.best(n);
    for (int k = 0; k < n; k++) choice.tell(k, 1, 1000000);  // too late
    CHECK(choice.best(n) == best);
    CHECK(choice.turn(n, 0) == -1);
    return best;
}

}  // namespace

TEST_CASE("choice: the fastest candidate wins beside a noisy neighbour") {
    int n_right = 0, n_pieces = 0;
    for (uint32_t seed = 0; seed < 500; seed++) {
        const int fastest = (int)(seed % 3);
        std::vector<double> ns(3, 1.1);  // a tenth slower
        ns[(size_t)fastest] = 1.0;
        n_right += winner_of(ns, 0.7, seed, &n_pieces) == fastest;
        CHECK(n_pieces <= 3 * timed_choice::kTurns * 4);
    }
    CHECK(n_right >= 495);
    for (uint32_t seed = 0; seed < 100; seed++) CHECK(winner_of({2.0, 1.0}, 0.7, seed, nullptr) == 1);
}

TEST_CASE("choice: one candidate has no turns, and the first works before any was timed") {
    timed_choice choice;
    CHECK(choice.best(4) == 0);
    for (int i = 0; i < 10; i++) CHECK(choice.turn(1, i) == -1);
    choice.tell(2, 0, 0);  // no work
    CHECK(choice.best(4) == 0);
    choice.tell(2, 100, 10);
    CHECK(choice.best(4) == 2);
    choice.tell(0, 50, 10);
    CHECK(choice.best(4) == 0);
}

TEST_CASE("choice: every candidate has its turns, and a quarter of the pieces are turns") {
    for (int n = 2; n <= timed_choice::kMost; n++) {
        const timed_choice choice;
        std::vector<int> n_turns((size_t)n);
        int n_all = 0;
        for (int i = 0; i < 1000; i++)
            if (const int k = choice.turn(n, i); k >= 0) n_turns[(size_t)k]++, n_all++;
        for (int k : n_turns) CHECK(k >= 1000 / (4 * n));
        CHECK(n_all <= 260);
    }
}

TEST_CASE("choice: threads that tell at the same time come to one decision") {
    timed_choice choice;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&choice, t] {
            for (int i = t; !choice.is_decided(2); i++)
                if (const int k = choice.turn(2, i); k >= 0) choice.tell(k, k ? 900 : 1000, 100);
        });
    for (std::thread& t : threads) t.join();
    CHECK(choice.best(2) == 1);
    CHECK(choice.cost(0) == 10.0f);
    CHECK(choice.cost(1) == 9.0f);
}

TEST_CASE("choice: classes of tokens, kinds and formats are apart") {
    const auto at = [](int n_tok) { return &choice_of(choice_kind::matmul, 2, n_tok); };
    for (int n = 1; n < 9; n++) CHECK(at(n) != at(n + 1));
    for (int n = 9, first = 9; n <= 129; n++) {  // A class has at most a third more tokens than its first, or one.
        if (at(n) != at(n - 1)) first = n;
        CHECK(n <= std::max(first + 1, first * 4 / 3));
    }
    for (int most : {8, 16, 32, 64, 128}) CHECK(at(most) != at(most + 1));
    CHECK(at(129) == at(65536));
    CHECK(at(9) != &choice_of(choice_kind::experts, 2, 9));
    CHECK(at(9) != &choice_of(choice_kind::matmul, 3, 9));
}

TEST_CASE("choice: pieces take turns, the choice is told once and stays, and a named instruction set has none") {
    const model_graph graph;
    exec_limits limits;
    std::vector<std::string> told;
    limits.place.log = [](void* user, int32_t, const char* text) {
        ((std::vector<std::string>*)user)->push_back(text);
    };
    limits.place.log_user = &told;
    cpu_context c(graph, limits);
    c.scratch_user.assign(8, 0);
    const choice_kind kind = choice_kind::experts;
    const int32_t type = duet_type_by_name("F32")->id;
    const int n_tok = 3;  // there is one way only, so that no session opens this choice
    const matmul_ways both{{matmul_way::panels, matmul_way::amx}, 2};
    matmul_ways ways = both;
    CHECK(open_choice(c, kind, type, n_tok, &ways) == nullptr);
    CHECK(ways.n == 1);
    CHECK(ways.way[0] == matmul_way::panels);

    c.times_ways = true;
    ways = both;
    timed_choice* const choice = open_choice(c, kind, type, n_tok, &ways);
    REQUIRE(choice == &choice_of(kind, type, n_tok));
    CHECK(ways.n == 2);
    matmul_way last = matmul_way::scalar;
    int i = 0, n_amx = 0;
    for (; !choice->is_decided(2); i++) {
        REQUIRE(i < 10000);
        tell_choice(c, kind, type, n_tok, ways);
        CHECK(told.empty());
        run_piece(c, ways, choice, 0, 1, i, 1000, [&](matmul_way way, bool same_input) {
            CHECK(same_input == (i > 0 && way == last));
            last = way;
            n_amx += way == matmul_way::amx;
            const auto start = std::chrono::steady_clock::now();
            while (ns_since(start) < (way == matmul_way::amx ? 2000 : 20000)) {}
        });
    }
    CHECK(n_amx > i * 6 / 8);  // all but the turns of the other
    tell_choice(c, kind, type, n_tok, ways);
    tell_choice(c, kind, type, n_tok, ways);
    REQUIRE(told.size() == 1);
    CHECK(told[0].find("chosen: experts F32, 3 tokens: amx ") == 0);
    cpu_context other(graph, limits);  // A later session is told, too.
    other.times_ways = true;
    tell_choice(other, kind, type, n_tok, both);
    CHECK(told.size() == 2);
    CHECK(open_choice(c, kind, type, n_tok, &ways) == nullptr);
    CHECK(ways.n == 1);
    CHECK(ways.way[0] == matmul_way::amx);
}

TEST_CASE("choice: where a thread has one piece of each matmul, those are timed after a while") {
    const model_graph graph;
    const exec_limits limits;
    cpu_context c(graph, limits);
    c.scratch_user.assign(8, 0);
    timed_choice& choice = choice_of(choice_kind::experts, duet_type_by_name("F32")->id, 5);
    const matmul_ways both{{matmul_way::panels, matmul_way::amx}, 2};
    int i = 0;
    for (; !choice.is_decided(2); i++) {
        REQUIRE(i < 10000);
        run_piece(c, both, &choice, 0, (uint64_t)i + 1, 0, 1000,
                  [&](matmul_way, bool same_input) { CHECK(!same_input); });
    }
    CHECK(i > timed_choice::kPatience);
}

TEST_CASE("choice: the ways of a matmul are all there are, the best guess first") {
    const auto text = [](const char* isa, int32_t type, int n_tok, bool can_prepare) {
        const cpu_kernels* k = find_cpu_kernels(isa);
        std::string t;
        if (!k) return t;
        const matmul_ways ways = ways_of_matmul(*k, type, n_tok, can_prepare);
        for (int i = 0; i < ways.n; i++) t += std::to_string((int)ways.way[i]) + " ";
        return t;
    };
    const auto named = [](std::initializer_list<matmul_way> ways) {
        std::string t;
        for (matmul_way w : ways) t += std::to_string((int)w) + " ";
        return t;
    };
    using w = matmul_way;
    CHECK(text("scalar", 2, 100, true) == named({w::scalar}));
    if (find_cpu_kernels("avx512")) {
        CHECK(text("avx512", 2, 1, true) == named({w::rows}));
        CHECK(text("avx512", 2, 4, true) == named({w::rows}));
        CHECK(text("avx512", 2, 5, true) == named({w::panels}));
        CHECK(text("avx512", 2, 6, false) == named({w::tiles}));
        CHECK(text("avx512", 0, 1, true) == named({w::float_few}));
        CHECK(text("avx512", 0, 2, true) == named({w::float_some}));
        CHECK(text("avx512", 1, 2, true) == named({w::float_few}));
        CHECK(text("avx512", 1, 4, true) == named({w::float_some}));
        CHECK(text("avx512", 0, 5, true) == named({w::float_some, w::float_many}));
        CHECK(text("avx512", 0, 13, true) == named({w::float_many}));
    }
    if (find_cpu_kernels("amx")) {
        CHECK(text("amx", 2, 6, true) == named({w::amx, w::panels}));
        CHECK(text("amx", 2, 6, false) == named({w::amx, w::tiles}));
        CHECK(text("amx", 40, 64, true) == named({w::amx, w::tiles}));  // NVFP4 has no panels
    }
}

#if defined(__linux__)
namespace {

// Control groups of its own: the folder where they are mounted, and the list that says which are the process's.
struct fake_groups {
    const std::string folder =
        std::filesystem::temp_directory_path().string() + "/duet-groups-" + std::to_string(getpid());
    const os_groups at{folder + "/mounted", folder + "/list"};

    explicit fake_groups(const char* list) { write("/list", list); }
    ~fake_groups() { std::filesystem::remove_all(folder); }
    void write(const std::string& name, const std::string& text) const {
        std::filesystem::create_directories(std::filesystem::path(folder + name).parent_path());
        std::ofstream(folder + name) << text << "\n";
    }
};

}  // namespace

TEST_CASE("threads: a container's limit of CPU time, of both versions of control groups") {
    {
        const fake_groups now("0::/\n");
        CHECK(os_cpu_quota(now.at) == 1024);
        const auto quota = [&](const char* text) {
            now.write("/mounted/cpu.max", text);
            return os_cpu_quota(now.at);
        };
        CHECK(quota("max 100000") == 1024);
        CHECK(quota("200000 100000") == 2);
        CHECK(quota("150000 100000") == 2);
        CHECK(quota("1000 100000") == 1);
        CHECK(quota("9223372036854775807 1") == 1024);
        for (const char* wrong : {"", "x", "100000", "-5 100000", "100000 0"}) CHECK(quota(wrong) == 1024);
    }
    for (const char* kinds : {"cpu", "cpu,cpuacct", "cpuacct,cpu"}) {
        const fake_groups old(("9:name=systemd:/\n3:cpuset:/y\n1:" + std::string(kinds) + ":/\n0::/\n").c_str());
        CHECK(os_cpu_quota(old.at) == 1024);
        old.write("/mounted/cpu/cpu.cfs_quota_us", "250000");
        CHECK(os_cpu_quota(old.at) == 1024);  // no period
        old.write("/mounted/cpu/cpu.cfs_period_us", "100000");
        CHECK(os_cpu_quota(old.at) == 3);
        old.write("/mounted/cpu/cpu.cfs_quota_us", "-1");
        CHECK(os_cpu_quota(old.at) == 1024);
    }
    // The least of a group's limit and those around it, also where the group is deeper than what is mounted.
    const std::string deep = "/a.slice/" + std::string(300, 'b');
    const fake_groups now(("0::" + deep + "\n").c_str());
    now.write("/mounted/cpu.max", "400000 100000");
    CHECK(os_cpu_quota(now.at) == 4);
    now.write("/mounted/a.slice/cpu.max", "300000 100000");
    CHECK(os_cpu_quota(now.at) == 3);
    now.write("/mounted" + deep.substr(0, 200) + "/cpu.max", "200000 100000");  // of another group
    CHECK(os_cpu_quota(now.at) == 3);
    now.write("/list", "4:memory:/z\n1:cpu,cpuacct:/system.slice/duet.service\n");
    CHECK(os_cpu_quota(now.at) == 1024);
    now.write("/mounted/cpu/cpu.cfs_quota_us", "-1");
    now.write("/mounted/cpu/cpu.cfs_period_us", "100000");
    now.write("/mounted/cpu/system.slice/duet.service/cpu.cfs_quota_us", "50000");
    now.write("/mounted/cpu/system.slice/duet.service/cpu.cfs_period_us", "100000");
    CHECK(os_cpu_quota(now.at) == 1);
    for (const char* list : {"", ":", "::", "cpu", "1:cpu", "1:cpu:", "0::", "x:cpu:y"}) {
        now.write("/list", list);
        CHECK(os_cpu_quota(now.at) == 1024);
    }
    CHECK(os_cpu_quota({now.folder + "/none", now.folder + "/none"}) == 1024);
    CHECK(os_physical_cores() >= 1);
    CHECK(os_physical_cores() <= (int)std::thread::hardware_concurrency());
}

TEST_CASE("memory: a container's limit, of both versions of control groups, without the pages of files") {
    const uint64_t mib = 1 << 20, all = os_describe({"/", "/"}).memory_bytes;
    REQUIRE(all > 300 * mib);
    for (const bool is_old : {false, true}) {
        const fake_groups groups(is_old ? "2:cpu:/x\n4:memory:/a/b\n" : "0::/a/b\n");
        const auto write = [&](const std::string& group, const std::string& limit, uint64_t used, uint64_t n_files) {
            const std::string folder = std::string(is_old ? "/mounted/memory" : "/mounted") + group + "/memory.",
                              total = is_old ? "total_" : "", half = " " + std::to_string(n_files / 2) + "\n";
            groups.write(folder + (is_old ? "limit_in_bytes" : "max"), limit);
            groups.write(folder + (is_old ? "usage_in_bytes" : "current"), std::to_string(used));
            groups.write(folder + "stat", (is_old ? "inactive_file 1\nactive_file 1\n" : "anon 7\n") + total +
                                              "inactive_file" + half + total + "active_file" + half);
        };
        const auto check = [&](uint64_t n_all, uint64_t n_free) {
            const os_machine m = os_describe(groups.at);
            CHECK(m.memory_bytes == n_all);
            CHECK(m.free_bytes == n_free);
        };
        CHECK(os_describe(groups.at).memory_bytes == all);
        write("/a/b", is_old ? "9223372036854771712" : "max", 100 * mib, 0);
        CHECK(os_describe(groups.at).memory_bytes == all);
        CHECK(os_describe(groups.at).free_bytes > 0);
        write("/a/b", std::to_string(100 * mib), 70 * mib, 50 * mib);
        check(100 * mib, 80 * mib);
        write("/a", std::to_string(90 * mib), 60 * mib, 0);  // the group around it has less
        check(90 * mib, 30 * mib);
        write("/a", std::to_string(90 * mib), 95 * mib, 0);
        check(90 * mib, 0);
        write("/a", std::to_string(90 * mib), 10 * mib, 20 * mib);  // read at different moments
        check(90 * mib, 80 * mib);
    }
}
#endif

// tests/test_drivers.cpp: the CUDA and HIP drivers on stand-ins for the vendors' libraries (tests/fake_cuda.cpp,
// fake_hip.cpp), which run the kernels on the emulator. The tests cover a driver's whole life, with every call made to
// fail once; the choice of a device; and the messages when no device is used.
#include "doctest.h"
#include "fake_gpu.h"
#include "test_data.h"
#include "../runtime/self_test_cases.h"
#include "../cpu/executor.h"
#include "../models/os.h"
#include "../runtime/devices.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace duet;

namespace {

const uint8_t* code_of(const char* text) { return (const uint8_t*)text; }
// "code of sm_90" and "code of gfx1100" as gzip -9 packs them: a block with fixed codes, and one that is stored.
const uint8_t kPackedCuda[] = {31, 139, 8,   0,   0,   0,  0,  0, 2, 3,   75, 206, 79,  73, 85, 200, 79,
                               83, 40,  206, 141, 183, 52, 96, 0, 0, 221, 87, 107, 156, 14, 0,  0,   0};
const uint8_t kPackedHip[] = {31,  139, 8,  0,   0,   0,   0,  0,  2,  3,  1, 16,  0,  239, 255, 99, 111, 100, 101, 32,
                              111, 102, 32, 103, 102, 120, 49, 49, 48, 48, 0, 243, 80, 254, 19,  16, 0,   0,   0};
const gpu_code kCode[] = {{"sm_90", kPackedCuda, sizeof kPackedCuda, 12000},
                          {"gfx1100", kPackedHip, sizeof kPackedHip, 0}};

// Puts one stand-in in the place of a vendor's library; the other vendor has no library.
struct stand_in {
    std::string path, device;
    void* handle = nullptr;
    fake_control* control = nullptr;
    gpu_test_setup setup;
    const gpu_test_setup* before;

    stand_in(const char* file, const char* device_name, const char* chip, int version) : device(device_name) {
        path = program_folder() + "/" + file;
        handle = os_open_library(path.c_str(), false);
        const bool is_cuda = device.substr(0, 4) == "cuda";
        setup.cuda_library = is_cuda ? path.c_str() : "/nonexistent/libcuda.so.1";
        setup.hip_library = is_cuda ? "/nonexistent/libamdhip64.so" : path.c_str();
        setup.code = kCode;
        setup.n_code = 2;
        setup.root = "/nonexistent";
        before = gpu_test(&setup);
        if (!handle) return;
        control = ((fake_control * (*)()) os_find_symbol(handle, "fake_control_of"))();
        *control = {};
        control->backend = chip[0] == 's' || chip[3] == '1' ? &kEmu32Driver : &kEmu64Driver;
        control->version = version;
        for (auto& c : control->chip) snprintf(c, sizeof c, "%s", chip);
        reset();
    }
    ~stand_in() {
        gpu_test(before);
        if (handle) reset(true), os_close_library(handle);
    }
    void reset(bool is_last = false) const { ((void (*)(bool))os_find_symbol(handle, "fake_reset"))(is_last); }
    bool is_clean() const {
        INFO(std::string(control->misuse));
        CHECK(control->n_live == 0);
        CHECK(control->misuse[0] == 0);
        return control->n_live == 0 && !control->misuse[0];
    }
};

struct kind_of_driver {
    const char *file, *device, *chip;
    int version;
    const gpu_driver* driver;
};
#ifdef _WIN32
const kind_of_driver kKinds[] = {{"nvcuda.dll", "cuda:0", "sm_90", 12040, &kCudaDriver},
                                 {"amdhip64_6.dll", "hip:0", "gfx1100", 60241134, &kHipDriver},
                                 {"amdhip64.dll", "hip:0", "gfx1100", 50700000, &kHipDriver}};
void set_environment(const char* name, const char* value) { CHECK(_putenv_s(name, value) == 0); }
#else
const kind_of_driver kKinds[] = {{"libcuda.so.1", "cuda:0", "sm_90", 12040, &kCudaDriver},
                                 {"libamdhip64.so.6", "hip:0", "gfx1100", 60241134, &kHipDriver},
                                 {"libamdhip64.so.5", "hip:0", "gfx1100", 50700000, &kHipDriver}};
void set_environment(const char* name, const char* value) {
    CHECK((*value ? setenv(name, value, 1) : unsetenv(name)) == 0);
}
#endif

self_test::graph_case small_case() {
    self_test::graph_case c("small");
    const view x = c.input(64), y = c.buffer(33);
    c.add(op_kind::matmul, x, y).w = c.matrix(2, 64, 33);
    c.logits(y);
    return c;
}

// Opens, allocates, records, plays twice, reads back, closes.
duet_status record_and_play(const gpu_driver& driver, std::vector<uint8_t>* out, error_text& err) {
    void *device = nullptr, *memory = nullptr, *second = nullptr, *pinned = nullptr, *recording = nullptr,
         *kernel = nullptr;
    gpu_info info;
    DUET_TRY(driver.open(0, &device, &info, err));
    out->assign(64, 1);
    int32_t tile = 0;
    const duet_status st = [&]() -> duet_status {
        DUET_TRY(driver.alloc(device, 64, &memory, err));
        DUET_TRY(driver.alloc(device, 64, &second, err));
        DUET_TRY(driver.alloc_host(device, 64, &pinned, err));
        DUET_TRY(driver.kernel(device, "common", "kernel_words", &kernel, &tile, err));
        DUET_TRY(driver.record_begin(device, err));
        const duet_status recorded = [&]() -> duet_status {
            const words_args all{(uint32_t*)pinned, (uint32_t*)memory, 8, 1, 0},
                zeros{nullptr, (uint32_t*)memory, 2, 1, 0};
            DUET_TRY(driver.launch(device, kernel, {1, 1, 1, 256, 0}, &all, sizeof all, err));
            return driver.launch(device, kernel, {1, 1, 1, 256, 0}, &zeros, sizeof zeros, err);
        }();
        error_text end_err;
        const duet_status ended = driver.record_end(device, &recording, end_err);
        CHECK((recorded == DUET_OK || ended != DUET_OK));  // a recording with a hole is none
        if (recorded != DUET_OK) return recorded;
        if (ended != DUET_OK) return err = end_err, ended;
        for (int i = 1; i <= 2; i++) {
            memset(pinned, i, 64);
            DUET_TRY(driver.play(device, recording, err));
            DUET_TRY(driver.sync(device, err));
        }
        DUET_TRY(driver.upload(device, second, pinned, 64, err));
        DUET_TRY(driver.copy(device, second, memory, 64, err));
        return driver.download(device, out->data(), second, 64, err);
    }();
    driver.free_recording(device, recording);
    driver.free_host(device, pinned);
    driver.free(device, memory);
    driver.free(device, second);
    driver.close(device);
    return st;
}

// Asks a driver for all it can do. If no error is returned, the bits must be right.
duet_status whole_life(const kind_of_driver& k, const self_test::graph_case& c, const std::vector<float>& want,
                       error_text& err) {
    std::vector<uint8_t> bytes, good(64, 0);
    memset(good.data() + 8, 2, 24);
    DUET_TRY(record_and_play(*k.driver, &bytes, err));
    CHECK(bytes == good);
    std::vector<float> got;
    const self_test::graph_case fresh = c;  // a graph keeps its weights on the device
    DUET_TRY(self_test::run_case(fresh, kGpuExecutor, k.device, &got, err));
    REQUIRE(got.size() == want.size());
    CHECK(memcmp(got.data(), want.data(), want.size() * 4) == 0);
    return DUET_OK;
}

#ifndef _WIN32
// A file that is no library.
std::string no_library() {
    const std::string path = program_folder() + "/no_library.so";
    std::ofstream(path) << "text";
    return path;
}
#endif

}  // namespace

TEST_CASE("drivers: a library that the process has is found, and none is loaded for that") {
#ifdef _WIN32
    const std::string from = program_folder() + "/amdhip64_6.dll", path = program_folder() + "/copy_of_a_driver.dll";
#else
    const std::string from = program_folder() + "/libamdhip64.so.6", path = program_folder() + "/copy_of_a_driver.so";
#endif
    std::filesystem::copy_file(from, path, std::filesystem::copy_options::overwrite_existing);
    CHECK(os_open_library(path.c_str(), true) == nullptr);
    void* opened = os_open_library(path.c_str(), false);
    REQUIRE(opened);
    void* again = os_open_library(path.c_str(), true);
    CHECK(again == opened);
    os_close_library(again);
    os_close_library(opened);
}

TEST_CASE("drivers: a whole life on stand-ins, and every call failing once, is right or a clear error, and leaves "
          "nothing behind") {
    const self_test::graph_case c = small_case();
    std::vector<float> want;
    error_text err;
    REQUIRE(self_test::run_case(c, kCpuExecutor, "scalar", &want, err) == DUET_OK);
    for (const kind_of_driver& k : kKinds) {
        stand_in s(k.file, k.device, k.chip, k.version);
        REQUIRE(s.control != nullptr);
        INFO(std::string(k.file));
        REQUIRE(whole_life(k, c, want, err) == DUET_OK);
        CHECK(s.control->n_played == 2);
        CHECK(s.control->n_launches > 0);
        REQUIRE(s.is_clean());
        const int64_t n_calls = s.control->n_calls, n_pinned = s.control->n_pinned;
        int64_t n_failed = 0, n_unseen = 0;
        for (int64_t n = 1;; n++) {
            s.reset();
            s.control->n_calls = 0;
            s.control->fail_at = n;
            s.control->fail_code = n % 3 == 0 ? 2 : n % 3 == 1 ? 719 : 999;
            s.control->failed_call[0] = 0;
            err.text.clear();
            const duet_status st = whole_life(k, c, want, err);
            INFO("call ", n, " ", std::string(s.control->failed_call), ": ", err.text);
            if (!s.control->failed_call[0]) {
                CHECK(st == DUET_OK);
                break;
            }
            // what gives back may fail unseen
            const std::string call = s.control->failed_call;
            const bool gives_back =
                call.find("Free") != std::string::npos || call.find("Destroy") != std::string::npos ||
                call.find("Release") != std::string::npos || call.find("Unload") != std::string::npos ||
                call.find("Pop") != std::string::npos || call == "hipSetDevice" || call.find("hipGetDevice") == 0 ||
                call.find("Exchange") != std::string::npos || call.find("Push") != std::string::npos ||
                call.find("EndCapture") != std::string::npos;
            if (st == DUET_OK && call.find("StreamSynchronize") != std::string::npos)
                n_unseen++;  // the wait before pinned memory is freed
            else if (!gives_back) CHECK(st != DUET_OK);
            if (st != DUET_OK) {
                n_failed++;
                CHECK(err.text.find(call.find("Properties") == std::string::npos ? call : "Properties") !=
                      std::string::npos);
                CHECK(err.text.find(k.device[0] == 'c' ? "cuda" : "hip") != std::string::npos);
                CHECK(st == (s.control->fail_code == 2 ? DUET_ERR_MEMORY : DUET_ERR_DEVICE));
            }
            if (!s.is_clean()) break;
            REQUIRE(n <= n_calls);
        }
        CHECK(n_failed > n_calls / 3);
        CHECK(n_unseen == n_pinned);
    }
}

// ---- whole models, and what goes wrong ----

namespace {

// Computes greedy ids, and the logits of the last token of a prompt and of the tokens after it, in one session.
// Returns "" or the error.
std::string model_run(const char* device, std::vector<float>* logits, std::string* warning = nullptr,
                      int32_t gpu_layers = -1, int32_t recording = -1, int n_steps = 4,
                      const char* path = "models/demo.gguf", std::vector<int32_t> ids = {}) {
    duet_model_params p = duet_model_params_default();
    p.gpu_recording = recording;
    p.device = device;
    p.n_threads = 1;
    p.gpu_layers = gpu_layers;
    std::string told;
    p.log = [](void* user, int32_t level, const char* text) {
        if (level >= DUET_LOG_WARN) *(std::string*)user += text;
    };
    p.log_user = &told;
    duet_model* model = nullptr;
    duet_session* session = nullptr;
    std::string error;
    if (duet_model_open(path, &p, &model) != DUET_OK) error = duet_model_error(model);
    duet_session_params s = duet_session_params_default();
    s.n_ctx = 64;
    s.max_batch = 32;
    if (error.empty() && duet_session_create(model, &s, &session) != DUET_OK) error = duet_session_error(session);
    duet_model_info info{};
    info.struct_size = sizeof info;
    if (error.empty()) (void)duet_model_get_info(model, &info);
    for (int i = 0, n = ids.empty() ? 20 : 0; i < n; i++) ids.push_back(3 + i * 7);
    for (int step = 0; step < n_steps && error.empty(); step++) {
        duet_batch b = duet_batch_default();
        b.n_tok = (int32_t)ids.size();
        b.token = ids.data();
        if (duet_decode(session, &b) != DUET_OK) {
            error = duet_session_error(session);
            if (duet_decode(session, &b) != DUET_ERR_DEVICE) error += "; and then not lost";
            duet_session* another = nullptr;
            if (duet_session_create(model, &s, &another) == DUET_OK) error += "; and then another session";
            duet_session_free(another);
            break;
        }
        const float* row = duet_logits(session, 0);
        logits->insert(logits->end(), row, row + info.n_vocab);
        ids = {(int32_t)(std::max_element(row, row + info.n_vocab) - row)};
    }
    duet_session_free(session);
    duet_model_free(model);
    if (warning) *warning = told;
    return error;
}

const kind_of_driver& hip() { return kKinds[1]; }
bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// One line of the file that DUET_TEST_HASHES names, which tests/windows.sh compares with that of another system: FNV-1a
// over the bits of the logits.
void tell_hash(const std::string& name, const std::vector<float>& x) {
    const char* const path = std::getenv("DUET_TEST_HASHES");
    if (!path) return;
    uint64_t h = 14695981039346656037u;
    for (float v : x) h = (h ^ std::bit_cast<uint32_t>(v)) * 1099511628211u;
    std::ofstream(path, std::ios::app | std::ios::binary) << name << " " << x.size() << " " << std::hex << h << "\n";
}

}  // namespace

TEST_CASE("drivers: a model on stand-ins gives the CPU's bits; auto takes the device; everything is given back") {
    std::vector<float> want;
    REQUIRE(model_run("cpu", &want) == "");
    for (const kind_of_driver& k : {kKinds[0], kKinds[1]})
        for (const char* device : {k.device, "auto"}) {
            stand_in s(k.file, k.device, k.chip, k.version);
            std::vector<float> got;
            std::string warning;
            gpu_info info;
            error_text err;
            INFO(std::string(k.file), " ", std::string(device));
            CHECK(gpu_device_info(k.device, &info, err) == DUET_OK);
            CHECK(info.vec_blocks == (k.driver == &kCudaDriver ? 4 : 2));
            CHECK(model_run(device, &got, &warning) == "");
            CHECK(warning == "");
            CHECK(s.control->n_launches > 100);
            // Code of sm_90 waits for the launches before it by itself.
            CHECK(s.control->n_early == (k.driver == &kCudaDriver ? s.control->n_launches : 0));
            REQUIRE(got.size() == want.size());
            CHECK(memcmp(got.data(), want.data(), want.size() * 4) == 0);
            s.is_clean();
        }
}

TEST_CASE("drivers: golden models of every family on stand-ins for both vendors give the CPU's logits") {
    int n_models = 0;
    for (const std::string& folder : golden_folders()) {
        const std::string path = folder + "/model.gguf", name = std::filesystem::path(folder).filename().string();
        // as test_gpu.cpp: other cases have what these have more of, and test_embed.cpp those without logits
        if (!file_exists(path) || name.starts_with("long-") || name == "exaone4-64layers-swa") continue;
        if (!file_exists(folder + "/logits.f32") && file_exists(folder + "/pooled.f32")) continue;
        std::vector<int32_t> ids = read_ids(folder + "/tokens.json");
        ids.resize(std::min<size_t>(ids.size(), 8));
        std::vector<float> want;
        REQUIRE(model_run("cpu", &want, nullptr, -1, -1, 2, path.c_str(), ids) == "");
        for (const kind_of_driver& k : {kKinds[0], kKinds[1]}) {
            stand_in s(k.file, k.device, k.chip, k.version);
            std::vector<float> got;
            INFO(name, " ", std::string(k.file));
            CHECK(model_run(k.device, &got, nullptr, -1, -1, 2, path.c_str(), ids) == "");
            REQUIRE(got.size() == want.size());
            CHECK(memcmp(got.data(), want.data(), want.size() * 4) == 0);
            s.is_clean();
            tell_hash(name + " " + k.device, got);
        }
        n_models++;
    }
    CHECK(n_models > 20);
}

TEST_CASE("drivers: greedy generation makes one play, one copy and one wait a token") {
    for (const kind_of_driver& k : {kKinds[0], kKinds[1]}) {
        stand_in s(k.file, k.device, k.chip, k.version);
        duet_model_params p = duet_model_params_default();
        p.device = k.device;
        duet_model* model = nullptr;
        duet_session* session = nullptr;
        duet_sampler* sampler = nullptr;
        REQUIRE(duet_model_open("models/demo.gguf", &p, &model) == DUET_OK);
        duet_session_params sp = duet_session_params_default();
        sp.n_ctx = 64;
        REQUIRE(duet_session_create(model, &sp, &session) == DUET_OK);
        REQUIRE(duet_sampler_create(1, &sampler) == DUET_OK);
        REQUIRE(duet_sampler_set(sampler, "temp", 0) == DUET_OK);
        duet_generate_params g = duet_generate_params_default();
        g.max_new_tok = 12;
        struct token_counts {
            const fake_control* control;
            std::vector<int64_t> plays, launches, calls;
        } n{s.control, {}, {}, {}};
        const auto count = [](void* user, const duet_token_event*) -> int32_t {
            token_counts& t = *(token_counts*)user;
            t.plays.push_back(t.control->n_played);
            t.launches.push_back(t.control->n_launches);
            t.calls.push_back(t.control->n_calls);
            return 0;
        };
        const int32_t prompt[3] = {5, 9, 30};
        CHECK(duet_generate(session, sampler, prompt, 3, &g, count, &n, nullptr) == DUET_OK);
        REQUIRE(n.plays.size() > 8);  // The first two plays are watched.
        for (size_t i = 6; i < n.plays.size(); i++) {
            CHECK(n.plays[i] == n.plays[i - 1] + 1);
            CHECK(n.launches[i] == n.launches[i - 1]);
            // The device is made current and left again around the play, and around the copy with its wait: 7 calls of
            // CUDA; HIP asks for the current device first and finds it current. Both relax the thread's mode and undo
            // that.
            CHECK(n.calls[i] - n.calls[i - 1] == 11);
        }
        duet_sampler_free(sampler);
        duet_session_free(session);
        duet_model_free(model);
        s.is_clean();
    }
}

TEST_CASE("drivers: a recording that cannot be made costs nothing; one that plays wrongly is noticed, and the bits are "
          "right; it can be switched off") {
    std::vector<float> want;
    REQUIRE(model_run("cpu", &want, nullptr, -1, -1, 6) == "");
    const auto run = [&](stand_in& s, const char* told, int32_t use = -1) {
        std::vector<float> got;
        std::string warning;
        CHECK(model_run(s.device.c_str(), &got, &warning, -1, use, 6) == "");
        INFO(warning);
        CHECK((told[0] ? has(warning, told) : warning.empty()));
        CHECK(warning.find("recorded decoding is off") == warning.rfind("recorded decoding is off"));  // one line
        REQUIRE(got.size() == want.size());
        CHECK(memcmp(got.data(), want.data(), want.size() * 4) == 0);
        s.is_clean();
        return s.control->n_played;
    };
    for (const kind_of_driver& k : {kKinds[0], kKinds[1]}) {
        INFO(std::string(k.file));
        for (const char* call : {"BeginCapture", "LaunchKernel", "EndCapture", "GraphInstantiate", "GraphLaunch"})
            for (const int code : {2, 901}) {
                if (code == 901 && !strcmp(call, "GraphLaunch")) continue;  // Then the device is lost.
                stand_in s(k.file, k.device, k.chip, k.version);
                s.control->fail_call = call;
                s.control->fail_code = code;
                s.control->fail_times = strcmp(call, "GraphLaunch") ? 3 : 1;  // Another thread may have broken two.
                INFO(std::string(call), " ", code);
                CHECK(run(s, ("error " + std::to_string(code)).c_str()) == 0);
                CHECK(s.control->fail_call == nullptr);
            }
        {
            stand_in s(k.file, k.device, k.chip, k.version);
            s.control->fail_call = "EndCapture";
            s.control->fail_code = 901;
            CHECK(run(s, "") > 1);
        }
        {  // old data for whatever was copied to the device before a play, seen after the watched plays only, because
           // those wait before they play: nothing in a recording reads such data
            stand_in s(k.file, k.device, k.chip, k.version);
            s.control->stale = true;
            CHECK(run(s, "") == 4);
        }
        for (const int node : {1, -1}) {  // a node without effect: seen at the first play, the last one
            stand_in s(k.file, k.device, k.chip, k.version);
            s.control->skip_node = node;
            CHECK(run(s, "other bits") == 1);
        }
        for (const int node : {6, 8, 11, 13}) {  // without a block: counters of finished blocks stay as they are
            stand_in s(k.file, k.device, k.chip, k.version);
            s.control->cut_node = node;
            CHECK(run(s, "other bits") == 1);
        }
        {
            stand_in s(k.file, k.device, k.chip, k.version);
            CHECK(run(s, "", 0) == 0);
            set_environment("DUET_GPU_RECORDING", "0");
            CHECK(run(s, "") == 0);
            CHECK(run(s, "", 1) > 1);
            set_environment("DUET_GPU_RECORDING", "");
        }
        {
            stand_in s(k.file, k.device, k.chip, k.version);
            s.control->others_capture = true;
            CHECK(run(s, "") > 1);
        }
    }
    struct {
        const char *file, *chip;
        int version;
        bool plays;
    } const known[] = {{kKinds[1].file, "gfx1100", 70226015, false},
                       {kKinds[1].file, "gfx1100", 70151831, true},
                       {kKinds[1].file, "gfx1100", 70351831, true},
                       {kKinds[0].file, "sm_90", 13000, true}};
    for (const auto& c : known) {
        stand_in s(c.file, c.chip[0] == 's' ? "cuda:0" : "hip:0", c.chip, c.version);
        CHECK((run(s, "") > 0) == c.plays);
    }
}

TEST_CASE(
    "drivers: what is queued before a recording that fails is done before its batch, and one that memory runs out "
    "in is ended") {
    const std::string path = tiny_model_folder("qwen3next") + "/model.gguf";
    for (const kind_of_driver& k : {kKinds[0], kKinds[1]})
        for (const bool no_room : {false, true}) {
#ifdef _WIN32
            if (no_room) continue;  // Nothing is thrown across the border of a DLL.
#endif
            stand_in s(k.file, k.device, k.chip, k.version);
            duet_model_params p = duet_model_params_default();
            p.device = k.device;
            duet_model* model = nullptr;
            duet_session* session = nullptr;
            REQUIRE(duet_model_open(path.c_str(), &p, &model) == DUET_OK);
            duet_session_params q = duet_session_params_default();
            q.n_ctx = 64;
            REQUIRE(duet_session_create(model, &q, &session) == DUET_OK);
            const int32_t id = 9;
            const duet_batch b{sizeof(duet_batch), 1, &id, nullptr, nullptr, nullptr};
            std::vector<float> rows[4];
            for (int i = 0; i < 4; i++) {
                INFO(std::string(k.file), " ", no_room, " ", i);
                s.control->no_room = no_room && i == 1;
                if (i == 1 && !no_room) s.control->fail_call = "EndCapture", s.control->fail_code = 901;
                REQUIRE(duet_seq_trim(session, 0, 0) == DUET_OK);  // The batch clears the recurrent state.
                REQUIRE(duet_decode(session, &b) == DUET_OK);
                rows[i].assign(duet_logits(session, 0), duet_logits(session, 0) + 96);
                CHECK(rows[i] == rows[0]);
            }
            CHECK(s.control->fail_call == nullptr);
            CHECK(s.control->n_played == 2);
            duet_session_free(session);
            duet_model_free(model);
            s.is_clean();
        }
}

TEST_CASE(
    "drivers: a token as one launch gives the CPU's bits; a driver that cannot do it is asked once, and recordings "
    "serve") {
    std::vector<float> want;
    REQUIRE(model_run("cpu", &want, nullptr, -1, -1, 6) == "");
    for (const kind_of_driver& k : kKinds)
        for (int failing : {0, 1, 2, 5, -1}) {   // a walk that fails, of one asked for and four walked; -1: no kernel
            if (&k == &kKinds[2]) failing = -1;  // a runtime without such launches
            stand_in s(k.file, k.device, k.chip, k.version);
            s.control->fail_code = 720;
            s.control->fail_walk = std::max(failing, 0);
            if (failing < 0) s.control->missing_kernel = "kernel_walk_q8_0_q8_0";
            std::vector<float> got;
            std::string warning;
            INFO(std::string(k.file), " ", failing);
            const std::string error = model_run(k.device, &got, &warning, -1, 2, 6);
            INFO(error, " ", warning);
            CHECK(has(error, "error 720") == (failing > 1));
            CHECK(!has(error, "; and then"));
            const bool is_off = failing == 1 || failing < 0;
            CHECK(has(warning, "decoding by one launch is off") == is_off);
            CHECK((is_off || warning.empty()));
            CHECK(s.control->n_walks == (failing < 0 ? 0 : failing ? failing : 5));
            CHECK(s.control->n_played == (is_off ? 4 : 0));
            CHECK(got.size() == (failing > 1 ? want.size() / 6 * (size_t)failing : want.size()));
            CHECK(memcmp(got.data(), want.data(), got.size() * 4) == 0);
            s.is_clean();
        }
    stand_in s(kKinds[0].file, kKinds[0].device, kKinds[0].chip, kKinds[0].version);
    set_environment("DUET_GPU_RECORDING", "2");
    std::vector<float> got;
    CHECK(model_run(kKinds[0].device, &got, nullptr, -1, -1, 6) == "");
    set_environment("DUET_GPU_RECORDING", "");
    CHECK(s.control->n_walks == 5);
    CHECK(got == want);
}

TEST_CASE(
    "drivers: a model's sessions share the open device, its code and kernels; each goes without harm to the others") {
    for (const kind_of_driver& k : {kKinds[0], kKinds[1]}) {
        stand_in s(k.file, k.device, k.chip, k.version);
        duet_model_params p = duet_model_params_default();
        p.device = k.device;
        duet_model* model = nullptr;
        duet_session* sessions[2] = {};
        int64_t n_calls[2];
        REQUIRE(duet_model_open("models/demo.gguf", &p, &model) == DUET_OK);
        duet_session_params q = duet_session_params_default();
        q.n_ctx = 64;
        for (int i : {0, 1}) {
            s.control->n_calls = 0;
            REQUIRE(duet_session_create(model, &q, &sessions[i]) == DUET_OK);
            n_calls[i] = s.control->n_calls;
        }
        CHECK(n_calls[1] < n_calls[0] / 4);
        std::vector<float> rows[2];
        const int32_t ids[3] = {5, 9, 30};
        const duet_batch b{sizeof(duet_batch), 3, ids, nullptr, nullptr, nullptr};
        for (int i : {0, 1}) {
            REQUIRE(duet_decode(sessions[i], &b) == DUET_OK);
            rows[i].assign(duet_logits(sessions[i], 0), duet_logits(sessions[i], 0) + 100);
            duet_session_free(sessions[i]);
        }
        CHECK(rows[0] == rows[1]);
        duet_model_free(model);
        s.is_clean();
    }
}

TEST_CASE("drivers: out of memory, a lost device, an old driver, no code, no device: clear errors; auto goes on with "
          "the CPU and says why") {
    std::vector<float> want, got;
    REQUIRE(model_run("cpu", &want) == "");
    for (const kind_of_driver& k : {kKinds[0], kKinds[1]}) {
        const bool is_cuda = k.device[0] == 'c';
        const char* any = is_cuda ? "cuda" : "hip";
        INFO(std::string(k.file));
        {  // lost in the middle: at some call of the third token
            stand_in s(k.file, k.device, k.chip, k.version);
            REQUIRE(model_run(any, &got) == "");
            const int64_t n = s.control->n_calls;
            s.control->n_calls = 0;
            s.control->lost_at = n * 9 / 10;
            const std::string error = model_run(any, &got);
            INFO(error);
            CHECK(has(error, "error 719"));
            CHECK(!has(error, "; and then"));
            s.is_clean();
        }
        {  // too little memory: named, as much is there as fits; auto keeps to the CPU
            stand_in s(k.file, k.device, k.chip, k.version);
            s.control->memory_bytes = 600u << 20;
            s.control->fail_code = 2;
            REQUIRE(model_run(any, &got) == "");
            s.control->memory_bytes = 1 << 20;
            got.clear();
            CHECK((model_run(any, &got) == "" && got == want));
            std::string warning;
            got.clear();
            CHECK(model_run("auto", &got, &warning) == "");
            CHECK(has(warning, "computing on the CPU"));
            CHECK(has(warning, "too little memory"));
            CHECK(got == want);
            s.is_clean();
        }
        struct wrong_setup {
            void (*change)(stand_in&);
            const char* error;
        };
        // clang-format off
        const wrong_setup wrong[] = {
            {[](stand_in& s) { s.control->version = s.device[0] == 'c' ? 11020 : 50200000; }, "too old"},
            {[](stand_in& s) { s.setup.n_code = 0; }, "no code for this chip"},
            {[](stand_in& s) { snprintf(s.control->chip[0], 32, "%s", s.device[0] == 'c' ? "sm_75" : "gfx1010"); }, "no code for this chip"},
            {[](stand_in& s) { s.control->n_devices = 0; }, "finds no device"},
            {[](stand_in& s) { s.setup.cuda_library = s.setup.hip_library = "/nonexistent.so"; }, "/nonexistent.so not found"},
#ifndef _WIN32  // which says of any library that it is not found
            {[](stand_in& s) { static const std::string path = no_library(); s.setup.cuda_library = s.setup.hip_library = path.c_str(); }, "no_library.so does not load: "},
#endif
            {[](stand_in& s) { s.control->fail_at = 1, s.control->fail_code = 999; }, "Init"},
        };
        // clang-format on
        for (const wrong_setup& w : wrong) {
            stand_in s(k.file, k.device, k.chip, k.version);
            w.change(s);
            const std::string error = model_run(any, &got);
            INFO(error);
            CHECK(has(error, w.error));
            CHECK(has(error, ("device '" + std::string(any) + "' cannot be used").c_str()));
            s.control->n_calls = 0;
            std::string warning;
            got.clear();
            CHECK(model_run("auto", &got, &warning) == "");
#ifndef _WIN32  // which asks its own registry for a card, and says nothing where there is none
            CHECK(has(warning, "computing on the CPU"));
#endif
            CHECK(got == want);
            s.is_clean();
        }
    }
    {  // code of a newer CUDA than the driver knows
        stand_in s(kKinds[0].file, "cuda:0", "sm_90", 11080);
        CHECK(has(model_run("cuda", &got), "want CUDA 12.0, found CUDA 11.8"));
    }
    {  // a library of something else
        stand_in s(kKinds[0].file, "cuda:0", "sm_90", 12040);
        s.setup.hip_library = s.setup.cuda_library;
        CHECK(has(model_run("hip", &got), "no entry point hip"));
    }
}

TEST_CASE("drivers: a card before an integrated chip, which is opened only when it is named; ids; the list") {
    auto row = [](const char* id) {
        for (const gpu_found& d : list_gpus())
            if (d.id == id) return d;
        return gpu_found{};
    };
    {
        stand_in s(hip().file, hip().device, hip().chip, hip().version);
        s.control->n_devices = 2;
        s.control->integrated = 1;  // hip:0 is the processor's
        const gpu_found chip = row("hip:0"), card = row("hip:1"), cuda = row("cuda");
        CHECK(card.is_default);
        CHECK(std::string(card.info.chip) == "gfx1100");
        CHECK(std::string(card.info.driver) == "HIP 6.2");
        CHECK(std::string(card.info.name) == "Stand-in 1");
        CHECK((chip.is_usable && !chip.is_default && chip.info.is_integrated));
        CHECK(has(chip.why, "integrated, beside a card"));
        CHECK((!cuda.is_usable && has(cuda.why, "libcuda.so.1 not found")));
        CHECK(s.control->n_opened == 0);  // listing opens nothing
        std::string id;
        error_text err;
        CHECK((choose_gpu("auto", &id, err) == DUET_OK && id == "hip:1"));
        CHECK((choose_gpu("hip", &id, err) == DUET_OK && id == "hip:1"));
        CHECK((choose_gpu("hip:0", &id, err) == DUET_OK && id == "hip:0"));
        CHECK((choose_gpu("hip:2", &id, err) == DUET_ERR_DEVICE && has(err.text, "has 2 of these devices")));
        CHECK(choose_gpu("hip:x", &id, err) == DUET_ERR_ARG);
        CHECK(choose_gpu("cpu", &id, err) == DUET_ERR_ARG);
        {  // A vendor's name is that of the same device everywhere.
            snprintf(s.control->chip[0], 32, "gfx1010");
            s.control->memory_bytes = 64u << 20;
            const auto stop = [](void* user, const char*, const char* difference) -> int32_t {
                return *(bool*)user = difference == nullptr;
            };
            bool is_same = false;
            CHECK(duet_self_test("hip", nullptr, stop, &is_same) == DUET_ERR_CANCELLED);
            CHECK(is_same);
            CHECK(duet_measure_bandwidth_gbps("hip", nullptr, 1) > 0);
            CHECK(duet_measure_bandwidth_gbps("hip:0", nullptr, 1) == 0);
            snprintf(s.control->chip[0], 32, "gfx1100");
            s.control->memory_bytes = 1u << 30;
        }
        // a card without code: the integrated chip beside it is not taken instead
        snprintf(s.control->chip[1], 32, "gfx1010");
        CHECK((choose_gpu("auto", &id, err) == DUET_ERR_DEVICE && has(err.text, "gfx1010") &&
               has(err.text, "GPU_TARGETS=gfx1010")));
        s.control->integrated = 3;  // alone it is, also where the part of the memory that is set aside is small
        s.control->memory_bytes = 256u << 20;
        CHECK((choose_gpu("auto", &id, err) == DUET_OK && id == "hip:0"));
        s.control->integrated = 0;  // a card with as little is taken when it is named
        CHECK((choose_gpu("auto", &id, err) == DUET_ERR_DEVICE && has(err.text, "too little memory")));
        CHECK((choose_gpu("hip:0", &id, err) == DUET_OK && id == "hip:0"));
        CHECK((choose_gpu("hip", &id, err) == DUET_OK && id == "hip:0"));
        snprintf(s.control->chip[1], 32, "gfx1103");  // old runtimes do not tell that this one is integrated
        CHECK((row("hip:1").info.is_integrated && !row("hip:0").info.is_integrated));
    }
    int n = 0;
    CHECK(duet_list_devices(
              [](void* user, const duet_device_info* d) {
                  const int i = (*(int*)user)++;
                  CHECK((i == 0) == (std::string(d->id) == "cpu"));
                  CHECK((d->struct_size == sizeof *d && d->name && d->chip && d->driver && d->why));
              },
              &n) == DUET_OK);
    CHECK(n >= 5);
    CHECK(duet_list_devices(nullptr, nullptr) == DUET_ERR_ARG);
}

TEST_CASE("drivers: a further session on an integrated chip needs as much free memory as a first one") {
    for (const int integrated : {0, 1}) {
        stand_in s(hip().file, hip().device, hip().chip, hip().version);
        s.control->integrated = integrated;
        duet_model_params p = duet_model_params_default();
        p.device = hip().device;
        duet_model* model = nullptr;
        duet_session *first = nullptr, *second = nullptr;
        REQUIRE(duet_model_open("models/demo.gguf", &p, &model) == DUET_OK);
        REQUIRE(duet_session_create(model, nullptr, &first) == DUET_OK);
        duet_memory_plan plan{};
        plan.struct_size = sizeof plan;
        REQUIRE(duet_session_plan(model, nullptr, &plan) == DUET_OK);
        const uint64_t need = plan.gpu_cache_bytes + plan.gpu_state_bytes + plan.gpu_work_bytes;
        s.control->memory_bytes =
            plan.gpu_weight_bytes + 2 * need + need / 16;  // an eighth of what is free is left free
        CHECK(duet_session_create(model, nullptr, &second) == (integrated ? DUET_ERR_MEMORY : DUET_OK));
        CHECK(has(duet_session_error(second), integrated ? "want fewer layers on the GPU or a smaller context" : ""));
        duet_session_free(second);
        s.control->memory_bytes += need;
        CHECK(duet_session_create(model, nullptr, &second) == DUET_OK);
        duet_session_free(second);
        duet_session_free(first);
        duet_model_free(model);
        s.is_clean();
    }
}

TEST_CASE("drivers: code of the chip itself, else of a lower minor version, else intermediate code") {
    std::vector<gpu_code> code;
    for (const char* chip : {"sm_80", "sm_86", "compute_75_common", "compute_90_common", "compute_90_q4_K", "gfx1100",
                             "gfx9_generic", "gfx10_3_generic", "gfx11_generic"})
        code.push_back({chip, code_of(""), 1, 0});
    gpu_test_setup setup;
    setup.code = code.data();
    setup.n_code = (int32_t)code.size();
    const gpu_test_setup* before = gpu_test(&setup);
    struct {
        const char *chip, *want;
    } const rows[] = {{"sm_80", "sm_80"},
                      {"sm_86", "sm_86"},
                      {"sm_89", "sm_86"},
                      {"sm_87", "compute_75_common"},  // Orin runs no other chip's code
                      {"sm_90", "compute_90_common"},
                      {"sm_103", "compute_90_common"},
                      {"sm_75", "compute_75_common"},
                      {"sm_70", ""},
                      {"gfx1100", "gfx1100"},
                      {"gfx1101", "gfx11_generic"},
                      {"gfx1153", "gfx11_generic"},
                      {"gfx1034", "gfx10_3_generic"},
                      {"gfx902", "gfx9_generic"},
                      {"gfx908", ""},
                      {"gfx90a", ""},
                      {"gfx1201", ""},
                      {"gfx1010", ""},
                      {"", ""}};
    for (const auto& r : rows) {
        const gpu_code* found = find_gpu_code(r.chip);
        INFO(std::string(r.chip));
        CHECK(std::string(found ? found->chip : "") == r.want);
    }
    CHECK(std::string(find_gpu_code("sm_90", "q4_K")->chip) == "compute_90_q4_K");
    CHECK(std::string(find_gpu_code("sm_89", "common", true)->chip) == "compute_75_common");
    CHECK(gpu_code_list() == "sm_80 sm_86 compute_75 compute_90 gfx1100 gfx9_generic gfx10_3_generic gfx11_generic");
    gpu_test(before);
}

TEST_CASE(
    "drivers: intermediate code is loaded in the parts that a model needs, also where a relative's code is refused") {
    std::vector<gpu_code> code;
    for (const char* part : {"common", "f32", "f16", "q4_0", "q4_1", "q4_K"})
        code.push_back({strdup((std::string("compute_75_") + part).c_str()),
                        code_of(strdup((std::string("text of ") + part).c_str())), strlen(part) + 8, 12000});
    const gpu_code relative{"sm_86", code_of("code of sm_86"), 13, 12000};
    std::vector<float> want, got;
    const self_test::graph_case c = small_case();  // matrices in F32 and Q4_0
    error_text err;
    REQUIRE(self_test::run_case(c, kCpuExecutor, "scalar", &want, err) == DUET_OK);
    for (const bool has_relative : {false, true}) {
        stand_in s(kKinds[0].file, "cuda:0", "sm_89", 12040);
        if (has_relative) code.insert(code.begin(), relative);
        s.setup.code = code.data();
        s.setup.n_code = (int32_t)code.size();
        gpu_info info;
        CHECK(gpu_device_info("cuda:0", &info, err) == DUET_OK);
        CHECK(info.vec_blocks == 2);
        CHECK(info.has_fast == has_relative);  // The chip has the units, code for an older one has no use for them.
        const self_test::graph_case fresh = c;
        got.clear();
        CHECK(self_test::run_case(fresh, kGpuExecutor, "cuda:0", &got, err) == DUET_OK);
        INFO(err.text);
        CHECK(got == want);
        CHECK(s.control->n_modules == 3);
        s.is_clean();
    }
    for (const gpu_code& p : code)
        if (p.chip[0] == 'c') free((void*)p.chip), free((void*)p.data);
}

TEST_CASE("drivers: packed code is unpacked, and damage is seen") {
    std::vector<uint8_t> packed = {
        31, 139, 8,  0,   0,   0,   0,   0,  2,   3,   237, 201, 55,  1,  0,   0,
        8,  4,   49, 173, 247, 197, 191, 5,  112, 193, 194, 154, 128, 41, 106, 130,
        37, 147, 84, 11,  134, 143, 139, 24, 142, 244, 239, 44,  144, 1,  0,   0};  // codes of its own
    std::vector<uint8_t> want, got;
    for (int i = 0; i < 400; i++) want.push_back((uint8_t)(97 + i * i * 3 / 5 % 5));
    want.push_back(0);
    const gpu_code code{"x", packed.data(), packed.size(), 0};
    CHECK(unpack_gpu_code(code, &got));
    CHECK(got == want);
    for (uint64_t n = 18; n < packed.size(); n++) CHECK(!unpack_gpu_code({"x", packed.data(), n, 0}, &got));
    for (size_t i = 10; i < packed.size(); i++) {
        packed[i] ^= 16;
        if (unpack_gpu_code(code, &got)) CHECK(got == want);  // bits that mean nothing
        packed[i] ^= 16;
    }
}

TEST_CASE("drivers: reasons from the system: no card, no device file, no permission and the command that grants it") {
#ifdef _WIN32
    say_skipped("drivers", 1, "Windows has no device files: its list of displays tells of a card");
#else
    namespace fs = std::filesystem;
    const fs::path root = fs::temp_directory_path() / ("duet-root-" + std::to_string(getpid()));
    auto write = [&](const std::string& path, const char* text) {
        fs::create_directories((root / path).parent_path());
        std::ofstream(root / path) << text;
    };
    auto why = [](const char* id) {
        for (const gpu_found& d : list_gpus())
            if (d.id == id) return d.why;
        return std::string("no such row");
    };
    write("sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n");
    write("sys/bus/pci/devices/0000:00:02.0/class", "0x030000\n");
    stand_in s(hip().file, hip().device, hip().chip, hip().version);
    const std::string root_text = root.string();
    s.setup.root = root_text.c_str();
    s.control->n_devices = 0;
    CHECK(why("cuda") == "no NVIDIA card in this machine");
    CHECK(why("hip") == "no AMD card in this machine");
    // without a card nobody is warned that the CPU computes; with one, and where layers were asked for, everybody is
    const auto warning = [](int32_t gpu_layers) {
        std::vector<float> logits;
        std::string told;
        CHECK(model_run("auto", &logits, &told, gpu_layers) == "");
        return told;
    };
    CHECK(!may_have_card());
    CHECK(warning(-1) == "");
    CHECK(has(warning(3), "computing on the CPU"));
    write("sys/bus/pci/devices/0000:03:00.0/vendor", "0x1002\n");
    write("sys/bus/pci/devices/0000:03:00.0/class", "0x038000\n");
    CHECK(may_have_card());
    CHECK(has(warning(-1), "computing on the CPU"));
    CHECK(has(why("hip"), "/dev/kfd is not there"));
    write("dev/kfd", "");
    write("sys/class/drm/renderD128/device/vendor", "0x1002\n");
    CHECK(has(why("hip"), "/dev/dri/renderD128 is not there"));
    write("dev/dri/renderD128", "");
    CHECK(has(why("hip"), "finds no device"));  // nothing stands in the way that can be seen
    for (const char* node : {"dev/kfd", "dev/dri/renderD128"}) {
        fs::permissions(root / node, fs::perms::none);
        if (geteuid() == 0) CHECK(seteuid(65534) == 0);  // root may open everything
        const std::string told = why("hip");
        if (getuid() == 0) CHECK(seteuid(0) == 0);
        CHECK(has(told, "sudo usermod -aG render,video $USER"));
        CHECK(has(told, node));
        fs::permissions(root / node, fs::perms::all);
    }
    s.setup.hip_library = "/nonexistent.so";
    CHECK(has(why("hip"), "install AMD's HIP runtime"));
    fs::remove_all(root);
#endif
}

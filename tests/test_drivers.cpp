// tests/test_drivers.cpp: the CUDA and HIP drivers on stand-ins for the vendors' libraries (tests/fake_cuda.cpp, fake_hip.cpp), which run
// the kernels on the emulator: their whole life, with every call made to fail once; choosing a device, and what is said when none is used.
#include "doctest.h"
#include "fake_gpu.h"
#include "test_data.h"
#include "../runtime_cases.h"

#include <dlfcn.h>
#include <filesystem>
#include <unistd.h>

using namespace duet;

namespace {

const uint8_t* code_of(const char* text) { return (const uint8_t*)text; }
const gpu_code kCode[] = {{"sm_90", code_of("code of sm_90"), 14, 12000}, {"gfx1100", code_of("code of gfx1100"), 16, 0}};

// One stand-in in place of a vendor's library, the other vendor without one.
struct stand_in {
    std::string    path, device;
    void*          handle = nullptr;
    fake_control*  control = nullptr;
    gpu_test_setup setup;
    const gpu_test_setup* before;

    stand_in(const char* file, const char* device_name, const char* chip, int version) : device(device_name) {
        path = (std::filesystem::read_symlink("/proc/self/exe").parent_path() / file).string();
        handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        const bool is_cuda = device.substr(0, 4) == "cuda";
        setup.cuda_library = is_cuda ? path.c_str() : "/nonexistent/libcuda.so.1";
        setup.hip_library = is_cuda ? "/nonexistent/libamdhip64.so" : path.c_str();
        setup.code = kCode;
        setup.n_code = 2;
        setup.root = "/nonexistent";
        before = gpu_test(&setup);
        if (!handle) return;
        control = ((fake_control * (*)()) dlsym(handle, "fake_control_of"))();
        *control = {};
        control->backend = chip[0] == 's' || chip[3] == '1' ? &kEmu32Driver : &kEmu64Driver;
        control->version = version;
        for (auto& c : control->chip) snprintf(c, sizeof c, "%s", chip);
        reset();
    }
    ~stand_in() {
        gpu_test(before);
        if (handle) reset(true), dlclose(handle);
    }
    void reset(bool is_last = false) const { ((void (*)(bool))dlsym(handle, "fake_reset"))(is_last); }
    bool is_clean() const {
        INFO(std::string(control->misuse));
        CHECK(control->n_live == 0);
        CHECK(control->misuse[0] == 0);
        return control->n_live == 0 && !control->misuse[0];
    }
};

struct kind_of_driver { const char *file, *device, *chip; int version; const gpu_driver* driver; };
const kind_of_driver kKinds[] = {{"libcuda.so.1", "cuda:0", "sm_90", 12040, &kCudaDriver},
                                 {"libamdhip64.so.6", "hip:0", "gfx1100", 60241134, &kHipDriver},
                                 {"libamdhip64.so.5", "hip:0", "gfx1100", 50700000, &kHipDriver}};

gpu_cases::graph_case small_case() {
    gpu_cases::graph_case c("small");
    const view x = c.input(64), y = c.buffer(33);
    c.add(op_kind::matmul, x, y).w = c.matrix(2, 64, 33);
    c.logits(y);
    return c;
}

// Open, allocate, record, play twice, read back, close.
duet_status record_and_play(const gpu_driver& driver, std::vector<uint8_t>* out, error_text& err) {
    void *   device = nullptr, *memory = nullptr, *second = nullptr, *pinned = nullptr, *recording = nullptr;
    gpu_info info;
    DUET_TRY(driver.open(0, &device, &info, err));
    out->assign(64, 1);
    const duet_status st = [&]() -> duet_status {
        DUET_TRY(driver.alloc(device, 64, &memory, err));
        DUET_TRY(driver.alloc(device, 64, &second, err));
        DUET_TRY(driver.alloc_host(device, 64, &pinned, err));
        DUET_TRY(driver.record_begin(device, err));
        const duet_status recorded = [&]() -> duet_status {
            DUET_TRY(driver.upload(device, memory, pinned, 32, err));
            DUET_TRY(driver.copy(device, second, memory, 64, err));
            return driver.clear(device, second, 8, err);
        }();
        error_text       end_err;
        const duet_status ended = driver.record_end(device, &recording, end_err);
        CHECK((recorded == DUET_OK || ended != DUET_OK));   // a recording with a hole is none
        if (recorded != DUET_OK) return recorded;
        if (ended != DUET_OK) return err = end_err, ended;
        for (int i = 1; i <= 2; i++) {
            memset(pinned, i, 64);
            DUET_TRY(driver.play(device, recording, err));
            DUET_TRY(driver.sync(device, err));
        }
        return driver.download(device, out->data(), second, 64, err);
    }();
    driver.free_recording(device, recording);
    driver.free_host(device, pinned);
    driver.free(device, memory);
    driver.free(device, second);
    driver.close(device);
    return st;
}

// All a driver is asked to do; the bits must be right when no error is told.
duet_status whole_life(const kind_of_driver& k, const gpu_cases::graph_case& c, const std::vector<float>& want, error_text& err) {
    std::vector<uint8_t> bytes, good(64, 0);
    memset(good.data() + 8, 2, 24);
    DUET_TRY(record_and_play(*k.driver, &bytes, err));
    CHECK(bytes == good);
    std::vector<float> got;
    const gpu_cases::graph_case fresh = c;   // a graph keeps its weights on the device
    DUET_TRY(gpu_cases::run_case(fresh, kGpuExecutor, k.device, &got, err));
    REQUIRE(got.size() == want.size());
    CHECK(memcmp(got.data(), want.data(), want.size() * 4) == 0);
    return DUET_OK;
}

}  // namespace

TEST_CASE("drivers: a whole life on stand-ins, and every call failing once, is right or a clear error, and leaves nothing behind") {
    const gpu_cases::graph_case c = small_case();
    std::vector<float> want;
    error_text err;
    REQUIRE(gpu_cases::run_case(c, kCpuExecutor, "scalar", &want, err) == DUET_OK);
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
            const bool gives_back = call.find("Free") != std::string::npos || call.find("Destroy") != std::string::npos ||
                                    call.find("Release") != std::string::npos || call.find("Unload") != std::string::npos ||
                                    call.find("Pop") != std::string::npos || call == "hipSetDevice" || call.find("hipGetDevice") == 0 ||
                                    call.find("Push") != std::string::npos || call.find("EndCapture") != std::string::npos;
            if (st == DUET_OK && call.find("StreamSynchronize") != std::string::npos) n_unseen++;   // the wait before pinned memory is freed
            else if (!gives_back) CHECK(st != DUET_OK);
            if (st != DUET_OK) {
                n_failed++;
                CHECK(err.text.find(call.find("Properties") == std::string::npos ? call : "Properties") != std::string::npos);
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

// tools/selftest.h: `run --selftest`. It prints one page about what this machine's device computes, which a user pastes
// into a report.
// Owns: the page. Must not know: how ops are checked (duet_self_test does that).
#pragma once
#include "synthetic.h"

struct self_test_cases {
    int n = 0, n_wrong = 0;
    std::string wrong;
};

// Generates greedy ids after a fixed prompt, from a model file or from the synthetic model in memory.
inline duet_status generate_ids(const model_options& options, const synthetic_model& synthetic, std::string* device,
                                std::vector<int32_t>* ids, double* tokens_per_second, tool_error* error) {
    model_ptr model;
    duet_status status = open_model(options, &model, error, synthetic.file, synthetic.n_file_bytes);
    if (status) return status;
    const duet_model_info info = info_of(model.get());
    *device = info.device;
    model_options of_session = options;
    of_session.n_ctx = 64;
    session_ptr session;
    if (open_session(model.get(), of_session, 1, &session, nullptr, error)) return error->status;
    duet_sampler* sampler = nullptr;
    if (duet_sampler_create(1, &sampler) != DUET_OK) return error->set(DUET_ERR_MEMORY, "");
    const sampler_ptr owned_sampler(sampler);
    if ((status = duet_sampler_set(sampler, "temp", 0))) return error->set(status, duet_sampler_error(sampler));
    duet_generate_params generate = duet_generate_params_default();
    generate.max_new_tok = 32;
    generate.ignore_end = 1;
    int32_t prompt[20];
    for (int32_t i = 0; i < 20; i++) prompt[i] = i * 7 % info.n_vocab;
    const auto keep = [](void* user, const duet_token_event* event) -> int32_t {
        if (event->id >= 0) ((std::vector<int32_t>*)user)->push_back(event->id);
        return 0;
    };
    auto result = sized<duet_generate_result>();
    status = duet_generate(session.get(), sampler, prompt, 20, &generate, keep, ids, &result);
    if (status) return error->set(status, duet_session_error(session.get()));
    *tokens_per_second = result.generate_us ? 1e6 * result.n_new_tok / (double)result.generate_us : 0;
    return DUET_OK;
}

// Prints the page on stdout. Returns DUET_ERR_DEVICE if any result differs.
inline duet_status self_test(const model_options& options, tool_error* error) {
    synthetic_model synthetic;
    if (options.path.empty()) {
        duet_status status = synthetic.parse("tiny:q4_0", error);
        if (!status) status = synthetic.build(error);
        if (!status) status = synthetic.write_to_memory(error);
        if (status) return status;
    }
    std::vector<int32_t> got, want;
    std::string device, cpu;
    double speed = 0, cpu_speed = 0;
    model_options plain = options;
    plain.device = "cpu";
    plain.isa = "scalar";
    if (const duet_status status = generate_ids(options, synthetic, &device, &got, &speed, error)) return status;
    if (const duet_status status = generate_ids(plain, synthetic, &cpu, &want, &cpu_speed, error)) return status;
    std::printf("Duet %s (%s), numerics %d\ndevice      %s\n", duet_version(), duet_build_info(),
                duet_numerics_version(), device.c_str());
    std::fflush(stdout);

    self_test_cases cases;
    const auto count = [](void* user, const char* name, const char* difference) -> int32_t {
        self_test_cases* c = (self_test_cases*)user;
        c->n++;
        if (difference && c->n_wrong++ < 20) c->wrong += std::string("            ") + name + ": " + difference + "\n";
        return 0;
    };
    const double begin = now_seconds();
    if (const auto st = duet_self_test(device_id(device.c_str()).c_str(), options.isa.c_str(), count, &cases))
        return error->set(st, std::string("self test: ") + duet_status_name(st));
    std::printf("kernels     %d cases in %.1f s, %d with other results than the plain C++ code\n%s", cases.n,
                now_seconds() - begin, cases.n_wrong, cases.wrong.c_str());
    const bool is_same = got == want;
    std::printf("generation  %s: %zu tokens, %s those of the plain C++ code; %.1f tokens/s (plain: %.1f)\n",
                options.path.empty() ? "tiny synthetic model, Q4_0" : options.path.c_str(), got.size(),
                is_same ? "the same as" : "NOT THE SAME AS", speed, cpu_speed);
    std::printf("            greedy ids");
    for (int32_t id : got) std::printf(" %d", id);
    std::printf("\nmemory      %.1f GB/s\n",
                duet_measure_bandwidth_gbps(device_id(device.c_str()).c_str(), nullptr, options.n_threads));
    const bool is_good = cases.n_wrong == 0 && is_same;
    std::printf("result      %s\n", is_good ? "good" : "WRONG: please report this page");
    return is_good ? DUET_OK : error->set(DUET_ERR_DEVICE, "the device computes wrong results");
}

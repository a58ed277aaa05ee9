// tests/test_data.h: where tests find real files (DUET_TEST_DATA, default ../shared/data), and how they say what they
// skipped.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

// Path of a file or folder of the test data; may not exist.
inline std::string test_data_path(const std::string& name) {
    const char* root = std::getenv("DUET_TEST_DATA");
    return std::string(root ? root : "../shared/data") + "/" + name;
}

// The device that tests of models and sessions run on: DUET_TEST_DEVICE, as "emu32"; none: the one "auto" takes.
inline const char* test_device() { return std::getenv("DUET_TEST_DEVICE"); }

inline bool file_exists(const std::string& path) { return std::ifstream(path).good(); }

inline std::string read_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
}

// One line on stderr for tests that cannot run here: they are counted as skipped, never as passed.
inline void say_skipped(const char* test, int n_cases, const std::string& why) {
    std::fprintf(stderr, "skipped: %s: %d cases: %s\n", test, n_cases, why.c_str());
}

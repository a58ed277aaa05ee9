// tests/test_data.h: what tests read. It gives golden models: tiny ones made from tests/data/models.txt, which every
// clone has, or large ones from DUET_TEST_DATA (default ../shared/data), which are optional. It also collects what
// tests could not run.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

// Path of a file or folder of the test data; it may not exist. "golden/NAME" and what lies below is the large case of
// that name if it is there, otherwise the tiny one.
std::string test_data_path(const std::string& name);

// Folder of a tiny model: model.gguf, tokens.json, logits.f32 (of the last row), as the large golden cases have them.
// The file is made on the first call and removed when the program ends. Empty: no model has that name.
// format: some of its matrices are in that number format instead; "NAME decoded": they are what that format holds, as
// F32.
std::string tiny_model_folder(const std::string& name, const std::string& format = "");
std::vector<std::string> tiny_model_names();

// Folders of all golden cases: the tiny ones, then the large ones if they are there.
std::vector<std::string> golden_folders();

// Random bytes as tests/data/formats.py makes them from a name.
std::vector<uint8_t> golden_bytes(const std::string& name, size_t n);

// The device that tests of models and sessions run on: DUET_TEST_DEVICE, as "emu32"; none: the one "auto" takes.
const char* test_device();

bool file_exists(const std::string& path);
std::string read_file(const std::string& path);
// All whole numbers of a JSON text from its "tokens" on, or from its beginning.
std::vector<int32_t> read_ids(const std::string& path);
std::vector<float> read_floats(const std::string& path);

// Says that the running test case leaves out n_cases of what it has to prove. The summary counts and lists it.
void say_skipped(const char* test, int n_cases, const std::string& why);

// For main.cpp: the reasons since the last call, a line each.
std::string take_skipped_lines();

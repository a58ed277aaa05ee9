// tests/test_data.h: the data that tests read. Golden models are either tiny ones, made from tests/data/models.txt,
// which every clone has, or large ones from DUET_TEST_DATA (default ../shared/data), which are optional. The header
// also counts the cases that tests had to leave out.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

// The folder of the test program, which also holds the stand-ins for drivers. Only main.cpp sets it, from argv[0].
void set_program_folder(const char* program);
std::string program_folder();

// Returns the path of a file or folder of the test data, which may not exist. "golden/NAME" and paths below it lead to
// the large case of that name if it is there, otherwise to the tiny one.
std::string test_data_path(const std::string& name);

// Returns the folder of a tiny model, with model.gguf, tokens.json and logits.f32 (of the last row), like the large
// golden cases. The first call makes the file; the end of the program removes it. The path is empty if no model has
// that name.
// format: some of the model's matrices are in that number format instead. "NAME decoded": these matrices hold, as F32,
// the values that the format would hold.
std::string tiny_model_folder(const std::string& name, const std::string& format = "");
std::vector<std::string> tiny_model_names();

// Makes such a model with other lines, and returns its folder: a change "u .KEY 5" takes the place of the key's line or
// is one more, "- .KEY" takes it away, "w NAME 64 32" gives the matrices of that name other dimensions.
std::string changed_model_folder(const std::string& name, const std::vector<std::string>& changes);

// Returns the folders of all golden cases: the tiny ones, then the large ones if they are there.
std::vector<std::string> golden_folders();

// Makes random bytes from a name, the same as tests/data/formats.py makes.
std::vector<uint8_t> golden_bytes(const std::string& name, size_t n);

// Returns the device that tests of models and sessions run on: DUET_TEST_DEVICE, such as "emu32", or without it the
// device that "auto" takes.
const char* test_device();

bool file_exists(const std::string& path);
std::string read_file(const std::string& path);
// Returns all whole numbers of a JSON text from its "tokens" on, or from its beginning.
std::vector<int32_t> read_ids(const std::string& path);
std::vector<float> read_floats(const std::string& path);

// Reports that the running test case leaves out n_cases of what it has to prove. The summary counts and lists it.
void say_skipped(const char* test, int n_cases, const std::string& why);

// Returns the reasons since the last call, one line each. Only main.cpp calls it.
std::string take_skipped_lines();

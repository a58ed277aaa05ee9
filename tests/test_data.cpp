// tests/test_data.cpp: implements tests/test_data.h. Owns the tiny models: reads tests/data/models.txt and writes GGUF
// files from it. Must not know: how a model is computed.
#include "test_data.h"

#include "../models/gguf.h"
#include "../runtime.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <utility>
#include <unistd.h>

using namespace duet;
namespace fs = std::filesystem;

namespace {

constexpr int kVocab = 96;  // tests/data/reference.py, V

std::string data_root() {
    const char* root = std::getenv("DUET_TEST_DATA");
    return root ? root : "../shared/data";
}

[[noreturn]] void stop(const std::string& what) {  // the tests' own data are broken: nothing can be proved
    std::fprintf(stderr, "tests/data/models.txt: %s\n", what.c_str());
    std::abort();
}

void want_ok(duet_status status, const error_text& err) {
    if (status != DUET_OK) stop(err.text);
}

// The lines of models.txt, by the name of their model.
const std::map<std::string, std::vector<std::string>>& recipes() {
    static const auto all = [] {
        std::map<std::string, std::vector<std::string>> read;
        std::ifstream in("tests/data/models.txt");
        std::string name;
        for (std::string line; std::getline(in, line);)
            if (line.starts_with("model ")) read[name = line.substr(6)];
            else read[name].push_back(line);
        if (read.empty()) stop("not found; tests run from the root of the repository");
        return read;
    }();
    return all;
}

template <class T> std::vector<T> rest_of(std::istream& in) {
    return {std::istream_iterator<T>(in), std::istream_iterator<T>()};
}

// Sums of four random numbers of 16 bits, around 0. random_values in tests/data/reference.py makes the same numbers.
std::vector<int32_t> random_sums(const std::string& name, size_t n) {
    uint64_t seed = 14695981039346656037u;
    for (char c : name) seed = (seed ^ (uint8_t)c) * 1099511628211u;
    std::vector<int32_t> x(n);
    for (size_t i = 0; i < n; i++) {
        uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        x[i] = (int32_t)((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48)) - 131070;
    }
    return x;
}

// Writes one model. It owns the values until the file is saved.
class tiny_model {
  public:
    tiny_model(const std::string& name, const std::vector<std::string>& lines, const std::string& format,
               const std::string& folder)
        : name_(name), folder_(folder), format_(format.substr(0, format.find(' '))),
          is_decoded_(format.ends_with(" decoded")) {
        add_vocabulary();
        for (const std::string& line : lines) add_line(line);
        want_ok(writer_.save((folder + "/model.gguf").c_str(), err_), err_);
    }

  private:
    void add_vocabulary() {  // SPM without byte tokens: three special ones, letters, pairs of letters
        std::vector<std::string> words = {"<unk>", "<s>", "</s>", "\xe2\x96\x81"};
        for (char c = 'a'; c <= 'z'; c++) words.push_back(std::string(1, c));
        for (int i = 0; (int)words.size() < kVocab; i++)
            words.push_back({(char)('a' + i % 26), (char)('a' + (i * 7 + 4 + i / 26) % 26)});
        std::vector<std::string_view> views(words.begin(), words.end());
        std::vector<int32_t> types(kVocab, 1);
        std::vector<float> scores(kVocab);
        types[0] = 2, types[1] = types[2] = 3;
        for (int i = 0; i < kVocab; i++) scores[(size_t)i] = -(float)(kVocab - i);
        want_ok(writer_.set_string("tokenizer.ggml.model", "llama", err_), err_);
        want_ok(writer_.set_strings("tokenizer.ggml.tokens", views.data(), kVocab, err_), err_);
        want_ok(writer_.set_array("tokenizer.ggml.token_type", DUET_KV_I32, types.data(), kVocab, err_), err_);
        want_ok(writer_.set_array("tokenizer.ggml.scores", DUET_KV_F32, scores.data(), kVocab, err_), err_);
        want_ok(writer_.set_int("tokenizer.ggml.bos_token_id", DUET_KV_U32, 1, err_), err_);
        want_ok(writer_.set_int("tokenizer.ggml.eos_token_id", DUET_KV_U32, 2, err_), err_);
    }

    void add_line(const std::string& line) {
        std::istringstream in(line.substr(2));
        if (line[0] == 'w') return add_tensor(in);
        if (line[0] == 'i') {
            std::ofstream out(folder_ + "/tokens.json");
            for (int32_t id : rest_of<int32_t>(in)) out << (out.tellp() == 0 ? "[" : ", ") << id;
            out << "]\n";
        } else if (const size_t kind = std::string_view("lepr").find(line[0]); kind != std::string_view::npos) {
            const char* names[] = {"/logits.f32", "/embedding_last.f32", "/pooled.f32", "/score.f32"};
            const std::vector<float> x = rest_of<float>(in);
            std::ofstream out(folder_ + names[kind], std::ios::binary);
            out.write((const char*)x.data(), (std::streamsize)(x.size() * 4));
        } else {
            std::string key;
            in >> key;
            add_key(line[0], key[0] == '.' ? arch_ + key : key, in);
        }
    }

    void add_key(char kind, const std::string& key, std::istream& in) {
        const auto number = [&] { return rest_of<double>(in).at(0); };
        std::string text;
        duet_status status = DUET_OK;
        if (kind == 's') {
            in >> text;
            if (key == "general.architecture") arch_ = text;
            status = writer_.set_string(key, text, err_);
        } else if (kind == 'u') status = writer_.set_int(key, DUET_KV_U32, (int64_t)number(), err_);
        else if (kind == 'b') status = writer_.set_int(key, DUET_KV_BOOL, (int64_t)number(), err_);
        else if (kind == 'f') status = writer_.set_float(key, DUET_KV_F32, number(), err_);
        else if (kind == 'S') {
            const std::vector<std::string> texts = rest_of<std::string>(in);
            const std::vector<std::string_view> views(texts.begin(), texts.end());
            status = writer_.set_strings(key, views.data(), views.size(), err_);
        } else if (kind == 'U' || kind == 'B') {
            const std::vector<int32_t> values = rest_of<int32_t>(in);
            const std::vector<uint8_t> flags(values.begin(), values.end());
            const void* data = kind == 'U' ? (const void*)values.data() : flags.data();
            status = writer_.set_array(key, kind == 'U' ? DUET_KV_I32 : DUET_KV_BOOL, data, values.size(), err_);
        } else stop(name_ + ": unknown line " + kind);
        want_ok(status, err_);
    }

    void add_tensor(std::istream& in) {
        std::string name, format;
        double scale = 0, offset = 0;
        in >> name >> format >> scale >> offset;
        const std::vector<int64_t> dims = rest_of<int64_t>(in);
        size_t n = 1;
        for (int64_t d : dims) n *= (size_t)d;
        if (!format_.empty())
            for (const char* part : {"token_embd.", "attn_q.", "ffn_down."})
                if (name.find(part) != std::string::npos) format = format_;
        const duet_type_info *type = duet_type_by_name(format.c_str()), *f32 = duet_type_by_name("F32");
        if (!type || dims.empty()) stop(name_ + ": " + name);
        std::istringstream blocks(name.starts_with("blk.") ? name.substr(4, name.find('.', 4) - 4) : "-");
        for (std::string block; std::getline(blocks, block, ',');) {
            const std::string full = block == "-" ? name : "blk." + block + name.substr(name.find('.', 4));
            std::vector<float> x;
            for (int32_t sum : random_sums(name_ + "/" + full, n))
                x.push_back((float)(offset + scale * ((double)sum * 0x1p-15)));
            std::vector<uint8_t> coded(n / (size_t)type->elems_per_block * (size_t)type->bytes_per_block);
            if (duet_quantize_row(type->id, x.data(), (int64_t)n, nullptr, coded.data()) != DUET_OK) stop(full);
            if (is_decoded_) {
                if (duet_dequantize_row(type->id, coded.data(), (int64_t)n, x.data()) != DUET_OK) stop(full);
                coded.assign((const uint8_t*)x.data(), (const uint8_t*)(x.data() + n));
            }
            const std::vector<uint8_t>& data = data_.emplace_back(std::move(coded));
            want_ok(writer_.add_tensor(full, is_decoded_ ? f32->id : type->id, (int32_t)dims.size(), dims.data(),
                                       data.data(), err_),
                    err_);
        }
    }

    std::string name_, folder_, arch_, format_;
    bool is_decoded_;
    gguf_writer writer_;
    error_text err_;
    std::deque<std::vector<uint8_t>> data_;
};

// Returns the folder that holds the tiny models of this process.
struct made_folder {
    const std::string path = (fs::temp_directory_path() / ("duet-tests-" + std::to_string(getpid()))).string();
    const int owner = getpid();
    ~made_folder() {
        std::error_code ignored;
        if (getpid() == owner) fs::remove_all(path, ignored);
    }
};

std::string& kept_program_folder() {
    static std::string folder;
    return folder;
}

std::string& skipped_lines() {
    static std::string lines;
    return lines;
}

}  // namespace

void set_program_folder(const char* program) { kept_program_folder() = fs::absolute(program).parent_path().string(); }
std::string program_folder() { return kept_program_folder(); }

std::vector<std::string> tiny_model_names() {
    std::vector<std::string> names;
    for (const auto& [name, lines] : recipes()) names.push_back(name);
    return names;
}

std::string tiny_model_folder(const std::string& name, const std::string& format) {
    static made_folder root;
    static std::set<std::string> made;
    const auto found = recipes().find(name);
    if (found == recipes().end()) return "";
    const std::string folder = root.path + "/golden" + format + "/" + name;
    if (made.insert(folder).second) {
        fs::create_directories(folder);
        tiny_model(name, found->second, format, folder);
    }
    return folder;
}

std::string changed_model_folder(const std::string& name, const std::vector<std::string>& changes) {
    static made_folder root;
    static int n_made = 0;
    std::vector<std::string> lines = recipes().at(name);
    for (const std::string& change : changes) {
        std::istringstream in(change.substr(2));
        std::string key;
        in >> key;
        int n_found = 0;
        for (size_t i = lines.size(); i-- > 0;) {
            std::istringstream line(lines[i].substr(2));
            std::string found, rest[3];
            line >> found >> rest[0] >> rest[1] >> rest[2];
            if (change[0] == 'w' ? lines[i][0] != 'w' || !found.ends_with("." + key) : found != key) continue;
            n_found++;
            if (change[0] == 'w')
                lines[i] = "w " + found + " " + rest[0] + " " + rest[1] + " " + rest[2] + change.substr(2 + key.size());
            else lines.erase(lines.begin() + (long)i);
        }
        if (n_found == 0 && (change[0] == 'w' || change[0] == '-')) stop(name + ": nothing to change by " + change);
        // keys stand before tensors, the architecture first
        if (change[0] != 'w' && change[0] != '-') lines.insert(lines.begin() + 1, change);
    }
    const std::string folder = root.path + "/changed/" + std::to_string(n_made++);
    fs::create_directories(folder);
    tiny_model(name, lines, "", folder);
    return folder;
}

std::string test_data_path(const std::string& name) {
    const std::string large = data_root() + "/" + name, prefix = "golden/";
    if (!name.starts_with(prefix) || fs::exists(large)) return large;
    const size_t end = std::min(name.find('/', prefix.size()), name.size());
    const std::string tiny = tiny_model_folder(name.substr(prefix.size(), end - prefix.size()));
    return tiny.empty() ? large : tiny + name.substr(end);
}

std::vector<std::string> golden_folders() {
    std::vector<std::string> all;
    for (const std::string& name : tiny_model_names()) all.push_back(tiny_model_folder(name));
    std::set<std::string> large;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(data_root() + "/golden", ignored))
        if (file_exists(entry.path().string() + "/tokens.json")) large.insert(entry.path().string());
    all.insert(all.end(), large.begin(), large.end());
    return all;
}

std::vector<uint8_t> golden_bytes(const std::string& name, size_t n) {
    const std::vector<int32_t> sums = random_sums(name, n);
    return {sums.begin(), sums.end()};
}

const char* test_device() { return std::getenv("DUET_TEST_DEVICE"); }

bool file_exists(const std::string& path) { return std::ifstream(path).good(); }

std::string read_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
}

std::vector<int32_t> read_ids(const std::string& path) {
    const std::string text = read_file(path);
    std::vector<int32_t> ids;
    const size_t key = text.find("tokens");
    for (const char* at = text.c_str() + (key == std::string::npos ? 0 : key); *at;) {
        char* end = nullptr;
        const long id = std::strtol(at, &end, 10);
        if (end != at) ids.push_back((int32_t)id);
        at = end != at ? end : at + 1;
    }
    return ids;
}

std::vector<float> read_floats(const std::string& path) {
    const std::string bytes = read_file(path);
    std::vector<float> x(bytes.size() / 4);
    if (!x.empty()) memcpy(x.data(), bytes.data(), x.size() * 4);
    return x;
}

void say_skipped(const char* test, int n_cases, const std::string& why) {
    skipped_lines() +=
        std::string(test) + ": " + std::to_string(n_cases) + (n_cases == 1 ? " case: " : " cases: ") + why + "\n";
}

std::string take_skipped_lines() { return std::exchange(skipped_lines(), {}); }

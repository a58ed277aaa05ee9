// examples/retrieve.cpp: asks a folder of texts: the passages that are nearest to a question, by the vectors of an
// embedding model. C++20.
//   c++ -std=c++20 examples/retrieve.cpp $(pkg-config --cflags --libs duet) -o retrieve
//   ./retrieve model.gguf folder "a question"
#include <runtime.h>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>
namespace fs = std::filesystem;

struct passage {
    std::string file, text;
    float score;
};

// Paragraphs are the passages: what stands between empty lines. What cannot be read is left out.
static std::vector<passage> read_folder(const char* folder) {
    std::vector<passage> all;
    for (const auto& entry : fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied)) {
        if (const fs::path kind = entry.path().extension(); kind != ".txt" && kind != ".md") continue;
        std::ifstream in(entry.path());
        for (std::string line, before; std::getline(in, line); before = line) {
            if (line.ends_with('\r')) line.pop_back();
            if (before.empty() && !line.empty()) all.push_back({entry.path().string(), "", 0});
            if (!line.empty()) all.back().text += line + "\n";
        }
    }
    return all;
}

int main(int argc, char** argv) {
    std::error_code why;
    if (argc != 4) return std::fputs("usage: retrieve MODEL FOLDER QUESTION\n", stderr), 2;
    if (!fs::is_directory(argv[2], why)) return std::fprintf(stderr, "%s: no such folder\n", argv[2]), 1;
    std::vector<passage> passages = read_folder(argv[2]);
    if (passages.empty()) return std::fprintf(stderr, "%s: no .txt or .md files\n", argv[2]), 1;
    std::vector<duet_string> texts{{argv[3], std::char_traits<char>::length(argv[3])}};
    for (const passage& p : passages) texts.push_back({p.text.data(), p.text.size()});
    duet_model* model = nullptr;
    duet_session* session = nullptr;
    duet_model_info info = {};
    info.struct_size = sizeof info;
    duet_session_params params = duet_session_params_default();
    params.n_seqs = 16;  // texts computed at once
    params.cache_tokens = 8192;
    duet_embed_params how = duet_embed_params_default();
    how.cut = 1;  // long paragraphs count by their mean
    duet_status status = duet_model_open(argv[1], nullptr, &model);
    if (status == DUET_OK) status = duet_model_get_info(model, &info);
    if (status == DUET_OK) status = duet_session_create(model, &params, &session);
    std::vector<float> v(texts.size() * (size_t)info.embedding_dim);
    if (status == DUET_OK) status = duet_embed(session, texts.data(), (int32_t)texts.size(), &how, v.data());
    for (size_t i = 0; i < v.size(); i++)  // vectors have length 1: the product is the cosine
        if (size_t row = i / info.embedding_dim) passages[row - 1].score += v[i] * v[i % info.embedding_dim];
    std::ranges::sort(passages, std::greater(), &passage::score);
    if (status) std::fprintf(stderr, "%s\n", session ? duet_session_error(session) : duet_model_error(model));
    for (size_t i = 0; status == DUET_OK && i < std::min<size_t>(3, passages.size()); i++)
        std::printf("%.3f %s\n%s\n", passages[i].score, passages[i].file.c_str(), passages[i].text.c_str());
    duet_session_free(session);
    duet_model_free(model);
    return status != DUET_OK;
}

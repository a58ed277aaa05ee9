// examples/retrieve.cpp: asks a folder of texts: the passages that are nearest to a question, by the vectors of an
// embedding model. c++ -std=c++20 -I.. retrieve.cpp -lduet -o retrieve && ./retrieve model.gguf folder "a question"
#include "runtime.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace fs = std::filesystem;

struct passage {
    std::string file, text;
    float score;
};

// Paragraphs are the passages: what stands between empty lines.
static std::vector<passage> read_folder(const char* folder) {
    std::vector<passage> all;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
        const std::string name = entry.path().string();
        if (!entry.is_regular_file() || !(name.ends_with(".txt") || name.ends_with(".md"))) continue;
        std::ifstream in(entry.path());
        std::string text, line;
        for (bool more = true; more;) {
            more = (bool)std::getline(in, line);
            if (more && !line.empty()) text += line + "\n";
            else if (!text.empty()) all.push_back({name, std::exchange(text, ""), 0.0f});
        }
    }
    return all;
}

int main(int argc, char** argv) {
    if (argc != 4) return std::fprintf(stderr, "want: retrieve MODEL FOLDER QUESTION\n"), 2;
    duet_model* model = nullptr;
    duet_session* session = nullptr;
    duet_session_params params = duet_session_params_default();
    params.n_seqs = 16;  // texts computed at once
    params.cache_tokens = 8192;
    const bool is_open = duet_model_open(argv[1], nullptr, &model) == DUET_OK;
    if (!is_open) return std::fprintf(stderr, "%s\n", duet_model_error(model)), duet_model_free(model), 1;
    duet_model_info info = {};
    info.struct_size = sizeof info;
    duet_status status = duet_model_get_info(model, &info);
    if (status == DUET_OK) status = duet_session_create(model, &params, &session);
    std::vector<passage> passages = read_folder(argv[2]);
    std::vector<duet_string> texts{{argv[3], std::char_traits<char>::length(argv[3])}};
    for (const passage& p : passages) texts.push_back({p.text.data(), p.text.size()});
    const size_t dim = (size_t)info.embedding_dim;
    std::vector<float> v(texts.size() * dim);
    duet_embed_params how = duet_embed_params_default();
    how.cut = 1;  // long paragraphs count by their mean
    if (status == DUET_OK) status = duet_embed(session, texts.data(), (int32_t)texts.size(), &how, v.data());
    if (status != DUET_OK) std::fprintf(stderr, "%s\n", duet_session_error(session));
    for (size_t i = 0; i < passages.size(); i++)  // vectors have length 1: the product is the cosine
        for (size_t j = 0; j < dim; j++) passages[i].score += v[j] * v[(i + 1) * dim + j];
    std::sort(passages.begin(), passages.end(), [](auto& a, auto& b) { return a.score > b.score; });
    for (size_t i = 0; status == DUET_OK && i < passages.size() && i < 3; i++)
        std::printf("%.3f %s\n%s\n", passages[i].score, passages[i].file.c_str(), passages[i].text.c_str());
    duet_session_free(session);
    duet_model_free(model);
    return status != DUET_OK;
}

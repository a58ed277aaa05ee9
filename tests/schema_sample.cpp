// tests/schema_sample.cpp: random values of JSON schemas, for tests/schema_check.py to validate. Not part of the tests
// that `make test` runs. Reads lines {"schema": ..., "seeds": N, "max_tokens": M} and prints for each a line
//   {"error": "...", "us": T}    or    {"texts": [...], "ended": [...], "us": T, "steps": N, "median_us": ...,
//   "max_us": ...}
// The line {"yardstick": true} gives {"us": T}: the time of fixed work of the same kind (lists, sorting, a map), which
// tells how fast the machine is at the moment.
// Usage: schema_sample [vocabulary.gguf]     without a file: a vocabulary of single bytes and a few longer tokens
#include "../models/gguf.h"
#include "../models/sampler.h"
#include "../models/schema.h"
#include "../models/tokenizer.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <iostream>
#include <map>

using namespace duet;

namespace {

double now_us() {
    return double(std::clock()) * 1e6 / CLOCKS_PER_SEC;
}  // of the processor: other programs may be running

struct sample_vocabulary {
    std::vector<std::string> texts;
    std::vector<int32_t> ends;
};

std::string_view vocabulary_text(int32_t id, const void* user) {
    return ((const sample_vocabulary*)user)->texts[(size_t)id];
}

sample_vocabulary bytes_vocabulary() {
    sample_vocabulary v;
    for (int byte = 0; byte < 256; byte++) v.texts.push_back(std::string(1, (char)byte));
    for (const char* more :
         {"\"", "\":", "\",", "\"}", "{\"", "[", "]", "}", "true", "false", "null", "1", "00", "\\u00", "\xc3"})
        v.texts.push_back(more);
    v.ends = {(int32_t)v.texts.size()};
    v.texts.push_back("");
    return v;
}

bool read_vocabulary(const char* path, sample_vocabulary* v) {
    gguf_file file;
    tokenizer tok;
    error_text err;
    if (file.open(path, err) != DUET_OK || tok.load(file, err) != DUET_OK) return std::cerr << err.text << "\n", false;
    for (int32_t id = 0; id < tok.n_vocab(); id++) {
        v->texts.emplace_back(tok.is_control(id) ? "" : tok.piece(id));
        if (tok.is_end(id)) v->ends.push_back(id);
    }
    return true;
}

std::string json_of(const value& v) {
    traced_text out;
    error_text err;
    write_json(v, {}, &out, err);
    return out.bytes;
}

void put(std::vector<value_member> m) { std::cout << json_of(value::of_map(std::move(m))) << std::endl; }

value_member named(const char* name, value v) { return {value::of_string(name), std::move(v)}; }

duet_status compile(const value& job, grammar* g, error_text& err) {
    const value* text = job.find("gbnf");
    if (!text) return compile_schema(*job.find("schema"), {}, g, err);
    grammar_builder b;
    uint32_t root = 0;
    const duet_status status = parse_gbnf(text->as_string(), "root", b, &root, err);
    return status == DUET_OK ? b.build(root, g, err) : status;
}

// Returns the n-th allowed token.
int32_t allowed_token(const token_mask& mask, int32_t n) {
    for (size_t w = 0; w < mask.bits.size(); w++) {
        const int bits = __builtin_popcountll(mask.bits[w]);
        if (n >= bits) {
            n -= bits;
            continue;
        }
        uint64_t word = mask.bits[w];
        while (n-- > 0) word &= word - 1;
        return (int32_t)(w * 64) + __builtin_ctzll(word);
    }
    return 0;
}

// Makes one text of random allowed tokens, at most max_tokens. times: of the masks.
duet_status make_text(const std::shared_ptr<constraint>& c, const sample_vocabulary& vocab, int64_t seed,
                      int64_t max_tokens, std::vector<double>* times, std::string* text, bool* is_ended,
                      error_text& err) {
    grammar_matcher m(c);
    sampler_random random((uint64_t)seed);
    for (int64_t i = 0; i < max_tokens && !*is_ended; i++) {
        std::shared_ptr<const token_mask> mask;
        const double begin = now_us();
        const duet_status status = m.mask(&mask, err);
        times->push_back(now_us() - begin);
        DUET_TRY(status);
        const auto n = (int32_t)(random.uniform() * mask->n_allowed);
        // Two choices in ten take the shortest way to the end, where there is one.
        const bool ends = random.uniform() < 0.2 && m.can_end();
        const int32_t id = ends ? vocab.ends[0] : allowed_token(*mask, n);
        DUET_TRY(m.accept(id, err));
        *text += vocab.texts[(size_t)id];
        *is_ended = m.has_ended();
    }
    return DUET_OK;
}

double yardstick_us() {
    const double begin = now_us();
    sampler_random random(1);
    std::map<std::vector<uint32_t>, size_t> lists;
    for (int i = 0; i < 80'000; i++) {
        std::vector<uint32_t> list;
        for (int k = 0; k < 16; k++) list.push_back((uint32_t)(random.uniform() * 1000));
        std::sort(list.begin(), list.end());
        lists.try_emplace(std::move(list), lists.size());
    }
    return now_us() - begin;
}

void answer(const std::string& line, const sample_vocabulary& vocab, const std::shared_ptr<const token_tree>& tree) {
    value job;
    error_text err;
    json_limits limits;
    limits.max_depth = 2000;
    double begin = now_us();
    if (parse_json(line, &job, err, limits) != DUET_OK)
        return put({named("error", value::of_string(err.text)), named("us", value::of_double(now_us() - begin))});
    if (job.find("yardstick")) return put({named("us", value::of_double(yardstick_us()))});
    grammar g;
    begin = now_us();
    duet_status status = compile(job, &g, err);
    const double compile_us = now_us() - begin;
    if (status != DUET_OK)
        return put({named("error", value::of_string(err.text)), named("us", value::of_double(compile_us))});
    const auto c = std::make_shared<constraint>(g, tree);
    std::vector<value> texts, ended;
    std::vector<double> times;
    for (int64_t seed = 0; seed < job.find("seeds")->as_int(); seed++) {
        std::string text;
        bool is_ended = false;
        status = make_text(c, vocab, seed, job.find("max_tokens")->as_int(), &times, &text, &is_ended, err);
        if (status != DUET_OK)
            return put({named("error", value::of_string("while generating: " + err.text)),
                        named("us", value::of_double(compile_us))});
        texts.push_back(value::of_string(text));
        ended.push_back(value::of_bool(is_ended));
    }
    const double first = times.empty() ? 0 : times[0];
    std::sort(times.begin(), times.end());
    put({named("texts", value::of_list(texts)), named("ended", value::of_list(ended)),
         named("us", value::of_double(compile_us)), named("steps", value::of_int((int64_t)times.size())),
         named("first_us", value::of_double(first)),
         named("median_us", value::of_double(times.empty() ? 0 : times[times.size() / 2])),
         named("max_us", value::of_double(times.empty() ? 0 : times.back()))});
}

}  // namespace

int main(int argc, char** argv) {
    sample_vocabulary vocab;
    if (argc > 1 && !read_vocabulary(argv[1], &vocab)) return 1;
    if (argc <= 1) vocab = bytes_vocabulary();
    std::shared_ptr<const token_tree> tree;
    error_text err;
    const double begin = now_us();
    if (token_tree::make((int32_t)vocab.texts.size(), vocabulary_text, &vocab, vocab.ends, &tree, err) != DUET_OK)
        return 1;
    std::cerr << "prefix tree: " << (now_us() - begin) / 1e3 << " ms\n";
    for (std::string line; std::getline(std::cin, line);) answer(line, vocab, tree);
}

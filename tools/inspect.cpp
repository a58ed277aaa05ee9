// tools/inspect.cpp: the program `inspect` shows a GGUF file's metadata, tensors and totals. With --check it decodes
// every tensor and says whether the file could be run.
// Must not know: anything that runtime.h does not say.
// Main path: [tools/inspect.cpp] -> runtime.h -> runtime/file.cpp -> models/gguf.cpp
#include "common.h"
#include "json.h"

#include <cinttypes>
#include <map>

namespace {

constexpr uint64_t kShownValues = 8, kShownBytes = 200;  // of an array; of a string, in text
constexpr double kLargestWeight = 1.8e19;                // the square of a larger weight overflows F32, and so do norms
constexpr int64_t kCheckElems = 1 << 16;                 // decoded at a time; a multiple of every block

struct inspect_options {
    std::string path;
    bool json = false, check = false, kv = false, tensors = false, full = false;
};

const char* kv_type_name(int32_t type) {
    static const char* const kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64"};
    return type >= 0 && type < (int32_t)std::size(kNames) ? kNames[type] : "?";
}

// Makes a JSON string that is also safe on a terminal: C1 controls, bidirectional marks and line separators are
// escaped, too.
std::string quoted(std::string_view bytes) {
    const std::string json = json_string(bytes);
    std::string out;
    for (size_t i = 0; i < json.size(); i++) {
        const uint8_t a = (uint8_t)json[i], b = i + 1 < json.size() ? (uint8_t)json[i + 1] : 0,
                      c = i + 2 < json.size() ? (uint8_t)json[i + 2] : 0;
        char escape[8] = "";
        if (a == 0xc2 && b < 0xa0) std::snprintf(escape, sizeof escape, "\\u%04x", b);
        else if (a == 0xe2 && b == 0x80 && (c == 0x8e || c == 0x8f || (c >= 0xa8 && c <= 0xae)))
            std::snprintf(escape, sizeof escape, "\\u20%02x", c - 0x80);
        else if (a == 0xe2 && b == 0x81 && c >= 0xa6 && c <= 0xa9)
            std::snprintf(escape, sizeof escape, "\\u20%02x", c - 0x80 + 0x40);
        out += *escape ? escape : std::string(1, json[i]);
        if (*escape) i += a == 0xc2 ? 1 : 2;
    }
    return out;
}

// The same without the quotes, for names in texts.
std::string bare(std::string_view bytes) {
    const std::string text = quoted(bytes);
    return text.substr(1, text.size() - 2);
}

std::string number(double value, bool is_f32, bool json) {
    char text[40];
    std::snprintf(text, sizeof text, is_f32 ? "%.9g" : "%.17g", value);
    return std::isfinite(value) || !json ? text : "\"" + std::string(text) + "\"";  // JSON cannot write inf or NaN
}

std::string value_text(const duet_file* file, int64_t i_kv, const duet_kv& kv, uint64_t i, const inspect_options& o) {
    const int32_t type = kv.type == DUET_KV_ARRAY ? kv.array_type : kv.type;
    duet_string s;
    int64_t n = 0;
    double d = 0;
    if (type == DUET_KV_STRING && duet_file_get_string(file, i_kv, i, &s) == DUET_OK) {
        if (o.json || o.full || s.n_bytes <= kShownBytes) return quoted(view_of(s));
        for (n = kShownBytes; n > 0 && ((uint8_t)s.data[n] & 0xc0) == 0x80;) n--;  // not inside a character
        return quoted(view_of(s).substr(0, (size_t)n)) + "... (" + std::to_string(s.n_bytes) + " bytes)";
    }
    if (type == DUET_KV_BOOL && duet_file_get_int(file, i_kv, i, &n) == DUET_OK) return n ? "true" : "false";
    if (duet_file_get_int(file, i_kv, i, &n) == DUET_OK) return std::to_string(n);
    if (duet_file_get_float(file, i_kv, i, &d) == DUET_OK) return number(d, type == DUET_KV_F32, o.json);
    return o.json ? "\"above 2^63 - 1\"" : "above 2^63 - 1";
}

void print_kvs(const duet_file* file, const inspect_options& o) {
    if (o.json) std::printf(",\n\"kv\": [");
    for (int64_t i = 0; i < duet_file_n_kv(file); i++) {
        duet_kv kv;
        if (duet_file_kv(file, i, &kv) != DUET_OK) continue;
        const bool is_array = kv.type == DUET_KV_ARRAY;
        const uint64_t shown = o.full ? kv.n_values : std::min(kv.n_values, kShownValues);
        if (o.json) {
            std::printf("%s\n  {\"key\": %s, \"type\": \"%s\", \"offset\": %" PRIu64 ", ", i ? "," : "",
                        quoted(view_of(kv.key)).c_str(), kv_type_name(kv.type), kv.offset);
            if (is_array)
                std::printf("\"array_type\": \"%s\", \"n_values\": %" PRIu64 ", \"values\": [",
                            kv_type_name(kv.array_type), kv.n_values);
            else std::printf("\"value\": ");
        } else {
            std::printf("  %-46s ", bare(view_of(kv.key)).c_str());
            if (is_array) std::printf("%s[%" PRIu64 "] = ", kv_type_name(kv.array_type), kv.n_values);
            else std::printf("%s = ", kv_type_name(kv.type));
        }
        for (uint64_t v = 0; v < shown; v++) std::printf("%s%s", v ? ", " : "", value_text(file, i, kv, v, o).c_str());
        if (o.json) std::printf(is_array ? "]}" : "}");
        else std::printf(shown < kv.n_values ? ", ...\n" : "\n");
    }
    if (o.json) std::printf("\n]");
}

const char* type_name(int32_t id) {
    const duet_type_info* info = duet_type_by_id(id);
    return info ? info->name : "?";
}

int64_t elems_of(const duet_tensor& t) { return t.dims[0] * t.dims[1] * t.dims[2] * t.dims[3]; }

void print_tensors(const duet_file* file, const inspect_options& o) {
    struct total {
        int64_t n_tensors = 0;
        uint64_t n_bytes = 0, n_elems = 0;
    };
    std::map<int32_t, total> totals;
    if (o.json) std::printf(",\n\"tensors\": [");
    for (int64_t i = 0; i < duet_file_n_tensors(file); i++) {
        duet_tensor t;
        if (duet_file_tensor(file, i, &t) != DUET_OK) continue;
        total& sum = totals[t.type_id];
        sum.n_tensors++;
        sum.n_bytes += t.n_bytes;
        sum.n_elems += (uint64_t)elems_of(t);
        if (o.json)
            std::printf("%s\n  {\"name\": %s, \"type\": \"%s\", \"shape\": [%s], \"n_bytes\": %" PRIu64
                        ", \"offset\": %" PRIu64 ", \"part\": %d}",
                        i ? "," : "", quoted(view_of(t.name)).c_str(), type_name(t.type_id),
                        shape_text(t, ", ").c_str(), t.n_bytes, t.offset, t.i_file);
        else
            std::printf("  %-40s %-8s %-22s %12" PRIu64 " bytes at %" PRIu64 "%s\n", bare(view_of(t.name)).c_str(),
                        type_name(t.type_id), shape_text(t).c_str(), t.n_bytes, t.offset,
                        t.i_file ? (" of part " + std::to_string(t.i_file + 1)).c_str() : "");
    }
    if (o.json) std::printf("\n],\n\"totals\": [");
    else if (!totals.empty()) std::printf("totals\n");
    for (const auto& [type, sum] : totals)
        std::printf(o.json ? "%s\n  {\"type\": \"%s\", \"n_tensors\": %" PRId64 ", \"n_elems\": %" PRIu64
                             ", \"n_bytes\": %" PRIu64 "}"
                           : "%s  %-8s %5" PRId64 " tensors %15" PRIu64 " elements %15" PRIu64 " bytes\n",
                    o.json && type != totals.begin()->first ? "," : "", type_name(type), sum.n_tensors, sum.n_elems,
                    sum.n_bytes);
    if (o.json) std::printf("\n]");
}

// Decodes a tensor in pieces. Returns "", or the first value that no weight may have.
std::string check_tensor(const duet_tensor& t, const duet_type_info& info, std::vector<float>& values) {
    // Frequencies of rope are divided by rope_freqs and rope_factors; 1e30 in files of Gemma 4 makes one 0.
    const double largest = view_of(t.name).starts_with("rope_f") ? 3.4e38 : kLargestWeight;
    const int64_t n_elems = elems_of(t);
    char text[160];
    for (int64_t begin = 0; begin < n_elems; begin += kCheckElems) {
        const int64_t n = std::min(kCheckElems, n_elems - begin);
        const uint8_t* piece = (const uint8_t*)t.data + begin / info.elems_per_block * info.bytes_per_block;
        const duet_status status = duet_dequantize_row(t.type_id, piece, n, values.data());
        if (status != DUET_OK) return std::string("cannot be decoded: ") + duet_status_name(status);
        for (int64_t i = 0; i < n; i++) {
            // The scale byte 255 of MXFP4 is NaN by the format's definition (OCP Microscaling Formats 1.0, E8M0).
            const bool bad_code = t.type_id == 39 && piece[i / info.elems_per_block * info.bytes_per_block] == 255;
            const float v = values[(size_t)i];
            if (std::fabs(v) <= largest && !bad_code) continue;
            std::snprintf(text, sizeof text, "element %" PRId64 " (byte %" PRIu64 "): want a %s of at most %g, got ",
                          begin + i, t.offset + (uint64_t)((begin + i) / info.elems_per_block * info.bytes_per_block),
                          info.elems_per_block > 1 ? "scale and value" : "value", largest);
            return text + (bad_code ? "the scale NaN" : number(v, true, false));
        }
    }
    return "";
}

// Finds values of keys that mean nothing: floats that are NaN or infinite, an undefined pooling type.
void check_kvs(const duet_file* file, std::vector<std::string>* findings) {
    for (int64_t i = 0; i < duet_file_n_kv(file); i++) {
        duet_kv kv;
        if (duet_file_kv(file, i, &kv) != DUET_OK) continue;
        const std::string where = "key " + bare(view_of(kv.key)) + ": ";
        const int32_t type = kv.type == DUET_KV_ARRAY ? kv.array_type : kv.type;
        double d = 0;
        for (uint64_t v = 0; v < kv.n_values && (type == DUET_KV_F32 || type == DUET_KV_F64); v++)
            if (duet_file_get_float(file, i, v, &d) == DUET_OK && !std::isfinite(d)) {
                findings->push_back(where + "value " + std::to_string(v) + ": want a finite number, got " +
                                    number(d, true, false));
                break;
            }
        int64_t pooling = 0;
        if (view_of(kv.key).ends_with(".pooling_type") &&
            (duet_file_get_int(file, i, 0, &pooling) != DUET_OK || pooling < 0 || pooling > 4))
            findings->push_back(where + "want 0 to 4 (none, mean, first, last, rank), got " + std::to_string(pooling));
    }
}

// Prints all that can be said about the file without running it, one line each.
std::vector<std::string> check_file(const duet_file* file, const inspect_options& o) {
    std::vector<std::string> findings;
    std::vector<float> values((size_t)kCheckElems);
    std::map<std::string, int64_t> no_decoder;
    check_kvs(file, &findings);
    for (int64_t i = 0; i < duet_file_n_tensors(file); i++) {
        duet_tensor t;
        if (duet_file_tensor(file, i, &t) != DUET_OK) continue;
        const duet_type_info* info = duet_type_by_id(t.type_id);
        if (!info || duet_dequantize_row(t.type_id, t.data, 0, values.data()) == DUET_ERR_UNSUPPORTED) {
            no_decoder[type_name(t.type_id)]++;
            continue;
        }
        if (const std::string bad = check_tensor(t, *info, values); !bad.empty())
            findings.push_back("tensor " + bare(view_of(t.name)) + ": " + bad);
    }
    for (const auto& [type, n] : no_decoder)
        std::fprintf(stderr, "inspect: values not checked: %" PRId64 " tensors of type %s: no decoder in this build\n",
                     n, type.c_str());
    duet_model* model = nullptr;
    duet_model_params params = duet_model_params_default();
    params.n_threads = 1;
    if (duet_model_open(o.path.c_str(), &params, &model) != DUET_OK)
        findings.push_back(std::string("cannot be opened as a model: ") +
                           (model ? duet_model_error(model) : "out of memory"));
    duet_model_free(model);
    return findings;
}

int print_findings(const std::vector<std::string>& findings, const inspect_options& o) {
    if (o.json) {
        std::printf(",\n\"check\": {\"ok\": %s, \"findings\": [", findings.empty() ? "true" : "false");
        for (size_t i = 0; i < findings.size(); i++) std::printf("%s%s", i ? ", " : "", quoted(findings[i]).c_str());
        std::printf("]}");
    } else {
        for (const std::string& finding : findings) std::printf("%s\n", finding.c_str());
        if (findings.empty()) std::printf("ok\n");
    }
    return findings.empty() ? kExitGood : kExitFailed;
}

int inspect(const inspect_options& o) {
    duet_file* file = nullptr;
    const duet_status status = duet_file_open(o.path.c_str(), &file);
    const file_ptr owned(file);
    int code = kExitGood;
    if (status != DUET_OK) {
        if (o.json)
            std::printf("{\"file\": %s, \"error\": %s}\n", quoted(o.path).c_str(),
                        quoted(duet_file_error(file)).c_str());
        else std::fprintf(o.check ? stdout : stderr, "%s%s\n", o.check ? "" : "inspect: ", duet_file_error(file));
        return finish_output("inspect", kExitFailed);
    }
    const bool is_plain = !o.check && !o.kv && !o.tensors;
    if (o.json)
        std::printf("{\"file\": %s, \"version\": %d, \"n_parts\": %d", quoted(o.path).c_str(), duet_file_version(file),
                    duet_file_n_parts(file));
    else if (is_plain)
        std::printf("%s: GGUF v%d, %d part%s, %" PRId64 " keys, %" PRId64 " tensors\n", quoted(o.path).c_str(),
                    duet_file_version(file), duet_file_n_parts(file), duet_file_n_parts(file) == 1 ? "" : "s",
                    duet_file_n_kv(file), duet_file_n_tensors(file));
    if (is_plain || o.kv) print_kvs(file, o);
    if (is_plain || o.tensors) print_tensors(file, o);
    if (o.check) code = print_findings(check_file(file, o), o);
    if (o.json) std::printf("}\n");
    return finish_output("inspect", code);
}

}  // namespace

int main(int argc, char** argv) {
    inspect_options o;
    tool_args args("inspect", "FILE.gguf [options]", "Shows and checks a GGUF file.");
    args.positional("FILE.gguf", "the file; of a split model its first part", &o.path);
    args.flag("--check", "say 'ok' or each reason why the file cannot run, without running it (exit code 1)", &o.check);
    args.flag("--kv", "metadata only", &o.kv);
    args.flag("--tensors", "tensors only", &o.tensors);
    args.flag("--json", "one JSON object", &o.json);
    args.flag("--full", "arrays and strings at full length", &o.full);
    if (int code; !args.parse(argc, argv, &code)) return code;
    os::report_large_files();
    try {
        return inspect(o);
    } catch (const std::bad_alloc&) { return std::fputs("inspect: out of memory\n", stderr), kExitFailed; }
}

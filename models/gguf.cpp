// models/gguf.cpp: an opened GGUF file: joins its parts, finds names, reads hyper-parameters by type.
// Owns: the mappings, the rules of split files. Must not know: architectures, devices, the bytes of the format
// (models/gguf_part.cpp). models/gguf_write.cpp is the writer.
// Main path: runtime/model.cpp -> [models/gguf.cpp] -> models/<family>.cpp
#include "file_map.h"
#include "gguf_part.h"
#include "unicode.h"

#include <charconv>

namespace duet {

namespace {

// Splits "dir/name-00001-of-00003.gguf" into the text before the number of the part, the two numbers, and the text
// after. False: it is not such a name.
struct gguf_part_name {
    std::string before, after;
    uint32_t no = 0, count = 0;
    std::string of_part(int64_t i, int64_t n) const {  // the name of another part
        char numbers[40];
        snprintf(numbers, sizeof numbers, "%05lld-of-%05lld", (long long)i, (long long)n);
        return before + numbers + after;
    }
};
bool gguf_split_name(const std::string& path, gguf_part_name* out) {
    const auto read_digits = [&](size_t at, uint32_t* n) {  // five of them
        return std::from_chars(&path[at], &path[at] + 5, *n).ptr == &path[at] + 5;
    };
    const size_t at = path.rfind("-of-");
    if (at == std::string::npos || at < 6 || at + 9 > path.size() || path[at - 6] != '-') return false;
    out->before = path.substr(0, at - 5);
    out->after = path.substr(at + 9);
    return read_digits(at - 5, &out->no) && read_digits(at + 4, &out->count) && out->after.find('/') == out->after.npos;
}

}  // namespace

// The fields of a gguf_file that are not public.
struct gguf_parts {
    std::vector<std::unique_ptr<file_map>> maps;  // one for each part
    std::vector<std::string> paths;               // as messages show them
    // Indexes in order of name. Search by halving stays fast whatever names a file chooses.
    std::vector<uint32_t> kv_order, tensor_order;
};

namespace {

// Joins the parts of a file.
struct gguf_joiner {
    gguf_file& file;
    gguf_parts& parts;
    error_text& err;
    bool is_copy;  // later parts are read into memory, as the first was
    std::vector<std::unique_ptr<file_map>>& maps = parts.maps;
    std::vector<std::string>& paths = parts.paths;
    gguf_part_name name = {};  // of the first part of a split file

    [[gnu::format(DUET_PRINTF_FORM, 4, 5)]] duet_status part_error(size_t i_part, const char* what, const char* rule,
                                                                   ...) const {
        char text[700];
        DUET_PRINT_ARGS(text, rule);
        return fail(err, DUET_ERR_FORMAT, "%s: %s: %s", paths[i_part].c_str(), what, text);
    }

    // Reads maps.back(). The kvs of a later part are returned in *later and not kept.
    duet_status add(std::vector<gguf_kv>* later) {
        const size_t i_part = maps.size() - 1;
        gguf_part part{paths[i_part], maps[i_part]->data(), maps[i_part]->size(), (int32_t)i_part, err};
        DUET_TRY(part.read_all());
        if (i_part == 0) {
            file.version = part.version;
            file.kvs = std::move(part.kvs);
            file.tensors = std::move(part.tensors);
            parts.kv_order = gguf_sorted(file.kvs, &gguf_kv::key);
        } else {
            *later = std::move(part.kvs);
            file.tensors.insert(file.tensors.end(), part.tensors.begin(), part.tensors.end());
        }
        return DUET_OK;
    }

    // Returns the integer of a split key, or fallback if the key is absent. Its type was checked with the known keys.
    static int64_t split_value(const std::vector<gguf_kv>& kvs, const char* key, int64_t fallback) {
        for (const gguf_kv& kv : kvs)
            if (kv.key == key) return gguf_file::value_int(kv, 0, &fallback) ? fallback : INT64_MAX;
        return fallback;
    }

    // Reads what the first part says about the split.
    duet_status read_split(const char* path) {
        const long long n = split_value(file.kvs, "split.count", 0), i = split_value(file.kvs, "split.no", 0);
        if (n < 0 || n > 65535) return part_error(0, "split.count", "want 0 to 65535, got %lld", n);
        file.n_parts = std::max((int32_t)n, 1);
        if (i < 0 || i >= file.n_parts)
            return part_error(0, "split.no", "want 0 to %d (split.count - 1), got %lld", file.n_parts - 1, i);
        if (n <= 1) return DUET_OK;
        if (!path) return part_error(0, "split.count", "part %lld of a split file: open split files by path", i + 1);
        if (!gguf_split_name(path, &name))
            return part_error(0, "split.count", "one of %lld parts, so its name must be like name-00001-of-%05lld.gguf",
                              n, n);
        if (i != 0)
            return part_error(0, "split.no", "this is part %lld of %lld: want the first, %s", i + 1, n,
                              printable_path(name.of_part(1, n)).c_str());
        if (name.count != n || name.no != 1)
            return part_error(0, "split.count", "the file says part 1 of %lld, its name says part %u of %u", n, name.no,
                              name.count);
        return DUET_OK;
    }

    duet_status add_later_parts() {
        const int32_t n_parts = file.n_parts;
        const int64_t n_tensors = split_value(file.kvs, "split.tensors.count", -1);
        for (int32_t i = 1; i < n_parts; i++) {
            const std::string part_path = name.of_part(i + 1, n_parts);
            paths.push_back(printable_path(part_path));
            maps.push_back(std::make_unique<file_map>());
            if (duet_status s = maps.back()->open(part_path.c_str(), err, is_copy); s != DUET_OK) {
                err.text += " (part " + std::to_string(i + 1) + " of " + std::to_string(n_parts) + " of a split file)";
                return s;
            }
            std::vector<gguf_kv> later;
            DUET_TRY(add(&later));
            const int64_t no = split_value(later, "split.no", -1), count = split_value(later, "split.count", -1);
            const int64_t later_tensors = split_value(later, "split.tensors.count", -1);
            auto text = [](int64_t n) { return n < 0 ? std::string("no such key") : std::to_string(n); };
            auto wrong = [&](const char* key, int64_t want, int64_t got) {
                return part_error((size_t)i, key, "want %s, got %s", text(want).c_str(), text(got).c_str());
            };
            if (no != i) return wrong("split.no", i, no);
            if (count != n_parts) return wrong("split.count", n_parts, count);
            if (later_tensors != n_tensors) return wrong("split.tensors.count", n_tensors, later_tensors);
            // Nothing reads the keys of later parts, so they need none. Those they have may not contradict the first.
            for (const gguf_kv& b : later) {
                const gguf_kv* a = b.key.starts_with("split.") ? nullptr : file.find(b.key);
                if (a && (a->type != b.type || a->array_type != b.array_type || a->n_bytes != b.n_bytes ||
                          memcmp(a->data, b.data, (size_t)b.n_bytes) != 0))
                    return part_error((size_t)i, printable(b.key).c_str(),
                                      "at byte %llu: part of another model: want %s as in the first part, got %s",
                                      (unsigned long long)b.offset, gguf_describe(*a).c_str(),
                                      gguf_describe(b).c_str());
            }
        }
        return DUET_OK;
    }

    duet_status index() {
        std::vector<uint32_t>&kv_order = parts.kv_order, &tensor_order = parts.tensor_order;
        for (size_t i = 1; i < kv_order.size(); i++) {
            const gguf_kv &a = file.kvs[kv_order[i - 1]], &b = file.kvs[kv_order[i]];
            if (a.key == b.key)
                return part_error(0, printable(b.key).c_str(),
                                  "at byte %llu: the key stands twice: want one, the other's value is at byte %llu",
                                  (unsigned long long)b.offset, (unsigned long long)a.offset);
        }
        tensor_order = gguf_sorted(file.tensors, &gguf_tensor::name);
        for (size_t i = 1; i < tensor_order.size(); i++) {
            const gguf_tensor &a = file.tensors[tensor_order[i - 1]], &b = file.tensors[tensor_order[i]];
            if (a.name == b.name)
                return part_error(
                    (size_t)b.i_file, ("tensor " + printable(b.name)).c_str(),
                    "at byte %llu: the name stands twice: want one, the other's data is at byte %llu of part %d",
                    (unsigned long long)b.offset, (unsigned long long)a.offset, a.i_file + 1);
        }
        const int64_t want = split_value(file.kvs, "split.tensors.count", (int64_t)file.tensors.size());
        if (want != (int64_t)file.tensors.size())
            return part_error(0, "split.tensors.count", "want the number of tensors in all parts, %zu, got %lld",
                              file.tensors.size(), (long long)want);
        return DUET_OK;
    }

    // maps[0] is set. path: nullptr when there is no path to find later parts by.
    duet_status run(const char* path) {
        DUET_TRY(add(nullptr));
        DUET_TRY(read_split(path));
        if (file.n_parts > 1) DUET_TRY(add_later_parts());
        DUET_TRY(index());
        for (size_t i = 0; i < maps.size(); i++) DUET_TRY(maps[i]->check_size(paths[i].c_str(), err));
        return DUET_OK;
    }
};

}  // namespace

gguf_file::gguf_file() : parts_(std::make_shared<gguf_parts>()) {}

// Opens a file whose one part comes from `load`. later_path: where later parts are looked for; nullptr: nowhere.
template <class Load>
duet_status gguf_file::open_from(const char* name, const char* later_path, bool is_copy, Load load, error_text& err) {
    gguf_file fresh;
    fresh.path = name;
    fresh.parts_->maps.push_back(std::make_unique<file_map>());
    fresh.parts_->paths.push_back(printable_path(name));
    DUET_TRY(load(*fresh.parts_->maps[0]));
    DUET_TRY((gguf_joiner{fresh, *fresh.parts_, err, is_copy}.run(later_path)));
    *this = std::move(fresh);
    return DUET_OK;
}

duet_status gguf_file::open(const char* path_given, error_text& err, bool is_copy) {
    if (!path_given || !*path_given)
        return fail(err, DUET_ERR_ARG, "want the path of a GGUF file, got %s", path_given ? "\"\"" : "NULL");
    const auto load = [&](file_map& map) { return map.open(path_given, err, is_copy); };
    return open_from(path_given, path_given, is_copy, load, err);
}

duet_status gguf_file::open_memory(const void* data, uint64_t n_bytes, error_text& err) {
    if (!data) return fail(err, DUET_ERR_ARG, "want the bytes of a GGUF file, got NULL");
    return open_from("memory", nullptr, false, [&](file_map& map) { return map.borrow(data, n_bytes); }, err);
}

duet_status gguf_file::open_reader(duet_read_fn read, void* user, uint64_t n_bytes, error_text& err) {
    if (!read) return fail(err, DUET_ERR_ARG, "want a read callback, got NULL");
    const auto load = [&](file_map& map) { return map.read_all(read, user, n_bytes, err); };
    return open_from("reader", nullptr, false, load, err);
}

const gguf_kv* gguf_file::find(std::string_view key) const {
    const auto& order = parts_->kv_order;
    const auto it = std::ranges::lower_bound(order, key, {}, [&](uint32_t i) { return kvs[i].key; });
    return it != order.end() && kvs[*it].key == key ? &kvs[*it] : nullptr;
}

const gguf_tensor* gguf_file::find_tensor(std::string_view name) const {
    const auto& order = parts_->tensor_order;
    const auto it = std::ranges::lower_bound(order, name, {}, [&](uint32_t i) { return tensors[i].name; });
    return it != order.end() && tensors[*it].name == name ? &tensors[*it] : nullptr;
}

void gguf_file::will_need(const gguf_tensor& tensor) const {
    parts_->maps[(size_t)tensor.i_file]->will_need(tensor.data, tensor.n_bytes);
}

bool gguf_file::value_int(const gguf_kv& kv, uint64_t i, int64_t* out) {
    if (i >= kv.n_values) return false;
    switch (kv.value_type()) {
    case DUET_KV_BOOL:
    case DUET_KV_U8: *out = kv.data[i]; return true;
    case DUET_KV_I8: *out = (int8_t)kv.data[i]; return true;
    case DUET_KV_U16: *out = gguf_load<uint16_t>(kv.data + 2 * i); return true;
    case DUET_KV_I16: *out = gguf_load<int16_t>(kv.data + 2 * i); return true;
    case DUET_KV_U32: *out = gguf_load<uint32_t>(kv.data + 4 * i); return true;
    case DUET_KV_I32: *out = gguf_load<int32_t>(kv.data + 4 * i); return true;
    case DUET_KV_I64: *out = gguf_load<int64_t>(kv.data + 8 * i); return true;
    case DUET_KV_U64: *out = gguf_load<int64_t>(kv.data + 8 * i); return *out >= 0;
    }
    return false;
}

bool gguf_file::value_float(const gguf_kv& kv, uint64_t i, double* out) {
    const int32_t type = kv.value_type();
    if (i >= kv.n_values || (type != DUET_KV_F32 && type != DUET_KV_F64)) return false;
    *out = type == DUET_KV_F32 ? (double)gguf_load<float>(kv.data + 4 * i) : gguf_load<double>(kv.data + 8 * i);
    return true;
}

namespace {

// What a typed read of an absent key returns.
duet_status gguf_absent(const gguf_file& file, std::string_view key, bool required, error_text& err) {
    if (!required) return DUET_OK;
    return fail(err, DUET_ERR_FORMAT, "%s: %s: the required key is absent", printable_path(file.path).c_str(),
                printable(key).c_str());
}

duet_status gguf_wrong(const gguf_file& file, const gguf_kv& kv, const std::string& want, error_text& err,
                       const std::string& got = {}) {
    return fail(err, DUET_ERR_FORMAT, "%s: %s: at byte %llu: want %s, got %s", printable_path(file.path).c_str(),
                printable(kv.key).c_str(), (unsigned long long)kv.offset, want.c_str(),
                got.empty() ? gguf_describe(kv).c_str() : got.c_str());
}

std::string gguf_range(uint32_t min, uint32_t max) { return std::to_string(min) + " to " + std::to_string(max); }

}  // namespace

duet_status gguf_file::get_u32(std::string_view key, bool required, uint32_t min, uint32_t max, uint32_t* out,
                               error_text& err) const {
    const gguf_kv* kv = find(key);
    if (!kv) return gguf_absent(*this, key, required, err);
    int64_t value = -1;
    if (!gguf_is_int(kv->type) || !value_int(*kv, 0, &value) || value < min || value > max)
        return gguf_wrong(*this, *kv, "an integer from " + gguf_range(min, max), err);
    *out = (uint32_t)value;
    return DUET_OK;
}

duet_status gguf_file::get_f32(std::string_view key, bool required, float min, float max, float* out,
                               error_text& err) const {
    const gguf_kv* kv = find(key);
    if (!kv) return gguf_absent(*this, key, required, err);
    double value = 0;
    if (kv->type == DUET_KV_ARRAY || !value_float(*kv, 0, &value) || !(value >= min && value <= max)) {
        char want[80];
        snprintf(want, sizeof want, "a float from %.9g to %.9g", (double)min, (double)max);
        return gguf_wrong(*this, *kv, want, err);
    }
    *out = (float)value;
    return DUET_OK;
}

duet_status gguf_file::get_bool(std::string_view key, bool required, bool* out, error_text& err) const {
    const gguf_kv* kv = find(key);
    if (!kv) return gguf_absent(*this, key, required, err);
    if (kv->type != DUET_KV_BOOL) return gguf_wrong(*this, *kv, "a bool", err);
    *out = *kv->data != 0;
    return DUET_OK;
}

duet_status gguf_file::get_string(std::string_view key, bool required, std::string_view* out, error_text& err) const {
    const gguf_kv* kv = find(key);
    if (!kv) return gguf_absent(*this, key, required, err);
    if (kv->type != DUET_KV_STRING) return gguf_wrong(*this, *kv, "a string", err);
    *out = kv->strings[0];
    return DUET_OK;
}

duet_status gguf_file::get_u32_per_layer(std::string_view key, bool required, uint32_t n, uint32_t min, uint32_t max,
                                         std::vector<uint32_t>* out, error_text& err) const {
    const gguf_kv* kv = find(key);
    if (!kv) return gguf_absent(*this, key, required, err);
    const bool is_array = kv->type == DUET_KV_ARRAY;
    const bool fits = is_array ? gguf_is_int(kv->array_type) || kv->array_type == DUET_KV_BOOL : gguf_is_int(kv->type);
    if (!fits || (is_array && kv->n_values != n))
        return gguf_wrong(*this, *kv, "an integer, or an array of " + std::to_string(n) + " (one for each layer)", err);
    std::vector<uint32_t> values(n);
    for (uint32_t i = 0; i < n; i++) {
        int64_t value = -1;
        if (!value_int(*kv, is_array ? i : 0, &value) || value < min || value > max)
            return gguf_wrong(*this, *kv, "integers from " + gguf_range(min, max), err,
                              is_array ? std::to_string(value) + " for layer " + std::to_string(i) : "");
        values[i] = (uint32_t)value;
    }
    *out = std::move(values);
    return DUET_OK;
}

}  // namespace duet

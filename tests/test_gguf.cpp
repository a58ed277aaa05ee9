// tests/test_gguf.cpp: the GGUF reader and writer, typed reads, split files, which files may be opened at all, and the
// functions of runtime.h for files.
#include "../models/file_map.h"
#include "../models/gguf.h"
#include "doctest.h"
#include "hostile.h"
#include "test_data.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#ifndef _WIN32
#include <sys/stat.h>
#endif
#include <unistd.h>

namespace {

namespace fs = std::filesystem;

// A temporary folder that the test removes at its end.
struct temp_folder {
    fs::path path;
    temp_folder() {
        static int n = 0;
        path = fs::temp_directory_path() / ("duet_test_" + std::to_string((long)getpid()) + "_" + std::to_string(n++));
        fs::create_directories(path);
    }
    ~temp_folder() { fs::remove_all(path); }
    std::string file(const std::string& name) const { return (path / name).string(); }
    std::string write(const std::string& name, const std::string& bytes) const {
        std::ofstream(path / name, std::ios::binary) << bytes;
        return file(name);
    }
};

std::string open_error(const std::string& path, duet_status want) {
    duet::gguf_file file;
    duet::error_text err;
    CHECK(file.open(path.c_str(), err) == want);
    return err.text;
}

int32_t append_bytes(void* user, const void* data, uint64_t n_bytes) {
    ((std::string*)user)->append((const char*)data, (size_t)n_bytes);
    return 0;
}

std::string saved(const duet::gguf_writer& writer) {
    std::string bytes;
    duet::error_text err;
    CHECK(writer.save_to(append_bytes, &bytes, err) == DUET_OK);
    CHECK(writer.size() == bytes.size());
    return bytes;
}

// Makes part i_part (0-based) of a model cut into n_parts. Each part holds one tensor.
raw_gguf part_of(int i_part, int n_parts) {
    raw_gguf f;
    if (i_part == 0)
        f.set("general.architecture", raw_text("llama"))
            .set("general.name", raw_text("split"))
            .set("llama.block_count", raw_u32(2));
    f.set("split.no", raw_u32((uint32_t)i_part))
        .set("split.count", raw_u32((uint32_t)n_parts))
        .set("split.tensors.count", raw_i32(n_parts));
    return f.add("t" + std::to_string(i_part), {8}, 0, 32);
}

std::string part_name(int no, int count) {
    char text[64];
    snprintf(text, sizeof text, "model-%05d-of-%05d.gguf", no, count);
    return text;
}

}  // namespace

TEST_CASE("gguf: what the writer writes the reader gives back") {
    duet::gguf_writer w;
    duet::error_text err;
    float data[64];
    for (int i = 0; i < 64; i++) data[i] = (float)i;
    const std::string_view texts[] = {"a", "", std::string_view("\0\xff", 2)};
    const int32_t ints[] = {1, -2, 3};
    const int64_t dims[] = {8, 4, 2}, one[] = {5};
    // clang-format off
    struct { int32_t type; int64_t min, max; } const types[] = {{DUET_KV_U8, 0, 255}, {DUET_KV_I8, -128, 127}, {DUET_KV_U16, 0, 65535}, {DUET_KV_I16, -32768, 32767},
        {DUET_KV_U32, 0, UINT32_MAX}, {DUET_KV_I32, INT32_MIN, INT32_MAX}, {DUET_KV_BOOL, 0, 1}, {DUET_KV_U64, 0, INT64_MAX}, {DUET_KV_I64, INT64_MIN, INT64_MAX}};
    // clang-format on
    for (const auto& t : types) {
        const std::string key = "int." + std::to_string(t.type);
        CHECK(w.set_int(key + ".min", t.type, t.min, err) == DUET_OK);
        CHECK(w.set_int(key + ".max", t.type, t.max, err) == DUET_OK);
        if (t.max < INT64_MAX) {
            CHECK(w.set_int(key + ".over", t.type, t.max + 1, err) == DUET_ERR_ARG);
            CHECK(w.set_int(key + ".under", t.type, t.min - 1, err) == DUET_ERR_ARG);
        }
    }
    CHECK(w.set_float("f32", DUET_KV_F32, 0.1f, err) == DUET_OK);
    CHECK(w.set_float("f64", DUET_KV_F64, 0.1, err) == DUET_OK);
    CHECK(w.set_string("text", "old", err) == DUET_OK);
    CHECK(w.set_string("text", "new \xe4\xb8\xad", err) == DUET_OK);
    CHECK(w.set_strings("texts", texts, 3, err) == DUET_OK);
    CHECK(w.set_array("ints", DUET_KV_I32, ints, 3, err) == DUET_OK);
    CHECK(w.set_array("none", DUET_KV_F32, nullptr, 0, err) == DUET_OK);
    CHECK(w.set_int("general.alignment", DUET_KV_U32, 64, err) == DUET_OK);
    CHECK(w.add_tensor("cube", 0, 3, dims, data, err) == DUET_OK);
    CHECK(w.add_tensor("five", 0, 1, one, data + 3, err) == DUET_OK);
    const std::string bytes = saved(w);
    CHECK(bytes.size() % 64 == 0);

    duet::gguf_file f;
    REQUIRE_MESSAGE(f.open_memory(bytes.data(), bytes.size(), err) == DUET_OK, err.text);
    CHECK(f.version == 3);
    CHECK(f.tensors.size() == 2);
    for (const auto& t : types) {
        int64_t min = 1, max = 1;
        const std::string key = "int." + std::to_string(t.type);
        CHECK(duet::gguf_file::value_int(*f.find(key + ".min"), 0, &min));
        CHECK(duet::gguf_file::value_int(*f.find(key + ".max"), 0, &max));
        CHECK(min == t.min);
        CHECK(max == t.max);
    }
    double d = 0;
    CHECK(duet::gguf_file::value_float(*f.find("f32"), 0, &d));
    CHECK(d == (double)0.1f);
    CHECK(duet::gguf_file::value_float(*f.find("f64"), 0, &d));
    CHECK(d == 0.1);
    CHECK(f.find("text")->strings[0] == "new \xe4\xb8\xad");
    CHECK(std::equal(f.find("texts")->strings.begin(), f.find("texts")->strings.end(), texts, texts + 3));
    CHECK(std::memcmp(f.find("ints")->data, ints, 12) == 0);
    CHECK(f.find("none")->n_values == 0);
    CHECK(f.find("int.0.over") == nullptr);
    CHECK(f.find("cube") == nullptr);
    const duet::gguf_tensor* cube = f.find_tensor("cube");
    CHECK(cube->n_bytes == 256);
    CHECK(cube->n_dims == 3);
    CHECK(cube->n_elems() == 64);
    CHECK(cube->offset % 64 == 0);
    CHECK(std::memcmp(cube->data, data, 256) == 0);
    CHECK(std::memcmp(f.find_tensor("five")->data, data + 3, 20) == 0);

    // A copy of all keys and tensors is the same file, byte for byte.
    duet::gguf_writer copy;
    CHECK(copy.copy_kv(f, err) == DUET_OK);
    for (const auto& t : f.tensors) CHECK(copy.add_tensor(t.name, t.type, t.n_dims, t.dims, t.data, err) == DUET_OK);
    CHECK(saved(copy) == bytes);
}

TEST_CASE("gguf: the writer refuses what the reader would refuse") {
    duet::gguf_writer w;
    duet::error_text err;
    const float data[64] = {};
    const int64_t dims[] = {32, 2}, zero[] = {0}, odd[] = {33}, huge[] = {INT64_MAX, 2};
    const uint8_t bools[] = {0, 2};
    CHECK(w.set_int("", DUET_KV_U32, 1, err) == DUET_ERR_ARG);
    CHECK(w.set_int("a\n", DUET_KV_U32, 1, err) == DUET_ERR_ARG);
    CHECK(w.set_int(std::string(65536, 'k'), DUET_KV_U32, 1, err) == DUET_ERR_ARG);
    CHECK(w.set_int("a", DUET_KV_F32, 1, err) == DUET_ERR_ARG);
    CHECK(w.set_int("a", 13, 1, err) == DUET_ERR_ARG);
    CHECK(w.set_int("a", -1, 1, err) == DUET_ERR_ARG);
    CHECK(w.set_float("a", DUET_KV_U32, 1, err) == DUET_ERR_ARG);
    CHECK(w.set_array("a", DUET_KV_ARRAY, bools, 2, err) == DUET_ERR_ARG);
    CHECK(w.set_array("a", DUET_KV_STRING, bools, 2, err) == DUET_ERR_ARG);
    CHECK(w.set_array("a", DUET_KV_BOOL, bools, 2, err) == DUET_ERR_ARG);
    for (const int64_t bad : {0, 3, 4, 33, 1 << 21})
        CHECK(w.set_int("general.alignment", DUET_KV_U32, bad, err) == DUET_ERR_ARG);
    CHECK(w.set_string("general.alignment", "32", err) == DUET_ERR_ARG);
    CHECK(w.set_int("general.alignment", DUET_KV_I64, 32, err) == DUET_ERR_ARG);
    CHECK(w.add_tensor("", 0, 2, dims, data, err) == DUET_ERR_ARG);
    CHECK(w.add_tensor(std::string(65, 'n'), 0, 2, dims, data, err) == DUET_ERR_ARG);
    CHECK(w.add_tensor("t", 4, 2, dims, data, err) == DUET_ERR_ARG);
    CHECK(w.add_tensor("t", 99, 2, dims, data, err) == DUET_ERR_ARG);
    CHECK(w.add_tensor("t", -1, 2, dims, data, err) == DUET_ERR_ARG);
    CHECK(w.add_tensor("t", 0, 0, dims, data, err) == DUET_ERR_ARG);
    CHECK(w.add_tensor("t", 0, 5, dims, data, err) == DUET_ERR_ARG);
    CHECK(w.add_tensor("t", 0, -1, dims, data, err) == DUET_ERR_ARG);
    CHECK(w.add_tensor("t", 0, 1, zero, data, err) == DUET_ERR_ARG);
    CHECK(w.add_tensor("t", 2, 1, odd, data, err) == DUET_ERR_ARG);
    CHECK(w.add_tensor("t", 0, 2, huge, data, err) == DUET_ERR_ARG);
    CHECK(w.add_tensor("t", 0, 2, dims, nullptr, err) == DUET_ERR_ARG);
    CHECK(w.add_tensor("t", 0, 2, dims, data, err) == DUET_OK);
    CHECK(w.add_tensor("t", 0, 2, dims, data, err) == DUET_ERR_ARG);
    CHECK(w.save_to([](void*, const void*, uint64_t) { return (int32_t)7; }, nullptr, err) == DUET_ERR_IO);
    CHECK(saved(w).size() == (24 + 8 + 1 + 4 + 16 + 4 + 8 + 31) / 32 * 32 + 256);  // nothing refused has left a trace
}

TEST_CASE("gguf: typed reads check kind and range, and name key, offset, wanted and found") {
    const std::string bytes = tiny_file().bytes();
    duet::gguf_file f;
    duet::error_text err;
    REQUIRE(f.open_memory(bytes.data(), bytes.size(), err) == DUET_OK);
    uint32_t u = 99;
    CHECK(f.get_u32("a.u8", true, 0, 255, &u, err) == DUET_OK);
    CHECK(u == 200);
    CHECK(f.get_u32("absent", false, 0, 255, &u, err) == DUET_OK);
    CHECK(u == 200);
    CHECK(f.get_u32("absent", true, 0, 255, &u, err) == DUET_ERR_FORMAT);
    CHECK(err.text == "memory: absent: the required key is absent");
    CHECK(f.get_u32("a.u32", true, 8, 255, &u, err) == DUET_ERR_FORMAT);
    CHECK(err.text == "memory: a.u32: at byte " + std::to_string(f.find("a.u32")->offset) +
                          ": want an integer from 8 to 255, got the u32 7");
    for (const char* key : {"a.i32", "a.u64", "a.f32", "a.bool", "a.ints", "general.name", "a.f64"})
        CHECK(f.get_u32(key, true, 0, UINT32_MAX, &u, err) == DUET_ERR_FORMAT);
    CHECK(err.text.find("got the f64 0.25") != std::string::npos);
    CHECK(u == 200);
    float x = 9;
    CHECK(f.get_f32("a.f32", true, 0, 1, &x, err) == DUET_OK);
    CHECK(x == 0.5f);
    CHECK(f.get_f32("a.f64", true, 0, 1, &x, err) == DUET_OK);
    CHECK(x == 0.25f);
    CHECK(f.get_f32("a.f32", true, 0.6f, 1, &x, err) == DUET_ERR_FORMAT);
    CHECK(f.get_f32("a.u32", true, 0, 100, &x, err) == DUET_ERR_FORMAT);
    bool b = false;
    CHECK(f.get_bool("a.bool", true, &b, err) == DUET_OK);
    CHECK(b);
    CHECK(f.get_bool("a.u8", true, &b, err) == DUET_ERR_FORMAT);
    std::string_view s;
    CHECK(f.get_string("general.name", true, &s, err) == DUET_OK);
    CHECK(s == "tiny");
    CHECK(f.get_string("a.texts", true, &s, err) == DUET_ERR_FORMAT);
    std::vector<uint32_t> list;
    CHECK(f.get_u32_per_layer("a.u32", true, 3, 0, 9, &list, err) == DUET_OK);
    CHECK(list == std::vector<uint32_t>{7, 7, 7});
    CHECK(f.get_u32_per_layer("a.bools", true, 2, 0, 1, &list, err) == DUET_OK);
    CHECK(list == std::vector<uint32_t>{1, 0});
    CHECK(f.get_u32_per_layer("a.bools", true, 3, 0, 1, &list, err) == DUET_ERR_FORMAT);
    CHECK(f.get_u32_per_layer("a.bools", true, 1, 0, 1, &list, err) == DUET_ERR_FORMAT);
    CHECK(f.get_u32_per_layer("a.ints", true, 3, 0, 9, &list, err) == DUET_ERR_FORMAT);
    CHECK(err.text.find("got -2 for layer 1") != std::string::npos);
    CHECK(list.size() == 2);

    raw_gguf odd = tiny_file();
    const std::string odd_bytes = odd.set("nan", raw_f32(std::nanf(""))).bytes();
    REQUIRE(f.open_memory(odd_bytes.data(), odd_bytes.size(), err) == DUET_OK);
    CHECK(f.get_f32("nan", true, -INFINITY, INFINITY, &x, err) == DUET_ERR_FORMAT);
    // A failed open leaves the object as it was.
    CHECK(f.open_memory("GGUF", 4, err) == DUET_ERR_FORMAT);
    CHECK(f.find("nan") != nullptr);
    CHECK(f.open_memory(nullptr, 4, err) == DUET_ERR_ARG);
}

TEST_CASE("gguf: through a read callback") {
    struct source {
        std::string bytes;
        uint64_t n_read = 0;
        static int32_t read(void* user, uint64_t offset, void* dst, uint64_t n_bytes) {
            source& s = *(source*)user;
            if (offset > s.bytes.size() || n_bytes > s.bytes.size() - offset) return -5;
            std::memcpy(dst, s.bytes.data() + offset, n_bytes);
            s.n_read += n_bytes;
            return 0;
        }
    } src{tiny_file().bytes()};
    duet::gguf_file f;
    duet::error_text err;
    CHECK(f.open_reader(source::read, &src, src.bytes.size() + 1, err) == DUET_ERR_IO);
    CHECK(err.text.find("-5") != std::string::npos);
    CHECK(f.open_reader(source::read, &src, UINT64_MAX, err) == DUET_ERR_MEMORY);
    CHECK(f.open_reader(source::read, &src, 0, err) == DUET_ERR_FORMAT);
    CHECK(f.open_reader(nullptr, &src, 1, err) == DUET_ERR_ARG);
    CHECK(src.n_read == 0);
    REQUIRE(f.open_reader(source::read, &src, src.bytes.size(), err) == DUET_OK);
    const uint64_t n_bytes = src.bytes.size();
    src.bytes.assign(n_bytes, 'x');  // the file holds its own copy
    CHECK(f.find("general.name")->strings[0] == "tiny");
    const duet::gguf_file moved = std::move(f);
    CHECK(moved.find_tensor("three")->n_bytes == 96);
    CHECK(moved.path == "reader");
}

TEST_CASE("gguf: printable") {
    CHECK(duet::printable("plain \xc3\xa9") == "plain \xc3\xa9");
    CHECK(duet::printable("a\n\x1b[2J\"\\\x7f\xff") == "a\\x0A\\x1B[2J\\x22\\x5C\\x7F\\xFF");
    CHECK(duet::printable("\xc2\x9b \xe2\x80\xae") == "\\xC2\\x9B \\xE2\\x80\\xAE");
    CHECK(duet::printable(std::string(100, 'x')) == std::string(80, 'x') + "...");
    CHECK(duet::printable("ab\xc3\xa9", 3) == "ab...");
    CHECK(duet::printable("") == "");
    // of a path, also of one that was made printable before
    CHECK(duet::printable_path("C:\\m\n\xff.gguf") == "C:\\m\\x0A\\xFF.gguf");
    CHECK(duet::printable_path(duet::printable_path("C:\\m\n\xff.gguf")) == "C:\\m\\x0A\\xFF.gguf");
}

TEST_CASE("gguf: paths that are no model file, each with its own message") {
    temp_folder t;
    CHECK(open_error(t.file("absent.gguf"), DUET_ERR_IO).find("cannot be opened") != std::string::npos);
    CHECK(open_error(t.path.string(), DUET_ERR_IO).find("got a directory") != std::string::npos);
#ifdef _WIN32
    CHECK(open_error("NUL", DUET_ERR_IO).find("got a device") != std::string::npos);
    CHECK(open_error("C:\\none\\no.gguf", DUET_ERR_IO).starts_with("C:\\none\\no.gguf: cannot be opened"));
    CHECK(open_error(t.file("n|.gguf"), DUET_ERR_IO).find("cannot be opened") != std::string::npos);
#else
    REQUIRE(mkfifo(t.file("fifo").c_str(), 0600) == 0);
    CHECK(open_error(t.file("fifo"), DUET_ERR_IO).find("got a FIFO") != std::string::npos);
    CHECK(open_error("/dev/zero", DUET_ERR_IO).find("got a character device") != std::string::npos);
    CHECK(open_error(t.write("n\xff\n.gguf", "GGUF"), DUET_ERR_FORMAT).find("n\\xFF\\x0A.gguf: header: at byte 4") !=
          std::string::npos);
#endif
    CHECK(open_error(t.write("empty.gguf", ""), DUET_ERR_IO).find("empty file") != std::string::npos);
    CHECK(open_error("", DUET_ERR_ARG).find("path") != std::string::npos);
    CHECK(open_error(t.write("page.gguf", "<!DOCTYPE html>\n<html>404</html>"), DUET_ERR_FORMAT)
              .find("an HTML page: probably a failed download") != std::string::npos);
    const std::string good = t.write("caf\xc3\xa9.gguf", tiny_file().bytes());
    CHECK(open_error(good, DUET_OK) == "");
}

TEST_CASE("paths: other scripts, more than 260 characters; a file is renamed and deleted while it is open") {
    const temp_folder t;
    const std::string folder = t.path.string() + "/";
    const std::string name = folder + "模型 é😀 " + std::string(222, 'x'), path = name + ".gguf", moved = name + ".old";
    duet::gguf_writer w;
    duet::error_text err;
    REQUIRE(w.set_string("general.name", "é", err) == DUET_OK);
    for (int i = 0; i < 2; i++) REQUIRE_MESSAGE(w.save(path.c_str(), err) == DUET_OK, err.text);  // over a file too
    {
        duet::gguf_file f;
        REQUIRE_MESSAGE(f.open(path.c_str(), err) == DUET_OK, err.text);
        CHECK(duet::os_rename(path.c_str(), moved.c_str()) == 0);
        CHECK(f.find("general.name")->strings[0] == "é");
    }
    CHECK(open_error(path, DUET_ERR_IO).find("模型 é😀 x") != std::string::npos);
    REQUIRE(duet::os_rename(moved.c_str(), path.c_str()) == 0);
    {
        duet::gguf_file f;  // one that was read is not held: it may be deleted
        REQUIRE_MESSAGE(f.open(path.c_str(), err, true) == DUET_OK, err.text);
        CHECK(duet::os_remove(path.c_str()) == 0);
        CHECK(f.find("general.name")->strings[0] == "é");
    }
    CHECK(duet::os_remove(path.c_str()) != 0);
    CHECK(errno == ENOENT);
    REQUIRE_MESSAGE(w.save(path.c_str(), err) == DUET_OK, err.text);
    {
        duet::file_map f;  // one that is mapped: deleted, or refused by Windows; its bytes stay either way
        REQUIRE_MESSAGE(f.open(path.c_str(), err, false) == DUET_OK, err.text);
        if (duet::os_remove(path.c_str()) != 0) CHECK(errno == EACCES);
        CHECK(memcmp(f.data(), "GGUF", 4) == 0);
    }
}

TEST_CASE("a file above 4 GB is mapped and read whole") {
    const temp_folder t;
    const std::string path = t.write("large", "x");
    const uint64_t at = (4ull << 30) + 12345;
    std::error_code failed;
    fs::resize_file(path, at, failed);  // without its blocks: takes no room
    if (failed) return say_skipped("files above 4 GB", 1, failed.message());
    FILE* end = fopen(path.c_str(), "ab");
    REQUIRE(end != nullptr);
    CHECK(fwrite("marker", 1, 6, end) == 6);
    CHECK(fclose(end) == 0);
    duet::file_map f;
    duet::error_text err;
    REQUIRE_MESSAGE(f.open(path.c_str(), err, false) == DUET_OK, err.text);
    CHECK(f.size() == at + 6);
    CHECK(memcmp(f.data() + at, "marker", 6) == 0);
    CHECK(f.data()[at - 1] == 0);
    f.will_need(f.data() + at, 6);
    CHECK(f.check_size(path.c_str(), err) == DUET_OK);
    duet::os_file file;
    char bytes[16] = {};
    REQUIRE(duet::os_open(path.c_str(), &file));
    CHECK(duet::os_read_at(file.handle, at, bytes, sizeof bytes) == 6);
    CHECK(duet::os_read_at(file.handle, at + 6, bytes, sizeof bytes) == 0);
    CHECK(memcmp(bytes, "marker", 6) == 0);
    duet::os_close(file.handle);
}

// The flags of the mapping that holds `at`, as Linux tells them ("rd wr mr mw me ac hg "), or nothing.
std::string flags_of_mapping(const void* at) {
    std::ifstream maps("/proc/self/smaps");
    std::string line;
    for (bool is_here = false; std::getline(maps, line);) {
        uintptr_t first = 0, end = 0;
        char dash = 0;
        if (std::istringstream(line) >> std::hex >> first >> dash >> end && dash == '-')
            is_here = first <= (uintptr_t)at && (uintptr_t)at < end;
        else if (is_here && line.starts_with("VmFlags:")) return line.substr(8) + " ";
    }
    return "";
}

TEST_CASE("a file that is copied asks for large pages") {
    const temp_folder t;
    const std::string path = t.write("large", "x");
    std::error_code failed;
    fs::resize_file(path, 40u << 20, failed);  // without its blocks
    if (failed) return say_skipped("a file of 40 MB", 1, failed.message());
    duet::file_map f;
    duet::error_text err;
    REQUIRE_MESSAGE(f.open(path.c_str(), err, true) == DUET_OK, err.text);
    CHECK(f.data()[0] == 'x');
    const std::string flags = flags_of_mapping(f.data() + (8u << 20));
    if (flags.empty() || !std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled").good())
        return say_skipped("large pages", 1, "the system does not tell of any");
    CHECK_MESSAGE(flags.find(" hg ") != std::string::npos, flags);
}

TEST_CASE("gguf: split files") {
    temp_folder t;
    auto write_all = [&](int n_parts) {
        for (int i = 0; i < n_parts; i++) t.write(part_name(i + 1, n_parts), part_of(i, n_parts).bytes());
    };
    write_all(3);
    const std::string first = t.file(part_name(1, 3));
    duet::error_text err;
    {
        duet::gguf_file f;
        REQUIRE_MESSAGE(f.open(first.c_str(), err) == DUET_OK, err.text);
        CHECK(f.n_parts == 3);
        REQUIRE(f.tensors.size() == 3);
        for (int i = 0; i < 3; i++) CHECK(f.tensors[(size_t)i].i_file == i);
        CHECK(f.find_tensor("t2")->i_file == 2);
        f.will_need(f.tensors[2]);
        duet::gguf_writer w;
        CHECK(w.copy_kv(f, err) == DUET_OK);  // without the split keys: what is written is one file
        CHECK(saved(w).find("split.") == std::string::npos);
    }

    // clang-format off
    struct { int i_part; const char* key; std::string value; const char* want; } const wrong[] = {
        {1, "split.no", raw_u32(2), "split.no"}, {1, "split.no", raw_u32(0), "split.no"}, {2, "split.count", raw_u32(4), "split.count"},
        {2, "split.count", raw_u32(1), "split."}, {1, "split.tensors.count", raw_i32(4), "split.tensors.count"},
        {0, "split.tensors.count", raw_i32(4), "split.tensors.count"}, {0, "split.count", raw_u32(2), "split.count"},
        {0, "split.count", raw_u32(4), "split.count"}, {0, "split.count", raw_u32(1u << 31), "split.count"}, {0, "split.no", raw_u32(1), "split.no"},
        {0, "split.no", raw_u32(3), "split.no"}, {1, "general.name", raw_text("another"), "another model"}, {2, "general.architecture", raw_text("qwen2"), "another model"},
        {1, "llama.block_count", raw_u32(3), "llama.block_count"}, {1, "general.name", raw_u32(3), "general.name"}};
    // clang-format on
    for (const auto& c : wrong) {
        write_all(3);
        t.write(part_name(c.i_part + 1, 3), part_of(c.i_part, 3).set(c.key, c.value).bytes());
        CAPTURE(c.key);
        CHECK(open_error(first, DUET_ERR_FORMAT).find(c.want) != std::string::npos);
    }
    write_all(3);
    t.write(part_name(3, 3), part_of(1, 3).bytes());  // the same part twice
    CHECK(open_error(first, DUET_ERR_FORMAT).find("split.no: want 2, got 1") != std::string::npos);
    t.write(part_name(3, 3), part_of(1, 3).set("split.no", raw_u32(2)).bytes());
    CHECK(open_error(first, DUET_ERR_FORMAT).find("tensor t1") != std::string::npos);
    t.write(part_name(3, 3), part_of(2, 3).erase("split.no").bytes());
    CHECK(open_error(first, DUET_ERR_FORMAT).find("split.no: want 2, got no such key") != std::string::npos);
    t.write(part_name(3, 3),
            part_of(2, 3).set("some.other", raw_u32(1)).bytes());  // a key of its own is no contradiction
    CHECK(duet::gguf_file().open(first.c_str(), err) == DUET_OK);
    t.write(part_name(3, 3), part_of(2, 3).bytes().substr(0, 50));
    CHECK(open_error(first, DUET_ERR_FORMAT).find(part_name(3, 3)) != std::string::npos);
    fs::remove(t.file(part_name(3, 3)));
    CHECK(open_error(first, DUET_ERR_IO).find("part 3 of 3") != std::string::npos);
    CHECK(open_error(t.file(part_name(2, 3)), DUET_ERR_FORMAT).find(part_name(1, 3)) != std::string::npos);
    CHECK(open_error(t.write("model.gguf", part_of(0, 3).bytes()), DUET_ERR_FORMAT).find("split.count") !=
          std::string::npos);
    CHECK(open_error(t.write("-of-00003.gguf", part_of(0, 3).bytes()), DUET_ERR_FORMAT).find("split.count") !=
          std::string::npos);
    CHECK(
        open_error(t.write("model-0001x-of-00003.gguf", part_of(0, 3).bytes()), DUET_ERR_FORMAT).find("split.count") !=
        std::string::npos);
    const std::string bytes = part_of(0, 3).bytes();
    CHECK(duet::gguf_file().open_memory(bytes.data(), bytes.size(), err) == DUET_ERR_FORMAT);
    CHECK(err.text.find("open split files by path") != std::string::npos);
}

TEST_CASE("gguf: saving") {
    temp_folder t;
    duet::gguf_writer w;
    duet::error_text err;
    const std::string path = t.file("out.gguf");
    const float data[4] = {1, 2, 3, 4};
    const int64_t dims[] = {4};
    CHECK(w.add_tensor("t", 0, 1, dims, data, err) == DUET_OK);
    CHECK(w.save((t.file("nowhere") + "/out.gguf").c_str(), err) == DUET_ERR_IO);
    CHECK(err.text.find("nowhere/out.gguf: cannot be written") != std::string::npos);
    CHECK(w.save(t.path.string().c_str(), err) == DUET_ERR_IO);
    CHECK(w.save("", err) == DUET_ERR_ARG);
    CHECK(w.save(path.c_str(), err) == DUET_OK);
    CHECK(read_file(path) == saved(w));
    {  // Over the file that is mapped: the old bytes stay readable until it is closed. Windows refuses that.
        duet::gguf_file f;
        REQUIRE(f.open(path.c_str(), err) == DUET_OK);
        duet::gguf_writer again;
        CHECK(again.set_string("general.name", "new", err) == DUET_OK);
        CHECK(again.add_tensor("t", 0, 1, dims, f.tensors[0].data, err) == DUET_OK);
#ifdef _WIN32
        CHECK(again.save(path.c_str(), err) == DUET_ERR_IO);
        CHECK(err.text.find("out.gguf: cannot be renamed into place") != std::string::npos);
        CHECK(read_file(path) == saved(w));
#else
        CHECK(again.save(path.c_str(), err) == DUET_OK);
        CHECK(read_file(path) == saved(again));
#endif
        CHECK(std::memcmp(f.tensors[0].data, data, sizeof data) == 0);
    }
    CHECK(!fs::exists(path + ".part"));
    // Somebody's file of the temporary name is left alone.
    t.write("out.gguf.part", "mine");
    CHECK(w.save(path.c_str(), err) == DUET_OK);
    CHECK(read_file(path) == saved(w));
    CHECK(read_file(path + ".part") == "mine");
    CHECK(!fs::exists(path + ".part1"));
#ifndef _WIN32
    if (fs::exists("/dev/full")) {
        CHECK(w.save("/dev/full", err) == DUET_ERR_IO);
        CHECK(fs::exists("/dev/full"));
    }
#endif
}

// Makes the bytes of a tensor on the fly: each byte is the low byte of its offset divided by 8.
struct made_tensor {
    uint64_t next = 0, n_reads = 0, fail_at = UINT64_MAX;
    bool is_whole_blocks = true;
    static int32_t read(void* user, uint64_t offset, void* dst, uint64_t n_bytes) {
        made_tensor& made = *(made_tensor*)user;
        made.is_whole_blocks &= (offset == 0 || offset == made.next) && n_bytes > 0 && n_bytes % 34 == 0;
        for (uint64_t i = 0; i < n_bytes; i++) ((uint8_t*)dst)[i] = (uint8_t)((offset + i) >> 3);
        made.next = offset + n_bytes;
        made.n_reads++;
        return made.next > made.fail_at ? 7 : 0;
    }
};

TEST_CASE("gguf: tensors made while the file is written") {
    temp_folder t;
    const int64_t dims[] = {32, 1 << 20};  // Q8_0, 34 MiB: three pieces
    made_tensor made;
    duet_writer* w = nullptr;
    REQUIRE(duet_writer_create(&w) == DUET_OK);
    CHECK(duet_writer_add_tensor_from(w, "made", 8, 2, dims, nullptr, &made) == DUET_ERR_ARG);
    CHECK(duet_writer_add_tensor_from(w, nullptr, 8, 2, dims, made_tensor::read, &made) == DUET_ERR_ARG);
    CHECK(duet_writer_add_tensor_from(w, "made", 8, 2, dims, made_tensor::read, &made) == DUET_OK);
    CHECK(duet_writer_add_tensor(w, "made", 8, 2, dims, dims) == DUET_ERR_ARG);
    const std::string path = t.file("made.gguf");
    CHECK(duet_writer_save(w, path.c_str()) == DUET_OK);
    CHECK(made.is_whole_blocks);
    CHECK(made.n_reads == 3);
    duet_file* f = nullptr;
    REQUIRE(duet_file_open(path.c_str(), &f) == DUET_OK);
    duet_tensor tensor;
    REQUIRE(duet_file_tensor(f, 0, &tensor) == DUET_OK);
    REQUIRE(tensor.n_bytes == 34u << 20);
    uint64_t n_wrong = 0;
    for (uint64_t i = 0; i < tensor.n_bytes; i++) n_wrong += ((const uint8_t*)tensor.data)[i] != (uint8_t)(i >> 3);
    CHECK(n_wrong == 0);
    duet_file_free(f);
    std::string bytes;
    CHECK(duet_writer_save_to(w, append_bytes, &bytes) == DUET_OK);
    CHECK((bytes == read_file(path)));
    // A read that fails leaves the old file and nothing else.
    made.fail_at = 20u << 20;
    CHECK(duet_writer_save(w, path.c_str()) == DUET_ERR_IO);
    CHECK(std::string(duet_writer_error(w)).find("tensor made: reading its data failed with 7") != std::string::npos);
    CHECK(!fs::exists(path + ".part"));
    CHECK((bytes == read_file(path)));
    duet_writer_free(w);
}

TEST_CASE("gguf: runtime.h reads a file") {
    temp_folder t;
    const std::string path = t.write("tiny.gguf", tiny_file().bytes());
    duet_file* f = nullptr;
    REQUIRE(duet_file_open(path.c_str(), &f) == DUET_OK);
    CHECK(duet_file_open(path.c_str(), nullptr) == DUET_ERR_ARG);
    CHECK(duet_file_version(f) == 3);
    CHECK(duet_file_n_kv(f) == 16);
    CHECK(duet_file_n_tensors(f) == 3);
    CHECK(duet_file_n_parts(f) == 1);
    duet_kv kv;
    duet_tensor tensor;
    duet_string s;
    int64_t i = 0;
    double d = 0;
    const int64_t texts = duet_file_find_kv(f, "a.texts"), ints = duet_file_find_kv(f, "a.ints"),
                  f64 = duet_file_find_kv(f, "a.f64");
    CHECK(duet_file_kv(f, texts, &kv) == DUET_OK);
    CHECK(kv.type == DUET_KV_ARRAY);
    CHECK(kv.array_type == DUET_KV_STRING);
    CHECK(kv.n_values == 3);
    CHECK(duet_file_get_string(f, texts, 2, &s) == DUET_OK);
    CHECK(std::string(s.data, s.n_bytes) == "yz");
    CHECK(duet_file_get_string(f, texts, 3, &s) == DUET_ERR_ARG);
    CHECK(duet_file_get_string(f, ints, 0, &s) == DUET_ERR_FORMAT);
    CHECK(duet_file_get_int(f, ints, 1, &i) == DUET_OK);
    CHECK(i == -2);
    CHECK(duet_file_get_int(f, texts, 1, &i) == DUET_ERR_FORMAT);
    CHECK(std::string(duet_file_error(f)).ends_with("want an integer up to 2^63 - 1, got an array of 3 string"));
    CHECK(duet_file_get_float(f, f64, 0, &d) == DUET_OK);
    CHECK(d == 0.25);
    CHECK(duet_file_get_float(f, ints, 0, &d) == DUET_ERR_FORMAT);
    for (const int64_t bad : {(int64_t)-1, (int64_t)16, INT64_MAX, INT64_MIN}) {
        CHECK(duet_file_kv(f, bad, &kv) == DUET_ERR_ARG);
        CHECK(duet_file_tensor(f, bad, &tensor) == DUET_ERR_ARG);
        CHECK(duet_file_get_int(f, bad, 0, &i) == DUET_ERR_ARG);
    }
    CHECK(duet_file_find_kv(f, "absent") == -1);
    CHECK(duet_file_find_tensor(f, nullptr) == -1);
    CHECK(duet_file_tensor(f, duet_file_find_tensor(f, "three"), &tensor) == DUET_OK);
    CHECK(tensor.n_dims == 4);
    CHECK(tensor.dims[0] * tensor.dims[1] * tensor.dims[2] * tensor.dims[3] == 48);
    duet_file_free(f);
}

TEST_CASE("gguf: runtime.h writes a file") {
    temp_folder t;
    const std::string path = t.write("tiny.gguf", tiny_file().bytes());
    duet_file* f = nullptr;
    REQUIRE(duet_file_open(path.c_str(), &f) == DUET_OK);
    duet_tensor tensor;
    REQUIRE(duet_file_tensor(f, duet_file_find_tensor(f, "three"), &tensor) == DUET_OK);
    duet_writer* w = nullptr;
    REQUIRE(duet_writer_create(&w) == DUET_OK);
    CHECK(duet_writer_set_int(w, "a.u32", DUET_KV_U32, 8) == DUET_OK);
    CHECK(duet_writer_copy_kv(w, f) == DUET_OK);  // keeps the 8
    CHECK(duet_writer_set_int(w, nullptr, DUET_KV_U32, 8) == DUET_ERR_ARG);
    CHECK(std::string(duet_writer_error(w)).find("NULL") != std::string::npos);
    CHECK(duet_writer_copy_kv(w, nullptr) == DUET_ERR_ARG);
    CHECK(duet_writer_set_int(nullptr, "a", DUET_KV_U32, 8) == DUET_ERR_ARG);
    CHECK(duet_writer_add_tensor(w, "three", tensor.type_id, tensor.n_dims, tensor.dims, tensor.data) == DUET_OK);
    const duet_string strings[] = {{"a", 1}, {nullptr, 0}};
    const float floats[] = {1, 2};
    CHECK(duet_writer_set_strings(w, "b.texts", strings, 2) == DUET_OK);
    CHECK(duet_writer_set_strings(w, "b.texts", nullptr, 2) == DUET_ERR_ARG);
    CHECK(duet_writer_set_string(w, "b.text", "abc", 2) == DUET_OK);
    CHECK(duet_writer_set_string(w, "b.text", nullptr, 2) == DUET_ERR_ARG);
    CHECK(duet_writer_set_array(w, "b.floats", DUET_KV_F32, floats, 2) == DUET_OK);
    CHECK(duet_writer_set_array(w, "b.floats", DUET_KV_F32, nullptr, 2) == DUET_ERR_ARG);
    CHECK(duet_writer_set_float(w, "b.f32", DUET_KV_F32, 1.5) == DUET_OK);
    std::string bytes;
    CHECK(duet_writer_save_to(w, append_bytes, &bytes) == DUET_OK);
    CHECK(duet_writer_size(w) == bytes.size());
    CHECK(duet_writer_save(w, t.file("copy.gguf").c_str()) == DUET_OK);
    duet_writer_free(w);
    duet_file* copy = nullptr;
    duet_string s;
    int64_t i = 0;
    double d = 0;
    REQUIRE(duet_file_open(t.file("copy.gguf").c_str(), &copy) == DUET_OK);
    CHECK(duet_file_n_kv(copy) == 20);
    CHECK(duet_file_get_string(copy, duet_file_find_kv(copy, "b.text"), 0, &s) == DUET_OK);
    CHECK(std::string(s.data, s.n_bytes) == "ab");
    CHECK(duet_file_get_string(copy, duet_file_find_kv(copy, "b.texts"), 1, &s) == DUET_OK);
    CHECK(s.n_bytes == 0);
    CHECK(duet_file_get_float(copy, duet_file_find_kv(copy, "b.floats"), 1, &d) == DUET_OK);
    CHECK(d == 2);
    CHECK(duet_file_get_int(copy, duet_file_find_kv(copy, "a.u32"), 0, &i) == DUET_OK);
    CHECK(i == 8);
    duet_file_free(copy);
    duet_file_free(f);
}

TEST_CASE("gguf: runtime.h without a file") {
    temp_folder t;
    duet_file* f = nullptr;
    REQUIRE(duet_file_open(t.file("absent").c_str(), &f) == DUET_ERR_IO);
    REQUIRE(f != nullptr);
    CHECK(std::string(duet_file_error(f)).find("absent") != std::string::npos);
    CHECK(duet_file_n_kv(f) == 0);
    CHECK(duet_file_find_kv(f, "a") == -1);
    duet_file_free(f);
    duet_file_free(nullptr);
    duet_writer_free(nullptr);
    CHECK(duet_file_open(nullptr, &f) == DUET_ERR_ARG);
    duet_file_free(f);
    CHECK(duet_file_n_tensors(nullptr) == 0);
    CHECK(std::string(duet_status_name(DUET_ERR_FORMAT)) == "DUET_ERR_FORMAT");
    CHECK(std::string(duet_status_name(1)) == "unknown status");
}

TEST_CASE("gguf: real files open, and a copy of each is the same file") {
    const std::string folder = test_data_path("");
    int n_files = 0;
    if (!fs::exists(folder)) return say_skipped("gguf: real files", 1, folder + " is not there");
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
        if (entry.path().extension() != ".gguf") continue;
        duet::gguf_file f, again;
        duet::error_text err;
        duet::gguf_writer w;
        CAPTURE(entry.path().string());
        REQUIRE_MESSAGE(f.open(entry.path().string().c_str(), err) == DUET_OK, err.text);
        CHECK(w.copy_kv(f, err) == DUET_OK);
        for (const auto& t : f.tensors) CHECK(w.add_tensor(t.name, t.type, t.n_dims, t.dims, t.data, err) == DUET_OK);
        const std::string bytes = saved(w);
        REQUIRE(again.open_memory(bytes.data(), bytes.size(), err) == DUET_OK);
        CHECK(again.kvs.size() == f.kvs.size());
        REQUIRE(again.tensors.size() == f.tensors.size());
        for (size_t i = 0; i < f.tensors.size(); i++)
            CHECK(std::memcmp(again.tensors[i].data, f.tensors[i].data, (size_t)f.tensors[i].n_bytes) == 0);
        n_files++;
    }
    CHECK(n_files > 0);
}

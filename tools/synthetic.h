// tools/synthetic.h: makes models of well-known shapes with random weights in memory. Speed depends on shape and
// format, not on values, so these models stand in for files of many gigabytes.
// Owns: the table of shapes. Must not know: how a model is run.
#pragma once
#include "common.h"

struct synthetic_shape {
    const char* name;
    int32_t dim, n_layers, n_heads, n_kv_heads, head_dim, hidden_dim, n_vocab;
    bool is_tied;  // the embedding table is also the output matrix
    float rope_base;
};

// Sizes of the published models' config files.
// clang-format off
constexpr synthetic_shape kSyntheticShapes[] = {
    {"tiny", 256, 2, 4, 2, 64, 512, 512, false, 1e4f},             // for tests of the tools
    {"1b", 2048, 22, 32, 4, 64, 5632, 32000, false, 1e4f},         // TinyLlama-1.1B
    {"3b", 3072, 28, 24, 8, 128, 8192, 128256, true, 5e5f},        // Llama-3.2-3B
    {"8b", 4096, 32, 32, 8, 128, 14336, 128256, false, 5e5f},      // Llama-3.1-8B
    {"14b", 5120, 48, 40, 8, 128, 13824, 152064, false, 1e6f},     // Qwen2.5-14B without biases
    {"32b", 5120, 64, 40, 8, 128, 27648, 152064, false, 1e6f},     // Qwen2.5-32B without biases
    {"70b", 8192, 80, 64, 8, 128, 28672, 128256, false, 5e5f},     // Llama-3.1-70B
};
// clang-format on

// One format's random blocks, long enough for its largest tensor; all tensors of the format share them.
struct synthetic_blocks {
    const duet_type_info* type = nullptr;
    std::vector<uint8_t> bytes;

    uint64_t bytes_of(int64_t n_elems) const {
        return (uint64_t)(n_elems / type->elems_per_block) * (uint64_t)type->bytes_per_block;
    }
    // Encodes 256 K values of a bell curve (twelve uniform numbers added) of deviation 0.02 and repeats the blocks.
    duet_status make(int64_t n_elems) {
        constexpr int64_t kSample = 1 << 18;
        std::vector<float> values(kSample);
        uint64_t state = 1;
        for (float& value : values) {
            int64_t sum = 0;
            for (int i = 0; i < 12; i++) sum += (state = state * 6364136223846793005u + 1442695040888963407u) >> 40;
            value = 0.02f * ((float)sum / (1 << 24) - 6);
        }
        const uint64_t n_sample_bytes = bytes_of(kSample), n_bytes = bytes_of(n_elems);
        bytes.resize(std::max(n_sample_bytes, n_bytes));
        if (const duet_status status = duet_quantize_row(type->id, values.data(), kSample, nullptr, bytes.data()))
            return status;
        for (uint64_t at = n_sample_bytes; at < n_bytes; at += n_sample_bytes)
            std::memcpy(&bytes[at], bytes.data(), std::min(n_sample_bytes, n_bytes - at));
        return DUET_OK;
    }
};

// The bytes of a GGUF file in memory. It owns the pages.
struct synthetic_model {
    synthetic_shape shape = {};
    synthetic_blocks blocks, output_blocks;  // output_blocks: for the output matrix, usually in more bits
    std::vector<float> ones;
    writer_ptr writer;
    uint8_t* file = nullptr;
    uint64_t n_file_bytes = 0, n_written = 0;

    ~synthetic_model() {
        if (file) os::free_pages(file, n_file_bytes);
    }

    // spec: "8b:q4_0" or "8b:q4_0:q8_0" (shape, format, format of the output matrix). Without a third part, the output
    // matrix is Q6_K if that is finer than the format.
    duet_status parse(const std::string& spec, tool_error* error) {
        const std::vector<std::string_view> parts = parts_of(spec, ":");
        std::string known;
        for (const synthetic_shape& row : kSyntheticShapes) {
            if (parts[0] == row.name) shape = row;
            known += std::string(known.empty() ? "" : ", ") + row.name;
        }
        if (!shape.name)
            return error->set(DUET_ERR_ARG,
                              "--synthetic: want SHAPE:FORMAT with a shape of " + known + ", got '" + spec + "'");
        const bool has_output = parts.size() > 2;
        blocks.type = duet_type_by_name(parts.size() > 1 ? std::string(parts[1]).c_str() : "q4_0");
        output_blocks.type = duet_type_by_name(has_output ? parts[2].data() : "Q6_K");  // to the end of spec
        for (const duet_type_info* t : {blocks.type, output_blocks.type})
            if (!t || !t->can_compute || !t->can_quantize || shape.dim % t->elems_per_block ||
                shape.hidden_dim % t->elems_per_block)
                return error->set(DUET_ERR_ARG,
                                  "--synthetic: '" + spec + "': no code for this number format, or not for this shape");
        auto bits = [](const duet_type_info* t) { return (double)t->bytes_per_block / t->elems_per_block; };
        if (!has_output && bits(blocks.type) >= bits(output_blocks.type)) output_blocks.type = blocks.type;
        return DUET_OK;
    }

    // Fills the writer with keys, vocabulary and tensors.
    duet_status build(tool_error* error) {
        duet_writer* created = nullptr;
        if (const duet_status status = duet_writer_create(&created)) return error->set(status, "");
        writer.reset(created);
        const int64_t largest =
            (int64_t)shape.dim * std::max({shape.hidden_dim, shape.n_vocab, shape.n_heads * shape.head_dim});
        ones.assign((size_t)shape.dim, 1.0f);
        duet_status status = blocks.make(largest);
        if (status == DUET_OK) status = output_blocks.make((int64_t)shape.dim * shape.n_vocab);
        if (status != DUET_OK) return error->set(status, "");
        status = add_keys();
        if (!status) status = add_vocabulary();
        if (!status) status = add_tensors();
        return status ? error->set(status, duet_writer_error(writer.get())) : DUET_OK;
    }

    duet_status write_to_memory(tool_error* error) {
        n_file_bytes = duet_writer_size(writer.get());
        uint64_t free = 0;  // of the first device, the processor
        const duet_device_fn each = [](void* user, const duet_device_info* d) {
            if (!std::strcmp(d->id, "cpu")) *(uint64_t*)user = d->free_bytes;
        };
        if (const duet_status status = duet_list_devices(each, &free)) return error->set(status, "");
        char text[160];
        std::snprintf(text, sizeof text, "--synthetic: %.1f GB are needed for the model, %.1f GB are free",
                      n_file_bytes / 1e9, free / 1e9);
        if (free && n_file_bytes > free) return error->set(DUET_ERR_MEMORY, text);
        file = (uint8_t*)os::allocate_pages(n_file_bytes);
        if (!file) return error->set(DUET_ERR_MEMORY, text);
        auto append = [](void* user, const void* data, uint64_t n_bytes) -> int32_t {
            synthetic_model* self = (synthetic_model*)user;
            if (n_bytes > self->n_file_bytes - self->n_written) return 1;
            std::memcpy(self->file + self->n_written, data, n_bytes);
            self->n_written += n_bytes;
            return 0;
        };
        if (const duet_status status = duet_writer_save_to(writer.get(), append, this))
            return error->set(status, duet_writer_error(writer.get()));
        writer.reset();
        blocks.bytes = output_blocks.bytes = {};
        return DUET_OK;
    }

  private:
    duet_status add_keys() {
        duet_writer* w = writer.get();
        const std::string name = std::string("synthetic ") + shape.name;
        // clang-format off
        const struct { const char* key; int64_t value; } kInts[] = {
            {"general.quantization_version", 2},          {"llama.block_count", shape.n_layers},
            {"llama.context_length", 131072},             {"llama.embedding_length", shape.dim},
            {"llama.feed_forward_length", shape.hidden_dim}, {"llama.attention.head_count", shape.n_heads},
            {"llama.attention.head_count_kv", shape.n_kv_heads}, {"llama.rope.dimension_count", shape.head_dim},
            {"llama.vocab_size", shape.n_vocab},          {"tokenizer.ggml.bos_token_id", 1},
            {"tokenizer.ggml.eos_token_id", 2},           {"tokenizer.ggml.unknown_token_id", 0},
        };
        // clang-format on
        duet_status status = duet_writer_set_string(w, "general.architecture", "llama", 5);
        if (!status) status = duet_writer_set_string(w, "general.name", name.data(), name.size());
        for (const auto& row : kInts)
            if (!status) status = duet_writer_set_int(w, row.key, DUET_KV_U32, row.value);
        if (!status) status = duet_writer_set_float(w, "llama.attention.layer_norm_rms_epsilon", DUET_KV_F32, 1e-5);
        if (!status) status = duet_writer_set_float(w, "llama.rope.freq_base", DUET_KV_F32, shape.rope_base);
        return status;
    }

    // An SPM vocabulary: three control tokens, 256 bytes, and words that never occur in a text.
    duet_status add_vocabulary() {
        enum { kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6 };
        const size_t n = (size_t)shape.n_vocab;
        std::vector<std::string> words = {"<unk>", "<s>", "</s>"};
        std::vector<int32_t> types = {kUnknown, kControl, kControl};
        std::vector<float> scores(n, 0.0f);
        char byte_name[8];
        for (int i = 0; i < 256; i++) {
            std::snprintf(byte_name, sizeof byte_name, "<0x%02X>", i);
            words.push_back(byte_name);
            types.push_back(kByte);
        }
        for (size_t i = words.size(); i < n; i++) {
            words.push_back("t" + std::to_string(i));
            types.push_back(kNormal);
            scores[i] = -(float)i;
        }
        std::vector<duet_string> strings;
        for (const std::string& word : words) strings.push_back({word.data(), word.size()});
        duet_writer* w = writer.get();
        duet_status status = duet_writer_set_string(w, "tokenizer.ggml.model", "llama", 5);
        if (!status) status = duet_writer_set_strings(w, "tokenizer.ggml.tokens", strings.data(), n);
        if (!status) status = duet_writer_set_array(w, "tokenizer.ggml.scores", DUET_KV_F32, scores.data(), n);
        if (!status) status = duet_writer_set_array(w, "tokenizer.ggml.token_type", DUET_KV_I32, types.data(), n);
        return status;
    }

    duet_status add_matrix(const std::string& name, int64_t n_cols, int64_t n_rows, const synthetic_blocks& from) {
        const int64_t dims[2] = {n_cols, n_rows};
        return duet_writer_add_tensor(writer.get(), name.c_str(), from.type->id, 2, dims, from.bytes.data());
    }
    duet_status add_norm(const std::string& name) {
        const int64_t n = shape.dim;
        return duet_writer_add_tensor(writer.get(), name.c_str(), duet_type_by_name("F32")->id, 1, &n, ones.data());
    }
    duet_status add_tensors() {
        const int64_t dim = shape.dim, q_dim = shape.n_heads * shape.head_dim,
                      kv_dim = shape.n_kv_heads * shape.head_dim;
        duet_status status =
            add_matrix("token_embd.weight", dim, shape.n_vocab, shape.is_tied ? output_blocks : blocks);
        for (int32_t i = 0; i < shape.n_layers && !status; i++) {
            const std::string layer = "blk." + std::to_string(i) + ".";
            // clang-format off
            const struct { const char* name; int64_t n_cols, n_rows; } kMatrices[] = {
                {"attn_q.weight", dim, q_dim},
                {"attn_k.weight", dim, kv_dim},
                {"attn_v.weight", dim, kv_dim},
                {"attn_output.weight", q_dim, dim},
                {"ffn_gate.weight", dim, shape.hidden_dim},
                {"ffn_up.weight", dim, shape.hidden_dim},
                {"ffn_down.weight", shape.hidden_dim, dim},
            };
            // clang-format on
            for (const auto& row : kMatrices)
                if (!status) status = add_matrix(layer + row.name, row.n_cols, row.n_rows, blocks);
            if (!status) status = add_norm(layer + "attn_norm.weight");
            if (!status) status = add_norm(layer + "ffn_norm.weight");
        }
        if (!status) status = add_norm("output_norm.weight");
        if (!status && !shape.is_tied) status = add_matrix("output.weight", dim, shape.n_vocab, output_blocks);
        return status;
    }
};

/* runtime.h: the whole public interface of Duet, and its only API document. C99 and C++.
 *
 * Main path: tools/run.cpp -> [runtime.h] -> runtime.cpp -> models/<family>.cpp -> models/ops.h -> cpu/ops.cpp
 *
 * Errors     Every function that can fail returns duet_status: DUET_OK (0) or a negative code. The text of the last
 * error of a handle is read with duet_<object>_error(handle): it names what was wanted, what was found, and where. A
 * failed call leaves its object as it was unless its comment says otherwise. The library never prints, exits, aborts or
 * throws. duet_x_open/create always stores a handle in *out when memory for one is left (also when it fails: read the
 * error from it, then free it); it stores NULL only with DUET_ERR_MEMORY. Ownership  Handles are opaque.
 * duet_x_open/create pairs with duet_x_free, which accepts NULL. Arrays and strings passed in are read during the call
 * only. Pointers returned stay valid until the next call on the same object, unless stated. Threads    A duet_model is
 * read-only after it is opened and may be shared by any number of sessions on any threads; the strings it returns live
 * as long as it does. A session, a sampler, a writer belong to one thread at a time. duet_session_cancel may come from
 * any thread. There is no global state. Structs    of parameters begin with struct_size and are made by
 * duet_x_params_default(), so that fields can be added later.      */
/* clang-format off: this file is laid out by hand, it is a document */
#ifndef DUET_RUNTIME_H
#define DUET_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32) && defined(DUET_SHARED)
#ifdef DUET_BUILD
#define DUET_API __declspec(dllexport)
#else
#define DUET_API __declspec(dllimport)
#endif
#elif defined(__GNUC__)
#define DUET_API __attribute__((visibility("default")))
#else
#define DUET_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define DUET_VERSION_MAJOR 0
#define DUET_VERSION_MINOR 1
#define DUET_VERSION_PATCH 0

/* ---- status ------------------------------------------------------------------------------------------------------ */

typedef int32_t duet_status;
enum {
    DUET_OK = 0,
    DUET_ERR_ARG = -1,         /* an argument is NULL, out of range, or contradicts another         */
    DUET_ERR_IO = -2,          /* a file cannot be opened, read, mapped or written          */
    DUET_ERR_FORMAT = -3,      /* a file breaks a rule of its format, or contradicts itself      */
    DUET_ERR_UNSUPPORTED = -4, /* well-formed, but of an architecture, format or feature this build has no code for */
    DUET_ERR_MEMORY = -5,      /* an allocation failed      */
    DUET_ERR_FULL = -6,        /* the context has too little room left        */
    DUET_ERR_DEVICE = -7,      /* a device is missing, failed, or was lost      */
    DUET_ERR_CANCELLED = -8,   /* duet_session_cancel, or a callback, asked to stop   */
    DUET_ERR_NAN = -9,         /* the logits hold no number to choose by         */
    DUET_ERR_STATE =
        -10 /* the operation is not possible in this state (recurrent state cannot be trimmed, no logits kept)  */
};

/* Returns the name of a code, "DUET_ERR_IO"; "unknown status" for others. Never NULL. Any thread. */
DUET_API const char* duet_status_name(duet_status status);

/* Returns "0.1.0". Any thread. */
DUET_API const char* duet_version(void);

/* Returns what was built in, one line: compiler, CPU instruction sets, GPU targets. Any thread. */
DUET_API const char* duet_build_info(void);

/* Version of the numeric contract (docs/numerics.md): the same model, tokens and settings give the same logits bit for
 * bit on every machine and executor as long as this number is the same, but in mode fast (duet_model_params.fast). */
DUET_API int32_t duet_numerics_version(void);

/* ---- log and progress -------------------------------------------------------------------------------------------- */

enum { DUET_LOG_INFO = 0, DUET_LOG_WARN = 1 };

/* text is one line without its newline, valid during the call. Called on the thread that called the library. */
typedef void (*duet_log_fn)(void* user, int32_t level, const char* text);

/* share 0..1 of the work done. Return 0 to go on, anything else to cancel (the call returns DUET_ERR_CANCELLED). */
typedef int32_t (*duet_progress_fn)(void* user, float share);

/* Reads n_bytes at offset into dst. Returns 0, or anything else for a failed read (the call returns DUET_ERR_IO). */
typedef int32_t (*duet_read_fn)(void* user, uint64_t offset, void* dst, uint64_t n_bytes);

/* ---- number formats ---------------------------------------------------------------------------------------------- */

/* A row of the table of GGUF tensor types. Ids are those of the file format (0 = F32, 1 = F16, 2 = Q4_0, ...). */
typedef struct duet_type_info {
    int32_t id;
    const char* name; /* "Q4_K" */
    int32_t elems_per_block;
    int32_t bytes_per_block;
    int32_t can_compute;  /* 1: this build multiplies by it  */
    int32_t can_quantize; /* 1: duet_quantize_row makes it */
} duet_type_info;

/* Row i_row of the table, 0 <= i_row < duet_type_count(). Returns NULL out of range. Valid for ever. Any thread. */
DUET_API const duet_type_info* duet_type_row(int32_t i_row);
DUET_API int32_t duet_type_count(void);

/* The row with that name (upper or lower case) or file id. Returns NULL when there is none. Any thread. */
DUET_API const duet_type_info* duet_type_by_name(const char* name);
DUET_API const duet_type_info* duet_type_by_id(int32_t id);

/* Writes n_elems values as blocks of the type.
 * n_elems     a multiple of elems_per_block
 * importance  NULL, or n_elems weights of the squared error, >= 0 (from an importance matrix)
 * src         any values: in blocks of a quantized type a NaN counts as 0 and what is beyond the format becomes its
 * largest; F16, BF16 and F32 keep NaN and infinities dst         n_elems / elems_per_block * bytes_per_block bytes
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_UNSUPPORTED: no encoder for the type. Any thread. */
DUET_API duet_status duet_quantize_row(int32_t type_id, const float* src, int64_t n_elems, const float* importance,
                                       void* dst);

/* The values of n_elems elements of blocks, exactly as the model computes with them.
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_UNSUPPORTED: no decoder for the type. Any thread. */
DUET_API duet_status duet_dequantize_row(int32_t type_id, const void* src, int64_t n_elems, float* dst);

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* A GGUF file (v2, v3, single or split): metadata and tensors, mapped read-only, every rule of the format checked when
 * opened. */
typedef struct duet_file duet_file;

enum {
    DUET_KV_U8 = 0,
    DUET_KV_I8,
    DUET_KV_U16,
    DUET_KV_I16,
    DUET_KV_U32,
    DUET_KV_I32,
    DUET_KV_F32,
    DUET_KV_BOOL,
    DUET_KV_STRING,
    DUET_KV_ARRAY,
    DUET_KV_U64,
    DUET_KV_I64,
    DUET_KV_F64
};

/* A string of a file: not terminated, may hold any byte. Valid as long as the file is open. */
typedef struct duet_string {
    const char* data;
    uint64_t n_bytes;
} duet_string;

typedef struct duet_kv {
    duet_string key;
    int32_t type; /* DUET_KV_...                                                                                     */
    int32_t array_type; /* element type of an array, else -1 */
    uint64_t n_values;  /* 1, or the length of an array  */
    uint64_t offset;    /* byte offset of the value in its file    */
} duet_kv;

typedef struct duet_tensor {
    duet_string name;
    int32_t type_id;
    int32_t n_dims;   /* 1..4   */
    int64_t dims[4];  /* fastest first; dims past n_dims are 1  */
    const void* data; /* mapped; NULL when only metadata was asked for */
    uint64_t n_bytes;
    uint64_t offset; /* byte offset in its file */
    int32_t i_file;  /* which part of a split file  */
} duet_tensor;

/* Opens and checks a GGUF file; for split files the first part's path (-00001-of-0000N) opens all.
 * Returns     DUET_OK; DUET_ERR_IO; DUET_ERR_FORMAT (message: file, key or tensor, byte offset, rule); DUET_ERR_MEMORY
 */
DUET_API duet_status duet_file_open(const char* path, duet_file** out);
DUET_API void duet_file_free(duet_file* file);
DUET_API const char* duet_file_error(const duet_file* file);

DUET_API int32_t duet_file_version(const duet_file* file); /* 2 or 3 */
DUET_API int64_t duet_file_n_kv(const duet_file* file);
DUET_API int64_t duet_file_n_tensors(const duet_file* file);
DUET_API int32_t duet_file_n_parts(const duet_file* file); /* files of a split model, else 1 */

/* Entry i. Returns DUET_OK; DUET_ERR_ARG: out of range. */
DUET_API duet_status duet_file_kv(const duet_file* file, int64_t i, duet_kv* out);
DUET_API duet_status duet_file_tensor(const duet_file* file, int64_t i, duet_tensor* out);

/* Index of a key or tensor by name, -1 when there is none. Logarithmic time. */
DUET_API int64_t duet_file_find_kv(const duet_file* file, const char* key);
DUET_API int64_t duet_file_find_tensor(const duet_file* file, const char* name);

/* Value i_value of entry i_kv (0 for a scalar) in the wanted form. Integers convert when the value fits; bool reads as
 * 0 or 1. Returns     DUET_OK; DUET_ERR_ARG: out of range; DUET_ERR_FORMAT: another type, or does not fit */
DUET_API duet_status duet_file_get_int(const duet_file* file, int64_t i_kv, uint64_t i_value, int64_t* out);
DUET_API duet_status duet_file_get_float(const duet_file* file, int64_t i_kv, uint64_t i_value, double* out);
DUET_API duet_status duet_file_get_string(const duet_file* file, int64_t i_kv, uint64_t i_value, duet_string* out);

/* Writes a GGUF v3 file: add keys and tensors in any order, then save once.
 * duet_writer_copy_kv copies every key of a file for which no value was set before.
 * duet_writer_add_tensor keeps the pointer: data must stay valid until duet_writer_save returns. */
typedef struct duet_writer duet_writer;
DUET_API duet_status duet_writer_create(duet_writer** out);
DUET_API void duet_writer_free(duet_writer* writer);
DUET_API const char* duet_writer_error(const duet_writer* writer);
DUET_API duet_status duet_writer_set_int(duet_writer* writer, const char* key, int32_t kv_type, int64_t value);
DUET_API duet_status duet_writer_set_float(duet_writer* writer, const char* key, int32_t kv_type, double value);
DUET_API duet_status duet_writer_set_string(duet_writer* writer, const char* key, const char* data, uint64_t n_bytes);
DUET_API duet_status duet_writer_set_array(duet_writer* writer, const char* key, int32_t elem_type, const void* data,
                                           uint64_t n);
DUET_API duet_status duet_writer_set_strings(duet_writer* writer, const char* key, const duet_string* strings,
                                             uint64_t n);
DUET_API duet_status duet_writer_copy_kv(duet_writer* writer, const duet_file* from);
DUET_API duet_status duet_writer_add_tensor(duet_writer* writer, const char* name, int32_t type_id, int32_t n_dims,
                                            const int64_t* dims, const void* data);
DUET_API duet_status duet_writer_save(duet_writer* writer, const char* path);

/* The same bytes in order to a callback instead of a file (a block of memory, a pipe). write returns 0, or anything
 * else for a failed write (DUET_ERR_IO). duet_writer_size: bytes the file will have. */
typedef int32_t (*duet_write_fn)(void* user, const void* data, uint64_t n_bytes);
DUET_API duet_status duet_writer_save_to(duet_writer* writer, duet_write_fn write, void* user);
DUET_API uint64_t duet_writer_size(const duet_writer* writer);

/* ---- devices ----------------------------------------------------------------------------------------------------- */

/* A device, or a driver without one. Strings are valid during the call they are given to; never NULL. */
typedef struct duet_device_info {
    uint32_t struct_size;  /* set by the library: of the version that was built              */
    int32_t is_usable;     /* 1: can be named as duet_model_params.device                 */
    int32_t is_default;    /* 1: "auto" takes it                */
    int32_t is_integrated; /* 1: shares the processor's memory             */
    const char* id; /* "cpu", "cuda:0", "hip:1", "emu32"; "cuda", "hip": that driver has no device                    */
    const char* name;   /* "NVIDIA H200", or ""                  */
    const char* chip;   /* "sm_90", "gfx1100", "avx512", or ""                  */
    const char* driver; /* "CUDA 12.4", "8 cores", or ""                */
    const char* why;    /* why it is not usable or not the default, and what to do; or ""                   */
    uint64_t memory_bytes, free_bytes; /* 0: not known (the free memory of a GPU is known only to who uses it) */
} duet_device_info;

typedef void (*duet_device_fn)(void* user, const duet_device_info* device);

/* Tells each device in turn, the CPU first. Asks drivers for names and attributes; no device is opened.
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_MEMORY. Thread: any. Cost: a driver's first call may take a second */
DUET_API duet_status duet_list_devices(duet_device_fn each, void* user);

/* ---- models ------------------------------------------------------------------------------------------------------ */

typedef struct duet_model duet_model;

typedef struct duet_model_params {
    uint32_t struct_size;
    int32_t vocab_only; /* 1: open the tokenizer only; a file without tensors is accepted then, and only then */
    const char*
        device; /* NULL or "auto": a GPU where one can be used, else the CPU (log says why); "cpu", "cuda", "hip", */
                /* "cuda:1", ... as duet_list_devices tells: an error when it cannot be used                    */
    const char* cpu_isa; /* NULL or "auto", "scalar", "avx2", "avx512", "amx"; ARM: "neon", "dotprod", "i8mm" */
    int32_t n_threads;   /* 0: one per physical core   */
    duet_progress_fn
        progress; /* may be NULL. Called by duet_model_open; where weights go to a GPU by duet_session_create      */
    void* progress_user;
    duet_log_fn log; /* may be NULL: silence                                                                         */
    void* log_user;
    int32_t gpu_layers; /* layers on the GPU, from the last one; -1: as many as fit it, the others run on the CPU */
    int32_t cpu_expert_layers; /* first layers whose experts stay on the CPU; -1: as few as needed */
    int32_t
        fast; /* 0: exact, the same bits everywhere. 1: faster prompts of BF16 weights, less exactly, on CPUs with */
              /* AVX512_BF16 or AMX-BF16 (docs/numerics.md); all else stays exact. log tells when it has no effect */
    int32_t reserved; /* 0                                                                                            */
} duet_model_params;

DUET_API duet_model_params duet_model_params_default(void);

/* Opens a model: checks the whole file, reads hyper-parameters and vocabulary, binds every tensor. Weights stay in the
 * mapping. params      NULL: defaults Returns     DUET_OK; DUET_ERR_IO; DUET_ERR_FORMAT; DUET_ERR_UNSUPPORTED;
 * DUET_ERR_MEMORY; DUET_ERR_DEVICE; DUET_ERR_CANCELLED Cost        reads the metadata; touches weights only to warm the
 * page cache when progress is set                                  */
DUET_API duet_status duet_model_open(const char* path, const duet_model_params* params, duet_model** out);

/* The same from memory. The block stays the caller's, must not change, and must outlive the model. */
DUET_API duet_status duet_model_open_memory(const void* data, uint64_t n_bytes, const duet_model_params* params,
                                            duet_model** out);

/* The same from a callback, called during this call only; the file's n_bytes are read into memory the model owns. */
DUET_API duet_status duet_model_open_reader(duet_read_fn read, void* user, uint64_t n_bytes,
                                            const duet_model_params* params, duet_model** out);

/* Frees the model. All its sessions must have been freed before. */
DUET_API void duet_model_free(duet_model* model);
DUET_API const char* duet_model_error(const duet_model* model);

typedef struct duet_model_info {
    uint32_t struct_size;     /* set by the caller     */
    const char* architecture; /* "llama" */
    const char* name; /* general.name, or ""                                                                          */
    const char* device;    /* "cpu avx512, 2 threads", with ", fast" where mode fast has an effect    */
    const char* main_type; /* number format that holds most of the weights, "Q4_0" */
    int32_t n_vocab, n_layers, dim, n_heads, n_kv_heads, n_ctx_train;
    uint64_t n_params;     /* weights in all tensors     */
    uint64_t weight_bytes; /* bytes of all tensors */
    uint64_t decode_bytes; /* weight bytes read to generate one token */
} duet_model_info;

DUET_API duet_status duet_model_get_info(const duet_model* model, duet_model_info* out);

/* The file behind the model (metadata, tensors); owned by the model. */
DUET_API const duet_file* duet_model_file(const duet_model* model);

/* ---- text -------------------------------------------------------------------------------------------------------- */

enum {
    DUET_TOKENIZE_ADD_BOS = 1, /* begin with BOS / end with EOS as the file's metadata asks; never twice */
    DUET_TOKENIZE_PARSE_SPECIAL =
        2 /* control tokens spelled out in the text become those tokens; off: they are plain text        */
};

/* Text to token ids.
 * text        n_bytes bytes, UTF-8; invalid bytes are tokenized as the tokenizer's byte fallback does, never an error
 * ids         room for max_ids ids; may be NULL when max_ids is 0
 * n_ids       set to the number of ids of the whole text, also when it is larger than max_ids
 * Returns     DUET_OK; DUET_ERR_FULL: more than max_ids ids (the first max_ids were written); DUET_ERR_ARG;
 * DUET_ERR_MEMORY; DUET_ERR_UNSUPPORTED: the file has no vocabulary this build knows Thread      any; Cost linear in
 * the text, up to a logarithm                                                                       */
DUET_API duet_status duet_tokenize(const duet_model* model, const char* text, size_t n_bytes, int32_t flags,
                                   int32_t* ids, size_t max_ids, size_t* n_ids);

/* Ids to bytes, the inverse of duet_tokenize. The result may end inside a UTF-8 character (byte tokens).
 * special     1: control tokens are written as their names; 0: they give nothing
 * out         room for max_bytes, not terminated; n_bytes set to the whole length
 * Returns     DUET_OK; DUET_ERR_FULL: longer than max_bytes (the first max_bytes were written); DUET_ERR_ARG: an id out
 * of range */
DUET_API duet_status duet_detokenize(const duet_model* model, const int32_t* ids, size_t n_ids, int32_t special,
                                     char* out, size_t max_bytes, size_t* n_bytes);

/* One token's bytes when it follows other text. Valid as long as the model; {NULL, 0} for control tokens and ids out of
 * range. */
DUET_API duet_string duet_token_text(const duet_model* model, int32_t id);

/* The token's spelling in the file, as it stands there; {NULL, 0} out of range. */
DUET_API duet_string duet_token_spelling(const duet_model* model, int32_t id);

DUET_API int32_t duet_token_bos(const duet_model* model);                /* -1: none                */
DUET_API int32_t duet_token_eos(const duet_model* model);                /* -1: none                */
DUET_API int32_t duet_token_is_end(const duet_model* model, int32_t id); /* 1: ends a generation (EOS, EOT, EOM, ...) */
DUET_API int32_t duet_token_is_control(const duet_model* model, int32_t id);

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

/* A session holds the sequences' state (attention cache, recurrent state) and work buffers of one user of a model. */
typedef struct duet_session duet_session;

enum { DUET_CACHE_F16 = 0, DUET_CACHE_F32 = 1, DUET_CACHE_Q8_0 = 2 };

/* One input row x of n_in values, about to be multiplied by matrix i_mat of the n_mats of a tensor (experts, heads;
 * else 0 of 1). Called on the thread that called duet_decode, before the product; it slows decoding. */
typedef void (*duet_input_fn)(void* user, const char* tensor, int32_t i_mat, int32_t n_mats, const float* x,
                              int64_t n_in);

typedef struct duet_session_params {
    uint32_t struct_size;
    int32_t n_ctx;     /* tokens one sequence may hold; 0: the smaller of the model's training length and 4096     */
    int32_t n_seqs;    /* sequences, default 1    */
    int32_t max_batch; /* most tokens computed at once, default 512; longer batches are cut by duet_decode, same bits */
    int32_t cache_type;   /* DUET_CACHE_..., default f16   */
    duet_input_fn inputs; /* NULL, or told every row that is multiplied by weights; device cpu only */
    void* inputs_user;
} duet_session_params;

DUET_API duet_session_params duet_session_params_default(void);

/* Bytes a session needs, exactly, before anything is allocated. Weights on the GPU are shared by the model's sessions:
 * they go there with the first and stay until the model is freed, or until a session that finds no room moves layers to
 * the CPU.                  */
typedef struct duet_memory_plan {
    uint64_t weight_bytes; /* mapped bytes of the file */
    uint64_t cache_bytes;  /* attention pages of all sequences when full  */
    uint64_t state_bytes;  /* recurrent state  */
    uint64_t work_bytes;   /* activations, logits, scratch of all threads   */
    uint64_t pinned_bytes; /* locked memory for copies to and from the GPU, at most at once; not part of work_bytes */
    uint64_t gpu_weight_bytes, gpu_cache_bytes, gpu_state_bytes, gpu_work_bytes; /* on the GPU; 0 without one */
    int32_t gpu_layers;        /* layers on the GPU                                                          */
    int32_t cpu_expert_layers; /* experts of layers below this one stay on the CPU */
} duet_memory_plan;

/* Returns     DUET_OK; DUET_ERR_ARG: a parameter out of range (n_ctx < 1 or > 2^30, n_seqs < 1, max_batch < 1);
 * DUET_ERR_MEMORY: the layers that were asked for do not fit the GPU; DUET_ERR_DEVICE; message on model */
DUET_API duet_status duet_session_plan(const duet_model* model, const duet_session_params* params,
                                       duet_memory_plan* out);

/* Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_MEMORY (message: how much was needed); DUET_ERR_UNSUPPORTED: opened with
 * vocab_only; with a GPU DUET_ERR_DEVICE; DUET_ERR_CANCELLED: the model's progress callback asked to stop loading.
 * Nothing is left allocated after an error. */
DUET_API duet_status duet_session_create(const duet_model* model, const duet_session_params* params,
                                         duet_session** out);
DUET_API void duet_session_free(duet_session* session);
DUET_API const char* duet_session_error(const duet_session* session);
DUET_API int32_t duet_session_n_ctx(const duet_session* session);
DUET_API int32_t duet_session_max_batch(const duet_session* session);

/* Tokens to run. Sequences may share a batch; tokens of one sequence come in order of position, without gaps, the first
 * at the sequence's present length. */
typedef struct duet_batch {
    int32_t n_tok;
    const int32_t* token; /* n_tok ids       */
    const int32_t* pos; /* n_tok positions, 0-based in the sequence; NULL: append to what the sequence holds         */
    const int32_t* seq; /* n_tok sequence numbers, 0..n_seqs-1; NULL: all 0         */
    const uint8_t* want_logits; /* n_tok flags; NULL: the last token only */
} duet_batch;

/* Runs the model on a batch and appends the tokens' state to their sequences. Logits are kept for tokens with
 * want_logits.
 *
 * batch       1 <= n_tok; any size: cut into pieces of max_batch internally (the bits do not depend on it)
 * Returns     DUET_OK; DUET_ERR_FULL: a sequence would pass n_ctx, nothing changed; DUET_ERR_ARG: bad id, position or
 * sequence, nothing changed; DUET_ERR_MEMORY; DUET_ERR_DEVICE; DUET_ERR_CANCELLED: the sequences hold the pieces that
 * were finished; of a model with recurrent layers, sequences that had more than one token in the unfinished piece are
 * empty Thread      one call at a time per session; other sessions of the model may run Cost        returns when the
 * logits are in host memory                                                                           */
DUET_API duet_status duet_decode(duet_session* session, const duet_batch* batch);

/* Logits of the i-th token that asked for them in the last duet_decode, n_vocab floats; NULL out of range. Valid until
 * the next call on the session; the caller may write to them. */
DUET_API float* duet_logits(duet_session* session, int32_t i);
DUET_API int32_t duet_logits_count(const duet_session* session);

/* Final hidden state after the output norm (dim floats) of the last token in the last duet_decode; NULL when nothing
 * ran. */
DUET_API const float* duet_embedding(duet_session* session);

/* Asks a running duet_decode or duet_generate to stop; it returns DUET_ERR_CANCELLED within about 100 ms. When none
 * runs, the next one is stopped. Any thread, also a signal handler. */
DUET_API void duet_session_cancel(duet_session* session);

/* Tokens a sequence holds. -1 when seq is out of range. */
DUET_API int32_t duet_seq_length(const duet_session* session, int32_t seq);

/* Shortens a sequence to n_tok tokens (0 empties it). Returns DUET_OK; DUET_ERR_ARG; DUET_ERR_STATE: recurrent layers
 * cannot go back to an earlier position other than 0. */
DUET_API duet_status duet_seq_trim(duet_session* session, int32_t seq, int32_t n_tok);

/* Makes dst a copy of src; cache pages are shared until one of them writes. Returns DUET_OK; DUET_ERR_ARG;
 * DUET_ERR_MEMORY. */
DUET_API duet_status duet_seq_copy(duet_session* session, int32_t src, int32_t dst);

/* State of one sequence as bytes: saved on one machine, restored on any other with the same model and numerics version.
 * duet_seq_save   out may be NULL: n_bytes is set to the size needed. DUET_ERR_FULL: max_bytes is too small
 * duet_seq_load   replaces the sequence. DUET_ERR_FORMAT: not a state, damaged, of another model, mode, cache type or
 * version; the sequence is left as it was. DUET_ERR_FULL: longer than n_ctx */
DUET_API duet_status duet_seq_save(const duet_session* session, int32_t seq, void* out, uint64_t max_bytes,
                                   uint64_t* n_bytes);
DUET_API duet_status duet_seq_load(duet_session* session, int32_t seq, const void* data, uint64_t n_bytes);

/* ---- sampling ---------------------------------------------------------------------------------------------------- */

/* An ordered list of steps that turn logits into one id. */
typedef struct duet_sampler duet_sampler;

/* seed        of the sampler's own generator (docs/numerics.md): the same seed gives the same choices on every machine
 */
DUET_API duet_status duet_sampler_create(uint64_t seed, duet_sampler** out);
DUET_API void duet_sampler_free(duet_sampler* sampler);
DUET_API const char* duet_sampler_error(const duet_sampler* sampler);

/* One row of the table of steps and their parameters: the only list of them. A step with several parameters has several
 * rows; a parameter is set as "step" (its first) or "step.parameter". */
typedef struct duet_sampler_param {
    const char* name; /* "top_k", "dry.base" */
    const char* help;
    float default_value; /* the step does nothing at this value */
    float min_value, max_value;
} duet_sampler_param;
DUET_API const duet_sampler_param* duet_sampler_param_row(int32_t i_row); /* NULL past the last */

/* Sets a parameter by name. Steps run in the order of the table. Returns DUET_OK; DUET_ERR_ARG: unknown name, NaN, or
 * out of range (message: the range). */
DUET_API duet_status duet_sampler_set(duet_sampler* sampler, const char* name, float value);

/* Adds bias to one token's logit (-INFINITY forbids it). Returns DUET_OK; DUET_ERR_ARG: id < 0 or bias NaN;
 * DUET_ERR_MEMORY. */
DUET_API duet_status duet_sampler_bias(duet_sampler* sampler, int32_t id, float bias);

/* Names a token that breaks a repeated run for the DRY step (newline, quote, ...). */
DUET_API duet_status duet_sampler_dry_breaker(duet_sampler* sampler, int32_t id);

/* Chooses an id from n_vocab logits (which are not changed), with the tokens accepted so far as history.
 * Returns     DUET_OK; DUET_ERR_NAN: a logit is NaN or +inf (only duet_sampler_bias may force an id), or none is above
 *             -inf; DUET_ERR_MEMORY */
DUET_API duet_status duet_sampler_choose(duet_sampler* sampler, const float* logits, int32_t n_vocab, int32_t* id);

/* Adds an id to the history of penalties (prompt tokens and chosen ones). */
DUET_API duet_status duet_sampler_accept(duet_sampler* sampler, int32_t id);

/* Forgets the history and starts the generator again from seed. */
DUET_API void duet_sampler_reset(duet_sampler* sampler, uint64_t seed);

/* ---- generating -------------------------------------------------------------------------------------------------- */

typedef struct duet_generate_params {
    uint32_t struct_size;
    int32_t seq;         /* sequence to extend, default 0                                                            */
    int32_t max_new_tok; /* -1: until an end token or the context is full (then DUET_OK with stop_reason CONTEXT)    */
    int32_t ignore_end;  /* 1: end tokens are forbidden and the text goes on                                         */
    int32_t special;     /* 1: control tokens are written as their names                                             */
    const char* const* stop; /* n_stop strings that end the text; not part of the output */
    int32_t n_stop;
} duet_generate_params;

DUET_API duet_generate_params duet_generate_params_default(void);

/* What a token brought. text: bytes that are now certain, whole UTF-8 characters only (held back while a character or a
 * stop string may still be incomplete); may be empty. id is -1 on the last call when only held-back text is left. */
typedef struct duet_token_event {
    int32_t id;
    int32_t pos;
    const char* text; /* terminated */
    size_t n_bytes;
} duet_token_event;

/* Return 0 to go on, anything else to stop (stop_reason CALLBACK). */
typedef int32_t (*duet_token_fn)(void* user, const duet_token_event* event);

enum {
    DUET_STOP_END = 0,
    DUET_STOP_LIMIT = 1,
    DUET_STOP_STRING = 2,
    DUET_STOP_CALLBACK = 3,
    DUET_STOP_CONTEXT = 4,
    DUET_STOP_CANCELLED = 5
};

typedef struct duet_generate_result {
    int32_t n_prompt_tok, n_new_tok;
    int32_t stop_reason;
    uint64_t prompt_us, generate_us;
} duet_generate_result;

/* Runs the prompt ids, then generates until something stops it.
 * ids, n_ids  at least 1 id, unless the sequence already holds tokens and its last logits are kept
 * on_token    may be NULL
 * result      may be NULL; filled also when an error is returned
 * Returns     DUET_OK; DUET_ERR_FULL: the prompt does not fit (message: both lengths), nothing changed;
 * DUET_ERR_CANCELLED (what was generated is in the sequence); DUET_ERR_NAN; DUET_ERR_ARG; DUET_ERR_MEMORY;
 * DUET_ERR_DEVICE                            */
DUET_API duet_status duet_generate(duet_session* session, duet_sampler* sampler, const int32_t* ids, size_t n_ids,
                                   const duet_generate_params* params, duet_token_fn on_token, void* user,
                                   duet_generate_result* result);

/* ---- measuring --------------------------------------------------------------------------------------------------- */

/* Time per kind of op, collected while profiling is on (it costs two clock reads per op). */
typedef struct duet_profile_row {
    const char* op; /* "matmul Q4_0" */
    uint64_t n_calls, time_us;
    uint64_t weight_bytes; /* weight and cache bytes read */
    uint64_t n_mac;        /* multiply-adds        */
} duet_profile_row;

DUET_API void duet_session_profile(duet_session* session, int32_t on); /* also clears what was collected */
DUET_API const duet_profile_row* duet_session_profile_row(duet_session* session,
                                                          int32_t i_row); /* NULL past the last             */

/* Called for each case of duet_self_test. difference: NULL when all bits are equal, else what differs. Return 0 to go
 * on, anything else to stop (the call returns DUET_ERR_CANCELLED). */
typedef int32_t (*duet_self_test_fn)(void* user, const char* name, const char* difference);

/* Runs every kind of operation and every number format in small on a device ("cpu", or what duet_model_params.device
 * takes, without "auto") and compares all bits with the plain C++ code. cpu_isa: as in duet_model_params, for "cpu".
 * Takes seconds on the CPU and on cards. Returns     DUET_OK: all cases ran (report told which differ);
 * DUET_ERR_DEVICE: no such device or instruction set; DUET_ERR_ARG; DUET_ERR_MEMORY; DUET_ERR_CANCELLED. Any thread. */
DUET_API duet_status duet_self_test(const char* device, const char* cpu_isa, duet_self_test_fn report, void* user);

/* Memory bandwidth of a device in GB/s: of "cpu" reading with n_threads threads (0: one per physical core), of others
 * copying (bytes read and written). Takes about 0.1 s. 0 when memory is short or there is no such device. */
DUET_API double duet_measure_bandwidth_gbps(const char* device, int32_t n_threads);

#ifdef __cplusplus
}
#endif
#endif

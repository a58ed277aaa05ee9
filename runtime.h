/* runtime.h: the whole public interface of Duet, and its only API document. C99 and C++.
 *
 * Main path: tools/run.cpp -> [runtime.h] -> runtime.cpp -> runtime/generate.cpp -> models/executor.h -> cpu/ops.cpp
 *
 * Errors
 *   A function that can fail returns a duet_status: DUET_OK (0) or a negative code. Compilers warn where a program
 *   ignores one. A failed call leaves its object as it was unless its comment says otherwise. The library never
 *   prints, exits, aborts or throws; a function that returns no status gives its "none" value (NULL, 0, -1) when it
 *   fails. Every failure has a text that names what was wanted, what was found, and where:
 *     - A session, a sampler, a writer and a text gate keep the text of their last failed call: duet_x_error(x).
 *     - A model and a file are shared by threads, so each thread has its own text of its last failed call on them.
 *       duet_model_error(model) and duet_file_error(file) give the calling thread's text, and the text of a failed
 *       opening where the thread has none. A thread keeps the texts of a few models and files, of many the newest.
 *     - A call that had no handle (duet_list_devices, a handle that was NULL) leaves its text with the thread:
 *       duet_x_error(NULL) gives it, whatever x is.
 *
 * Ownership
 *   Handles are opaque. duet_x_open and duet_x_create store a handle in *out also when they fail, so that the error
 *   can be read from it; they store NULL only when out of memory (DUET_ERR_MEMORY). Whatever they stored goes to
 *   duet_x_free, which accepts NULL. Arrays and strings passed in are read during the call only and stay the caller's.
 *   Returned pointers are valid until the next call on the same object unless the comment says otherwise.
 *   An argument may be NULL only where its comment says so; elsewhere NULL gives DUET_ERR_ARG (or the "none" value).
 *
 * Threads
 *   A model and a file are read-only after they were opened: any number of threads and sessions may use them at once.
 *   A session, a sampler, a generation, a chat with its parsers and turns, a text gate and a writer belong to one
 *   thread at a time. duet_session_cancel may come from any thread. Outside the handles the library keeps the thread's
 *   text, open drivers, and which way to multiply was fastest on this machine; none of it changes a result. "Thread:
 *   any" below means that calls may run at the same time; "Thread: the session's" that they may not.
 *   After fork() the child must not touch older objects, but may open a model on the CPU; drivers survive no fork.
 *   A thread may end within a callback (pthread_exit), but must not be cancelled from outside while it is in a call.
 *
 * Structs
 *   A struct that begins with struct_size may get more fields at its end in later versions. struct_size always means
 *   the same: how many bytes of the struct are there. Whoever provides the struct's memory sets it: the program for
 *   every struct that it passes in or wants filled (duet_x_default() sets it, or write s.struct_size = sizeof s), the
 *   library for structs that it hands to a callback or returns a pointer to. The library reads and writes that many
 *   bytes and never more; 0, or more than the library's own struct has, is DUET_ERR_ARG. Others never change.
 */
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

/* A function whose status the caller must look at. */
#if defined(__cplusplus) && __cplusplus >= 201703L
#define DUET_API_STATUS [[nodiscard]] DUET_API duet_status
#elif defined(__GNUC__)
#define DUET_API_STATUS DUET_API __attribute__((warn_unused_result)) duet_status
#else
#define DUET_API_STATUS DUET_API duet_status
#endif

/* Declares for a struct of parameters (any thread may call them):
 *   type_init     fills it with the defaults, as far as struct_size reaches
 *   type_default  returns it filled: duet_session_params params = duet_session_params_default(); */
#define DUET_DEFAULTS(type)                                                                                            \
    DUET_API void type##_init(type* out, uint32_t struct_size);                                                        \
    static inline type type##_default(void) {                                                                          \
        type params;                                                                                                   \
        type##_init(&params, sizeof params);                                                                           \
        return params;                                                                                                 \
    }

#ifdef __cplusplus
extern "C" {
#endif

#define DUET_VERSION_MAJOR 0
#define DUET_VERSION_MINOR 1
#define DUET_VERSION_PATCH 0

/* ---- status ---------------------------------------------------------------------------------------------------- */

typedef int32_t duet_status;
enum {
    DUET_OK = 0,
    DUET_ERR_ARG = -1,         /* an argument is NULL, out of range, or contradicts another */
    DUET_ERR_IO = -2,          /* a file cannot be opened, read, mapped or written */
    DUET_ERR_FORMAT = -3,      /* a file breaks a rule of its format, or contradicts itself */
    DUET_ERR_UNSUPPORTED = -4, /* well-formed, but of an architecture, format or feature this build has no code for */
    DUET_ERR_MEMORY = -5,      /* memory ran out, or the system starts no more threads */
    DUET_ERR_FULL = -6,        /* the context, or the caller's buffer, has too little room */
    DUET_ERR_DEVICE = -7,      /* a device is missing, failed, or was lost */
    DUET_ERR_CANCELLED = -8,   /* duet_session_cancel, or a callback, asked to stop */
    DUET_ERR_NAN = -9,         /* the logits hold no number to choose by */
    DUET_ERR_STATE = -10,      /* not possible in this state (a recurrent state cannot be trimmed, no logits kept) */
    DUET_ERR_INTERNAL = -11    /* a mistake of the library, or an exception out of a callback: the text says which */
};

/* The name of a code ("DUET_ERR_IO"; "unknown status" for other numbers); the version of the library that is linked
 * ("0.1.0", to compare with DUET_VERSION_MAJOR to DUET_VERSION_PATCH); in one line what was built: the commit,
 * compiler, CPU instruction sets, GPU targets.
 * Returns     text, never NULL; valid for ever. Thread: any */
DUET_API const char* duet_status_name(duet_status status);
DUET_API const char* duet_version(void);
DUET_API const char* duet_build_info(void);

/* Returns the version of the numeric contract (docs/numerics.md). The same model, tokens and settings give the same
 * logits bit for bit on every machine and executor while this number stays the same, except in mode fast
 * (duet_model_params.fast). Thread: any */
DUET_API int32_t duet_numerics_version(void);

/* ---- log and progress ------------------------------------------------------------------------------------------ */

enum { DUET_LOG_INFO = 0, DUET_LOG_WARN = 1 };

/* text: a line without newline, valid during the call, on any thread that uses the model. It must use none itself. */
typedef void (*duet_log_fn)(void* user, int32_t level, const char* text);

/* share is the part of the work that is done, 0..1. Return 0 to go on; anything else cancels the work, and the call
 * that does it returns DUET_ERR_CANCELLED. It must not call functions of the model, or of sessions of it. */
typedef int32_t (*duet_progress_fn)(void* user, float share);

/* Reads n_bytes at offset into dst. Return 0, or anything else for a failed read: the call returns DUET_ERR_IO. */
typedef int32_t (*duet_read_fn)(void* user, uint64_t offset, void* dst, uint64_t n_bytes);

/* ---- text bytes ------------------------------------------------------------------------------------------------ */

/* Measures the UTF-8 character that begins at text.
 * text        n_bytes bytes; may be NULL when n_bytes is 0
 * Returns     1 to 4, the bytes of the character; 0 when no well-formed character begins there (overlong forms,
 *             surrogates, values beyond U+10FFFF and what n_bytes cuts off are none). Thread: any */
DUET_API size_t duet_utf8_length(const char* text, size_t n_bytes);

/* ---- number formats -------------------------------------------------------------------------------------------- */

/* A row of the table of GGUF tensor types. Ids are those of the file format (0 = F32, 1 = F16, 2 = Q4_0, ...). */
typedef struct duet_type_info {
    int32_t id;
    const char* name; /* "Q4_K" */
    int32_t elems_per_block;
    int32_t bytes_per_block;
    int32_t can_compute;  /* 1: this build multiplies by it */
    int32_t can_quantize; /* 1: duet_quantize_row makes it */
} duet_type_info;

/* The table of formats: row i_row (0 <= i_row < duet_type_count()), the row of a name (in any case), of a file id.
 * Returns     the row, valid for ever; NULL when there is none. Thread: any */
DUET_API int32_t duet_type_count(void);
DUET_API const duet_type_info* duet_type_row(int32_t i_row);
DUET_API const duet_type_info* duet_type_by_name(const char* name);
DUET_API const duet_type_info* duet_type_by_id(int32_t id);

/* Writes n_elems values as blocks of the type.
 * src         any values: in blocks of a quantized type a NaN counts as 0, and a value beyond the format becomes its
 *             largest; F16, BF16 and F32 keep NaN and infinities
 * n_elems     a multiple of elems_per_block
 * importance  n_elems weights of the squared error, >= 0 (from an importance matrix); NULL: all are alike
 * dst         room for n_elems / elems_per_block * bytes_per_block bytes
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_UNSUPPORTED: there is no encoder for the type. Thread: any
 * Cost        linear; some formats search long for the best scales */
DUET_API_STATUS duet_quantize_row(int32_t type_id, const float* src, int64_t n_elems, const float* importance,
                                  void* dst);

/* Writes the values of n_elems elements of blocks, exactly as the model computes with them.
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_UNSUPPORTED: there is no decoder for the type. Thread: any */
DUET_API_STATUS duet_dequantize_row(int32_t type_id, const void* src, int64_t n_elems, float* dst);

/* ---- files ----------------------------------------------------------------------------------------------------- */

/* A GGUF file (v2, v3, single or split) as metadata and tensors. The file is mapped read-only, and every rule of the
 * format is checked when it is opened. Paths are UTF-8 on every system.
 *
 * A mapped file must not shrink while it is open: whoever reads a part that another program cut off gets the signal
 * SIGBUS, which ends the process; the library cannot turn that into an error. (Windows refuses to shorten it.) A model
 * whose file may change is opened with DUET_LOAD_COPY (duet_model_params.load). Renaming over it does no harm. */
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

/* Bytes that are not terminated and may hold any value. The comment of whoever gives them says how long they live;
 * those of a file are valid as long as it is open. */
typedef struct duet_string {
    const char* data;
    uint64_t n_bytes;
} duet_string;

typedef struct duet_kv {
    duet_string key;
    int32_t type;       /* DUET_KV_... */
    int32_t array_type; /* element type of an array, else -1 */
    uint64_t n_values;  /* 1, or the length of an array */
    uint64_t offset;    /* byte offset of the value in its file */
} duet_kv;

typedef struct duet_tensor {
    duet_string name;
    int32_t type_id;
    int32_t n_dims;   /* 1..4 */
    int64_t dims[4];  /* fastest first; dims past n_dims are 1 */
    const void* data; /* mapped */
    uint64_t n_bytes;
    uint64_t offset; /* byte offset in its file */
    int32_t i_file;  /* which part of a split file */
} duet_tensor;

/* Opens and checks a GGUF file; the path of a split file's first part (-00001-of-0000N) opens all parts.
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_IO; DUET_ERR_FORMAT (text: file, key or tensor, byte offset, rule);
 *             DUET_ERR_MEMORY. Thread: any
 * Cost        reads the metadata, not the tensors */
DUET_API_STATUS duet_file_open(const char* path, duet_file** out);

/* Closes a file; what came from it is invalid afterwards. Thread: when no other uses the file. */
DUET_API void duet_file_free(duet_file* file);

/* Gives the calling thread's text of the last failed call on the file (see the head of this header). Thread: any. */
DUET_API const char* duet_file_error(const duet_file* file);

/* Format version (2 or 3), number of entries, number of tensors, number of files of a split model (else 1).
 * Returns     0 when file is NULL. Thread: any */
DUET_API int32_t duet_file_version(const duet_file* file);
DUET_API int64_t duet_file_n_kv(const duet_file* file);
DUET_API int64_t duet_file_n_tensors(const duet_file* file);
DUET_API int32_t duet_file_n_parts(const duet_file* file);

/* Describes metadata entry i, or tensor i.
 * Returns     DUET_OK; DUET_ERR_ARG: out of range. Thread: any */
DUET_API_STATUS duet_file_kv(const duet_file* file, int64_t i, duet_kv* out);
DUET_API_STATUS duet_file_tensor(const duet_file* file, int64_t i, duet_tensor* out);

/* Finds an entry or a tensor by name.
 * Returns     its index; -1 when there is none. Thread: any
 * Cost        logarithmic in the number of entries */
DUET_API int64_t duet_file_find_kv(const duet_file* file, const char* key);
DUET_API int64_t duet_file_find_tensor(const duet_file* file, const char* name);

/* Reads value i_value of entry i_kv (0 for a scalar) in the wanted form. Integers convert when the value fits; a bool
 * reads as 0 or 1. A U64 above 2^63 - 1 does not fit: DUET_ERR_FORMAT, and *out has its bits.
 * Returns     DUET_OK; DUET_ERR_ARG: out of range; DUET_ERR_FORMAT: of another type, or it does not fit. Thread: any */
DUET_API_STATUS duet_file_get_int(const duet_file* file, int64_t i_kv, uint64_t i_value, int64_t* out);
DUET_API_STATUS duet_file_get_float(const duet_file* file, int64_t i_kv, uint64_t i_value, double* out);
DUET_API_STATUS duet_file_get_string(const duet_file* file, int64_t i_kv, uint64_t i_value, duet_string* out);

/* Writes a GGUF v3 file: add keys and tensors in any order, then save. */
typedef struct duet_writer duet_writer;

/* Makes a writer without keys and tensors.
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_MEMORY. Thread: any */
DUET_API_STATUS duet_writer_create(duet_writer** out);

/* duet_writer_free frees a writer; a file that was saved stays. duet_writer_error gives the text of the writer's
 * last failed call. Thread: the writer's. */
DUET_API void duet_writer_free(duet_writer* writer);
DUET_API const char* duet_writer_error(const duet_writer* writer);

/* Set one key. A key that is set twice keeps its place and takes the new value.
 * kv_type     of set_int an integer type or DUET_KV_BOOL; of set_float DUET_KV_F32 or DUET_KV_F64
 * data        n_bytes bytes of a string, n elements of an array; may be NULL when there are none
 * Returns     DUET_OK; DUET_ERR_ARG: a bad key, type or value; DUET_ERR_MEMORY. Thread: the writer's */
DUET_API_STATUS duet_writer_set_int(duet_writer* writer, const char* key, int32_t kv_type, int64_t value);
DUET_API_STATUS duet_writer_set_float(duet_writer* writer, const char* key, int32_t kv_type, double value);
DUET_API_STATUS duet_writer_set_string(duet_writer* writer, const char* key, const char* data, uint64_t n_bytes);
DUET_API_STATUS duet_writer_set_array(duet_writer* writer, const char* key, int32_t elem_type, const void* data,
                                      uint64_t n);
DUET_API_STATUS duet_writer_set_strings(duet_writer* writer, const char* key, const duet_string* strings, uint64_t n);

/* Copies every key of a file for which no value was set before, except those of splitting.
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_MEMORY: some of the keys are set. Thread: the writer's */
DUET_API_STATUS duet_writer_copy_kv(duet_writer* writer, const duet_file* from);

/* Adds a tensor. The pointer is kept: data must stay valid until the file was saved.
 * dims        n_dims lengths, 1..4, fastest first
 * Returns     DUET_OK; DUET_ERR_ARG: a bad or taken name, a bad type or shape; DUET_ERR_MEMORY. Thread: the writer's */
DUET_API_STATUS duet_writer_add_tensor(duet_writer* writer, const char* name, int32_t type_id, int32_t n_dims,
                                       const int64_t* dims, const void* data);

/* Adds a tensor whose bytes are made while the file is written, so that a file larger than the memory can be made.
 * Every save calls read for the whole tensor: first at offset 0, then on without gaps, at most 16 MiB at a time, each
 * piece whole blocks of the type. A read that does not return 0 ends the save with DUET_ERR_IO.
 * dims        as for duet_writer_add_tensor
 * read, user  kept until the writer is freed; called by duet_writer_save and duet_writer_save_to, on their thread
 * Returns     DUET_OK; DUET_ERR_ARG: as for duet_writer_add_tensor, or no read; DUET_ERR_MEMORY. Thread: the writer's
 * Cost        a save holds one piece in memory */
DUET_API_STATUS duet_writer_add_tensor_from(duet_writer* writer, const char* name, int32_t type_id, int32_t n_dims,
                                            const int64_t* dims, duet_read_fn read, void* user);

/* Writes the file beside the path and renames it when all is written: a failed save leaves no half file, and an older
 * file as it was.
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_IO; DUET_ERR_MEMORY. Thread: the writer's
 * Cost        writes the whole file */
DUET_API_STATUS duet_writer_save(duet_writer* writer, const char* path);

/* Takes the next n_bytes of the file. Return 0, or anything else for a failed write (DUET_ERR_IO). */
typedef int32_t (*duet_write_fn)(void* user, const void* data, uint64_t n_bytes);

/* Gives the file's bytes in order to a callback (a block of memory, a pipe).
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_IO; DUET_ERR_MEMORY. Thread: the writer's */
DUET_API_STATUS duet_writer_save_to(duet_writer* writer, duet_write_fn write, void* user);

/* Computes the bytes that the file will have.
 * Returns     the bytes; 0 when writer is NULL or memory runs out. Thread: the writer's */
DUET_API uint64_t duet_writer_size(const duet_writer* writer);

/* ---- devices --------------------------------------------------------------------------------------------------- */

/* A device, or a driver without one. Strings are valid during the call that they are given to, and never NULL. */
typedef struct duet_device_info {
    uint32_t struct_size;              /* set by the library, whose struct it is */
    int32_t is_usable;                 /* 1: can be named as duet_model_params.device */
    int32_t is_default;                /* 1: "auto" takes it */
    int32_t is_integrated;             /* 1: shares the processor's memory */
    const char* id;                    /* "cpu", "cuda:0", "hip:1", "emu32"; "cuda", "hip": that driver has no device */
    const char* name;                  /* "NVIDIA H200", or "" */
    const char* chip;                  /* "sm_90", "gfx1100", "avx512", or "" */
    const char* driver;                /* "CUDA 12.4", "8 cores", or "" */
    const char* why;                   /* why it is not usable or not the default, and what to do; or "" */
    uint64_t memory_bytes, free_bytes; /* 0: not known (a GPU's free memory, until it is used) */
} duet_device_info;

typedef void (*duet_device_fn)(void* user, const duet_device_info* device);

/* Calls each once for every device, the CPU first. It asks drivers for names and attributes and opens no device.
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_MEMORY. Thread: any
 * Cost        the first call of a driver may take a second */
DUET_API_STATUS duet_list_devices(duet_device_fn each, void* user);

/* ---- models ---------------------------------------------------------------------------------------------------- */

typedef struct duet_model duet_model;

enum {
    DUET_LOAD_MAP = 0, /* the file is mapped: it opens at once and shares memory between processes; it must not shrink
                          while the model is open (see duet_file) */
    DUET_LOAD_COPY = 1 /* the file is read into memory that the model owns: it may change or vanish afterwards */
};

typedef struct duet_model_params {
    uint32_t struct_size;
    int32_t vocab_only;  /* 1: open the tokenizer only; a file without tensors is accepted then, and only then */
    const char* device;  /* NULL or "auto": a GPU where one can be used, else the CPU (log says why, where there is a
                            card); "cpu", "cuda", "hip", "cuda:1", ... as duet_list_devices tells: an error when it
                            cannot be used */
    const char* cpu_isa; /* NULL or "auto": the best here; "scalar", "avx2", ...: one that duet_build_info lists */
    int32_t n_threads;   /* 0: one per physical core, no more than the CPU limit of a container */
    duet_progress_fn progress; /* may be NULL. Called by duet_model_open; where weights go to a GPU also by
                                  duet_session_create */
    void* progress_user;
    duet_log_fn log; /* may be NULL: silence */
    void* log_user;
    int32_t gpu_layers; /* layers on the GPU, from the last one; -1: as many as fit it, the others run on the CPU */
    int32_t cpu_expert_layers; /* first layers whose experts stay on the CPU; -1: as few as needed */
    int32_t fast; /* 0: exact, the same bits everywhere. 1: faster prompts, less exactly: of BF16 weights on CPUs with
                     AVX512_BF16 or AMX-BF16; on GPUs with matrix units for them of F16 and BF16 weights, and of all
                     weights in attention (docs/numerics.md); all else stays exact. log tells when it has no effect */
    int32_t load; /* DUET_LOAD_...; files opened by path only */
    int32_t gpu_recording; /* recorded decoding on GPUs (docs/gpu.md). -1: as the environment's DUET_GPU_RECORDING says,
                              else 1 where drivers do it right; 0: off; 1: on, watched; 2: a token as one launch */
    const char* rope_scaling; /* "none", "linear", "yarn": for contexts longer than the trained; NULL: the file's */
    float rope_scale, rope_freq_base; /* the factor of scaling, rope's base; 0: the file's */
    int32_t rope_original_ctx;        /* yarn: the context before scaling; 0: the file's */
} duet_model_params;
DUET_DEFAULTS(duet_model_params) /* duet_model_params_init, duet_model_params_default */

/* Opens a model: checks the whole file, reads hyper-parameters and vocabulary, binds every tensor. Weights stay in
 * the mapping (see DUET_LOAD_MAP).
 * params      may be NULL: the defaults
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_IO; DUET_ERR_FORMAT; DUET_ERR_UNSUPPORTED; DUET_ERR_MEMORY;
 *             DUET_ERR_DEVICE; DUET_ERR_CANCELLED. Thread: any
 * Cost        reads the metadata; touches the weights when progress is set, to warm the page cache, and with
 *             DUET_LOAD_COPY */
DUET_API_STATUS duet_model_open(const char* path, const duet_model_params* params, duet_model** out);

/* Opens a model from memory: the block, at a multiple of 8 bytes, stays the caller's, must not change, and must
 * outlive the model. Or from a callback, called during this call only: n_bytes are read into memory of the model.
 * Returns, Thread, Cost as duet_model_open */
DUET_API_STATUS duet_model_open_memory(const void* data, uint64_t n_bytes, const duet_model_params* params,
                                       duet_model** out);
DUET_API_STATUS duet_model_open_reader(duet_read_fn read, void* user, uint64_t n_bytes, const duet_model_params* params,
                                       duet_model** out);

/* Frees the model. All its sessions must have been freed before. Thread: when no other uses the model. */
DUET_API void duet_model_free(duet_model* model);

/* Gives the calling thread's text of the last failed call on the model (see the head of this header). Thread: any. */
DUET_API const char* duet_model_error(const duet_model* model);

typedef struct duet_model_info {
    uint32_t struct_size;
    const char* architecture; /* "llama" */
    const char* name;         /* general.name, or "" */
    const char* device;       /* "cpu avx512, 2 threads", with ", fast" where mode fast has an effect */
    const char* main_type;    /* number format that holds most of the weights, "Q4_0" */
    int32_t n_vocab, n_layers, dim, n_heads, n_kv_heads, n_ctx_train;
    uint64_t n_params;     /* weights in all tensors */
    uint64_t weight_bytes; /* bytes of all tensors */
    uint64_t decode_bytes; /* weight bytes read to generate one token */
    int32_t embedding_dim; /* floats of a vector of duet_embed */
    int32_t is_encoder;    /* 1: it makes vectors and no text; duet_decode takes each text whole, in one batch */
    int32_t is_reranker;   /* 1: it has a head that scores pairs (duet_rerank) */
} duet_model_info;

/* Describes a model, also one whose opening failed, as far as it was read. Strings live as long as the model.
 * out         set out->struct_size before
 * Returns     DUET_OK; DUET_ERR_ARG. Thread: any */
DUET_API_STATUS duet_model_get_info(const duet_model* model, duet_model_info* out);

/* The file behind the model (metadata, tensors).
 * Returns     the file, which the model owns and frees; NULL when model is NULL. Thread: any */
DUET_API const duet_file* duet_model_file(const duet_model* model);

/* ---- text ------------------------------------------------------------------------------------------------------ */

enum {
    DUET_TOKENIZE_ADD_BOS = 1,      /* begin with BOS / end with EOS as the file's metadata asks; never twice */
    DUET_TOKENIZE_PARSE_SPECIAL = 2 /* control tokens spelled out in the text become those tokens; off: plain text */
};

/* Turns text into token ids.
 * text        n_bytes bytes, UTF-8; invalid bytes are tokenized as the tokenizer's byte fallback does, never an
 *             error; may be NULL when n_bytes is 0
 * ids         room for max_ids ids; may be NULL when max_ids is 0
 * n_ids       set to the number of ids of the whole text, also when it is larger than max_ids
 * Returns     DUET_OK; DUET_ERR_FULL: more than max_ids ids (the first max_ids were written); DUET_ERR_ARG;
 *             DUET_ERR_MEMORY; DUET_ERR_UNSUPPORTED: the file has no vocabulary that this build knows. Thread: any
 * Cost        linear in the text, up to a logarithm */
DUET_API_STATUS duet_tokenize(const duet_model* model, const char* text, size_t n_bytes, int32_t flags, int32_t* ids,
                              size_t max_ids, size_t* n_ids);

/* Turns ids into bytes, the inverse of duet_tokenize. The result may end inside a UTF-8 character (byte tokens).
 * special     1: control tokens are written as their names; 0: they give nothing
 * out         room for max_bytes, not terminated; may be NULL when max_bytes is 0
 * n_bytes     set to the whole length
 * Returns     DUET_OK; DUET_ERR_FULL: longer than max_bytes (the first max_bytes were written); DUET_ERR_ARG: an id
 *             is out of range; DUET_ERR_MEMORY. Thread: any */
DUET_API_STATUS duet_detokenize(const duet_model* model, const int32_t* ids, size_t n_ids, int32_t special, char* out,
                                size_t max_bytes, size_t* n_bytes);

/* One token's bytes when it follows other text ({NULL, 0} for control tokens); its spelling, as it stands in the file.
 * Returns     the bytes, valid as long as the model; {NULL, 0} for ids out of range. Thread: any */
DUET_API duet_string duet_token_text(const duet_model* model, int32_t id);
DUET_API duet_string duet_token_spelling(const duet_model* model, int32_t id);

/* Ids of the tokens that begin and end a text; whether a token ends a generation (EOS, EOT, ...), is a control token.
 * Returns     an id, or -1: there is none; 1 or 0. Thread: any */
DUET_API int32_t duet_token_bos(const duet_model* model);
DUET_API int32_t duet_token_eos(const duet_model* model);
DUET_API int32_t duet_token_is_end(const duet_model* model, int32_t id);
DUET_API int32_t duet_token_is_control(const duet_model* model, int32_t id);

/* ---- sessions -------------------------------------------------------------------------------------------------- */

/* A session holds the state of sequences (attention cache, recurrent state) and the work buffers of one user of a
 * model. */
typedef struct duet_session duet_session;

enum { DUET_CACHE_F16 = 0, DUET_CACHE_F32 = 1, DUET_CACHE_Q8_0 = 2 };

/* One input row x of n_in values that is about to be multiplied by matrix i_mat of the n_mats of a tensor (experts,
 * heads; else 0 of 1). Called on duet_decode's thread before the product; slows decoding. It must not use sessions. */
typedef void (*duet_input_fn)(void* user, const char* tensor, int32_t i_mat, int32_t n_mats, const float* x,
                              int64_t n_in);

typedef struct duet_session_params {
    uint32_t struct_size;
    int32_t n_ctx;        /* tokens one sequence may hold; 0: the smaller of the model's training length and 4096 */
    int32_t n_seqs;       /* sequences, default 1 */
    int32_t max_batch;    /* most tokens computed at once, default 512; duet_decode cuts longer batches, same bits */
    int32_t cache_type;   /* DUET_CACHE_..., default f16 */
    duet_input_fn inputs; /* may be NULL; told every row that is multiplied by weights; device cpu only */
    void* inputs_user;
    int64_t cache_tokens; /* tokens that the cache pages of all sequences hold together; 0: n_seqs * n_ctx */
} duet_session_params;
DUET_DEFAULTS(duet_session_params) /* duet_session_params_init, duet_session_params_default */

/* The bytes that a session needs. Weights on a GPU are shared by the model's sessions: they go there with the first
 * session and stay until the model is freed, or until a session that finds no room moves layers to the CPU. */
typedef struct duet_memory_plan {
    uint32_t struct_size;
    int32_t gpu_layers;        /* layers on the GPU */
    int32_t cpu_expert_layers; /* experts of layers below this one stay on the CPU */
    uint64_t weight_bytes;     /* bytes of the file's tensors */
    uint64_t cache_bytes;      /* attention pages of all sequences when full */
    uint64_t state_bytes;      /* recurrent state */
    uint64_t work_bytes;       /* activations, logits, scratch of all threads */
    uint64_t pinned_bytes;     /* locked memory for copies to and from the GPU, at most at once; not in work_bytes */
    uint64_t gpu_weight_bytes, gpu_cache_bytes, gpu_state_bytes, gpu_work_bytes; /* on the GPU; 0 without one */
    uint64_t free_bytes; /* what the system, and a container's limit of memory, have left; 0: not known */
} duet_memory_plan;

/* Computes what duet_session_create would allocate, exactly, and allocates nothing.
 * params      may be NULL: the defaults; set out->struct_size before the call
 * Returns     DUET_OK; DUET_ERR_ARG: a parameter is out of range (n_ctx beyond 2^30, n_seqs beyond 4096, max_batch
 *             beyond 65536); DUET_ERR_UNSUPPORTED; DUET_ERR_MEMORY: the layers that were asked for do not fit the
 *             GPU; DUET_ERR_DEVICE. Thread: any
 * Cost        short; with a GPU it waits while a session of the same model sends its weights there */
DUET_API_STATUS duet_session_plan(const duet_model* model, const duet_session_params* params, duet_memory_plan* out);

/* Makes a session.
 * params      may be NULL: the defaults
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_MEMORY (text: how much was needed); DUET_ERR_UNSUPPORTED: the model was
 *             opened with vocab_only; with a GPU DUET_ERR_DEVICE, and DUET_ERR_CANCELLED: the model's progress
 *             callback asked to stop loading. After an error the handle holds its text and nothing else. Thread: any
 * Cost        allocates; the first session with a GPU sends the weights there */
DUET_API_STATUS duet_session_create(const duet_model* model, const duet_session_params* params, duet_session** out);

/* duet_session_free frees a session. Its generations must have been freed before. duet_session_error gives the text
 * of the session's last failed call, its generations' included. Thread: the session's. */
DUET_API void duet_session_free(duet_session* session);
DUET_API const char* duet_session_error(const duet_session* session);

/* Tokens a sequence may hold; most tokens computed at once; tokens for which there are free cache pages (of 64 each).
 * Returns     0 when session is NULL
 * Thread      the session's */
DUET_API int32_t duet_session_n_ctx(const duet_session* session);
DUET_API int32_t duet_session_max_batch(const duet_session* session);
DUET_API int64_t duet_session_room(const duet_session* session);

/* Tokens to run. Sequences may share a batch; tokens of one sequence come in order of position, without gaps, the
 * first at the sequence's present length. */
typedef struct duet_batch {
    uint32_t struct_size;
    int32_t n_tok;
    const int32_t* token;       /* n_tok ids */
    const int32_t* pos;         /* n_tok positions, 0-based in the sequence; NULL: append to what it holds */
    const int32_t* seq;         /* n_tok sequence numbers, 0..n_seqs-1; NULL: all 0 */
    const uint8_t* want_logits; /* n_tok flags; NULL: the last token only */
} duet_batch;
DUET_DEFAULTS(duet_batch) /* duet_batch_init, duet_batch_default: no tokens */

/* Runs the model on a batch and appends the tokens' state to their sequences. Logits are kept for tokens with
 * want_logits, until the next duet_decode or generation.
 * batch       1 <= n_tok; any size: it is cut into pieces of max_batch (the bits do not depend on it)
 * Returns     DUET_OK; DUET_ERR_FULL: a sequence would pass n_ctx, or all of them cache_tokens (trim one, and call
 *             again), nothing changed; DUET_ERR_ARG: a bad id, position or sequence, nothing changed; DUET_ERR_MEMORY,
 *             DUET_ERR_DEVICE, DUET_ERR_CANCELLED: the sequences hold the pieces that were finished; of a model with
 *             recurrent layers, the sequences of the unfinished piece are empty, but one token for each sequence is
 *             always finished when the call is cancelled
 * Thread      the session's; other sessions of the model may run
 * Cost        returns when the logits can be read */
DUET_API_STATUS duet_decode(duet_session* session, const duet_batch* batch);

/* Logits of the i-th token that asked for them in the last duet_decode, and how many asked.
 * Returns     n_vocab floats, which the caller may write to, valid until the next call on the session, -INFINITY where
 *             the file suppresses a token; NULL when i is out of range or they cannot be read from the device
 * Thread      the session's */
DUET_API float* duet_logits(duet_session* session, int32_t i);
DUET_API int32_t duet_logits_count(const duet_session* session);

/* Final hidden state, after the output norm, of the last token in the last duet_decode (also without want_logits).
 * Returns     dim floats, valid until the next call on the session; NULL when nothing ran, or it cannot be read
 * Thread      the session's */
DUET_API const float* duet_embedding(duet_session* session);

/* How one vector is made of a text's tokens. */
enum {
    DUET_POOL_FILE = 0,  /* as the file's key pooling_type says; without it MEAN for encoders, LAST for others */
    DUET_POOL_MEAN = 1,  /* the mean of all tokens */
    DUET_POOL_FIRST = 2, /* the first token (CLS) */
    DUET_POOL_LAST = 3   /* the last token */
};

typedef struct duet_embed_params {
    uint32_t struct_size;
    int32_t pooling;   /* DUET_POOL_... */
    int32_t normalise; /* default 1: vectors of length 1 */
    int32_t cut; /* 0: a text longer than n_ctx or cache_tokens is an error; 1: it is cut into pieces of like lengths,
                    whose vectors are averaged by their numbers of tokens */
} duet_embed_params;
DUET_DEFAULTS(duet_embed_params) /* duet_embed_params_init, duet_embed_params_default */

/* Computes the vector of each text, with BOS and EOS as the file asks; or of each run of ids, as it is. Up to n_seqs
 * texts share a batch of max_batch tokens; the bits are those of the text alone. Empties the session's sequences.
 * n_ids       of each of the n_texts texts, whose ids follow each other
 * params      may be NULL: the defaults
 * out         room for n_texts * embedding_dim floats
 * Returns     DUET_OK; DUET_ERR_FULL: a text is too long (text: which), nothing was computed; DUET_ERR_ARG: also a text
 *             without tokens; DUET_ERR_NAN (text: which); as duet_decode. After an error out may be written in part
 * Thread      the session's
 * Cost        computes the texts; of models that make text also the logits of every token that is pooled */
DUET_API_STATUS duet_embed(duet_session* session, const duet_string* texts, int32_t n_texts,
                           const duet_embed_params* params, float* out);
DUET_API_STATUS duet_embed_ids(duet_session* session, const int32_t* ids, const int32_t* n_ids, int32_t n_texts,
                               const duet_embed_params* params, float* out);

/* Scores how well each text answers a query: by the model's head (cls.weight, cls.output.weight), or by the logits of
 * "yes" and "no" behind the file's rerank prompt or Qwen3's. Empties the session's sequences.
 * scores      room for n_texts floats: the share of yes, 0..1; of heads without such labels the first label's value
 * Returns     as duet_embed; DUET_ERR_UNSUPPORTED: the model has neither
 * Thread      the session's */
DUET_API_STATUS duet_rerank(duet_session* session, const char* query, size_t n_query_bytes, const duet_string* texts,
                            int32_t n_texts, float* scores);

/* Asks a running duet_decode, duet_generate or duet_generate_next to stop; it returns DUET_ERR_CANCELLED within about
 * 100 ms. When none runs, the next one is stopped.
 * Thread      any, also a signal handler */
DUET_API void duet_session_cancel(duet_session* session);

/* Counts the tokens that a sequence holds.
 * Returns     the length; -1 when seq is out of range
 * Thread      the session's */
DUET_API int32_t duet_seq_length(const duet_session* session, int32_t seq);

/* The ids that a sequence holds.
 * Returns     duet_seq_length(session, seq) ids, valid until the next call on the session; NULL: no such sequence
 * Thread      the session's */
DUET_API const int32_t* duet_seq_ids(const duet_session* session, int32_t seq);

/* Shortens a sequence to the longest beginning that it has in common with ids and can go back to: of models with
 * recurrent layers all of what it holds or nothing.
 * ids         n_ids ids; may be NULL when n_ids is 0
 * Returns     how many tokens it holds now, at most n_ids; -1 when seq is out of range
 * Thread      the session's */
DUET_API int32_t duet_seq_reuse(duet_session* session, int32_t seq, const int32_t* ids, size_t n_ids);

/* Shortens a sequence to n_tok tokens (0 empties it).
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_STATE: recurrent layers cannot go back to an earlier position other
 *             than 0, and windowed layers not to one whose window they have given back
 * Thread      the session's */
DUET_API_STATUS duet_seq_trim(duet_session* session, int32_t seq, int32_t n_tok);

/* Makes dst a copy of src; cache pages are shared until one of them writes.
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_MEMORY: nothing changed; DUET_ERR_DEVICE: dst is empty
 * Thread      the session's */
DUET_API_STATUS duet_seq_copy(duet_session* session, int32_t src, int32_t dst);

/* Saves the state of one sequence as bytes, which any machine with the same model and numerics version can load. They
 * may hold what was trimmed from its last 64 positions, but nothing of other sequences.
 * out         room for max_bytes, written when they are enough; may be NULL to ask for the size
 * n_bytes     set to the size needed
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_FULL: max_bytes is too small; DUET_ERR_MEMORY; DUET_ERR_DEVICE
 * Thread      the session's */
DUET_API_STATUS duet_seq_save(duet_session* session, int32_t seq, void* out, uint64_t max_bytes, uint64_t* n_bytes);

/* Replaces a sequence by a saved state. The state holds no logits: a generation goes on from it with at least one id.
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_FORMAT: not a state, damaged, or of another model, mode, cache type or
 *             version, nothing changed; DUET_ERR_FULL: longer than n_ctx, or no free pages; DUET_ERR_MEMORY,
 *             DUET_ERR_DEVICE: the sequence is as it was, or empty
 * Thread      the session's */
DUET_API_STATUS duet_seq_load(duet_session* session, int32_t seq, const void* data, uint64_t n_bytes);

/* ---- sampling -------------------------------------------------------------------------------------------------- */

/* An ordered list of steps that turn logits into one id. */
typedef struct duet_sampler duet_sampler;

/* Makes a sampler that draws from the whole distribution.
 * seed        of the sampler's own generator (docs/numerics.md): it gives the same choices on every machine
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_MEMORY. Thread: any */
DUET_API_STATUS duet_sampler_create(uint64_t seed, duet_sampler** out);

/* duet_sampler_free frees a sampler. Generations that use it must have been freed before. duet_sampler_error gives
 * the text of the sampler's last failed call. Thread: the sampler's. */
DUET_API void duet_sampler_free(duet_sampler* sampler);
DUET_API const char* duet_sampler_error(const duet_sampler* sampler);

/* One row of the table of steps and their parameters: the only list of them. A step with several parameters has
 * several rows; a parameter is set as "step" (its first) or "step.parameter". */
typedef struct duet_sampler_param {
    const char* name; /* "top_k", "dry.base" */
    const char* help;
    float default_value; /* the step does nothing at this value */
    float min_value, max_value;
} duet_sampler_param;

/* Row i_row of that table.
 * Returns     the row, valid for ever; NULL past the last. Thread: any */
DUET_API const duet_sampler_param* duet_sampler_param_row(int32_t i_row);

/* Sets a parameter by name. Steps run in the order of the table.
 * Returns     DUET_OK; DUET_ERR_ARG: an unknown name (text: the names), NaN, or out of range (text: the range);
 *             DUET_ERR_MEMORY. Thread: the sampler's */
DUET_API_STATUS duet_sampler_set(duet_sampler* sampler, const char* name, float value);

/* Adds bias to one token's logit (-INFINITY forbids it).
 * Returns     DUET_OK; DUET_ERR_ARG: id < 0 or bias is NaN; DUET_ERR_MEMORY. Thread: the sampler's */
DUET_API_STATUS duet_sampler_bias(duet_sampler* sampler, int32_t id, float bias);

/* Names a token that breaks a repeated run for the DRY step (newline, quote, ...).
 * Returns     DUET_OK; DUET_ERR_ARG: id < 0; DUET_ERR_MEMORY. Thread: the sampler's */
DUET_API_STATUS duet_sampler_dry_breaker(duet_sampler* sampler, int32_t id);

/* Chooses an id from n_vocab logits (which are not changed), with the tokens accepted so far as history.
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_NAN: a logit is NaN or +inf (only duet_sampler_bias may force an id),
 *             or none is above -inf; DUET_ERR_MEMORY. Thread: the sampler's
 * Cost        linear in n_vocab */
DUET_API_STATUS duet_sampler_choose(duet_sampler* sampler, const float* logits, int32_t n_vocab, int32_t* id);

/* Adds an id to the history of penalties (prompt tokens and chosen ones), and to the text of the sampler's grammar.
 * Returns     DUET_OK; DUET_ERR_ARG: id < 0, or the grammar does not allow it; DUET_ERR_MEMORY. After an error nothing
 *             changed. Thread: the sampler's */
DUET_API_STATUS duet_sampler_accept(duet_sampler* sampler, int32_t id);

/* Forgets the history, starts the generator again from seed and a grammar's text anew. Thread: the sampler's. */
DUET_API void duet_sampler_reset(duet_sampler* sampler, uint64_t seed);

/* ---- constraints ----------------------------------------------------------------------------------------------- */

/* What a text may be: a grammar or a JSON schema, compiled for the vocabulary of a model. It is read-only once it was
 * made: any number of samplers may use it at once, in all threads, and its masks are shared.
 *
 *     duet_grammar_params params = duet_grammar_params_default();
 *     params.json_schema = "{\"type\": \"object\", \"properties\": {\"age\": {\"type\": \"integer\"}}}";
 *     status = duet_grammar_create(model, &params, &grammar);
 *     if (status == DUET_OK) status = duet_sampler_grammar(sampler, grammar);
 *     if (status == DUET_OK) status = duet_generate(session, sampler, ids, n_ids, NULL, show, NULL, NULL);
 *     if (status != DUET_OK) puts(duet_grammar_error(grammar));
 *        -> schema: #/properties/age/minimum: want a number within the range of doubles (...) */
typedef struct duet_grammar duet_grammar;

typedef struct duet_grammar_params {
    uint32_t struct_size;
    const char* gbnf;            /* rules in the notation GBNF (docs/grammar.md); or NULL */
    const char* root;            /* the rule of gbnf that the text must match; NULL: "root" */
    const char* json_schema;     /* a JSON schema; "{}": any JSON value; or NULL. One of gbnf and json_schema is set */
    const char* const* triggers; /* n_triggers strings. With any, the text is free until one of them was written; what
                                    begins with it must match, and then the text ends */
    int32_t n_triggers;          /* 0..64 */
    int32_t max_indent;          /* of JSON: most blanks after a new line; 0: no white space; default 16 */
} duet_grammar_params;
DUET_DEFAULTS(duet_grammar_params) /* duet_grammar_params_init, duet_grammar_params_default */

/* Compiles a grammar or a schema. The model may be freed before the grammar.
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_FORMAT: not GBNF (text: line and column) or no schema (text: the place),
 *             or nothing matches it; DUET_ERR_UNSUPPORTED: a keyword of JSON schema that limits the value and is not
 *             kept to (text: its place), or the model has no vocabulary; DUET_ERR_FULL: past a limit (docs/grammar.md);
 *             DUET_ERR_MEMORY. Thread: any
 * Cost        linear in the text; the first grammar of a model also sorts its vocabulary (0.1 s of 128k tokens) */
DUET_API_STATUS duet_grammar_create(const duet_model* model, const duet_grammar_params* params, duet_grammar** out);

/* duet_grammar_free frees a grammar. Samplers that use it keep what they need. duet_grammar_error gives the text of
 * the failed creation. Thread: when no other uses the handle. */
DUET_API void duet_grammar_free(duet_grammar* grammar);
DUET_API const char* duet_grammar_error(const duet_grammar* grammar);

/* Constrains a sampler: the ids that are accepted from now on spell a text of the grammar, from its beginning. Biases
 * come first, then the grammar forbids what may not follow, then the steps run. End tokens are allowed exactly where
 * the text may end. duet_sampler_accept refuses an id that may not follow (DUET_ERR_ARG). A generation's prompt does
 * not count, and a generation ends (DUET_STOP_END) as soon as nothing may follow. Choosing then fails also with
 * DUET_ERR_ARG: the text has ended, and with DUET_ERR_FORMAT: the vocabulary has no token for what must follow; it and
 * accepting fail with DUET_ERR_FULL past a limit (docs/grammar.md).
 * grammar     NULL: free again
 * Returns     DUET_OK; DUET_ERR_ARG: the grammar's creation failed; DUET_ERR_MEMORY. Thread: the sampler's
 * Cost        a mask that is new costs a walk of the vocabulary at the next choice, a known one nothing */
DUET_API_STATUS duet_sampler_grammar(duet_sampler* sampler, const duet_grammar* grammar);

/* Tells whether the text of the sampler's grammar is at its end: nothing may follow what was accepted.
 * Returns     1 or 0 (also without a grammar). Thread: the sampler's */
DUET_API int32_t duet_sampler_is_done(duet_sampler* sampler);

/* ---- text that is certain -------------------------------------------------------------------------------------- */

/* Turns tokens' bytes into text that may be shown: whole UTF-8 characters, free of stop strings and of what may still
 * become one. Generations have one inside; a program that runs several sequences through duet_decode makes one for
 * each. */
typedef struct duet_text_gate duet_text_gate;

/* Makes a gate.
 * stop        n_stop strings that end the text; may be NULL when n_stop is 0
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_MEMORY. Thread: any */
DUET_API_STATUS duet_text_gate_create(const char* const* stop, int32_t n_stop, duet_text_gate** out);

/* duet_text_gate_free frees a gate. duet_text_gate_error gives the text of the gate's last failed call. Thread: the
 * gate's. */
DUET_API void duet_text_gate_free(duet_text_gate* gate);
DUET_API const char* duet_text_gate_error(const duet_text_gate* gate);

/* Adds bytes. Bytes that are no UTF-8 become U+FFFD.
 * text        set to what may be shown now, perhaps nothing; valid until the next call on the gate
 * stopped     set to the number of the stop string that was met, from 1 on (what follows is dropped), or 0; may be NULL
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_MEMORY: the bytes were not added
 * Thread      the gate's */
DUET_API_STATUS duet_text_gate_add(duet_text_gate* gate, const char* bytes, size_t n_bytes, duet_string* text,
                                   int32_t* stopped);

/* Ends the text: gives what waited for more bytes; a character that is cut off becomes U+FFFD.
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_MEMORY
 * Thread      the gate's */
DUET_API_STATUS duet_text_gate_finish(duet_text_gate* gate, duet_string* text);

/* ---- generating ------------------------------------------------------------------------------------------------ */

typedef struct duet_generate_params {
    uint32_t struct_size;
    int32_t seq;             /* sequence to extend, default 0 */
    int32_t max_new_tok;     /* -1: until an end token or the context is full (then DUET_OK with stop_reason CONTEXT) */
    int32_t ignore_end;      /* 1: end tokens are forbidden and the text goes on */
    int32_t special;         /* 1: control tokens are written as their names */
    const char* const* stop; /* n_stop strings that end the text; not part of the output */
    int32_t n_stop;
} duet_generate_params;
DUET_DEFAULTS(duet_generate_params) /* duet_generate_params_init, duet_generate_params_default */

enum {
    DUET_STOP_NONE = -1,     /* it goes on */
    DUET_STOP_END = 0,       /* the model chose an end token, which is not part of the sequence; or its sampler's
                                grammar allows nothing more */
    DUET_STOP_LIMIT = 1,     /* max_new_tok tokens were made */
    DUET_STOP_STRING = 2,    /* a stop string was met */
    DUET_STOP_CALLBACK = 3,  /* the callback asked to stop */
    DUET_STOP_CONTEXT = 4,   /* the sequence holds n_ctx tokens */
    DUET_STOP_CANCELLED = 5, /* duet_session_cancel */
    DUET_STOP_ERROR = 6      /* an error: the status says which */
};

/* What a step of a generation brought. The token is in the sequence when its event is told. */
typedef struct duet_token_event {
    uint32_t struct_size;
    int32_t id;          /* the token; -1: none (a piece of the prompt, or the end) */
    int32_t pos;         /* the token's position; without one the sequence's length */
    int32_t stop_reason; /* DUET_STOP_NONE, or on the last event why it ended */
    const char* text;    /* bytes that are now certain, terminated: whole UTF-8 characters only, held back while a
                            character or a stop string may still be incomplete; may be "" */
    size_t n_bytes;      /* of text, without the terminator */
} duet_token_event;

typedef struct duet_generate_result {
    uint32_t struct_size;
    int32_t n_prompt_tok, n_new_tok;
    int32_t stop_reason; /* DUET_STOP_... */
    uint64_t prompt_us, generate_us;
} duet_generate_result;

/* A text in the making, asked for step by step:
 *
 *     duet_generation* generation;
 *     duet_token_event event;
 *     event.struct_size = sizeof event;
 *     status = duet_generate_begin(session, sampler, ids, n_ids, NULL, &generation);
 *     while (status == DUET_OK && (status = duet_generate_next(generation, &event)) == DUET_OK) {
 *         show(event.text, event.n_bytes);
 *         if (event.stop_reason != DUET_STOP_NONE) break;
 *     }
 *     duet_generation_free(generation);
 *
 * It may be left at any step: every token that was told is in the sequence, and a later generation with n_ids 0 goes
 * on from there. Six generations of one token each choose the ids of one generation of six and give the same text: a
 * UTF-8 character that a limit cuts off comes with the one that completes it. Each looks for stop strings alone. */
typedef struct duet_generation duet_generation;

/* Begins a generation and computes nothing yet.
 * ids         n_ids prompt ids, copied. With n_ids 0 (ids may be NULL) the sequence goes on from its kept logits:
 *             those of its last token, when the session's last duet_decode or generation ran it and the sequence was
 *             not trimmed, loaded or copied over since
 * params      may be NULL: the defaults
 * Returns     DUET_OK; DUET_ERR_FULL: the prompt does not fit (text: both lengths); DUET_ERR_STATE: n_ids is 0 and
 *             there are no kept logits; DUET_ERR_ARG (also n_ids 0 of an empty sequence); DUET_ERR_MEMORY. After
 *             an error nothing changed, *out is NULL, and the text is on the session
 * Thread      the session's and the sampler's; both must outlive the generation */
DUET_API_STATUS duet_generate_begin(duet_session* session, duet_sampler* sampler, const int32_t* ids, size_t n_ids,
                                    const duet_generate_params* params, duet_generation** out);

/* Does one step: a piece of at most max_batch prompt tokens, or one token, or the end. After another call on the
 * session that replaced the kept logits (duet_decode, another generation) it fails with DUET_ERR_STATE.
 * event       set event->struct_size before; filled also when an error is returned (with the text that waited);
 *             event->text is valid until the next call on the generation
 * Returns     DUET_OK; DUET_ERR_CANCELLED; DUET_ERR_NAN; DUET_ERR_STATE (also after the last event); DUET_ERR_ARG;
 *             DUET_ERR_FULL: cache_tokens; DUET_ERR_MEMORY; DUET_ERR_DEVICE. After an error the generation is at its
 *             end, and the sequence holds what was told before and nothing else (with recurrent layers perhaps none;
 *             a token that was cancelled half way leaves no kept logits). The text is on the session
 * Thread      the session's
 * Cost        computes the tokens of the step */
DUET_API_STATUS duet_generate_next(duet_generation* generation, duet_token_event* event);

/* Tells what a generation has done so far.
 * out         set out->struct_size before
 * Returns     DUET_OK; DUET_ERR_ARG
 * Thread      the session's */
DUET_API_STATUS duet_generation_result(const duet_generation* generation, duet_generate_result* out);

/* Ends a generation where it is. The sequence stays as it is. Thread: the session's. */
DUET_API void duet_generation_free(duet_generation* generation);

/* Takes each event that has a token or text. Return 0 to go on, anything else to stop (stop_reason CALLBACK). */
typedef int32_t (*duet_token_fn)(void* user, const duet_token_event* event);

/* Runs a generation to its end: duet_generate_begin, then duet_generate_next until something stops it.
 * ids, n_ids  as in duet_generate_begin
 * params      may be NULL: the defaults
 * on_token    may be NULL
 * result      may be NULL; set result->struct_size before; filled also when an error is returned
 * Returns     as duet_generate_begin and duet_generate_next
 * Thread      the session's and the sampler's
 * Cost        returns when the text has ended */
DUET_API_STATUS duet_generate(duet_session* session, duet_sampler* sampler, const int32_t* ids, size_t n_ids,
                              const duet_generate_params* params, duet_token_fn on_token, void* user,
                              duet_generate_result* result);

/* ---- chat ------------------------------------------------------------------------------------------------------ */

/* A conversation with a model: its messages, and the template of the model that turns them into a prompt.
 *
 *     duet_chat* chat = NULL; duet_chat_turn* turn = NULL;
 *     status = duet_chat_create(model, NULL, &chat);
 *     if (status == DUET_OK) status = duet_chat_add(chat, "user", "Who are you?", 12);
 *     if (status == DUET_OK) status = duet_chat_begin(chat, session, sampler, NULL, &turn);
 *     duet_chat_event event;
 *     event.struct_size = sizeof event;
 *     while (status == DUET_OK && (status = duet_chat_next(turn, &event)) == DUET_OK && event.kind != DUET_CHAT_END)
 *         if (event.kind == DUET_CHAT_TEXT) fwrite(event.text.data, 1, event.text.n_bytes, stdout);
 *     duet_chat_turn_free(turn);
 *     if (status != DUET_OK) puts(duet_chat_error(chat)); duet_chat_free(chat);
 *        -> model.gguf has no chat template (tokenizer.chat_template): name a built-in one (chatml, ...) or give a text
 *
 * What messages hold is text: it never becomes control tokens, whatever it spells. */
typedef struct duet_chat duet_chat;

typedef struct duet_chat_params {
    uint32_t struct_size;
    const char* chat_template; /* text of a template (Jinja, as Hugging Face's transformers run it); NULL: the file's */
    const char* template_name; /* one of the file's named templates, or a built-in one (a wrong name's error lists
                                  both); NULL: the default, with tools "tool_use" if there is one */
    const char* tools;         /* JSON: a list of functions as OpenAI's clients send it; NULL: none */
    const char* documents;     /* JSON: a list, for templates that quote documents; NULL: none */
    const char* variables;     /* JSON: an object of more variables for the template; NULL: none */
    const char* form;          /* how calls are written ("hermes", ...; a wrong name's error lists them); NULL: as
                                  the template shows */
    const char* now;           /* the template's clock, "2026-01-02T03:04:05"; NULL: the machine's local time */
    int32_t thinking;          /* 1 on, 0 off, -1 (default) as the template has it */
    int32_t keeps_markers;     /* 1: thinking stays in the text, with its markers; default 0 */
} duet_chat_params;
DUET_DEFAULTS(duet_chat_params) /* duet_chat_params_init, duet_chat_params_default */

/* Makes a conversation without messages. The model must outlive it.
 * params      may be NULL: the defaults; read during the call only
 * Returns     DUET_OK; DUET_ERR_STATE: the file has no template, and none was given; DUET_ERR_ARG: a bad value, no
 *             template or form of that name (text: the names), JSON of the wrong kind; DUET_ERR_FORMAT: broken JSON
 *             (text: the byte), a broken template (text: the line); DUET_ERR_UNSUPPORTED: what the template uses
 *             (text: the line), or the model has no vocabulary; DUET_ERR_MEMORY. Thread: any
 * Cost        a template of one's own is compiled and tried (about 1 ms); the file's is compiled once per model */
DUET_API_STATUS duet_chat_create(const duet_model* model, const duet_chat_params* params, duet_chat** out);

/* duet_chat_free frees a conversation. Its turns must have been freed before. duet_chat_error gives the text of the
 * chat's last failed call, its turns' included. Thread: the chat's. */
DUET_API void duet_chat_free(duet_chat* chat);
DUET_API const char* duet_chat_error(const duet_chat* chat);

/* Adds a message at the end: a text of n_bytes bytes (broken UTF-8 becomes U+FFFD; NULL when n_bytes is 0).
 * role        "system", "developer", "user", "assistant", "tool", or what the template knows
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_MEMORY
 * Thread      the chat's */
DUET_API_STATUS duet_chat_add(duet_chat* chat, const char* role, const char* text, size_t n_bytes);

/* Inserts messages before message i.
 * i           0..duet_chat_count(chat); -1: at the end
 * json        n_bytes bytes: a message as OpenAI's clients send it ({"role": ..., "content": text, null or a list of
 *             text parts, "tool_calls": [...], "tool_call_id": ..., "reasoning_content": ...}), or a list of them
 * Returns     DUET_OK; DUET_ERR_FORMAT: not JSON (text: the byte); DUET_ERR_ARG: no message (text: message, field,
 *             what was wanted); DUET_ERR_MEMORY. After an error nothing changed
 * Thread      the chat's */
DUET_API_STATUS duet_chat_insert(duet_chat* chat, int32_t i, const char* json, size_t n_bytes);

/* Removes n messages from message i on. The session's cache is reused as far as the rest is the same.
 * Returns     DUET_OK; DUET_ERR_ARG: out of range
 * Thread      the chat's */
DUET_API_STATUS duet_chat_remove(duet_chat* chat, int32_t i, int32_t n);

/* Counts the messages; gives message i as JSON in one line.
 * Returns     the number, 0 when chat is NULL; the bytes, valid until the next call on the chat, {NULL, 0} when i is
 *             out of range or memory ran out
 * Thread      the chat's */
DUET_API int32_t duet_chat_count(const duet_chat* chat);
DUET_API duet_string duet_chat_message(duet_chat* chat, int32_t i);

/* The template that is used; the name of the form in which calls are read.
 * Returns     text, valid as long as the chat; {NULL, 0} and NULL when chat is NULL or was not made
 * Thread      the chat's */
DUET_API duet_string duet_chat_template(const duet_chat* chat);
DUET_API const char* duet_chat_form(const duet_chat* chat);

/* A prompt: what the template makes of the messages. Pointers are valid until the next call on the chat. */
typedef struct duet_chat_prompt {
    uint32_t struct_size;
    int32_t opens_thinking; /* 1: the prompt ends inside thinking that it opened */
    duet_string text;
    const int32_t* ids; /* n_ids ids; what the template wrote may be control tokens, messages never are. BOS is
                           there once if the file asks for it */
    size_t n_ids;
    const int64_t* first_byte; /* for each message where it begins in text, */
    const int64_t* first_id;   /* and how many ids stand before it; -1: the template leaves the message out */
    int32_t n_messages;
} duet_chat_prompt;

enum {
    DUET_CHAT_NO_ANSWER = 1,    /* the prompt ends behind the last message: no beginning of an answer */
    DUET_CHAT_CONTINUE_LAST = 2 /* the last message (the assistant's) is unfinished: the prompt ends inside it */
};

/* Renders the messages.
 * flags       DUET_CHAT_..., or 0
 * out         set out->struct_size before
 * Returns     DUET_OK; DUET_ERR_ARG: the template refuses the messages (text: its words), no messages;
 *             DUET_ERR_UNSUPPORTED: the template cannot do this; DUET_ERR_FULL: a limit of templates; DUET_ERR_MEMORY
 * Thread      the chat's
 * Cost        about 1 ms for 100 messages */
DUET_API_STATUS duet_chat_render(duet_chat* chat, int32_t flags, duet_chat_prompt* out);

/* Renders any template (Jinja) with any variables (a JSON object), without a model.
 * now         as in duet_chat_params; out, max_bytes, n_bytes as in duet_detokenize
 * Returns     DUET_OK; DUET_ERR_FORMAT, DUET_ERR_UNSUPPORTED: the template (text: "template line N: ..."), or no JSON;
 *             DUET_ERR_ARG: the template refuses the variables; DUET_ERR_FULL: max_bytes is too small, or a limit (then
 *             *n_bytes is 0); DUET_ERR_MEMORY. The text is the thread's: duet_chat_error(NULL). Thread: any */
DUET_API_STATUS duet_template_render(const char* chat_template, size_t n_template_bytes, const char* variables,
                                     size_t n_variables_bytes, const char* now, char* out, size_t max_bytes,
                                     size_t* n_bytes);

enum {
    DUET_CHAT_NONE = 0,       /* nothing (more) yet */
    DUET_CHAT_PROMPT = 1,     /* n_done_tok of n_prompt_tok prompt tokens have been computed */
    DUET_CHAT_TEXT = 2,       /* text: of the answer */
    DUET_CHAT_THINKING = 3,   /* text: of the thinking before it */
    DUET_CHAT_CALL_BEGIN = 4, /* text: the name of the tool; call_id */
    DUET_CHAT_CALL_PIECE = 5, /* text: of the arguments, which are JSON */
    DUET_CHAT_CALL_END = 6,   /* is_complete */
    DUET_CHAT_END = 7         /* stop_reason; a parser whose answer met a stop string tells it too */
};

/* What an answer brought. Strings are valid until the next call on what gave the event. */
typedef struct duet_chat_event {
    uint32_t struct_size;
    int32_t kind;           /* DUET_CHAT_... */
    int32_t i_call;         /* number of the call: 0, 1, ...; -1: none */
    int32_t is_complete;    /* CALL_END: 1 when the call was written to its end */
    int32_t stop_reason;    /* DUET_STOP_NONE; of END why it ended */
    int32_t n_prompt_tok;   /* of the whole prompt (turns only) */
    int32_t n_reused_tok;   /* of them those that the sequence held already (turns only) */
    int32_t n_done_tok;     /* PROMPT: prompt tokens that the sequence holds by now; others: tokens of the answer */
    int32_t n_thinking_tok; /* of the answer so far */
    duet_string text;       /* whole UTF-8 characters; U+FFFD stands for bytes that are none */
    duet_string call_id;    /* CALL_BEGIN: the model's, or one that differs from all others of the conversation */
    int32_t i_stop;         /* END by a stop string: its place in the list, 0, 1, ...; else -1 */
} duet_chat_event;

/* Reads an answer token by token and splits it into events; what does not parse is text, and nothing is lost. Programs
 * that run duet_decode themselves use it (turns have one inside): after each duet_chat_parser_add, and after
 * duet_chat_parser_finish, they take events with duet_chat_parser_next until one is of kind NONE or END. */
typedef struct duet_chat_parser duet_chat_parser;

/* Makes a parser for an answer to the chat's messages as they are now. The chat's model must outlive it, the chat need
 * not.
 * opens_thinking  of the prompt
 * stop            n_stop strings that end the answer's text (not thinking, not calls); may be NULL when n_stop is 0
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_MEMORY
 * Thread      the chat's */
DUET_API_STATUS duet_chat_parser_create(const duet_chat* chat, int32_t opens_thinking, const char* const* stop,
                                        int32_t n_stop, duet_chat_parser** out);

/* duet_chat_parser_free frees a parser. duet_chat_parser_error gives the text of the parser's last failed call.
 * Thread: the parser's. */
DUET_API void duet_chat_parser_free(duet_chat_parser* parser);
DUET_API const char* duet_chat_parser_error(const duet_chat_parser* parser);

/* Adds a token of the answer, or ends the answer: what waited for more comes out. Events that were not taken stay.
 * Returns     DUET_OK; DUET_ERR_ARG: no such id; DUET_ERR_STATE: it has ended (also by a stop string); DUET_ERR_MEMORY
 * Thread      the parser's */
DUET_API_STATUS duet_chat_parser_add(duet_chat_parser* parser, int32_t id);
DUET_API_STATUS duet_chat_parser_finish(duet_chat_parser* parser);

/* Takes the next event, of kind NONE when there is none, END (again and again) when a stop string was met.
 * event       set event->struct_size before; its strings are valid until the next call on the parser
 * Returns     DUET_OK; DUET_ERR_ARG
 * Thread      the parser's */
DUET_API_STATUS duet_chat_parser_next(duet_chat_parser* parser, duet_chat_event* event);

/* The answer so far as an assistant's message for duet_chat_insert: content, reasoning_content, tool_calls.
 * Returns     JSON in one line, valid until the next call on the parser; {NULL, 0} when memory ran out
 * Thread      the parser's */
DUET_API duet_string duet_chat_parser_message(duet_chat_parser* parser);

/* What an answer must be. */
typedef struct duet_chat_grammar_params {
    uint32_t struct_size;
    const char* tool_choice; /* NULL or "auto": text or calls, and a call that is begun is kept to its tool's schema;
                                "none": no calls; "required": at least one call; else the name of the tool to call */
    int32_t parallel;        /* 0: at most one call; default 1: several, where the form can hold them */
    int32_t opens_thinking;  /* of the prompt */
    const char* json_schema; /* of the text of the answer; or NULL */
    const char* gbnf;        /* of the text of the answer; or NULL */
} duet_chat_grammar_params;
DUET_DEFAULTS(duet_chat_grammar_params) /* duet_chat_grammar_params_init, duet_chat_grammar_params_default */

/* Makes the grammar of an answer: thinking as the template has it, then calls of the chat's tools, or text. Parts of a
 * tool's schema that cannot be kept to are left out, unless it has "strict": true.
 * Returns     DUET_OK; DUET_ERR_ARG: a tool that is not there, calls without tools; DUET_ERR_UNSUPPORTED: the model's
 *             form has no calls, or a schema is not kept to (text: place); DUET_ERR_FORMAT, _FULL, _MEMORY
 * Thread      the chat's
 * Cost        as duet_grammar_create */
DUET_API_STATUS duet_chat_grammar(const duet_chat* chat, const duet_chat_grammar_params* params, duet_grammar** out);

typedef struct duet_chat_turn_params {
    uint32_t struct_size;
    int32_t seq;             /* sequence of the session, default 0 */
    int32_t max_new_tok;     /* -1: until the model ends or the context is full */
    int32_t flags;           /* DUET_CHAT_CONTINUE_LAST: goes on with the last message */
    const char* const* stop; /* n_stop strings that end the answer's text */
    int32_t n_stop;
} duet_chat_turn_params;
DUET_DEFAULTS(duet_chat_turn_params) /* duet_chat_turn_params_init, duet_chat_turn_params_default */

/* An answer in the making, asked for step by step (see the example of duet_chat). duet_session_cancel stops it from any
 * thread. When it ends, however it ends, or is freed, what was told of the answer is in the chat's messages. */
typedef struct duet_chat_turn duet_chat_turn;

/* Begins an answer to the messages: renders them and computes nothing yet. Of the sequence what is the same as the
 * prompt stays, the rest is dropped.
 * params      may be NULL: the defaults
 * Returns     DUET_OK; DUET_ERR_FULL: the prompt does not fit the context (text: both lengths), nothing changed: remove
 *             messages; DUET_ERR_ARG, DUET_ERR_UNSUPPORTED as duet_chat_render; DUET_ERR_MEMORY. After an error *out
 *             is NULL
 * Thread      the chat's, the session's and the sampler's; all must outlive the turn. The messages must not be
 *             changed before the turn has ended */
DUET_API_STATUS duet_chat_begin(duet_chat* chat, duet_session* session, duet_sampler* sampler,
                                const duet_chat_turn_params* params, duet_chat_turn** out);

/* Gives the next event; computes as many tokens as that takes. After END it fails with DUET_ERR_STATE.
 * event       set event->struct_size before; filled also when an error is returned (kind END)
 * Returns     DUET_OK; DUET_ERR_CANCELLED, DUET_ERR_NAN, DUET_ERR_FULL, DUET_ERR_DEVICE, DUET_ERR_MEMORY,
 *             DUET_ERR_STATE, DUET_ERR_ARG: the turn is at its end, and what was told before is in the messages
 * Thread      the chat's, the session's and the sampler's
 * Cost        computes the tokens of the event */
DUET_API_STATUS duet_chat_next(duet_chat_turn* turn, duet_chat_event* event);

/* Ends a turn where it is. Thread: the chat's. */
DUET_API void duet_chat_turn_free(duet_chat_turn* turn);

/* Saves a conversation as bytes: its messages and, unless session is NULL, the state of a sequence (no prompt again).
 * Returns     as duet_seq_save, like out, max_bytes and n_bytes
 * Thread      the chat's and the session's */
DUET_API_STATUS duet_chat_save(duet_chat* chat, duet_session* session, int32_t seq, void* out, uint64_t max_bytes,
                               uint64_t* n_bytes);

/* Replaces the messages, and unless session is NULL the state of a sequence, by saved ones. The template stays.
 * Returns     DUET_OK; DUET_ERR_ARG; DUET_ERR_FORMAT: not a conversation, damaged, or its state is of another model,
 *             mode, cache type or version, nothing changed; DUET_ERR_FULL, DUET_ERR_MEMORY, DUET_ERR_DEVICE: as
 *             duet_seq_load, the messages are as they were
 * Thread      the chat's and the session's */
DUET_API_STATUS duet_chat_load(duet_chat* chat, duet_session* session, int32_t seq, const void* data, uint64_t n_bytes);

/* ---- measuring ------------------------------------------------------------------------------------------------- */

/* Time per kind of op, while profiling is on: two clock reads per op, and the CPU's matmuls run one by one. */
typedef struct duet_profile_row {
    uint32_t struct_size; /* set by the library, whose struct it is */
    const char* op;       /* "matmul Q4_0" */
    uint64_t n_calls, time_us;
    uint64_t weight_bytes; /* weight and cache bytes read */
    uint64_t n_mac;        /* multiply-adds */
} duet_profile_row;

/* Switches profiling on or off; clears what was collected. Thread: the session's. */
DUET_API void duet_session_profile(duet_session* session, int32_t on);

/* Takes a picture of what was collected; shows row i_row of the last picture.
 * Returns     the number of rows, -1 when memory runs out or session is NULL; the row, valid until the next picture,
 *             NULL out of range
 * Thread      the session's */
DUET_API int32_t duet_session_profile_rows(duet_session* session);
DUET_API const duet_profile_row* duet_session_profile_row(const duet_session* session, int32_t i_row);

/* Called for each case of duet_self_test. difference: NULL when all bits are equal, else what differs. Return 0 to go
 * on, anything else to stop (the call returns DUET_ERR_CANCELLED). */
typedef int32_t (*duet_self_test_fn)(void* user, const char* name, const char* difference);

/* Runs every kind of operation and every number format in small on a device, and compares all bits with the plain C++
 * code.
 * device      "cpu", or what duet_model_params.device takes, without "auto"
 * cpu_isa     as in duet_model_params, for "cpu"; may be NULL
 * Returns     DUET_OK: all cases ran (report told which differ); DUET_ERR_DEVICE: no such device or instruction set;
 *             DUET_ERR_ARG; DUET_ERR_MEMORY; DUET_ERR_CANCELLED. Thread: any
 * Cost        seconds on the CPU and on cards */
DUET_API_STATUS duet_self_test(const char* device, const char* cpu_isa, duet_self_test_fn report, void* user);

/* Measures the memory bandwidth of a device: of "cpu" (or NULL) reading with n_threads threads (0: one per physical
 * core), the best of several patterns ("cpu:8+512": with 8 streams a thread, fetched 512 bytes ahead); of others
 * copying (bytes read and written). A model's weights are read where they lie; with NULL, or less than 1 MB a thread,
 * a new block is: 640 MB where the system has 5 GB free, else 192 MB.
 * Returns     GB/s; 0 when memory is short or there is no such device. Thread: any. Cost: about 0.3 s */
DUET_API double duet_measure_bandwidth_gbps(const char* device, const duet_model* model, int32_t n_threads);

#ifdef __cplusplus
}
#endif
#endif

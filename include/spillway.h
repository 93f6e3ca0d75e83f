/* Spillway for C: compile a model, open a package, let it answer.
 *
 * Stable: functions and numbers are only ever added. Handles are opaque, options are
 * names and values as text, so that a program built against an older library runs with
 * a newer one.
 *
 * Every function that can fail returns a spillway_status and takes `char** error`. It may
 * be NULL; otherwise *error becomes NULL, or after a failure a message that the caller
 * gives to spillway_free(). Strings are UTF-8 and end with NUL; those that go in are
 * copied. Different handles may be used by different threads at the same time, one handle
 * by one thread at a time. A NULL handle is SPILLWAY_INVALID_ARGUMENT, and the functions
 * that free take NULL. No function throws or ends the process. */

#ifndef SPILLWAY_SPILLWAY_H_
#define SPILLWAY_SPILLWAY_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SPILLWAY_API __attribute__((visibility("default")))
#else
#define SPILLWAY_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum spillway_status {
  SPILLWAY_OK = 0,
  SPILLWAY_INVALID_ARGUMENT = 1,    /* options or arguments are wrong */
  SPILLWAY_NOT_FOUND = 2,           /* a file, tensor, graph or library is not there */
  SPILLWAY_CORRUPT_DATA = 3,        /* a file is damaged or not what it claims to be */
  SPILLWAY_UNSUPPORTED = 4,         /* well-formed, but Spillway or the target cannot do it */
  SPILLWAY_FAILED_PRECONDITION = 5, /* the call is right but not now */
  SPILLWAY_IO = 6,                  /* the system refused a read or a write */
  SPILLWAY_RESOURCE_EXHAUSTED = 7,  /* out of memory, disk, context length */
  SPILLWAY_VENDOR = 8,              /* the vendor library returned an error */
  SPILLWAY_VENDOR_CRASH = 9,        /* the vendor library crashed */
  SPILLWAY_TIMEOUT = 10,            /* a deadline passed */
  SPILLWAY_CANCELLED = 11,          /* the user asked to stop */
  SPILLWAY_CHECK_FAILED = 12,       /* a verification ran and its limits were not met */
  SPILLWAY_INTERNAL = 13            /* a bug in Spillway */
} spillway_status;

typedef struct spillway_options spillway_options;
typedef struct spillway_session spillway_session;
typedef struct spillway_answer spillway_answer;

/* "0.1.0". Static, as is the next. */
SPILLWAY_API const char* spillway_version(void);
/* "invalid argument"; "unknown" for a number that is none. */
SPILLWAY_API const char* spillway_status_name(spillway_status status);
/* Frees a string that a function gave. */
SPILLWAY_API void spillway_free(char* text);

/* Options of all functions below, each reads its own. Defaults are those of the program
 * `spillway`. NULL when there is no memory. */
SPILLWAY_API spillway_options* spillway_options_new(void);
SPILLWAY_API void spillway_options_free(spillway_options* options);
/* Names are the fields of the C++ options; switches take "on" and "off":
 *   compile: soc, mode, prefill_ar_len, context_len, recipe, target_bits, target_sqnr_db,
 *     max_raised_bytes, recipe_output, kv_bits, calib_path (adds one), calib_tokens,
 *     prefix_tokens, num_shards, jobs, with_simulator, htp (auto, on, off), slc_allocator (off, on, auto),
 *     weight_sharing, optimization_level
 *   open: executor (host, htp), verify, online_prepare, performance_mode
 *   both: qnn_lib_dir, threads, attention_sink ("SINK,BATCH"), lookahead ("NGRAM,WINDOW,GCAP")
 *   generate: max_new_tokens, repetition_penalty, presence_penalty, logit_bias (adds one,
 *     "TOKEN=BIAS"), temperature, top_k, top_p, min_p, seed, ignore_eos, system_prompt,
 *     raw_prompt, parse_special
 * An unknown name and a value that cannot be read are SPILLWAY_INVALID_ARGUMENT; ranges are
 * checked by the function that uses the option. */
SPILLWAY_API spillway_status spillway_options_set(spillway_options* options, const char* name,
                                                  const char* value, char** error);

/* `fraction` of `stage` is done; negative: unknown. From any thread, one at a time. */
typedef void (*spillway_progress_callback)(const char* stage, double fraction, void* user);

/* Compiles a GGUF file to a package folder, which is replaced as a whole. `options`,
 * `on_progress` and `report_json` (what was made, for spillway_free()) may be NULL. */
SPILLWAY_API spillway_status spillway_compile(const char* model_path, const char* package_path,
                                              const spillway_options* options,
                                              spillway_progress_callback on_progress, void* user,
                                              char** report_json, char** error);

/* Loads a package. `options` may be NULL. */
SPILLWAY_API spillway_status spillway_open(const char* package_path,
                                           const spillway_options* options,
                                           spillway_session** session, char** error);
SPILLWAY_API void spillway_close(spillway_session* session);
SPILLWAY_API uint32_t spillway_context_len(const spillway_session* session);
/* Forgets the conversation that is still in the cache. */
SPILLWAY_API void spillway_reset(spillway_session* session);

/* Called with each new piece of text, `size` bytes of whole UTF-8 characters that end
 * with NUL; anything but 0 stops the answer. On the caller's thread. */
typedef int (*spillway_text_callback)(const char* piece, size_t size, void* user);

typedef struct spillway_message {
  const char* role; /* "system", "user", "assistant" */
  const char* content;
} spillway_message;

/* Answers a prompt: one turn of the user, or with the option raw_prompt the text itself.
 * `options`, `on_text` and `answer` may be NULL. What the cache still holds of the prompt
 * is not computed again. */
SPILLWAY_API spillway_status spillway_generate(spillway_session* session, const char* prompt,
                                               const spillway_options* options,
                                               spillway_text_callback on_text, void* user,
                                               spillway_answer** answer, char** error);
/* Answers the last of `count` messages. */
SPILLWAY_API spillway_status spillway_chat(spillway_session* session,
                                           const spillway_message* messages, size_t count,
                                           const spillway_options* options,
                                           spillway_text_callback on_text, void* user,
                                           spillway_answer** answer, char** error);
/* Continues `count` token ids. */
SPILLWAY_API spillway_status spillway_generate_tokens(spillway_session* session,
                                                      const uint32_t* tokens, size_t count,
                                                      const spillway_options* options,
                                                      spillway_text_callback on_text, void* user,
                                                      spillway_answer** answer, char** error);

/* What these return belongs to the answer. */
SPILLWAY_API const char* spillway_answer_text(const spillway_answer* answer);
SPILLWAY_API const uint32_t* spillway_answer_tokens(const spillway_answer* answer, size_t* count);
/* "end_of_text", "context_full", "max_new_tokens" or "cancelled". */
SPILLWAY_API const char* spillway_answer_stop_reason(const spillway_answer* answer);
/* Times, rates, cache use and memory: one JSON object. */
SPILLWAY_API const char* spillway_answer_stats_json(const spillway_answer* answer);
SPILLWAY_API void spillway_answer_free(spillway_answer* answer);

#ifdef __cplusplus
}
#endif

#endif /* SPILLWAY_SPILLWAY_H_ */

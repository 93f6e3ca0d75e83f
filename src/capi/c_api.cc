// The C interface: handles around the C++ objects, and every failure, exceptions
// included, as a status and a string.

#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "capi/option_values.h"
#include "spillway.h"
#include "spillway/compile.h"
#include "spillway/session.h"

using spillway::Answer;
using spillway::InvalidArgumentError;
using spillway::OkStatus;
using spillway::Result;
using spillway::Session;
using spillway::Status;
using spillway::StatusCode;

struct spillway_options {
  spillway::capi::Options values;
};

struct spillway_session {
  std::unique_ptr<Session> session;
};

struct spillway_answer {
  Answer answer;
  std::string stats_json;
};

namespace {

constexpr bool Same(spillway_status status, StatusCode code) {
  return static_cast<int>(status) == static_cast<int>(code);
}
static_assert(Same(SPILLWAY_OK, StatusCode::kOk) &&
              Same(SPILLWAY_INVALID_ARGUMENT, StatusCode::kInvalidArgument) &&
              Same(SPILLWAY_NOT_FOUND, StatusCode::kNotFound) &&
              Same(SPILLWAY_CORRUPT_DATA, StatusCode::kCorruptData) &&
              Same(SPILLWAY_UNSUPPORTED, StatusCode::kUnsupported) &&
              Same(SPILLWAY_FAILED_PRECONDITION, StatusCode::kFailedPrecondition) &&
              Same(SPILLWAY_IO, StatusCode::kIo) &&
              Same(SPILLWAY_RESOURCE_EXHAUSTED, StatusCode::kResourceExhausted) &&
              Same(SPILLWAY_VENDOR, StatusCode::kVendor) &&
              Same(SPILLWAY_VENDOR_CRASH, StatusCode::kVendorCrash) &&
              Same(SPILLWAY_TIMEOUT, StatusCode::kTimeout) &&
              Same(SPILLWAY_CANCELLED, StatusCode::kCancelled) &&
              Same(SPILLWAY_CHECK_FAILED, StatusCode::kCheckFailed) &&
              Same(SPILLWAY_INTERNAL, StatusCode::kInternal));

// malloc: the caller may be C. NULL when there is no memory.
char* Copy(const char* text, size_t size) {
  char* copy = static_cast<char*>(std::malloc(size + 1));
  if (copy == nullptr) return nullptr;
  std::memcpy(copy, text, size);
  copy[size] = '\0';
  return copy;
}

spillway_status Report(StatusCode code, const char* message, char** error) {
  if (code != StatusCode::kOk && error != nullptr) *error = Copy(message, std::strlen(message));
  return static_cast<spillway_status>(code);
}

// Runs `work`, a function that returns Status, behind the language border.
template <typename Work>
spillway_status Guard(char** error, const Work& work) {
  if (error != nullptr) *error = nullptr;
  try {
    const Status status = work();
    return Report(status.code(), status.message().c_str(), error);
  } catch (const std::bad_alloc&) {
    return Report(StatusCode::kResourceExhausted, "out of memory", error);
  } catch (const std::exception& exception) {
    return Report(StatusCode::kInternal, exception.what(), error);
  } catch (...) {
    return Report(StatusCode::kInternal, "an exception of unknown type", error);
  }
}

Status Missing(const char* what) { return InvalidArgumentError(std::string(what) + " is NULL"); }

spillway::capi::Options ValuesOf(const spillway_options* options) {
  return options == nullptr ? spillway::capi::Options() : options->values;
}

spillway::TextCallback TextCallbackOf(spillway_text_callback on_text, void* user) {
  if (on_text == nullptr) return nullptr;
  // The piece is inside a larger string; C wants a NUL behind it.
  return [on_text, user, text = std::string()](std::string_view piece) mutable {
    text.assign(piece);
    return on_text(text.c_str(), text.size(), user) == 0;
  };
}

Status Keep(Result<Answer> made, spillway_answer** answer) {
  if (!made.ok()) return made.status();
  if (answer == nullptr) return OkStatus();
  auto kept = std::make_unique<spillway_answer>();
  kept->answer = std::move(made).value();
  kept->stats_json = kept->answer.stats.ToJson();
  *answer = kept.release();
  return OkStatus();
}

}  // namespace

const char* spillway_version(void) { return SPILLWAY_VERSION; }

const char* spillway_status_name(spillway_status status) {
  if (status < SPILLWAY_OK || status > SPILLWAY_INTERNAL) return "unknown";
  return spillway::StatusCodeName(static_cast<StatusCode>(status)).data();
}

void spillway_free(char* text) { std::free(text); }

spillway_options* spillway_options_new(void) { return new (std::nothrow) spillway_options; }

void spillway_options_free(spillway_options* options) { delete options; }

spillway_status spillway_options_set(spillway_options* options, const char* name, const char* value,
                                     char** error) {
  return Guard(error, [&]() -> Status {
    if (options == nullptr) return Missing("options");
    if (name == nullptr || value == nullptr) return Missing("name or value");
    return spillway::capi::SetOption(options->values, name, value);
  });
}

spillway_status spillway_compile(const char* model_path, const char* package_path,
                                 const spillway_options* options,
                                 spillway_progress_callback on_progress, void* user,
                                 char** report_json, char** error) {
  if (report_json != nullptr) *report_json = nullptr;
  return Guard(error, [&]() -> Status {
    if (model_path == nullptr || package_path == nullptr) return Missing("a path");
    spillway::CompileOptions compile = ValuesOf(options).compile;
    compile.model_path = model_path;
    compile.output_path = package_path;
    spillway::ProgressCallback progress;
    if (on_progress != nullptr) {
      progress = [&](std::string_view stage, double fraction) {
        on_progress(std::string(stage).c_str(), fraction, user);
      };
    }
    SPILLWAY_ASSIGN_OR_RETURN(const spillway::CompileReport report,
                              spillway::Compile(compile, progress));
    if (report_json == nullptr) return OkStatus();
    const std::string json = report.ToJson();
    *report_json = Copy(json.data(), json.size());
    return *report_json != nullptr ? OkStatus() : spillway::ResourceExhaustedError("out of memory");
  });
}

spillway_status spillway_open(const char* package_path, const spillway_options* options,
                              spillway_session** session, char** error) {
  if (session != nullptr) *session = nullptr;
  return Guard(error, [&]() -> Status {
    if (package_path == nullptr || session == nullptr) return Missing("package_path or session");
    spillway::SessionOptions open = ValuesOf(options).session;
    open.package_path = package_path;
    auto opened = std::make_unique<spillway_session>();
    SPILLWAY_ASSIGN_OR_RETURN(opened->session, Session::Open(open));
    *session = opened.release();
    return OkStatus();
  });
}

void spillway_close(spillway_session* session) { delete session; }

uint32_t spillway_context_len(const spillway_session* session) {
  return session == nullptr ? 0 : session->session->context_len();
}

void spillway_reset(spillway_session* session) {
  if (session != nullptr) session->session->Reset();
}

spillway_status spillway_generate(spillway_session* session, const char* prompt,
                                  const spillway_options* options, spillway_text_callback on_text,
                                  void* user, spillway_answer** answer, char** error) {
  if (answer != nullptr) *answer = nullptr;
  return Guard(error, [&]() -> Status {
    if (session == nullptr || prompt == nullptr) return Missing("session or prompt");
    return Keep(session->session->Generate(std::string_view(prompt), ValuesOf(options).run,
                                           TextCallbackOf(on_text, user)),
                answer);
  });
}

spillway_status spillway_chat(spillway_session* session, const spillway_message* messages,
                              size_t count, const spillway_options* options,
                              spillway_text_callback on_text, void* user, spillway_answer** answer,
                              char** error) {
  if (answer != nullptr) *answer = nullptr;
  return Guard(error, [&]() -> Status {
    if (session == nullptr || messages == nullptr) return Missing("session or messages");
    std::vector<spillway::ChatTurn> turns;
    for (size_t i = 0; i < count; ++i) {
      if (messages[i].role == nullptr || messages[i].content == nullptr) {
        return Missing("role or content of a message");
      }
      turns.push_back({messages[i].role, messages[i].content});
    }
    if (turns.empty()) return InvalidArgumentError("there is no message to answer");
    return Keep(
        session->session->Generate(turns, ValuesOf(options).run, TextCallbackOf(on_text, user)),
        answer);
  });
}

spillway_status spillway_generate_tokens(spillway_session* session, const uint32_t* tokens,
                                         size_t count, const spillway_options* options,
                                         spillway_text_callback on_text, void* user,
                                         spillway_answer** answer, char** error) {
  if (answer != nullptr) *answer = nullptr;
  return Guard(error, [&]() -> Status {
    if (session == nullptr || tokens == nullptr) return Missing("session or tokens");
    return Keep(session->session->GenerateFromTokens(
                    std::span(tokens, count), ValuesOf(options).run, TextCallbackOf(on_text, user)),
                answer);
  });
}

const char* spillway_answer_text(const spillway_answer* answer) {
  return answer == nullptr ? "" : answer->answer.text.c_str();
}

const uint32_t* spillway_answer_tokens(const spillway_answer* answer, size_t* count) {
  if (count != nullptr) *count = answer == nullptr ? 0 : answer->answer.tokens.size();
  return answer == nullptr ? nullptr : answer->answer.tokens.data();
}

const char* spillway_answer_stop_reason(const spillway_answer* answer) {
  return answer == nullptr ? "" : answer->answer.stop_reason.c_str();
}

const char* spillway_answer_stats_json(const spillway_answer* answer) {
  return answer == nullptr ? "{}" : answer->stats_json.c_str();
}

void spillway_answer_free(spillway_answer* answer) { delete answer; }

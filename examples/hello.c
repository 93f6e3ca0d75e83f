/* hello MODEL.gguf PACKAGE PROMPT: compiles the model for the host, and lets it answer. */
#include <spillway.h>
#include <stdio.h>

static int print(const char* piece, size_t size, void* user) {
  (void)user;
  fwrite(piece, 1, size, stdout);
  return fflush(stdout); /* not 0, when nobody reads, stops the answer */
}

static int fail(spillway_status status, char* error) {
  fprintf(stderr, "%s: %s\n", spillway_status_name(status), error != NULL ? error : "");
  spillway_free(error);
  return 1;
}

int main(int argc, char** argv) {
  static const char* const settings[][2] = {
      {"htp", "off"}, {"context_len", "256"}, {"temperature", "0"}, {"max_new_tokens", "20"}};
  spillway_options* options = spillway_options_new();
  spillway_session* session = NULL;
  spillway_answer* answer = NULL;
  spillway_status status = SPILLWAY_OK;
  char* error = NULL;
  size_t i;
  if (argc != 4) return fail(SPILLWAY_INVALID_ARGUMENT, NULL);
  for (i = 0; status == SPILLWAY_OK && i < sizeof(settings) / sizeof(settings[0]); ++i) {
    status = spillway_options_set(options, settings[i][0], settings[i][1], &error);
  }
  if (status == SPILLWAY_OK) {
    status = spillway_compile(argv[1], argv[2], options, NULL, NULL, NULL, &error);
  }
  if (status == SPILLWAY_OK) status = spillway_open(argv[2], options, &session, &error);
  if (status == SPILLWAY_OK) {
    status = spillway_generate(session, argv[3], options, print, NULL, &answer, &error);
  }
  if (status == SPILLWAY_OK) printf("\n[%s]\n", spillway_answer_stop_reason(answer));
  spillway_answer_free(answer);
  spillway_close(session);
  spillway_options_free(options);
  return status == SPILLWAY_OK ? 0 : fail(status, error);
}

// hello PACKAGE PROMPT...: answers the prompts as the turns of one conversation.

#include <spillway/conversation.h>
#include <spillway/session.h>

#include <iostream>
#include <string>
#include <string_view>
#include <vector>

namespace {

spillway::Status Talk(const std::string& package, const std::vector<std::string>& prompts) {
  spillway::SessionOptions open;
  open.package_path = package;
  SPILLWAY_ASSIGN_OR_RETURN(const auto session, spillway::Session::Open(open));

  spillway::RunOptions run;
  run.temperature = 0;
  run.max_new_tokens = 20;
  spillway::Conversation conversation;
  for (const std::string& prompt : prompts) {
    const auto print = [](std::string_view piece) {
      std::cout << piece << std::flush;
      return std::cout.good();
    };
    SPILLWAY_ASSIGN_OR_RETURN(const spillway::Answer answer,
                              conversation.Ask(*session, prompt, run, print));
    std::cout << "\n[" << answer.stats.reused_tokens << " tokens were still in the cache, "
              << answer.stats.decode_tokens_per_s << " tokens/s]\n";
  }
  std::cout << "turns: " << conversation.turns().size() << "\n";
  return spillway::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const spillway::Status status = Talk(argv[1], {argv + 2, argv + argc});
  if (!status.ok()) std::cerr << status.ToString() << "\n";
  return status.ok() ? 0 : 1;
}

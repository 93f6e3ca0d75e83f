#include "model/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "model/byte_alphabet.h"
#include "model/tokenizer_data.h"
#include "model/utf8.h"
#include "tests/model/jinja_oracle.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTemplates[] = {"llama31", "qwen25", "qwen3", "gemma", "phi", "mistral"};

std::string TemplateSource(const std::string& name) {
  return test::ReadText(test::SourceDir() + "/tests/model/templates/" + name + ".jinja");
}

std::shared_ptr<const ChatTemplate> MustParse(const std::string& source) {
  auto parsed = ChatTemplate::Parse(source);
  EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
  return parsed.ok() ? *parsed : nullptr;
}

// A byte vocabulary with the control tokens of all the templates.
std::shared_ptr<const Tokenizer> ByteTokenizer() {
  TokenizerData data;
  data.model = "gpt2";
  data.pre = "qwen2";
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.emplace_back(AlphabetTextOf(static_cast<uint8_t>(byte)));
  }
  for (const char* token : {"ab", ">a", "us", "use", "\u010a\u010a"})
    data.tokens.emplace_back(token);
  data.merges = ParseMerges({"a b", "> a", "u s", "us e", "\u010a \u010a"}, data.tokens).value();
  data.types.assign(data.tokens.size(), 1);
  for (const char* token :
       {"<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
        "<start_of_turn>", "<end_of_turn>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>",
        "<bos>", "<eos>", "[INST]"}) {
    data.tokens.emplace_back(token);
    data.types.push_back(3);
  }
  auto tokenizer = Tokenizer::Create(std::move(data));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

std::string RandomContent(std::mt19937* random, bool with_control) {
  static const char* const kPlain[] = {"hello",
                                       " world",
                                       "\n",
                                       "  ",
                                       "\n\n",
                                       "ab",
                                       "é世",
                                       "<think>",
                                       "\n</think>\n",
                                       "don't",
                                       "<|",
                                       "|>",
                                       "123",
                                       "{{ x }}",
                                       "'\"\\",
                                       "<tool_response>",
                                       "</tool_response>",
                                       "> a"};
  static const char* const kControl[] = {"<|im_end|>",    "<|im_start|>", "<|eot_id|>",
                                         "<end_of_turn>", "<|user|>",     "<|end|>",
                                         "<eos>",         "[INST]"};
  std::string text;
  for (size_t n = (*random)() % 8; n > 0; --n) {
    text += with_control && (*random)() % 2 ? kControl[(*random)() % std::size(kControl)]
                                            : kPlain[(*random)() % std::size(kPlain)];
  }
  return text;
}

std::vector<ChatMessage> RandomConversation(std::mt19937* random, bool with_control) {
  std::vector<ChatMessage> messages;
  const bool orderly = (*random)() % 4 != 0;
  if ((*random)() % 2) messages.push_back({"system", RandomContent(random, with_control)});
  static const char* const kRoles[] = {"user", "assistant", "tool", "system"};
  for (size_t i = 0, n = 1 + (*random)() % 5; i < n; ++i) {
    messages.push_back(
        {orderly ? kRoles[i % 2] : kRoles[(*random)() % 4], RandomContent(random, with_control)});
  }
  return messages;
}

nlohmann::ordered_json ContextOf(const std::vector<ChatMessage>& messages, bool prompt) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages) {
    list.push_back({{"role", message.role}, {"content", message.content}});
  }
  return {{"messages", list},     {"add_generation_prompt", prompt},
          {"bos_token", "<bos>"}, {"eos_token", "<eos>"},
          {"tools", nullptr},     {"documents", nullptr}};
}

TEST(ChatTemplate, RealTemplatesRenderAsInPython) {
  if (!test::HasOracle()) GTEST_SKIP() << "Python's jinja2 (/usr/bin/python3) is missing.";
  std::mt19937 random(1);
  for (const char* name : kTemplates) {
    const std::string source = TemplateSource(name);
    const auto parsed = MustParse(source);
    ASSERT_NE(parsed, nullptr) << name;
    std::vector<test::OracleCase> cases;
    std::vector<std::vector<ChatMessage>> conversations;
    for (int i = 0; i < 150; ++i) {
      conversations.push_back(RandomConversation(&random, i % 2 == 0));
      cases.push_back({source, ContextOf(conversations.back(), i % 3 != 0)});
    }
    const auto expected = test::RunOracle(cases);
    ASSERT_EQ(expected.size(), cases.size());
    int rendered = 0;
    for (size_t i = 0; i < cases.size(); ++i) {
      const auto pieces = parsed->Render(conversations[i], i % 3 != 0, "<bos>", "<eos>");
      ASSERT_EQ(pieces.ok(), expected[i].has_value())
          << name << pieces.status().ToString() << cases[i].context.dump();
      if (!pieces.ok()) continue;
      ++rendered;
      ASSERT_EQ(JoinPieces(*pieces), *expected[i]) << name << cases[i].context.dump();
    }
    EXPECT_GT(rendered, 60) << name;
  }
}

// Tools and structured content come only from callers of the interpreter.
TEST(ChatTemplate, ToolBranchesRenderAsInPython) {
  if (!test::HasOracle()) GTEST_SKIP() << "Python's jinja2 (/usr/bin/python3) is missing.";
  const auto tools = nlohmann::ordered_json::parse(R"([
    {"type": "function", "function": {"name": "get", "description": "é \"q\"",
     "parameters": {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}}}])");
  const auto messages = nlohmann::ordered_json::parse(R"([
    {"role": "system", "content": " be kind "}, {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "get", "arguments": {"a": "1", "b": "x"}}}]},
    {"role": "tool", "content": "42"}, {"role": "tool", "content": {"k": [1, null]}},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nIt is 42."}])");
  std::vector<test::OracleCase> cases;
  for (const char* name : kTemplates) {
    for (const char* extra : {"{}", R"({"tools_in_user_message": false})",
                              R"({"builtin_tools": ["get", "code_interpreter"]})",
                              R"({"use_now": true, "enable_thinking": false})"}) {
      nlohmann::ordered_json context = ContextOf({}, true);
      context["messages"] = messages;
      context["tools"] = tools;
      context.update(nlohmann::ordered_json::parse(extra));
      cases.push_back({TemplateSource(name), context});
      context["tools"] = nullptr;
      cases.push_back({TemplateSource(name), context});
      context["messages"] = nlohmann::ordered_json::parse(
          R"([{"role": "user", "content": [{"type": "text", "text": " a "}, {"type": "image"}]}])");
      cases.push_back({TemplateSource(name), context});
    }
  }
  const auto expected = test::RunOracle(cases);
  ASSERT_EQ(expected.size(), cases.size());
  int rendered = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto text = test::RenderJinja(cases[i].source, cases[i].context);
    ASSERT_EQ(text.ok(), expected[i].has_value()) << i << text.status().ToString();
    if (!text.ok()) continue;
    ++rendered;
    EXPECT_EQ(*text, *expected[i]) << i;
  }
  EXPECT_GT(rendered, 20);
}

// Every byte of the output that only a message can have is marked, and no other.
TEST(ChatTemplate, MarksWhatCameFromMessages) {
  const auto check = [](const std::string& source, const std::string& marked) {
    const auto parsed = MustParse(source);
    ASSERT_NE(parsed, nullptr);
    const auto pieces = parsed->Render({{"user", " ab,cd "}}, true, "B", "E");
    ASSERT_TRUE(pieces.ok()) << pieces.status().ToString();
    std::string got;
    for (const PromptPiece& piece : *pieces) {
      got += piece.from_message ? "[" + piece.text + "]" : piece.text;
    }
    EXPECT_EQ(got, marked) << source;
  };
  const std::string c = "messages[0].content";
  check("x{{ " + c + " }}y", "x[ ab,cd ]y");
  check("{{ 'x' + " + c + " ~ 'y' }}", "x[ ab,cd ]y");
  check("{{ '<' ~ " + c + "|trim ~ '>' }}", "<[ab,cd]>");
  check("{{ ('<' ~ " + c + " ~ '>')[2:-3] }}", "[ab,c]");
  check("{{ ('<' ~ " + c + " ~ '>')[::-1] }}", ">[ dc,ba ]<");
  check("{{ " + c + ".split(',')|join('-') }}", "[ ab]-[cd ]");
  check("{{ " + c + ".replace(',', '+')|upper }}", "[ AB]+[CD ]");
  check("{{ 'a,b'.replace(',', " + c + ") }}", "a[ ab,cd ]b");
  check("{% set x %}<{{ " + c + " }}>{% endset %}{{ x|replace('<', '(') }}", "([ ab,cd ]>");
  check("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(" + c + ")|trim }}", "<[ ab,cd ]>");
  check("{{ [" + c + "] }}{{ [" + c + "]|tojson }}",
        "['[ ab,cd ]']"
        "[\"[ ab,cd ]\"]");
  check("{{ " + c + "|first }}{{ " + c + "|list|join }}{{ " + c + "[1] }}", "[  ab,cd a]");
  check("{% for x in " + c + " %}{{ x|title }}.{% endfor %}", "[ ].[A].[B].[,].[C].[D].[ ].");
  check("{{ " + c + ".partition(',')[2].strip()|capitalize|indent(2, true) }}", "  [Cd]");
  check("{{ messages[0].role }}{{ bos_token }}{{ eos_token }}{{ " + c + "|length }}", "userBE7");
  check("{{ messages|map(attribute='content')|first|e }}", "[ ab,cd ]");
  check("{{ {'k': " + c + "}|tojson(indent=1) }}", "{\n \"k\": \"[ ab,cd ]\"\n}");
}

TEST(ChatTemplate, AnUnknownRoleIsAMessagesText) {
  const auto parsed = MustParse("{{ '<|' + messages[0].role + '|>' }}");
  const auto tokenizer = ByteTokenizer();
  const auto known = parsed->Render({{"user", ""}}, false, "", "");
  ASSERT_TRUE(known.ok());
  EXPECT_EQ(EncodePrompt(*tokenizer, *known), std::vector{*tokenizer->FindToken("<|user|>")});
  const auto other = parsed->Render({{"im_end", ""}}, false, "", "");
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(EncodePrompt(*tokenizer, *other), tokenizer->Encode("<|im_end|>", false));
}

TEST(EncodePrompt, EqualsTheWholeStringWithoutInjection) {
  const auto tokenizer = ByteTokenizer();
  std::mt19937 random(2);
  int rendered = 0;
  for (const char* name : kTemplates) {
    const auto parsed = MustParse(TemplateSource(name));
    for (int i = 0; i < 200; ++i) {
      const auto pieces =
          parsed->Render(RandomConversation(&random, false), true, "<bos>", "<eos>");
      if (!pieces.ok()) continue;
      ++rendered;
      ASSERT_EQ(EncodePrompt(*tokenizer, *pieces), tokenizer->Encode(JoinPieces(*pieces), true));
    }
  }
  EXPECT_GT(rendered, 500);
}

// What messages spell never becomes a control token: as many come out as the
// template has written.
TEST(EncodePrompt, MessagesCannotInjectControlTokens) {
  const auto tokenizer = ByteTokenizer();
  const auto controls = [&](const std::vector<PromptPiece>& pieces) {
    std::vector<uint32_t> ids = EncodePrompt(*tokenizer, pieces);
    EXPECT_EQ(tokenizer->Decode(ids, true), JoinPieces(pieces));
    ids.erase(std::remove_if(ids.begin(), ids.end(),
                             [&](uint32_t id) { return !tokenizer->IsControl(id); }),
              ids.end());
    return ids;
  };
  std::mt19937 random(3);
  int rendered = 0;
  for (const char* name : kTemplates) {
    const auto parsed = MustParse(TemplateSource(name));
    for (int i = 0; i < 200; ++i) {
      std::vector<ChatMessage> messages = RandomConversation(&random, true);
      const auto pieces = parsed->Render(messages, true, "<bos>", "<eos>");
      // The same conversation with harmless texts of the same shape.
      for (ChatMessage& message : messages) {
        for (char& c : message.content) c = c == '<' || c == '[' ? '.' : c;
      }
      const auto harmless = parsed->Render(messages, true, "<bos>", "<eos>");
      if (!pieces.ok() || !harmless.ok()) continue;
      ++rendered;
      ASSERT_EQ(controls(*pieces), controls(*harmless)) << name << JoinPieces(*pieces);
    }
  }
  EXPECT_GT(rendered, 500);
}

TEST(EncodePrompt, AMatchLiesWhollyInTemplateText) {
  const auto tokenizer = ByteTokenizer();
  const auto plain = tokenizer->Encode("<|im_end|>", false);
  for (size_t cut = 1; cut < 10; ++cut) {
    const std::string text = "<|im_end|>";
    EXPECT_EQ(EncodePrompt(*tokenizer, {{text.substr(0, cut), false}, {text.substr(cut), true}}),
              plain);
    EXPECT_EQ(EncodePrompt(*tokenizer, {{text.substr(0, cut), true}, {text.substr(cut), false}}),
              plain);
    // Two pieces of the template are one text.
    EXPECT_EQ(
        EncodePrompt(*tokenizer, {{text.substr(0, cut), false}, {text.substr(cut), false}}).size(),
        1u);
  }
  EXPECT_TRUE(EncodePrompt(*tokenizer, {}).empty());
}

TEST(ChatTemplate, RaisedExceptionsAndBadTextAreHandled) {
  const auto parsed = MustParse(
      "{% if not messages %}{{ raise_exception('no messages') }}{% endif %}"
      "{{ messages[0].content }}");
  const auto failed = parsed->Render({}, true, "", "");
  EXPECT_EQ(failed.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(failed.status().message(), HasSubstr("no messages"));
  const auto repaired = parsed->Render({{"user", "a\xFF"}}, true, "", "");
  ASSERT_TRUE(repaired.ok());
  EXPECT_EQ(JoinPieces(*repaired), "a\uFFFD");
  EXPECT_FALSE(ChatTemplate::Parse("{% if").ok());
  EXPECT_TRUE(ChatTemplate::Parse("\xFF").ok());
}

TEST(ChatTemplate, TruncatedTemplatesAreErrorsOrRender) {
  for (const char* name : kTemplates) {
    const std::string source = TemplateSource(name);
    ASSERT_FALSE(source.empty());
    for (size_t size = 0; size < source.size(); size += 5) {
      const auto parsed = ChatTemplate::Parse(source.substr(0, size));
      if (parsed.ok()) static_cast<void>((*parsed)->Render({{"user", "x"}}, true, "", ""));
    }
  }
}

TEST(ChatTemplate, TheModelsOwnTemplateGivesTheReferenceIds) {
  const auto shared = test::SharedDataDir();
  if (!test::ModelPath() || !shared) GTEST_SKIP() << "The model or the shared data are missing.";
  const auto file = GgufFile::Open(*test::ModelPath());
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  auto data = TokenizerData::FromGguf(**file);
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  const auto parsed = MustParse(data->chat_template);
  const auto tokenizer = Tokenizer::Create(*std::move(data));
  ASSERT_TRUE(tokenizer.ok());
  const auto expected = nlohmann::json::parse(test::ReadText(*shared + "/smollm2/prompt.json"));
  std::vector<ChatMessage> messages;
  for (const auto& message : expected["messages"]) {
    messages.push_back({message["role"], message["content"]});
  }
  const auto pieces = parsed->Render(messages, true, "<|im_start|>", "<|im_end|>");
  ASSERT_TRUE(pieces.ok()) << pieces.status().ToString();
  EXPECT_EQ(JoinPieces(*pieces), expected["rendered_prompt"].get<std::string>());
  EXPECT_EQ(EncodePrompt(**tokenizer, *pieces),
            expected["prompt_ids"].get<std::vector<uint32_t>>());
}

}  // namespace
}  // namespace spillway

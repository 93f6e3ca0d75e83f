// A vendor job in a child process: both sides of the conversation.
//
// Parent to child: the job. Child to parent, any number of
//   {"event":"progress","stage":...,"fraction":...}
//   {"event":"log","level":...,"line":...}
// and at the end {"event":"result","result":{...}} or
// {"event":"error","code":...,"message":...}.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/subprocess.h"
#include "base/worker_program.h"
#include "compiler/vendor_job.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLastLines = 12;
constexpr double kSaverEndTimeoutS = 60;

// A line that is not UTF-8 must not break the message.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

class WorkerClient {
 public:
  WorkerClient(const VendorJob& job, double timeout_s, const VendorEvents& events)
      : job_(job), events_(events), timeout_s_(timeout_s) {}

  Result<VendorResult> Run() {
    SPILLWAY_ASSIGN_OR_RETURN(const std::string program, FindWorkerProgram());
    SPILLWAY_ASSIGN_OR_RETURN(process_, Subprocess::Start(program, {}));
    const Status sent = process_->channel().Send(job_.ToJson());
    if (!sent.ok()) return Died(sent);
    const auto start = std::chrono::steady_clock::now();
    while (true) {
      // The vendor's compiler says something several times a second.
      if (events_.stop != nullptr && *events_.stop) {
        process_->Kill();
        return FailedPreconditionError("stopped");
      }
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      Result<Message> message =
          process_->channel().Receive(std::max(0.001, timeout_s_ - elapsed.count()));
      if (!message.ok()) return Died(message.status());
      const Json json = Json::parse(message->text, nullptr, /*allow_exceptions=*/false);
      if (!json.is_object()) return InternalError("the worker sent a message that is not JSON");
      const std::string event = json.value("event", "");
      if (event == "result") {
        // The vendor's saver writes the end of its record when its process ends.
        if (!job_.htp.saver_dir.empty()) {
          SPILLWAY_RETURN_IF_ERROR(process_->Wait(kSaverEndTimeoutS).status());
        }
        return VendorResult::FromJson(Dump(json.value("result", Json())));
      }
      if (event == "error") {
        return Status(static_cast<StatusCode>(json.value("code", 0)), json.value("message", ""));
      }
      Handle(event, json);
    }
  }

 private:
  void Handle(const std::string& event, const Json& json) {
    if (event == "progress" && events_.progress) {
      events_.progress(json.value("stage", ""), json.value("fraction", -1.0));
    }
    if (event == "log") {
      const std::string line = json.value("line", "");
      last_lines_.push_back(line);
      if (last_lines_.size() > kLastLines) last_lines_.pop_front();
      if (events_.log) events_.log(static_cast<LogLevel>(json.value("level", 0)), line);
    }
  }

  Status Died(const Status& reason) {
    std::string what;
    if (reason.code() == StatusCode::kTimeout) {
      process_->Kill();
      what = fmt::format(
          "did not finish within {:.0f} s and was stopped; raise the limit with "
          "--vendor-timeout",
          timeout_s_);
    } else {
      const Result<ExitInfo> exit = process_->Wait(10.0);
      what = exit.ok() ? exit->ToString() : reason.message();
    }
    std::string words = process_->Output();
    for (const std::string& line : last_lines_) words += (words.empty() ? "" : "\n") + line;
    const std::string message = fmt::format(
        "the vendor library's process {} while it compiled shard {} into {}. Its last "
        "words:\n{}",
        what, job_.shard, job_.output_path, words.empty() ? "(none)" : words);
    return reason.code() == StatusCode::kTimeout ? TimeoutError(message)
                                                 : VendorCrashError(message);
  }

  const VendorJob& job_;
  const VendorEvents& events_;
  double timeout_s_;
  std::unique_ptr<Subprocess> process_;
  std::deque<std::string> last_lines_;
};

}  // namespace

Result<VendorResult> RunVendorJobInWorker(const VendorJob& job, double timeout_s,
                                          const VendorEvents& events) {
  return WorkerClient(job, timeout_s, events).Run();
}

Status ServeVendorJob(Channel& channel, std::string_view request) {
  std::mutex mutex;  // the vendor logs from its own threads
  const auto send = [&](const Json& json) {
    const std::lock_guard<std::mutex> lock(mutex);
    return channel.Send(Dump(json));
  };
  // A parent that is gone ends this process soon; nothing more to do about it.
  VendorEvents events;
  events.progress = [&](std::string_view stage, double fraction) {
    (void)send({{"event", "progress"}, {"stage", stage}, {"fraction", fraction}});
  };
  events.log = [&](LogLevel level, std::string_view line) {
    (void)send({{"event", "log"}, {"level", static_cast<int>(level)}, {"line", line}});
  };
  const Result<VendorJob> job = VendorJob::FromJson(request);
  const Result<VendorResult> result =
      job.ok() ? RunVendorJob(*job, events) : Result<VendorResult>(job.status());
  if (result.ok()) {
    return send({{"event", "result"}, {"result", Json::parse(result->ToJson())}});
  }
  return send({{"event", "error"},
               {"code", static_cast<int>(result.status().code())},
               {"message", result.status().message()}});
}

}  // namespace spillway

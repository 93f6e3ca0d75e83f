#include "runtime/tensor_dump.h"

#include <fmt/format.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "package/package.h"

namespace spillway {
namespace {

static_assert(std::endian::native == std::endian::little, "values are written as they are");

Status IoFailure(const std::string& path, const std::error_code& error) {
  const std::string message = fmt::format("{}: {}", path, error.message());
  return error == std::errc::no_space_on_device ? ResourceExhaustedError(message)
                                                : IoError(message);
}

Status CreateFolders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  return error ? IoFailure(path, error) : OkStatus();
}

// A dump is large and can be made again: its files are not flushed to disk.
Status WriteWhole(const std::string& path, std::span<const std::byte> bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return IoFailure(path, {errno, std::generic_category()});
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  const int write_error = errno;
  const bool closed = std::fclose(file) == 0;
  if (written && closed) return OkStatus();
  return IoFailure(path, {written ? errno : write_error, std::generic_category()});
}

std::string FileNameOf(std::string_view tensor) {
  std::string name;
  for (const char c : tensor) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '-' || (c == '.' && !name.empty());
    name += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return name + ".bin";
}

class DumpingExecutor : public ModelExecutor {
 public:
  DumpingExecutor(std::unique_ptr<HostModelExecutor> executor, std::shared_ptr<TensorDump> dump)
      : executor_(std::move(executor)), dump_(std::move(dump)) {
    executor_->set_observer(
        [this](const Op& /*op*/, const Tensor& tensor, std::span<const std::byte> values) {
          dump_->Add(tensor.name, tensor.dtype, tensor.shape, tensor.encoding, values);
        });
  }

  const ModelIo& io() const override { return executor_->io(); }
  const EmbeddingTable& embedding() const override { return executor_->embedding(); }
  StepBuffers& buffers(StepKind kind) override { return executor_->buffers(kind); }
  std::byte* k(uint32_t layer) override { return executor_->k(layer); }
  std::byte* v(uint32_t layer) override { return executor_->v(layer); }
  std::string Describe() const override { return executor_->Describe(); }
  uint64_t weight_bytes() const override { return executor_->weight_bytes(); }
  std::optional<AttentionSink> evictor() const override { return executor_->evictor(); }
  Status RunEvictor() override { return executor_->RunEvictor(); }
  Status Run(StepKind kind, int /*logits_row*/) override {
    SPILLWAY_RETURN_IF_ERROR(
        dump_->BeginStep(kind == StepKind::kPrefill ? kPrefillGraphName : kDecodeGraphName));
    const Status status = executor_->Run(kind, -1);
    const Status dumped = dump_->EndStep();
    return status.ok() ? dumped : status;
  }

 private:
  std::unique_ptr<HostModelExecutor> executor_;
  std::shared_ptr<TensorDump> dump_;
};

}  // namespace

Result<std::shared_ptr<TensorDump>> TensorDump::Create(const std::string& folder) {
  if (FileExists(folder)) {
    if (!IsDirectory(folder)) {
      return InvalidArgumentError(folder + ": the dump needs a folder, and this is a file");
    }
    SPILLWAY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(folder));
    if (!names.empty()) {
      return InvalidArgumentError(fmt::format(
          "{}: the folder of a dump must be new or empty; this one holds {}", folder, names[0]));
    }
  }
  SPILLWAY_RETURN_IF_ERROR(CreateFolders(folder));
  return std::shared_ptr<TensorDump>(new TensorDump(folder));
}

TensorDump::~TensorDump() {
  std::error_code ignored;
  if (!staging_.empty()) std::filesystem::remove_all(staging_, ignored);
}

Status TensorDump::BeginStep(const std::string& graph) {
  graph_ = graph;
  status_ = OkStatus();
  entries_.clear();
  files_.clear();
  staging_ = JoinPath(folder_, fmt::format(".{:06}.part", steps_));
  return CreateFolders(JoinPath(staging_, graph_));
}

void TensorDump::Add(const std::string& name, DType dtype, const Shape& shape,
                     const Encoding& encoding, std::span<const std::byte> values) {
  if (!status_.ok()) return;
  Entry entry{name, FileNameOf(name), std::string(DTypeName(dtype)), shape, 0, 0};
  if (encoding.kind == Encoding::Kind::kPerTensor) {
    entry.scale = encoding.scale;
    entry.offset = encoding.offset;
  }
  if (!files_.insert(entry.file).second) return;
  status_ = WriteWhole(JoinPath(JoinPath(staging_, graph_), entry.file), values);
  entries_.push_back(std::move(entry));
}

Status TensorDump::EndStep() {
  SPILLWAY_RETURN_IF_ERROR(status_);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Entry& entry : entries_) {
    list.push_back({{"name", entry.name},
                    {"file", entry.file},
                    {"dtype", entry.dtype},
                    {"shape", entry.shape},
                    {"scale", entry.scale},
                    {"offset", entry.offset}});
  }
  const std::string text =
      list.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  SPILLWAY_RETURN_IF_ERROR(WriteWhole(JoinPath(JoinPath(staging_, graph_), "tensors.json"),
                                      std::as_bytes(std::span(text))));
  const std::string place = JoinPath(folder_, fmt::format("{:06}", steps_));
  std::error_code error;
  std::filesystem::rename(staging_, place, error);
  if (error) return IoFailure(place, error);
  staging_.clear();
  ++steps_;
  return OkStatus();
}

std::unique_ptr<ModelExecutor> DumpTensors(std::unique_ptr<HostModelExecutor> executor,
                                           std::shared_ptr<TensorDump> dump) {
  return std::make_unique<DumpingExecutor>(std::move(executor), std::move(dump));
}

}  // namespace spillway

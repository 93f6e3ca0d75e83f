// The fake libQnnHtp.so.

#include <sys/mman.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "qnn/api/abi.h"
#include "qnn/htp/abi_htp.h"
#include "tests/fake_qnn/describe.h"
#include "tests/fake_qnn/fake_binary.h"
#include "tests/fake_qnn/recorder.h"

namespace fake_qnn {
namespace {

struct Event {
  abi::EventData data;
  std::vector<Event> children;
  std::vector<abi::EventId> child_ids;
};
struct Log {
  abi::LogCallback callback;
  abi::LogLevel level;
};
struct Profile {
  uint32_t level = 0;
  std::vector<Event> events;
  std::vector<abi::EventId> ids;
};
struct Device {
  uint32_t soc = 30;
};
struct Graph {
  FakeGraph data;
  std::set<std::string> tensor_names;
  uint32_t nodes = 0;
  uint32_t soc = 0;
  bool finalized = false;
};
struct Context {
  uint32_t soc = 30;
  bool sharing = false;
  bool slc = false;
  bool loaded = false;
  bool grouped = false;
  std::vector<std::unique_ptr<Graph>> graphs;
};

// Objects that live, so that a stale or doubly freed handle is noticed.
std::mutex mutex;
std::set<void*> live;
std::vector<Log*> logs;

template <typename T>
abi::Handle Keep(T* object) {
  const std::lock_guard lock(mutex);
  live.insert(object);
  return object;
}

template <typename T>
abi::Error Release(abi::Handle handle, abi::Error when_unknown) {
  {
    const std::lock_guard lock(mutex);
    if (live.erase(handle) == 0) return when_unknown;
  }
  delete static_cast<T*>(handle);
  return 0;
}

__attribute__((format(printf, 2, 3))) void Say(abi::LogLevel level, const char* format, ...) {
  const std::lock_guard lock(mutex);
  for (const Log* log : logs) {
    if (level > log->level) continue;
    va_list arguments;
    va_start(arguments, format);
    log->callback(format, level, 0, arguments);
    va_end(arguments);
  }
}

template <typename... Args>
abi::Error NotSupported(Args...) {
  return 1000;
}

abi::Version CoreVersion() {
  const char* text = std::getenv("FAKE_QNN_CORE");
  if (text == nullptr) return {2, 40, 0};
  char* end = nullptr;
  const auto major = static_cast<uint32_t>(std::strtoul(text, &end, 10));
  return {major, *end == '.' ? static_cast<uint32_t>(std::strtoul(end + 1, nullptr, 10)) : 0, 0};
}

// ---- Log, backend, device ------------------------------------------------

abi::Error LogCreate(abi::LogCallback callback, abi::LogLevel level, abi::Handle* handle) {
  RecordLine("log level " + std::to_string(level));
  if (const abi::Error error = Enter("logCreate")) return error;
  auto* log = new Log{callback, level};
  *handle = Keep(log);
  const std::lock_guard lock(mutex);
  logs.push_back(log);
  return 0;
}

abi::Error LogFree(abi::Handle handle) {
  if (const abi::Error error = Enter("logFree")) return error;
  {
    const std::lock_guard lock(mutex);
    std::erase(logs, static_cast<Log*>(handle));
  }
  return Release<Log>(handle, 11004);
}

abi::Error BackendCreate(abi::Handle, const abi::BackendConfig**, abi::Handle* handle) {
  if (const abi::Error error = Enter("backendCreate")) return error;
  Say(abi::kLogVerbose, " <V> Detected Snapdragon SOC %s with %d SOCs", "SM8350", 1);
  *handle = Keep(new int(0));
  return 0;
}

abi::Error BackendFree(abi::Handle handle) {
  if (const abi::Error error = Enter("backendFree")) return error;
  return Release<int>(handle, 4011);
}

abi::Error BackendGetBuildId(const char** id) {
  if (const abi::Error error = Enter("backendGetBuildId")) return error;
  const char* text = std::getenv("FAKE_QNN_BUILD_ID");
  *id = text == nullptr ? "fake.1" : text;
  return 0;
}

abi::Error RegisterOpPackage(abi::Handle, const char* path, const char* provider,
                             const char* target) {
  RecordLine(std::string("op package ") + path + " " + provider + " " +
             (target == nullptr ? "none" : target));
  return Enter("backendRegisterOpPackage");
}

abi::Error GetSupportedOperations(abi::Handle, uint32_t* count, const abi::OperationName** names) {
  if (const abi::Error error = Enter("backendGetSupportedOperations")) return error;
  static const abi::OperationName kNames[] = {{"qti.aisw", "Conv2d", ""},
                                              {"qti.aisw", "ElementWiseAdd", ""}};
  *count = 2;
  *names = kNames;
  return 0;
}

abi::Error ValidateOpConfig(abi::Handle, abi::OpConfig config) {
  if (const abi::Error error = Enter("backendValidateOpConfig")) {
    Say(abi::kLogError, " <E> Failed to validate op %s with error 0x%llx", config.name,
        static_cast<unsigned long long>(error));
    return error;
  }
  return 0;
}

abi::Error DeviceCreate(abi::Handle, const abi::DeviceConfig** configs, abi::Handle* handle) {
  auto device = std::make_unique<Device>();
  for (; configs != nullptr && *configs != nullptr; ++configs) {
    const auto* custom = static_cast<const abi::HtpDeviceConfig*>((*configs)->custom);
    RecordConfig("deviceCreate", (*configs)->option, custom, sizeof(*custom));
    if (custom->words[0] == abi::kHtpDeviceSoc) device->soc = custom->words[2];
  }
  if (const abi::Error error = Enter("deviceCreate")) {
    Say(abi::kLogError, " <E> Unknown config socModel %u", device->soc);
    return error;
  }
  Say(abi::kLogVerbose, " <V> Client set SoC %u (previous SoC was 30).", device->soc);
  *handle = Keep(device.release());
  return 0;
}

abi::Error DeviceFree(abi::Handle handle) {
  if (const abi::Error error = Enter("deviceFree")) return error;
  return Release<Device>(handle, 14000);
}

// ---- Context -------------------------------------------------------------

void ReadContextConfigs(const char* call, const abi::ContextConfig** configs, Context* context) {
  for (; configs != nullptr && *configs != nullptr; ++configs) {
    const abi::ContextConfig& config = **configs;
    if (config.option != abi::kContextCustom) {
      RecordConfig(call, config.option, &config.priority, 8);
      continue;
    }
    const auto* custom = static_cast<const abi::HtpContextConfig*>(config.custom);
    RecordConfig(call, config.option, custom, sizeof(*custom));
    if (custom->option == abi::kHtpContextWeightSharing) context->sharing = custom->flag;
    if (custom->option == abi::kHtpContextGroup) context->grouped = true;
  }
}

abi::Error ContextCreate(abi::Handle, abi::Handle device, const abi::ContextConfig** configs,
                         abi::Handle* handle) {
  auto context = std::make_unique<Context>();
  ReadContextConfigs("contextCreate", configs, context.get());
  if (const abi::Error error = Enter("contextCreate")) return error;
  context->soc = static_cast<Device*>(device)->soc;
  *handle = Keep(context.release());
  return 0;
}

abi::Error ContextFree(abi::Handle handle, abi::Handle) {
  RecordConfig("contextFree", 0, &handle, sizeof(handle));
  if (const abi::Error error = Enter("contextFree")) return error;
  return Release<Context>(handle, 5002);
}

FakeBinary BinaryOf(const Context& context) {
  FakeBinary binary;
  binary.soc = context.soc;
  binary.slc = context.slc ? 1 : 0;
  binary.sharing = context.sharing ? 1 : 0;
  for (const auto& graph : context.graphs) binary.graphs.push_back(graph->data);
  return binary;
}

abi::Error GetBinarySize(abi::Handle handle, uint64_t* size) {
  if (const abi::Error error = Enter("contextGetBinarySize")) return error;
  const auto& context = *static_cast<Context*>(handle);
  if (context.loaded) return 1005;
  for (const auto& graph : context.graphs) {
    if (!graph->finalized) return 5003;
  }
  *size = WriteBinary(BinaryOf(context)).size();
  return 0;
}

abi::Error GetBinary(abi::Handle handle, void* buffer, uint64_t size, uint64_t* written) {
  if (const abi::Error error = Enter("contextGetBinary")) return error;
  const std::vector<char> binary = WriteBinary(BinaryOf(*static_cast<Context*>(handle)));
  if (size < binary.size()) return 5007;
  std::memcpy(buffer, binary.data(), binary.size());
  *written = binary.size();
  return 0;
}

abi::Error CreateFromBinary(abi::Handle, abi::Handle, const abi::ContextConfig** configs,
                            const void* data, uint64_t size, abi::Handle* handle, abi::Handle) {
  auto context = std::make_unique<Context>();
  ReadContextConfigs("contextCreateFromBinary", configs, context.get());
  if (const abi::Error error = Enter("contextCreateFromBinary")) return error;
  FakeBinary binary;
  if (!ReadBinary(data, size, &binary)) return 30010;
  const bool simulator = EnvNumber("FAKE_QNN_SIMULATOR", 0) != 0;
  if (simulator && context->grouped) return 5010;
  if (simulator && binary.sharing != 0 && binary.graphs.size() > 1) return 1000;
  context->loaded = true;
  context->soc = binary.soc;
  if (simulator && binary.slc != 0) {
    Say(abi::kLogError, " <E> Fail to initialize requested HTP features with err 4003");
    binary.graphs.clear();
  }
  for (size_t i = 0; i < binary.graphs.size(); ++i) {
    auto graph = std::make_unique<Graph>();
    graph->data = binary.graphs[i];
    graph->finalized = true;
    Say(abi::kLogVerbose, " <V> SLC_ALLOCATOR is set to %u for graph %zu", binary.slc, i);
    context->graphs.push_back(std::move(graph));
  }
  *handle = Keep(context.release());
  return 0;
}

// ---- Graph ---------------------------------------------------------------

void ReadGraphConfig(const abi::HtpGraphConfig& custom, Context* context, Graph* graph) {
  if (custom.option == abi::kHtpGraphVtcmMb) {
    graph->data.vtcm_bytes = uint64_t{custom.megabytes} << 20;
  }
  if (custom.option == abi::kHtpGraphFinalizeConfig) {
    RecordLine(std::string("finalize config ") + custom.finalize.key + " " +
               DescribeScalar(custom.finalize.value));
    if (std::string(custom.finalize.key) == "unknown") {
      Say(abi::kLogError, "options.cc:92::ERROR:Option %s not found", custom.finalize.key);
    }
  }
  if (custom.option != abi::kHtpGraphOptimization) return;
  const abi::HtpOptimizationValue& value = custom.optimization;
  Say(abi::kLogVerbose, " <V> Set option %u : %f", value.type, value.value);
  if (value.type == abi::kHtpFinalizeLevel) graph->data.level = static_cast<uint32_t>(value.value);
  if (value.type == abi::kHtpSlcAllocator && value.value != 0) context->slc = true;
}

abi::Error GraphCreate(abi::Handle handle, const char* name, const abi::GraphConfig** configs,
                       abi::Handle* out) {
  auto* context = static_cast<Context*>(handle);
  auto graph = std::make_unique<Graph>();
  graph->data.name = name;
  graph->soc = context->soc;
  Say(abi::kLogInfo, " <I> QnnGraph_create started for graph %s", name);
  for (; configs != nullptr && *configs != nullptr; ++configs) {
    const abi::GraphConfig& config = **configs;
    if (config.option != abi::kGraphCustom) {
      RecordConfig("graphCreate", config.option, &config.priority, 8);
      continue;
    }
    const auto* custom = static_cast<const abi::HtpGraphConfig*>(config.custom);
    RecordConfig("graphCreate", config.option, custom, sizeof(*custom));
    ReadGraphConfig(*custom, context, graph.get());
  }
  if (const abi::Error error = Enter("graphCreate")) return error;
  if (context->slc && std::getenv("FAKE_QNN_REJECT_SLC") != nullptr) return 6011;
  if (context->loaded) return 1100;
  for (const auto& other : context->graphs) {
    if (other->data.name == name) return 6003;
  }
  Say(abi::kLogError, " <E> unexpected GraphHtpSettings option %d", 66);
  Say(abi::kLogVerbose, " <V> Prepare: Graph %s with init graph option: slc_allocate = %d", name,
      context->slc ? 1 : 0);
  Say(abi::kLogVerbose, " <V> Prepare: Graph %s with init graph option: vtcm_size = %llu", name,
      static_cast<unsigned long long>(graph->data.vtcm_bytes));
  *out = graph.get();
  context->graphs.push_back(std::move(graph));
  return 0;
}

abi::Error CreateGraphTensor(abi::Handle handle, abi::Tensor* tensor) {
  if (const abi::Error error = Enter("tensorCreateGraphTensor")) return error;
  auto* graph = static_cast<Graph*>(handle);
  abi::TensorV1& v1 = tensor->v1;
  if (!graph->tensor_names.insert(v1.name).second) return 7003;
  if (v1.type == abi::kStatic && v1.client.data == nullptr) return 7004;
  RecordLine(DescribeTensorLine(v1));
  v1.id = static_cast<uint32_t>(graph->tensor_names.size());
  if (v1.type == abi::kStatic) graph->data.const_bytes += v1.client.size;
  FakeTensor copy;
  copy.id = v1.id;
  copy.name = v1.name;
  copy.data_type = static_cast<uint32_t>(v1.data_type);
  copy.dims.assign(v1.dims, v1.dims + v1.rank);
  if (v1.quantize.definition == abi::kDefined && v1.quantize.encoding == abi::kScaleOffset) {
    copy.encoded = 1;
    copy.scale = v1.quantize.scale_offset.scale;
    copy.offset = v1.quantize.scale_offset.offset;
  }
  if (v1.type == abi::kAppWrite) graph->data.inputs.push_back(copy);
  if (v1.type == abi::kAppRead) graph->data.outputs.push_back(copy);
  return 0;
}

abi::Error AddNode(abi::Handle handle, abi::OpConfig config) {
  if (const abi::Error error = Enter("graphAddNode")) return error;
  auto* graph = static_cast<Graph*>(handle);
  for (uint32_t i = 0; i < config.num_inputs; ++i) {
    if (graph->tensor_names.count(config.inputs[i].v1.name) == 0) return 6004;
  }
  for (uint32_t i = 0; i < config.num_params; ++i) {
    if (config.params[i].type == abi::kTensorParam && config.params[i].tensor.v1.id == 0) {
      return 6005;
    }
  }
  RecordLine(DescribeNodeLine(config));
  ++graph->nodes;
  return 0;
}

Event MakeEvent(uint32_t type, uint32_t unit, uint64_t value) {
  return {{type, unit, value, nullptr}, {}, {}};
}

std::vector<Event> FinalizeEvents(const Graph& graph, uint32_t level) {
  std::vector<Event> events;
  events.push_back(MakeEvent(300, abi::kUnitMicroseconds, 1234));
  const bool has_estimates = graph.soc == 52 || graph.soc == 72 || graph.soc == 95;
  if (level < abi::kProfileDetailed || !has_estimates) return events;
  Event estimate = MakeEvent(2004, abi::kUnitNone, 0);
  const uint64_t cycles[] = {2000000, 1900000, 2100000};
  for (uint32_t i = 0; i < 3; ++i) {
    estimate.children.push_back(MakeEvent(2006 + i, abi::kUnitCycles, cycles[i]));
    estimate.children.push_back(MakeEvent(2019 + i, abi::kUnitMicroseconds, cycles[i] / 1000));
  }
  Event bandwidth = MakeEvent(2009, abi::kUnitNone, 0);
  bandwidth.children.push_back(MakeEvent(2010, abi::kUnitNone, 0));
  for (uint32_t i = 0; i < 6; ++i) {
    bandwidth.children[0].children.push_back(MakeEvent(2011 + i, abi::kUnitBytes, 100 + i));
  }
  estimate.children.push_back(bandwidth);
  estimate.children.push_back(MakeEvent(2017, abi::kUnitCount, 7));
  events.push_back(estimate);
  return events;
}

void SetIds(std::vector<Event>& events, std::vector<abi::EventId>* ids) {
  for (Event& event : events) {
    SetIds(event.children, &event.child_ids);
    ids->push_back(reinterpret_cast<abi::EventId>(&event));
  }
}

// Libraries before core 2.39 print it, whatever the log level.
__attribute__((format(printf, 1, 2))) void SayOrPrint(const char* format, ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  if (CoreVersion().minor < 39) {
    std::printf("%s%s", line, std::strchr(line, '%') == nullptr ? "\n" : "\r");
  } else {
    Say(abi::kLogInfo, "%s", line);
  }
}

void SayPreparation() {
  static const char* const kStages[] = {
      "Graph Preparation Initializing", "Graph Optimizations", "Post Graph Optimization",
      "Graph Sequencing for Target",    "VTCM Allocation",     "Parallelization Optimization",
      "Finalizing Graph Sequence",      "Completion"};
  for (const char* stage : kStages) {
    SayOrPrint("Starting stage: %s", stage);
    if (std::strcmp(stage, "Graph Sequencing for Target") == 0) {
      SayOrPrint(" [%-10s] %3d%%", "#####", 50);
    }
    if (std::strcmp(stage, "Finalizing Graph Sequence") == 0) {
      SayOrPrint("====== DDR bandwidth summary ======");
      SayOrPrint("spill_bytes=%d", 4096);
      SayOrPrint("fill_bytes=%d", 8192);
      SayOrPrint("write_total_bytes=%d", 5000);
      SayOrPrint("read_total_bytes=%d", 20000);
    }
    SayOrPrint("Completed stage: %s (%d us)", stage, 10);
  }
}

abi::Error Finalize(abi::Handle handle, abi::Handle profile_handle, abi::Handle) {
  auto* graph = static_cast<Graph*>(handle);
  if (const abi::Error error = Enter("graphFinalize")) {
    Say(abi::kLogError, " <E> Failed to finalize graph %s", graph->data.name.c_str());
    return error;
  }
  if (graph->finalized) return 1000;
  if (graph->nodes == 0) return 6022;
  SayPreparation();
  graph->finalized = true;
  if (profile_handle != nullptr) {
    auto* profile = static_cast<Profile*>(profile_handle);
    profile->events = FinalizeEvents(*graph, profile->level);
  }
  return 0;
}

abi::Error Retrieve(abi::Handle handle, const char* name, abi::Handle* out) {
  if (const abi::Error error = Enter("graphRetrieve")) return error;
  for (const auto& graph : static_cast<Context*>(handle)->graphs) {
    if (graph->data.name != name) continue;
    *out = graph.get();
    return 0;
  }
  return 6003;
}

// Memory of the fake libcdsprpc.so, mapped by its descriptor.
struct Memory {
  void* map = nullptr;
  size_t map_bytes = 0;
  abi::ClientBuffer tensor = {};
  ~Memory() { munmap(map, map_bytes); }
};

// The last two digits of a type's number are its bits.
size_t ElementBytes(abi::DataType type) {
  switch (static_cast<uint32_t>(type) & 0xff) {
    case 0x08:
      return 1;
    case 0x16:
      return 2;
    default:
      return 4;
  }
}

// Only with FAKE_QNN_SHARED_MEMORY, as on a device.
abi::Error MemRegister(abi::Handle, const abi::MemDescriptor* descriptors, uint32_t count,
                       abi::Handle* handles) {
  if (const abi::Error error = Enter("memRegister")) return error;
  if (EnvNumber("FAKE_QNN_SHARED_MEMORY", 0) == 0) return 1000;
  for (uint32_t i = 0; i < count; ++i) {
    const abi::MemDescriptor& descriptor = descriptors[i];
    if (descriptor.mem_type != 2) return 8005;
    const auto& htp = *static_cast<const abi::HtpMemory*>(descriptor.custom);
    size_t bytes = ElementBytes(descriptor.data_type);
    for (uint32_t d = 0; d < descriptor.shape.rank; ++d) bytes *= descriptor.shape.dims[d];
    if (htp.type != 1 || htp.shared.offset + bytes > htp.size) return 8000;
    RecordLine("memory offset " + std::to_string(htp.shared.offset) + " of " +
               std::to_string(htp.size));
    auto memory = std::make_unique<Memory>();
    memory->map_bytes = htp.size;
    memory->map = mmap(nullptr, htp.size, PROT_READ | PROT_WRITE, MAP_SHARED, htp.shared.fd, 0);
    if (memory->map == MAP_FAILED) return 8003;
    memory->tensor.data = static_cast<char*>(memory->map) + htp.shared.offset;
    memory->tensor.size = static_cast<uint32_t>(bytes);
    handles[i] = Keep(memory.release());
  }
  return 0;
}

abi::Error MemDeregister(const abi::Handle* handles, uint32_t count) {
  if (const abi::Error error = Enter("memDeregister")) return error;
  for (uint32_t i = 0; i < count; ++i) {
    if (const abi::Error error = Release<Memory>(handles[i], 8001)) return error;
  }
  return 0;
}

abi::ClientBuffer BufferOf(const abi::Tensor& tensor) {
  return tensor.v1.mem_type == abi::kMemHandle ? static_cast<Memory*>(tensor.v1.mem_handle)->tensor
                                               : tensor.v1.client;
}

abi::Error Execute(abi::Handle handle, const abi::Tensor* inputs, uint32_t num_inputs,
                   abi::Tensor* outputs, uint32_t num_outputs, abi::Handle profile_handle,
                   abi::Handle) {
  if (const abi::Error error = Enter("graphExecute")) return error;
  const auto& graph = *static_cast<Graph*>(handle);
  if (num_inputs != graph.data.inputs.size() || num_outputs != graph.data.outputs.size()) {
    return 6000;
  }
  for (uint32_t i = 0; i < num_inputs; ++i) {
    if (inputs[i].v1.id != graph.data.inputs[i].id) return 6004;
  }
  for (uint32_t i = 0; i < num_outputs; ++i) {
    const abi::ClientBuffer out = BufferOf(outputs[i]);
    if (outputs[i].v1.id != graph.data.outputs[i].id || out.data == nullptr) return 6004;
    std::memset(out.data, 0, out.size);
    const auto* same = std::find_if(inputs, inputs + num_inputs, [&out](const abi::Tensor& input) {
      return BufferOf(input).size == out.size;
    });
    if (same != inputs + num_inputs) std::memcpy(out.data, BufferOf(*same).data, out.size);
  }
  if (profile_handle != nullptr) {
    auto* profile = static_cast<Profile*>(profile_handle);
    profile->events = {MakeEvent(8001, abi::kUnitCount, 4), MakeEvent(3003, abi::kUnitCycles, 5000),
                       MakeEvent(3004, abi::kUnitMicroseconds, 50),
                       MakeEvent(400, abi::kUnitMicroseconds, 60)};
    profile->events[1].children.push_back(MakeEvent(404, abi::kUnitCycles, 4000));
    profile->events[1].children[0].data.identifier = "conv:OpId_1 (cycles)";
  }
  return 0;
}

// ---- Profile -------------------------------------------------------------

abi::Error ProfileCreate(abi::Handle, uint32_t level, abi::Handle* handle) {
  RecordLine("profile level " + std::to_string(level));
  if (const abi::Error error = Enter("profileCreate")) return error;
  auto* profile = new Profile();
  profile->level = level;
  *handle = Keep(profile);
  return 0;
}

abi::Error ProfileGetEvents(abi::Handle handle, const abi::EventId** ids, uint32_t* count) {
  if (const abi::Error error = Enter("profileGetEvents")) return error;
  auto* profile = static_cast<Profile*>(handle);
  profile->ids.clear();
  SetIds(profile->events, &profile->ids);
  *ids = profile->ids.data();
  *count = static_cast<uint32_t>(profile->ids.size());
  return 0;
}

abi::Error ProfileGetSubEvents(abi::EventId id, const abi::EventId** ids, uint32_t* count) {
  if (const abi::Error error = Enter("profileGetSubEvents")) return error;
  const auto* event = reinterpret_cast<const Event*>(id);
  *ids = event->child_ids.data();
  *count = static_cast<uint32_t>(event->child_ids.size());
  return 0;
}

abi::Error ProfileGetEventData(abi::EventId id, abi::EventData* data) {
  if (const abi::Error error = Enter("profileGetEventData")) return error;
  *data = reinterpret_cast<const Event*>(id)->data;
  return 0;
}

abi::Error ProfileFree(abi::Handle handle) {
  if (const abi::Error error = Enter("profileFree")) return error;
  return Release<Profile>(handle, 12000);
}

// ---- Performance ---------------------------------------------------------

std::set<uint32_t> power_votes;

abi::Error CreatePowerConfig(uint32_t, uint32_t, uint32_t* id) {
  if (const abi::Error error = Enter("createPowerConfigId")) return error;
  *id = static_cast<uint32_t>(power_votes.size()) + 1;
  power_votes.insert(*id);
  return 0;
}

abi::Error DestroyPowerConfig(uint32_t id) {
  if (const abi::Error error = Enter("destroyPowerConfigId")) return error;
  return power_votes.erase(id) == 1 ? 0 : 13000;
}

abi::Error SetPowerConfig(uint32_t id, const abi::HtpPowerConfig** configs) {
  for (; configs != nullptr && *configs != nullptr; ++configs) {
    RecordConfig("setPowerConfig", (*configs)->option, *configs, sizeof(**configs));
  }
  if (const abi::Error error = Enter("setPowerConfig")) return error;
  return power_votes.count(id) == 1 ? 0 : 13000;
}

abi::Error GetInfrastructure(const void** out) {
  if (const abi::Error error = Enter("deviceGetInfrastructure")) return error;
  static const abi::HtpInfrastructure kInfrastructure = {
      0,
      {CreatePowerConfig, DestroyPowerConfig, SetPowerConfig,
       [](uint32_t, uint32_t, const abi::HtpMemoryConfig**) -> abi::Error { return 0; }}};
  *out = &kInfrastructure;
  return 0;
}

// ---- Table ---------------------------------------------------------------

// Entries that nothing calls answer "not supported".
void FillUnused(abi::Functions& fn) {
  fn.property_has_capability = NotSupported;
  fn.backend_set_config = NotSupported;
  fn.backend_get_api_version = NotSupported;
  fn.context_set_config = NotSupported;
  fn.graph_create_subgraph = NotSupported;
  fn.graph_set_config = NotSupported;
  fn.graph_execute_async = NotSupported;
  fn.tensor_create_context_tensor = NotSupported;
  fn.log_set_level = NotSupported;
  fn.profile_set_config = NotSupported;
  fn.profile_get_extended_event_data = NotSupported;
  fn.device_get_platform_info = NotSupported;
  fn.device_free_platform_info = NotSupported;
  fn.device_set_config = NotSupported;
  fn.device_get_info = NotSupported;
  fn.error_get_message = NotSupported;
  fn.context_validate_binary = NotSupported;
  fn.global_config_set = NotSupported;
}

void Fill(abi::Functions& fn) {
  FillUnused(fn);
  fn.backend_create = BackendCreate;
  fn.backend_get_build_id = BackendGetBuildId;
  fn.backend_register_op_package = RegisterOpPackage;
  fn.backend_get_supported_operations = GetSupportedOperations;
  fn.backend_validate_op_config = ValidateOpConfig;
  fn.backend_free = BackendFree;
  fn.context_create = ContextCreate;
  fn.context_get_binary_size = GetBinarySize;
  fn.context_get_binary = GetBinary;
  fn.context_create_from_binary = CreateFromBinary;
  fn.context_free = ContextFree;
  fn.graph_create = GraphCreate;
  fn.graph_add_node = AddNode;
  fn.graph_finalize = Finalize;
  fn.graph_retrieve = Retrieve;
  fn.graph_execute = Execute;
  fn.mem_register = MemRegister;
  fn.mem_deregister = MemDeregister;
  fn.tensor_create_graph_tensor = CreateGraphTensor;
  fn.log_create = LogCreate;
  fn.log_free = LogFree;
  fn.profile_create = ProfileCreate;
  fn.profile_get_events = ProfileGetEvents;
  fn.profile_get_sub_events = ProfileGetSubEvents;
  fn.profile_get_event_data = ProfileGetEventData;
  fn.profile_free = ProfileFree;
  fn.device_get_infrastructure = GetInfrastructure;
  fn.device_create = DeviceCreate;
  fn.device_free = DeviceFree;
}

}  // namespace
}  // namespace fake_qnn

#define FAKE_QNN_EXPORT extern "C" __attribute__((visibility("default")))

FAKE_QNN_EXPORT spillway::qnn::abi::Error QnnInterface_getProviders(
    const spillway::qnn::abi::Interface*** list, uint32_t* count) {
  namespace abi = spillway::qnn::abi;
  static abi::Interface provider;
  static const abi::Interface* providers[] = {&provider};
  provider.backend_id = fake_qnn::EnvNumber("FAKE_QNN_BACKEND_ID", abi::kHtpBackendId);
  provider.provider_name = "FAKE_HTP";
  provider.version = {fake_qnn::CoreVersion(), {5, 51, 0}};
  fake_qnn::Fill(provider.fn);
  *list = providers;
  *count = fake_qnn::EnvNumber("FAKE_QNN_PROVIDERS", 1);
  return fake_qnn::Enter("getProviders");
}

FAKE_QNN_EXPORT const char* FakeQnnRecord() { return fake_qnn::RecordText(); }
FAKE_QNN_EXPORT void FakeQnnReset() { fake_qnn::ResetRecord(); }
FAKE_QNN_EXPORT int FakeQnnLiveHandles() {
  const std::lock_guard lock(fake_qnn::mutex);
  return static_cast<int>(fake_qnn::live.size() + fake_qnn::power_votes.size());
}
FAKE_QNN_EXPORT void FakeQnnDropHandles() {
  const std::lock_guard lock(fake_qnn::mutex);
  fake_qnn::live.clear();
}

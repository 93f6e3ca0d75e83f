#include "package/package.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/package/sample.h"
#include "tests/support/paths.h"

namespace spillway::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> FileNames(const PackageManifest& manifest) {
  std::vector<std::string> names;
  for (const PackageFile& file : manifest.files) names.push_back(file.name);
  return names;
}

std::string OpenError(const std::string& path, StatusCode code = StatusCode::kCorruptData,
                      bool verify = true) {
  const Status status = Package::Open(path, {.verify = verify}).status();
  EXPECT_EQ(status.code(), code) << status.ToString();
  return status.message();
}

void FlipByte(const std::string& path, size_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  const char old = static_cast<char>(file.get());
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(old ^ 1));
  ASSERT_TRUE(file.good());
}

class PackageTest : public ::testing::Test {
 protected:
  void SetUp() override { WriteSample(path_); }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

  TempFolder folder_;
  std::string path_ = folder_.File("pkg");
};

TEST_F(PackageTest, OpensWhatWasWritten) {
  Result<std::shared_ptr<const Package>> opened = Package::Open(path_);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  const Package& package = **opened;
  EXPECT_EQ(package.path(), path_);
  EXPECT_EQ(package.manifest().config.name, "Sample \"quoted\"");
  EXPECT_THAT(FileNames(package.manifest()),
              ElementsAre("context_0.bin", "graphs.fb", "tokenizer.bin", "weights.bin"));
  EXPECT_EQ(package.tokenizer_data()->tokens, SampleTokenizer().tokens);
  EXPECT_EQ(package.tokenizer_data()->eos_id, 1u);
  Result<std::shared_ptr<const Graph>> graph = package.FindGraph(0, kDecodeGraphName);
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ((*graph)->ToString(),
            FixedPointGraph(kDecodeGraphName, 1, SampleConstants())->ToString());
  EXPECT_EQ(package.embedding().name, "head");
  EXPECT_EQ(package.embedding().data, (*graph)->tensor(*(*graph)->Find("head")).data);
  EXPECT_TRUE(package.HasFile("report.json"));
  EXPECT_FALSE(package.HasFile("plain_0.bin"));
  EXPECT_FALSE(package.HasFile("../pkg/report.json"));
}

TEST_F(PackageTest, FindGraphListsWhatExists) {
  const auto package = *Package::Open(path_);
  const Status no_graph = package->FindGraph(0, "decode").status();
  EXPECT_EQ(no_graph.code(), StatusCode::kNotFound);
  EXPECT_THAT(no_graph.message(), HasSubstr("it has prefill_forward, kv_forward"));
  const Status no_shard = package->FindGraph(2, kDecodeGraphName).status();
  EXPECT_EQ(no_shard.code(), StatusCode::kNotFound);
  EXPECT_THAT(no_shard.message(), HasSubstr("no shard 2; it has 2"));
}

TEST_F(PackageTest, GraphsOutliveThePackage) {
  std::shared_ptr<const Graph> graph = *(*Package::Open(path_))->FindGraph(0, kPrefillGraphName);
  const Tensor& head = graph->tensor(*graph->Find("head"));
  EXPECT_EQ(head.data->bytes()[1], SampleConstants().at("head").data->bytes()[1]);
}

TEST_F(PackageTest, ReadGraphsNeedsNoManifest) {
  ASSERT_EQ(std::remove(File("manifest.json").c_str()), 0);
  Result<Shards> graphs = ReadGraphs(path_);
  ASSERT_TRUE(graphs.ok()) << graphs.status().ToString();
  EXPECT_EQ(graphs->size(), 2u);
}

TEST_F(PackageTest, EmbeddingMayBeAnExtraConstant) {
  PackageManifest manifest = SampleManifest();
  manifest.embedding_tensor = "spare";
  WriteSample(path_, manifest);
  Result<std::shared_ptr<const Package>> package = Package::Open(path_);
  ASSERT_TRUE(package.ok());
  EXPECT_EQ((*package)->embedding().encoding.channel_scales.size(), kVocab);
}

TEST_F(PackageTest, SameInputGivesSameFiles) {
  const std::string other = folder_.File("other");
  WriteSample(other);
  const std::vector<std::string> names = *ListFolder(path_);
  EXPECT_EQ(*ListFolder(other), names);
  EXPECT_EQ(names.size(), 6u);
  for (const std::string& name : names) {
    EXPECT_EQ(*ReadFile(File(name)), *ReadFile(other + "/" + name)) << name;
  }
}

TEST_F(PackageTest, NotAPackage) {
  EXPECT_THAT(OpenError(folder_.File("nothing"), StatusCode::kNotFound),
              HasSubstr("there is no package at"));
  EXPECT_THAT(OpenError(folder_.path(), StatusCode::kInvalidArgument),
              HasSubstr("it has no manifest.json"));
  EXPECT_THAT(OpenError(File("weights.bin"), StatusCode::kInvalidArgument), HasSubstr("is a file"));
}

TEST_F(PackageTest, DamagedFilesAreNamed) {
  for (const char* name : {"weights.bin", "tokenizer.bin", "context_0.bin", "graphs.fb"}) {
    WriteSample(path_);
    FlipByte(File(name), 9);
    const std::string error = OpenError(path_);
    EXPECT_THAT(error, HasSubstr(std::string(name) + "' is damaged: its hash is"));
    EXPECT_THAT(error, HasSubstr("compile the model again"));
  }
}

TEST_F(PackageTest, ContextsNeedNotBeVerified) {
  FlipByte(File("context_0.bin"), 3);
  EXPECT_TRUE(Package::Open(path_, {.verify_contexts = false}).ok());
  ASSERT_TRUE(WriteFileAtomically(File("context_0.bin"), "short").ok());
  EXPECT_TRUE(Package::Open(path_, {.verify_contexts = false}).ok());
  EXPECT_FALSE(Package::Open(path_).ok());
  std::filesystem::remove(File("context_0.bin"));
  EXPECT_TRUE(Package::Open(path_, {.verify_contexts = false}).ok());
  FlipByte(File("weights.bin"), 9);
  const Status status = Package::Open(path_, {.verify_contexts = false}).status();
  EXPECT_THAT(status.message(), HasSubstr("weights.bin' is damaged"));
}

TEST_F(PackageTest, IsVerifiedInTheBackground) {
  const OpenOptions options = {.verify_in_background = true};
  auto package = Package::Open(path_, options);
  ASSERT_TRUE(package.ok());
  EXPECT_TRUE((*package)->Verified().ok());
  FlipByte(File("context_0.bin"), 3);
  package = Package::Open(path_, options);
  ASSERT_TRUE(package.ok()) << package.status().ToString();
  for (int i = 0; i < 2; ++i) {
    const Status status = (*package)->Verified();
    EXPECT_EQ(status.code(), StatusCode::kCorruptData);
    EXPECT_THAT(status.message(), HasSubstr("context_0.bin' is damaged"));
    EXPECT_THAT(status.message(), HasSubstr("compile the model again"));
  }
  // Contents that cannot be read are explained by the hash.
  FlipByte(File("tokenizer.bin"), 0);
  EXPECT_THAT(Package::Open(path_, options).status().message(), HasSubstr("is damaged: its hash"));
  // Nobody asks: the package waits for itself.
  WriteSample(path_);
  EXPECT_TRUE(Package::Open(path_, options).ok());
}

TEST_F(PackageTest, WithoutVerifyOnlySizesCount) {
  FlipByte(File("context_0.bin"), 3);
  EXPECT_TRUE(Package::Open(path_, {.verify = false}).ok());
  ASSERT_TRUE(WriteFileAtomically(File("context_0.bin"), "short").ok());
  EXPECT_THAT(OpenError(path_, StatusCode::kCorruptData, false),
              HasSubstr("context_0.bin' has 5 bytes; expected 18"));
}

TEST_F(PackageTest, MissingFilesAreNamed) {
  ASSERT_EQ(std::remove(File("context_0.bin").c_str()), 0);
  EXPECT_THAT(OpenError(path_), HasSubstr("context_0.bin' is missing from the package"));
}

TEST_F(PackageTest, ReportMayChange) {
  ASSERT_TRUE(WriteFileAtomically(File("report.json"), "{\"longer\": true}").ok());
  EXPECT_TRUE(Package::Open(path_).ok());
}

TEST_F(PackageTest, NewerVersion) {
  std::string json = *ReadFile(File("manifest.json"));
  json.replace(json.find("\"version\": 1"), 12, "\"version\": 9");
  ASSERT_TRUE(WriteFileAtomically(File("manifest.json"), json).ok());
  EXPECT_THAT(OpenError(path_, StatusCode::kUnsupported),
              HasSubstr("manifest.json': field version: found 9, expected at most 1"));
}

TEST_F(PackageTest, FilesNotListed) {
  std::string json = *ReadFile(File("manifest.json"));
  json.replace(json.find("\"name\": \"weights.bin\""), 21, "\"name\": \"report.json\"");
  ASSERT_TRUE(WriteFileAtomically(File("manifest.json"), json).ok());
  EXPECT_THAT(OpenError(path_), HasSubstr("weights.bin is not in the list of files"));
}

// Commit refuses what Open would refuse; each case changes one thing.
Status CommitChanged(const std::string& path, void (*change)(PackageManifest&)) {
  Result<PackageWriter> writer = PackageWriter::Create(path);
  EXPECT_TRUE(writer.ok());
  FillSample(*writer);
  PackageManifest manifest = SampleManifest();
  change(manifest);
  return writer->Commit(manifest);
}

TEST_F(PackageTest, CommitRefusesWhatOpenWould) {
  const std::string before = *ReadFile(File("manifest.json"));
  const auto error = [&](void (*change)(PackageManifest&)) {
    const Status status = CommitChanged(path_, change);
    EXPECT_FALSE(status.ok());
    return status.message();
  };
  EXPECT_THAT(error([](PackageManifest& m) { m.embedding_tensor = "lost"; }),
              HasSubstr("found 'lost', which is no constant"));
  EXPECT_THAT(error([](PackageManifest& m) { m.embedding_tensor = ""; }),
              HasSubstr("embedding_tensor"));
  EXPECT_THAT(error([](PackageManifest& m) { m.embedding_tensor = "wq"; }),
              HasSubstr("expected [20, 8], f16 or s8 per channel"));
  EXPECT_THAT(error([](PackageManifest& m) { m.shards[1].plain_file = "plain_1.bin"; }),
              HasSubstr("plain_1.bin is not in the list"));
  EXPECT_THAT(error([](PackageManifest& m) {
                m.shards.pop_back();
                m.config.num_layers = 2;
              }),
              HasSubstr("found 1 shards"));
  EXPECT_THAT(error([](PackageManifest& m) { m.context_len = 0; }), HasSubstr("context_len"));
  EXPECT_THAT(error([](PackageManifest& m) { m.htp_options_json = "{broken"; }),
              HasSubstr("target.htp_options"));
  EXPECT_EQ(*ReadFile(File("manifest.json")), before);
  EXPECT_THAT(*ListFolder(folder_.path()), ElementsAre("pkg"));
}

TEST_F(PackageTest, IoProfileWithTokenIdsNeedsNoEmbedding) {
  const Status status = CommitChanged(path_, [](PackageManifest& m) {
    m.io_profile = "executorch";
    m.embedding_tensor = "";
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ((*Package::Open(path_))->embedding().data, nullptr);
}

TEST_F(PackageTest, CommitNeedsGraphsAndTokenizer) {
  Result<PackageWriter> writer = PackageWriter::Create(path_);
  ASSERT_TRUE(writer.ok());
  const Status status = writer->Commit(SampleManifest());
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("graphs.fb"));
}

TEST_F(PackageTest, OldPackageStaysUntilCommit) {
  const std::string before = *ReadFile(File("manifest.json"));
  {
    Result<PackageWriter> writer = PackageWriter::Create(path_);
    ASSERT_TRUE(writer.ok());
    FillSample(*writer, "another context");
    EXPECT_EQ(*ReadFile(File("manifest.json")), before);
    EXPECT_TRUE(Package::Open(path_).ok());
  }
  EXPECT_TRUE(Package::Open(path_).ok());
  EXPECT_THAT(*ListFolder(folder_.path()), ElementsAre("pkg"));
  const auto old = *Package::Open(path_);
  Result<PackageWriter> writer = PackageWriter::Create(path_);
  ASSERT_TRUE(writer.ok());
  FillSample(*writer, "another context");
  ASSERT_TRUE(writer->Commit(SampleManifest()).ok());
  EXPECT_EQ(*ReadFile(File("context_0.bin")), "another context");
  // The old one, still mapped, is whole.
  const auto graph = *old->FindGraph(0, kPrefillGraphName);
  EXPECT_EQ(graph->tensor(*graph->Find("wq")).data->bytes()[5],
            SampleConstants().at("wq").data->bytes()[5]);
}

TEST_F(PackageTest, SecondCommitIsRefused) {
  Result<PackageWriter> writer = PackageWriter::Create(path_);
  ASSERT_TRUE(writer.ok());
  FillSample(*writer);
  ASSERT_TRUE(writer->Commit(SampleManifest()).ok());
  EXPECT_EQ(writer->Commit(SampleManifest()).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Package::Open(path_).ok());
}

TEST_F(PackageTest, LeftOversOfACrashAreRemoved) {
  Result<PackageWriter> writer = PackageWriter::Create(path_);
  ASSERT_TRUE(writer.ok());
  FillSample(*writer);
  std::ofstream(writer->PathOf(".context_0.bin.tmp-1-2")) << "half";
  ASSERT_TRUE(writer->Commit(SampleManifest()).ok());
  EXPECT_EQ(ListFolder(path_)->size(), 6u);
}

TEST_F(PackageTest, AddFileRefusesOtherPlaces) {
  Result<PackageWriter> writer = PackageWriter::Create(path_);
  ASSERT_TRUE(writer.ok());
  for (const char* name : {"", "..", "../x", "a/b", ".hidden", "manifest.json"}) {
    EXPECT_EQ(writer->AddFile(name, "x").code(), StatusCode::kInvalidArgument) << name;
  }
}

TEST(PackageWriterTest, TargetThatCannotBeWritten) {
  EXPECT_FALSE(PackageWriter::Create("/proc/pkg").ok());
  const TempFolder folder;
  std::ofstream(folder.File("file")) << "x";
  EXPECT_FALSE(PackageWriter::Create(folder.File("file")).ok());
  EXPECT_FALSE(PackageWriter::Create(folder.File("file") + "/pkg").ok());
}

TEST(PackageWriterTest, ReadOnlyFolder) {
  const TempFolder folder;
  ASSERT_EQ(chmod(folder.path().c_str(), 0555), 0);
  // The superuser may write everywhere: be somebody else for a moment.
  constexpr uid_t kNobody = 65534;
  const uid_t self = geteuid();
  const bool is_root = self == 0;
  ASSERT_EQ(is_root ? seteuid(kNobody) : 0, 0);
  const Status status = PackageWriter::Create(folder.File("pkg")).status();
  ASSERT_EQ(is_root ? seteuid(self) : 0, 0);
  ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
  EXPECT_EQ(status.code(), StatusCode::kIo) << status.ToString();
  EXPECT_TRUE(ListFolder(folder.path())->empty());
}

// A limit on the size of files stands for a full disk.
TEST_F(PackageTest, FullTargetLeavesTheOldPackage) {
  const std::string before = *ReadFile(File("manifest.json"));
  rlimit old_limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  Status status;
  {
    Result<PackageWriter> writer = PackageWriter::Create(path_);
    ASSERT_TRUE(writer.ok());
    rlimit limit = old_limit;
    limit.rlim_cur = 512;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    status = writer->AddShard(SampleShards()[0]);
    if (status.ok()) status = writer->FinishGraphs({});
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  }
  signal(SIGXFSZ, old_handler);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("weights.bin"));
  EXPECT_EQ(*ReadFile(File("manifest.json")), before);
  EXPECT_TRUE(Package::Open(path_).ok());
  EXPECT_THAT(*ListFolder(folder_.path()), ElementsAre("pkg"));
}

}  // namespace
}  // namespace spillway::test

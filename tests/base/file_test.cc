#include "base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errno_error.h"
#include "base/file_descriptor.h"
#include "base/replace_folder.h"
#include "tests/support/paths.h"

namespace spillway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::vector<std::string> Names(const std::string& folder) {
  const Result<std::vector<std::string>> names = ListFolder(folder);
  EXPECT_TRUE(names.ok()) << names.status().ToString();
  return names.ok() ? names.value() : std::vector<std::string>();
}

std::string Contents(const std::string& path) {
  const Result<std::string> text = ReadFile(path);
  return text.ok() ? text.value() : text.status().ToString();
}

void Put(const std::string& path, std::string_view text) {
  const Status status = WriteFileAtomically(path, text);
  ASSERT_TRUE(status.ok()) << status.ToString();
}

std::string_view Text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(ErrnoErrorTest, Codes) {
  EXPECT_EQ(ErrnoError("write 'x'", ENOSPC).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrnoError("write 'x'", EDQUOT).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrnoError("open 'x'", ENOENT).code(), StatusCode::kNotFound);
  EXPECT_EQ(ErrnoError("open 'x'", EACCES).code(), StatusCode::kIo);
  EXPECT_EQ(ErrnoError("open 'x'", ENOENT).message(), "cannot open 'x': No such file or directory");
}

TEST(WriteAllTest, FullDevice) {
  const FileDescriptor full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full.valid());
  EXPECT_EQ(WriteAll(full.get(), std::as_bytes(std::span("abc"))), ENOSPC);
}

TEST(MappedFileTest, MapsMovesAndReleases) {
  const test::TempFolder folder;
  std::string text(50000, 'x');
  text[40000] = 'y';
  Put(folder.File("a"), text);
  Result<MappedFile> opened = MappedFile::Open(folder.File("a"));
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  MappedFile file = std::move(opened).value();
  EXPECT_EQ(file.path(), folder.File("a"));
  EXPECT_EQ(Text(file), text);
  file.Release(100, 30000);
  file.Release(0, SIZE_MAX);
  file.Release(60000, 1);
  EXPECT_EQ(Text(file), text);
  MappedFile other;
  other = std::move(file);
  EXPECT_EQ(Text(other), text);
}

TEST(MappedFileTest, EmptyFileAndWhatCannotBeMapped) {
  const test::TempFolder folder;
  Put(folder.File("empty"), "");
  const Result<MappedFile> empty = MappedFile::Open(folder.File("empty"));
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(empty.value().bytes().empty());
  empty.value().Release(0, 10);

  const Status missing = MappedFile::Open(folder.File("none")).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr(folder.File("none")));
  EXPECT_EQ(MappedFile::Open(folder.path()).status().code(), StatusCode::kIo);
  EXPECT_EQ(MappedFile::Open("/dev/null").status().code(), StatusCode::kIo);
  EXPECT_EQ(MappedFile::Open(folder.File("empty/below")).status().code(), StatusCode::kIo);
}

TEST(ReadFileTest, RegularPipeAndEndlessFiles) {
  const test::TempFolder folder;
  const std::string text(200001, 'q');
  Put(folder.File("a"), text);
  EXPECT_EQ(Contents(folder.File("a")), text);
  // No size is known for these.
  EXPECT_THAT(Contents("/proc/self/status"), HasSubstr("VmRSS"));

  const std::string pipe = folder.File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] {
    const FileDescriptor fd(open(pipe.c_str(), O_WRONLY | O_CLOEXEC));
    EXPECT_EQ(WriteAll(fd.get(), std::as_bytes(std::span(text))), 0);
  });
  EXPECT_EQ(Contents(pipe), text);
  writer.join();

  EXPECT_EQ(ReadFile("/dev/zero").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFile(folder.path()).status().code(), StatusCode::kIo);
  EXPECT_EQ(ReadFile(folder.File("none")).status().code(), StatusCode::kNotFound);
}

TEST(ReadFileTest, RefusesAFileThatIsTooLarge) {
  const test::TempFolder folder;
  Put(folder.File("sparse"), "");
  ASSERT_EQ(truncate(folder.File("sparse").c_str(), (off_t{4} << 30) + 1), 0);
  EXPECT_EQ(ReadFile(folder.File("sparse")).status().code(), StatusCode::kInvalidArgument);
}

TEST(AtomicFileTest, AppearsOnlyAtCommit) {
  const test::TempFolder folder;
  Put(folder.File("a"), "old");
  Result<AtomicFile> created = AtomicFile::Create(folder.File("a"));
  ASSERT_TRUE(created.ok()) << created.status().ToString();
  AtomicFile file = std::move(created).value();
  ASSERT_TRUE(file.Write("new").ok());
  EXPECT_EQ(Contents(folder.File("a")), "old");
  EXPECT_EQ(Names(folder.path()).size(), 2u);
  EXPECT_THAT(Names(folder.path())[0], StartsWith(".a.tmp-" + std::to_string(getpid()) + "-"));
  ASSERT_TRUE(file.Commit().ok());
  EXPECT_EQ(Contents(folder.File("a")), "new");
  EXPECT_THAT(Names(folder.path()), ElementsAre("a"));
  EXPECT_EQ(file.Commit().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(file.Write("x").code(), StatusCode::kFailedPrecondition);
}

TEST(AtomicFileTest, WithoutCommitNothingRemains) {
  const test::TempFolder folder;
  {
    Result<AtomicFile> file = AtomicFile::Create(folder.File("a"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->Write(std::string(1 << 20, 'x')).ok());
  }
  EXPECT_THAT(Names(folder.path()), IsEmpty());
}

TEST(AtomicFileTest, SmallLargeAndAlignedWrites) {
  const test::TempFolder folder;
  Result<AtomicFile> file = AtomicFile::Create(folder.File("a"));
  ASSERT_TRUE(file.ok());
  std::string expected;
  const std::string large(700000, 'L');
  for (int i = 0; i < 2000; ++i) {
    const std::string small(static_cast<size_t>(i % 300), static_cast<char>('a' + i % 26));
    ASSERT_TRUE(file->Write(small).ok());
    expected += small;
    if (i % 700 == 3) {
      ASSERT_TRUE(file->Write(large).ok());
      expected += large;
    }
    if (i % 500 == 7) {
      ASSERT_TRUE(file->Align(16384).ok());
      expected.resize((expected.size() + 16383) / 16384 * 16384, '\0');
    }
    ASSERT_EQ(file->size(), expected.size());
  }
  ASSERT_TRUE(file->Align(1).ok());
  EXPECT_EQ(file->Align(3).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(file->Align(0).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_TRUE(Contents(folder.File("a")) == expected);
  EXPECT_EQ(FileSize(folder.File("a")).value(), expected.size());
}

TEST(AtomicFileTest, RefusedPlaces) {
  const test::TempFolder folder;
  Put(folder.File("file"), "x");
  EXPECT_EQ(AtomicFile::Create(folder.path()).status().code(), StatusCode::kIo);
  EXPECT_EQ(AtomicFile::Create("/dev/null").status().code(), StatusCode::kIo);
  EXPECT_EQ(AtomicFile::Create("").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(AtomicFile::Create(folder.File("new/")).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(AtomicFile::Create(folder.File("none/a")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(AtomicFile::Create(folder.File("file/a")).status().code(), StatusCode::kIo);
  // A folder that nobody can write to, not even root.
  EXPECT_FALSE(AtomicFile::Create("/proc/self/a").ok());
  EXPECT_THAT(Names(folder.path()), ElementsAre("file"));
}

// In a child, since the limit stays.
TEST(AtomicFileTest, AFailedWriteFailsTheCommitAndLeavesTheOldFile) {
  const test::TempFolder folder;
  Put(folder.File("a"), "old");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100000, 100000};
    setrlimit(RLIMIT_FSIZE, &limit);
    bool good = false;
    {
      Result<AtomicFile> file = AtomicFile::Create(folder.File("a"));
      good = file.ok() && file->Write(std::string(1 << 20, 'x')).code() == StatusCode::kIo &&
             file->Write("y").code() == StatusCode::kIo && file->Commit().code() == StatusCode::kIo;
    }
    _exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(Names(folder.path()), ElementsAre("a"));
  EXPECT_EQ(Contents(folder.File("a")), "old");
}

TEST(AtomicFileTest, FullDisk) {
  const test::TempFolder folder;
  if (mount("none", folder.path().c_str(), "tmpfs", 0, "size=256k") != 0) {
    GTEST_SKIP() << "no right to mount a small file system: " << ErrnoText(errno);
  }
  Put(folder.File("a"), "old");
  const std::string text(150000, 'x');
  {
    Result<AtomicFile> file = AtomicFile::Create(folder.File("a"));
    ASSERT_TRUE(file.ok());
    // The second write and the commit meet the end of the disk in either order.
    Status status = file->Write(text);
    if (status.ok()) status = file->Write(text);
    if (status.ok()) status = file->Commit();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(folder.File("a")));
    EXPECT_EQ(file->Commit().code(), StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(Contents(folder.File("a")), "old");
  EXPECT_THAT(Names(folder.path()), ElementsAre("a"));
  EXPECT_LE(FreeDiskBytes(folder.File("b/c")).value(), 256u << 10);
  EXPECT_EQ(umount(folder.path().c_str()), 0);
}

TEST(AtomicFolderTest, AppearsOnlyAtCommitAndCreatesParents) {
  const test::TempFolder folder;
  const std::string place = folder.File("x/y/package");
  Result<AtomicFolder> created = AtomicFolder::Create(place + "/");
  ASSERT_TRUE(created.ok()) << created.status().ToString();
  AtomicFolder staged = std::move(created).value();
  EXPECT_EQ(staged.staging_path().rfind(folder.File("x/y/.package.tmp-"), 0), 0u);
  Put(JoinPath(staged.staging_path(), "a"), "1");
  ASSERT_EQ(mkdir(JoinPath(staged.staging_path(), "sub").c_str(), 0777), 0);
  Put(JoinPath(staged.staging_path(), "sub/b"), "2");
  EXPECT_FALSE(FileExists(place));
  const Status status = staged.Commit();
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(Contents(place + "/sub/b"), "2");
  EXPECT_THAT(Names(folder.File("x/y")), ElementsAre("package"));
  EXPECT_EQ(staged.Commit().code(), StatusCode::kFailedPrecondition);
}

TEST(AtomicFolderTest, ReplacesAFolderWhole) {
  const test::TempFolder folder;
  const std::string place = folder.File("package");
  for (const char* name : {"one", "two"}) {
    Result<AtomicFolder> staged = AtomicFolder::Create(place);
    ASSERT_TRUE(staged.ok());
    Put(JoinPath(staged->staging_path(), name), name);
    ASSERT_TRUE(staged->Commit().ok());
    EXPECT_THAT(Names(place), ElementsAre(name));
    EXPECT_THAT(Names(folder.path()), ElementsAre("package"));
  }
}

TEST(AtomicFolderTest, WithoutCommitTheOldFolderStays) {
  const test::TempFolder folder;
  ASSERT_EQ(mkdir(folder.File("package").c_str(), 0777), 0);
  Put(folder.File("package/a"), "old");
  {
    Result<AtomicFolder> staged = AtomicFolder::Create(folder.File("package"));
    ASSERT_TRUE(staged.ok());
    Put(JoinPath(staged->staging_path(), "a"), "new");
  }
  EXPECT_EQ(Contents(folder.File("package/a")), "old");
  EXPECT_THAT(Names(folder.path()), ElementsAre("package"));
}

// A reader that opens the folder while it is exchanged again and again finds it
// there each time, with two files of the same generation.
TEST(AtomicFolderTest, AReaderNeverSeesNothingOrAMixture) {
  const test::TempFolder folder;
  const std::string place = folder.File("package");
  const auto publish = [&](int generation) {
    Result<AtomicFolder> staged = AtomicFolder::Create(place);
    ASSERT_TRUE(staged.ok());
    Put(JoinPath(staged->staging_path(), "a"), std::to_string(generation));
    Put(JoinPath(staged->staging_path(), "b"), std::to_string(generation));
    ASSERT_TRUE(staged->Commit().ok());
  };
  publish(0);
  std::atomic<bool> stop{false};
  std::atomic<int> absent{0}, mixed{0}, whole{0};
  std::thread reader([&] {
    while (!stop) {
      const FileDescriptor fd(open(place.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (!fd.valid()) {
        ++absent;
        continue;
      }
      char texts[2][16] = {};
      const char* const names[2] = {"a", "b"};
      bool read_both = true;
      for (int i = 0; i < 2; ++i) {
        const FileDescriptor file(openat(fd.get(), names[i], O_RDONLY | O_CLOEXEC));
        // An old folder may be emptied under the reader's hands.
        read_both = read_both && file.valid() && read(file.get(), texts[i], 15) > 0;
      }
      if (read_both) ++(std::string(texts[0]) == texts[1] ? whole : mixed);
    }
  });
  for (int i = 1; i <= 30; ++i) publish(i);
  stop = true;
  reader.join();
  EXPECT_EQ(absent, 0);
  EXPECT_EQ(mixed, 0);
  EXPECT_GT(whole, 0);
}

TEST(AtomicFolderTest, RefusedPlaces) {
  const test::TempFolder folder;
  Put(folder.File("file"), "x");
  const Status over_file = AtomicFolder::Create(folder.File("file")).status();
  EXPECT_EQ(over_file.code(), StatusCode::kIo);
  EXPECT_THAT(over_file.message(), HasSubstr(folder.File("file")));
  EXPECT_FALSE(AtomicFolder::Create(folder.File("file/package")).ok());
  EXPECT_FALSE(AtomicFolder::Create("/proc/package").ok());
  EXPECT_EQ(AtomicFolder::Create("/").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(AtomicFolder::Create("").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Contents(folder.File("file")), "x");
  EXPECT_THAT(Names(folder.path()), ElementsAre("file"));
}

TEST(AtomicFolderTest, AFileThatAppearsMeanwhileIsKept) {
  const test::TempFolder folder;
  {
    Result<AtomicFolder> staged = AtomicFolder::Create(folder.File("package"));
    ASSERT_TRUE(staged.ok());
    Put(folder.File("package"), "mine");
    EXPECT_EQ(staged->Commit().code(), StatusCode::kIo);
  }
  EXPECT_EQ(Contents(folder.File("package")), "mine");
  EXPECT_THAT(Names(folder.path()), ElementsAre("package"));
}

TEST(AtomicFolderTest, ALinkStaysAndItsFolderIsReplaced) {
  const test::TempFolder folder;
  ASSERT_EQ(mkdir(folder.File("real").c_str(), 0777), 0);
  ASSERT_EQ(symlink("real", folder.File("link").c_str()), 0);
  Result<AtomicFolder> staged = AtomicFolder::Create(folder.File("link"));
  ASSERT_TRUE(staged.ok());
  Put(JoinPath(staged->staging_path(), "a"), "new");
  ASSERT_TRUE(staged->Commit().ok());
  EXPECT_EQ(Contents(folder.File("real/a")), "new");
  EXPECT_EQ(Contents(folder.File("link/a")), "new");
  EXPECT_THAT(Names(folder.path()), ElementsAre("link", "real"));
}

TEST(AtomicFolderTest, RemovesWhatADeadProcessLeftAndNothingElse) {
  const test::TempFolder folder;
  const std::string place = folder.File("package");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Result<AtomicFolder> staged = AtomicFolder::Create(place);
    if (staged.ok()) (void)WriteFileAtomically(JoinPath(staged->staging_path(), "a"), "1");
    _exit(0);  // no destructor runs
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  ASSERT_EQ(Names(folder.path()).size(), 1u);
  ASSERT_EQ(mkdir(folder.File(".other.tmp-1-1").c_str(), 0777), 0);

  Result<AtomicFolder> first = AtomicFolder::Create(place);
  ASSERT_TRUE(first.ok());
  // A second writer of the same place leaves the first one's folder alone.
  Result<AtomicFolder> second = AtomicFolder::Create(place);
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(IsDirectory(first->staging_path()));
  EXPECT_EQ(Names(folder.path()).size(), 3u);
  Put(JoinPath(first->staging_path(), "a"), "1");
  Put(JoinPath(second->staging_path(), "a"), "2");
  ASSERT_TRUE(first->Commit().ok());
  ASSERT_TRUE(second->Commit().ok());
  EXPECT_EQ(Contents(place + "/a"), "2");
  EXPECT_THAT(Names(folder.path()), ElementsAre(".other.tmp-1-1", "package"));
}

TEST(ReplaceFolderTest, BothWaysSwap) {
  for (const bool may_exchange : {true, false}) {
    const test::TempFolder folder;
    ASSERT_EQ(mkdir(folder.File("new").c_str(), 0777), 0);
    ASSERT_EQ(mkdir(folder.File("place").c_str(), 0777), 0);
    Put(folder.File("new/a"), "new");
    Put(folder.File("place/a"), "old");
    const Status status = ReplaceFolder(folder.File("new"), folder.File("place"), may_exchange);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(Contents(folder.File("place/a")), "new");
    EXPECT_EQ(Contents(folder.File("new/a")), "old");
    EXPECT_THAT(Names(folder.path()), ElementsAre("new", "place"));
  }
}

TEST(ReplaceFolderTest, AFailureLeavesThePlaceAsItWas) {
  for (const bool may_exchange : {true, false}) {
    const test::TempFolder folder;
    ASSERT_EQ(mkdir(folder.File("place").c_str(), 0777), 0);
    Put(folder.File("place/a"), "old");
    EXPECT_EQ(ReplaceFolder(folder.File("none"), folder.File("place"), may_exchange).code(),
              StatusCode::kNotFound);
    EXPECT_EQ(Contents(folder.File("place/a")), "old");
    EXPECT_THAT(Names(folder.path()), ElementsAre("place"));
  }
}

TEST(PathTest, JoinAndBaseName) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(JoinPath("/", "b"), "/b");
  EXPECT_EQ(JoinPath("a", ""), "a");
  EXPECT_EQ(BaseName("/x/y.gguf"), "y.gguf");
  EXPECT_EQ(BaseName("x/y/"), "y");
  EXPECT_EQ(BaseName("y"), "y");
  EXPECT_EQ(BaseName("/"), "");
  EXPECT_EQ(BaseName(""), "");
}

TEST(PathTest, Questions) {
  const test::TempFolder folder;
  Put(folder.File("b"), "12345");
  Put(folder.File("a"), "");
  EXPECT_TRUE(FileExists(folder.File("a")));
  EXPECT_FALSE(FileExists(folder.File("c")));
  EXPECT_TRUE(IsDirectory(folder.path()));
  EXPECT_FALSE(IsDirectory(folder.File("a")));
  EXPECT_EQ(FileSize(folder.File("b")).value(), 5u);
  EXPECT_EQ(FileSize(folder.File("c")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(FileSize(folder.path()).status().code(), StatusCode::kIo);
  EXPECT_THAT(Names(folder.path()), ElementsAre("a", "b"));
  EXPECT_EQ(ListFolder(folder.File("c")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ListFolder(folder.File("a")).status().code(), StatusCode::kIo);
}

TEST(PathTest, FreeDiskBytesOfWhatDoesNotExistYet) {
  const test::TempFolder folder;
  const Result<uint64_t> here = FreeDiskBytes(folder.path());
  ASSERT_TRUE(here.ok());
  EXPECT_GT(*here, 0u);
  EXPECT_TRUE(FreeDiskBytes(folder.File("x/y/z")).ok());
  EXPECT_TRUE(FreeDiskBytes("not-there-yet").ok());
  EXPECT_TRUE(FreeDiskBytes("/not-there/yet/").ok());
}

TEST(PathTest, ExecutableFolder) {
  EXPECT_TRUE(FileExists(JoinPath(ExecutableFolder(), "base_test")));
}

}  // namespace
}  // namespace spillway

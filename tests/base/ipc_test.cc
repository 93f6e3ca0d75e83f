#include "base/ipc.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/file_descriptor.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMaxText = size_t{64} << 20;

std::pair<Channel, Channel> Ends() {
  Result<std::pair<Channel, Channel>> ends = Channel::Pair();
  EXPECT_TRUE(ends.ok());
  return std::move(ends).value();
}

size_t OpenDescriptors() { return ListFolder("/proc/self/fd").value().size(); }

// The header as the format defines it.
std::string Header(uint32_t length, uint32_t magic = 0x4c505753) {
  std::string text(8, '\0');
  std::memcpy(text.data(), &magic, 4);
  std::memcpy(text.data() + 4, &length, 4);
  return text;
}

void SendRaw(const Channel& channel, std::string_view bytes) {
  ASSERT_EQ(send(channel.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

void SendRawWithFds(const Channel& channel, std::string_view bytes, const std::vector<int>& fds) {
  std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
  iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  ASSERT_EQ(sendmsg(channel.fd(), &message, 0), static_cast<ssize_t>(bytes.size()));
}

TEST(ChannelTest, MessagesKeepTheirBordersBothWays) {
  auto [left, right] = Ends();
  ASSERT_TRUE(left.Send("one").ok());
  ASSERT_TRUE(left.Send("").ok());
  ASSERT_TRUE(left.Send(std::string("a\0b", 3)).ok());
  ASSERT_TRUE(right.Send("back").ok());
  EXPECT_EQ(right.Receive()->text, "one");
  EXPECT_EQ(right.Receive(1.0)->text, "");
  EXPECT_EQ(right.Receive()->text, std::string("a\0b", 3));
  EXPECT_EQ(left.Receive()->text, "back");
}

TEST(ChannelTest, LargeMessagesInParts) {
  auto [left, right] = Ends();
  for (const size_t size : {size_t{1} << 20, size_t{3000001}, kMaxText}) {
    std::string text(size, 'x');
    text[size / 3] = 'y';
    std::thread sender([&, &from = left] { EXPECT_TRUE(from.Send(text).ok()); });
    const Result<Message> message = right.Receive();
    sender.join();
    ASSERT_TRUE(message.ok()) << message.status().ToString();
    EXPECT_TRUE(message.value().text == text);
  }
}

TEST(ChannelTest, TooLargeToSendDoesNoHarm) {
  auto [left, right] = Ends();
  EXPECT_EQ(left.Send(std::string(kMaxText + 1, 'x')).code(), StatusCode::kInvalidArgument);
  const std::vector<int> nine(9, 0);
  EXPECT_EQ(left.Send("x", nine).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(left.Send("fine").ok());
  EXPECT_EQ(right.Receive()->text, "fine");
}

TEST(ChannelTest, DescriptorsArriveWithTheirMessage) {
  auto [left, right] = Ends();
  Result<SharedMemory> memory = SharedMemory::Create(4096);
  ASSERT_TRUE(memory.ok());
  std::memcpy(memory->bytes().data(), "hello", 5);
  const std::vector<int> eight(8, memory->fd());
  const size_t before = OpenDescriptors();
  ASSERT_TRUE(left.Send("none").ok());
  ASSERT_TRUE(left.Send("eight", eight).ok());
  ASSERT_TRUE(left.Send("", {eight.data(), 1}).ok());
  EXPECT_TRUE(right.Receive()->fds.empty());
  Result<Message> message = right.Receive();
  ASSERT_TRUE(message.ok());
  ASSERT_EQ(message->fds.size(), 8u);
  EXPECT_NE(fcntl(message->fds[0], F_GETFD) & FD_CLOEXEC, 0);
  for (const int fd : message->fds) {
    Result<SharedMemory> mapped = SharedMemory::Map(fd, 4096);
    ASSERT_TRUE(mapped.ok());
    EXPECT_EQ(std::memcmp(mapped->bytes().data(), "hello", 5), 0);
  }
  message = right.Receive();
  ASSERT_TRUE(message.ok());
  ASSERT_EQ(message->fds.size(), 1u);
  close(message->fds[0]);
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(ChannelTest, ThePeerIsGone) {
  auto [left, right] = Ends();
  ASSERT_TRUE(right.Send("last").ok());
  right = Channel();
  EXPECT_EQ(left.Receive()->text, "last");
  EXPECT_EQ(left.Receive().status().code(), StatusCode::kVendorCrash);
  // A SIGPIPE would end the test.
  EXPECT_EQ(left.Send("x").code(), StatusCode::kVendorCrash);
  EXPECT_EQ(left.Send(std::string(1 << 20, 'x')).code(), StatusCode::kVendorCrash);
}

TEST(ChannelTest, ThePeerGoesInTheMiddle) {
  auto [left, right] = Ends();
  SendRaw(left, Header(100) + "only this");
  left = Channel();
  EXPECT_EQ(right.Receive().status().code(), StatusCode::kVendorCrash);
}

TEST(ChannelTest, ThePeerGoesWhileASendWaits) {
  auto [left, right] = Ends();
  std::thread killer([&to = right] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    to = Channel();
  });
  EXPECT_EQ(left.Send(std::string(8 << 20, 'x')).code(), StatusCode::kVendorCrash);
  killer.join();
}

TEST(ChannelTest, SlowBytesAreOneMessage) {
  auto [left, right] = Ends();
  std::thread sender([&from = left] {
    for (const char c : Header(3) + "abc") {
      SendRaw(from, std::string(1, c));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  EXPECT_EQ(right.Receive(10.0)->text, "abc");
  sender.join();
}

TEST(ChannelTest, ADeadlinePasses) {
  auto [left, right] = Ends();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(right.Receive(0.05).status().code(), StatusCode::kTimeout);
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took, std::chrono::milliseconds(50));
  EXPECT_LT(took, std::chrono::seconds(5));
  EXPECT_EQ(right.Receive(0.05).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(right.Send("x").code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(left.Send("x").code(), StatusCode::kVendorCrash);
}

TEST(ChannelTest, ADeadlinePassesInsideAMessage) {
  auto [left, right] = Ends();
  SendRaw(left, Header(100) + "only this");
  EXPECT_EQ(right.Receive(0.05).status().code(), StatusCode::kTimeout);
}

TEST(ChannelTest, ADeadlinePassesWhileSending) {
  auto [left, right] = Ends();
  EXPECT_EQ(left.Send(std::string(8 << 20, 'x'), {}, 0.05).code(), StatusCode::kTimeout);
  EXPECT_EQ(left.Send("x").code(), StatusCode::kFailedPrecondition);
}

TEST(ChannelTest, OddDeadlines) {
  auto [left, right] = Ends();
  ASSERT_TRUE(left.Send("a").ok());
  ASSERT_TRUE(left.Send("b").ok());
  EXPECT_EQ(right.Receive(1e300)->text, "a");
  EXPECT_EQ(right.Receive(0.0)->text, "b");
  EXPECT_EQ(right.Receive(-5.0).status().code(), StatusCode::kTimeout);
}

TEST(ChannelTest, MalformedMessagesAreRefusedAndTheirDescriptorsClosed) {
  const FileDescriptor file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::vector<int> two(2, file.get());
  const std::vector<int> nine(9, file.get());
  const struct {
    std::string bytes;
    std::vector<int> fds;
    std::string complaint;
  } cases[] = {
      {Header(1, 0x12345678) + "x", two, "starts with"},
      {Header(kMaxText + 1) + "x", two, "claims 67108865 bytes"},
      {Header(UINT32_MAX) + "x", two, "claims 4294967295 bytes"},
      {Header(1) + "x", nine, "descriptors"},
  };
  for (const auto& bad : cases) {
    auto [left, right] = Ends();
    const size_t before = OpenDescriptors();
    SendRawWithFds(left, bad.bytes, bad.fds);
    const Status status = right.Receive(5.0).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << bad.complaint;
    EXPECT_THAT(status.message(), HasSubstr(bad.complaint));
    EXPECT_EQ(OpenDescriptors(), before) << bad.complaint;
    EXPECT_EQ(right.Receive().status().code(), StatusCode::kFailedPrecondition);
  }
}

TEST(ChannelTest, DescriptorsOfAMessageCutShortAreClosed) {
  const FileDescriptor file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  auto [left, right] = Ends();
  const size_t before = OpenDescriptors();
  SendRawWithFds(left, Header(100) + "part", {file.get()});
  left = Channel();
  EXPECT_EQ(right.Receive().status().code(), StatusCode::kVendorCrash);
  EXPECT_EQ(OpenDescriptors(), before - 1);
}

TEST(ChannelTest, SendAndReceiveFromTwoThreads) {
  auto [left, right] = Ends();
  const auto talk = [](Channel& channel) {
    std::thread sender([&] {
      for (int i = 0; i < 200; ++i) EXPECT_TRUE(channel.Send(std::string(5000, 'x')).ok());
    });
    for (int i = 0; i < 200; ++i) EXPECT_EQ(channel.Receive(20.0)->text.size(), 5000u);
    sender.join();
  };
  std::thread other([&, &to = right] { talk(to); });
  talk(left);
  other.join();
}

TEST(ChannelTest, ClosedChannel) {
  Channel none;
  EXPECT_EQ(none.Send("x").code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(none.Receive().status().code(), StatusCode::kFailedPrecondition);
}

TEST(SharedMemoryTest, ZeroFilledAndSeenByAnotherProcess) {
  Result<SharedMemory> created = SharedMemory::Create(100000);
  ASSERT_TRUE(created.ok()) << created.status().ToString();
  SharedMemory memory;
  memory = std::move(created).value();
  for (const std::byte byte : memory.bytes()) ASSERT_EQ(byte, std::byte{0});
  memory.bytes()[7] = std::byte{1};
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Result<SharedMemory> mapped = SharedMemory::Map(dup(memory.fd()), 100000);
    if (!mapped.ok() || mapped->bytes()[7] != std::byte{1}) _exit(1);
    mapped->bytes()[99999] = std::byte{42};
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(memory.bytes()[99999], std::byte{42});
}

TEST(SharedMemoryTest, WrongSizes) {
  EXPECT_EQ(SharedMemory::Create(0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(SharedMemory::Create(SIZE_MAX).ok());
  EXPECT_FALSE(SharedMemory::Create(SIZE_MAX / 2).ok());
  Result<SharedMemory> memory = SharedMemory::Create(4096);
  ASSERT_TRUE(memory.ok());
  const size_t before = OpenDescriptors();
  EXPECT_EQ(SharedMemory::Map(dup(memory->fd()), 4097).status().code(), StatusCode::kCorruptData);
  EXPECT_EQ(SharedMemory::Map(dup(memory->fd()), 0).status().code(), StatusCode::kCorruptData);
  EXPECT_FALSE(SharedMemory::Map(-1, 10).ok());
  EXPECT_EQ(OpenDescriptors(), before);
  // Nobody can pull the memory away from under the other side.
  EXPECT_NE(ftruncate(memory->fd(), 0), 0);
}

}  // namespace
}  // namespace spillway

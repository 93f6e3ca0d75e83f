// A stand-in for libQnnHtp.so and libQnnSystem.so that implements our ABI, for
// what the real libraries cannot show on x86-64, and for machines without them.
//
// It accepts every graph, "compiles" it into a small binary of its own, loads
// that back and executes it: an output gets the bytes of the first input of its
// size, otherwise zeros. It logs the lines that LogReader understands.
//
// Environment variables, read at every call, steer it (also in a child process);
// calls have the vendor's names without prefix, like graphFinalize:
//   FAKE_QNN_FAIL=call:code[:n]   the call returns code (only its n-th one)
//   FAKE_QNN_CRASH=call[:n]       the call raises SIGSEGV
//   FAKE_QNN_HANG=call[:n]        the call never returns
//   FAKE_QNN_RECORD=path          calls and configurations are appended to a file
//   FAKE_QNN_SIMULATOR=1          loading is as poor as the real x86-64 library's: a
//                                 binary made with the SLC allocator has no graphs,
//                                 one with shared weights is refused, and so is a
//                                 group of contexts with one spill-fill buffer
//   FAKE_QNN_REJECT_SLC=1         graphs with the SLC allocator are refused
//   FAKE_QNN_SHARED_MEMORY=1      memory can be registered, as on a device
//   FAKE_QNN_INFO_VERSION=n       version of the binary's description (default 3)
//   FAKE_QNN_CORE=major.minor     core API version (default 2.40); before 2.39 a
//                                 preparation is printed and not logged
//   FAKE_QNN_BUILD_ID=text        of the library (default fake.1)
//   FAKE_QNN_BINARY_BUILD_ID=text of the library that made a binary (default fake.1)
//   FAKE_QNN_BACKEND_ID=n         backend number (default 6)
//   FAKE_QNN_PROVIDERS=n          number of providers, 0 or 1
//   FAKE_QNN_SYSTEM_MAJOR=n       System API version (default 1)
//
// The record has a line "call <name>" for each call and, before the call it
// belongs to, "config <name> option <n> <bytes in hex>" for each
// configuration with the custom bytes behind it (for contextFree, the handle). What a graph was
// given:
//   log level <n>, profile level <n>
//   op package <path> <provider> <target>|none
//   finalize config <key> <type>:<value>   (the key "unknown" is logged as not found)
//   tensor <name> type <n> dtype 0x<n> [dims] encoding none|<n> <values>
//       [data <hex>]   (static data of at most 256 bytes)
//   node <name> <type> in <names> out <names> <parameter>=<type>:<values> ...

#ifndef SPILLWAY_TESTS_FAKE_QNN_FAKE_QNN_H_
#define SPILLWAY_TESTS_FAKE_QNN_FAKE_QNN_H_

#include <dlfcn.h>

#include <cstdlib>
#include <string>

namespace spillway::test {

#ifdef FAKE_QNN_DIR
// The folder with the two libraries.
inline std::string FakeQnnDir() { return FAKE_QNN_DIR; }

// Talks to the fake libQnnHtp.so that this process has loaded, or loads it.
class FakeQnn {
 public:
  FakeQnn() : handle_(dlopen((FakeQnnDir() + "/libQnnHtp.so").c_str(), RTLD_NOW | RTLD_LOCAL)) {}
  // The record since the last Reset().
  std::string Record() const { return Call<const char*>("FakeQnnRecord"); }
  // Forgets the record and the numbers of calls.
  void Reset() const { Call<void>("FakeQnnReset"); }
  // Objects of all kinds that were created and not freed.
  int LiveHandles() const { return Call<int>("FakeQnnLiveHandles"); }
  // Forgets the objects that live, when a test made a free fail. They leak.
  void DropHandles() const { Call<void>("FakeQnnDropHandles"); }

 private:
  template <typename R>
  R Call(const char* name) const {
    return reinterpret_cast<R (*)()>(dlsym(handle_, name))();
  }
  void* handle_;
};
#endif

// Sets an environment variable for a scope.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const std::string& value) : name_(name) {
    const char* before = std::getenv(name);
    had_ = before != nullptr;
    if (had_) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~ScopedEnv() {
    if (had_) {
      setenv(name_, before_.c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  const char* name_;
  bool had_ = false;
  std::string before_;
};

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_FAKE_QNN_FAKE_QNN_H_

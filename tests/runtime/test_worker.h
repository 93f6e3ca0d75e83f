// The test program as its own worker: started with UseTestWorker() in effect, it
// serves one job on its channel instead of running tests.

#ifndef SPILLWAY_TESTS_RUNTIME_TEST_WORKER_H_
#define SPILLWAY_TESTS_RUNTIME_TEST_WORKER_H_

#include <string>

namespace spillway::test {

enum class WorkerKind {
  kFake,    // contexts of FakeContext (context_runner_test.cc): computes, fails, crashes, hangs
  kVendor,  // the real vendor library: jobs "run" and "compile"
};

// While it lives, children that the library starts are this program.
class UseTestWorker {
 public:
  explicit UseTestWorker(WorkerKind kind);
  ~UseTestWorker();
  UseTestWorker(const UseTestWorker&) = delete;
  UseTestWorker& operator=(const UseTestWorker&) = delete;
};

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_RUNTIME_TEST_WORKER_H_

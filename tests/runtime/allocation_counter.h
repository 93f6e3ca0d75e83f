// Counts the heap allocations of the whole test program; the operators are in
// generator_test.cc.

#ifndef SPILLWAY_TESTS_RUNTIME_ALLOCATION_COUNTER_H_
#define SPILLWAY_TESTS_RUNTIME_ALLOCATION_COUNTER_H_

#include <atomic>

namespace spillway::test {

// Allocations are counted while `counting` is on, on every thread.
extern std::atomic<bool> counting;
extern std::atomic<int> allocations;

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_RUNTIME_ALLOCATION_COUNTER_H_

// Ctrl-C while a model answers, or is compiled.

#ifndef SPILLWAY_APPS_SPILLWAY_INTERRUPT_H_
#define SPILLWAY_APPS_SPILLWAY_INTERRUPT_H_

#include <memory>
#include <thread>

#include "console.h"
#include "spillway/status.h"

namespace spillway::cli {

// While one lives, SIGINT is noted instead of ending the program; a second one before
// the first is taken ends it as usual. At most one at a time.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  // Whether SIGINT came since the last Take().
  bool pending() const;
  // The same, and forgets it.
  bool Take();
  // For poll(): readable while one is pending, whatever thread the signal came to.
  int descriptor() const;
};

// While one lives, SIGINT ends the program with kExitInterrupted and an error that says so;
// packages in the making are removed before. Nothing changes where SIGINT is ignored.
class EndOnInterrupt {
 public:
  explicit EndOnInterrupt(Console& console);  // outlives this
  ~EndOnInterrupt();
  EndOnInterrupt(const EndOnInterrupt&) = delete;
  EndOnInterrupt& operator=(const EndOnInterrupt&) = delete;

 private:
  std::unique_ptr<InterruptWatch> watch_;
  int stop_ = -1;  // an eventfd: readable when this ends
  std::thread thread_;
};

}  // namespace spillway::cli

#endif  // SPILLWAY_APPS_SPILLWAY_INTERRUPT_H_

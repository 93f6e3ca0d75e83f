// Ctrl-C while a model answers.

#ifndef SPILLWAY_APPS_SPILLWAY_INTERRUPT_H_
#define SPILLWAY_APPS_SPILLWAY_INTERRUPT_H_

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

}  // namespace spillway::cli

#endif  // SPILLWAY_APPS_SPILLWAY_INTERRUPT_H_

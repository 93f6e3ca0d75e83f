// How GoogleTest prints types of the library that are parameters of tests.

#ifndef SPILLWAY_TESTS_SUPPORT_PRINT_H_
#define SPILLWAY_TESTS_SUPPORT_PRINT_H_

#include <ostream>

#include "graph/types.h"

namespace spillway {

inline void PrintTo(DType dtype, std::ostream* out) { *out << DTypeName(dtype); }

}  // namespace spillway

#endif  // SPILLWAY_TESTS_SUPPORT_PRINT_H_

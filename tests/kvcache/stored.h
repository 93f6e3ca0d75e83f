// How a cache is stored: the parameter of its tests.

#ifndef SPILLWAY_TESTS_KVCACHE_STORED_H_
#define SPILLWAY_TESTS_KVCACHE_STORED_H_

#include <ostream>

#include "graph/types.h"

namespace spillway::test {

struct Stored {
  DType dtype;
  bool packed;
};
inline void PrintTo(const Stored& stored, std::ostream* out) {
  *out << DTypeName(stored.dtype) << (stored.packed ? ", packed" : "");
}

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_KVCACHE_STORED_H_

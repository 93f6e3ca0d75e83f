// The fake's own "context binary". Little-endian:
//
//   8 bytes  "FAKEQNN1"
//   u64      length of the whole binary
//   u32      SoC, u32 SLC allocator, u32 weight sharing, u32 number of graphs
//   a graph: string name, u64 constant bytes, u64 VTCM bytes, u32 level,
//            u32 number of inputs, tensors, u32 number of outputs, tensors
//   a tensor: u32 id, string name, u32 data type, u32 rank, u32 dims...,
//             u32 encoded, f32 scale, i32 offset
//   a string: u32 length, bytes

#ifndef SPILLWAY_TESTS_FAKE_QNN_FAKE_BINARY_H_
#define SPILLWAY_TESTS_FAKE_QNN_FAKE_BINARY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fake_qnn {

struct FakeTensor {
  uint32_t id = 0;
  std::string name;
  uint32_t data_type = 0;
  std::vector<uint32_t> dims;
  uint32_t encoded = 0;
  float scale = 0;
  int32_t offset = 0;
};

struct FakeGraph {
  std::string name;
  uint64_t const_bytes = 0;
  uint64_t vtcm_bytes = 0;
  uint32_t level = 0;
  std::vector<FakeTensor> inputs, outputs;
};

struct FakeBinary {
  uint32_t soc = 0;
  uint32_t slc = 0;
  uint32_t sharing = 0;
  std::vector<FakeGraph> graphs;
};

std::vector<char> WriteBinary(const FakeBinary& binary);
// False when it is damaged.
bool ReadBinary(const void* data, uint64_t size, FakeBinary* binary);

}  // namespace fake_qnn

#endif  // SPILLWAY_TESTS_FAKE_QNN_FAKE_BINARY_H_

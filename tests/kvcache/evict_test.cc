// Eviction, rows that are not next to each other, and masks of several continuations.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "base/float16.h"
#include "kvcache/kv_cache.h"
#include "tests/kvcache/stored.h"
#include "tests/support/random.h"

namespace spillway {
namespace {

using test::Stored;

using Column = std::vector<uint32_t>;  // [layers * kv_heads * head_dim], stored values

// A cache, and its tokens one by one.
class EvictTester {
 public:
  EvictTester(KvShape shape, uint64_t seed) : shape_(shape), random_(seed) {
    element_ = DTypeSize(shape.dtype);
    const size_t values = size_t{shape.kv_heads} * shape.head_dim * (shape.context_len - 1);
    const size_t bytes = shape.packed ? shape.packed_cache().bytes() : values * element_;
    std::vector<std::byte*> k, v;
    for (uint32_t layer = 0; layer < shape.layers; ++layer) {
      k_.emplace_back(bytes);
      v_.emplace_back(bytes);
      encodings_.push_back(IsFixedPoint(shape.dtype) ? RandomEncoding() : Encoding{});
    }
    for (uint32_t layer = 0; layer < shape.layers; ++layer) {
      k.push_back(k_[layer].data());
      v.push_back(v_[layer].data());
    }
    cache_ = std::make_unique<KvCache>(shape, k, v);
  }

  KvCache& cache() { return *cache_; }
  test::Random& random() { return random_; }

  // A step of `ar` random tokens of which these rows are kept; contiguous ones from 0 on
  // go through Append.
  void Step(uint32_t ar, const std::vector<uint32_t>& rows, bool contiguous) {
    cache_->SetArLen(ar);
    std::vector<Column> k(ar), v(ar);
    for (uint32_t t = 0; t < ar; ++t) {
      k[t] = RandomColumn();
      v[t] = RandomColumn();
    }
    std::vector<std::vector<std::byte>> k_new, v_new;
    std::vector<const std::byte*> k_at, v_at;
    const size_t heads = shape_.kv_heads, dim = shape_.head_dim;
    for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
      k_new.emplace_back(heads * dim * ar * element_);
      v_new.emplace_back(heads * dim * ar * element_);
      for (size_t i = 0; i < heads * dim; ++i) {
        for (uint32_t t = 0; t < ar; ++t) {
          const size_t from = layer * heads * dim + i;
          std::memcpy(&k_new[layer][(i * ar + t) * element_], &k[t][from], element_);
          std::memcpy(&v_new[layer][((i / dim * ar + t) * dim + i % dim) * element_], &v[t][from],
                      element_);
        }
      }
    }
    for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
      k_at.push_back(k_new[layer].data());
      v_at.push_back(v_new[layer].data());
    }
    if (contiguous) {
      cache_->Append(k_at, v_at, static_cast<uint32_t>(rows.size()));
    } else {
      cache_->AppendRows(k_at, v_at, rows);
    }
    for (const uint32_t row : rows) {
      keys_.push_back(k[row]);
      values_.push_back(v[row]);
    }
  }

  void Evict(uint32_t sink, const KeyShift& shift) {
    cache_->Evict(sink, shift, encodings_);
    for (auto* columns : {&keys_, &values_}) {
      columns->erase(columns->begin() + sink, columns->begin() + sink + shift.positions);
    }
    for (size_t t = sink; t < keys_.size(); ++t) TurnColumn(shift, t);
  }

  // Values are equal; turned keys may differ by what rounding them, and the angles, does,
  // and then count as the cache has them.
  void Check() {
    ASSERT_EQ(cache_->size(), keys_.size());
    const size_t columns = shape_.context_len - cache_->ar_len(), dim = shape_.head_dim;
    for (size_t t = 0; t < std::min<size_t>(keys_.size(), shape_.context_len - 1); ++t) {
      for (size_t i = 0; i < keys_[t].size(); ++i) {
        const size_t layer = i / (shape_.kv_heads * dim), in = i % (shape_.kv_heads * dim);
        uint32_t k = 0, v = 0;
        if (shape_.packed) {
          const PackedCache packed = shape_.packed_cache();
          k = std::to_integer<uint32_t>(k_[layer][packed.KeyAt(in / dim, in % dim, t)]) ^ 0x80;
          v = std::to_integer<uint32_t>(v_[layer][packed.ValueAt(in / dim, t, in % dim)]) ^ 0x80;
        } else {
          std::memcpy(&k, &k_[layer][(in * columns + t) * element_], element_);
          std::memcpy(&v, &v_[layer][((in / dim * columns + t) * dim + in % dim) * element_],
                      element_);
        }
        ASSERT_EQ(v, values_[t][i]) << "value of token " << t;
        ASSERT_LE(std::abs(Real(k, layer) - Real(keys_[t][i], layer)), Step(keys_[t][i], layer))
            << "key of token " << t << ", " << i;
        keys_[t][i] = k;
      }
    }
  }

 private:
  Encoding RandomEncoding() {
    const bool middle = random_.Below(2) == 0;
    const int32_t half = shape_.dtype == DType::kU8 ? 128 : 32768;
    return Encoding::PerTensor(shape_.dtype, 0.01f,
                               middle ? -half : -static_cast<int32_t>(random_.Below(2 * half)));
  }

  Column RandomColumn() {
    Column column(size_t{shape_.layers} * shape_.kv_heads * shape_.head_dim);
    for (uint32_t& value : column) {
      const float real = static_cast<float>(random_.Gauss());
      switch (shape_.dtype) {
        case DType::kU8:
          value = static_cast<uint32_t>(random_.Below(256));
          break;
        case DType::kU16:
          value = static_cast<uint32_t>(random_.Below(65536));
          break;
        case DType::kF16:
          value = FloatToHalf(real);
          break;
        default:
          std::memcpy(&value, &real, 4);
      }
    }
    return column;
  }

  double Real(uint32_t stored, size_t layer) const {
    float real = 0;
    switch (shape_.dtype) {
      case DType::kF16:
        return HalfToFloat(static_cast<uint16_t>(stored));
      case DType::kF32:
        std::memcpy(&real, &stored, 4);
        return real;
      default:
        return static_cast<double>(encodings_[layer].scale) *
               (static_cast<double>(stored) + encodings_[layer].offset);
    }
  }
  uint32_t Stored(double real, size_t layer) const {
    const float value = static_cast<float>(real);
    uint32_t stored = 0;
    switch (shape_.dtype) {
      case DType::kF16:
        return FloatToHalf(value);
      case DType::kF32:
        std::memcpy(&stored, &value, 4);
        return stored;
      default:
        return static_cast<uint32_t>(QuantizeValue(value, encodings_[layer], shape_.dtype));
    }
  }
  double Step(uint32_t stored, size_t layer) const {
    const double size = std::abs(Real(stored, layer));
    if (shape_.dtype == DType::kF16) return std::max(size, 1.0) * 0x1p-8;
    if (shape_.dtype == DType::kF32) return std::max(size, 1.0) * 1e-5;
    return static_cast<double>(encodings_[layer].scale) * (shape_.dtype == DType::kU8 ? 1.001 : 4);
  }

  // One head at a time, as the definition says.
  void TurnColumn(const KeyShift& shift, size_t t) {
    const size_t dim = shape_.head_dim, pairs = shift.cos.size();
    for (size_t begin = 0; begin < keys_[t].size(); begin += dim) {
      const size_t layer = begin / (shape_.kv_heads * dim);
      std::vector<double> head(dim), plain(dim);
      for (size_t d = 0; d < dim; ++d) plain[d] = Real(keys_[t][begin + d], layer);
      if (!shift.rotation.empty()) Multiply(shift.rotation, true, plain);
      head = plain;
      for (size_t i = 0; i < pairs; ++i) {
        const double c = shift.cos[i], s = shift.sin[i];
        head[i] = c * plain[i] + s * plain[i + pairs];
        head[i + pairs] = c * plain[i + pairs] - s * plain[i];
      }
      if (!shift.rotation.empty()) Multiply(shift.rotation, false, head);
      for (size_t d = 0; d < dim; ++d) keys_[t][begin + d] = Stored(head[d], layer);
    }
  }
  static void Multiply(const std::vector<float>& matrix, bool transposed, std::vector<double>& x) {
    std::vector<double> y(x.size());
    for (size_t n = 0; n < y.size(); ++n) {
      for (size_t d = 0; d < x.size(); ++d) {
        y[n] += double{matrix[transposed ? d * x.size() + n : n * x.size() + d]} * x[d];
      }
    }
    x = y;
  }

  KvShape shape_;
  test::Random random_;
  size_t element_ = 0;
  std::vector<Encoding> encodings_;
  std::vector<Column> keys_, values_;  // a token each
  std::vector<std::vector<std::byte>> k_, v_;
  std::unique_ptr<KvCache> cache_;
};

KeyShift RandomShift(test::Random& random, uint32_t positions, uint32_t dim) {
  KeyShift shift;
  shift.positions = positions;
  const auto pairs = static_cast<uint32_t>(random.Below(dim / 2 + 1));
  for (uint32_t i = 0; i < pairs; ++i) {
    const double angle = positions * random.Uniform();
    shift.cos.push_back(static_cast<float>(std::cos(angle)));
    shift.sin.push_back(static_cast<float>(std::sin(angle)));
  }
  if (random.Below(3) != 0) return shift;
  // A reflection: orthogonal, and not symmetric in its use with the turn.
  std::vector<double> axis(dim);
  double squares = 0;
  for (double& value : axis) {
    value = random.Gauss();
    squares += value * value;
  }
  shift.rotation.resize(size_t{dim} * dim);
  for (uint32_t r = 0; r < dim; ++r) {
    for (uint32_t c = 0; c < dim; ++c) {
      // Its rows move by one, so that it differs from its transpose.
      shift.rotation[(r + 1) % dim * dim + c] =
          static_cast<float>((r == c ? 1.0 : 0.0) - 2 * axis[r] * axis[c] / squares);
    }
  }
  return shift;
}

class EvictTest : public ::testing::TestWithParam<Stored> {};

TEST_P(EvictTest, RandomSequencesMatchOneTokenAtATime) {
  test::Random random(7);
  const auto pick = [&](uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(random.Below(high - low + 1));
  };
  int full = 0, evictions = 0;
  for (int round = 0; round < 60; ++round) {
    const auto [dtype, packed] = GetParam();
    const KvShape shape = {pick(1, 2),   pick(1, 3), packed ? 16 * pick(1, 2) : pick(1, 10),
                           pick(3, 200), dtype,      packed};
    EvictTester tester(shape, random.Next());
    for (int op = 0; op < 25; ++op) {
      const uint32_t size = tester.cache().size(), room = shape.context_len - size;
      if (room == 0 || (size > 1 && pick(0, 3) == 0)) {
        full += room == 0 ? 1 : 0;
        const uint32_t sink = pick(0, size - 1), batch = pick(1, size - sink);
        tester.Evict(sink, RandomShift(random, batch, shape.head_dim));
        ++evictions;
      } else {
        const uint32_t ar = pick(0, 2) == 0 ? 1 : pick(1, room);
        std::vector<uint32_t> rows;
        const bool contiguous = pick(0, 1) == 0;
        for (uint32_t r = 0; r < ar; ++r) {
          if (contiguous || pick(0, 1) == 0) rows.push_back(r);
        }
        tester.Step(ar, rows, contiguous);
      }
      tester.Check();
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(full, 20);
  EXPECT_GT(evictions, 200);
}

INSTANTIATE_TEST_SUITE_P(Elements, EvictTest,
                         ::testing::Values(Stored{DType::kU8, false}, Stored{DType::kU8, true},
                                           Stored{DType::kU16, false}, Stored{DType::kF16, false},
                                           Stored{DType::kF32, false}));

TEST(FillBranchMaskTest, RowsSeeTheCacheAndTheirOwn) {
  constexpr uint32_t kAr = 5, kContext = 9, kPast = 3, kCount = 3;
  const std::vector<uint8_t> sees = {1, 0, 0, 1, 1, 0, 1, 0, 1};
  std::vector<uint16_t> mask(kAr * kContext, 7);
  FillBranchMask(DType::kU16, kAr, kContext, kPast, kCount, sees,
                 reinterpret_cast<std::byte*>(mask.data()));
  for (uint32_t r = 0; r < kAr; ++r) {
    for (uint32_t c = 0; c < kContext; ++c) {
      const bool own = c >= kContext - kAr;
      const uint32_t other = c - (kContext - kAr);
      bool expected = own && other == r;
      if (r < kCount) {
        expected = own ? other < kCount && sees[r * kCount + other] != 0 : c < kPast;
      }
      EXPECT_EQ(mask[r * kContext + c], expected ? 65535 : 0) << r << ", " << c;
    }
  }
}

}  // namespace
}  // namespace spillway

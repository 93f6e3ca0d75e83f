// IntegerProducts on multiply-add of s16 pairs; included once a target, inside a
// namespace that declares `struct Simd`:
//   V, kLanes          a vector and its number of 32-bit lanes (4, 8 or 16)
//   kRows              rows that share one load of a weight or column vector
//   Zero, Broadcast32, Broadcast64
//   WidenWeights       2 * kLanes s8 at the address, as s16
//   WidenU8/S8/U16     kLanes values at the address, as 32-bit lanes
//   Pair(a, b)         per lane: a in the low, b in the high 16 bits
//   LowBytes, HighBytes  of each 16-bit half, as s16
//   FlipSigns          each 16-bit half xor 0x8000
//   DotAdd(sum, a, b)  sum + a.lo * b.lo + a.hi * b.hi, per lane
//   Store, AddToDoubles(sums, v, factor): sums[lane] += factor * v[lane]
//
// This file has no include guard on purpose.

// A pair sum is at most 2 * 32768 * 255 < 2^24 in size, so 128 of them fit.
constexpr size_t kFlushEvery = 128;

// ------------------------------------------------------------------- Linear

// Prepared rows are s16: u16 centred on 32768, the other types as they are.
size_t LinearRowBytes(DType /*dtype*/, size_t k) { return (k + 3) / 4 * 4 * sizeof(int16_t); }

int32_t LinearBase(DType dtype) { return dtype == DType::kU16 ? 32768 : 0; }

void PrepareLinearRow(const std::byte* x, DType dtype, size_t k, std::byte* prepared) {
  int16_t* out = reinterpret_cast<int16_t*>(prepared);
  const int32_t base = LinearBase(dtype);
  for (size_t i = 0; i < k; ++i) out[i] = static_cast<int16_t>(LoadInt(x, dtype, i) - base);
  for (size_t i = k; i < (k + 3) / 4 * 4; ++i) out[i] = 0;
}

// Vectors of widened weights in one block of 16 channels, and at a time.
constexpr size_t kBlockVectors = 32 / Simd::kLanes;
constexpr size_t kStepVectors = 2;

// Adds the sums of kStepVectors vectors' channels; lanes hold two pairs a channel.
template <size_t Rows>
void FlushLinear(const Simd::V (&sum)[Rows][kStepVectors], size_t stride, double* sums) {
  for (size_t r = 0; r < Rows; ++r) {
    for (size_t v = 0; v < kStepVectors; ++v) {
      int32_t lanes[Simd::kLanes];
      Simd::Store(lanes, sum[r][v]);
      for (size_t c = 0; c < Simd::kLanes / 2; ++c) {
        sums[r * stride + v * (Simd::kLanes / 2) + c] +=
            static_cast<double>(lanes[2 * c]) + static_cast<double>(lanes[2 * c + 1]);
      }
    }
  }
}

// Rows x (kStepVectors * kLanes / 2) channels, starting at vector `first` of the
// block at `w`.
template <size_t Rows>
void LinearTile(const std::byte* x, size_t row_bytes, const int8_t* w, size_t first,
                size_t k_groups, size_t stride, double* sums) {
  for (size_t begin = 0; begin < k_groups; begin += kFlushEvery) {
    const size_t end = begin + kFlushEvery < k_groups ? begin + kFlushEvery : k_groups;
    Simd::V sum[Rows][kStepVectors];
    for (size_t r = 0; r < Rows; ++r) {
      for (size_t v = 0; v < kStepVectors; ++v) sum[r][v] = Simd::Zero();
    }
    for (size_t g = begin; g < end; ++g) {
      const int8_t* group = w + g * 64 + first * 2 * Simd::kLanes;
      const Simd::V w0 = Simd::WidenWeights(group);
      const Simd::V w1 = Simd::WidenWeights(group + 2 * Simd::kLanes);
#pragma GCC unroll 8
      for (size_t r = 0; r < Rows; ++r) {
        const Simd::V values = Simd::Broadcast64(x + r * row_bytes + g * 8);
        sum[r][0] = Simd::DotAdd(sum[r][0], values, w0);
        sum[r][1] = Simd::DotAdd(sum[r][1], values, w1);
      }
    }
    FlushLinear<Rows>(sum, stride, sums);
  }
}

template <size_t Rows>
void LinearRows(const std::byte* x, size_t row_bytes, const int8_t* weights, size_t k_groups,
                size_t blocks, double* sums) {
  const size_t stride = blocks * 16;
  for (size_t b = 0; b < blocks; ++b) {
    const int8_t* w = weights + b * k_groups * 64;
    for (size_t first = 0; first < kBlockVectors; first += kStepVectors) {
      LinearTile<Rows>(x, row_bytes, w, first, k_groups, stride,
                       sums + b * 16 + first * (Simd::kLanes / 2));
    }
  }
}

void Linear(const std::byte* prepared, size_t row_bytes, size_t rows, DType /*dtype*/,
            const int8_t* weights, size_t k_groups, size_t blocks, double* sums) {
  for (size_t i = 0; i < rows * blocks * 16; ++i) sums[i] = 0.0;
  size_t r = 0;
  const auto next = [&](auto count) {
    constexpr size_t kCount = decltype(count)::value;
    for (; r + kCount <= rows; r += kCount) {
      LinearRows<kCount>(prepared + r * row_bytes, row_bytes, weights, k_groups, blocks,
                         sums + r * blocks * 16);
    }
  };
  next(std::integral_constant<size_t, Simd::kRows>());
  next(std::integral_constant<size_t, 2>());
  next(std::integral_constant<size_t, 1>());
}

// ------------------------------------------------------------------- MatMul

struct ByteColumns {
  using T = uint8_t;
  static constexpr size_t kPlanes = 1;
  static Simd::V Widen(const T* b) { return Simd::WidenU8(b); }
  static void Split(Simd::V pair, Simd::V (&planes)[kPlanes]) { planes[0] = pair; }
};

struct SignedByteColumns : ByteColumns {
  using T = int8_t;
  static Simd::V Widen(const T* b) { return Simd::WidenS8(b); }
};

// 16-bit values as two planes of bytes: 256 * high + low.
struct WordColumns {
  using T = uint16_t;
  static constexpr size_t kPlanes = 2;
  static Simd::V Widen(const T* b) { return Simd::WidenU16(b); }
  static void Split(Simd::V pair, Simd::V (&planes)[kPlanes]) {
    planes[0] = Simd::LowBytes(pair);
    planes[1] = Simd::HighBytes(pair);
  }
};

struct SignedWordColumns : WordColumns {
  static void Split(Simd::V pair, Simd::V (&planes)[kPlanes]) {
    WordColumns::Split(Simd::FlipSigns(pair), planes);
  }
};

// Rows x kLanes columns; out[r * kLanes + lane].
template <size_t Rows, typename Columns>
void MatMulTile(const int16_t* a, size_t a_stride, const typename Columns::T* b, size_t ldb,
                size_t k, double* out) {
  for (size_t i = 0; i < Rows * Simd::kLanes; ++i) out[i] = 0.0;
  for (size_t begin = 0; begin < k; begin += 2 * kFlushEvery) {
    const size_t end = begin + 2 * kFlushEvery < k ? begin + 2 * kFlushEvery : k;
    Simd::V sum[Rows][Columns::kPlanes];
    for (size_t r = 0; r < Rows; ++r) {
      for (size_t p = 0; p < Columns::kPlanes; ++p) sum[r][p] = Simd::Zero();
    }
    for (size_t i = begin; i < end; i += 2) {
      const Simd::V even = Columns::Widen(b + i * ldb);
      const Simd::V odd = i + 1 < end ? Columns::Widen(b + (i + 1) * ldb) : Simd::Zero();
      Simd::V planes[Columns::kPlanes];
      Columns::Split(Simd::Pair(even, odd), planes);
#pragma GCC unroll 8
      for (size_t r = 0; r < Rows; ++r) {
        const Simd::V values = Simd::Broadcast32(a + r * a_stride + i);
        for (size_t p = 0; p < Columns::kPlanes; ++p) {
          sum[r][p] = Simd::DotAdd(sum[r][p], values, planes[p]);
        }
      }
    }
    for (size_t r = 0; r < Rows; ++r) {
      for (size_t p = 0; p < Columns::kPlanes; ++p) {
        Simd::AddToDoubles(out + r * Simd::kLanes, sum[r][p], p == 0 ? 1.0 : 256.0);
      }
    }
  }
}

template <typename Columns>
void MatMulAs(const int16_t* a, size_t a_stride, size_t rows, const typename Columns::T* b,
              size_t ldb, size_t k, size_t n, std::byte* scratch, double* sums) {
  using T = typename Columns::T;
  constexpr size_t kLanes = Simd::kLanes;
  for (size_t c = 0; c < n; c += kLanes) {
    const size_t width = n - c < kLanes ? n - c : kLanes;
    const T* columns = b + c;
    size_t stride = ldb;
    if (width < kLanes) {  // widen the last columns with zeros
      T* padded = reinterpret_cast<T*>(scratch);
      for (size_t i = 0; i < k; ++i) {
        for (size_t j = 0; j < kLanes; ++j) {
          padded[i * kLanes + j] = j < width ? columns[i * ldb + j] : T{0};
        }
      }
      columns = padded;
      stride = kLanes;
    }
    size_t r = 0;
    const auto next = [&](auto count) {
      constexpr size_t kCount = decltype(count)::value;
      for (; r + kCount <= rows; r += kCount) {
        double out[kCount * kLanes];
        MatMulTile<kCount, Columns>(a + r * a_stride, a_stride, columns, stride, k, out);
        for (size_t i = 0; i < kCount; ++i) {
          for (size_t j = 0; j < width; ++j) sums[(r + i) * n + c + j] = out[i * kLanes + j];
        }
      }
    };
    next(std::integral_constant<size_t, Simd::kRows>());
    next(std::integral_constant<size_t, 4>());
    next(std::integral_constant<size_t, 2>());
    next(std::integral_constant<size_t, 1>());
  }
}

void MatMul(const int16_t* a, size_t a_stride, size_t rows, const std::byte* b, DType b_dtype,
            size_t ldb, size_t k, size_t n, std::byte* scratch, double* sums) {
  const auto run = [&](auto columns) {
    using Columns = decltype(columns);
    MatMulAs<Columns>(a, a_stride, rows, reinterpret_cast<const typename Columns::T*>(b), ldb, k, n,
                      scratch, sums);
  };
  switch (b_dtype) {
    case DType::kU8:
      return run(ByteColumns());
    case DType::kS8:
      return run(SignedByteColumns());
    case DType::kU16:
      return run(WordColumns());
    default:
      return run(SignedWordColumns());
  }
}

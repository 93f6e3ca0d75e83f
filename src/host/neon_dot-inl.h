// Linear on dot products of four bytes; included once a target, inside a namespace
// that declares `struct Dot`:
//   kSignedRows        rows are multiplied as signed bytes, else as unsigned ones
//   Add<lane>(sum, weights, values)
//                      sum[i] + sum over j of weights[4 i + j] * values[4 lane + j]
//
// A prepared row is one plane of bytes (8-bit types) or two (16-bit: high, low), each
// padded with zeros to whole vectors. A vector of weights holds one group of four inputs
// of four channels, as they are stored.
//
// This file has no include guard on purpose.

inline bool IsWide(DType dtype) { return dtype == DType::kU16 || dtype == DType::kS16; }
inline size_t PlaneBytes(size_t k_groups) { return (k_groups + 3) / 4 * 16; }

size_t LinearRowBytes(DType dtype, size_t k) {
  return PlaneBytes((k + 3) / 4) * (IsWide(dtype) ? 2 : 1);
}

// Bytes b of an unsigned number become b - 128 where rows are signed.
int32_t LinearBase(DType dtype) {
  const int32_t shift = Dot::kSignedRows ? (IsWide(dtype) ? 128 * 256 + 128 : 128) : 0;
  return shift - (dtype == DType::kS16 ? 32768 : dtype == DType::kS8 ? 128 : 0);
}

void PrepareLinearRow(const std::byte* x, DType dtype, size_t k, std::byte* prepared) {
  constexpr uint8_t kFlip = Dot::kSignedRows ? 0x80 : 0;
  uint8_t* out = reinterpret_cast<uint8_t*>(prepared);
  const size_t plane = PlaneBytes((k + 3) / 4);
  if (IsWide(dtype)) {
    const uint16_t* in = reinterpret_cast<const uint16_t*>(x);
    const uint16_t sign = dtype == DType::kS16 ? 0x8000 : 0;
    for (size_t i = 0; i < k; ++i) {
      const uint16_t value = in[i] ^ sign;
      out[i] = static_cast<uint8_t>(value >> 8) ^ kFlip;
      out[plane + i] = static_cast<uint8_t>(value) ^ kFlip;
    }
    for (size_t i = k; i < plane; ++i) out[i] = out[plane + i] = 0;
    return;
  }
  const uint8_t* in = reinterpret_cast<const uint8_t*>(x);
  const uint8_t sign = dtype == DType::kS8 ? 0x80 : 0;
  for (size_t i = 0; i < k; ++i) out[i] = in[i] ^ sign ^ kFlip;
  for (size_t i = k; i < plane; ++i) out[i] = 0;
}

constexpr size_t kBlockVectors = 4;  // of four channels

// One row's sums of a vector of channels; the high bytes' plane comes first.
template <size_t Planes>
inline double PlaneSum(const int32_t (&lanes)[Planes][4], size_t i) {
  if constexpr (Planes == 1) {
    return lanes[0][i];
  } else {
    return 256.0 * lanes[0][i] + lanes[1][i];
  }
}

// Sums of Rows rows and one block of 16 channels, kept in registers.
template <size_t Rows, size_t Planes>
struct DotTile {
  int32x4_t sum[Rows][Planes][kBlockVectors];

  template <int kLane>
  void Step(const int8_t* w, const uint8x16_t (&values)[Rows][Planes]) {
#pragma GCC unroll 4
    for (size_t v = 0; v < kBlockVectors; ++v) {
      const int8x16_t weights = vld1q_s8(w + 16 * v);
#pragma GCC unroll 4
      for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 2
        for (size_t p = 0; p < Planes; ++p) {
          sum[r][p][v] = Dot::Add<kLane>(sum[r][p][v], weights, values[r][p]);
        }
      }
    }
  }

  void Clear() {
    for (auto& row : sum) {
      for (auto& plane : row) {
        for (int32x4_t& vector : plane) vector = vdupq_n_s32(0);
      }
    }
  }

  void Multiply(const uint8_t* x, size_t row_bytes, const int8_t* w, size_t k_groups) {
    Clear();
    const size_t plane_bytes = PlaneBytes(k_groups);
    uint8x16_t values[Rows][Planes];
    const auto load = [&](size_t group) {
      for (size_t r = 0; r < Rows; ++r) {
        for (size_t p = 0; p < Planes; ++p) {
          values[r][p] = vld1q_u8(x + r * row_bytes + p * plane_bytes + 4 * group);
        }
      }
    };
    size_t g = 0;
    for (; g + 4 <= k_groups; g += 4, w += 256) {
      load(g);
      Step<0>(w, values);
      Step<1>(w + 64, values);
      Step<2>(w + 128, values);
      Step<3>(w + 192, values);
    }
    const size_t left = k_groups - g;
    if (left == 0) return;
    load(g);
    Step<0>(w, values);
    if (left > 1) Step<1>(w + 64, values);
    if (left > 2) Step<2>(w + 128, values);
  }

  void Store(double* sums, size_t stride) const {
    for (size_t r = 0; r < Rows; ++r) {
      for (size_t v = 0; v < kBlockVectors; ++v) {
        int32_t lanes[Planes][4];
        for (size_t p = 0; p < Planes; ++p) vst1q_s32(lanes[p], sum[r][p][v]);
        for (size_t i = 0; i < 4; ++i) sums[r * stride + 4 * v + i] = PlaneSum<Planes>(lanes, i);
      }
    }
  }
};

template <size_t Rows, size_t Planes>
void DotRows(const std::byte* x, size_t row_bytes, const int8_t* weights, size_t k_groups,
             size_t blocks, double* sums) {
  for (size_t b = 0; b < blocks; ++b) {
    DotTile<Rows, Planes> tile;
    tile.Multiply(reinterpret_cast<const uint8_t*>(x), row_bytes, weights + b * k_groups * 64,
                  k_groups);
    tile.Store(sums + b * 16, blocks * 16);
  }
}

// One row by a block of 16 channels of 4-bit weights. A block of K has a multiplier for
// each channel, so its sums are kept apart until it ends.
template <size_t Planes>
class NibbleTile {
 public:
  NibbleTile(const std::byte* x, const NibbleColumns& columns, size_t block)
      : x_(reinterpret_cast<const uint8_t*>(x)),
        columns_(columns),
        block_(block),
        plane_bytes_(PlaneBytes(2 * columns.k_groups)) {}

  DotTile<1, Planes> Run() {
    const size_t groups = columns_.k_groups, step = columns_.block_groups;
    total_.Clear();
    if (columns_.multipliers == nullptr) {
      Add(0, groups, total_);
      return total_;
    }
    const size_t k_blocks = (groups + step - 1) / step;
    for (size_t i = 0; i < k_blocks; ++i) {
      part_.Clear();
      Add(i * step, i + 1 < k_blocks ? (i + 1) * step : groups, part_);
      AddScaled(columns_.multipliers + (block_ * k_blocks + i) * 16);
    }
    return total_;
  }

 private:
  using Sums = DotTile<1, Planes>;

  void Add(size_t first, size_t last, Sums& sums) const {
    const uint8x16_t mask = vdupq_n_u8(15);
    const int8x16_t eight = vdupq_n_s8(8);
    for (size_t g = first; g < last; ++g) {
      uint8x16_t values[Planes];  // the group's eight, twice
      for (size_t p = 0; p < Planes; ++p) {
        const uint8x8_t half = vld1_u8(x_ + p * plane_bytes_ + 8 * g);
        values[p] = vcombine_u8(half, half);
      }
      const auto* at =
          reinterpret_cast<const uint8_t*>(columns_.data) + (block_ * columns_.k_groups + g) * 64;
#pragma GCC unroll 4
      for (size_t v = 0; v < kBlockVectors; ++v) {
        const uint8x16_t pairs = vld1q_u8(at + 16 * v);
        const int8x16_t low = vsubq_s8(vreinterpretq_s8_u8(vandq_u8(pairs, mask)), eight);
        const int8x16_t high = vsubq_s8(vreinterpretq_s8_u8(vshrq_n_u8(pairs, 4)), eight);
#pragma GCC unroll 2
        for (size_t p = 0; p < Planes; ++p) {
          sums.sum[0][p][v] = Dot::Add<0>(sums.sum[0][p][v], low, values[p]);
          sums.sum[0][p][v] = Dot::Add<1>(sums.sum[0][p][v], high, values[p]);
        }
      }
    }
  }

  void AddScaled(const uint8_t* multipliers) {
    for (size_t v = 0; v < kBlockVectors; ++v) {
      const int32_t lanes[4] = {multipliers[4 * v], multipliers[4 * v + 1], multipliers[4 * v + 2],
                                multipliers[4 * v + 3]};
      const int32x4_t by = vld1q_s32(lanes);
      for (size_t p = 0; p < Planes; ++p) {
        total_.sum[0][p][v] = vmlaq_s32(total_.sum[0][p][v], part_.sum[0][p][v], by);
      }
    }
  }

  const uint8_t* x_;
  const NibbleColumns& columns_;
  size_t block_, plane_bytes_;
  Sums total_, part_;
};

template <size_t Planes>
void RowByNibbles(const std::byte* x, const NibbleColumns& columns, const ProductFinish& finish,
                  std::byte* out) {
  const VectorOps& vectors = HighwayVectorOps(CpuTarget::kNeon);
  const size_t size = DTypeSize(finish.out.dtype);
  for (size_t c = 0; c < columns.count; c += 16) {
    double sums[16];
    NibbleTile<Planes>(x, columns, c / 16).Run().Store(sums, 16);
    const size_t count = columns.count - c < 16 ? columns.count - c : 16;
    vectors.finish_product(sums, finish.base + c, finish.unit, finish.correction + c,
                           finish.factor + c, count);
    vectors.store(sums, count, finish.out, out + c * size);
  }
}

void NibbleRow(const std::byte* prepared, DType dtype, const NibbleColumns& columns,
               const ProductFinish& finish, std::byte* out) {
  const auto row = IsWide(dtype) ? RowByNibbles<2> : RowByNibbles<1>;
  row(prepared, columns, finish, out);
}

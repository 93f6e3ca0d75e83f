// Every operation alone on the vendor's simulator against the host's integers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "base/float16.h"
#include "eval/allowed_difference.h"
#include "eval/integer_difference.h"
#include "tests/host/op_graphs.h"
#include "tests/qnn/lower/vendor_session.h"
#include "tests/support/paths.h"

namespace spillway {
namespace {

using test::Bytes;

constexpr int kArch = 79;  // of SM8750

// A graph of operations that have nothing to do with each other. Output ranges
// fit the values, as calibration would make them.
class Probe {
 public:
  explicit Probe(uint32_t seed) : random_(seed), graph_("probe") {}

  Graph& graph() { return graph_; }
  test::Random& random() { return random_; }

  TensorId Input(DType dtype, Shape shape, double range) {
    return test::AddQuantInput(graph_, random_, "in" + std::to_string(count_++), dtype,
                               std::move(shape), range);
  }
  // f16 values of -2 to 2.
  TensorId Half(Shape shape) {
    return graph_.AddInput("in" + std::to_string(count_++), DType::kF16, std::move(shape));
  }
  TensorId HalfConstant(const std::string& name, Shape shape, float low, float high) {
    std::vector<uint16_t> values(NumElements(shape));
    for (uint16_t& value : values) {
      value = FloatToHalf(static_cast<float>(random_.Real(low, high)));
    }
    return graph_.AddConstant(name, DType::kF16, std::move(shape), MakeConstantOf(values));
  }
  TensorId Symmetric(DType dtype, Shape shape, float range) {
    const TensorId id = Input(dtype, std::move(shape), 1);
    graph_.mutable_tensor(id).encoding = SymmetricEncoding(dtype, range);
    return id;
  }
  TensorId NarrowConstant(const std::string& name, Shape shape, float low, float high) {
    const Encoding encoding = AffineEncoding(DType::kU8, low, high);
    std::vector<uint8_t> values(NumElements(shape));
    for (uint8_t& value : values) value = static_cast<uint8_t>(random_.Int(0, 255));
    return graph_.AddConstant(name, DType::kU8, std::move(shape), MakeConstantOf(values), encoding);
  }
  TensorId Constant(const std::string& name, Shape shape, float low, float high) {
    const Encoding encoding = AffineEncoding(DType::kU16, low, high);
    std::vector<uint16_t> values(NumElements(shape));
    for (uint16_t& value : values) {
      value = static_cast<uint16_t>(
          QuantizeValue(static_cast<float>(random_.Real(low, high)), encoding, DType::kU16));
    }
    return graph_.AddConstant(name, DType::kU16, std::move(shape), MakeConstantOf(values),
                              encoding);
  }
  void Add(OpType type, const std::string& name, std::vector<TensorId> inputs, Encoding encoding,
           DType dtype = DType::kU16, OpAttributes attributes = {}) {
    const TensorId id = graph_.AddOp(type, name, std::move(inputs), std::move(attributes));
    Finish(id, std::move(encoding), dtype);
  }
  // An operation that copies integers.
  void AddCopy(OpType type, const std::string& name, std::vector<TensorId> inputs,
               OpAttributes attributes = {}) {
    const Tensor from = graph_.tensor(inputs[0]);
    Add(type, name, std::move(inputs), from.encoding, from.dtype, std::move(attributes));
  }
  void Finish(TensorId id, Encoding encoding, DType dtype) {
    graph_.mutable_tensor(id).dtype = dtype;
    graph_.mutable_tensor(id).encoding = std::move(encoding);
    graph_.MarkOutput(id);
  }

 private:
  test::Random random_;
  Graph graph_;
  int count_ = 0;
};

Encoding Affine(float low, float high) { return AffineEncoding(DType::kU16, low, high); }

class SimulatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
#if !defined(__x86_64__)
    GTEST_SKIP() << "only the x86-64 library has a simulator";
#endif
    if (!test::QnnLibDir()) {
      GTEST_SKIP() << "no vendor libraries in SPILLWAY_QNN_LIB_DIR or .deps/qnn/onnxruntime_qnn";
    }
  }

  // Runs the probe on both and expects every operation within what is allowed.
  void Compare(Probe& probe) {
    const Graph& graph = probe.graph();
    const Status valid = graph.Validate();
    ASSERT_TRUE(valid.ok()) << valid.ToString();
    const std::vector<Bytes> inputs = test::RandomInputs(probe.random(), graph);
    const std::vector<Bytes> found = RunVendor(graph, inputs);
    if (found.empty()) return;
    test::RunOptions options;
    options.threads = 2;
    const auto expected = test::RunAll(std::make_shared<const Graph>(graph), inputs, options);
    for (size_t i = 0; i < graph.ops().size(); ++i) {
      const Op& op = graph.ops()[i];
      const Tensor& output = graph.tensor(op.outputs[0]);
      ASSERT_TRUE(expected.contains(output.name)) << expected.begin()->first;
      IntegerDifference difference;
      difference.Add(output.dtype, expected.at(output.name).data(), found[i].data(),
                     NumElements(output.shape));
      const double allowed = AllowedLsb(graph, op, 79);
      std::printf("  %-28s max %5.1f mean %7.4f allowed %2.0f\n", op.name.c_str(), difference.max,
                  difference.mean(), allowed);
      EXPECT_LE(difference.max, allowed) << op.name;
      EXPECT_GT(DistinctBytes(found[i]), 1u) << op.name << ": an output of one value tests nothing";
    }
  }

 private:
  static size_t DistinctBytes(const Bytes& bytes) {
    return std::set<std::byte>(bytes.begin(), bytes.end()).size();
  }

  std::vector<Bytes> RunVendor(const Graph& graph, const std::vector<Bytes>& inputs) {
    test::VendorSession session(*test::QnnLibDir());
    const Result<qnn::LowerResult> lowered = session.Lower(graph);
    EXPECT_TRUE(lowered.ok()) << lowered.status().ToString();
    std::vector<Bytes> outputs;
    if (!lowered.ok()) return outputs;
    const auto finalized = session.vendor->Finalize({});
    EXPECT_TRUE(finalized.ok()) << finalized.status().ToString();
    if (!finalized.ok()) return outputs;
    EXPECT_EQ(session.vendor->inputs().size(), graph.inputs().size());
    for (const TensorId id : graph.outputs()) outputs.emplace_back(graph.tensor(id).Bytes());
    const std::vector<std::span<const std::byte>> in(inputs.begin(), inputs.end());
    const std::vector<std::span<std::byte>> out(outputs.begin(), outputs.end());
    const Status status = session.vendor->Execute(in, out);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return outputs;
  }
};

void AddLinears(Probe& probe, uint32_t rows, uint32_t k, uint32_t n) {
  const auto name = [&](const char* kind) {
    return std::string(kind) + "_" + std::to_string(k) + "x" + std::to_string(n);
  };
  const auto weight = [&](const char* kind, const test::WeightSpec& spec) {
    return test::AddWeight(probe.graph(), probe.random(), name(kind) + ".w", n, k, spec, 0.1);
  };
  const float range = std::sqrt(static_cast<float>(k)) * 0.12F;
  const auto x = [&] { return probe.Input(DType::kU16, {1, 1, rows, k}, 2); };
  probe.Add(OpType::kLinear, name("linear_s8"), {x(), weight("linear_s8", {8, 0})},
            Affine(-range, 1.2F * range));
  const TensorId bias = test::AddBias(probe.graph(), probe.random(), name("bias"), n);
  const TensorId biased = x();
  const TensorId biased_weight = weight("linear_bias", {8, 0});
  Encoding bias_encoding = Encoding::PerChannel(32, 0, {});
  for (const float scale : probe.graph().tensor(biased_weight).encoding.channel_scales) {
    bias_encoding.channel_scales.push_back(scale * probe.graph().tensor(biased).encoding.scale);
  }
  probe.graph().mutable_tensor(bias).encoding = bias_encoding;
  probe.Add(OpType::kLinear, name("linear_bias"), {biased, biased_weight, bias},
            Affine(-range, 1.2F * range));
  probe.Add(OpType::kLinear, name("linear_s4"), {x(), weight("linear_s4", {4, 0})},
            Affine(-range, range));
  if (k % 32 == 0) {
    probe.Add(OpType::kLinear, name("linear_lpbq32"), {x(), weight("linear_lpbq32", {4, 32})},
              Affine(-10 * range, 10 * range));
  }
}

TEST_F(SimulatorTest, Linear) {
  for (const uint32_t rows : {1u, 32u}) {
    Probe probe(rows);
    AddLinears(probe, rows, 64, 48);
    AddLinears(probe, rows, 64, 20);
    AddLinears(probe, rows, 36, 33);
    AddLinears(probe, rows, 576, 192);
    Compare(probe);
  }
}

TEST_F(SimulatorTest, MatMul) {
  for (const uint32_t rows : {1u, 32u}) {
    Probe probe(rows + 100);
    const auto add = [&](const char* name, const Shape& a, const Shape& b, DType right,
                         float range) {
      const TensorId left = probe.Input(DType::kU16, a, 1);
      probe.Add(OpType::kMatMul, name, {left, probe.Symmetric(right, b, 1)}, Affine(-range, range));
    };
    add("q_k_u8", {1, 3, rows, 64}, {1, 3, 64, 96}, DType::kU8, 12);
    add("p_v_u8", {1, 3, rows, 96}, {1, 3, 96, 64}, DType::kU8, 15);
    add("q_k_u8_narrow", {1, 2, rows, 16}, {1, 2, 16, 20}, DType::kU8, 6);
    add("q_k_u16", {1, 3, rows, 64}, {1, 3, 64, 96}, DType::kU16, 12);
    add("p_v_u16", {1, 3, rows, 96}, {1, 3, 96, 64}, DType::kU16, 15);
    Compare(probe);
  }
}

TEST_F(SimulatorTest, Elementwise) {
  for (const uint32_t rows : {1u, 32u}) {
    Probe probe(rows + 200);
    const auto x = [&](Shape shape, double range) {
      return probe.Input(DType::kU16, std::move(shape), range);
    };
    probe.Add(OpType::kAdd, "add", {x({1, 1, rows, 64}, 2), x({1, 1, rows, 64}, 3)}, Affine(-4, 4));
    // The mask of attention, broadcast over heads.
    const TensorId mask = x({1, 1, rows, 80}, 1);
    probe.graph().mutable_tensor(mask).encoding =
        Encoding::PerTensor(DType::kU16, 255.0F / 65535, -65535);
    probe.Add(OpType::kAdd, "add_mask", {x({1, 3, rows, 80}, 9), mask}, Affine(-264, 9));
    probe.Add(OpType::kMul, "mul", {x({1, 1, rows, 64}, 2), x({1, 1, rows, 64}, 3)}, Affine(-6, 6));
    probe.Add(OpType::kSilu, "silu", {x({1, 1, rows, 128}, 8)}, Affine(-0.3F, 8));
    probe.Add(OpType::kSilu, "silu_narrow", {x({1, 1, rows, 100}, 2)}, Affine(-0.3F, 2));
    probe.Add(OpType::kGeluTanh, "gelu", {x({1, 1, rows, 128}, 5)}, Affine(-0.2F, 5));
    probe.Add(OpType::kSoftmax, "softmax", {x({1, 3, rows, 80}, 6)}, Affine(0, 1));
    OpAttributes norm;
    norm.epsilon = 1e-5F;
    probe.Add(OpType::kRmsNorm, "rms_norm",
              {x({1, 1, rows, 64}, 3), probe.Constant("gamma", {64}, -0.2F, 2)}, Affine(-5, 5),
              DType::kU16, norm);
    norm.epsilon = 1e-6F;
    probe.Add(OpType::kRmsNorm, "rms_norm_576",
              {x({1, 1, rows, 576}, 20), probe.Constant("gamma_576", {576}, 0.1F, 1)},
              Affine(-3, 3), DType::kU16, norm);
    probe.Add(OpType::kRmsNorm, "q_norm_head",
              {x({1, 3, rows, 64}, 4), probe.Constant("gamma_q", {64}, 0.5F, 2)}, Affine(-5, 5),
              DType::kU16, norm);
    Compare(probe);
  }
}

TEST_F(SimulatorTest, RotaryEmbedding) {
  for (const uint32_t rows : {1u, 32u}) {
    Probe probe(rows + 300);
    for (const auto& [dim, rotated] :
         std::vector<std::pair<uint32_t, uint32_t>>{{64, 64}, {16, 16}, {64, 32}}) {
      const auto angle = [&, half = rotated / 2] {
        const TensorId id = probe.Input(DType::kU16, {1, rows, half}, 1);
        probe.graph().mutable_tensor(id).encoding = Affine(-1, 1);
        return id;
      };
      const TensorId x = probe.Input(DType::kU16, {1, 3, rows, dim}, 4);
      const TensorId cos = angle();
      const TensorId sin = angle();
      probe.Add(OpType::kRotaryEmbedding,
                "rotary_" + std::to_string(dim) + "_" + std::to_string(rotated), {x, cos, sin},
                Affine(-6, 6));
    }
    Compare(probe);
  }
}

TEST_F(SimulatorTest, CopiesAndConversions) {
  for (const uint32_t rows : {1u, 32u}) {
    Probe probe(rows + 400);
    probe.AddCopy(OpType::kGather, "gather",
                  {probe.Constant("table", {40, 32}, -1, 1),
                   probe.graph().AddInput("position", DType::kI32, {1, rows})});
    OpAttributes permutation, concat, tile;
    permutation.ints = {0, 1, 3, 2};
    concat.axis = 2;
    tile.ints = {1, 3, 1, 1};
    for (const DType dtype : {DType::kU16, DType::kU8}) {
      const std::string suffix = dtype == DType::kU16 ? "_u16" : "_u8";
      const auto x = [&] { return probe.Input(dtype, {1, 2, rows, 64}, 2); };
      const TensorId shaped =
          probe.graph().AddReshape("reshape" + suffix, x(), {1, 1, 2 * rows, 64});
      const Tensor source = probe.graph().tensor(probe.graph().inputs().back());
      probe.Finish(shaped, source.encoding, dtype);
      probe.AddCopy(OpType::kTranspose, "transpose" + suffix, {x()}, permutation);
      const TensorId past = x();
      const TensorId now = x();
      probe.graph().mutable_tensor(now).encoding = probe.graph().tensor(past).encoding;
      probe.AddCopy(OpType::kConcat, "concat" + suffix, {past, now}, concat);
      probe.AddCopy(OpType::kTile, "tile" + suffix, {x()}, tile);
      probe.AddCopy(OpType::kSlice, "slice" + suffix, {x()}, {.axis = 3, .ints = {5, 40}});
    }
    const auto wide = [&] { return probe.Input(DType::kU16, {1, 2, rows, 64}, 2); };
    probe.Add(OpType::kConvert, "convert_u16_u8", {wide()}, SymmetricEncoding(DType::kU8, 1.9F),
              DType::kU8);
    probe.Add(OpType::kConvert, "convert_u16_u16", {wide()}, Affine(-1.5F, 2), DType::kU16);
    probe.Add(OpType::kConvert, "convert_u8_u16", {probe.Input(DType::kU8, {1, 2, rows, 64}, 2)},
              Affine(-2, 2), DType::kU16);
    Compare(probe);
  }
}

// 4-bit weights as the recipes make them, beside 16-bit activations.
TEST_F(SimulatorTest, FourBitWeights) {
  for (const uint32_t rows : {1u, 32u}) {
    Probe probe(rows + 500);
    for (const auto& [k, n] :
         std::vector<std::pair<uint32_t, uint32_t>>{{64, 48}, {576, 192}, {1536, 576}}) {
      const float range = std::sqrt(static_cast<float>(k)) * 0.12F;
      for (const uint32_t block : {0u, 16u, 32u, 64u}) {
        const std::string name = "u16_s4_block" + std::to_string(block) + "_" + std::to_string(k) +
                                 "x" + std::to_string(n);
        const float wide = block == 0 ? range : 10 * range;
        probe.Add(
            OpType::kLinear, name,
            {probe.Input(DType::kU16, {1, 1, rows, k}, 2),
             test::AddWeight(probe.graph(), probe.random(), name + ".w", n, k, {4, block}, 0.1)},
            Affine(-wide, 1.2F * wide));
      }
    }
    Compare(probe);
  }
}

Encoding Narrow(float low, float high) { return AffineEncoding(DType::kU8, low, high); }

TEST_F(SimulatorTest, EightBitLinear) {
  for (const uint32_t rows : {1u, 32u}) {
    Probe probe(rows + 600);
    for (const auto& [k, n] :
         std::vector<std::pair<uint32_t, uint32_t>>{{64, 48}, {36, 33}, {576, 192}, {1536, 576}}) {
      const float range = std::sqrt(static_cast<float>(k)) * 0.12F;
      const auto add = [&](const std::string& kind, const test::WeightSpec& spec, float out) {
        const std::string name = kind + "_" + std::to_string(k) + "x" + std::to_string(n);
        const TensorId x = probe.Input(DType::kU8, {1, 1, rows, k}, 2);
        const TensorId w =
            test::AddWeight(probe.graph(), probe.random(), name + ".w", n, k, spec, 0.1);
        std::vector<TensorId> inputs = {x, w};
        if (kind == "u8_s8_bias") {
          const TensorId bias = test::AddBias(probe.graph(), probe.random(), name + ".b", n);
          Encoding units = Encoding::PerChannel(32, 0, {});
          for (const float scale : probe.graph().tensor(w).encoding.channel_scales) {
            units.channel_scales.push_back(scale * probe.graph().tensor(x).encoding.scale);
          }
          probe.graph().mutable_tensor(bias).encoding = units;
          inputs.push_back(bias);
        }
        probe.Add(OpType::kLinear, name, inputs, Narrow(-out, 1.2F * out), DType::kU8);
      };
      add("u8_s8", {8, 0}, range);
      add("u8_s8_bias", {8, 0}, range);
      add("u8_s4", {4, 0}, range);
      if (k % 32 == 0) add("u8_lpbq32", {4, 32}, 10 * range);
    }
    Compare(probe);
  }
}

TEST_F(SimulatorTest, EightBitActivations) {
  for (const uint32_t rows : {1u, 32u}) {
    Probe probe(rows + 700);
    const auto x = [&](Shape shape, double range) {
      return probe.Input(DType::kU8, std::move(shape), range);
    };
    const auto add = [&](OpType type, const std::string& name, std::vector<TensorId> inputs,
                         Encoding encoding, OpAttributes attributes = {}) {
      probe.Add(type, name, std::move(inputs), std::move(encoding), DType::kU8,
                std::move(attributes));
    };
    add(OpType::kAdd, "add", {x({1, 1, rows, 64}, 2), x({1, 1, rows, 64}, 3)}, Narrow(-4, 4));
    add(OpType::kAdd, "add_576", {x({1, 1, rows, 576}, 20), x({1, 1, rows, 576}, 3)},
        Narrow(-20, 22));
    add(OpType::kMul, "mul", {x({1, 1, rows, 64}, 2), x({1, 1, rows, 64}, 3)}, Narrow(-6, 6));
    add(OpType::kSilu, "silu", {x({1, 1, rows, 128}, 8)}, Narrow(-0.3F, 8));
    add(OpType::kSilu, "silu_narrow", {x({1, 1, rows, 100}, 2)}, Narrow(-0.3F, 2));
    add(OpType::kGeluTanh, "gelu", {x({1, 1, rows, 128}, 5)}, Narrow(-0.2F, 5));
    add(OpType::kSoftmax, "softmax", {x({1, 3, rows, 80}, 6)},
        Encoding::PerTensor(DType::kU8, 1.0F / 255, 0));
    OpAttributes norm;
    norm.epsilon = 1e-5F;
    for (const uint32_t width : {64u, 576u}) {
      const std::string name = "rms_norm_" + std::to_string(width);
      add(OpType::kRmsNorm, name,
          {x({1, 1, rows, width}, 3), probe.NarrowConstant(name + ".gamma", {width}, -0.2F, 2)},
          Narrow(-5, 5), norm);
    }
    for (const uint32_t rotated : {64u, 32u}) {
      const auto angle = [&] {
        const TensorId id = x({1, rows, rotated / 2}, 1);
        probe.graph().mutable_tensor(id).encoding = Narrow(-1, 1);
        return id;
      };
      const TensorId cos = angle();
      const TensorId sin = angle();
      add(OpType::kRotaryEmbedding, "rotary_64_" + std::to_string(rotated),
          {x({1, 3, rows, 64}, 4), cos, sin}, Narrow(-6, 6));
    }
    add(OpType::kMatMul, "q_k_u8_u8",
        {x({1, 3, rows, 64}, 1), probe.Symmetric(DType::kU8, {1, 3, 64, 96}, 1)}, Narrow(-12, 12));
    // The same range in the other type, as a graph of both has it.
    for (const float low : {-2.0F, -0.3F}) {
      const TensorId narrow = x({1, 2, rows, 64}, 2);
      probe.graph().mutable_tensor(narrow).encoding = Narrow(low, 2);
      probe.Add(OpType::kConvert, "u8_to_u16_" + std::to_string(low), {narrow}, Affine(low, 2));
      const TensorId wide = probe.Input(DType::kU16, {1, 2, rows, 64}, 2);
      probe.graph().mutable_tensor(wide).encoding = Affine(low, 2);
      add(OpType::kConvert, "u16_to_u8_" + std::to_string(low), {wide}, Narrow(low, 2));
    }
    add(OpType::kConvert, "u8_to_cache", {x({1, 2, rows, 64}, 2)},
        SymmetricEncoding(DType::kU8, 1.9F));
    Compare(probe);
  }
}

TEST_F(SimulatorTest, Halves) {
  for (const uint32_t rows : {1u, 32u}) {
    Probe probe(rows + 800);
    const auto add = [&](OpType type, const std::string& name, std::vector<TensorId> inputs,
                         OpAttributes attributes = {}) {
      probe.Add(type, name, std::move(inputs), {}, DType::kF16, std::move(attributes));
    };
    for (const auto& [k, n] : std::vector<std::pair<uint32_t, uint32_t>>{{64, 48}, {576, 192}}) {
      const std::string name = "linear_" + std::to_string(k) + "x" + std::to_string(n);
      add(OpType::kLinear, name,
          {probe.Half({1, 1, rows, k}), probe.HalfConstant(name + ".w", {n, k}, -0.2F, 0.2F)});
      add(OpType::kLinear, name + "_bias",
          {probe.Half({1, 1, rows, k}), probe.HalfConstant(name + ".w2", {n, k}, -0.2F, 0.2F),
           probe.HalfConstant(name + ".b", {n}, -1, 1)});
    }
    add(OpType::kMatMul, "q_k", {probe.Half({1, 3, rows, 64}), probe.Half({1, 3, 64, 96})});
    add(OpType::kMatMul, "p_v", {probe.Half({1, 3, rows, 96}), probe.Half({1, 3, 96, 64})});
    add(OpType::kAdd, "add", {probe.Half({1, 1, rows, 64}), probe.Half({1, 1, rows, 64})});
    add(OpType::kAdd, "add_mask", {probe.Half({1, 3, rows, 80}), probe.Half({1, 1, rows, 80})});
    add(OpType::kMul, "mul", {probe.Half({1, 1, rows, 64}), probe.Half({1, 1, rows, 64})});
    add(OpType::kSilu, "silu", {probe.Half({1, 1, rows, 128})});
    add(OpType::kGeluTanh, "gelu", {probe.Half({1, 1, rows, 128})});
    add(OpType::kSoftmax, "softmax", {probe.Half({1, 3, rows, 80})});
    OpAttributes norm, permutation, concat, tile;
    norm.epsilon = 1e-5F;
    permutation.ints = {0, 1, 3, 2};
    concat.axis = 2;
    tile.ints = {1, 1, 3, 1};
    for (const uint32_t width : {64u, 576u}) {
      const std::string name = "rms_norm_" + std::to_string(width);
      add(OpType::kRmsNorm, name,
          {probe.Half({1, 1, rows, width}), probe.HalfConstant(name + ".gamma", {width}, 0.1F, 2)},
          norm);
    }
    const TensorId cos = probe.Half({1, rows, 32});
    add(OpType::kRotaryEmbedding, "rotary",
        {probe.Half({1, 3, rows, 64}), cos, probe.Half({1, rows, 32})});
    add(OpType::kGather, "gather",
        {probe.HalfConstant("table", {40, 32}, -1, 1),
         probe.graph().AddInput("position", DType::kI32, {1, rows})});
    add(OpType::kTranspose, "transpose", {probe.Half({1, 2, rows, 64})}, permutation);
    add(OpType::kConcat, "concat", {probe.Half({1, 2, rows, 64}), probe.Half({1, 2, rows, 64})},
        concat);
    add(OpType::kTile, "tile", {probe.Half({1, 1, rows, 64})}, tile);
    Compare(probe);
  }
}

}  // namespace
}  // namespace spillway

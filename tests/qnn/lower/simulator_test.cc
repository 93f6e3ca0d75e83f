// Every operation alone on the vendor's simulator against the host's integers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

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
  TensorId Symmetric(DType dtype, Shape shape, float range) {
    const TensorId id = Input(dtype, std::move(shape), 1);
    graph_.mutable_tensor(id).encoding = SymmetricEncoding(dtype, range);
    return id;
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
      std::printf("  %-28s max %5.0f mean %7.4f allowed %2.0f\n", op.name.c_str(), difference.max,
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

}  // namespace
}  // namespace spillway

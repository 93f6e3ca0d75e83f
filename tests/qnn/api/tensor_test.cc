#include "qnn/api/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "qnn/api/abi_tensor.h"

namespace spillway::qnn {
namespace {

using ::testing::HasSubstr;

TensorDesc Good() {
  TensorDesc desc;
  desc.name = "t";
  desc.dims = {1, 4};
  desc.encoding = TensorEncoding::PerTensor(0.5F, -3);
  return desc;
}

struct BadCase {
  std::function<void(TensorDesc&)> spoil;
  const char* message;
};

TEST(CheckTensor, RefusesWhatTheVendorWouldTakeWrongly) {
  ASSERT_TRUE(CheckTensor(Good()).ok());
  static const std::byte kByte[1] = {};
  const BadCase cases[] = {
      {[](TensorDesc& t) { t.name.clear(); }, "no name"},
      {[](TensorDesc& t) {
         t.dims = {1, 0};
       },
       "dimension of 0"},
      {[](TensorDesc& t) { t.dims = {}; }, "0 dimensions"},
      {[](TensorDesc& t) { t.dims = {1, 1, 1, 1, 1, 1}; }, "6 dimensions"},
      {[](TensorDesc& t) {
         t.dims = {65536, 65536};
       },
       "4 GiB"},
      {[](TensorDesc& t) {
         t.dims = {0xffffffff, 0xffffffff, 0xffffffff};
       },
       "4 GiB"},
      {[](TensorDesc& t) { t.dtype = DataType::kSfixed4; }, "one per byte"},
      {[](TensorDesc& t) { t.encoding = {}; }, "needs an encoding"},
      {[](TensorDesc& t) { t.dtype = DataType::kInt32; }, "not fixed-point"},
      {[](TensorDesc& t) { t.encoding.scales = {0}; }, "scale 0 is 0"},
      {[](TensorDesc& t) { t.encoding.scales = {-1}; }, "scale 0 is -1"},
      {[](TensorDesc& t) { t.encoding.scales = {std::numeric_limits<float>::quiet_NaN()}; },
       "scale 0 is nan"},
      {[](TensorDesc& t) {
         t.encoding.scales = {1, 2};
       },
       "2 scales, expected 1"},
      {[](TensorDesc& t) {
         t.encoding.offsets = {1, 2};
       },
       "2 offsets"},
      {[](TensorDesc& t) { t.encoding = TensorEncoding::PerAxis(2, {1}); }, "axis 2"},
      {[](TensorDesc& t) { t.encoding = TensorEncoding::PerAxis(-1, {1}); }, "axis -1"},
      {[](TensorDesc& t) {
         t.encoding = TensorEncoding::PerAxis(1, {1, 2});
       },
       "2 scales, expected 4"},
      {[](TensorDesc& t) { t.encoding = TensorEncoding::BwPerAxis(0, 0, {1}); }, "0 bits"},
      {[](TensorDesc& t) { t.encoding = TensorEncoding::BwPerAxis(0, 17, {1}); }, "17 bits"},
      {[](TensorDesc& t) { t.role = TensorRole::kStatic; }, "0 bytes of data, expected 8"},
      {[](TensorDesc& t) { t.data = kByte; }, "only static tensors"},
      {[](TensorDesc& t) {
         t.encoding = TensorEncoding::PerAxis(0, {1});
         t.encoding.kind = TensorEncoding::Kind::kBlockwise;
         t.encoding.blocks_per_axis = 2;
         t.encoding.block_scales = {1};
       },
       "1 block scales, expected 2"},
      {[](TensorDesc& t) {
         t.encoding = TensorEncoding::PerAxis(0, {1});
         t.encoding.kind = TensorEncoding::Kind::kBlockwise;
         t.encoding.blocks_per_axis = 2;
         t.encoding.block_scales = {1, 17};
       },
       "block scale is 17"},
  };
  for (const BadCase& one : cases) {
    TensorDesc desc = Good();
    one.spoil(desc);
    const Status status = CheckTensor(desc);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << one.message;
    EXPECT_THAT(status.message(), HasSubstr(one.message));
  }
}

TEST(AbiTensor, CarriesEverythingThere) {
  TensorDesc desc = Good();
  desc.role = TensorRole::kAppRead;
  const AbiTensor tensor(desc);
  const abi::TensorV1& v1 = tensor.tensor().v1;
  EXPECT_EQ(tensor.tensor().version, 1U);
  EXPECT_STREQ(v1.name, "t");
  EXPECT_EQ(v1.type, abi::kAppRead);
  EXPECT_EQ(v1.data_type, DataType::kUfixed16);
  ASSERT_EQ(v1.rank, 2U);
  EXPECT_EQ(v1.dims[1], 4U);
  EXPECT_EQ(v1.quantize.definition, abi::kDefined);
  EXPECT_EQ(v1.quantize.encoding, abi::kScaleOffset);
  EXPECT_EQ(v1.quantize.scale_offset.scale, 0.5F);
  EXPECT_EQ(v1.quantize.scale_offset.offset, -3);
}

TEST(AbiTensor, EncodingsComeBack) {
  TensorEncoding per_axis = TensorEncoding::PerAxis(1, {1, 2, 3, 4});
  per_axis.offsets = {5, 6, 7, 8};
  TensorEncoding bw_per_tensor = TensorEncoding::PerTensor(2, 1);
  bw_per_tensor.kind = TensorEncoding::Kind::kBwPerTensor;
  bw_per_tensor.bitwidth = 4;
  for (const TensorEncoding& encoding : {TensorEncoding::PerTensor(3, -2), per_axis, bw_per_tensor,
                                         TensorEncoding::BwPerAxis(1, 4, {1, 2, 3, 4})}) {
    TensorDesc desc = Good();
    desc.encoding = encoding;
    const AbiTensor tensor(desc);
    const Result<TensorInfo> info = ReadAbiTensor(tensor.tensor());
    ASSERT_TRUE(info.ok()) << info.status().ToString();
    EXPECT_EQ(info->encoding.kind, encoding.kind);
    EXPECT_EQ(info->encoding.scales, encoding.scales);
    EXPECT_EQ(info->encoding.axis, encoding.axis);
    EXPECT_EQ(info->encoding.bitwidth, encoding.bitwidth);
    std::vector<int32_t> offsets = encoding.offsets;
    offsets.resize(encoding.scales.size());
    EXPECT_EQ(info->encoding.offsets, offsets);
  }
}

TEST(AbiTensor, BlockwiseHasScalesOfChannelsAndBlocks) {
  TensorDesc desc = Good();
  desc.encoding = TensorEncoding::PerAxis(1, {1, 2, 3, 4});
  desc.encoding.kind = TensorEncoding::Kind::kBlockwise;
  desc.encoding.blocks_per_axis = 2;
  desc.encoding.block_scales = {1, 2, 3, 4, 5, 6, 7, 8};
  ASSERT_TRUE(CheckTensor(desc).ok());
  const AbiTensor tensor(desc);
  const abi::QuantizeParams& params = tensor.tensor().v1.quantize;
  ASSERT_EQ(params.encoding, abi::kBlockwiseExpansion);
  EXPECT_EQ(params.blockwise->axis, 1);
  EXPECT_EQ(params.blockwise->blocks_per_axis, 2U);
  EXPECT_EQ(params.blockwise->block_scale_bitwidth, 4U);
  EXPECT_EQ(params.blockwise->storage_type, 0U);
  EXPECT_EQ(params.blockwise->scale_offsets[3].scale, 4);
  EXPECT_EQ(params.blockwise->block_scales8[7], 8);
}

TEST(AbiTensor, DamagedDescriptionsAreRefused) {
  const AbiTensor good(Good());
  abi::Tensor tensor = good.tensor();
  tensor.version = 3;
  EXPECT_THAT(ReadAbiTensor(tensor).status().message(), HasSubstr("version 3"));
  tensor = good.tensor();
  tensor.v1.rank = 1000000;
  EXPECT_THAT(ReadAbiTensor(tensor).status().message(), HasSubstr("1000000 dimensions"));
  tensor = good.tensor();
  tensor.v1.dims = nullptr;
  EXPECT_FALSE(ReadAbiTensor(tensor).ok());
  tensor = good.tensor();
  tensor.v1.quantize.encoding = abi::kAxisScaleOffset;
  tensor.v1.quantize.axis = {0, 1000000, &tensor.v1.quantize.scale_offset};
  EXPECT_THAT(ReadAbiTensor(tensor).status().message(), HasSubstr("1000000 scales"));
  tensor = good.tensor();
  tensor.v1.quantize.encoding = abi::kVector;
  EXPECT_THAT(ReadAbiTensor(tensor).status().message(), HasSubstr("encoding 6"));
}

TEST(AbiParams, TypesOfScalarsAndNamesOfTensors) {
  const uint32_t ones[] = {1, 1};
  const std::vector<OpParam> params = {
      {"a", 7U}, {"b", -7}, {"c", 1.5F}, {"d", true}, {"e", TensorParam::Uint32({2}, ones)}};
  AbiParams abi_params("op", params);
  abi_params.tensors()[0].mutable_tensor()->v1.id = 9;
  const std::vector<abi::Param>& list = abi_params.list();
  ASSERT_EQ(list.size(), 5U);
  EXPECT_EQ(list[0].scalar.data_type, DataType::kUint32);
  EXPECT_EQ(list[0].scalar.u32, 7U);
  EXPECT_EQ(list[1].scalar.data_type, DataType::kInt32);
  EXPECT_EQ(list[1].scalar.i32, -7);
  EXPECT_EQ(list[2].scalar.data_type, DataType::kFloat32);
  EXPECT_EQ(list[2].scalar.f32, 1.5F);
  EXPECT_EQ(list[3].scalar.data_type, DataType::kBool8);
  EXPECT_EQ(list[3].scalar.b8, 1);
  EXPECT_EQ(list[4].type, abi::kTensorParam);
  EXPECT_STREQ(list[4].tensor.v1.name, "op.e");
  EXPECT_EQ(list[4].tensor.v1.id, 9U);
  EXPECT_EQ(list[4].tensor.v1.client.size, 8U);
}

}  // namespace
}  // namespace spillway::qnn

// A vendor context of this process, with the fake library or the real one.

#ifndef SPILLWAY_TESTS_QNN_LOWER_VENDOR_SESSION_H_
#define SPILLWAY_TESTS_QNN_LOWER_VENDOR_SESSION_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "qnn/api/manager.h"
#include "qnn/htp/options.h"
#include "qnn/lower/lower.h"

namespace spillway::test {

struct VendorSession {
  explicit VendorSession(const std::string& dir, const std::string& soc = "SM8750") {
    options.soc = soc;
    const Status status = Open(dir);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }

  // Lowers `graph` into a vendor graph of its own.
  Result<qnn::LowerResult> Lower(const Graph& graph) {
    SPILLWAY_ASSIGN_OR_RETURN(
        vendor, context->CreateGraph(graph.name(), qnn::htp::MakeGraphConfigs(options, *soc_)));
    return qnn::LowerGraph(graph, vendor);
  }

  HtpOptions options;
  std::unique_ptr<qnn::Context> context;
  qnn::Graph* vendor = nullptr;  // the graph of the last Lower()

 private:
  Status Open(const std::string& dir) {
    SPILLWAY_ASSIGN_OR_RETURN(soc_, qnn::htp::CheckOptions(options));
    SPILLWAY_ASSIGN_OR_RETURN(const auto library, qnn::Library::Load(dir));
    SPILLWAY_ASSIGN_OR_RETURN(const auto log, qnn::VendorLog::Create(library, qnn::abi::kLogError));
    SPILLWAY_ASSIGN_OR_RETURN(const auto backend, qnn::Backend::Create(log));
    SPILLWAY_ASSIGN_OR_RETURN(
        const auto device,
        qnn::Device::Create(log, qnn::htp::MakeDeviceConfigs(*soc_, options.pd_session,
                                                             library->version().backend)));
    SPILLWAY_ASSIGN_OR_RETURN(
        context, qnn::Context::Create(backend, device, qnn::htp::MakeContextConfigs(options)));
    return OkStatus();
  }
  const qnn::htp::Soc* soc_ = nullptr;
};

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_QNN_LOWER_VENDOR_SESSION_H_

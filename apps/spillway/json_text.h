// The program's way to print JSON.

#ifndef SPILLWAY_APPS_SPILLWAY_JSON_TEXT_H_
#define SPILLWAY_APPS_SPILLWAY_JSON_TEXT_H_

#include <nlohmann/json.hpp>
#include <string>

namespace spillway::cli {

using Json = nlohmann::ordered_json;

// Indented, one newline at the end; bytes that are not UTF-8 become U+FFFD.
inline std::string JsonText(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace spillway::cli

#endif  // SPILLWAY_APPS_SPILLWAY_JSON_TEXT_H_

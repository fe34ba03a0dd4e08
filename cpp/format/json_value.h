// A small JSON tree and a typed cursor over it that knows its own path. Internal to cpp/format.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace cudaexec {

struct JsonValue {
  using Array = std::vector<JsonValue>;
  using Object = std::vector<std::pair<std::string, JsonValue>>;  // sorted by key, no key twice

  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> data;
};

/// @throws FormatError ("<path>, manifest byte N: ...") for text that is not JSON or UTF-8, is
/// larger than 64 MiB, nests deeper than 64, holds more than 4 million values or one key twice in
/// an object.
JsonValue parse_json(std::string_view text, const std::string& path);

/// A value with the way to it. Cursors are made on the stack: a child must not outlive its parent.
class JsonCursor {
 public:
  JsonCursor(const JsonValue& root, const std::string& path) : value_(root), path_(path) {}

  /// @throws FormatError "<path>, manifest $.methods[0].name: <what>"
  [[noreturn]] void fail(const std::string& what) const;
  /// "$.methods[0].name"
  [[nodiscard]] std::string location() const;

  [[nodiscard]] bool is_null() const noexcept {
    return std::holds_alternative<std::monostate>(value_.data);
  }
  [[nodiscard]] const JsonValue& value() const noexcept { return value_; }

  [[nodiscard]] bool boolean() const;
  [[nodiscard]] int64_t integer(int64_t min, int64_t max) const;
  [[nodiscard]] size_t count(size_t limit = kNoLimit) const;  // an integer in [0, limit]
  [[nodiscard]] const std::string& text() const;
  [[nodiscard]] const std::string& nonempty_text() const;
  [[nodiscard]] std::vector<std::string> texts() const;

  /// Calls `visit(JsonCursor)` for each element of an array.
  template <typename Visit>
  void each(Visit visit) const {
    const auto& items = array();
    for (size_t i = 0; i < items.size(); ++i) visit(JsonCursor(items[i], *this, {}, i));
  }
  /// Calls `visit(key, JsonCursor)` for each member of an object, in key order.
  template <typename Visit>
  void members(Visit visit) const {
    for (const auto& [key, member] : object()) visit(key, JsonCursor(member, *this, key, 0));
  }
  /// Calls `visit(JsonCursor)` for the member `key`; a missing one is an error.
  template <typename Visit>
  auto at(std::string_view key, Visit visit) const {
    const JsonValue* member = find(key);
    if (member == nullptr) fail("'" + std::string(key) + "' is missing");
    return visit(JsonCursor(*member, *this, key, 0));
  }
  /// As at(), but does nothing and returns false if the member is missing or null.
  template <typename Visit>
  bool if_there(std::string_view key, Visit visit) const {
    const JsonValue* member = find(key);
    if (member == nullptr || std::holds_alternative<std::monostate>(member->data)) return false;
    visit(JsonCursor(*member, *this, key, 0));
    return true;
  }

  [[nodiscard]] const JsonValue* find(std::string_view key) const;
  [[nodiscard]] const JsonValue::Array& array() const;
  [[nodiscard]] const JsonValue::Object& object() const;

 private:
  static constexpr size_t kNoLimit = std::numeric_limits<int64_t>::max();

  JsonCursor(const JsonValue& value, const JsonCursor& parent, std::string_view key, size_t index)
      : value_(value), path_(parent.path_), parent_(&parent), key_(key), index_(index) {}
  [[noreturn]] void wrong_type(const char* expected) const;

  const JsonValue& value_;
  const std::string& path_;
  const JsonCursor* parent_ = nullptr;
  std::string_view key_;
  size_t index_ = 0;
};

}  // namespace cudaexec

#include "format/json_value.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/str.h"
#include "format/format_fault.h"

namespace cudaexec {
namespace {

constexpr size_t kMaxBytes = size_t{64} << 20;
constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxValues = 4'000'000;

/// Receives the parser's events and builds the tree; nothing recurses over the text's nesting.
class TreeBuilder {
 public:
  explicit TreeBuilder(const std::string& path) : path_(path) {}

  JsonValue take() { return std::move(root_); }

  bool null() { return add(std::monostate{}); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return add(static_cast<double>(value));  // no integer field accepts it
    return add(static_cast<int64_t>(value));
  }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_object(size_t) { return open(JsonValue::Object{}); }
  bool start_array(size_t) { return open(JsonValue::Array{}); }
  bool key(std::string& name) {
    key_ = std::move(name);
    return true;
  }
  bool end_array() {
    open_.pop_back();
    return true;
  }
  bool end_object() {
    auto& members = std::get<JsonValue::Object>(open_.back()->data);
    std::sort(members.begin(), members.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    const auto twice =
        std::adjacent_find(members.begin(), members.end(),
                           [](const auto& a, const auto& b) { return a.first == b.first; });
    if (twice != members.end())
      throw FormatError(str(path_, ", manifest: key ", quote(twice->first), " occurs twice"));
    open_.pop_back();
    return true;
  }
  bool parse_error(size_t position, const std::string& token, const std::exception&) {
    throw FormatError(
        str(path_, ", manifest byte ", position, ": no valid JSON near ", quote(token)));
  }

 private:
  template <typename T>
  bool add(T&& value) {
    place(JsonValue{std::forward<T>(value)});
    return true;
  }

  template <typename T>
  bool open(T&& container) {
    if (open_.size() >= kMaxDepth)
      throw FormatError(str(path_, ", manifest: nested deeper than ", kMaxDepth));
    open_.push_back(place(JsonValue{std::forward<T>(container)}));
    return true;
  }

  // Only the innermost container grows, so pointers to the open ones stay valid.
  JsonValue* place(JsonValue value) {
    if (++num_values_ > kMaxValues)
      throw FormatError(str(path_, ", manifest: more than ", kMaxValues, " values"));
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (auto* items = std::get_if<JsonValue::Array>(&open_.back()->data))
      return &items->emplace_back(std::move(value));
    auto& members = std::get<JsonValue::Object>(open_.back()->data);
    return &members.emplace_back(std::move(key_), std::move(value)).second;
  }

  const std::string& path_;
  JsonValue root_;
  std::vector<JsonValue*> open_;
  std::string key_;
  size_t num_values_ = 0;
};

}  // namespace

JsonValue parse_json(std::string_view text, const std::string& path) {
  if (text.size() > kMaxBytes)
    throw FormatError(str(path, ", manifest: ", text.size(), " bytes; at most ", kMaxBytes));
  TreeBuilder builder(path);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder))
    throw FormatError(str(path, ", manifest: no valid JSON"));
  return builder.take();
}

std::string JsonCursor::location() const {
  if (parent_ == nullptr) return "$";
  if (key_.data() == nullptr) return str(parent_->location(), "[", index_, "]");
  const bool plain = !key_.empty() && std::ranges::all_of(key_, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
  return plain ? str(parent_->location(), ".", key_)
               : str(parent_->location(), "[", quote(key_), "]");
}

void JsonCursor::fail(const std::string& what) const {
  throw FormatError(str(path_, ", manifest ", location(), ": ", what));
}

void JsonCursor::wrong_type(const char* expected) const {
  constexpr const char* kNames[] = {"null",   "a boolean", "an integer", "a float",
                                    "a text", "a list",    "an object"};
  fail(str(expected, " expected, ", kNames[value_.data.index()], " found"));
}

bool JsonCursor::boolean() const {
  const auto* value = std::get_if<bool>(&value_.data);
  if (value == nullptr) wrong_type("a boolean");
  return *value;
}

int64_t JsonCursor::integer(int64_t min, int64_t max) const {
  const auto* value = std::get_if<int64_t>(&value_.data);
  if (value == nullptr) wrong_type("an integer");
  if (*value < min || *value > max) fail(str(*value, "; ", min, " to ", max, " expected"));
  return *value;
}

size_t JsonCursor::count(size_t limit) const {
  return static_cast<size_t>(integer(0, static_cast<int64_t>(limit)));
}

const std::string& JsonCursor::text() const {
  const auto* value = std::get_if<std::string>(&value_.data);
  if (value == nullptr) wrong_type("a text");
  return *value;
}

const std::string& JsonCursor::nonempty_text() const {
  const std::string& value = text();
  if (value.empty()) fail("the text is empty");
  return value;
}

std::vector<std::string> JsonCursor::texts() const {
  std::vector<std::string> result;
  each([&](const JsonCursor& item) { result.push_back(item.text()); });
  return result;
}

const JsonValue* JsonCursor::find(std::string_view key) const {
  const auto& members = object();
  const auto found =
      std::lower_bound(members.begin(), members.end(), key,
                       [](const auto& member, std::string_view k) { return member.first < k; });
  return found != members.end() && found->first == key ? &found->second : nullptr;
}

const JsonValue::Array& JsonCursor::array() const {
  const auto* value = std::get_if<JsonValue::Array>(&value_.data);
  if (value == nullptr) wrong_type("a list");
  return *value;
}

const JsonValue::Object& JsonCursor::object() const {
  const auto* value = std::get_if<JsonValue::Object>(&value_.data);
  if (value == nullptr) wrong_type("an object");
  return *value;
}

}  // namespace cudaexec

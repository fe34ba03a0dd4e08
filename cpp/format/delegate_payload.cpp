#include "format/delegate_payload.h"

#include <algorithm>
#include <unordered_set>

#include "base/checked_math.h"
#include "base/str.h"
#include "format/format_fault.h"

namespace cudaexec {
namespace {

constexpr std::string_view kMagicFqn0 = "ETCUDAFQN0";
constexpr std::string_view kMagicFqn3 = "ETCUDAFQN3";
constexpr std::string_view kMagicPrefix = "ETCUDAFQN";
constexpr uint32_t kMaxVariants = 256;
constexpr uint32_t kMaxConstants = 1u << 20;
constexpr uint32_t kMaxRank = 64;
constexpr uint32_t kFallbackOnly = 1;
constexpr size_t kMaxKeyBytes = 4096;

class PayloadParser {
 public:
  PayloadParser(std::span<const std::byte> bytes, const std::string& path, uint64_t file_offset)
      : bytes_(bytes), path_(path), file_offset_(file_offset) {}

  DelegatePayload parse(std::string_view method_name) {
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
    if (text.empty()) return empty(method_name);
    if (text.starts_with(kMagicFqn0)) return fqn0();
    if (text.starts_with(kMagicFqn3)) return fqn3();
    if (text.starts_with(kMagicPrefix))
      fail(str("payload layout ", quote(text.substr(0, kMagicFqn0.size())), "; known are ",
               kMagicFqn0, " and ", kMagicFqn3));
    return keys(text);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw_format_error(path_, file_offset_ + position_, "delegate payload: " + what);
  }

  template <typename T>
  T number(const char* what) {
    if (sizeof(T) > bytes_.size() - position_) fail(str("ends inside ", what));
    const T value = read_number<T>(bytes_, position_);
    position_ += sizeof(T);
    return value;
  }

  std::string text(const char* what) {
    const auto length = number<uint32_t>(what);
    if (length > bytes_.size() - position_)
      fail(str(what, " of ", length, " bytes where ", bytes_.size() - position_, " are left"));
    std::string value(reinterpret_cast<const char*>(bytes_.data()) + position_, length);
    if (!is_valid_utf8(value)) fail(str(what, " ", quote(value), " is not valid UTF-8"));
    if (value.empty()) fail(str(what, " is empty"));
    position_ += length;
    return value;
  }

  DelegatePayload empty(std::string_view method_name) const {
    if (method_name.empty()) fail("it is empty and no compile spec 'method_name' tells the method");
    DelegatePayload payload;
    payload.layout = PayloadLayout::kEmpty;
    payload.variants.push_back({0, 0, false, str(method_name, "_so_blob")});
    payload.weights_key = str(method_name, "_weights_blob");
    return payload;
  }

  DelegatePayload keys(std::string_view text) const {
    const size_t newline = text.find('\n');
    const bool valid = newline != std::string_view::npos && newline > 0 &&
                       newline + 1 < text.size() && text.size() <= kMaxKeyBytes &&
                       text.find('\n', newline + 1) == std::string_view::npos &&
                       is_valid_utf8(text);
    if (!valid)
      fail(str("unknown layout of ", text.size(), " bytes, beginning with ",
               quote(text.substr(0, 16)), "; two keys with a newline between, or ", kMagicFqn0,
               " expected"));
    DelegatePayload payload;
    payload.layout = PayloadLayout::kKeys;
    payload.variants.push_back({0, 0, false, std::string(text.substr(0, newline))});
    payload.weights_key = std::string(text.substr(newline + 1));
    return payload;
  }

  DelegatePayload fqn0() {
    position_ = kMagicFqn0.size();
    DelegatePayload payload;
    payload.layout = PayloadLayout::kFqn0;
    const auto count = number<uint32_t>("the number of variants");
    if (count == 0 || count > kMaxVariants)
      fail(str(count, " code variants; 1 to ", kMaxVariants, " expected"));
    for (uint32_t i = 0; i < count; ++i) payload.variants.push_back(variant());
    check_variants(payload.variants);
    parse_constants(payload);
    return payload;
  }

  DelegatePayload fqn3() {
    position_ = kMagicFqn3.size();
    DelegatePayload payload;
    payload.layout = PayloadLayout::kFqn3;
    payload.variants.push_back({0, 0, false, text("the code key")});
    parse_constants(payload);
    return payload;
  }

  PayloadVariant variant() {
    PayloadVariant variant;
    variant.target_sm = number<uint32_t>("a variant");
    variant.ptx_compute = number<uint32_t>("a variant");
    const auto flags = number<uint32_t>("a variant");
    if ((flags & ~kFallbackOnly) != 0) fail(str("variant flags ", flags, "; only bit 0 is known"));
    variant.fallback_only = (flags & kFallbackOnly) != 0;
    variant.so_key = text("the code key of a variant");
    if (variant.ptx_compute > variant.target_sm)
      fail(str("variant for sm ", variant.target_sm, " with PTX ", variant.ptx_compute,
               " above it"));
    return variant;
  }

  void check_variants(const std::vector<PayloadVariant>& variants) const {
    const auto fallbacks =
        std::ranges::count_if(variants, [](const auto& variant) { return variant.fallback_only; });
    if (fallbacks > 1) fail(str(fallbacks, " fallback variants; at most one expected"));
    std::unordered_set<uint32_t> regular;
    for (const PayloadVariant& variant : variants) {
      const uint32_t sm = variant.target_sm;
      if (sm == 0 && variants.size() > 1) fail("an untargeted variant must be the only one");
      if (variant.fallback_only) {
        if (variant.ptx_compute == 0) fail(str("the fallback variant, sm ", sm, ", has no PTX"));
        continue;
      }
      if (variants.size() > 1 && variant.ptx_compute != 0)
        fail(str("variant for sm ", sm, " has PTX ", variant.ptx_compute,
                 "; among several variants only the fallback may have it"));
      if (!regular.insert(sm).second) fail(str("two variants for sm ", sm));
    }
  }

  void parse_constants(DelegatePayload& payload) {
    const auto count = number<uint32_t>("the number of constants");
    if (count > kMaxConstants) fail(str(count, " constants; at most ", kMaxConstants));
    std::unordered_set<std::string> names;
    for (uint32_t i = 0; i < count; ++i) {
      payload.constants.push_back(constant());
      if (!names.insert(payload.constants.back().fqn).second)
        fail(str("constant ", quote(payload.constants.back().fqn), " occurs twice"));
    }
    if (position_ != bytes_.size()) fail(str(bytes_.size() - position_, " bytes follow its end"));
  }

  PayloadConstant constant() {
    PayloadConstant constant;
    constant.fqn = text("the name of a constant");
    constant.storage_key = text("the storage key of a constant");
    constant.storage_nbytes = number<uint64_t>("a constant");
    constant.dtype = number<int32_t>("a constant");
    constant.device = number<int32_t>("a constant");
    constant.offset = number<int64_t>("a constant");
    const auto rank = number<uint32_t>("a constant");
    const auto refuse = [&](const std::string& what) {
      fail(str("constant ", quote(constant.fqn), ": ", what));
    };
    if (!is_scalar_type(constant.dtype)) refuse(str("unknown dtype ", constant.dtype));
    if (constant.device != 0 && constant.device != 1)
      refuse(str("device ", constant.device, "; 0 (CPU) or 1 (CUDA) expected"));
    if (rank > kMaxRank) refuse(str("rank ", rank, "; at most ", kMaxRank));
    for (uint32_t i = 0; i < rank; ++i) constant.sizes.push_back(number<int64_t>("a constant"));
    for (uint32_t i = 0; i < rank; ++i) constant.strides.push_back(number<int64_t>("a constant"));
    if (!inside_storage(constant))
      refuse(str("sizes ", list_str(constant.sizes), ", strides ", list_str(constant.strides),
                 ", offset ", constant.offset, " in a storage of ", constant.storage_nbytes,
                 " bytes"));
    return constant;
  }

  /// Whether every element lies in the storage. Sub-byte types are not measured.
  static bool inside_storage(const PayloadConstant& constant) {
    std::optional<int64_t> last = constant.offset;
    bool is_empty = false;
    for (size_t i = 0; i < constant.sizes.size(); ++i) {
      const int64_t size = constant.sizes[i];
      const int64_t stride = constant.strides[i];
      if (size < 0 || stride < 0) return false;
      if (size == 0) is_empty = true;
      const auto step = checked_mul<int64_t>(std::max<int64_t>(size - 1, 0), stride);
      last = last && step ? checked_add<int64_t>(*last, *step) : std::nullopt;
    }
    if (constant.offset < 0) return false;
    if (is_empty) return true;
    const size_t itemsize = scalar_type_size(constant.dtype);
    if (itemsize == 0) return last.has_value();
    const auto count = last ? checked_add<int64_t>(*last, 1) : std::nullopt;
    const auto nbytes =
        count ? checked_mul<uint64_t>(static_cast<uint64_t>(*count), itemsize) : std::nullopt;
    return nbytes && *nbytes <= constant.storage_nbytes;
  }

  std::span<const std::byte> bytes_;
  const std::string& path_;
  uint64_t file_offset_;
  size_t position_ = 0;
};

}  // namespace

DelegatePayload decode_delegate_payload(std::span<const std::byte> processed,
                                        std::string_view method_name, const std::string& path,
                                        uint64_t file_offset) {
  return PayloadParser(processed, path, file_offset).parse(method_name);
}

}  // namespace cudaexec

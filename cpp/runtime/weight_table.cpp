#include "runtime/weight_table.h"

#include <algorithm>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/str.h"

namespace cudaexec {
namespace {

class Builder {
 public:
  explicit Builder(const WeightSource& source) : source_(source) {}

  WeightTable build() {
    for (const MethodSpec* method : source_.methods) {
      for (const ConstantSpec& constant : method->constants) {
        keys_.emplace(constant.fqn, constant.storage_key);
      }
    }
    for (const MethodSpec* method : source_.methods) {
      auto& constants = table_.methods.emplace_back();
      for (const ConstantSpec& constant : method->constants) {
        constants.push_back(add(method->name, constant));
      }
    }
    for (const auto& [fqn, target] : source_.aliases) {
      const auto found = table_.by_fqn.find(target);
      if (found != table_.by_fqn.end()) table_.by_fqn.emplace(fqn, found->second);
    }
    return std::move(table_);
  }

 private:
  MethodConstant add(const std::string& method, const ConstantSpec& constant) {
    WeightView view{entry_of(method, constant), constant.dtype, Dims(constant.sizes),
                    Dims(constant.strides), constant.offset};
    WeightEntry& entry = table_.entries[view.entry];
    entry.alignment = std::max(entry.alignment, dtype_size(constant.dtype));
    entry.state = entry.state || constant.mutated || source_.all_state;
    check_inside(method, constant, entry);
    if (constant.fqn.empty()) return {constant.name, constant.fqn, std::move(view)};
    const auto [known, is_new] = table_.by_fqn.emplace(constant.fqn, view);
    if (!is_new && (known->second.dtype != view.dtype || !(known->second.sizes == view.sizes) ||
                    known->second.entry != view.entry)) {
      throw FormatError(str(source_.path, ": method '", method, "': the constant '", constant.fqn,
                            "' is ", dtype_name(view.dtype), list_str(view.sizes), " of '",
                            entry.storage_key, "' here and ", dtype_name(known->second.dtype),
                            list_str(known->second.sizes), " of '",
                            table_.entries[known->second.entry].storage_key,
                            "' in an earlier method; export the file again"));
    }
    return {constant.name, constant.fqn, std::move(view)};
  }

  size_t entry_of(const std::string& method, const ConstantSpec& constant) {
    std::string owner = constant.fqn.empty() ? constant.storage_key : constant.fqn;
    std::string key = constant.storage_key;
    if (const auto alias = source_.aliases.find(constant.fqn); alias != source_.aliases.end()) {
      owner = alias->second;
      if (const auto target = keys_.find(owner); target != keys_.end()) {
        key = target->second;
      } else if (!source_.blobs.contains(key)) {
        key = key.substr(0, key.size() - std::min(key.size(), constant.fqn.size())) + owner;
      }
    }
    const auto [place, is_new] =
        by_key_.emplace(std::pair(key, constant.device_type), table_.entries.size());
    if (is_new) {
      const auto blob = source_.blobs.find(key);
      if (blob == source_.blobs.end()) {
        throw FormatError(str(source_.path, ": method '", method, "': the constant '", constant.fqn,
                              "' needs the weight '", key, "', which the manifest does not list"));
      }
      table_.entries.push_back({owner, key, blob->second.nbytes, blob->second.digest, 1, false,
                                source_.on_gpu && constant.device_type != 0});
    }
    return place->second;
  }

  void check_inside(const std::string& method, const ConstantSpec& constant,
                    const WeightEntry& entry) const {
    const auto itemsize = static_cast<int64_t>(dtype_size(constant.dtype));
    bool inside = constant.sizes.size() == constant.strides.size() && constant.offset >= 0;
    if (inside) {
      const auto end = checked_add(constant.offset, span_of(method, constant));
      const auto bytes = end ? checked_mul(*end, itemsize) : std::nullopt;
      inside = bytes && static_cast<uint64_t>(*bytes) <= entry.nbytes;
    }
    if (!inside) {
      throw FormatError(str(source_.path, ": method '", method, "': the constant '", constant.fqn,
                            "' (", dtype_name(constant.dtype), list_str(constant.sizes),
                            ", strides ", list_str(constant.strides), ", offset ", constant.offset,
                            ") leaves its weight '", entry.storage_key, "' of ", entry.nbytes,
                            " bytes; the file is damaged"));
    }
  }

  int64_t span_of(const std::string& method, const ConstantSpec& constant) const {
    try {
      return extent(constant.sizes, constant.strides);
    } catch (const ShapeError& error) {
      throw FormatError(str(source_.path, ": method '", method, "': the constant '", constant.fqn,
                            "' is impossible: ", error.what()));
    }
  }

  const WeightSource& source_;
  WeightTable table_;
  std::map<std::string, std::string> keys_;  // FQN -> storage key, of every constant
  std::map<std::pair<std::string, int32_t>, size_t> by_key_;  // storage key and device
};

}  // namespace

bool WeightTable::uses_state(size_t index) const {
  const auto& constants = methods[index];
  return std::any_of(constants.begin(), constants.end(), [this](const MethodConstant& constant) {
    return entries[constant.view.entry].state;
  });
}

WeightTable build_weight_table(const WeightSource& source) { return Builder(source).build(); }

}  // namespace cudaexec

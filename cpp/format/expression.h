// Integer expressions over the sizes of a call's inputs, in postfix order: dimensions, strides,
// guards.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/export.h"

namespace cudaexec {

enum class Op : uint8_t {
  kConstant,
  kSymbol,
  kAdd,
  kSub,
  kMul,
  kFloorDiv,
  kMod,
  kNeg,
  kPow,
  kMin,
  kMax,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kAnd,
  kOr,
  kNot
};

struct ExpressionItem {
  Op op = Op::kConstant;
  int64_t value = 0;  // kConstant: the number; kSymbol: index into MethodSpec::symbols
};

class CUDAEXEC_API Expression {
 public:
  Expression() = default;
  /// @throws FormatError if the items do not form one expression within the limits (4096 items,
  /// stack 64) or name a symbol >= `num_symbols`.
  Expression(std::vector<ExpressionItem> items, size_t num_symbols);
  explicit Expression(int64_t constant);

  /// The value, or nothing on overflow, division by zero or a negative or huge power. No heap use.
  [[nodiscard]] std::optional<int64_t> evaluate(std::span<const int64_t> symbols) const noexcept;
  /// The number, if it has no symbols.
  [[nodiscard]] std::optional<int64_t> constant() const noexcept;
  /// The symbol's index, if it is one symbol alone.
  [[nodiscard]] std::optional<size_t> symbol() const noexcept;
  [[nodiscard]] const std::vector<ExpressionItem>& items() const noexcept { return items_; }

 private:
  std::vector<ExpressionItem> items_;
};

}  // namespace cudaexec

#include "format/expression.h"

#include <algorithm>
#include <array>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/str.h"

namespace cudaexec {
namespace {

constexpr size_t kMaxItems = 4096;
constexpr size_t kMaxStack = 64;

bool is_operand(Op op) noexcept { return op == Op::kConstant || op == Op::kSymbol; }
bool is_unary(Op op) noexcept { return op == Op::kNeg || op == Op::kNot; }

std::optional<int64_t> floor_div(int64_t a, int64_t b) noexcept {
  if (b == 0 || (a == INT64_MIN && b == -1)) return std::nullopt;
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

/// The remainder has the sign of the divisor.
std::optional<int64_t> floor_mod(int64_t a, int64_t b) noexcept {
  if (b == 0) return std::nullopt;
  if (b == -1) return 0;
  const int64_t remainder = a % b;
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

std::optional<int64_t> power(int64_t base, int64_t exponent) noexcept {
  if (exponent < 0) return std::nullopt;
  if (base == 0 || base == 1 || exponent == 0) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  std::optional<int64_t> result = 1;
  // |base| >= 2: at most 63 steps before it overflows.
  for (int64_t i = 0; i < exponent && result; ++i) result = checked_mul(*result, base);
  return result;
}

std::optional<int64_t> apply(Op op, int64_t a, int64_t b) noexcept {
  switch (op) {
    case Op::kAdd:
      return checked_add(a, b);
    case Op::kSub: {
      int64_t result = 0;
      if (__builtin_sub_overflow(a, b, &result)) return std::nullopt;
      return result;
    }
    case Op::kMul:
      return checked_mul(a, b);
    case Op::kFloorDiv:
      return floor_div(a, b);
    case Op::kMod:
      return floor_mod(a, b);
    case Op::kPow:
      return power(a, b);
    case Op::kMin:
      return std::min(a, b);
    case Op::kMax:
      return std::max(a, b);
    case Op::kEq:
      return a == b;
    case Op::kNe:
      return a != b;
    case Op::kLt:
      return a < b;
    case Op::kLe:
      return a <= b;
    case Op::kGt:
      return a > b;
    case Op::kGe:
      return a >= b;
    case Op::kAnd:
      return a != 0 && b != 0;
    case Op::kOr:
      return a != 0 || b != 0;
    case Op::kConstant:
    case Op::kSymbol:
    case Op::kNeg:
    case Op::kNot:
      break;
  }
  return std::nullopt;
}

}  // namespace

Expression::Expression(std::vector<ExpressionItem> items, size_t num_symbols)
    : items_(std::move(items)) {
  if (items_.empty() || items_.size() > kMaxItems)
    throw FormatError(
        str("an expression of ", items_.size(), " items; 1 to ", kMaxItems, " expected"));
  size_t depth = 0;
  for (const ExpressionItem& item : items_) {
    if (item.op > Op::kNot)
      throw FormatError(str("unknown operator ", static_cast<int>(item.op), " in an expression"));
    if (item.op == Op::kSymbol &&
        (item.value < 0 || static_cast<uint64_t>(item.value) >= num_symbols))
      throw FormatError(str("symbol ", item.value, " of ", num_symbols, " in an expression"));
    const size_t operands = is_operand(item.op) ? 0 : is_unary(item.op) ? 1 : 2;
    if (depth < operands)
      throw FormatError("an operator of an expression lacks operands (postfix order expected)");
    depth = depth - operands + 1;
    if (depth > kMaxStack)
      throw FormatError(str("an expression needs a stack of more than ", kMaxStack));
  }
  if (depth != 1) throw FormatError(str("an expression leaves ", depth, " values; one expected"));
}

Expression::Expression(int64_t constant) : items_{{Op::kConstant, constant}} {}

std::optional<int64_t> Expression::evaluate(std::span<const int64_t> symbols) const noexcept {
  if (items_.size() == 1 && items_[0].op == Op::kConstant) return items_[0].value;
  std::array<int64_t, kMaxStack> stack;
  size_t depth = 0;
  for (const ExpressionItem& item : items_) {
    if (item.op == Op::kConstant) {
      stack[depth++] = item.value;
    } else if (item.op == Op::kSymbol) {
      const auto index = static_cast<size_t>(item.value);
      if (index >= symbols.size()) return std::nullopt;
      stack[depth++] = symbols[index];
    } else if (item.op == Op::kNot) {
      stack[depth - 1] = stack[depth - 1] == 0;
    } else if (item.op == Op::kNeg) {
      if (stack[depth - 1] == INT64_MIN) return std::nullopt;
      stack[depth - 1] = -stack[depth - 1];
    } else {
      const auto result = apply(item.op, stack[depth - 2], stack[depth - 1]);
      if (!result) return std::nullopt;
      stack[--depth - 1] = *result;
    }
  }
  if (depth != 1) return std::nullopt;  // a default-made expression has no items
  return stack[0];
}

std::optional<int64_t> Expression::constant() const noexcept {
  const bool has_symbol = std::ranges::any_of(
      items_, [](const ExpressionItem& item) { return item.op == Op::kSymbol; });
  return has_symbol ? std::nullopt : evaluate({});
}

std::optional<size_t> Expression::symbol() const noexcept {
  if (items_.size() != 1 || items_[0].op != Op::kSymbol) return std::nullopt;
  return static_cast<size_t>(items_[0].value);
}

}  // namespace cudaexec

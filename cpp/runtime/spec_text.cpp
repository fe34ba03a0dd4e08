#include "runtime/spec_text.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "base/str.h"

namespace cudaexec {
namespace {

struct Operator {
  const char* text;
  int precedence;
};

// Python's operators and their binding strength; 0 marks functions.
Operator operator_of(Op op) {
  switch (op) {
    case Op::kOr:
      return {"or", 1};
    case Op::kAnd:
      return {"and", 2};
    case Op::kNot:
      return {"not ", 3};
    case Op::kEq:
      return {"==", 4};
    case Op::kNe:
      return {"!=", 4};
    case Op::kLt:
      return {"<", 4};
    case Op::kLe:
      return {"<=", 4};
    case Op::kGt:
      return {">", 4};
    case Op::kGe:
      return {">=", 4};
    case Op::kAdd:
      return {"+", 5};
    case Op::kSub:
      return {"-", 5};
    case Op::kMul:
      return {"*", 6};
    case Op::kFloorDiv:
      return {"//", 6};
    case Op::kMod:
      return {"%", 6};
    case Op::kNeg:
      return {"-", 7};
    case Op::kPow:
      return {"**", 8};
    case Op::kMin:
      return {"min", 0};
    case Op::kMax:
      return {"max", 0};
    case Op::kConstant:
    case Op::kSymbol:
      break;
  }
  return {"", 9};
}

struct Term {
  std::string text;
  int precedence = 9;
};

std::string wrapped(const Term& term, int precedence) {
  return term.precedence < precedence ? str("(", term.text, ")") : term.text;
}

Term leaf(const ExpressionItem& item, const MethodSpec& method) {
  if (item.op == Op::kConstant) return {std::to_string(item.value), item.value < 0 ? 7 : 9};
  const auto index = static_cast<size_t>(item.value);
  return {index < method.symbols.size() ? method.symbols[index].name : "?", 9};
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

std::string expression_text(const Expression& expression, const MethodSpec& method) {
  std::vector<Term> stack;
  for (const ExpressionItem& item : expression.items()) {
    if (item.op == Op::kConstant || item.op == Op::kSymbol) {
      stack.push_back(leaf(item, method));
      continue;
    }
    const Operator op = operator_of(item.op);
    Term right = std::move(stack.back());
    stack.pop_back();
    if (item.op == Op::kNeg || item.op == Op::kNot) {
      stack.push_back({op.text + wrapped(right, op.precedence), op.precedence});
      continue;
    }
    Term left = std::move(stack.back());
    stack.pop_back();
    if (op.precedence == 0) {
      stack.push_back({str(op.text, "(", left.text, ", ", right.text, ")"), 9});
    } else {
      const char* space = op.precedence <= 5 ? " " : "";
      stack.push_back({str(wrapped(left, op.precedence), space, op.text, space,
                           wrapped(right, op.precedence + 1)),
                       op.precedence});
    }
  }
  return stack.empty() ? std::string("?") : stack.back().text;
}

std::string range_text(const Symbol& symbol) {
  if (!symbol.max) return str("at least ", symbol.min);
  if (*symbol.max == symbol.min) return str("exactly ", symbol.min);
  return str(symbol.min, "..", *symbol.max);
}

std::string tensor_text(const TensorShape& tensor, const MethodSpec& method) {
  std::vector<std::string> sizes;
  for (const Expression& size : tensor.sizes) {
    std::string text = expression_text(size, method);
    if (const auto symbol = size.symbol(); symbol && *symbol < method.symbols.size()) {
      const Symbol& known = method.symbols[*symbol];
      text += known.max ? str(" in ", range_text(known)) : str(" >= ", known.min);
    }
    sizes.push_back(std::move(text));
  }
  return dtype_name(tensor.dtype) + list_str(sizes);
}

std::string scalar_text(const Scalar& value) {
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "True" : "False";
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  if (const auto* real = std::get_if<double>(&value)) return float_text(*real);
  if (const auto* text = std::get_if<std::string>(&value)) return str("'", *text, "'");
  return "None";
}

std::string value_text(const Value& value) {
  if (const auto* tensor = std::get_if<Tensor>(&value)) return describe(*tensor);
  if (const auto* truth = std::get_if<bool>(&value)) return str("the bool ", scalar_text(*truth));
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    return str("the int ", scalar_text(*integer));
  }
  if (const auto* real = std::get_if<double>(&value)) return str("the float ", scalar_text(*real));
  if (const auto* text = std::get_if<std::string>(&value)) {
    return str("the str ", scalar_text(*text));
  }
  return "None";
}

}  // namespace cudaexec

// Which calls one CUDA graph serves: those whose inputs have the same shapes, layouts, alignment
// and places. Dtypes and compiled-in values are the same in all calls of a method.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "format/manifest.h"
#include "runtime/module.h"

namespace cudaexec {

class GraphKey {
 public:
  GraphKey() = default;
  /// Of checked inputs: one value per leaf.
  explicit GraphKey(std::span<const Value> inputs);

  /// Whether `inputs` have this key; allocates nothing.
  [[nodiscard]] bool matches(std::span<const Value> inputs) const noexcept;
  friend bool operator==(const GraphKey&, const GraphKey&) = default;

  /// "x float32[2, 64], mask bool[64] strides [2]"
  [[nodiscard]] std::string text(const MethodSpec& spec) const;
  /// How `inputs` differ: "input 'x' has size 4 in dimension 1, captured with 3".
  [[nodiscard]] std::string difference(std::span<const Value> inputs, const MethodSpec& spec) const;

 private:
  struct Place {  // where a tensor's words begin
    size_t input = 0;
    size_t rank = 0;
    size_t first = 0;  // the class, sizes, strides
  };
  /// The largest power of two, up to 16, that divides the address; negative on the host.
  static int64_t class_of(const Tensor& tensor) noexcept;

  [[nodiscard]] std::vector<Place> places() const;

  std::vector<int64_t> words_;  // per tensor: the input, its rank, its class, sizes, strides
};

}  // namespace cudaexec

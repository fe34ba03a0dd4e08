#include "runtime/graph_key.h"

#include <algorithm>

#include "base/str.h"

namespace cudaexec {
namespace {

constexpr size_t kHead = 3;  // words before the sizes
constexpr uintptr_t kMostAligned = 16;

/// Strides of dimensions without a second element mean nothing.
int64_t stride_word(const Tensor& tensor, size_t dim) noexcept {
  return tensor.size(dim) > 1 ? tensor.stride(dim) : 0;
}

}  // namespace

int64_t GraphKey::class_of(const Tensor& tensor) noexcept {
  if (tensor.device().is_cpu()) return -1;
  const uintptr_t address = reinterpret_cast<uintptr_t>(tensor.data()) | kMostAligned;
  return static_cast<int64_t>(address & (~address + 1));
}

GraphKey::GraphKey(std::span<const Value> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto* tensor = std::get_if<Tensor>(&inputs[i]);
    if (tensor == nullptr) continue;
    words_.push_back(static_cast<int64_t>(i));
    words_.push_back(tensor->dim());
    words_.push_back(class_of(*tensor));
    for (const int64_t size : tensor->sizes()) words_.push_back(size);
    for (size_t dim = 0; dim < tensor->sizes().size(); ++dim) {
      words_.push_back(stride_word(*tensor, dim));
    }
  }
}

bool GraphKey::matches(std::span<const Value> inputs) const noexcept {
  const int64_t* word = words_.data();
  const int64_t* const end = word + words_.size();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto* tensor = std::get_if<Tensor>(&inputs[i]);
    if (tensor == nullptr) continue;
    const size_t rank = tensor->sizes().size();
    if (end - word < static_cast<ptrdiff_t>(kHead + 2 * rank)) return false;
    if (word[0] != static_cast<int64_t>(i) || word[1] != tensor->dim() ||
        word[2] != class_of(*tensor)) {
      return false;
    }
    word += kHead;
    if (!std::equal(tensor->sizes().begin(), tensor->sizes().end(), word)) return false;
    word += rank;
    for (size_t dim = 0; dim < rank; ++dim) {
      if (word[dim] != stride_word(*tensor, dim)) return false;
    }
    word += rank;
  }
  return word == end;
}

std::vector<GraphKey::Place> GraphKey::places() const {
  std::vector<Place> result;
  for (size_t at = 0; at < words_.size();) {
    const auto rank = static_cast<size_t>(words_[at + 1]);
    result.push_back({static_cast<size_t>(words_[at]), rank, at + kHead});
    at += kHead + 2 * rank;
  }
  return result;
}

std::string GraphKey::text(const MethodSpec& spec) const {
  std::string result;
  for (const Place& place : places()) {
    const InputSpec& input = spec.inputs[place.input];
    const std::span<const int64_t> sizes(words_.data() + place.first, place.rank);
    const std::span<const int64_t> strides(sizes.data() + place.rank, place.rank);
    result += str(result.empty() ? "" : ", ", input.name, " ", dtype_name(input.tensor.dtype),
                  list_str(sizes));
    int64_t packed = 1;
    bool contiguous = true;
    for (size_t dim = place.rank; dim-- > 0;) {
      contiguous = contiguous && (sizes[dim] <= 1 || strides[dim] == packed);
      packed *= sizes[dim];
    }
    if (!contiguous && packed != 0) result += str(" strides ", list_str(strides));
    const int64_t where = words_[place.first - 1];
    if (where < 0) result += " on the host";
    if (where > 0 && where < static_cast<int64_t>(kMostAligned)) {
      result += str(" aligned to ", where, " bytes");
    }
  }
  return result.empty() ? "no tensors" : result;
}

std::string GraphKey::difference(std::span<const Value> inputs, const MethodSpec& spec) const {
  for (const Place& place : places()) {
    const auto* tensor = std::get_if<Tensor>(&inputs[place.input]);
    const std::string name = str("input '", spec.inputs[place.input].name, "'");
    if (tensor == nullptr || tensor->sizes().size() != place.rank) {
      return str(name, " is of another kind or rank");
    }
    const int64_t* const sizes = words_.data() + place.first;
    for (size_t dim = 0; dim < place.rank; ++dim) {
      if (tensor->size(dim) == sizes[dim]) continue;
      return str(name, " has size ", tensor->size(dim), " in dimension ", dim, ", captured with ",
                 sizes[dim]);
    }
    for (size_t dim = 0; dim < place.rank; ++dim) {
      if (stride_word(*tensor, dim) == sizes[place.rank + dim]) continue;
      return str(name, " has stride ", stride_word(*tensor, dim), " in dimension ", dim,
                 ", captured with ", sizes[place.rank + dim]);
    }
    const int64_t captured = words_[place.first - 1];
    const int64_t found = class_of(*tensor);
    if (captured == found) continue;
    if (captured < 0 || found < 0) {
      return str(name, " is on the ", found < 0 ? "host" : "GPU", ", captured on the ",
                 captured < 0 ? "host" : "GPU");
    }
    return str(name, " is aligned to ", found, " bytes, captured aligned to ", captured);
  }
  return "the inputs are of another structure";
}

}  // namespace cudaexec

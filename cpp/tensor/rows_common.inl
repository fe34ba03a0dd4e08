// Loops that the compiler vectorises for whatever set the including source is compiled for.

namespace {

template <typename T>
void add_row(T* __restrict sums, const T* __restrict row, T factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sums[i] += factor * row[i];
}

// Independent partial sums, so that the loop over them becomes vectors.
template <typename T>
T dot_row(const T* __restrict a, const T* __restrict b, int64_t count) {
  constexpr int64_t kLanes = 128 / static_cast<int64_t>(sizeof(T));
  T sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  T total = 0;
  for (; i < count; ++i) total += a[i] * b[i];
  for (int64_t lane = 0; lane < kLanes; ++lane) total += sums[lane];
  return total;
}

inline float bf16_value(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  __builtin_memcpy(&value, &wide, sizeof(value));
  return value;
}

inline uint16_t bf16_bits(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? 0x7fc0U : rounded);
}

void add_bf16_row(float* __restrict sums, const uint16_t* __restrict row, float factor,
                  int64_t count) {
  for (int64_t i = 0; i < count; ++i) sums[i] += factor * bf16_value(row[i]);
}

void bf16_to_f32_row(float* __restrict to, const uint16_t* __restrict from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = bf16_value(from[i]);
}

void f32_to_bf16_row(uint16_t* __restrict to, const float* __restrict from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = bf16_bits(from[i]);
}

template <typename Word>
void transpose_words(Word* __restrict to, int64_t to_stride, const Word* __restrict from,
                     int64_t from_stride, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      to[row * to_stride + column] = from[column * from_stride + row];
    }
  }
}

}  // namespace

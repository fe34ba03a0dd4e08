// The kernels of the test programs (../fake_program.cpp). Not in Python: the driver's lock is held
// while a kernel runs, and whoever has the GIL may be waiting for that lock.
#include <cstring>

#include "fake.h"

namespace fakecuda {
namespace {

template <typename T>
T argument(const FakeLaunch& launch, size_t index) {
  T value;
  std::memcpy(&value, launch.arguments[index], sizeof value);
  return value;
}

// fake_scale(in, w, out, count, k): out = in * w[0] + k
void scale(const FakeLaunch* launch) {
  const auto* in = argument<const float*>(*launch, 0);
  const auto* w = argument<const float*>(*launch, 1);
  auto* out = argument<float*>(*launch, 2);
  const auto count = argument<int64_t>(*launch, 3);
  const auto k = argument<float>(*launch, 4);
  for (int64_t i = 0; i < count; ++i) out[i] = in[i] * w[0] + k;
}

// fake_add(total, x, count): total += x
void add(const FakeLaunch* launch) {
  auto* total = argument<float*>(*launch, 0);
  const auto* x = argument<const float*>(*launch, 1);
  const auto count = argument<int64_t>(*launch, 2);
  for (int64_t i = 0; i < count; ++i) total[i] += x[i];
}

}  // namespace
}  // namespace fakecuda

using namespace fakecuda;

FAKE_API void fakecuda_register_program_kernels() {
  const std::lock_guard lock(world().mutex);
  world().kernels["fake_scale"] = {{8, 8, 8, 8, 4}, &scale};
  world().kernels["fake_add"] = {{8, 8, 8}, &add};
}

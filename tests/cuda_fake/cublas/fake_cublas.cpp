// A stand-in for cuBLASLt over the fake driver: products are done in host memory, as kernels on
// the stream they are put on. It records the products, fails a chosen call, counts what is alive,
// and notes arguments that the real library would answer with an error or with a wrong result.
#include "cublas/fake_cublas.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace fakecublas {
namespace {

struct State {
  std::mutex mutex;
  std::string calls, misuse;
  std::string fault_name;
  int64_t fault_k = 0, fault_seen = 0;
  Status fault_status = kSuccess;
  int64_t live = 0;
  size_t workspace_nbytes = 0;
  bool refuse_bias = false;
  int refuse_all = 0;  // 1: everything, 2: 16-bit types
};

State& state() {
  static State instance;
  return instance;
}

/// Counts a call; the status it has to fail with. Destroying does what it should and is not
/// counted.
Status enter(const char* name) {
  State& s = state();
  if (s.fault_k > 0 && (s.fault_name.empty() || s.fault_name == name) &&
      ++s.fault_seen == s.fault_k) {
    return s.fault_status;
  }
  return kSuccess;
}

#define ENTER(name)                          \
  const std::lock_guard lock(state().mutex); \
  if (const Status fault = enter(#name); fault != kSuccess) return fault

Status misuse(const std::string& what) {
  state().misuse += what + "\n";
  return kInvalidValue;
}

}  // namespace
}  // namespace fakecublas

using namespace fakecublas;

// ---- the library -------------------------------------------------------------------------------

FAKE_LT Status cublasLtCreate(Handle* handle) {
  ENTER(Create);
  auto* made = new HandleOpaque;
  const Status status = open_stream_work(*made);
  if (status != kSuccess) {
    delete made;
    return status;
  }
  ++state().live;
  *handle = made;
  return kSuccess;
}

FAKE_LT Status cublasLtDestroy(Handle handle) {
  const std::lock_guard lock(state().mutex);
  close_stream_work(*handle);
  delete handle;
  --state().live;
  return state().fault_name == "Destroy" ? enter("Destroy") : kSuccess;
}

FAKE_LT Status cublasLtMatrixLayoutCreate(Layout* layout, DataType type, uint64_t rows,
                                          uint64_t cols, int64_t leading) {
  ENTER(MatrixLayoutCreate);
  if (rows == 0 || cols == 0 || leading < static_cast<int64_t>(rows)) {
    return misuse("a layout of no elements or with too small a leading dimension");
  }
  *layout = new LayoutOpaque{type, static_cast<int64_t>(rows), static_cast<int64_t>(cols), leading};
  ++state().live;
  return kSuccess;
}

FAKE_LT Status cublasLtMatrixLayoutDestroy(Layout layout) {
  const std::lock_guard lock(state().mutex);
  delete layout;
  --state().live;
  return kSuccess;
}

FAKE_LT Status cublasLtMatrixLayoutSetAttribute(Layout layout, int32_t attribute, const void* value,
                                                size_t nbytes) {
  ENTER(MatrixLayoutSetAttribute);
  if (attribute == kLayoutBatchCount && nbytes == 4) {
    std::memcpy(&layout->batch, value, 4);
  } else if (attribute == kLayoutBatchStride && nbytes == 8) {
    std::memcpy(&layout->batch_stride, value, 8);
  } else {
    return misuse("an unknown layout attribute");
  }
  return kSuccess;
}

FAKE_LT Status cublasLtMatmulDescCreate(MatmulDesc* matmul, ComputeType compute, DataType scale) {
  ENTER(MatmulDescCreate);
  *matmul = new MatmulDescOpaque{compute, scale};
  ++state().live;
  return kSuccess;
}

FAKE_LT Status cublasLtMatmulDescDestroy(MatmulDesc matmul) {
  const std::lock_guard lock(state().mutex);
  delete matmul;
  --state().live;
  return kSuccess;
}

FAKE_LT Status cublasLtMatmulDescSetAttribute(MatmulDesc matmul, int32_t attribute,
                                              const void* value, size_t nbytes) {
  ENTER(MatmulDescSetAttribute);
  if (attribute == kMatmulTransA && nbytes == 4) {
    std::memcpy(&matmul->trans_a, value, 4);
  } else if (attribute == kMatmulTransB && nbytes == 4) {
    std::memcpy(&matmul->trans_b, value, 4);
  } else if (attribute == kMatmulEpilogue && nbytes == 4) {
    std::memcpy(&matmul->epilogue, value, 4);
  } else if (attribute == kMatmulBiasPointer && nbytes == sizeof(void*)) {
    std::memcpy(&matmul->bias, value, sizeof(void*));
  } else {
    return misuse("an unknown product attribute");
  }
  return kSuccess;
}

FAKE_LT Status cublasLtMatmulPreferenceCreate(Preference* preference) {
  ENTER(MatmulPreferenceCreate);
  *preference = new PreferenceOpaque;
  ++state().live;
  return kSuccess;
}

FAKE_LT Status cublasLtMatmulPreferenceDestroy(Preference preference) {
  const std::lock_guard lock(state().mutex);
  delete preference;
  --state().live;
  return kSuccess;
}

FAKE_LT Status cublasLtMatmulPreferenceSetAttribute(Preference preference, int32_t attribute,
                                                    const void* value, size_t nbytes) {
  ENTER(MatmulPreferenceSetAttribute);
  if (attribute == kPreferWorkspace && nbytes == 8) {
    std::memcpy(&preference->workspace_nbytes, value, 8);
  } else if (attribute == kPreferReductions && nbytes == 4) {
    std::memcpy(&preference->reductions, value, 4);
  } else if (attribute >= kPreferAlignmentA && attribute < kPreferAlignmentA + 4 && nbytes == 4) {
    std::memcpy(&preference->alignments[attribute - kPreferAlignmentA], value, 4);
  } else {
    return misuse("an unknown preference");
  }
  return kSuccess;
}

FAKE_LT Status cublasLtMatmulAlgoGetHeuristic(Handle, MatmulDesc matmul, Layout a, Layout b,
                                              Layout c, Layout d, Preference preference, int wanted,
                                              Heuristic* results, int* found) {
  ENTER(MatmulAlgoGetHeuristic);
  *found = 0;
  if (const std::string wrong = find_mismatch(*matmul, *a, *b, *c, *d); !wrong.empty()) {
    return misuse(wrong);
  }
  if (preference->reductions != kExactReductions) return misuse("inexact partial sums are allowed");
  const bool has_bias = (matmul->epilogue & kEpilogueBias) != 0;
  if (has_bias && d->type == DataType::kFloat64) return kNotSupported;
  const bool half = d->type == DataType::kFloat16 || d->type == DataType::kBfloat16;
  if (state().refuse_all == 1 || (state().refuse_all == 2 && half)) return kNotSupported;
  if (has_bias && state().refuse_bias) return kNotSupported;
  if (wanted < 1) return misuse("no result is wanted");
  *results = Heuristic{};
  results->workspace_nbytes =
      std::min<size_t>(state().workspace_nbytes, preference->workspace_nbytes);
  for (int i = 0; i < 4; ++i) results->algorithm.data[i] = preference->alignments[i];
  results->algorithm.data[4] = results->workspace_nbytes;
  *found = 1;
  return kSuccess;
}

FAKE_LT Status cublasLtMatmul(Handle handle, MatmulDesc matmul, const void* alpha, const void* a,
                              Layout a_layout, const void* b, Layout b_layout, const void* beta,
                              const void* c, Layout c_layout, void* d, Layout d_layout,
                              const Algorithm* algorithm, void* workspace, size_t workspace_nbytes,
                              ::CUstream_st* stream) {
  ENTER(Matmul);
  if (const std::string wrong = find_mismatch(*matmul, *a_layout, *b_layout, *c_layout, *d_layout);
      !wrong.empty()) {
    return misuse(wrong);
  }
  const void* pointers[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) {
    if (reinterpret_cast<uintptr_t>(pointers[i]) % algorithm->data[i] != 0) {
      return misuse("an operand is less aligned than was promised");
    }
  }
  if (workspace_nbytes != algorithm->data[4] || reinterpret_cast<uintptr_t>(workspace) % 256 != 0 ||
      (workspace_nbytes > 0) != (workspace != nullptr)) {
    return misuse("the workspace is not what the algorithm needs");
  }
  if (c == d && (c_layout->leading != d_layout->leading ||
                 c_layout->batch_stride != d_layout->batch_stride)) {
    return misuse("c and d are one matrix of two layouts");
  }
  const Product product = describe(*matmul, alpha, a, *a_layout, b, *b_layout, beta, c, *c_layout,
                                   d, *d_layout, workspace, workspace_nbytes);
  state().calls += text_of(product) + "\n";
  return launch(*handle, product, stream);
}

// ---- control -----------------------------------------------------------------------------------

namespace {
char* copy_of(const std::string& text) { return ::strdup(text.c_str()); }
}  // namespace

FAKE_LT void fakecublas_reset() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.calls.clear();
  s.misuse.clear();
  s.fault_k = s.fault_seen = 0;
  s.workspace_nbytes = 0;
  s.refuse_bias = false;
  s.refuse_all = 0;
}
FAKE_LT void fakecublas_fail(const char* name, int64_t k, Status status) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.fault_name = name == nullptr ? "" : name;
  s.fault_k = k;
  s.fault_seen = 0;
  s.fault_status = status;
}
FAKE_LT int64_t fakecublas_seen() {
  const std::lock_guard lock(state().mutex);
  return state().fault_seen;
}
FAKE_LT void fakecublas_set(size_t workspace_nbytes, int refuse_bias, int refuse_all) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.workspace_nbytes = workspace_nbytes;
  s.refuse_bias = refuse_bias != 0;
  s.refuse_all = refuse_all;
}
FAKE_LT int64_t fakecublas_live() {
  const std::lock_guard lock(state().mutex);
  return state().live;
}
FAKE_LT char* fakecublas_calls() {
  const std::lock_guard lock(state().mutex);
  return copy_of(state().calls);
}
FAKE_LT char* fakecublas_misuse() {
  const std::lock_guard lock(state().mutex);
  return copy_of(state().misuse);
}
FAKE_LT void fakecublas_free(char* text) { std::free(text); }

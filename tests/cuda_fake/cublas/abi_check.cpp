// Compares cublas_abi.h with NVIDIA's header. Nothing here runs: a difference does not compile.
#include <cublasLt.h>

#include <cstddef>
#include <type_traits>

#include "ops/cuda/cublas_abi.h"

namespace cudaexec::gpu::cublas {
namespace {

/// The same to the calling convention: handles are pointers to differently named structs.
template <typename Ours, typename Theirs>
constexpr bool same_machine_type() {
  if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    return true;
  } else {
    constexpr bool ours = std::is_enum_v<Ours> || std::is_integral_v<Ours>;
    constexpr bool theirs = std::is_enum_v<Theirs> || std::is_integral_v<Theirs>;
    return ours && theirs && sizeof(Ours) == sizeof(Theirs);
  }
}

template <typename Ours, typename Theirs>
struct SameCall : std::false_type {};
template <typename R1, typename... A1, typename R2, typename... A2>
struct SameCall<R1 (*)(A1...), R2 (*)(A2...)> {
  static constexpr bool compare() {
    if constexpr (sizeof...(A1) == sizeof...(A2)) {
      return same_machine_type<R1, R2>() && (same_machine_type<A1, A2>() && ...);
    } else {
      return false;
    }
  }
  static constexpr bool value = compare();
};

#define CHECK_ENTRY(name, parameters)                                               \
  static_assert(SameCall<Status(*) parameters, decltype(&::cublasLt##name)>::value, \
                "cublasLt" #name " is declared differently in cublasLt.h");
CUDAEXEC_CUBLAS_ENTRIES(CHECK_ENTRY)

#define CHECK_NUMBER(ours, theirs) \
  static_assert(static_cast<long>(ours) == static_cast<long>(theirs), #theirs)
CHECK_NUMBER(kSuccess, CUBLAS_STATUS_SUCCESS);
CHECK_NUMBER(kNotInitialised, CUBLAS_STATUS_NOT_INITIALIZED);
CHECK_NUMBER(kAllocFailed, CUBLAS_STATUS_ALLOC_FAILED);
CHECK_NUMBER(kInvalidValue, CUBLAS_STATUS_INVALID_VALUE);
CHECK_NUMBER(kArchMismatch, CUBLAS_STATUS_ARCH_MISMATCH);
CHECK_NUMBER(kExecutionFailed, CUBLAS_STATUS_EXECUTION_FAILED);
CHECK_NUMBER(kInternalError, CUBLAS_STATUS_INTERNAL_ERROR);
CHECK_NUMBER(kNotSupported, CUBLAS_STATUS_NOT_SUPPORTED);
CHECK_NUMBER(DataType::kFloat32, CUDA_R_32F);
CHECK_NUMBER(DataType::kFloat64, CUDA_R_64F);
CHECK_NUMBER(DataType::kFloat16, CUDA_R_16F);
CHECK_NUMBER(DataType::kBfloat16, CUDA_R_16BF);
CHECK_NUMBER(ComputeType::kFloat32, CUBLAS_COMPUTE_32F);
CHECK_NUMBER(ComputeType::kFloat64, CUBLAS_COMPUTE_64F);
CHECK_NUMBER(Operation::kNone, CUBLAS_OP_N);
CHECK_NUMBER(Operation::kTranspose, CUBLAS_OP_T);
CHECK_NUMBER(kLayoutBatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
CHECK_NUMBER(kLayoutBatchStride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
CHECK_NUMBER(kMatmulTransA, CUBLASLT_MATMUL_DESC_TRANSA);
CHECK_NUMBER(kMatmulTransB, CUBLASLT_MATMUL_DESC_TRANSB);
CHECK_NUMBER(kMatmulEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE);
CHECK_NUMBER(kMatmulBiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
CHECK_NUMBER(kPreferWorkspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
CHECK_NUMBER(kPreferReductions, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
CHECK_NUMBER(kPreferAlignmentA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
CHECK_NUMBER(kPreferAlignmentA + 3, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
CHECK_NUMBER(kEpilogueDefault, CUBLASLT_EPILOGUE_DEFAULT);
CHECK_NUMBER(kEpilogueRelu, CUBLASLT_EPILOGUE_RELU);
CHECK_NUMBER(kEpilogueBias, CUBLASLT_EPILOGUE_BIAS);
CHECK_NUMBER(kEpilogueGelu, CUBLASLT_EPILOGUE_GELU);
CHECK_NUMBER(kExactReductions,
             CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);

static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(Heuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(Heuristic, workspace_nbytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(Heuristic, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));

}  // namespace
}  // namespace cudaexec::gpu::cublas

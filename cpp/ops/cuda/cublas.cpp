#include "ops/cuda/cublas.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cleanup_report.h"
#include "base/error.h"
#include "base/fork_mutex.h"
#include "base/str.h"
#include "ops/cuda/cublas_library.h"
#include "ops/cuda/device_scratch.h"

namespace cudaexec::gpu {

using namespace cublas;

namespace {

constexpr size_t kMaxPlans = 1024;  // of a lane; then all are forgotten
constexpr uint64_t kMaxAlignment = 256;
constexpr uint64_t kLargeWorkspace = uint64_t{32} << 20;  // NVIDIA's advice from sm_90 on
constexpr uint64_t kSmallWorkspace = uint64_t{8} << 20;

uint64_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  return address == 0 ? kMaxAlignment : std::min<uint64_t>(address & (~address + 1), kMaxAlignment);
}

/// Everything that cuBLAS's choice depends on.
using PlanKey = std::array<int64_t, 21>;

PlanKey key_of(const CublasProduct& p) {
  const auto aligned = [](const void* data) { return static_cast<int64_t>(alignment_of(data)); };
  return {static_cast<int64_t>(p.type),
          p.m,
          p.n,
          p.k,
          p.batch,
          p.a.transposed,
          p.b.transposed,
          p.a.leading,
          p.b.leading,
          p.c_leading,
          p.d_leading,
          p.a_batch,
          p.b_batch,
          p.c_batch,
          p.d_batch,
          p.bias != nullptr,
          aligned(p.a_data),
          aligned(p.b_data),
          aligned(p.c_data),
          aligned(p.d_data),
          aligned(p.bias)};
}

/// cuBLAS's choice for one kind of product; `found` is false if it has none.
struct Plan {
  MatmulOwner matmul;
  LayoutOwner a, b, c, d;
  Algorithm algorithm{};
  size_t workspace_nbytes = 0;
  bool found = false;
};

LayoutOwner make_layout(const Library& library, DataType type, int64_t rows, int64_t cols,
                        int64_t leading, int64_t batch, int64_t batch_stride) {
  Layout raw = nullptr;
  check(library,
        library.api.MatrixLayoutCreate(&raw, type, static_cast<uint64_t>(rows),
                                       static_cast<uint64_t>(cols), leading),
        "cublasLtMatrixLayoutCreate");
  LayoutOwner layout(raw, {&library.api});
  if (batch == 1) return layout;
  const auto set = [&](int32_t attribute, const auto& value) {
    check(library, library.api.MatrixLayoutSetAttribute(raw, attribute, &value, sizeof value),
          "cublasLtMatrixLayoutSetAttribute");
  };
  set(kLayoutBatchCount, static_cast<int32_t>(batch));
  set(kLayoutBatchStride, batch_stride);
  return layout;
}

PreferenceOwner make_preference(const Library& library, const CublasProduct& p, int sm) {
  Preference raw = nullptr;
  check(library, library.api.MatmulPreferenceCreate(&raw), "cublasLtMatmulPreferenceCreate");
  PreferenceOwner preference(raw, {&library.api});
  const auto set = [&](int32_t attribute, const auto& value) {
    check(library, library.api.MatmulPreferenceSetAttribute(raw, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  set(kPreferWorkspace, sm >= 90 ? kLargeWorkspace : kSmallWorkspace);
  set(kPreferReductions, kExactReductions);
  const uint64_t alignments[] = {alignment_of(p.a_data), alignment_of(p.b_data),
                                 alignment_of(p.c_data),
                                 std::min(alignment_of(p.d_data), alignment_of(p.bias))};
  for (int32_t i = 0; i < 4; ++i) {
    set(kPreferAlignmentA + i, static_cast<uint32_t>(alignments[i]));
  }
  return preference;
}

bool is_double(const CublasProduct& p) { return p.type == DataType::kFloat64; }

MatmulOwner make_matmul(const Library& library, const CublasProduct& p) {
  MatmulDesc raw = nullptr;
  check(library,
        library.api.MatmulDescCreate(&raw,
                                     is_double(p) ? ComputeType::kFloat64 : ComputeType::kFloat32,
                                     is_double(p) ? DataType::kFloat64 : DataType::kFloat32),
        "cublasLtMatmulDescCreate");
  MatmulOwner matmul(raw, {&library.api});
  const auto set = [&](int32_t attribute, const auto& value) {
    check(library, library.api.MatmulDescSetAttribute(raw, attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  };
  set(kMatmulTransA, p.a.transposed ? Operation::kTranspose : Operation::kNone);
  set(kMatmulTransB, p.b.transposed ? Operation::kTranspose : Operation::kNone);
  if (p.bias != nullptr) {
    set(kMatmulEpilogue, kEpilogueBias);
    set(kMatmulBiasPointer, p.bias);
  }
  return matmul;
}

/// A handle and what was chosen with it; used by one call at a time.
class Lane {
 public:
  Lane(CudaDevice& device, const Library& library) : device_(device), library_(library) {
    check(library_, library_.api.Create(&handle_), "cublasLtCreate");
  }
  ~Lane() {
    plans_.clear();
    const cuda::CleanupContext context(device_.context_if_retained(), "cublasLtDestroy");
    if (context.driver() == nullptr) return;
    const Status status = library_.api.Destroy(handle_);
    if (status != kSuccess) report_cleanup_failure("cublasLtDestroy", str("status ", status));
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  Plan& plan(const CublasProduct& product) {
    const PlanKey key = key_of(product);
    const auto known = plans_.find(key);
    if (known != plans_.end()) return known->second;
    Plan made = make_plan(product);
    if (plans_.size() >= kMaxPlans) plans_.clear();
    return plans_.emplace(key, std::move(made)).first->second;
  }
  [[nodiscard]] Handle handle() const noexcept { return handle_; }
  [[nodiscard]] size_t plan_count() const noexcept { return plans_.size(); }

 private:
  Plan make_plan(const CublasProduct& p) {
    Plan plan;
    plan.matmul = make_matmul(library_, p);
    plan.a = make_layout(library_, p.type, p.a.rows, p.a.cols, p.a.leading, p.batch, p.a_batch);
    plan.b = make_layout(library_, p.type, p.b.rows, p.b.cols, p.b.leading, p.batch, p.b_batch);
    plan.c = make_layout(library_, p.type, p.m, p.n, p.c_leading, p.batch, p.c_batch);
    plan.d = make_layout(library_, p.type, p.m, p.n, p.d_leading, p.batch, p.d_batch);
    const PreferenceOwner preference = make_preference(library_, p, device_.facts().sm);
    Heuristic best{};
    int found = 0;
    const Status status = library_.api.MatmulAlgoGetHeuristic(
        handle_, plan.matmul.get(), plan.a.get(), plan.b.get(), plan.c.get(), plan.d.get(),
        preference.get(), 1, &best, &found);
    if (status == kNotSupported || (status == kSuccess && found == 0)) return plan;
    check(library_, status, "cublasLtMatmulAlgoGetHeuristic");
    check(library_, best.state, "cublasLtMatmulAlgoGetHeuristic");
    plan.algorithm = best.algorithm;
    plan.workspace_nbytes = best.workspace_nbytes;
    plan.found = true;
    return plan;
  }

  CudaDevice& device_;
  const Library& library_;
  Handle handle_ = nullptr;
  std::map<PlanKey, Plan> plans_;
};

struct Lanes {
  ForkMutex mutex;
  std::unique_ptr<Library> library;
  std::map<int, std::vector<std::unique_ptr<Lane>>> idle;  // by device, used last at the end
  int64_t handles = 0;
};

Lanes& lanes() {
  static Lanes& instance = *new Lanes;  // never destroyed: the driver ends before statics do
  return instance;
}

const Library& library_locked(Lanes& all) {
  if (all.library == nullptr) all.library = open_library();
  return *all.library;
}

/// A lane for the length of a call. The device is current.
class LaneLease {
 public:
  LaneLease(CudaDevice& device, StreamRef stream) : device_(device) {
    Lanes& all = lanes();
    const std::lock_guard lock(all.mutex);
    library_ = &library_locked(all);
    std::vector<std::unique_ptr<Lane>>& idle = all.idle[device.index()];
    if (!idle.empty()) {
      lane_ = std::move(idle.back());
      idle.pop_back();
      return;
    }
    if (device.is_capturing(stream)) {
      throw CaptureError(
          "cuBLAS cannot be started while a CUDA graph is being captured; run the method once "
          "without a graph first");
    }
    idle.reserve(static_cast<size_t>(all.handles) + 1);  // giving back never allocates
    lane_ = std::make_unique<Lane>(device, *library_);
    ++all.handles;
  }
  ~LaneLease() {
    Lanes& all = lanes();
    const std::lock_guard lock(all.mutex);
    all.idle[device_.index()].push_back(std::move(lane_));
  }
  LaneLease(const LaneLease&) = delete;
  LaneLease& operator=(const LaneLease&) = delete;

  Lane& operator*() const noexcept { return *lane_; }
  [[nodiscard]] const Library& library() const noexcept { return *library_; }

 private:
  CudaDevice& device_;
  const Library* library_ = nullptr;
  std::unique_ptr<Lane> lane_;
};

}  // namespace

bool cublas_multiply(CudaDevice& device, const CublasProduct& p, const OpContext& context) {
  const CudaGuard guard(device);
  const LaneLease lease(device, context.stream);
  const Library& library = lease.library();
  Plan& plan = (*lease).plan(p);
  if (!plan.found) return false;
  if (p.bias != nullptr) {
    check(library,
          library.api.MatmulDescSetAttribute(plan.matmul.get(), kMatmulBiasPointer, &p.bias,
                                             sizeof p.bias),
          "cublasLtMatmulDescSetAttribute");
  }
  const DeviceScratch workspace(plan.workspace_nbytes, context);
  const float narrow[] = {static_cast<float>(p.alpha), static_cast<float>(p.beta)};
  const double wide[] = {p.alpha, p.beta};
  const void* alpha = is_double(p) ? static_cast<const void*>(&wide[0]) : &narrow[0];
  const void* beta = is_double(p) ? static_cast<const void*>(&wide[1]) : &narrow[1];
  check(library,
        library.api.Matmul((*lease).handle(), plan.matmul.get(), alpha, p.a_data, plan.a.get(),
                           p.b_data, plan.b.get(), beta, p.c_data, plan.c.get(), p.d_data,
                           plan.d.get(), &plan.algorithm, workspace.data(), plan.workspace_nbytes,
                           cu_stream(context.stream)),
        "cublasLtMatmul");
  return true;
}

std::string require_cublas() {
  (void)cuda::driver();
  Lanes& all = lanes();
  const std::lock_guard lock(all.mutex);
  return library_locked(all).path;
}

void require_called_libraries(std::span<const std::string> undefined, const std::string& name) {
  constexpr std::string_view kUsers[] = {"aoti_torch_cuda_mm_out",  "aoti_torch_cuda_addmm_out",
                                         "aoti_torch_cuda_bmm_out", "aoti_torch_cuda_baddbmm_out",
                                         "aoti_torch_cuda_addmv",   "aoti_torch_cuda_addbmm"};
  std::string called;
  for (const std::string& symbol : undefined) {
    if (std::find(std::begin(kUsers), std::end(kUsers), symbol) == std::end(kUsers)) continue;
    called += str(called.empty() ? "" : ", ", symbol);
  }
  if (called.empty() || cuda::driver_if_initialised() == nullptr) return;
  try {
    require_cublas();
  } catch (const NotSupported& error) {
    throw NotSupported(str("library '", name, "' calls ", called, ", by cuBLAS: ", error.what()));
  }
}

CublasCounts cublas_counts() {
  Lanes& all = lanes();
  const std::lock_guard lock(all.mutex);
  CublasCounts counts{all.handles, 0};
  for (const auto& [device, idle] : all.idle) {
    for (const std::unique_ptr<Lane>& lane : idle) {
      counts.plans += static_cast<int64_t>(lane->plan_count());
    }
  }
  return counts;
}

void trim_cublas() noexcept {
  Lanes& all = lanes();
  const std::lock_guard lock(all.mutex);
  for (auto& [device, idle] : all.idle) {
    all.handles -= static_cast<int64_t>(idle.size());
    idle.clear();
  }
}

void reset_cublas() noexcept {
  trim_cublas();
  Lanes& all = lanes();
  const std::lock_guard lock(all.mutex);
  all.library.reset();
}

}  // namespace cudaexec::gpu

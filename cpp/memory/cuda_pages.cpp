#include "base/cleanup_report.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/str.h"
#include "device/cuda/check.h"
#include "device/cuda/cuda_device.h"
#include "memory/cuda_pool_allocator.h"
#include "memory/page_backend.h"

namespace cudaexec {

using namespace cuda;

namespace {

class CudaPages final : public PageBackend {
 public:
  explicit CudaPages(CudaDevice& device) : device_(device) {
    if (!device.facts().virtual_memory) {
      throw NotSupported(str(to_string(device.device()), " (", device.facts().name,
                             ") has no virtual memory management, which a KV cache needs; use "
                             "another GPU or driver, or export without kv_cache"));
    }
    const CudaGuard guard(device_);
    const CUmemAllocationProp wanted = properties();
    CUDAEXEC_CU(cuMemGetAllocationGranularity, &granularity_, &wanted,
                CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  }

  [[nodiscard]] Device device() const noexcept override { return device_.device(); }
  [[nodiscard]] size_t granularity() const noexcept override { return granularity_; }
  [[nodiscard]] bool is_usable() const noexcept override {
    return driver_if_initialised() != nullptr;
  }

  [[nodiscard]] std::byte* reserve(size_t nbytes) override {
    const CudaGuard guard(device_);
    CUdeviceptr base = 0;
    CUDAEXEC_CU_ALLOC(nbytes, cuMemAddressReserve, &base, nbytes, 0, 0, 0);
    return reinterpret_cast<std::byte*>(base);
  }

  void unreserve(std::byte* base, size_t nbytes) noexcept override {
    const CleanupContext current(device_.context_if_retained(), "cuMemAddressFree");
    const DriverApi* api = current.driver();
    if (api == nullptr) return;
    report_cleanup_result("cuMemAddressFree", api->cuMemAddressFree(cu_pointer(base), nbytes));
  }

  [[nodiscard]] uint64_t create(size_t nbytes) override {
    fault_point(FaultSite::kAllocate, "page");
    const CudaGuard guard(device_);
    const CUmemAllocationProp wanted = properties();
    CUmemGenericAllocationHandle page = 0;
    CUresult result = driver().cuMemCreate(&page, nbytes, &wanted, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {  // the pool may keep some
      cuda_allocator(device_.index()).trim();
      result = driver().cuMemCreate(&page, nbytes, &wanted, 0);
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      throw OutOfMemory(str("cannot allocate a page of ", nbytes, " bytes on ",
                            to_string(device_.device()), ": ", device_.free_nbytes(), " of ",
                            device_.facts().total_nbytes,
                            " bytes are free; close sessions, or free memory of other programs"));
    }
    check(result, "cuMemCreate", CUDAEXEC_FILE, __LINE__, nbytes);
    return page;
  }

  void destroy(uint64_t page, size_t) noexcept override {
    const CleanupContext current(device_.context_if_retained(), "cuMemRelease");
    const DriverApi* api = current.driver();
    if (api != nullptr) report_cleanup_result("cuMemRelease", api->cuMemRelease(page));
  }

  void map(std::byte* address, uint64_t page, size_t nbytes) override {
    const CudaGuard guard(device_);
    CUDAEXEC_CU(cuMemMap, cu_pointer(address), nbytes, 0, page, 0);
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_.index()};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    try {
      CUDAEXEC_CU(cuMemSetAccess, cu_pointer(address), nbytes, &access, 1);
    } catch (...) {
      report_cleanup_result("cuMemUnmap", driver().cuMemUnmap(cu_pointer(address), nbytes));
      throw;
    }
  }

  void unmap(std::byte* address, size_t nbytes) override {
    const CudaGuard guard(device_);
    CUDAEXEC_CU(cuMemUnmap, cu_pointer(address), nbytes);
  }

 private:
  [[nodiscard]] CUmemAllocationProp properties() const noexcept {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_.index()};
    return properties;
  }

  CudaDevice& device_;
  size_t granularity_ = 0;
};

}  // namespace

std::shared_ptr<PageBackend> make_cuda_pages(CudaDevice& device) {
  return std::make_shared<CudaPages>(device);
}

}  // namespace cudaexec

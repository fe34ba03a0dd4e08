#include "device/cuda/pointer_info.h"

#include "device/cuda/check.h"

namespace cudaexec {

using namespace cuda;

PointerInfo pointer_info(const void* data) {
  if (data == nullptr) return {};
  unsigned type = 0;
  unsigned managed = 0;
  int ordinal = -1;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* values[] = {&type, &managed, &ordinal};
  // Memory that CUDA does not know gives zeros, not an error.
  CUDAEXEC_CU(cuPointerGetAttributes, 3, attributes, values, cu_pointer(data));
  if (managed != 0) return {MemoryKind::kManaged, ordinal};
  if (type == CU_MEMORYTYPE_DEVICE) return {MemoryKind::kDevice, ordinal};
  if (type == CU_MEMORYTYPE_HOST) return {MemoryKind::kPinned, ordinal};
  return {};
}

}  // namespace cudaexec

// Entry points of a generated library, found by name.
#pragma once

#include "aoti/abi.h"
#include "aoti/shared_object.h"

namespace cudaexec {

struct ContainerFunctions {
  /// @throws TargetError naming the required entry points that the library lacks.
  explicit ContainerFunctions(const SharedObject& code);

  using Error = int32_t;
  using Get = Error (*)(ContainerHandle, size_t*);
  using GetName = Error (*)(ContainerHandle, size_t, const char**);
  using Run = Error (*)(ContainerHandle, AtenTensorHandle*, size_t, AtenTensorHandle*, size_t,
                        void* stream, void* proxy_executor);

  Error (*create)(ContainerHandle*, size_t models, const char* device, const char* directory);
  Error (*destroy)(ContainerHandle);
  Get num_inputs;
  Get num_outputs;
  Run run;  // RunSingleThreaded, or Run where the library has no other
  // Absent in some versions:
  Get num_constants;
  GetName constant_name;
  GetName constant_fqn;
  Error (*constant_dtype)(ContainerHandle, size_t, int32_t*);
  Error (*constant_nbytes)(ContainerHandle, size_t, size_t*);
  Error (*constant_folded)(ContainerHandle, size_t, bool*);
  Error (*update_pairs)(ContainerHandle, const ConstantPair*, size_t, bool inactive, bool validate);
  Error (*update_from_blob)(ContainerHandle, const uint8_t*);
  Error (*last_error)(const char**);
};

}  // namespace cudaexec

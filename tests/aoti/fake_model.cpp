// A model container written by hand, with the C interface that AOTInductor generates. The second
// input chooses what a run does.
#include <cstdint>
#include <iostream>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" {
struct Tensor;
int32_t aoti_torch_dtype_float32();
int32_t aoti_torch_device_type_cpu();
int32_t aoti_torch_empty_strided(int64_t, const int64_t*, const int64_t*, int32_t, int32_t, int32_t,
                                 Tensor**);
int32_t aoti_torch_get_data_ptr(Tensor*, void**);
int32_t aoti_torch_get_numel(Tensor*, int64_t*);
int32_t aoti_torch_delete_tensor_object(Tensor*);
int32_t aoti_torch_new_tensor_handle(Tensor*, Tensor**);
int32_t aoti_torch__reinterpret_tensor(Tensor*, int64_t, const int64_t*, const int64_t*, int64_t,
                                       Tensor**);
void aoti_torch_check(bool, const char*, const char*, uint32_t, const char*);
}

namespace {

// Called while the library is opened, as in generated code.
const int32_t float32 = aoti_torch_dtype_float32();
const int32_t cpu = aoti_torch_device_type_cpu();
thread_local std::string last_error;

void must(int32_t code) {
  if (code != 0) throw std::runtime_error("API call failed");
}

struct Handle {
  Tensor* tensor = nullptr;
  ~Handle() {
    if (tensor != nullptr) aoti_torch_delete_tensor_object(tensor);
  }
  Tensor* release() {
    Tensor* result = tensor;
    tensor = nullptr;
    return result;
  }
};

float* data(Tensor* tensor) {
  void* pointer = nullptr;
  must(aoti_torch_get_data_ptr(tensor, &pointer));
  return static_cast<float*>(pointer);
}

Tensor* empty(int64_t count, int32_t dtype = float32) {
  const int64_t step = 1;
  Tensor* tensor = nullptr;
  must(aoti_torch_empty_strided(1, &count, &step, dtype, cpu, -1, &tensor));
  return tensor;
}

// What a kernel looks like: the check fails at one index, on whatever thread has it.
void checked_copy(const float* in, float* out, int64_t count) {
#pragma omp parallel
  {
#pragma omp for
    for (int64_t i = 0; i < count; ++i) {
      if (!(in[i] >= 0)) aoti_torch_check(false, "kernel", "/build/machine/path.cpp", 7, "0 <= x");
      out[i] = in[i];
    }
    // Others wait here for the thread that left.
#pragma omp for
    for (int64_t i = 0; i < count; ++i) out[i] += 1;
  }
}

struct Container {
  Tensor* weight = nullptr;
  bool owned = false;
};

enum Mode {
  kScale,
  kThrow,
  kBadDtype,
  kSerialCheck,
  kRegionCheck,
  kNone,
  kTwice,
  kInput,
  kThrowInt,
  kSilent,
  kCerr,
  kWeight,
  kRegex,
  kUnreadInputs
};

int64_t mode_of(Tensor* tensor) {
  void* pointer = nullptr;
  must(aoti_torch_get_data_ptr(tensor, &pointer));
  return *static_cast<int64_t*>(pointer);
}

void run(Container& self, int64_t mode, Tensor** inputs, Tensor** outputs) {
  if (mode == kUnreadInputs) throw std::runtime_error("checks failed before inputs were taken");
  Handle x{inputs[0]};
  Handle m{inputs[1]};
  inputs[0] = inputs[1] = nullptr;
  int64_t count = 0;
  must(aoti_torch_get_numel(x.tensor, &count));
  if (mode == kInput) {
    outputs[0] = x.release();
    return;
  }
  Handle y{empty(count)};
  const float* in = data(x.tensor);
  float* out = data(y.tensor);
  switch (mode) {
    case kScale:
      for (int64_t i = 0; i < count; ++i) out[i] = in[i] * 2 + 1;
      break;
    case kThrow:
      throw std::runtime_error("boom from the model");
    case kBadDtype:
      (void)empty(count, 99);
      break;
    case kSerialCheck:
      for (int64_t i = 0; i < count; ++i) {
        if (!(in[i] >= 0))
          aoti_torch_check(false, "kernel", "/build/machine/path.cpp", 7, "0 <= x");
        out[i] = in[i];
      }
      break;
    case kRegionCheck:
      checked_copy(in, out, count);
      checked_copy(out, out, count);
      (void)Handle{empty(count)};  // generated code goes on until a call tells it to stop
      break;
    case kNone:
      return;
    case kTwice:
      for (int64_t i = 0; i < count; ++i) out[i] = in[i];
      outputs[0] = y.release();
      outputs[1] = outputs[0];
      return;
    case kThrowInt:
      throw 5;
    case kCerr:
      std::cerr << "a line for " << "stderr" << std::endl;
      for (int64_t i = 0; i < count; ++i) out[i] = in[i];
      break;
    case kWeight: {
      const float* weight = data(self.weight);
      for (int64_t i = 0; i < count; ++i) out[i] = in[i] * weight[0];
      break;
    }
    case kRegex:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = std::regex_match("cuda:1", std::regex("([a-z]+)(?::([0-9]+))?")) ? 1 : 0;
      }
      break;
    default:
      break;
  }
  outputs[0] = y.release();
}

template <typename Function>
int32_t fenced(const Function& function) {
  try {
    last_error.clear();
    function();
    return 0;
  } catch (const std::exception& error) {
    last_error = error.what();
    std::cerr << "Error: " << error.what() << '\n';
  } catch (...) {
    last_error = "Unknown exception occurred.";
    std::cerr << "Unknown exception occurred.\n";
  }
  return 1;
}

struct Pair {
  const char* name;
  Tensor* tensor;
};

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int32_t AOTInductorModelContainerCreateWithDevice(Container** result, size_t,
                                                         const char* device, const char*) {
  return fenced([&] {
    if (std::string(device) != "cpu") throw std::runtime_error("not a device of this model");
    *result = new Container;
  });
}
EXPORT int32_t AOTInductorModelContainerDelete(Container* self) {
  delete self;
  return 0;
}
EXPORT int32_t AOTInductorModelContainerGetNumInputs(Container*, size_t* count) {
  *count = 2;
  return 0;
}
EXPORT int32_t AOTInductorModelContainerGetNumOutputs(Container*, size_t* count) {
  *count = 2;
  return 0;
}
EXPORT int32_t AOTInductorModelContainerRunSingleThreaded(Container* self, Tensor** inputs, size_t,
                                                          Tensor** outputs, size_t, void*, void*) {
  int64_t mode = 0;
  return fenced([&] {
           mode = mode_of(inputs[1]);
           if (mode != kSilent) run(*self, mode, inputs, outputs);
         }) != 0 ||
         mode == kSilent;
}
#ifdef WITH_CONSTANT
EXPORT int32_t AOTInductorModelContainerGetNumConstants(Container*, size_t* count) {
  *count = 1;
  return 0;
}
EXPORT int32_t AOTInductorModelContainerGetConstantName(Container*, size_t, const char** name) {
  *name = "fc_weight";
  return 0;
}
EXPORT int32_t AOTInductorModelContainerGetConstantOriginalFQN(Container*, size_t,
                                                               const char** name) {
  *name = "fc.weight";
  return 0;
}
EXPORT int32_t AOTInductorModelContainerGetConstantDtype(Container*, size_t, int32_t* dtype) {
  *dtype = float32;
  return 0;
}
// As generated code does: a second handle of each constant, which nobody deletes.
EXPORT int32_t AOTInductorModelContainerUpdateUserManagedConstantBufferPairs(Container* self,
                                                                             const Pair* pairs,
                                                                             size_t count, bool,
                                                                             bool) {
  return fenced([&] {
    for (size_t i = 0; i < count; ++i)
      must(aoti_torch_new_tensor_handle(pairs[i].tensor, &self->weight));
  });
}
#endif
#ifdef WITH_LAST_ERROR
EXPORT int32_t AOTInductorGetLastError(const char** message) {
  *message = last_error.c_str();
  return 0;
}
#endif

// A model container for a GPU written by hand, with the C interface and the calls of code that
// AOTInductor generates. MODEL chooses what it computes; its kernels are what a test registers:
//   SCALE: y = x * w + k     w on the GPU, k on the host
//   COUNT: total += x; y = total * w
//   READ:  y = total; n = the first element of total, read on the host
//   MLP:   y = fc2(relu(fc1(x))), as ExecuTorch's samples; without fc2's bias, which is inlined
//   there BUSY:  as SCALE with k = 0, but it fails, waits or returns what `mode`, a host input,
//   says
//   VARY:  y = x * w, and what else the environment variable FAKE_VARY says
//   RANDOM: y = 4 random whole numbers
//   ATTEND: of x [tokens, 32] (two queries, a key, a value of 8) and positions: the attention over
//   layers 0 and 1 of the KV cache
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#define SCALE 1
#define COUNT 2
#define READ 3
#define BUSY 4
#define MLP 5
#define VARY 6
#define RANDOM 7
#define ATTEND 8

extern "C" {
struct Tensor;
struct StreamGuard;
using Stream = void*;
int32_t aoti_torch_dtype_float32();
int32_t aoti_torch_device_type_cpu();
int32_t aoti_torch_device_type_cuda();
int32_t aoti_torch_empty_strided(int64_t, const int64_t*, const int64_t*, int32_t, int32_t, int32_t,
                                 Tensor**);
int32_t aoti_torch_get_data_ptr(Tensor*, void**);
int32_t aoti_torch_get_numel(Tensor*, int64_t*);
int32_t aoti_torch_get_device_type(Tensor*, int32_t*);
int32_t aoti_torch_get_device_index(Tensor*, int32_t*);
int32_t aoti_torch_delete_tensor_object(Tensor*);
int32_t aoti_torch_new_tensor_handle(Tensor*, Tensor**);
int32_t aoti_torch_clone(Tensor*, Tensor**);
int32_t aoti_torch_copy_(Tensor*, Tensor*, int32_t);
int32_t aoti_torch_zero_(Tensor*);
int32_t aoti_torch__reinterpret_tensor(Tensor*, int64_t, const int64_t*, const int64_t*, int64_t,
                                       Tensor**);
int32_t aoti_torch_item_float32(Tensor*, float*);
int32_t aoti_torch_scalar_to_tensor_int64(int64_t, Tensor**);
int32_t aoti_torch_dtype_int64();
int32_t aoti_torch_cuda_randint_low_out(Tensor*, int64_t, int64_t, const int64_t*, int64_t);
int32_t aoti_torch_get_sizes(Tensor*, int64_t**);
int32_t aoti_torch_cuda_kv_attend(Tensor*, Tensor*, Tensor*, Tensor*, int64_t, double, Tensor**);
int32_t aoti_torch_create_cuda_stream_guard(void*, int32_t, StreamGuard**);
int32_t aoti_torch_delete_cuda_stream_guard(StreamGuard*);
int32_t aoti_torch_get_current_cuda_stream(int32_t, void**);
int32_t cudaSetDevice(int);
int32_t cudaGetDevice(int*);
int32_t cudaMalloc(void**, size_t);
int32_t cudaFree(void*);
int32_t cudaEventCreate(void**);
int32_t cudaEventDestroy(void*);
int32_t cudaEventRecord(void*, Stream);
int32_t cudaMemcpy(void*, const void*, size_t, int);
int32_t cuModuleLoadData(void**, const void*);
int32_t cuModuleUnload(void*);
int32_t cuModuleGetFunction(void**, void*, const char*);
int32_t cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                       Stream, void**, void**);
}

namespace {

// Called while the library is opened, as in generated code.
const int32_t float32 = aoti_torch_dtype_float32();
const int32_t cpu = aoti_torch_device_type_cpu();
const int32_t cuda = aoti_torch_device_type_cuda();

const char image[] = "FAKECUDA code of the fake program";

void must(int32_t code, const char* what = "API call failed") {
  if (code != 0) throw std::runtime_error(what);
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

void* data(Tensor* tensor) {
  void* pointer = nullptr;
  must(aoti_torch_get_data_ptr(tensor, &pointer));
  return pointer;
}

struct Guard {
  Guard(Stream stream, int32_t device) {
    must(aoti_torch_create_cuda_stream_guard(stream, device, &guard));
  }
  ~Guard() { aoti_torch_delete_cuda_stream_guard(guard); }
  StreamGuard* guard = nullptr;
};

struct Constant {
  const char* name;
  const char* fqn;
  size_t count;
};

#if MODEL == SCALE
constexpr int kInputs = 1, kOutputs = 1;
const std::vector<Constant> constants{{"w", "w", 1}, {"k", "k", 1}};
#elif MODEL == COUNT
constexpr int kInputs = 1, kOutputs = 1;
const std::vector<Constant> constants{{"w", "w", 1}, {"total", "total", 4}};
#elif MODEL == READ
constexpr int kInputs = 0, kOutputs = 2;
const std::vector<Constant> constants{{"total", "total", 4}};
#elif MODEL == VARY
constexpr int kInputs = 1, kOutputs = 2;
const std::vector<Constant> constants{{"w", "w", 1}};
#elif MODEL == RANDOM
constexpr int kInputs = 0, kOutputs = 1;
const std::vector<Constant> constants{};
#elif MODEL == ATTEND
constexpr int kInputs = 2, kOutputs = 2;
const std::vector<Constant> constants{};
#elif MODEL == MLP
constexpr int kInputs = 1, kOutputs = 1;
const std::vector<Constant> constants{{"fc1_weight", "fc1.weight", 128},
                                      {"fc1_bias", "fc1.bias", 16},
                                      {"fc2_weight", "fc2.weight", 64}};
#else
constexpr int kInputs = 2, kOutputs = 2;
const std::vector<Constant> constants{{"w", "w", 1}};
#endif

struct Container {
  int device = 0;
  std::vector<Tensor*> values{constants.size()};
  void* blob = nullptr;  // of update_constants_from_blob
  void* event = nullptr;
  std::vector<void*> modules;
  void* scale = nullptr;
  void* add = nullptr;

  ~Container() {
#ifdef UNLOADS  // torch 2.13 and later
    for (void* module : modules) cuModuleUnload(module);
#endif
    if (event != nullptr) cudaEventDestroy(event);
    if (blob == nullptr) return;
    for (Tensor* value : values) {
      if (value != nullptr) aoti_torch_delete_tensor_object(value);
    }
    cudaFree(blob);
  }
};

void* kernel(Container& self, void*& function, const char* name) {
  if (function != nullptr) return function;
  void* module = nullptr;
  must(cuModuleLoadData(&module, image), "CUDA driver error: load");
  self.modules.push_back(module);
  must(cuModuleGetFunction(&function, module, name), "CUDA driver error: function");
  return function;
}

Tensor* empty(int64_t count, int32_t device_type) {
  const int64_t step = 1;
  Tensor* tensor = nullptr;
  // The device index of the export.
  must(aoti_torch_empty_strided(1, &count, &step, float32, device_type, 0, &tensor));
  return tensor;
}

void launch(void* function, Stream stream, void** arguments) {
  must(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr),
       "CUDA driver error: launch");
}

// out = in * w + k
void scale(Container& self, Stream stream, Tensor* in, Tensor* w, Tensor* out, int64_t count,
           float k) {
  void* pointers[] = {data(in), data(w), data(out)};
  void* arguments[] = {&pointers[0], &pointers[1], &pointers[2], &count, &k};
  launch(kernel(self, self.scale, "fake_scale"), stream, arguments);
}

void add(Container& self, Stream stream, Tensor* total, Tensor* x, int64_t count) {
  void* pointers[] = {data(total), data(x)};
  void* arguments[] = {&pointers[0], &pointers[1], &count};
  launch(kernel(self, self.add, "fake_add"), stream, arguments);
}

void check_device(Container& self, Tensor* tensor) {
  int32_t type = -1;
  int32_t index = -1;
  int current = -1;
  must(aoti_torch_get_device_type(tensor, &type));
  must(aoti_torch_get_device_index(tensor, &index));
  must(cudaGetDevice(&current));
  if (type != cuda || index != self.device || current != self.device) {
    throw std::runtime_error("input on another device");
  }
}

[[maybe_unused]] void busy(Container& self, Stream stream, int64_t mode, Tensor* x, Handle& y,
                           int64_t count, Tensor** outputs) {
  switch (mode) {
    case 1:
      throw std::runtime_error("boom from the model");
    case 2: {  // read on the host
      float value = 0;
      must(aoti_torch_item_float32(x, &value));
      must(aoti_torch_scalar_to_tensor_int64(static_cast<int64_t>(value), &outputs[1]));
      return;
    }
    case 3: {  // through the host and back, and zeros
      Handle host{empty(count, cpu)};
      must(aoti_torch_copy_(host.tensor, x, 1));
      static_cast<float*>(data(host.tensor))[0] += 1;
      must(aoti_torch_zero_(y.tensor));
      must(aoti_torch_copy_(y.tensor, host.tensor, 0));
      break;
    }
    case 4: {  // an output that aliases the input, transposed views of it cloned
      const int64_t sizes[] = {count / 2, 2};
      const int64_t strides[] = {1, count / 2};
      Handle view;
      must(aoti_torch__reinterpret_tensor(x, 2, sizes, strides, 0, &view.tensor));
      must(aoti_torch_clone(view.tensor, &outputs[1]));
      return;
    }
    case 5: {  // a stream that is not the call's
      Stream current = nullptr;
      must(aoti_torch_get_current_cuda_stream(0, &current));
      if (current != stream) throw std::runtime_error("another stream");
      break;
    }
    default:
      break;
  }
  (void)self;
}

/// An element as a tensor of its own.
[[maybe_unused]] Tensor* element(Tensor* tensor, int64_t index) {
  const int64_t one = 1;
  Tensor* view = nullptr;
  must(aoti_torch__reinterpret_tensor(tensor, 1, &one, &one, index, &view));
  return view;
}

int vary_runs = 0;

/// The second output: by default every other element of y, which is in y's memory.
[[maybe_unused]] void vary(Container& self, Stream stream, Handle& x, Handle& y, int64_t count,
                           Tensor** outputs) {
  const char* wanted = std::getenv("FAKE_VARY");
  const std::string what = wanted != nullptr ? wanted : "";
  ++vary_runs;
  int64_t half = count / 2;
  int64_t step = 2;
  if (what == "strides" && vary_runs % 2 == 0) step = 1;
  if (what == "shape" && vary_runs % 2 == 0) half = count > 1 ? 1 : half;
  if (what == "item") {
    float value = 0;
    int64_t none = 0;
    Handle element;
    must(aoti_torch__reinterpret_tensor(y.tensor, 0, &none, &none, 0, &element.tensor));
    must(aoti_torch_item_float32(element.tensor, &value));
  }
  if (what == "host") {
    Handle host{empty(count, cpu)};
    must(aoti_torch_copy_(host.tensor, y.tensor, 0));
  }
  if (what == "fail") throw std::runtime_error("boom from the model");
  if (what == "device") {  // a call that no capture allows
    void* block = nullptr;
    must(cudaMalloc(&block, 64), "CUDA error: memory");
    must(cudaFree(block), "CUDA error: free");
  }
  if (what == "temporary") {  // intermediates of several sizes, in use at the same time and not
    Handle a{empty(count, cuda)};
    {
      Handle b{empty(3 * count, cuda)};
      scale(self, stream, y.tensor, self.values[0], b.tensor, count, 1);
      scale(self, stream, b.tensor, self.values[0], a.tensor, count, 0);
    }
    Handle c{empty(2 * count, cuda)};
    scale(self, stream, a.tensor, self.values[0], c.tensor, count, 0);
    scale(self, stream, c.tensor, self.values[0], y.tensor, count, 0);
  }
  if (what == "input") {  // outputs that alias the input and a constant
    outputs[0] = x.release();
    must(aoti_torch_new_tensor_handle(self.values[0], &outputs[1]));
    return;
  }
  if (what == "layout") {  // three elements, or two with a gap, in memory of the same size
    Handle own{empty(3, cuda)};
    half = vary_runs / 2 % 2 == 0 ? 2 : 3;
    step = vary_runs / 2 % 2 == 0 ? 2 : 1;
    for (int64_t i = 0; i < half; ++i) {
      Handle from{element(x.tensor, i)}, to{element(own.tensor, i * step)};
      scale(self, stream, from.tensor, self.values[0], to.tensor, 1, 0);
    }
    must(aoti_torch__reinterpret_tensor(own.tensor, 1, &half, &step, 0, &outputs[1]));
  } else if (what == "same") {  // one tensor twice
    must(aoti_torch_new_tensor_handle(y.tensor, &outputs[1]));
  } else if (what == "cpu") {
    outputs[1] = empty(2, cpu);
    static_cast<float*>(data(outputs[1]))[0] = 5;
    static_cast<float*>(data(outputs[1]))[1] = static_cast<float>(count);
  } else {
    must(aoti_torch__reinterpret_tensor(y.tensor, 1, &half, &step, count > 1 ? 1 : 0, &outputs[1]));
  }
  outputs[0] = y.release();
}

/// Part of x for `heads` heads of 8, as [1, heads, tokens, 8].
[[maybe_unused]] Tensor* part(Tensor* x, int64_t tokens, int64_t heads, int64_t offset) {
  const int64_t sizes[] = {1, heads, tokens, 8};
  const int64_t strides[] = {32 * tokens, 8, 32, 1};
  Tensor* view = nullptr;
  must(aoti_torch__reinterpret_tensor(x, 4, sizes, strides, offset, &view));
  return view;
}

[[maybe_unused]] void attend(Tensor* x, Tensor* positions, Tensor** outputs) {
  int64_t* sizes = nullptr;
  must(aoti_torch_get_sizes(x, &sizes));
  const int64_t tokens = sizes[0];
  const Handle q{part(x, tokens, 2, 0)}, k{part(x, tokens, 1, 16)}, v{part(x, tokens, 1, 24)};
  Handle results[2];
  for (int64_t layer = 0; layer < 2; ++layer) {
    must(aoti_torch_cuda_kv_attend(q.tensor, k.tensor, v.tensor, positions, layer, 0.5,
                                   &results[layer].tensor));
  }
  for (int layer = 0; layer < 2; ++layer) outputs[layer] = results[layer].release();
}

void run(Container& self, Tensor** inputs, Tensor** outputs, Stream stream) {
  std::vector<Handle> taken(kInputs);
  for (int i = 0; i < kInputs; ++i) {
    taken[i].tensor = inputs[i];
    inputs[i] = nullptr;
  }
  const Guard guard(stream, 0);
#if MODEL == READ
  Handle y;
  must(aoti_torch_clone(self.values[0], &y.tensor));
  Handle element;
  must(aoti_torch__reinterpret_tensor(self.values[0], 0, nullptr, nullptr, 0, &element.tensor));
  float first = 0;
  must(aoti_torch_item_float32(element.tensor, &first));
  must(aoti_torch_scalar_to_tensor_int64(static_cast<int64_t>(first), &outputs[1]));
  outputs[0] = y.release();
#elif MODEL == RANDOM
  const int64_t size = 4;
  const int64_t one = 1;
  must(aoti_torch_empty_strided(1, &size, &one, aoti_torch_dtype_int64(), cuda, 0, &outputs[0]));
  must(aoti_torch_cuda_randint_low_out(outputs[0], 0, 1 << 30, &size, 1));
#elif MODEL == ATTEND
  attend(taken[0].tensor, taken[1].tensor, outputs);
#else
  Tensor* x = taken[0].tensor;
  check_device(self, x);
  int64_t count = 0;
  must(aoti_torch_get_numel(x, &count));
  Handle y{empty(count, cuda)};
#if MODEL == SCALE
  scale(self, stream, x, self.values[0], y.tensor, count,
        *static_cast<float*>(data(self.values[1])));
#elif MODEL == MLP
  Handle z{empty(4, cuda)};
  void* pointers[] = {data(x), data(self.values[0]), data(self.values[1]), data(self.values[2]),
                      data(z.tensor)};
  void* arguments[] = {&pointers[0], &pointers[1], &pointers[2], &pointers[3], &pointers[4]};
  launch(kernel(self, self.scale, "fake_mlp"), stream, arguments);
  const int64_t sizes[] = {1, 4};
  const int64_t strides[] = {4, 1};
  must(aoti_torch__reinterpret_tensor(z.tensor, 2, sizes, strides, 0, &outputs[0]));
  return;
#elif MODEL == COUNT
  add(self, stream, self.values[1], x, count);
  scale(self, stream, self.values[1], self.values[0], y.tensor, count, 0);
#elif MODEL == VARY
  scale(self, stream, x, self.values[0], y.tensor, count, 0);
  vary(self, stream, taken[0], y, count, outputs);
  return;
#else
  const int64_t mode = *static_cast<int64_t*>(data(taken[1].tensor));
  scale(self, stream, x, self.values[0], y.tensor, count, 0);
  busy(self, stream, mode, x, y, count, outputs);
  if (mode == 4) {
    outputs[0] = taken[0].release();
    return;
  }
#endif
  outputs[0] = y.release();
#endif
}

size_t padded(const Constant& constant) { return (4 * constant.count + 63) / 64 * 64; }

template <typename Function>
int32_t fenced(const Function& function) {
  try {
    function();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "Error: " << error.what() << '\n';
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
    const std::string name = device;
    if (name.rfind("cuda:", 0) != 0) throw std::runtime_error("not a device of this model");
    const int index = std::stoi(name.substr(5));
    must(cudaSetDevice(index), "CUDA error: device");  // and never set back
    *result = new Container;
    (*result)->device = index;
  });
}
EXPORT int32_t AOTInductorModelContainerDelete(Container* self) {
  delete self;
  return 0;
}
EXPORT int32_t AOTInductorModelContainerGetNumInputs(Container*, size_t* count) {
  *count = kInputs;
  return 0;
}
EXPORT int32_t AOTInductorModelContainerGetNumOutputs(Container*, size_t* count) {
  *count = kOutputs;
  return 0;
}
EXPORT int32_t AOTInductorModelContainerRunSingleThreaded(Container* self, Tensor** inputs, size_t,
                                                          Tensor** outputs, size_t, Stream stream,
                                                          void*) {
  return fenced([&] {
    if (self->event == nullptr) {
      must(cudaEventCreate(&self->event), "CUDA error: event");
      must(cudaEventRecord(self->event, stream), "CUDA error: record");
    }
    run(*self, inputs, outputs, stream);
  });
}
EXPORT int32_t AOTInductorModelContainerGetNumConstants(Container*, size_t* count) {
  *count = constants.size();
  return 0;
}
EXPORT int32_t AOTInductorModelContainerGetConstantName(Container*, size_t i, const char** name) {
  *name = constants[i].name;
  return 0;
}
EXPORT int32_t AOTInductorModelContainerGetConstantOriginalFQN(Container*, size_t i,
                                                               const char** name) {
  *name = constants[i].fqn;
  return 0;
}
EXPORT int32_t AOTInductorModelContainerGetConstantDtype(Container*, size_t, int32_t* dtype) {
  *dtype = float32;
  return 0;
}
EXPORT int32_t AOTInductorModelContainerGetConstantDataSize(Container*, size_t i, size_t* nbytes) {
  *nbytes = padded(constants[i]);
  return 0;
}
// As generated code does: a second handle of each constant, which nobody deletes.
EXPORT int32_t AOTInductorModelContainerUpdateUserManagedConstantBufferPairs(Container* self,
                                                                             const Pair* pairs,
                                                                             size_t count, bool,
                                                                             bool) {
  return fenced([&] {
    for (size_t i = 0; i < count; ++i) {
      for (size_t k = 0; k < constants.size(); ++k) {
        if (pairs[i].name == std::string(constants[k].name)) {
          must(aoti_torch_new_tensor_handle(pairs[i].tensor, &self->values[k]));
        }
      }
    }
  });
}
// The dense layout: copied to memory of the container's own.
EXPORT int32_t AOTInductorModelUpdateConstantsFromBlob(Container* self, const uint8_t* bytes) {
  return fenced([&] {
    size_t nbytes = 0;
    for (const Constant& constant : constants) nbytes += padded(constant);
    must(cudaMalloc(&self->blob, nbytes), "CUDA error: memory");
    must(cudaMemcpy(self->blob, bytes, nbytes, 1), "CUDA error: copy");
    const auto* place = static_cast<const uint8_t*>(self->blob);
    for (size_t k = 0; k < constants.size(); ++k) {
      Handle value{empty(static_cast<int64_t>(constants[k].count), cuda)};
      must(cudaMemcpy(data(value.tensor), place, 4 * constants[k].count, 3), "CUDA error: copy");
      self->values[k] = value.release();
      place += padded(constants[k]);
    }
  });
}

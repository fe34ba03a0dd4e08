// Code modules, functions, launches.
#include <cstring>

#include "fake.h"

namespace fakecuda {

namespace {

Function* find_function(CUfunction handle, const char* entry) {
  return find<Function>(handle, Kind::kFunction, entry);
}

void set_offsets(KernelCode& code) {
  size_t offset = 0;
  for (const size_t nbytes : code.sizes) {
    offset = round_up(offset, nbytes >= 8 ? 8 : nbytes);
    code.offsets.push_back(offset);
    offset += nbytes;
  }
}

/// What is known of a kernel: from the image, or from what the test registered.
bool find_kernel(const Module& module, const std::string& name, KernelCode& code) {
  const auto in_image = module.kernels.find(name);
  const auto registered = world().kernels.find(name);
  if (in_image != module.kernels.end()) {
    code = in_image->second;
  } else if (!module.any_name || registered == world().kernels.end()) {
    return false;
  }
  if (!code.known && registered != world().kernels.end()) {
    code.known = true;
    code.sizes = registered->second.sizes;
    set_offsets(code);
  }
  return true;
}

}  // namespace

CUresult check_launch(const KernelLaunch& launch, const char* entry) {
  if (!launch.function->module->alive) {
    return misuse(std::string(entry) + ": the kernel's module was unloaded",
                  CUDA_ERROR_INVALID_HANDLE);
  }
  size_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (launch.grid[i] == 0 || launch.block[i] == 0) return CUDA_ERROR_INVALID_VALUE;
    threads *= launch.block[i];
  }
  if (threads > 1024 || launch.grid[1] > 65535 || launch.grid[2] > 65535 ||
      launch.grid[0] > 0x7FFFFFFF) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (launch.shared > static_cast<unsigned>(launch.function->max_dynamic_shared)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult make_launch(KernelLaunch& launch, CUfunction handle, const unsigned (&grid)[3],
                     const unsigned (&block)[3], unsigned shared, void** parameters, void** extra,
                     const char* entry) {
  launch.function = find_function(handle, entry);
  if (launch.function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (extra != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  for (int i = 0; i < 3; ++i) {
    launch.grid[i] = grid[i];
    launch.block[i] = block[i];
  }
  launch.shared = shared;
  const KernelCode& code = launch.function->code;
  for (size_t i = 0; code.known && i < code.sizes.size(); ++i) {
    if (parameters == nullptr || parameters[i] == nullptr) {
      return misuse(std::string(entry) + ": a kernel argument is missing",
                    CUDA_ERROR_INVALID_VALUE);
    }
    const auto* bytes = static_cast<const std::byte*>(parameters[i]);
    launch.arguments.emplace_back(bytes, bytes + code.sizes[i]);
  }
  return check_launch(launch, entry);
}

void do_launch(KernelLaunch& launch) {
  Function& function = *launch.function;
  if (!function.module->alive) {
    misuse("a kernel of an unloaded module runs", CUDA_ERROR_INVALID_HANDLE);
    return;
  }
  ++world().launches[function.name];
  const auto registered = world().kernels.find(function.name);
  if (registered == world().kernels.end() || registered->second.callback == nullptr) return;
  std::vector<const void*> arguments;
  for (const std::vector<std::byte>& argument : launch.arguments) {
    arguments.push_back(argument.data());
  }
  FakeLaunch view{};
  view.name = function.name.c_str();
  std::memcpy(view.grid, launch.grid, sizeof view.grid);
  std::memcpy(view.block, launch.block, sizeof view.block);
  view.shared_nbytes = launch.shared;
  view.count = static_cast<unsigned>(arguments.size());
  view.arguments = arguments.data();
  view.sizes = function.code.sizes.data();
  registered->second.callback(&view);
}

}  // namespace fakecuda

using namespace fakecuda;

FAKE_API CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  FAKE_ENTER(cuModuleLoadData, image);
  FAKE_CONTEXT(context);
  if (const CUresult result = check_unsafe("cuModuleLoadData")) return result;
  const DeviceState& device = world().devices[static_cast<size_t>(context->device)];
  auto* made = make_object<Module>(context);
  made->image = image;
  const ImageResult found = read_image(image, device.sm_major * 10 + device.sm_minor, *made);
  if (found != ImageResult::kOk) {
    made->alive = false;
    return found == ImageResult::kNoBinary ? CUDA_ERROR_NO_BINARY_FOR_GPU
                                           : CUDA_ERROR_INVALID_IMAGE;
  }
  *module = reinterpret_cast<CUmodule>(made);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuModuleUnload(CUmodule handle) {
  FAKE_ENTER(cuModuleUnload, handle);
  FAKE_CONTEXT(context);
  auto* module = find<Module>(handle, Kind::kModule, "cuModuleUnload");
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (module->context != context) {
    return misuse("cuModuleUnload: the module's context is not current",
                  CUDA_ERROR_INVALID_CONTEXT);
  }
  if (const CUresult result = check_unsafe("cuModuleUnload")) return result;
  finish_context(context);
  module->alive = false;
  for (auto& [name, function] : module->functions) function->alive = false;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) {
  FAKE_ENTER(cuModuleGetFunction, handle, name);
  auto* module = find<Module>(handle, Kind::kModule, "cuModuleGetFunction");
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Function*& made = module->functions[name];
  if (made == nullptr) {
    KernelCode code;
    if (!find_kernel(*module, name, code)) {
      module->functions.erase(name);
      return CUDA_ERROR_NOT_FOUND;
    }
    made = make_object<Function>(module);
    made->name = name;
    made->code = std::move(code);
  }
  *function = reinterpret_cast<CUfunction>(made);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  FAKE_ENTER(cuFuncSetAttribute, handle, attribute, value);
  Function* function = find_function(handle, "cuFuncSetAttribute");
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
      value > 227 << 10) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  function->max_dynamic_shared = value;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute,
                                     CUfunction handle) {
  FAKE_ENTER(cuFuncGetAttribute, attribute, handle);
  const Function* function = find_function(handle, "cuFuncGetAttribute");
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
               ? function->max_dynamic_shared
               : 1024;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset,
                                     size_t* nbytes) {
  FAKE_ENTER(cuFuncGetParamInfo, handle, index);
  const Function* function = find_function(handle, "cuFuncGetParamInfo");
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (index >= function->code.sizes.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = function->code.offsets[index];
  if (nbytes != nullptr) *nbytes = function->code.sizes[index];
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                 unsigned grid_z, unsigned block_x, unsigned block_y,
                                 unsigned block_z, unsigned shared_nbytes, CUstream stream_handle,
                                 void** parameters, void** extra) {
  FAKE_ENTER(cuLaunchKernel, function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
             shared_nbytes, stream_handle);
  Stream* stream = find_stream(stream_handle, "cuLaunchKernel");
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  NodeData data;
  data.type = CU_GRAPH_NODE_TYPE_KERNEL;
  const unsigned grid[3] = {grid_x, grid_y, grid_z};
  const unsigned block[3] = {block_x, block_y, block_z};
  if (const CUresult result = make_launch(data.kernel, function, grid, block, shared_nbytes,
                                          parameters, extra, "cuLaunchKernel")) {
    return result;
  }
  if (data.kernel.function->context != stream->context) {
    return misuse("cuLaunchKernel: kernel and stream of different contexts",
                  CUDA_ERROR_INVALID_HANDLE);
  }
  if (const CUresult result = check_legacy(stream, "cuLaunchKernel")) return result;
  if (world().log) world().calls.back() += " " + data.kernel.function->name;
  if (stream->capture != nullptr) return capture_node(stream, std::move(data));
  auto launch = std::make_shared<KernelLaunch>(std::move(data.kernel));
  enqueue(stream, [launch] { do_launch(*launch); });
  return CUDA_SUCCESS;
}

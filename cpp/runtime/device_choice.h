// Which device a program runs on.
#pragma once

#include <string>

#include "base/export.h"
#include "device/device.h"

namespace cudaexec {

class CudaDevice;
struct Program;

struct DeviceChoice {
  Device device;
  CudaDevice* gpu = nullptr;  // null for the CPU
  std::string problem;        // why the file's GPU code is not used, where nobody asked for the CPU
};

/// `asked`: "cpu", "cuda" (the same as "cuda:0"), "cuda:<index>", or "" for what suits the
/// program: the first GPU if it has code for it, else the CPU. The driver is opened only for
/// programs with GPU code.
/// @throws DeviceError for an unknown or absent device, TargetError if a GPU was asked for and the
/// program has no code for any.
DeviceChoice choose_device(const Program& program, const std::string& asked);

/// "cuda sm_90, cpu x86-64-v3": what the program has code for.
std::string code_kinds(const Program& program);

}  // namespace cudaexec

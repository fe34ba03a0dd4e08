#include "base/error.h"

#include <array>

namespace cudaexec {
namespace {

struct KindInfo {
  const char* class_name;
  int32_t code;
};

// Indexed by ErrorKind. The numbers are ExecuTorch's.
constexpr std::array<KindInfo, 17> kKinds{{
    {"Error", 0x01},         // Internal
    {"FormatError", 0x23},   // InvalidProgram
    {"VersionError", 0x30},  // DelegateInvalidCompatibility
    {"TargetError", 0x30},   // DelegateInvalidCompatibility
    {"WeightsError", 0x24},  // InvalidExternalData
    {"InputError", 0x12},    // InvalidArgument
    {"ShapeError", 0x12},    // InvalidArgument
    {"DtypeError", 0x13},    // InvalidType
    {"DeviceError", 0x12},   // InvalidArgument
    {"OutOfMemory", 0x21},   // MemoryAllocationFailed
    {"NotSupported", 0x10},  // NotSupported
    {"CaptureError", 0x02},  // InvalidState
    {"ContextFull", 0x25},   // OutOfResources
    {"SessionBusy", 0x02},   // InvalidState
    {"ClosedError", 0x02},   // InvalidState
    {"ExportError", 0x10},   // NotSupported
    {"FileError", 0x22},     // AccessFailed
}};

const KindInfo& info(ErrorKind kind) noexcept {
  const auto index = static_cast<size_t>(kind);
  return kKinds[index < kKinds.size() ? index : 0];
}

}  // namespace

int32_t executorch_code(ErrorKind kind) noexcept { return info(kind).code; }
const char* error_class_name(ErrorKind kind) noexcept { return info(kind).class_name; }

}  // namespace cudaexec

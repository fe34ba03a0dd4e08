// What an operator needs besides its operands.
#pragma once

#include "memory/allocator.h"
#include "device/device.h"

namespace cudaexec {

struct OpContext {
  Allocator& allocator;  // for results and scratch memory
  StreamRef stream;
};

}  // namespace cudaexec

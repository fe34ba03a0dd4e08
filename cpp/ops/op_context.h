// What an operator needs besides its operands.
#pragma once

#include "device/device.h"
#include "memory/allocator.h"

namespace cudaexec {

struct OpContext {
  Allocator& allocator;  // for results and scratch memory
  StreamRef stream;
};

}  // namespace cudaexec

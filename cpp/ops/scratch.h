// Temporary memory of one operator call: a little on the stack, more from the call's allocator.
#pragma once

#include <cstddef>

#include "memory/allocator.h"
#include "ops/op_context.h"

namespace cudaexec::ops {

/// Uninitialised, aligned to 64 bytes, freed with the object.
class Scratch {
 public:
  Scratch(size_t nbytes, const OpContext& context)
      : allocator_(context.allocator), stream_(context.stream), nbytes_(nbytes) {
    data_ = nbytes <= sizeof(small_) ? small_
                                     : static_cast<char*>(allocator_.allocate(nbytes, stream_));
  }
  ~Scratch() {
    if (data_ != small_) allocator_.deallocate(data_, nbytes_, stream_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] char* data() noexcept { return data_; }

 private:
  Allocator& allocator_;
  StreamRef stream_;
  size_t nbytes_;
  char* data_;
  alignas(64) char small_[4096];
};

}  // namespace cudaexec::ops

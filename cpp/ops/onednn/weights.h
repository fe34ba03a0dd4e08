// Convolution weights in the layout that a primitive wants.
#pragma once

#include <dnnl.hpp>

#include "ops/convolution.h"

namespace cudaexec::ops::onednn {

/// The weight in layout `wanted`. A constant is converted once and kept in its storage's pack
/// cache, once per layout; another weight is converted into `room`, which has `wanted.get_size()`
/// bytes. Returns the weight itself where it already lies so. Thread-safe.
void* weights_as(const ConvolutionProblem& problem, const dnnl::memory::desc& wanted, char* room);

/// Whether weights_as() will use `room`.
bool needs_room(const ConvolutionProblem& problem, const dnnl::memory::desc& wanted);

/// Runs a reorder on this thread's team.
void convert(const dnnl::memory::desc& from, void* source, const dnnl::memory::desc& to,
             void* result);

}  // namespace cudaexec::ops::onednn

// OnednnFunctions::convolve.
#pragma once

#include "ops/convolution.h"

namespace cudaexec::ops::onednn {

bool convolve(const ConvolutionProblem& problem, const OpContext& context);

}  // namespace cudaexec::ops::onednn

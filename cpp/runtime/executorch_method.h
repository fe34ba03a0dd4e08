// Methods of programs that ExecuTorch's own exporter wrote, which have no manifest: their specs
// follow from the execution plan and the delegate payload.
#pragma once

#include <map>
#include <string>

#include "format/pte_reader.h"
#include "runtime/program.h"

namespace cudaexec {

/// The method as a ProgramMethod without code. One that cannot run here has a refusal: an operator
/// between delegates, another delegate, CUDA code, dtypes without support. `blobs` gets the size of
/// each weight it names.
/// @throws FormatError if the delegate's payload is damaged.
ProgramMethod describe_executorch_method(const PteFile& file, const PteMethod& method,
                                         std::map<std::string, BlobDigest>& blobs);

}  // namespace cudaexec

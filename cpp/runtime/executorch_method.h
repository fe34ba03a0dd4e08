// Methods of programs that ExecuTorch's own exporter wrote, which have no manifest: their specs
// follow from the execution plan and the delegate payload.
#pragma once

#include <map>
#include <string>

#include "format/pte_reader.h"
#include "runtime/program.h"

namespace cudaexec {

/// The method as a ProgramMethod without code. One that cannot run has a refusal: an operator
/// between delegates, another delegate, dtypes without support. Copies between host and GPU around
/// the delegate are left out: calls copy where their inputs and outputs need it. `blobs` gets the
/// size of each weight it names.
/// @throws FormatError if the delegate's payload is damaged.
ProgramMethod describe_executorch_method(const PteFile& file, const PteMethod& method,
                                         std::map<std::string, BlobDigest>& blobs);

}  // namespace cudaexec

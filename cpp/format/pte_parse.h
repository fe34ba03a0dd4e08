// The two halves of the .pte reader: pte_reader.cpp opens the container, pte_method.cpp reads one
// execution plan. Internal to cpp/format.
#pragma once

#include <vector>

#include "format/flatbuffer_view.h"
#include "format/program_generated.h"
#include "format/pte_program.h"

namespace cudaexec {

/// What a plan refers to outside itself.
struct ProgramContext {
  FlatbufferView& view;
  const executorch_flatbuffer::Program& program;
  const std::vector<FileBlob>& segments;
  const PteSubsegments& constant_segment;
  const std::vector<PteSubsegments>& mutable_segments;
};

/// @throws FormatError for an index out of range, an unknown union member, a tensor outside its
/// memory.
PteMethod parse_method(const executorch_flatbuffer::ExecutionPlan& plan, ProgramContext& context);

}  // namespace cudaexec

// One captured call of a method: a CUDA graph, the memory it uses, and the copies around it.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "memory/cuda_graph_memory.h"
#include "ops/cuda/random.h"
#include "runtime/bound_container.h"
#include "runtime/graph_inputs.h"
#include "runtime/graph_outputs.h"

namespace cudaexec {

/// What a call is made of, apart from its outputs.
struct CallSite {
  const InputCheck& input_check;
  const OutputPlan& output_plan;
  std::span<Value> inputs;  // checked
  const Dims& symbols;
  const CallMemory& memory;
  RandomState& random;
};

/// Used by one thread at a time; launches follow one another. It has to be gone before the
/// container whose code it replays.
class CallGraph {
 public:
  /// Captures a call on `container`, which has run such a call before; nothing of it is done yet,
  /// and the inputs are still there. @throws whatever the call throws, CaptureError.
  /// In place, code reads inputs where they are if it can and, with `redirects` of such a capture,
  /// writes outputs where they belong.
  CallGraph(GraphMemory& memory, Container& container, const CallSite& call,
            const GraphTargets& targets, std::vector<GraphRedirect> redirects = {});
  CallGraph(const CallGraph&) = delete;
  CallGraph& operator=(const CallGraph&) = delete;

  /// Memory for the outputs of a call. @throws OutOfMemory.
  void prepare(const CallMemory& memory, std::vector<Value>& outputs) {
    outputs_.prepare(memory, outputs);
  }
  /// Does that call, whose inputs have the same signature. `launched` is set once the work is on
  /// the stream: whoever gets an exception with it false may do the call in another way.
  void launch(const CallSite& call, std::vector<Value>& outputs, bool& launched);

  /// Whether a graph of the same calls in place would save copies in a work of few kernels.
  [[nodiscard]] bool gains_in_place() const;
  /// Whether this graph of such calls in place can serve in place of `general`, and gains by it.
  [[nodiscard]] bool replaces(const CallGraph& general) const {
    return copy_count() < general.copy_count() && outputs_.lies_like(general.outputs_);
  }
  /// Of the outputs prepared last.
  [[nodiscard]] std::span<const GraphBlock> blocks() const noexcept { return outputs_.blocks(); }
  /// Sets the addresses of the inputs of a call and of the outputs prepared for it.
  void get_places(const CallSite& call, std::vector<const void*>& places) const;

  [[nodiscard]] const std::vector<GraphRedirect>& redirects() const noexcept {
    return outputs_.redirects();
  }
  /// Bytes that it keeps, shared with other graphs of the container or not.
  [[nodiscard]] size_t nbytes() const noexcept {
    return arena_.nbytes() + outputs_.staging_nbytes();
  }
  /// Its memory may go once what is on `stream` now is done.
  void free_after(StreamRef stream) const { arena_.free_after(stream); }

 private:
  [[nodiscard]] cuda::GraphHandle capture(Container& container, const CallSite& call,
                                          const GraphTargets& targets);
  [[nodiscard]] size_t copy_count() const noexcept {
    return inputs_->copies().node_count() + outputs_.copies().node_count();
  }

  CudaDevice& device_;
  GraphArena arena_;
  gpu::GraphRandom random_;
  std::optional<GraphInputs> inputs_;
  GraphOutputs outputs_;
  std::optional<GraphExec> exec_;
};

}  // namespace cudaexec

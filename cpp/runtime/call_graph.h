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
  /// With `redirects` (of a capture of the same call) code writes into bound outputs itself.
  CallGraph(GraphMemory& memory, Container& container, const CallSite& call,
            std::vector<GraphRedirect> redirects = {});
  CallGraph(const CallGraph&) = delete;
  CallGraph& operator=(const CallGraph&) = delete;

  /// Does a call with inputs of the same signature; allocates device memory for outputs only.
  /// `launched` is set once the work is on the stream: whoever gets an exception with it false may
  /// do the call in another way.
  void launch(const CallSite& call, std::vector<Value>& outputs, bool& launched);

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
  [[nodiscard]] cuda::GraphHandle capture(Container& container, const CallSite& call);

  CudaDevice& device_;
  GraphArena arena_;
  std::optional<gpu::GraphRandom> random_;
  std::optional<GraphInputs> inputs_;
  GraphOutputs outputs_;
  std::optional<GraphExec> exec_;
};

}  // namespace cudaexec

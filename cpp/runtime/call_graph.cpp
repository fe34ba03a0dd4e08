#include "runtime/call_graph.h"

#include <utility>

namespace cudaexec {

namespace {

// Nodes. In longer graphs two copies make no difference, and to capture them again takes long.
constexpr size_t kMostInPlace = 128;

}  // namespace

CallGraph::CallGraph(GraphMemory& memory, Container& container, const CallSite& call,
                     const GraphTargets& targets, std::vector<GraphRedirect> redirects)
    : device_(memory.device()), arena_(memory, std::move(redirects)), outputs_(memory.device()) {
  const CudaGuard guard(device_);
  exec_.emplace(device_, capture(container, call, targets));
  arena_.seal();
  arena_.make_ready(call.memory.stream);
}

cuda::GraphHandle CallGraph::capture(Container& container, const CallSite& call,
                                     const GraphTargets& targets) {
  StreamCapture stream(device_);
  inputs_.emplace(device_, call.input_check, call.inputs, call.symbols, targets.in_place, arena_,
                  stream.stream());
  std::vector<Tensor> inputs = inputs_->graph_inputs();
  std::vector<Tensor> outputs;  // in the arena, which outlives them
  stream.begin();
  inputs_->copies().capture(stream);
  {
    const gpu::GraphRandomScope scope(random_);
    container.run(inputs, outputs, stream.stream(), arena_);
  }
  outputs_.plan(call.output_plan.captured(outputs, inputs_->storages(), call.symbols),
                call.memory.gpu->host_only(), targets, arena_);
  outputs_.copies().capture(stream);
  inputs_->release();
  return stream.end();
}

void CallGraph::launch(const CallSite& call, std::vector<Value>& outputs, bool& launched) {
  const CudaGuard guard(device_);
  inputs_->feed(call.inputs, call.memory);
  inputs_->copies().update(*exec_);
  outputs_.copies().update(*exec_);
  try {
    random_.advance(call.random, exec_->get());
    exec_->launch(call.memory.stream);
  } catch (...) {
    random_.give_back(call.random);
    throw;
  }
  launched = true;
  outputs_.deliver(call.memory, outputs);
}

bool CallGraph::gains_in_place() const {
  return inputs_->on_gpu() && outputs_.on_gpu() && copy_count() != 0 &&
         exec_->node_count() <= kMostInPlace;
}

void CallGraph::get_places(const CallSite& call, std::vector<const void*>& places) const {
  places.clear();
  inputs_->add_places(call.inputs, places);
  for (const GraphBlock& block : blocks()) places.push_back(block.data);
}

}  // namespace cudaexec

#include "runtime/call_graph.h"

#include <utility>

namespace cudaexec {

CallGraph::CallGraph(GraphMemory& memory, Container& container, const CallSite& call,
                     std::vector<GraphRedirect> redirects)
    : device_(memory.device()), arena_(memory, std::move(redirects)), outputs_(memory.device()) {
  const CudaGuard guard(device_);
  exec_.emplace(device_, capture(container, call));
  arena_.seal();
  arena_.make_ready(call.memory.stream);
}

cuda::GraphHandle CallGraph::capture(Container& container, const CallSite& call) {
  StreamCapture stream(device_);
  random_.emplace(device_, arena_, stream.stream());
  inputs_.emplace(device_, call.input_check, call.inputs, call.symbols,
                  call.memory.bound != nullptr, arena_, stream.stream());
  std::vector<Tensor> inputs = inputs_->graph_inputs();
  std::vector<Tensor> outputs;  // in the arena, which outlives them
  stream.begin();
  inputs_->copies().capture(stream);
  {
    const gpu::GraphRandomScope scope(*random_);
    container.run(inputs, outputs, stream.stream(), arena_);
  }
  outputs_.plan(call.output_plan.captured(outputs, inputs_->storages(), call.symbols),
                call.memory.gpu->host_only(), call.memory.bound, arena_);
  outputs_.copies().capture(stream);
  return stream.end();
}

void CallGraph::launch(const CallSite& call, std::vector<Value>& outputs, bool& launched) {
  const CudaGuard guard(device_);
  inputs_->feed(call.inputs, call.memory);
  outputs_.prepare(call.memory, outputs);
  inputs_->copies().update(*exec_);
  outputs_.copies().update(*exec_);
  random_->advance(call.random, call.memory.stream);
  exec_->launch(call.memory.stream);
  launched = true;
  outputs_.deliver(call.memory, outputs);
}

}  // namespace cudaexec

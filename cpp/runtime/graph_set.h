// The CUDA graphs of one container: one per input signature, the least recently used given up for
// new ones.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/call_graph.h"
#include "runtime/graph_lru.h"
#include "runtime/method_graphs.h"

namespace cudaexec {

/// Used by the container's call at a time. Destroyed, as clear()ed, when no launch is in flight.
class GraphSet {
 public:
  /// `memory` allocates on `device`; it and `method` outlive this.
  GraphSet(MethodGraphs& method, CudaDevice& device, Allocator& memory)
      : method_(method), memory_(device, memory), entries_(method.options().max_graphs) {}
  GraphSet(const GraphSet&) = delete;
  GraphSet& operator=(const GraphSet&) = delete;

  /// Does one call: as a launch of its graph, captured first where it is time, else by
  /// `run_plainly()`, which fills `outputs` too. A call that cannot be captured runs plainly, once,
  /// and so do later ones like it. @throws as a call; InputError for a second signature of strict
  /// graphs.
  template <typename Run>
  void call(Container& container, const CallSite& site, std::vector<Value>& outputs,
            const Run& run_plainly) {
    Entry& known = entry(site);
    std::string reason;
    if (run(known, container, site, outputs, reason)) [[likely]]
      return;
    run_plainly();
    settle(known, std::move(reason));
  }

  /// Gives up all graphs; their signatures are captured again by their next calls.
  void clear();

 private:
  struct Entry {
    GraphKey key;
    const BoundOutputs* bound = nullptr;  // whose calls these are; null: anybody's
    std::weak_ptr<const BoundOutputs> bound_owner;
    GraphState state;
    std::unique_ptr<CallGraph> graph;
    std::shared_ptr<GraphStats> stats;
  };

  /// What is known of calls like this one; made for the first. Graphs that have to go for it free
  /// their memory after what is on the call's stream now.
  [[nodiscard]] Entry& entry(const CallSite& call);
  [[nodiscard]] std::unique_ptr<Entry> make_entry(const CallSite& call);
  void retire(std::unique_ptr<Entry> entry, StreamRef stream);
  /// Captures or launches, as the entry's state says. False if the call has to run plainly: then
  /// nothing of it is done, and settle() must follow.
  [[nodiscard]] bool run(Entry& entry, Container& container, const CallSite& call,
                         std::vector<Value>& outputs, std::string& reason);
  [[nodiscard]] bool capture(Entry& entry, Container& container, const CallSite& call,
                             std::vector<Value>& outputs, std::string& reason);
  /// After a plain run that ended well. `reason`: why its capture failed, or empty.
  void settle(Entry& entry, std::string reason);
  void move(Entry& entry, GraphEvent event, std::string reason = {});

  MethodGraphs& method_;
  GraphMemory memory_;
  RecentList<Entry> entries_;
};

}  // namespace cudaexec

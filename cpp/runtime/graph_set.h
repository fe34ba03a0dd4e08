// The CUDA graphs of one container: one per input signature, the least recently used given up for
// new ones.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/call_graph.h"
#include "runtime/graph_lru.h"
#include "runtime/in_place_graphs.h"
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
    const Running running(*this, known, site.memory.stream);
    Failure failure;
    if (run(known, container, site, outputs, failure)) [[likely]]
      return;
    run_plainly();
    settle(known, std::move(failure));
  }

  /// Gives up all graphs; their signatures are captured again by their next calls.
  void clear();
  /// The same for calls that find no memory: captures follow after some more calls. Whether there
  /// were any.
  bool yield_all();
  /// The set that this thread is in a call of; null outside of calls.
  [[nodiscard]] static GraphSet* current() noexcept;
  /// The same in a call of this set, for the graphs of other signatures.
  bool yield_others();

 private:
  struct Entry;
  /// Makes the set current().
  class Running {
   public:
    Running(GraphSet& set, Entry& entry, StreamRef stream) noexcept;
    ~Running();
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    GraphSet& set_;
  };
  struct Failure {        // of a capture
    std::string reason;   // empty: there was none
    bool broken = false;  // from outside
  };
  struct Entry {
    GraphKey key;
    const BoundOutputs* bound = nullptr;  // whose calls these are; null: anybody's
    std::weak_ptr<const BoundOutputs> bound_owner;
    GraphState state;
    std::unique_ptr<CallGraph> graph;
    std::optional<InPlaceGraphs> in_place;  // of the graph, where they may help
    std::shared_ptr<GraphStats> stats;
  };

  /// What is known of calls like this one; made for the first. Graphs that have to go for it free
  /// their memory after what is on the call's stream now.
  [[nodiscard]] Entry& entry(const CallSite& call);
  [[nodiscard]] std::unique_ptr<Entry> make_entry(const CallSite& call);
  void retire(std::unique_ptr<Entry> entry, StreamRef stream);
  /// Gives up the entry's graphs, whose memory is freed after what is on the stream now.
  void yield(Entry& entry, StreamRef stream);
  /// Captures or launches, as the entry's state says. False if the call has to run plainly: then
  /// nothing of it is done, and settle() must follow.
  [[nodiscard]] bool run(Entry& entry, Container& container, const CallSite& call,
                         std::vector<Value>& outputs, Failure& failure);
  [[nodiscard]] bool capture(Entry& entry, Container& container, const CallSite& call,
                             std::vector<Value>& outputs, Failure& failure);
  /// The graph that serves the call, for which the entry's own has prepared outputs: that one, or
  /// one in place, captured now if it is due.
  [[nodiscard]] CallGraph& choose(Entry& entry, Container& container, const CallSite& call);
  [[nodiscard]] std::unique_ptr<CallGraph> capture_graph(Container& container, const CallSite& call,
                                                         const GraphTargets& targets);
  /// After a plain run that ended well; `failure`: of the capture before it.
  void settle(Entry& entry, Failure failure);
  void move(Entry& entry, GraphEvent event, std::string reason = {});

  MethodGraphs& method_;
  GraphMemory memory_;
  RecentList<Entry> entries_;
  const Entry* running_ = nullptr;  // that of the call in flight,
  StreamRef stream_;                // on this stream
};

}  // namespace cudaexec

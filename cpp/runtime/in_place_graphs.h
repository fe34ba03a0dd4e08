// Graphs of one signature that were captured on memory which calls keep coming back to: their code
// reads inputs and writes outputs where they are. Other calls are copied into and out of the
// signature's own graph.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "runtime/call_graph.h"
#include "runtime/graph_state.h"

namespace cudaexec {

/// Used by one thread at a time.
class InPlaceGraphs {
 public:
  /// `general`: the signature's own graph, of which this learns the number of addresses.
  InPlaceGraphs(const CallGraph& general, const CallSite& call);

  /// Looks for the graph of a call whose outputs `general` has prepared; chosen() is that one.
  /// True: there is none, but it is worth a capture. Allocates nothing.
  [[nodiscard]] bool choose(const CallGraph& general, const CallSite& call);
  /// Takes the graph that was worth it.
  void add(std::unique_ptr<CallGraph> graph) noexcept;
  /// The capture was broken from outside: another one may follow after some more calls.
  void try_later() noexcept;
  /// There will be no more captures; the graphs that there are stay.
  void stop() noexcept { calls_needed_ = kNever; }
  /// The graph for the addresses that choose() saw last; null if there is none.
  [[nodiscard]] CallGraph* chosen() const noexcept { return places_.front().graph.get(); }
  /// Its memory may go once what is on `stream` now is done.
  void free_after(StreamRef stream) const;

 private:
  static constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();

  struct Place {
    std::vector<const void*> addresses;
    uint32_t calls = 0;  // without a graph; 0: the place is free
    std::unique_ptr<CallGraph> graph;
  };
  // Two buffers for inputs times two for outputs, the one used last in front.
  std::array<Place, 4> places_;
  std::vector<const void*> addresses_;  // of the call at hand
  // Calls with the same addresses before a capture. Doubled whenever a graph has to go, so that
  // calls whose memory keeps changing spend ever less time on captures.
  uint32_t calls_needed_ = 16;
  uint32_t tries_left_ = kCaptureTries;
};

}  // namespace cudaexec

#include "runtime/graph_set.h"

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/str.h"

namespace cudaexec {

GraphSet::Entry& GraphSet::entry(std::span<const Value> inputs, StreamRef stream) {
  Entry* known = entries_.find([&](const Entry& each) { return each.key.matches(inputs); });
  if (known != nullptr) [[likely]]
    return *known;
  auto made = std::make_unique<Entry>();
  made->key = GraphKey(inputs);
  if (method_.options().strict) method_.check_strict(made->key, inputs);
  made->state.runs_left = method_.options().warmup;
  made->stats = method_.add(made->key.text(method_.spec()));
  Entry& result = *made;
  if (const std::unique_ptr<Entry> victim = entries_.insert(std::move(made))) {
    method_.totals().evictions.fetch_add(1, std::memory_order_relaxed);
    // The call's stream follows every launch of this container.
    if (victim->graph != nullptr) victim->graph->free_after(stream);
  }
  return result;
}

void GraphSet::move(Entry& entry, GraphEvent event, std::string reason) {
  entry.state = next_state(std::move(entry.state), event, std::move(reason));
  GraphStats& stats = *entry.stats;
  stats.phase.store(entry.state.phase, std::memory_order_relaxed);
  stats.nbytes.store(entry.graph != nullptr ? entry.graph->nbytes() : 0, std::memory_order_relaxed);
}

bool GraphSet::run(Entry& entry, Container& container, const CallSite& call,
                   std::vector<Value>& outputs, std::string& reason) {
  GraphStats& stats = *entry.stats;
  stats.calls.fetch_add(1, std::memory_order_relaxed);
  switch (entry.state.action()) {
    case GraphAction::kRun:
      return false;
    case GraphAction::kCapture:
      return capture(entry, container, call, outputs, reason);
    case GraphAction::kLaunch:
      break;
  }
  bool launched = false;
  entry.graph->launch(call, outputs, launched);  // a failure changes nothing
  stats.replays.fetch_add(1, std::memory_order_relaxed);
  method_.totals().replays.fetch_add(1, std::memory_order_relaxed);
  return true;
}

bool GraphSet::capture(Entry& entry, Container& container, const CallSite& call,
                       std::vector<Value>& outputs, std::string& reason) {
  std::unique_ptr<CallGraph> graph;
  bool launched = false;
  try {
    graph = std::make_unique<CallGraph>(memory_, container, call);
    graph->launch(call, outputs, launched);
  } catch (const std::exception& error) {
    if (!launched) {
      outputs.clear();
      reason = error.what();
      if (reason.empty()) reason = "no reason given";
      // Its memory may have been made ready on the call's stream, and an input copied there.
      if (graph != nullptr) graph->free_after(call.memory.stream);
      return false;
    }
    entry.graph = std::move(graph);
    move(entry, GraphEvent::kCaptured);
    throw;
  }
  entry.graph = std::move(graph);
  move(entry, GraphEvent::kCaptured);
  entry.stats->captures.fetch_add(1, std::memory_order_relaxed);
  method_.totals().captures.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void GraphSet::settle(Entry& entry, std::string reason) {
  if (reason.empty()) {
    move(entry, GraphEvent::kRan);
    return;
  }
  method_.totals().failures.fetch_add(1, std::memory_order_relaxed);
  log(LogLevel::kInfo, str("method '", method_.spec().name, "' runs without a CUDA graph for ",
                           entry.stats->inputs, ": ", reason));
  {
    const std::lock_guard lock(entry.stats->mutex);
    entry.stats->reason = reason;
  }
  move(entry, GraphEvent::kCaptureFailed, std::move(reason));
}

void GraphSet::clear() {
  for (const std::unique_ptr<Entry>& entry : entries_.all()) {
    entry->graph.reset();
    move(*entry, GraphEvent::kDropped);
  }
}

}  // namespace cudaexec

#include "runtime/graph_set.h"

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/str.h"

namespace cudaexec {

GraphSet::Entry& GraphSet::entry(const CallSite& call) {
  const BoundOutputs* const bound = call.memory.bound;
  Entry* known = entries_.find([&](const Entry& each) {
    return each.bound == bound && each.key.matches(call.inputs) &&
           (bound == nullptr || !each.bound_owner.expired());
  });
  if (known != nullptr) [[likely]]
    return *known;
  // What Bindings that are gone have left.
  const auto is_left = [](const Entry& each) {
    return each.bound != nullptr && each.bound_owner.expired();
  };
  while (auto left = entries_.take(is_left)) retire(std::move(left), call.memory.stream);
  auto made = make_entry(call);
  Entry& result = *made;
  if (auto victim = entries_.insert(std::move(made))) {
    method_.totals().evictions.fetch_add(1, std::memory_order_relaxed);
    retire(std::move(victim), call.memory.stream);
  }
  return result;
}

std::unique_ptr<GraphSet::Entry> GraphSet::make_entry(const CallSite& call) {
  auto made = std::make_unique<Entry>();
  made->key = GraphKey(call.inputs);
  made->bound = call.memory.bound;
  std::string text = made->key.text(method_.spec());
  if (made->bound != nullptr) {
    made->bound_owner = made->bound->weak_from_this();
    made->state.runs_left = 1;
    text += ", bound";
  } else {
    if (method_.options().strict) method_.check_strict(made->key, call.inputs);
    made->state.runs_left = method_.options().warmup;
  }
  made->stats = method_.add(std::move(text));
  return made;
}

void GraphSet::retire(std::unique_ptr<Entry> entry, StreamRef stream) {
  // The call's stream follows every launch of this container.
  if (entry->graph != nullptr) entry->graph->free_after(stream);
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
    if (!graph->redirects().empty()) {
      graph = std::make_unique<CallGraph>(memory_, container, call, graph->redirects());
    }
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

#include "runtime/graph_set.h"

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "device/cuda/check.h"

namespace cudaexec {
namespace {

thread_local GraphSet* current_set = nullptr;

/// Whether a capture may well succeed at another time.
bool is_broken(const std::exception& error) {
  return dynamic_cast<const cuda::CaptureBroken*>(&error) != nullptr;
}

}  // namespace

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
  if (entry->in_place) entry->in_place->free_after(stream);
}

void GraphSet::yield(Entry& entry, StreamRef stream) {
  if (entry.in_place) entry.in_place->free_after(stream);
  entry.graph->free_after(stream);
  entry.in_place.reset();
  entry.graph.reset();
  move(entry, GraphEvent::kYielded);
}

void GraphSet::move(Entry& entry, GraphEvent event, std::string reason) {
  entry.state = next_state(std::move(entry.state), event, std::move(reason));
  GraphStats& stats = *entry.stats;
  stats.phase.store(entry.state.phase, std::memory_order_relaxed);
  stats.nbytes.store(entry.graph != nullptr ? entry.graph->nbytes() : 0, std::memory_order_relaxed);
}

bool GraphSet::run(Entry& entry, Container& container, const CallSite& call,
                   std::vector<Value>& outputs, Failure& failure) {
  GraphStats& stats = *entry.stats;
  stats.calls.fetch_add(1, std::memory_order_relaxed);
  switch (entry.state.action()) {
    case GraphAction::kRun:
      return false;
    case GraphAction::kCapture:
      return capture(entry, container, call, outputs, failure);
    case GraphAction::kLaunch:
      break;
  }
  try {
    entry.graph->prepare(call.memory, outputs);
  } catch (const OutOfMemory&) {  // there may be room for the call without its graph
    outputs.clear();
    yield(entry, call.memory.stream);
    return false;
  }
  bool launched = false;
  choose(entry, container, call).launch(call, outputs, launched);  // a failure changes nothing
  stats.replays.fetch_add(1, std::memory_order_relaxed);
  method_.totals().replays.fetch_add(1, std::memory_order_relaxed);
  return true;
}

bool GraphSet::capture(Entry& entry, Container& container, const CallSite& call,
                       std::vector<Value>& outputs, Failure& failure) {
  std::unique_ptr<CallGraph> graph;
  std::optional<InPlaceGraphs> in_place;
  bool launched = false;
  try {
    graph = capture_graph(container, call, {call.memory.bound != nullptr, call.memory.bound});
    graph->prepare(call.memory, outputs);
    if (method_.options().in_place && entry.bound == nullptr && graph->gains_in_place()) {
      in_place.emplace(*graph, call);
    }
    graph->launch(call, outputs, launched);
  } catch (const std::exception& error) {
    if (!launched) {
      outputs.clear();
      failure.reason = error.what();
      if (failure.reason.empty()) failure.reason = "no reason given";
      failure.broken = is_broken(error);
      // Its memory may have been made ready on the call's stream, and an input copied there.
      if (graph != nullptr) graph->free_after(call.memory.stream);
      return false;
    }
    entry.graph = std::move(graph);
    entry.in_place = std::move(in_place);
    move(entry, GraphEvent::kCaptured);
    throw;
  }
  entry.graph = std::move(graph);
  entry.in_place = std::move(in_place);
  move(entry, GraphEvent::kCaptured);
  entry.stats->captures.fetch_add(1, std::memory_order_relaxed);
  method_.totals().captures.fetch_add(1, std::memory_order_relaxed);
  return true;
}

std::unique_ptr<CallGraph> GraphSet::capture_graph(Container& container, const CallSite& call,
                                                   const GraphTargets& targets) {
  auto graph = std::make_unique<CallGraph>(memory_, container, call, targets);
  if (graph->redirects().empty()) return graph;
  return std::make_unique<CallGraph>(memory_, container, call, targets, graph->redirects());
}

CallGraph& GraphSet::choose(Entry& entry, Container& container, const CallSite& call) {
  if (!entry.in_place) return *entry.graph;
  if (entry.in_place->choose(*entry.graph, call)) {
    std::unique_ptr<CallGraph> graph;
    try {
      graph = capture_graph(container, call, {true, nullptr, entry.graph->blocks()});
    } catch (const std::exception& error) {
      if (is_broken(error)) {
        entry.in_place->try_later();
        return *entry.graph;
      }
      log(LogLevel::kInfo, str("method '", method_.spec().name, "' keeps copying for ",
                               entry.stats->inputs, ": ", error.what()));
    }
    // What cannot be captured in place, or gains nothing, is not tried again.
    if (graph == nullptr || !graph->replaces(*entry.graph)) {
      if (graph != nullptr) graph->free_after(call.memory.stream);
      entry.in_place->stop();
      return *entry.graph;
    }
    entry.in_place->add(std::move(graph));
  }
  CallGraph* const chosen = entry.in_place->chosen();
  if (chosen == nullptr) return *entry.graph;
  entry.stats->in_place.fetch_add(1, std::memory_order_relaxed);
  return *chosen;
}

void GraphSet::settle(Entry& entry, Failure failure) {
  if (failure.reason.empty()) {
    move(entry, GraphEvent::kRan);
    return;
  }
  method_.totals().failures.fetch_add(1, std::memory_order_relaxed);
  move(entry, failure.broken ? GraphEvent::kCaptureBroken : GraphEvent::kCaptureFailed,
       std::move(failure.reason));
  if (entry.state.phase != GraphPhase::kDisabled) return;
  log(LogLevel::kInfo, str("method '", method_.spec().name, "' runs without a CUDA graph for ",
                           entry.stats->inputs, ": ", entry.state.reason));
  const std::lock_guard lock(entry.stats->mutex);
  entry.stats->reason = entry.state.reason;
}

void GraphSet::clear() {
  for (const std::unique_ptr<Entry>& entry : entries_.all()) {
    entry->in_place.reset();
    entry->graph.reset();
    move(*entry, GraphEvent::kDropped);
  }
}

bool GraphSet::yield_all() {
  bool any = false;
  for (const std::unique_ptr<Entry>& entry : entries_.all()) {
    if (entry->graph == nullptr) continue;
    entry->in_place.reset();
    entry->graph.reset();
    move(*entry, GraphEvent::kYielded);
    any = true;
  }
  return any;
}

GraphSet* GraphSet::current() noexcept { return current_set; }

bool GraphSet::yield_others() {
  bool any = false;
  for (const std::unique_ptr<Entry>& entry : entries_.all()) {
    if (entry.get() == running_ || entry->graph == nullptr) continue;
    yield(*entry, stream_);
    any = true;
  }
  return any;
}

GraphSet::Running::Running(GraphSet& set, Entry& entry, StreamRef stream) noexcept : set_(set) {
  set.running_ = &entry;
  set.stream_ = stream;
  current_set = &set;
}

GraphSet::Running::~Running() {
  set_.running_ = nullptr;
  current_set = nullptr;
}

}  // namespace cudaexec

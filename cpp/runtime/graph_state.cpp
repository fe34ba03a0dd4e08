#include "runtime/graph_state.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/str.h"

namespace cudaexec {
namespace {

constexpr uint32_t kMostDoublings = 20;

enum class Step : uint8_t {
  kStay,
  kCount,    // one warm-up run is done
  kReplay,   // the graph exists
  kCapture,  // capture at the next call
  kRetry,    // the same, a few times
  kDisable,
  kYield,  // warm up again, for longer each time
  kNever,  // this event cannot happen here
};

// Rows: phases. Columns: ran, run failed, captured, capture failed, capture broken, launched,
// launch failed, dropped, yielded.
constexpr Step kTable[kGraphPhases.size()][kGraphEvents.size()] = {
    // kEager
    {Step::kCount, Step::kStay, Step::kNever, Step::kNever, Step::kNever, Step::kNever,
     Step::kNever, Step::kStay, Step::kNever},
    // kWarmup
    {Step::kCount, Step::kStay, Step::kNever, Step::kNever, Step::kNever, Step::kNever,
     Step::kNever, Step::kStay, Step::kNever},
    // kCapture: a call that fails both ways says nothing about graphs
    {Step::kNever, Step::kStay, Step::kReplay, Step::kDisable, Step::kRetry, Step::kNever,
     Step::kNever, Step::kStay, Step::kNever},
    // kReplay
    {Step::kNever, Step::kNever, Step::kNever, Step::kNever, Step::kNever, Step::kStay, Step::kStay,
     Step::kCapture, Step::kYield},
    // kDisabled
    {Step::kStay, Step::kStay, Step::kNever, Step::kNever, Step::kNever, Step::kNever, Step::kNever,
     Step::kStay, Step::kNever},
};

}  // namespace

GraphState next_state(GraphState state, GraphEvent event, std::string reason) {
  switch (kTable[static_cast<size_t>(state.phase)][static_cast<size_t>(event)]) {
    case Step::kStay:
      break;
    case Step::kCount:
      if (state.runs_left > 0) --state.runs_left;
      state.phase = state.runs_left > 0 ? GraphPhase::kWarmup : GraphPhase::kCapture;
      break;
    case Step::kReplay:
      state.phase = GraphPhase::kReplay;
      state.tries_left = kCaptureTries;
      break;
    case Step::kCapture:
      state.phase = GraphPhase::kCapture;
      break;
    case Step::kRetry:
      if (state.tries_left > 1) {
        --state.tries_left;
        break;
      }
      [[fallthrough]];
    case Step::kDisable:
      state.phase = GraphPhase::kDisabled;
      state.reason = std::move(reason);
      break;
    case Step::kYield:
      state.phase = GraphPhase::kWarmup;
      state.runs_left = kRunsAfterYield << std::min(state.yields, kMostDoublings);
      ++state.yields;
      break;
    case Step::kNever:
      throw InternalError(str("a CUDA graph in phase '", graph_phase_name(state.phase),
                              "' met the event '", graph_event_name(event), "'"));
  }
  return state;
}

const char* graph_phase_name(GraphPhase phase) noexcept {
  switch (phase) {
    case GraphPhase::kEager:
      return "eager";
    case GraphPhase::kWarmup:
      return "warmup";
    case GraphPhase::kCapture:
      return "capture";
    case GraphPhase::kReplay:
      return "replay";
    case GraphPhase::kDisabled:
      return "disabled";
  }
  return "?";
}

const char* graph_event_name(GraphEvent event) noexcept {
  switch (event) {
    case GraphEvent::kRan:
      return "ran";
    case GraphEvent::kRunFailed:
      return "run failed";
    case GraphEvent::kCaptured:
      return "captured";
    case GraphEvent::kCaptureFailed:
      return "capture failed";
    case GraphEvent::kCaptureBroken:
      return "capture broken";
    case GraphEvent::kLaunched:
      return "launched";
    case GraphEvent::kLaunchFailed:
      return "launch failed";
    case GraphEvent::kDropped:
      return "dropped";
    case GraphEvent::kYielded:
      return "yielded";
  }
  return "?";
}

}  // namespace cudaexec

// What becomes of the calls with one input signature: the pure table behind CUDA graphs. Nothing
// here knows CUDA.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace cudaexec {

enum class GraphPhase : uint8_t {
  kEager,     // no call yet
  kWarmup,    // calls run without a graph, until enough have
  kCapture,   // the next call is captured
  kReplay,    // calls are launches of the graph
  kDisabled,  // calls run without a graph, for a reason
};

enum class GraphEvent : uint8_t {
  kRan,            // a call without a graph ended well
  kRunFailed,      // a call without a graph failed; it would have failed in any phase
  kCaptured,       // a call was captured and its graph launched
  kCaptureFailed,  // it could not be captured and ran without a graph
  kCaptureBroken,  // the same, but for what other threads did meanwhile
  kLaunched,       // a graph was launched
  kLaunchFailed,   // a launch was refused; nothing of it ran
  kDropped,        // the graph, if there is one, was given up: memory was asked back
  kYielded,        // the graph was given up, since a call found no memory
};

inline constexpr std::array kGraphPhases{GraphPhase::kEager, GraphPhase::kWarmup,
                                         GraphPhase::kCapture, GraphPhase::kReplay,
                                         GraphPhase::kDisabled};
inline constexpr std::array kGraphEvents{
    GraphEvent::kRan,           GraphEvent::kRunFailed,     GraphEvent::kCaptured,
    GraphEvent::kCaptureFailed, GraphEvent::kCaptureBroken, GraphEvent::kLaunched,
    GraphEvent::kLaunchFailed,  GraphEvent::kDropped,       GraphEvent::kYielded};

/// How a call in some phase is run.
enum class GraphAction : uint8_t { kRun, kCapture, kLaunch };

/// Captures in a row that may be broken before there are no more.
inline constexpr uint32_t kCaptureTries = 3;

/// Runs before a capture after the first graph that was given up for want of memory.
inline constexpr uint32_t kRunsAfterYield = 16;

struct GraphState {
  GraphPhase phase = GraphPhase::kEager;
  uint32_t runs_left = 0;  // warm-up runs to go; kEager: all of them, at least one
  std::string reason;      // kDisabled: why
  uint32_t tries_left = kCaptureTries;
  uint32_t yields = 0;  // each makes the next capture wait for twice as many runs

  [[nodiscard]] GraphAction action() const noexcept {
    if (phase == GraphPhase::kReplay) return GraphAction::kLaunch;
    return phase == GraphPhase::kCapture ? GraphAction::kCapture : GraphAction::kRun;
  }
};

/// The state after `event`; `reason` goes with kCaptureFailed and kCaptureBroken.
/// @throws InternalError for an event that cannot happen in the phase.
GraphState next_state(GraphState state, GraphEvent event, std::string reason = {});

/// "warmup"
const char* graph_phase_name(GraphPhase phase) noexcept;
/// "capture failed"
const char* graph_event_name(GraphEvent event) noexcept;

}  // namespace cudaexec

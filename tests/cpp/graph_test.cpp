// The pure parts of CUDA graphs: the table of states, keys, the list of recent ones, places in
// memory.
#include <map>
#include <random>

#include "base/error.h"
#include "check.h"
#include "memory/range_list.h"
#include "runtime/graph_key.h"
#include "runtime/graph_lru.h"
#include "runtime/graph_state.h"

namespace {

using namespace cudaexec;
using namespace cudaexec_test;
using Phase = GraphPhase;
using Event = GraphEvent;

// ---- states ------------------------------------------------------------------------------------

GraphState in_phase(Phase phase, uint32_t runs_left, uint32_t tries_left = 3) {
  return {phase, runs_left, "why", tries_left};
}

/// What follows, written out once more: nothing if the event cannot happen.
std::optional<Phase> expected(Phase phase, Event event, uint32_t runs_left, uint32_t tries_left) {
  const std::map<std::pair<Phase, Event>, Phase> moves{
      {{Phase::kCapture, Event::kCaptured}, Phase::kReplay},
      {{Phase::kCapture, Event::kCaptureFailed}, Phase::kDisabled},
      {{Phase::kCapture, Event::kRunFailed}, Phase::kCapture},
      {{Phase::kReplay, Event::kLaunched}, Phase::kReplay},
      {{Phase::kReplay, Event::kYielded}, Phase::kWarmup},
      {{Phase::kReplay, Event::kLaunchFailed}, Phase::kReplay},
      {{Phase::kDisabled, Event::kRan}, Phase::kDisabled},
      {{Phase::kDisabled, Event::kRunFailed}, Phase::kDisabled},
      {{Phase::kEager, Event::kRunFailed}, Phase::kEager},
      {{Phase::kWarmup, Event::kRunFailed}, Phase::kWarmup},
  };
  if (phase == Phase::kCapture && event == Event::kCaptureBroken) {
    return tries_left > 1 ? Phase::kCapture : Phase::kDisabled;
  }
  if (event == Event::kDropped) return phase == Phase::kReplay ? Phase::kCapture : phase;
  if (event == Event::kRan && (phase == Phase::kEager || phase == Phase::kWarmup)) {
    return runs_left > 1 ? Phase::kWarmup : Phase::kCapture;
  }
  const auto found = moves.find({phase, event});
  if (found == moves.end()) return std::nullopt;
  return found->second;
}

void every_state_and_event() {
  int never = 0;
  for (const Phase phase : kGraphPhases) {
    for (const Event event : kGraphEvents) {
      for (const uint32_t left : {1u, 2u, 3u}) {
        const GraphState before = in_phase(phase, left, left);
        const auto wanted = expected(phase, event, left, left);
        if (!wanted) {
          ++never;
          const std::string text =
              thrown<InternalError>([&] { (void)next_state(before, event, "new"); });
          CHECK(text.find(graph_phase_name(phase)) != std::string::npos);
          CHECK(text.find(graph_event_name(event)) != std::string::npos);
          continue;
        }
        const GraphState after = next_state(before, event, "new");
        CHECK_EQ(static_cast<int>(after.phase), static_cast<int>(*wanted));
        const bool counted =
            event == Event::kRan && (phase == Phase::kEager || phase == Phase::kWarmup);
        const bool yielded = event == Event::kYielded;
        CHECK_EQ(after.runs_left, yielded ? kRunsAfterYield : (counted ? left - 1 : left));
        CHECK_EQ(after.yields, yielded ? 1u : 0u);
        const bool gone = after.phase == Phase::kDisabled && phase != Phase::kDisabled;
        CHECK_EQ(after.reason, gone ? "new" : "why");
        const bool broken = event == Event::kCaptureBroken && left > 1;
        CHECK_EQ(after.tries_left,
                 event == Event::kCaptured ? kCaptureTries : (broken ? left - 1 : left));
      }
    }
  }
  CHECK_EQ(never, 3 * (6 + 6 + 4 + 5 + 6));
}

void phases_decide_how_a_call_runs() {
  CHECK(in_phase(Phase::kEager, 3).action() == GraphAction::kRun);
  CHECK(in_phase(Phase::kWarmup, 1).action() == GraphAction::kRun);
  CHECK(in_phase(Phase::kCapture, 0).action() == GraphAction::kCapture);
  CHECK(in_phase(Phase::kReplay, 0).action() == GraphAction::kLaunch);
  CHECK(in_phase(Phase::kDisabled, 0).action() == GraphAction::kRun);
}

void warmup_counts_good_runs() {
  GraphState state = in_phase(Phase::kEager, 3);
  std::string phases;
  for (const Event event :
       {Event::kRan, Event::kRunFailed, Event::kRan, Event::kDropped, Event::kRan, Event::kCaptured,
        Event::kLaunched, Event::kDropped, Event::kCaptured}) {
    state = next_state(state, event);
    phases += graph_phase_name(state.phase)[0];
  }
  CHECK_EQ(phases, "wwwwcrrcr");
}

void captures_wait_longer_after_each_yield() {
  GraphState state = in_phase(Phase::kReplay, 0);
  for (const uint32_t runs : {16u, 32u, 64u}) {
    state = next_state(state, Event::kYielded);
    for (uint32_t i = 0; i < runs; ++i) {
      CHECK(state.phase == Phase::kWarmup);
      state = next_state(state, Event::kRan);
    }
    CHECK(state.phase == Phase::kCapture);
    state = next_state(state, Event::kCaptured);
  }
  state.yields = 1000;
  CHECK_EQ(next_state(state, Event::kYielded).runs_left, 16u << 20);
}

// ---- keys --------------------------------------------------------------------------------------

alignas(64) char bytes[4096];

Tensor tensor(Dims sizes, Dims strides, size_t at = 0, bool on_gpu = true) {
  const Device device = on_gpu ? Device{DeviceType::kCuda, 0} : Device{};
  return {Storage::borrow(bytes + at, sizeof bytes - at, device, nullptr), 0, std::move(sizes),
          std::move(strides), Dtype::kFloat32};
}

MethodSpec spec_of(size_t count) {
  MethodSpec spec;
  for (size_t i = 0; i < count; ++i) {
    InputSpec input;
    input.name = std::string(1, static_cast<char>('x' + i));
    spec.inputs.push_back(std::move(input));
  }
  return spec;
}

void keys_tell_signatures_apart() {
  const std::vector<std::vector<Value>> calls{
      {tensor({2, 3}, {3, 1}), int64_t{1}},
      {tensor({3, 2}, {2, 1}), int64_t{1}},     // sizes
      {tensor({2, 3}, {1, 2}), int64_t{1}},     // strides
      {tensor({2, 3}, {3, 1}, 4), int64_t{1}},  // alignment
      {tensor({2, 3}, {3, 1}, 8), int64_t{1}},
      {tensor({2, 3}, {3, 1}, 0, false), int64_t{1}},  // place
      {tensor({6}, {1}), int64_t{1}},                  // rank
      {tensor({2, 3}, {3, 1}), tensor({}, {})},        // which leaves are tensors
      {int64_t{1}, tensor({2, 3}, {3, 1})},
      {int64_t{1}, std::monostate{}},
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    const GraphKey key{std::span<const Value>(calls[i])};
    for (size_t k = 0; k < calls.size(); ++k) {
      CHECK_EQ(key.matches(calls[k]), i == k);
      CHECK_EQ(key == GraphKey{std::span<const Value>(calls[k])}, i == k);
    }
  }
}

void keys_ignore_what_does_not_matter() {
  const std::vector<Value> one{tensor({1, 4}, {4, 1})};
  const std::vector<Value> other{tensor({1, 4}, {99, 1}, 64)};  // a stride without a second element
  const GraphKey key{std::span<const Value>(one)};
  CHECK(key.matches(other));
  const std::vector<Value> host{tensor({4}, {1}, 4, false)};
  const std::vector<Value> aligned{tensor({4}, {1}, 0, false)};
  CHECK(GraphKey{std::span<const Value>(host)}.matches(aligned));
}

void keys_name_the_difference() {
  const MethodSpec spec = spec_of(1);
  const std::vector<Value> first{tensor({2, 3}, {3, 1})};
  const GraphKey key{std::span<const Value>(first)};
  CHECK_EQ(key.text(spec), "x float32[2, 3]");
  const auto difference = [&](Tensor other) {
    const std::vector<Value> call{std::move(other)};
    return key.difference(call, spec);
  };
  CHECK_EQ(difference(tensor({2, 4}, {4, 1})),
           "input 'x' has size 4 in dimension 1, captured with 3");
  CHECK_EQ(difference(tensor({2, 3}, {1, 2})),
           "input 'x' has stride 1 in dimension 0, captured with 3");
  CHECK_EQ(difference(tensor({2, 3}, {3, 1}, 4)),
           "input 'x' is aligned to 4 bytes, captured aligned to 16");
  CHECK_EQ(difference(tensor({2, 3}, {3, 1}, 0, false)),
           "input 'x' is on the host, captured on the GPU");
  const std::vector<Value> strided{tensor({2, 3}, {6, 2}, 8)};
  CHECK_EQ(GraphKey{std::span<const Value>(strided)}.text(spec),
           "x float32[2, 3] strides [6, 2] aligned to 8 bytes");
}

// ---- recent entries ----------------------------------------------------------------------------

void the_least_recent_entry_goes() {
  RecentList<int> list(3);
  const auto add = [&](int value) { return list.insert(std::make_unique<int>(value)); };
  const auto find = [&](int value) {
    return list.find([value](int entry) { return entry == value; });
  };
  for (const int value : {1, 2, 3}) CHECK(add(value) == nullptr);
  int* const one = find(1);
  CHECK(one != nullptr && *one == 1);
  CHECK(find(4) == nullptr);
  CHECK_EQ(*add(4), 2);
  CHECK_EQ(*add(5), 3);
  CHECK(find(1) == one);
  CHECK_EQ(*add(6), 4);
  CHECK_EQ(list.all().size(), 3u);
}

// ---- places ------------------------------------------------------------------------------------

void places_never_overlap() {
  RangeList ranges(1000);
  std::map<size_t, size_t> taken;
  std::mt19937 random(7);
  size_t used = 0;
  int full = 0;
  for (int step = 0; step < 20000; ++step) {
    if (!taken.empty() && random() % 2 == 0) {
      const auto victim = std::next(taken.begin(), static_cast<ptrdiff_t>(random() % taken.size()));
      ranges.give_back(victim->first, victim->second);
      used -= victim->second;
      taken.erase(victim);
    } else {
      const size_t nbytes = 1 + random() % 200;
      const auto offset = ranges.take(nbytes);
      if (!offset) {
        ++full;
        continue;
      }
      const auto after = taken.lower_bound(*offset);
      CHECK(after == taken.end() || *offset + nbytes <= after->first);
      if (after != taken.begin()) {
        const auto before = std::prev(after);
        CHECK(before->first + before->second <= *offset);
      }
      CHECK(*offset + nbytes <= 1000);
      taken[*offset] = nbytes;
      used += nbytes;
    }
    CHECK_EQ(ranges.is_free(), used == 0);
  }
  CHECK(full > 100);
  for (const auto& [offset, nbytes] : taken) ranges.give_back(offset, nbytes);
  CHECK(ranges.is_free());
  CHECK_EQ(ranges.take(1000).value(), 0u);  // all holes were joined
  CHECK(!ranges.take(1));
  ranges.reset();
  CHECK(ranges.is_free());
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv,
             {{"every_state_and_event", every_state_and_event},
              {"phases_decide_how_a_call_runs", phases_decide_how_a_call_runs},
              {"warmup_counts_good_runs", warmup_counts_good_runs},
              {"captures_wait_longer_after_each_yield", captures_wait_longer_after_each_yield},
              {"keys_tell_signatures_apart", keys_tell_signatures_apart},
              {"keys_ignore_what_does_not_matter", keys_ignore_what_does_not_matter},
              {"keys_name_the_difference", keys_name_the_difference},
              {"the_least_recent_entry_goes", the_least_recent_entry_goes},
              {"places_never_overlap", places_never_overlap}});
}

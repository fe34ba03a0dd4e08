#include "runtime/in_place_graphs.h"

#include <algorithm>
#include <utility>

namespace cudaexec {

InPlaceGraphs::InPlaceGraphs(const CallGraph& general, const CallSite& call) {
  general.get_places(call, addresses_);
  for (Place& place : places_) place.addresses.reserve(addresses_.size());
}

bool InPlaceGraphs::choose(const CallGraph& general, const CallSite& call) {
  general.get_places(call, addresses_);
  auto found = std::find_if(places_.begin(), places_.end(), [&](const Place& place) {
    return place.calls != 0 && place.addresses == addresses_;
  });
  if (found == places_.end()) {
    found = places_.end() - 1;
    if (found->graph != nullptr) {
      // The call's stream follows every launch of it.
      found->graph->free_after(call.memory.stream);
      found->graph.reset();
      calls_needed_ = calls_needed_ < kNever / 2 ? calls_needed_ * 2 : kNever;
    }
    found->addresses = addresses_;
    found->calls = 0;
  }
  std::rotate(places_.begin(), found, found + 1);
  Place& place = places_.front();
  if (place.graph != nullptr) return false;
  if (place.calls < kNever) ++place.calls;
  return place.calls > calls_needed_;
}

void InPlaceGraphs::add(std::unique_ptr<CallGraph> graph) noexcept {
  places_.front().graph = std::move(graph);
  tries_left_ = kCaptureTries;
}

void InPlaceGraphs::try_later() noexcept {
  places_.front().calls = 1;
  if (--tries_left_ == 0) stop();
}

void InPlaceGraphs::free_after(StreamRef stream) const {
  for (const Place& place : places_) {
    if (place.graph != nullptr) place.graph->free_after(stream);
  }
}

}  // namespace cudaexec

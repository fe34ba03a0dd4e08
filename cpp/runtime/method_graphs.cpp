#include "runtime/method_graphs.h"

#include <utility>

#include "base/error.h"
#include "base/str.h"

namespace cudaexec {

std::shared_ptr<GraphStats> MethodGraphs::add(std::string inputs) {
  auto stats = std::make_shared<GraphStats>();
  stats->inputs = std::move(inputs);
  const std::lock_guard lock(mutex_);
  std::erase_if(stats_, [](const auto& each) { return each.expired(); });
  stats_.push_back(stats);
  return stats;
}

std::vector<MethodGraphs::Row> MethodGraphs::rows() const {
  std::vector<Row> result;
  const std::lock_guard lock(mutex_);
  for (const std::weak_ptr<GraphStats>& each : stats_) {
    const auto stats = each.lock();
    if (stats == nullptr) continue;
    Row row;
    row.inputs = stats->inputs;
    row.phase = graph_phase_name(stats->phase.load());
    row.calls = stats->calls.load();
    row.captures = stats->captures.load();
    row.replays = stats->replays.load();
    row.in_place = stats->in_place.load();
    row.nbytes = stats->nbytes.load();
    const std::lock_guard reason_lock(stats->mutex);
    row.reason = stats->reason;
    result.push_back(std::move(row));
  }
  return result;
}

void MethodGraphs::check_strict(const GraphKey& key, std::span<const Value> inputs) {
  const std::lock_guard lock(mutex_);
  if (!only_) only_ = key;
  if (*only_ == key) return;
  throw InputError(str("method '", spec_.name,
                       "' has strict CUDA graphs: ", only_->difference(inputs, spec_),
                       "; keep to one signature, or load with cuda_graph=True"));
}

}  // namespace cudaexec

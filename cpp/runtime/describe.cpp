// Module::describe_json: what was loaded and why.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "device/cpu_features.h"
#include "device/cuda/cuda_device.h"
#include "runtime/module_state.h"

namespace cudaexec {
namespace {

using Json = nlohmann::ordered_json;

std::string message_of(const std::exception_ptr& refusal, const char** kind) {
  try {
    std::rethrow_exception(refusal);
  } catch (const Error& error) {
    *kind = error_class_name(error.kind());
    return error.what();
  }
}

Json describe_graphs(MethodGraphs& graphs) {
  MethodGraphs::Totals& totals = graphs.totals();
  Json json;
  if (!graphs.refusal().empty()) json["reason"] = graphs.refusal();
  json["captures"] = totals.captures.load();
  json["replays"] = totals.replays.load();
  json["failures"] = totals.failures.load();
  json["evictions"] = totals.evictions.load();
  json["keys"] = Json::array();
  for (const MethodGraphs::Row& row : graphs.rows()) {
    Json entry{{"inputs", row.inputs},     {"phase", row.phase},     {"calls", row.calls},
               {"captures", row.captures}, {"replays", row.replays}, {"in_place", row.in_place},
               {"nbytes", row.nbytes}};
    if (!row.reason.empty()) entry["reason"] = row.reason;
    json["keys"].push_back(std::move(entry));
  }
  return json;
}

/// Containers of all sessions for a method with state.
size_t bound(const ModuleState& state, size_t index) {
  size_t count = state.session->has_container(index) ? 1 : 0;
  for (const auto& session : state.sessions.all()) count += session->has_container(index) ? 1 : 0;
  return count;
}

/// The cache that the runtime keeps, of one session.
Json describe_kv(const KvCacheSpec& spec, SessionState& session) {
  Json json;
  json["dtype"] = kv_dtype_name(spec.dtype);
  json["position"] = session.kv().position();
  json["capacity"] = nullptr;  // without flat layers there is no end
  json["layers"] = Json::array();
  for (const KvLayerSpec& layer : spec.layers) {
    const bool flat = layer.window == 0;
    if (flat && (json["capacity"].is_null() || layer.capacity < json["capacity"])) {
      json["capacity"] = layer.capacity;
    }
    json["layers"].push_back({{"id", layer.id},
                              {"batch", layer.batch},
                              {"heads", layer.heads},
                              {"head_dim", layer.head_dim},
                              {"capacity", flat ? Json(layer.capacity) : Json(nullptr)},
                              {"window", flat ? Json(nullptr) : Json(layer.window)}});
  }
  return json;
}

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json method_entry(const ModuleState& state, size_t index) {
  const ProgramMethod& method = state.program->methods[index];
  Json json;
  json["name"] = method.spec.name;
  if (method.refusal != nullptr) {
    const char* kind = "";
    const std::string message = message_of(method.refusal, &kind);
    json["refused"] = {{"error", kind}, {"message", message}};
  }
  json["variants"] = Json::array();
  for (size_t i = 0; i < method.spec.variants.size(); ++i) {
    const CodeVariant& variant = method.spec.variants[i];
    Json entry;
    entry["variant"] = describe_variant(variant);
    entry["code"] = variant.code;
    const bool known = i < method.choice.reasons.size();
    entry["chosen"] = method.choice.chosen == i;
    if (known && !method.choice.reasons[i].empty()) entry["reason"] = method.choice.reasons[i];
    entry["callouts"] = variant.callouts;
    json["variants"].push_back(std::move(entry));
  }
  const MethodRuntime& runtime = *state.methods[index];
  json["uses_state"] = runtime.uses_state;
  CallCounts counts = state.session->counts(index);
  const CallCounts others = state.sessions.counts(index);
  json["calls"] = counts.calls + others.calls;
  json["errors"] = counts.errors + others.errors;
  json["containers"] = runtime.pool != nullptr ? runtime.pool->size() : bound(state, index);
  if (runtime.graphs != nullptr) json["graphs"] = describe_graphs(*runtime.graphs);
  return json;
}

}  // namespace

std::string describe_module(const ModuleState& state) {
  const Program& program = *state.program;
  Json json;
  json["program"] = program.pte_path;
  json["data"] = program.ptd_path.empty() ? Json(nullptr) : Json(program.ptd_path);
  json["manifest"] = program.has_manifest;
  json["producer"] = program.producer;
  json["machine"] = CpuFeatures::host().level();
  json["device"] = to_string(program.device);
  if (program.gpu != nullptr) {
    const CudaFacts& facts = program.gpu->facts();
    json["gpu"] = {{"name", facts.name},
                   {"uuid", facts.uuid},
                   {"sm", facts.sm},
                   {"sm_count", facts.sm_count},
                   {"total_nbytes", facts.total_nbytes}};
  }
  size_t state_nbytes = 0, nbytes = 0;
  for (const WeightEntry& entry : program.table.entries) {
    if (entry.nbytes == kUnrecordedSize) continue;
    (entry.state ? state_nbytes : nbytes) += entry.nbytes;
  }
  json["weights_nbytes"] = nbytes;
  json["state_nbytes"] = state_nbytes;
  json["sessions"] = state.sessions.all().size();
  if (program.kv_cache) json["kv_cache"] = describe_kv(*program.kv_cache, *state.session);
  json["methods"] = Json::array();
  for (size_t i = 0; i < program.methods.size(); ++i) {
    json["methods"].push_back(method_entry(state, i));
  }
  return text_of(json);
}

std::string describe_method(const ModuleState& state, size_t index) {
  return text_of(method_entry(state, index));
}

std::string describe_session(const ModuleState& state, SessionState& session) {
  Json json;
  json["state_nbytes"] = session.nbytes();
  json["bytes_per_session"] = state.bytes_per_session;
  if (state.program->kv_cache) json["kv_cache"] = describe_kv(*state.program->kv_cache, session);
  json["methods"] = Json::array();
  for (size_t i = 0; i < state.methods.size(); ++i) {
    const CallCounts counts = session.counts(i);
    Json entry;
    entry["name"] = state.methods[i]->method.spec.name;
    entry["uses_state"] = state.methods[i]->uses_state;
    entry["calls"] = counts.calls;
    entry["errors"] = counts.errors;
    entry["containers"] = session.has_container(i) ? 1 : 0;
    json["methods"].push_back(std::move(entry));
  }
  return text_of(json);
}

}  // namespace cudaexec

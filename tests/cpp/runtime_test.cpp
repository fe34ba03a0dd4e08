// Parts of the runtime that need no program: code variants, weights, working memory, the call gate.
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "check.h"
#include "device/cpu_features.h"
#include "runtime/call_gate.h"
#include "runtime/variant_choice.h"
#include "runtime/weight_cache.h"
#include "runtime/weight_table.h"
#include "runtime/working_memory.h"

namespace {

using namespace cudaexec;
using namespace cudaexec_test;

const std::vector<std::string> kNehalem{"cx16",   "lahf_lm", "popcnt", "pni",
                                        "sse4_1", "sse4_2",  "ssse3"};
const std::vector<std::string> kHaswell{"cx16",   "lahf_lm", "popcnt", "sse3", "sse4.1",
                                        "sse4.2", "ssse3",   "avx",    "AVX2", "bmi1",
                                        "bmi2",   "f16c",    "fma",    "abm",  "movbe"};

std::vector<std::string> skylake_server() {
  std::vector<std::string> names = kHaswell;
  for (const char* name : {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}) {
    names.emplace_back(name);
  }
  return names;
}

void levels_of_known_machines() {
  CHECK_EQ(CpuFeatures({}).level(), "x86-64");
  CHECK_EQ(CpuFeatures(kNehalem).level(), "x86-64-v2");
  CHECK_EQ(CpuFeatures(kHaswell).level(), "x86-64-v3");
  CHECK_EQ(CpuFeatures(skylake_server()).level(), "x86-64-v4");
  CHECK_EQ(CpuFeatures(kNehalem).missing_for_level("x86-64-v3"), "avx");
  CHECK_EQ(CpuFeatures(kHaswell).missing_for_level("x86-64-v4"), "avx512f");
  CHECK_EQ(CpuFeatures(kHaswell).missing_for_level("riscv"), "riscv");
  CHECK(CpuFeatures({"avx512_vnni"}).has("avx512vnni"));
}

void host_features_agree_with_the_compiler() {
  const CpuFeatures& host = CpuFeatures::host();
  CHECK_EQ(host.has("avx2"), __builtin_cpu_supports("avx2") != 0);
  CHECK_EQ(host.has("fma"), __builtin_cpu_supports("fma") != 0);
  CHECK_EQ(host.has("avx512f"), __builtin_cpu_supports("avx512f") != 0);
  CHECK_EQ(host.has("avx512vnni"), __builtin_cpu_supports("avx512vnni") != 0);
  CHECK_EQ(host.has("avx512bf16"), __builtin_cpu_supports("avx512bf16") != 0);
  CHECK_EQ(host.has("popcnt"), __builtin_cpu_supports("popcnt") != 0);
}

std::vector<CodeVariant> variants() {
  CodeVariant cuda, v4, v3;
  cuda.target = "cuda";
  cuda.sm = 90;
  v4.target = v3.target = "cpu";
  v4.isa = "x86-64-v4";
  v4.cpu_flags = {"avx512f", "avx512_vnni"};
  v3.isa = "x86-64-v3";
  return {cuda, v4, v3};
}

void variant_is_the_first_that_runs() {
  CHECK_EQ(choose_cpu_variant(variants(), CpuFeatures(kHaswell), "").chosen.value(), 2u);
  auto names = skylake_server();
  CHECK_EQ(choose_cpu_variant(variants(), CpuFeatures(names), "").chosen.value(), 2u);
  names.emplace_back("avx512vnni");
  CHECK_EQ(choose_cpu_variant(variants(), CpuFeatures(names), "").chosen.value(), 1u);
  CHECK(!choose_cpu_variant(variants(), CpuFeatures(kNehalem), "").chosen);
}

void variant_reasons_name_what_is_missing() {
  const auto choice = choose_cpu_variant(variants(), CpuFeatures(kNehalem), "");
  const std::string text = describe_choice(variants(), choice);
  for (const char* part : {"cuda sm_90 (is not CPU code)", "cpu x86-64-v4 (needs avx",
                           "cpu x86-64-v3 (needs avx, which this CPU lacks)"}) {
    CHECK(text.find(part) != std::string::npos);
  }
  const auto vnni = choose_cpu_variant(variants(), CpuFeatures(skylake_server()), "");
  CHECK(vnni.reasons[1].find("avx512_vnni") != std::string::npos);
  CHECK_EQ(vnni.reasons[2], "");
  auto future = variants();
  future[2].cpu_flags = {"warp_drive"};
  const auto unknown = choose_cpu_variant(future, CpuFeatures(kHaswell), "");
  CHECK(unknown.reasons[2].find("unknown to this version") != std::string::npos);
}

void variant_can_be_forced() {
  auto names = skylake_server();
  names.emplace_back("avx512vnni");
  const CpuFeatures features(names);
  CHECK_EQ(choose_cpu_variant(variants(), features, "x86-64-v3").chosen.value(), 2u);
  CHECK(!choose_cpu_variant(variants(), features, "x86-64-v2").chosen);
}

struct Bytes {
  alignas(64) std::byte data[256] = {};
};

void weights_are_shared_by_content() {
  auto first = std::make_shared<Bytes>();
  auto second = std::make_shared<Bytes>();
  const WeightKey key{{}, "a", "digest"};
  {
    const StoragePtr one = shared_weight(key, {first->data, 128}, 4, first);
    const StoragePtr two = shared_weight(key, {second->data, 128}, 4, second);
    CHECK_EQ(one.get(), two.get());
    CHECK_EQ(two->data(), static_cast<void*>(first->data));
    CHECK(one->is_constant());
    CHECK(!one->is_owned());
    CHECK_EQ(first.use_count(), 2);   // the storage keeps the first mapping
    CHECK_EQ(second.use_count(), 1);  // and not the second
    const StoragePtr other = shared_weight({{}, "a", "other"}, {second->data, 128}, 4, second);
    CHECK(other.get() != one.get());
    const StoragePtr unnamed = shared_weight({{}, "a", ""}, {first->data, 128}, 4, first);
    CHECK(unnamed.get() != one.get());
    CHECK_EQ(shared_weight_count(), 2u);
  }
  CHECK_EQ(shared_weight_count(), 0u);
  CHECK_EQ(first.use_count(), 1);
  CHECK_EQ(second.use_count(), 1);
}

void weights_go_with_their_last_user() {
  auto bytes = std::make_shared<Bytes>();
  const WeightKey key{{}, "a", "digest"};
  const int64_t before = Storage::live_count();
  StoragePtr one = shared_weight(key, {bytes->data, 128}, 4, bytes);
  StoragePtr two = one;
  one = {};
  CHECK_EQ(shared_weight_count(), 1u);
  two = {};
  CHECK_EQ(shared_weight_count(), 0u);
  CHECK_EQ(Storage::live_count(), before);
}

void weights_survive_races() {
  auto bytes = std::make_shared<Bytes>();
  std::memset(bytes->data, 7, sizeof bytes->data);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        const StoragePtr weight = shared_weight({{}, "a", "d"}, {bytes->data, 128}, 4, bytes);
        if (*static_cast<const unsigned char*>(weight->data()) != 7) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(wrong.load(), 0);
  CHECK_EQ(shared_weight_count(), 0u);
  CHECK_EQ(bytes.use_count(), 1);
}

void misaligned_weights_are_copied() {
  auto bytes = std::make_shared<Bytes>();
  std::memset(bytes->data, 3, sizeof bytes->data);
  const StoragePtr weight = shared_weight({{}, "a", "d"}, {bytes->data + 2, 128}, 4, bytes);
  CHECK(weight->data() != static_cast<void*>(bytes->data + 2));
  CHECK_EQ(std::memcmp(weight->data(), bytes->data + 2, 128), 0);
  CHECK_EQ(bytes.use_count(), 1);  // the mapping is not needed any more
}

ConstantSpec constant(const std::string& fqn, const std::string& key,
                      std::vector<int64_t> sizes = {4}, bool mutated = false) {
  ConstantSpec spec;
  spec.name = fqn;
  spec.fqn = fqn;
  spec.storage_key = key;
  spec.strides.assign(sizes.size(), 1);
  spec.sizes = std::move(sizes);
  spec.mutated = mutated;
  return spec;
}

void table_resolves_ties() {
  MethodSpec prefill, decode;
  prefill.constants = {constant("embed", "k:embed"), constant("cache", "k:cache", {2}, true)};
  decode.constants = {constant("head", "k:head"), constant("cache", "k:cache", {2})};
  WeightSource source;
  source.methods = {&prefill, &decode};
  source.blobs = {{"k:embed", {16, "d1"}}, {"k:cache", {8, "d2"}}};
  source.aliases = {{"head", "embed"}, {"tied", "embed"}};
  const WeightTable table = build_weight_table(source);
  CHECK_EQ(table.entries.size(), 2u);
  CHECK_EQ(table.methods[0][0].view.entry, table.methods[1][0].view.entry);
  CHECK_EQ(table.entries[table.methods[1][0].view.entry].fqn, "embed");
  CHECK_EQ(table.by_fqn.size(), 4u);
  CHECK_EQ(table.by_fqn.at("tied").entry, table.by_fqn.at("head").entry);
  CHECK(table.uses_state(0));
  CHECK(table.uses_state(1));  // it reads what the other method writes
  CHECK_EQ(table.entries[0].alignment, 4u);
}

void table_refuses_contradictions() {
  MethodSpec first, second;
  first.constants = {constant("w", "k:w")};
  second.constants = {constant("w", "k:w", {5})};
  WeightSource source;
  source.methods = {&first};
  source.blobs = {{"k:w", {15, ""}}};
  CHECK(thrown<FormatError>([&] { build_weight_table(source); }).find("'w'") != std::string::npos);
  source.blobs = {{"k:other", {16, ""}}};
  CHECK(thrown<FormatError>([&] { build_weight_table(source); }).find("k:w") != std::string::npos);
  source.blobs = {{"k:w", {20, ""}}};
  source.methods = {&first, &second};
  (void)thrown<FormatError>([&] { build_weight_table(source); });
  first.constants = {constant("w", "k:w", {INT64_MAX, 8})};
  source.methods = {&first};
  (void)thrown<FormatError>([&] { build_weight_table(source); });
}

void working_memory_outlives_its_owner() {
  CHECK_EQ(WorkingMemory::live_count(), 0);
  auto memory = WorkingMemory::create(0);
  StoragePtr output = Storage::allocate(1000, {}, *memory, {});
  StoragePtr freed = Storage::allocate(1000, {}, *memory, {});
  freed = {};
  CHECK(memory->cached() > 0);
  CHECK_EQ(memory->current(), 1000u);
  memory.reset();
  CHECK_EQ(WorkingMemory::live_count(), 1);
  std::memset(output->data(), 1, 1000);
  output = {};
  CHECK_EQ(WorkingMemory::live_count(), 0);
}

void gate_waits_for_calls() {
  CallGate gate;
  CHECK(gate.enter());
  std::atomic<bool> closed{false};
  std::thread closer([&] {
    CHECK(gate.close());
    closed = true;
  });
  while (!gate.closed()) std::this_thread::yield();
  CHECK(!gate.enter());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(!closed);
  gate.leave();
  closer.join();
  CHECK(closed);
  CHECK(!gate.close());  // again: returns, and was not the first
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv,
             {{"levels_of_known_machines", levels_of_known_machines},
              {"host_features_agree_with_the_compiler", host_features_agree_with_the_compiler},
              {"variant_is_the_first_that_runs", variant_is_the_first_that_runs},
              {"variant_reasons_name_what_is_missing", variant_reasons_name_what_is_missing},
              {"variant_can_be_forced", variant_can_be_forced},
              {"weights_are_shared_by_content", weights_are_shared_by_content},
              {"weights_go_with_their_last_user", weights_go_with_their_last_user},
              {"weights_survive_races", weights_survive_races},
              {"misaligned_weights_are_copied", misaligned_weights_are_copied},
              {"table_resolves_ties", table_resolves_ties},
              {"table_refuses_contradictions", table_refuses_contradictions},
              {"working_memory_outlives_its_owner", working_memory_outlives_its_owner},
              {"gate_waits_for_calls", gate_waits_for_calls}});
}

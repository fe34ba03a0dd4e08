#include "ops/onednn/weights.h"

#include <memory>
#include <mutex>
#include <vector>

#include "base/fork_mutex.h"
#include "ops/onednn/prepared.h"
#include "ops/pack_cache.h"

namespace cudaexec::ops::onednn {
namespace {

using dnnl::memory;

/// The layouts of one weight, few enough to be looked through.
class WeightLayouts : public PackedForm {
 public:
  WeightLayouts() : PackedForm(0) {}

  void* get(const ConvolutionProblem& problem, const memory::desc& wanted) {
    const std::lock_guard lock(mutex_);
    for (const auto& [desc, block] : layouts_) {
      if (desc == wanted) return block->data();
    }
    auto block = std::make_unique<PackedBlock>(wanted.get_size());
    convert(weight_as_given(problem), const_cast<void*>(problem.weight), wanted, block->data());
    layouts_.emplace_back(wanted, std::move(block));
    return layouts_.back().second->data();
  }

 private:
  ForkMutex mutex_;
  std::vector<std::pair<memory::desc, std::unique_ptr<PackedBlock>>> layouts_;
};

WeightLayouts& layouts_of(const ConvolutionProblem& p) {
  const auto& s = p.weight_strides;
  const int64_t key[] = {static_cast<int64_t>(PackKind::kOnednnConvolution),
                         static_cast<int64_t>(p.dtype),
                         p.weight_offset,
                         p.transposed,
                         p.groups,
                         p.in_channels,
                         p.out_channels,
                         p.kernel[0],
                         p.kernel[1],
                         p.kernel[2],
                         s[0],
                         s[1],
                         s[2],
                         s[3],
                         s[4]};
  PackedForm& form =
      PackCache::of(*p.constant).get(key, [] { return std::make_unique<WeightLayouts>(); });
  return static_cast<WeightLayouts&>(form);
}

}  // namespace

void convert(const memory::desc& from, void* source, const memory::desc& to, void* result) {
  const dnnl::engine& engine = cpu_engine();
  dnnl::stream stream(engine);
  const memory input(from, engine, source);
  memory output(to, engine, result);
  dnnl::reorder(input, output).execute(stream, const_cast<memory&>(input), output);
}

bool needs_room(const ConvolutionProblem& problem, const memory::desc& wanted) {
  return problem.constant == nullptr && weight_as_given(problem) != wanted;
}

void* weights_as(const ConvolutionProblem& problem, const memory::desc& wanted, char* room) {
  void* given = const_cast<void*>(problem.weight);
  const memory::desc desc = weight_as_given(problem);
  if (desc == wanted) return given;
  if (problem.constant != nullptr) return layouts_of(problem).get(problem, wanted);
  convert(desc, given, wanted, room);
  return room;
}

}  // namespace cudaexec::ops::onednn

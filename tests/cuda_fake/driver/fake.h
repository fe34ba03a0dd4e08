// A stand-in for NVIDIA's driver: the same entries over plain objects in host memory, so that
// everything above the driver runs without a GPU. It records every call, fails a chosen one, counts
// what is alive, and notes misuse that a real driver would answer with a crash.
//
// Work put on a stream is not done at once: it waits until something synchronises with it, and only
// what that something depends on is done. Code that forgets an event therefore reads old bytes.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/cuda/driver_abi.h"
#include "device/cuda/driver_entries.h"

#define FAKE_API extern "C" __attribute__((visibility("default")))

using namespace cudaexec::cuda;

// Every entry, so that a definition with another signature does not compile.
#define FAKE_DECLARE(name, version, parameters) FAKE_API CUresult name parameters;
CUDAEXEC_CUDA_ENTRIES(FAKE_DECLARE)
#undef FAKE_DECLARE

namespace fakecuda {

struct Context;
struct Stream;
struct Graph;
struct Node;

// ---- work --------------------------------------------------------------------------------------

struct Op {
  std::function<void()> run;
  std::vector<std::shared_ptr<Op>> before;
  bool done = false;
};
using OpPtr = std::shared_ptr<Op>;

/// Does `op` and everything it depends on.
void finish(const OpPtr& op);

// ---- objects -----------------------------------------------------------------------------------

enum class Kind { kContext, kStream, kEvent, kPool, kModule, kFunction, kGraph, kNode, kExec };

struct Object {
  Object(Kind object_kind, Context* object_context) : kind(object_kind), context(object_context) {}
  virtual ~Object() = default;
  Kind kind;
  Context* context;
  bool alive = true;
  bool internal = false;  // made by the driver itself: not a leak
};

struct Context : Object {
  explicit Context(int index) : Object(Kind::kContext, this), device(index) {}
  int device;
  Stream* legacy = nullptr;
  std::map<std::thread::id, Stream*> per_thread;
  std::vector<Stream*> streams;  // alive
  std::vector<OpPtr> orphans;    // work of destroyed streams
};

/// A capture in progress.
struct Capture {
  Graph* graph = nullptr;
  Stream* origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  uint64_t id = 0;
  bool invalid = false;
  std::vector<Stream*> members;
};

struct Stream : Object {
  explicit Stream(Context* owner, bool waits_for_legacy)
      : Object(Kind::kStream, owner), blocking(waits_for_legacy) {}
  bool blocking;
  OpPtr tail;
  std::shared_ptr<Capture> capture;
  std::vector<Node*> capture_tail;
};

struct Event : Object {
  explicit Event(Context* owner) : Object(Kind::kEvent, owner) {}
  bool recorded = false;
  OpPtr op;  // null if nothing was on the stream
  std::weak_ptr<Capture> capture;
  bool captured = false;
  std::vector<Node*> nodes;
};

struct Pool : Object {
  Pool() : Object(Kind::kPool, nullptr) {}
  int device = 0;
  uint64_t release_threshold = 0;
  size_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
};

struct KernelCode {
  bool known = false;  // whether the sizes are
  std::vector<size_t> sizes, offsets;
};

struct Function;
struct Module : Object {
  explicit Module(Context* owner) : Object(Kind::kModule, owner) {}
  const void* image = nullptr;
  bool any_name = false;  // a test image: has whatever kernels the test registered
  std::map<std::string, KernelCode> kernels;
  std::map<std::string, Function*> functions;
};

struct Function : Object {
  explicit Function(Module* owner) : Object(Kind::kFunction, owner->context), module(owner) {}
  Module* module;
  std::string name;
  KernelCode code;
  int max_dynamic_shared = 48 << 10;
};

struct KernelLaunch {
  Function* function = nullptr;
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  unsigned shared = 0;
  std::vector<std::vector<std::byte>> arguments;
  std::vector<void*> argument_pointers;
};

struct NodeData {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  KernelLaunch kernel;
  CUDA_MEMCPY3D copy{};
  CUDA_MEMSET_NODE_PARAMS set{};
};

struct Node : Object {
  Node(Context* owner, Graph* node_graph) : Object(Kind::kNode, owner), graph(node_graph) {}
  Graph* graph;
  NodeData data;
  std::vector<Node*> dependencies;
};

struct Graph : Object {
  Graph() : Object(Kind::kGraph, nullptr) {}
  std::vector<Node*> nodes;
};

struct Exec : Object {
  explicit Exec(Context* owner) : Object(Kind::kExec, owner) {}
  Graph* graph = nullptr;
  std::vector<Node*> order;
  std::map<Node*, NodeData> data;
  OpPtr last;
  int64_t launches = 0;
};

// ---- memory ------------------------------------------------------------------------------------

enum class Memory { kDevice, kPool, kHost, kRegistered, kManaged, kMapped };

struct Block {
  uintptr_t base = 0;
  size_t nbytes = 0;
  Memory memory = Memory::kDevice;
  int device = 0;
  Context* context = nullptr;
  Pool* pool = nullptr;
  size_t accounted = 0;
  bool ready = true;                          // its allocation was done on its stream
  bool freeing = false;                       // a free was asked for
  bool freed = false;                         // a free was done
  bool accessible = true;                     // mapped memory: cuMemSetAccess was called
  CUmemGenericAllocationHandle physical = 0;  // mapped memory
};

struct Physical {
  size_t nbytes = 0;
  int device = 0;
  int fd = -1;
  int mappings = 0;
  bool released = false;
};

struct DeviceState {
  int sm_major = 9, sm_minor = 0, sm_count = 132;
  size_t total = size_t{8} << 30, used = 0;
  bool virtual_memory = true, pools = true;
  Context* primary = nullptr;
  int retained = 0;
};

// ---- everything --------------------------------------------------------------------------------

struct FakeLaunch {  // what a test's kernel gets
  const char* name;
  unsigned grid[3], block[3];
  unsigned shared_nbytes;
  unsigned count;
  const void* const* arguments;
  const size_t* sizes;
};
using KernelCallback = void (*)(const FakeLaunch*);

struct RegisteredKernel {
  std::vector<size_t> sizes;
  KernelCallback callback = nullptr;
};

struct Fault {
  std::string name;  // empty: any entry
  int64_t k = 0, seen = 0;
  CUresult result = CUDA_SUCCESS;
  bool repeat = false;  // also every later matching call
};

struct World {
  std::recursive_mutex mutex;
  uint64_t generation = 1;
  int driver_version = 13000;
  CUresult init_result = CUDA_SUCCESS;
  bool eager = false;
  std::vector<DeviceState> devices{1};
  std::vector<std::unique_ptr<Object>> objects;
  std::unordered_map<const void*, Object*> handles;
  std::map<uintptr_t, Block> blocks;  // by base, freed ones in quarantine too
  std::deque<uintptr_t> quarantine;
  std::map<uintptr_t, size_t> reservations;
  std::map<CUmemGenericAllocationHandle, Physical> physical;
  CUmemGenericAllocationHandle next_physical = 1;
  uint64_t next_capture = 1;
  std::vector<std::shared_ptr<Capture>> captures;
  std::map<std::string, RegisteredKernel> kernels;
  std::map<std::string, int64_t> launches;
  bool log = true;
  std::vector<std::string> calls;
  std::vector<Fault> faults;
  int64_t faults_hit = 0;
  std::vector<std::string> misuse;
};

World& world();

/// Notes a misuse; gives the result that the entry returns.
CUresult misuse(const std::string& what, CUresult result);

template <typename T>
void append_argument(std::ostringstream& out, const T& value) {
  if constexpr (std::is_same_v<T, const char*>) {
    out << '"' << (value != nullptr ? value : "") << '"';
  } else if constexpr (std::is_pointer_v<T> || std::is_same_v<T, CUdeviceptr>) {
    out << "0x" << std::hex << (uintptr_t)value << std::dec;
  } else {
    out << +value;
  }
}

template <typename... Arguments>
std::string argument_text(const Arguments&... arguments) {
  if (!world().log) return {};
  std::ostringstream out;
  [[maybe_unused]] const char* separator = "";
  ((out << separator, append_argument(out, arguments), separator = ", "), ...);
  return std::move(out).str();
}

/// Records a call; gives an injected failure, if it is this call's turn.
CUresult enter(const char* name, const std::string& arguments);

#define FAKE_ENTER(name, ...)                                                                     \
  const std::lock_guard fake_lock(::fakecuda::world().mutex);                                     \
  if (const CUresult injected = ::fakecuda::enter(#name, ::fakecuda::argument_text(__VA_ARGS__)); \
      injected != CUDA_SUCCESS)                                                                   \
  return injected

// Contexts. `need_context` sets `context` to the current one or returns an error from the entry.
std::vector<Context*>& context_stack();
Context* current_context();
#define FAKE_CONTEXT(context)                             \
  Context* const context = ::fakecuda::current_context(); \
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT

/// Registers a new object and gives its handle's object.
template <typename T, typename... Arguments>
T* make_object(Arguments&&... arguments) {
  auto owned = std::make_unique<T>(std::forward<Arguments>(arguments)...);
  T* object = owned.get();
  world().handles[object] = object;
  world().objects.push_back(std::move(owned));
  return object;
}

/// The live object behind a handle, or null after noting the misuse.
Object* find_object(const void* handle, Kind kind, const char* entry);
template <typename T>
T* find(const void* handle, Kind kind, const char* entry) {
  return static_cast<T*>(find_object(handle, kind, entry));
}

/// The stream behind a handle, 0, 1 and 2 included, in the current context.
Stream* find_stream(CUstream handle, const char* entry);
/// Puts work on a stream that is not capturing.
OpPtr enqueue(Stream* stream, std::function<void()> run, std::vector<OpPtr> before = {});
/// Does all work of a context, or of all.
void finish_context(Context* context);
/// `internal`: a default stream.
Stream* make_stream(Context* context, bool waits_for_legacy, bool internal);

// Captures (fake_capture.cpp).
/// For calls that may not be made while a capture forbids them: the error, or success.
CUresult check_unsafe(const char* entry);
/// For calls that wait for `stream`: an error if it is capturing.
CUresult check_not_capturing(Stream* stream, const char* entry);
/// For calls on the legacy stream: an error if a stream that waits for it is capturing.
CUresult check_legacy(Stream* stream, const char* entry);
void invalidate(Capture& capture);
/// Adds a node behind the captured work of `stream`.
CUresult capture_node(Stream* stream, NodeData data);
/// The order of a graph's nodes, dependencies first.
std::vector<Node*> topological_order(const Graph& graph);

// Memory (fake_memory.cpp).
/// The block that holds an address, freed ones included; null for host memory unknown to CUDA.
Block* find_block(uintptr_t address);
/// Whether [data, data + nbytes) may be named in a call now; notes misuse.
bool check_use(CUdeviceptr data, size_t nbytes, const char* entry);
/// Whether work may touch the range at the moment it is done; notes misuse.
bool check_access(CUdeviceptr data, size_t nbytes, const char* what);
bool is_pageable(const void* data);
void release_blocks();
int64_t count_blocks(Memory memory);
/// Host bytes that stand for a device's; null if the device has not that much.
Block* add_block(size_t nbytes, Memory memory, Context* context, size_t accounted);
/// Ends a block: poisoned, and kept a while to catch later uses.
void retire(Block& block);
/// Gives device memory that the pool does not use back, down to `keep` bytes.
void trim_pool(Pool& pool, size_t keep);
inline constexpr size_t kAlignment = 512;
inline size_t round_up(size_t nbytes, size_t multiple) {
  return (nbytes + multiple - 1) / multiple * multiple;
}

// Doing things (fake_copy.cpp, fake_module.cpp).
void do_copy(CUdeviceptr dst, CUdeviceptr src, size_t nbytes);
void do_set(const CUDA_MEMSET_NODE_PARAMS& set);
void do_launch(KernelLaunch& launch);
void do_node(NodeData& data);
CUresult check_launch(const KernelLaunch& launch, const char* entry);
CUresult make_launch(KernelLaunch& launch, CUfunction function, const unsigned (&grid)[3],
                     const unsigned (&block)[3], unsigned shared, void** parameters, void** extra,
                     const char* entry);

/// Kernels of a code image: an ELF cubin, a fat binary for `sm`, or a test image. False if none
/// fits.
enum class ImageResult { kOk, kNotAnImage, kNoBinary };
ImageResult read_image(const void* image, int sm, Module& module);

}  // namespace fakecuda

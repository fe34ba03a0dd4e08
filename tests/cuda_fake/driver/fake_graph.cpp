// Graphs: nodes, instantiation, updates, launches.
#include <algorithm>
#include <cstring>
#include <set>

#include "fake.h"

namespace fakecuda {

std::vector<Node*> topological_order(const Graph& graph) {
  std::vector<Node*> order;
  std::set<Node*> placed;
  while (order.size() < graph.nodes.size()) {
    const size_t before = order.size();
    for (Node* node : graph.nodes) {
      if (placed.count(node) != 0) continue;
      const bool ready = std::all_of(node->dependencies.begin(), node->dependencies.end(),
                                     [&](Node* other) { return placed.count(other) != 0; });
      if (!ready) continue;
      placed.insert(node);
      order.push_back(node);
    }
    if (order.size() == before) return {};  // a cycle
  }
  return order;
}

void do_node(NodeData& data) {
  switch (data.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      do_launch(data.kernel);
      break;
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      const CUDA_MEMCPY3D& copy = data.copy;
      const CUdeviceptr src = copy.srcMemoryType == CU_MEMORYTYPE_HOST
                                  ? reinterpret_cast<CUdeviceptr>(copy.srcHost)
                                  : copy.srcDevice;
      const CUdeviceptr dst = copy.dstMemoryType == CU_MEMORYTYPE_HOST
                                  ? reinterpret_cast<CUdeviceptr>(copy.dstHost)
                                  : copy.dstDevice;
      do_copy(dst, src, copy.WidthInBytes);
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEMSET:
      do_set(data.set);
      break;
    default:
      break;
  }
}

namespace {

Graph* find_graph(CUgraph handle, const char* entry) {
  return find<Graph>(handle, Kind::kGraph, entry);
}

Node* find_node(CUgraphNode handle, const char* entry) {
  return find<Node>(handle, Kind::kNode, entry);
}

/// One-dimensional, not empty, both ends live: what copy nodes take.
CUresult check_copy(const CUDA_MEMCPY3D& copy, const char* entry) {
  if (copy.WidthInBytes == 0 || copy.Height > 1 || copy.Depth > 1 || copy.srcXInBytes != 0 ||
      copy.dstXInBytes != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (copy.srcMemoryType == CU_MEMORYTYPE_DEVICE &&
      !check_use(copy.srcDevice, copy.WidthInBytes, entry)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (copy.dstMemoryType == CU_MEMORYTYPE_DEVICE &&
      !check_use(copy.dstDevice, copy.WidthInBytes, entry)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

int side_of(CUmemorytype type, CUdeviceptr device) {
  if (type == CU_MEMORYTYPE_HOST) return -1;
  const Block* block = find_block(device);
  return block != nullptr ? block->device : -2;
}

CUresult check_set(const CUDA_MEMSET_NODE_PARAMS& set, const char* entry) {
  if (set.width == 0 || set.height != 1 ||
      (set.elementSize != 1 && set.elementSize != 2 && set.elementSize != 4)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return check_use(set.dst, set.width * set.elementSize, entry) ? CUDA_SUCCESS
                                                                : CUDA_ERROR_INVALID_VALUE;
}

CUresult kernel_from(const CUDA_KERNEL_NODE_PARAMS& from, KernelLaunch& launch, const char* entry) {
  const unsigned grid[3] = {from.gridDimX, from.gridDimY, from.gridDimZ};
  const unsigned block[3] = {from.blockDimX, from.blockDimY, from.blockDimZ};
  return make_launch(launch, from.func, grid, block, from.sharedMemBytes, from.kernelParams,
                     from.extra, entry);
}

CUresult add_node(const char* entry, CUgraphNode* node, CUgraph handle,
                  const CUgraphNode* dependencies, size_t count, NodeData data) {
  Graph* graph = find_graph(handle, entry);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Node*> before;
  for (size_t i = 0; i < count; ++i) {
    Node* dependency = find_node(dependencies[i], entry);
    if (dependency == nullptr || dependency->graph != graph) return CUDA_ERROR_INVALID_VALUE;
    before.push_back(dependency);
  }
  auto* made = make_object<Node>(graph->context, graph);
  made->data = std::move(data);
  made->dependencies = std::move(before);
  graph->nodes.push_back(made);
  *node = reinterpret_cast<CUgraphNode>(made);
  return CUDA_SUCCESS;
}

/// The data of `node` in `exec`, if the node is one of its graph and of that type.
NodeData* exec_data(CUgraphExec exec_handle, CUgraphNode node_handle, CUgraphNodeType type,
                    const char* entry) {
  auto* exec = find<Exec>(exec_handle, Kind::kExec, entry);
  Node* node = find_node(node_handle, entry);
  if (exec == nullptr || node == nullptr) return nullptr;
  const auto found = exec->data.find(node);
  if (found == exec->data.end() || found->second.type != type) {
    misuse(std::string(entry) + ": not such a node of this graph", CUDA_ERROR_INVALID_VALUE);
    return nullptr;
  }
  return &found->second;
}

}  // namespace
}  // namespace fakecuda

using namespace fakecuda;

FAKE_API CUresult cuGraphCreate(CUgraph* graph, unsigned flags) {
  FAKE_ENTER(cuGraphCreate, flags);
  auto* made = make_object<Graph>();
  made->context = current_context();
  *graph = reinterpret_cast<CUgraph>(made);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphDestroy(CUgraph handle) {
  FAKE_ENTER(cuGraphDestroy, handle);
  Graph* graph = find_graph(handle, "cuGraphDestroy");
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  graph->alive = false;
  for (Node* node : graph->nodes) node->alive = false;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  FAKE_ENTER(cuGraphGetNodes, handle);
  const Graph* graph = find_graph(handle, "cuGraphGetNodes");
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (nodes == nullptr) {
    *count = graph->nodes.size();
    return CUDA_SUCCESS;
  }
  *count = std::min(*count, graph->nodes.size());
  for (size_t i = 0; i < *count; ++i) nodes[i] = reinterpret_cast<CUgraphNode>(graph->nodes[i]);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphGetEdges(CUgraph handle, CUgraphNode* from, CUgraphNode* to,
                                  size_t* count) {
  FAKE_ENTER(cuGraphGetEdges, handle);
  const Graph* graph = find_graph(handle, "cuGraphGetEdges");
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  size_t edges = 0;
  for (Node* node : graph->nodes) {
    for (Node* dependency : node->dependencies) {
      if (from != nullptr && edges < *count) {
        from[edges] = reinterpret_cast<CUgraphNode>(dependency);
        to[edges] = reinterpret_cast<CUgraphNode>(node);
      }
      ++edges;
    }
  }
  *count = from == nullptr ? edges : std::min(edges, *count);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphAddDependencies(CUgraph handle, const CUgraphNode* from,
                                         const CUgraphNode* to, size_t count) {
  FAKE_ENTER(cuGraphAddDependencies, handle, count);
  const Graph* graph = find_graph(handle, "cuGraphAddDependencies");
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    Node* before = find_node(from[i], "cuGraphAddDependencies");
    Node* after = find_node(to[i], "cuGraphAddDependencies");
    if (before == nullptr || after == nullptr) return CUDA_ERROR_INVALID_VALUE;
    after->dependencies.push_back(before);
  }
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  FAKE_ENTER(cuGraphNodeGetType, handle);
  const Node* node = find_node(handle, "cuGraphNodeGetType");
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = node->data.type;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphKernelNodeGetParams(CUgraphNode handle,
                                             CUDA_KERNEL_NODE_PARAMS* parameters) {
  FAKE_ENTER(cuGraphKernelNodeGetParams, handle);
  Node* node = find_node(handle, "cuGraphKernelNodeGetParams");
  if (node == nullptr || node->data.type != CU_GRAPH_NODE_TYPE_KERNEL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  KernelLaunch& launch = node->data.kernel;
  *parameters = {};
  parameters->func = reinterpret_cast<CUfunction>(launch.function);
  parameters->gridDimX = launch.grid[0];
  parameters->gridDimY = launch.grid[1];
  parameters->gridDimZ = launch.grid[2];
  parameters->blockDimX = launch.block[0];
  parameters->blockDimY = launch.block[1];
  parameters->blockDimZ = launch.block[2];
  parameters->sharedMemBytes = launch.shared;
  launch.argument_pointers.clear();
  for (std::vector<std::byte>& argument : launch.arguments) {
    launch.argument_pointers.push_back(argument.data());
  }
  parameters->kernelParams = launch.argument_pointers.data();
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D* parameters) {
  FAKE_ENTER(cuGraphMemcpyNodeGetParams, handle);
  const Node* node = find_node(handle, "cuGraphMemcpyNodeGetParams");
  if (node == nullptr || node->data.type != CU_GRAPH_NODE_TYPE_MEMCPY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *parameters = node->data.copy;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphMemsetNodeGetParams(CUgraphNode handle,
                                             CUDA_MEMSET_NODE_PARAMS* parameters) {
  FAKE_ENTER(cuGraphMemsetNodeGetParams, handle);
  const Node* node = find_node(handle, "cuGraphMemsetNodeGetParams");
  if (node == nullptr || node->data.type != CU_GRAPH_NODE_TYPE_MEMSET) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *parameters = node->data.set;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph,
                                       const CUgraphNode* dependencies, size_t count,
                                       const CUDA_KERNEL_NODE_PARAMS* parameters) {
  FAKE_ENTER(cuGraphAddKernelNode, graph, count);
  NodeData data;
  data.type = CU_GRAPH_NODE_TYPE_KERNEL;
  if (const CUresult result = kernel_from(*parameters, data.kernel, "cuGraphAddKernelNode")) {
    return result;
  }
  return add_node("cuGraphAddKernelNode", node, graph, dependencies, count, std::move(data));
}

FAKE_API CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph,
                                       const CUgraphNode* dependencies, size_t count,
                                       const CUDA_MEMCPY3D* parameters, CUcontext context) {
  FAKE_ENTER(cuGraphAddMemcpyNode, graph, count, context);
  if (const CUresult result = check_copy(*parameters, "cuGraphAddMemcpyNode")) return result;
  NodeData data;
  data.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  data.copy = *parameters;
  return add_node("cuGraphAddMemcpyNode", node, graph, dependencies, count, std::move(data));
}

FAKE_API CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph,
                                       const CUgraphNode* dependencies, size_t count,
                                       const CUDA_MEMSET_NODE_PARAMS* parameters,
                                       CUcontext context) {
  FAKE_ENTER(cuGraphAddMemsetNode, graph, count, context);
  if (const CUresult result = check_set(*parameters, "cuGraphAddMemsetNode")) return result;
  NodeData data;
  data.type = CU_GRAPH_NODE_TYPE_MEMSET;
  data.set = *parameters;
  return add_node("cuGraphAddMemsetNode", node, graph, dependencies, count, std::move(data));
}

FAKE_API CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph handle,
                                              unsigned long long flags) {
  FAKE_ENTER(cuGraphInstantiateWithFlags, handle, flags);
  FAKE_CONTEXT(context);
  Graph* graph = find_graph(handle, "cuGraphInstantiateWithFlags");
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Node*> order = topological_order(*graph);
  if (order.size() != graph->nodes.size()) return CUDA_ERROR_INVALID_VALUE;
  auto* made = make_object<Exec>(context);
  made->graph = graph;
  made->order = std::move(order);
  for (Node* node : made->order) made->data[node] = node->data;
  *exec = reinterpret_cast<CUgraphExec>(made);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphExecDestroy(CUgraphExec handle) {
  FAKE_ENTER(cuGraphExecDestroy, handle);
  auto* exec = find<Exec>(handle, Kind::kExec, "cuGraphExecDestroy");
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  exec->alive = false;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                 const CUDA_KERNEL_NODE_PARAMS* parameters) {
  FAKE_ENTER(cuGraphExecKernelNodeSetParams, exec, node);
  const char* entry = "cuGraphExecKernelNodeSetParams";
  NodeData* data = exec_data(exec, node, CU_GRAPH_NODE_TYPE_KERNEL, entry);
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelLaunch launch;
  if (const CUresult result = kernel_from(*parameters, launch, entry)) return result;
  if (launch.function->context != data->kernel.function->context) return CUDA_ERROR_INVALID_VALUE;
  data->kernel = std::move(launch);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                 const CUDA_MEMCPY3D* parameters,
                                                 CUcontext context) {
  FAKE_ENTER(cuGraphExecMemcpyNodeSetParams, exec, node, context);
  const char* entry = "cuGraphExecMemcpyNodeSetParams";
  NodeData* data = exec_data(exec, node, CU_GRAPH_NODE_TYPE_MEMCPY, entry);
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_copy(*parameters, entry)) return result;
  const CUDA_MEMCPY3D& old = data->copy;
  if (side_of(old.srcMemoryType, old.srcDevice) !=
          side_of(parameters->srcMemoryType, parameters->srcDevice) ||
      side_of(old.dstMemoryType, old.dstDevice) !=
          side_of(parameters->dstMemoryType, parameters->dstDevice)) {
    return CUDA_ERROR_INVALID_VALUE;  // an operand's mapping may not change
  }
  data->copy = *parameters;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                 const CUDA_MEMSET_NODE_PARAMS* parameters,
                                                 CUcontext context) {
  FAKE_ENTER(cuGraphExecMemsetNodeSetParams, exec, node, context);
  const char* entry = "cuGraphExecMemsetNodeSetParams";
  NodeData* data = exec_data(exec, node, CU_GRAPH_NODE_TYPE_MEMSET, entry);
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_set(*parameters, entry)) return result;
  data->set = *parameters;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphUpload(CUgraphExec handle, CUstream stream) {
  FAKE_ENTER(cuGraphUpload, handle, stream);
  if (find<Exec>(handle, Kind::kExec, "cuGraphUpload") == nullptr ||
      find_stream(stream, "cuGraphUpload") == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  FAKE_ENTER(cuGraphLaunch, handle, stream_handle);
  auto* exec = find<Exec>(handle, Kind::kExec, "cuGraphLaunch");
  Stream* stream = find_stream(stream_handle, "cuGraphLaunch");
  if (exec == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_legacy(stream, "cuGraphLaunch")) return result;
  if (stream->capture != nullptr) {
    return misuse("cuGraphLaunch: would become a child graph", CUDA_ERROR_NOT_SUPPORTED);
  }
  ++exec->launches;
  // The parameters of this launch: later updates are for later launches.
  auto nodes = std::make_shared<std::vector<NodeData>>();
  for (Node* node : exec->order) nodes->push_back(exec->data[node]);
  exec->last = enqueue(stream,
                       [nodes] {
                         for (NodeData& data : *nodes) do_node(data);
                       },
                       {exec->last});
  return CUDA_SUCCESS;
}

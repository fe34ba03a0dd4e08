// Stream captures, and the calls that one forbids.
#include <algorithm>
#include <set>

#include "fake.h"

namespace fakecuda {

namespace {

/// How strict the calling thread is (cuThreadExchangeStreamCaptureMode).
CUstreamCaptureMode& thread_mode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

void end_capture(const std::shared_ptr<Capture>& capture) {
  for (Stream* member : capture->members) {
    member->capture = nullptr;
    member->capture_tail.clear();
  }
  std::erase(world().captures, capture);
}

/// Everything that `tail` depends on, itself included.
std::set<Node*> ancestors(const std::vector<Node*>& tail) {
  std::set<Node*> seen;
  std::vector<Node*> todo = tail;
  while (!todo.empty()) {
    Node* node = todo.back();
    todo.pop_back();
    if (!seen.insert(node).second) continue;
    todo.insert(todo.end(), node->dependencies.begin(), node->dependencies.end());
  }
  return seen;
}

}  // namespace

void invalidate(Capture& capture) { capture.invalid = true; }

CUresult check_unsafe(const char* entry) {
  const CUstreamCaptureMode mode = thread_mode();
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  bool forbidden = false;
  for (const std::shared_ptr<Capture>& capture : world().captures) {
    const bool mine = capture->thread == std::this_thread::get_id() &&
                      capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool everywhere =
        capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!mine && !everywhere) continue;
    invalidate(*capture);
    forbidden = true;
  }
  if (forbidden && world().log)
    world().calls.back() += std::string(" -> not in a capture: ") + entry;
  return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult check_not_capturing(Stream* stream, const char* entry) {
  if (stream->capture != nullptr) {
    invalidate(*stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return check_legacy(stream, entry);
}

CUresult check_legacy(Stream* stream, const char* /*entry*/) {
  if (stream != stream->context->legacy) return CUDA_SUCCESS;
  for (Stream* other : stream->context->streams) {
    if (other->blocking && other->capture != nullptr) {
      invalidate(*other->capture);
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
  }
  return CUDA_SUCCESS;
}

CUresult capture_node(Stream* stream, NodeData data) {
  if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  Graph* graph = stream->capture->graph;
  auto* node = make_object<Node>(stream->context, graph);
  node->data = std::move(data);
  node->dependencies = stream->capture_tail;
  graph->nodes.push_back(node);
  stream->capture_tail = {node};
  return CUDA_SUCCESS;
}

}  // namespace fakecuda

using namespace fakecuda;

FAKE_API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  FAKE_ENTER(cuThreadExchangeStreamCaptureMode, *mode);
  std::swap(thread_mode(), *mode);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  FAKE_ENTER(cuStreamBeginCapture, handle, mode);
  Stream* stream = find_stream(handle, "cuStreamBeginCapture");
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream == stream->context->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->graph = make_object<Graph>();
  capture->graph->context = stream->context;
  capture->graph->internal = true;  // the caller's only once the capture has ended
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->id = world().next_capture++;
  capture->members.push_back(stream);
  stream->capture = capture;
  stream->capture_tail.clear();
  world().captures.push_back(std::move(capture));
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  FAKE_ENTER(cuStreamEndCapture, handle);
  *graph = nullptr;
  Stream* stream = find_stream(handle, "cuStreamEndCapture");
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) {
    invalidate(*capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  if (capture->thread != std::this_thread::get_id() &&
      capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  CUresult result = capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) {
    const std::set<Node*> joined = ancestors(stream->capture_tail);
    for (Stream* member : capture->members) {
      for (Node* node : member->capture_tail) {
        if (joined.count(node) == 0) result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
      }
    }
  }
  if (result == CUDA_SUCCESS) {
    capture->graph->internal = false;
    *graph = reinterpret_cast<CUgraph>(capture->graph);
  } else {
    capture->graph->alive = false;
  }
  end_capture(capture);
  return result;
}

FAKE_API CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  FAKE_ENTER(cuStreamIsCapturing, handle);
  Stream* stream = find_stream(handle, "cuStreamIsCapturing");
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (Stream* other : stream->context->streams) {
    if (stream == stream->context->legacy && other->blocking && other->capture != nullptr) {
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
  }
  *status = stream->capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE
            : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                       : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status,
                                         uint64_t* id, CUgraph* graph,
                                         const CUgraphNode** dependencies, size_t* count) {
  FAKE_ENTER(cuStreamGetCaptureInfo, handle);
  Stream* stream = find_stream(handle, "cuStreamGetCaptureInfo");
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (stream->capture == nullptr) return CUDA_SUCCESS;
  *status = stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (id != nullptr) *id = stream->capture->id;
  if (graph != nullptr) *graph = reinterpret_cast<CUgraph>(stream->capture->graph);
  if (dependencies != nullptr) {
    *dependencies = reinterpret_cast<const CUgraphNode*>(stream->capture_tail.data());
  }
  if (count != nullptr) *count = stream->capture_tail.size();
  return CUDA_SUCCESS;
}

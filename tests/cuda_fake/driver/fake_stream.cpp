// Streams, events, and the order in which work is done.
#include <algorithm>

#include "fake.h"

namespace fakecuda {

void finish(const OpPtr& last) {
  if (last == nullptr) return;
  // An explicit stack: queues may be thousands of calls long.
  std::vector<OpPtr> stack{last};
  while (!stack.empty()) {
    OpPtr op = stack.back();
    if (op->done) {
      stack.pop_back();
      continue;
    }
    bool waits = false;
    for (const OpPtr& before : op->before) {
      if (before != nullptr && !before->done) {
        stack.push_back(before);
        waits = true;
      }
    }
    if (waits) continue;
    stack.pop_back();
    op->done = true;
    op->before.clear();
    if (op->run) std::exchange(op->run, {})();
  }
}

Stream* make_stream(Context* context, bool waits_for_legacy, bool internal) {
  auto* stream = make_object<Stream>(context, waits_for_legacy);
  stream->internal = internal;
  context->streams.push_back(stream);
  return stream;
}

OpPtr enqueue(Stream* stream, std::function<void()> run, std::vector<OpPtr> before) {
  auto op = std::make_shared<Op>();
  op->run = std::move(run);
  op->before = std::move(before);
  op->before.push_back(stream->tail);
  Stream* legacy = stream->context->legacy;
  if (stream == legacy) {
    for (Stream* other : stream->context->streams) {
      if (other->blocking) op->before.push_back(other->tail);
    }
  } else if (stream->blocking) {
    op->before.push_back(legacy->tail);
  }
  stream->tail = op;
  if (world().eager) finish(op);
  return op;
}

void finish_context(Context* context) {
  for (Stream* stream : context->streams) finish(stream->tail);
  for (const OpPtr& op : context->orphans) finish(op);
  context->orphans.clear();
}

Stream* find_stream(CUstream handle, const char* entry) {
  Context* context = current_context();
  if (handle == nullptr || handle == legacy_stream()) {
    if (context == nullptr) {
      misuse(std::string(entry) + ": default stream without a context", CUDA_ERROR_INVALID_CONTEXT);
      return nullptr;
    }
    return context->legacy;
  }
  if (handle == per_thread_stream()) {
    if (context == nullptr) return nullptr;
    Stream*& mine = context->per_thread[std::this_thread::get_id()];
    if (mine == nullptr) {
      mine = make_stream(context, true, true);
    }
    return mine;
  }
  auto* stream = find<Stream>(handle, Kind::kStream, entry);
  if (stream != nullptr && stream->context != context) {
    misuse(std::string(entry) + ": the stream's context is not current", CUDA_ERROR_INVALID_HANDLE);
    return nullptr;
  }
  return stream;
}

namespace {

Event* find_event(CUevent handle, const char* entry) {
  return find<Event>(handle, Kind::kEvent, entry);
}

/// Time passes while somebody polls: one piece of work is done for each question.
void advance(const OpPtr& last) {
  OpPtr op = last;
  while (op != nullptr && !op->done) {
    OpPtr next;
    for (const OpPtr& before : op->before) {
      if (before != nullptr && !before->done) next = before;
    }
    if (next == nullptr) {
      finish(op);
      return;
    }
    op = next;
  }
}

bool is_reached(const OpPtr& op) { return op == nullptr || op->done; }

}  // namespace
}  // namespace fakecuda

using namespace fakecuda;

FAKE_API CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  FAKE_ENTER(cuStreamCreate, flags);
  FAKE_CONTEXT(context);
  *stream = reinterpret_cast<CUstream>(
      make_stream(context, (flags & CU_STREAM_NON_BLOCKING) == 0, false));
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuStreamDestroy(CUstream handle) {
  FAKE_ENTER(cuStreamDestroy, handle);
  auto* stream = find<Stream>(handle, Kind::kStream, "cuStreamDestroy");
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != nullptr) {
    invalidate(*stream->capture);
    misuse("cuStreamDestroy: the stream is capturing", CUDA_SUCCESS);
    std::erase(stream->capture->members, stream);
  }
  stream->alive = false;
  std::erase(stream->context->streams, stream);
  if (!is_reached(stream->tail)) stream->context->orphans.push_back(stream->tail);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuStreamSynchronize(CUstream handle) {
  FAKE_ENTER(cuStreamSynchronize, handle);
  Stream* stream = find_stream(handle, "cuStreamSynchronize");
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = check_not_capturing(stream, "cuStreamSynchronize")) return result;
  if (stream == stream->context->legacy) {
    for (Stream* other : stream->context->streams) {
      if (other->blocking) finish(other->tail);
    }
  }
  finish(stream->tail);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuStreamQuery(CUstream handle) {
  FAKE_ENTER(cuStreamQuery, handle);
  Stream* stream = find_stream(handle, "cuStreamQuery");
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = check_not_capturing(stream, "cuStreamQuery")) return result;
  if (is_reached(stream->tail)) return CUDA_SUCCESS;
  advance(stream->tail);
  return CUDA_ERROR_NOT_READY;
}

FAKE_API CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  FAKE_ENTER(cuStreamGetCtx, handle);
  auto* stream = find<Stream>(handle, Kind::kStream, "cuStreamGetCtx");
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *context = reinterpret_cast<CUcontext>(stream->context);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned flags) {
  FAKE_ENTER(cuStreamWaitEvent, handle, event_handle, flags);
  Stream* stream = find_stream(handle, "cuStreamWaitEvent");
  Event* event = find_event(event_handle, "cuStreamWaitEvent");
  if (stream == nullptr || event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!event->recorded) return CUDA_SUCCESS;
  if (event->captured) {
    const std::shared_ptr<Capture> capture = event->capture.lock();
    if (capture == nullptr) return CUDA_ERROR_INVALID_VALUE;  // its capture has ended
    if (stream->capture != nullptr && stream->capture != capture) {
      invalidate(*stream->capture);
      invalidate(*capture);
      return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (stream->capture == nullptr) {  // joins the capture
      if (stream == stream->context->legacy) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
      stream->capture = capture;
      stream->capture_tail.clear();
      capture->members.push_back(stream);
    }
    for (Node* node : event->nodes) {
      if (std::find(stream->capture_tail.begin(), stream->capture_tail.end(), node) ==
          stream->capture_tail.end()) {
        stream->capture_tail.push_back(node);
      }
    }
    return CUDA_SUCCESS;
  }
  if (stream->capture != nullptr) {
    invalidate(*stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  enqueue(stream, {}, {event->op});
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuEventCreate(CUevent* event, unsigned flags) {
  FAKE_ENTER(cuEventCreate, flags);
  FAKE_CONTEXT(context);
  *event = reinterpret_cast<CUevent>(make_object<Event>(context));
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuEventDestroy(CUevent handle) {
  FAKE_ENTER(cuEventDestroy, handle);
  Event* event = find_event(handle, "cuEventDestroy");
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  event->alive = false;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuEventRecord(CUevent event_handle, CUstream handle) {
  FAKE_ENTER(cuEventRecord, event_handle, handle);
  Stream* stream = find_stream(handle, "cuEventRecord");
  Event* event = find_event(event_handle, "cuEventRecord");
  if (stream == nullptr || event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->context != stream->context) {
    return misuse("cuEventRecord: event and stream of different contexts",
                  CUDA_ERROR_INVALID_HANDLE);
  }
  if (const CUresult result = check_legacy(stream, "cuEventRecord")) return result;
  event->recorded = true;
  event->captured = stream->capture != nullptr;
  event->capture = stream->capture;
  event->nodes = event->captured ? stream->capture_tail : std::vector<Node*>{};
  // On the legacy stream the event also covers the streams that wait for it.
  event->op = event->captured ? nullptr : enqueue(stream, {});
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuEventQuery(CUevent handle) {
  FAKE_ENTER(cuEventQuery, handle);
  Event* event = find_event(handle, "cuEventQuery");
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = check_unsafe("cuEventQuery")) return result;
  if (event->captured) return CUDA_ERROR_CAPTURED_EVENT;
  if (is_reached(event->op)) return CUDA_SUCCESS;
  advance(event->op);
  return CUDA_ERROR_NOT_READY;
}

FAKE_API CUresult cuEventSynchronize(CUevent handle) {
  FAKE_ENTER(cuEventSynchronize, handle);
  Event* event = find_event(handle, "cuEventSynchronize");
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->captured) {
    if (const auto capture = event->capture.lock()) invalidate(*capture);
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  finish(event->op);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  FAKE_ENTER(cuEventElapsedTime, start, end);
  Event* from = find_event(start, "cuEventElapsedTime");
  Event* to = find_event(end, "cuEventElapsedTime");
  if (from == nullptr || to == nullptr || !from->recorded || !to->recorded) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!is_reached(from->op) || !is_reached(to->op)) return CUDA_ERROR_NOT_READY;
  *milliseconds = 1.0F;
  return CUDA_SUCCESS;
}

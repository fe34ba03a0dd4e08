#include "device/cuda/stream.h"

#include <algorithm>

#include "device/cuda/check.h"

namespace cudaexec {

using namespace cuda;

CudaStream::CudaStream(CudaDevice& device) : device_(&device) {
  const CudaGuard guard(device);
  CUstream handle = nullptr;
  CUDAEXEC_CU(cuStreamCreate, &handle, CU_STREAM_NON_BLOCKING);
  handle_ = StreamHandle(handle, device.context());
}

CudaEvent::CudaEvent(CudaDevice& device, Timing timing) : device_(&device) {
  const CudaGuard guard(device);
  CUevent handle = nullptr;
  CUDAEXEC_CU(cuEventCreate, &handle, timing == Timing::kOn ? 0 : CU_EVENT_DISABLE_TIMING);
  handle_ = EventHandle(handle, device.context());
}

void CudaEvent::record(StreamRef stream) {
  const CudaGuard guard(*device_);
  CUDAEXEC_CU(cuEventRecord, handle_.get(), cu_stream(stream));
}

void CudaEvent::make_wait(CudaDevice& device, StreamRef stream) const {
  const CudaGuard guard(device);
  CUDAEXEC_CU(cuStreamWaitEvent, cu_stream(stream), handle_.get(), CU_EVENT_WAIT_DEFAULT);
}

bool CudaEvent::is_done() const {
  const CudaGuard guard(*device_);
  const CUresult result = driver().cuEventQuery(handle_.get());
  if (result == CUDA_ERROR_NOT_READY) return false;
  check(result, "cuEventQuery", CUDAEXEC_FILE, __LINE__);
  return true;
}

void CudaEvent::synchronize() const {
  const CudaGuard guard(*device_);
  CUDAEXEC_CU(cuEventSynchronize, handle_.get());
}

float CudaEvent::milliseconds_since(const CudaEvent& start) const {
  const CudaGuard guard(*device_);
  float milliseconds = 0;
  CUDAEXEC_CU(cuEventElapsedTime, &milliseconds, start.handle_.get(), handle_.get());
  return milliseconds;
}

/// What one thread has borrowed, from any number of devices.
class ThreadStreams::Lease {
 public:
  ~Lease() {
    for (const Loan& loan : loans_) {
      if (const std::shared_ptr<ThreadStreams> streams = loan.streams.lock()) {
        streams->give_back(loan.entry);
      }
    }
  }

  Entry& get(CudaDevice& device, const std::shared_ptr<ThreadStreams>& streams) {
    for (const Loan& loan : loans_) {
      if (loan.key == streams.get() && !loan.streams.expired()) return *loan.entry;
    }
    std::erase_if(loans_, [](const Loan& loan) { return loan.streams.expired(); });
    loans_.reserve(loans_.size() + 1);
    loans_.push_back({streams.get(), streams, streams->take(device)});
    return *loans_.back().entry;
  }

 private:
  struct Loan {
    const ThreadStreams* key;
    std::weak_ptr<ThreadStreams> streams;
    Entry* entry;
  };
  std::vector<Loan> loans_;
};

ThreadStreams::Entry& ThreadStreams::current(CudaDevice& device,
                                             const std::shared_ptr<ThreadStreams>& streams) {
  thread_local Lease lease;
  return lease.get(device, streams);
}

ThreadStreams::Entry* ThreadStreams::take(CudaDevice& device) {
  const std::lock_guard lock(mutex_);
  if (!free_.empty()) {
    Entry* entry = free_.back();
    free_.pop_back();
    return entry;
  }
  free_.reserve(entries_.size() + 1);  // give_back() must not allocate
  entries_.push_back(std::make_unique<Entry>(device));
  return entries_.back().get();
}

void ThreadStreams::synchronize(CudaDevice& device) {
  std::vector<StreamRef> streams;  // they live as long as the device
  {
    const std::lock_guard lock(mutex_);
    streams.reserve(entries_.size());
    for (const auto& entry : entries_) streams.push_back(entry->stream.ref());
  }
  for (const StreamRef stream : streams) {
    if (!device.is_capturing(stream)) device.synchronize(stream);
  }
}

void ThreadStreams::give_back(Entry* entry) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(entry);
}

}  // namespace cudaexec

// Inputs that GPU work may still read although the call has returned, and whose owners do not tell
// on which stream they give memory back: they are kept until that work is done.
#pragma once

#include <Python.h>

#include <cstddef>
#include <vector>

#include "device/device.h"
#include "tensor/dlpack_abi.h"

namespace cudaexec::python {

/// References, let go of with the GIL held.
struct HeldObjects {
  std::vector<PyObject*> objects;
  std::vector<dlpack::DLManagedTensor*> legacy;
  std::vector<dlpack::DLManagedTensorVersioned*> versioned;

  HeldObjects() = default;
  HeldObjects(HeldObjects&& other) noexcept { swap(other); }
  HeldObjects& operator=(HeldObjects other) noexcept {
    swap(other);
    return *this;
  }
  ~HeldObjects() { release(); }
  [[nodiscard]] bool empty() const noexcept {
    return objects.empty() && legacy.empty() && versioned.empty();
  }
  void release() noexcept;

 private:
  void swap(HeldObjects& other) noexcept {
    objects.swap(other.objects);
    legacy.swap(other.legacy);
    versioned.swap(other.versioned);
  }
};

/// Keeps `held` until the work that is on `stream` of `device` now is done, which a later call
/// notices. If nothing can be recorded there, waits for the stream instead. With the GIL held.
void hold_until_done(int device, StreamRef stream, HeldObjects held) noexcept;
/// Lets go of what is not needed any more; with the GIL held.
void release_finished() noexcept;
/// Waits for all of it, then lets go. For tests.
void wait_and_release_held();
/// Entries that wait.
size_t held_count() noexcept;

}  // namespace cudaexec::python

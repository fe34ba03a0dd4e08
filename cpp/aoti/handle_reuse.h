// While constants are bound, aoti_torch_new_tensor_handle() hands back the handle it was given:
// generated code would leak a new one for each constant.
#pragma once

namespace cudaexec {

class HandleReuse {
 public:
  HandleReuse() noexcept { active_ = true; }
  ~HandleReuse() { active_ = false; }
  HandleReuse(const HandleReuse&) = delete;
  HandleReuse& operator=(const HandleReuse&) = delete;
  static bool active() noexcept { return active_; }

 private:
  static inline constinit thread_local bool active_ = false;
};

}  // namespace cudaexec

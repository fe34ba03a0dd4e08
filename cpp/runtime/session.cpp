#include "runtime/session.h"

#include <utility>

#include "runtime/module_state.h"

namespace cudaexec {

Session::Session(std::shared_ptr<ModuleState> module,
                 std::shared_ptr<SessionState> session) noexcept
    : module_(std::move(module)), session_(std::move(session)) {}

Session::~Session() = default;

std::vector<std::string> Session::method_names() const {
  return cudaexec::method_names(*module_->program);
}

std::shared_ptr<Method> Session::method(const std::string& name) {
  const OpenSession open(*module_, *session_);
  return make_method(module_, session_, find_method(*module_->program, name));
}

std::vector<std::pair<std::string, Tensor>> Session::state() const {
  const OpenSession open(*module_, *session_);
  return snapshot(*module_, *session_);
}

void Session::manual_seed(uint64_t seed) {
  const OpenSession open(*module_, *session_);
  session_->random().set_seed(seed);
}

void Session::reset() {
  const OpenSession open(*module_, *session_);
  const SessionLock lock(*session_, SessionLock::Mend{});
  session_->reset();
}

int64_t Session::position() const {
  const OpenSession open(*module_, *session_);
  session_->kv().require();
  return session_->kv().position();
}

void Session::rewind(int64_t position) {
  const OpenSession open(*module_, *session_);
  const SessionLock lock(*session_);
  session_->rewind(position);
}

KvBytes Session::kv_nbytes() const {
  const OpenSession open(*module_, *session_);
  return session_->kv().usage();
}

std::unique_ptr<Session> Session::fork() const {
  const OpenModule open_module(*module_);
  const OpenSession open(*module_, *session_);
  auto copy = make_session(*module_);
  {
    const SessionLock lock(*session_);
    session_->copy_to(*copy);
  }
  return std::make_unique<Session>(module_, std::move(copy));
}

void Session::close() noexcept { session_->close(); }

bool Session::closed() const noexcept { return session_->gate().closed(); }

size_t Session::bytes_per_session() const noexcept { return module_->bytes_per_session; }

size_t Session::state_nbytes() const {
  const OpenSession open(*module_, *session_);
  return session_->nbytes();
}

std::string Session::describe_json() const { return describe_session(*module_, *session_); }

}  // namespace cudaexec

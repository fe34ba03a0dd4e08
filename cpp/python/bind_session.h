// Sessions as Python holds them.
#pragma once

#include <memory>

#include "runtime/session.h"

namespace cudaexec::python {

template <typename Core>
class CallSurface;
using PySession = CallSurface<Session>;

/// Of a new session.
std::shared_ptr<PySession> make_session(std::shared_ptr<Session> session);

}  // namespace cudaexec::python

// A minimal test runner: `program NAME` runs one test, `program` lists them.
#pragma once

#include <cstdio>
#include <cstring>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace cudaexec_test {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::ostringstream message;                                          \
      message << __FILE__ << ":" << __LINE__ << ": not true: " #condition; \
      throw ::cudaexec_test::Failure(message.str());                       \
    }                                                                      \
  } while (false)

#define CHECK_EQ(left, right)                                                   \
  do {                                                                          \
    const auto left_value = (left);                                             \
    const auto right_value = (right);                                           \
    if (!(left_value == right_value)) {                                         \
      std::ostringstream message;                                               \
      message << __FILE__ << ":" << __LINE__ << ": " #left " is " << left_value \
              << ", " #right " is " << right_value;                             \
      throw ::cudaexec_test::Failure(message.str());                            \
    }                                                                           \
  } while (false)

/// The message of the exception of type `Error` that `body` must throw.
template <typename Error, typename Body>
std::string thrown(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  throw Failure("no exception of the expected type");
}

using Test = std::pair<std::string, std::function<void()>>;

inline int run(int argc, char** argv, const std::vector<Test>& tests) {
  int matched = 0;
  for (const auto& [name, body] : tests) {
    if (argc < 2) {
      std::printf("%s\n", name.c_str());
      continue;
    }
    if (name != argv[1]) continue;
    ++matched;
    try {
      body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return 1;
    }
  }
  return argc < 2 || matched == 1 ? 0 : 2;
}

}  // namespace cudaexec_test

#include "device/cpu_limits.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace cudaexec {
namespace {

std::string read_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  std::string text(16384, '\0');
  const ssize_t count = ::read(fd, text.data(), text.size());
  ::close(fd);
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return text;
}

int to_cpus(double quota, double period) {
  if (!(quota > 0) || !(period > 0)) return 0;
  const double cpus = quota / period;
  const int whole = static_cast<int>(std::min(cpus, 1e6));
  return std::max(1, whole < cpus ? whole + 1 : whole);
}

int smaller(int a, int b) { return a == 0 ? b : b == 0 ? a : std::min(a, b); }

// "max 100000" or "150000 100000".
int quota_v2(const std::string& directory) {
  const std::string text = read_file(directory + "/cpu.max");
  char* rest = nullptr;
  const double quota = std::strtod(text.c_str(), &rest);
  if (text.empty() || rest == text.c_str()) return 0;
  return to_cpus(quota, std::strtod(rest, nullptr));
}

int quota_v1(const std::string& directory) {
  const std::string quota = read_file(directory + "/cpu.cfs_quota_us");
  if (quota.empty()) return 0;
  const std::string period = read_file(directory + "/cpu.cfs_period_us");
  return to_cpus(std::strtod(quota.c_str(), nullptr), std::strtod(period.c_str(), nullptr));
}

// The quota of `path` or of any of its parents up to the mount point `base`.
int quota_upwards(const std::string& base, std::string path, int (*quota)(const std::string&)) {
  int cpus = 0;
  for (;;) {
    cpus = smaller(cpus, quota(base + path));
    const size_t slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) break;
    path.resize(slash);
  }
  return cpus;
}

bool names_cpu_controller(std::string_view controllers) {
  while (!controllers.empty()) {
    const size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == "cpu") return true;
    if (comma == std::string_view::npos) break;
    controllers.remove_prefix(comma + 1);
  }
  return false;
}

// Lines of /proc/self/cgroup: "<id>:<controllers>:<path>"; v2 has an empty list of controllers.
int cgroup_quota(const std::string& root) {
  const std::string text = read_file(root + "/proc/self/cgroup");
  int cpus = 0;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t newline = std::min(text.find('\n', begin), text.size());
    const std::string_view line(text.data() + begin, newline - begin);
    begin = newline + 1;
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    std::string path(line.substr(second + 1));
    if (path == "/") path.clear();
    if (controllers.empty()) {
      cpus = smaller(cpus, quota_upwards(root + "/sys/fs/cgroup", path, quota_v2));
    } else if (names_cpu_controller(controllers)) {
      cpus = smaller(cpus, quota_upwards(root + "/sys/fs/cgroup/cpu", path, quota_v1));
      cpus = smaller(cpus, quota_upwards(root + "/sys/fs/cgroup/cpu,cpuacct", path, quota_v1));
    }
  }
  return cpus;
}

// The first number of OMP_NUM_THREADS ("4" or "4,2"); 0 if unset or not a positive number.
int threads_from_environment() noexcept {
  const char* value = std::getenv("OMP_NUM_THREADS");
  if (value == nullptr) return 0;
  char* end = nullptr;
  const long number = std::strtol(value, &end, 10);
  while (*end == ' ') ++end;
  if (end == value || (*end != '\0' && *end != ',') || number <= 0) return 0;
  return static_cast<int>(std::min(number, 1000000L));
}

}  // namespace

int cgroup_cpus(const char* root) noexcept {
  try {
    return cgroup_quota(root);
  } catch (...) {  // no memory for a path: no limit known
    return 0;
  }
}

CpuLimits read_cpu_limits() noexcept {
  CpuLimits limits;
  CPU_ZERO(&limits.mask);
  // The main thread's mask is the process's: a caller may have pinned its own thread to one CPU.
  if (::sched_getaffinity(::getpid(), sizeof(limits.mask), &limits.mask) == 0) {
    limits.allowed = std::max(1, CPU_COUNT(&limits.mask));
  } else {
    limits.allowed = static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  }
  limits.allowed = smaller(limits.allowed, cgroup_cpus(""));
  limits.threads = smaller(limits.allowed, threads_from_environment());
  return limits;
}

}  // namespace cudaexec

#!/usr/bin/env bash
# Builds cudaexec on a machine with NVIDIA GPUs and runs what needs one, in stages chosen by name:
#
#   tests/gpu/run.sh [build] [cpu] [tiny] [gpu] [cases] [compilers] [sanitizer] [cycles] [two] [bench] [bench_call] [kv] [bench_kv]
#
# Such a machine has torch for CUDA, triton, pybind11, scikit-build-core, cmake, ninja, pytest and
# xdist, and no network: what it lacks comes as wheels from $WHEELS. A stage that fails does not stop
# the next ones; the summary comes last, and the exit status is 1 if any stage failed.
#
#   OUT=dir        receives logs and the summary, and generated sources if a stage failed (8 files)
#   BUDGET=570     seconds for all stages together; each has a limit of its own below it
#   K=expression   given to pytest -k in the stages that run pytest
#   JOBS=n         compile jobs and test processes; default: the number of processors
set -u
SELF=$(readlink -f "$0")
ROOT=$(cd "$(dirname "$SELF")/../.." && pwd)
cd "$ROOT" || exit 1
export OUT=${OUT:-$ROOT/.gpu/out} WHEELS=${WHEELS:-$ROOT/.gpu/wheels} WORK=${WORK:-/tmp/cudaexec-gpu}
export JOBS=${JOBS:-$(nproc)} PYTHON=${PYTHON:-python3} K=${K:-}
BUDGET=${BUDGET:-570}

pytests() {
  exec "$PYTHON" -m pytest -q -p no:cacheprovider -p no:benchmark --durations=8 --tb=short ${K:+-k "$K"} "$@"
}

facts() {
  nvidia-smi --query-gpu=index,name,driver_version,memory.total --format=csv,noheader
  "$PYTHON" - <<'PY'
import importlib.metadata as metadata
import sys
import torch
print("python", sys.version.split()[0], "torch", torch.__version__, torch.cuda.get_device_capability())
for name in ("triton numpy pybind11 scikit-build-core cmake ninja pytest pytest-xdist rich typer ml_dtypes "
             "xxhash psutil transformers torchvision cuda-core flatbuffers").split():
    try:
        print(name, metadata.version(name), end="; ")
    except metadata.PackageNotFoundError:
        print(name, "-", end="; ")
print()
PY
  /usr/bin/g++ --version | head -1
  echo "default CXX: ${DEFAULT_CXX:-none}"
  nvcc --version | tail -2
}

build() {
  set -e
  "$PYTHON" -m pip install -q --no-index --no-deps "$WHEELS"/*.whl
  CMAKE_BUILD_PARALLEL_LEVEL=$JOBS "$PYTHON" -m pip install -v --no-build-isolation --no-deps --no-index "$ROOT"
  cd /
  "$PYTHON" -c 'import cudaexec; print("cudaexec", cudaexec.__version__, "in", cudaexec.__path__[0])'
}

run_stage() {
  case $1 in
    facts) facts ;;
    build) build ;;
    cpu) pytests -n "$JOBS" -m "not gpu" tests/test_models.py tests/export tests/binding ;;
    tiny) exec "$PYTHON" tests/gpu/tiny.py ;;
    gpu)
      # Eight processes compile at once, each with two of Inductor's own.
      export TORCHINDUCTOR_COMPILE_THREADS=2
      pytests -n 8 -m "gpu and not alone" tests/gpu tests/cuda_ops --junitxml="$WORK/logs/gpu.xml" ;;
    cases)
      export TORCHINDUCTOR_COMPILE_THREADS=2 CUDAEXEC_CASES_TARGET=cuda
      pytests -n 8 -m "not alone" tests/cases/test_{[1-5],[89],1[0124]}_*.py ;;
    compilers) pytests -m gpu tests/gpu/test_gpu_compilers.py ;;
    sanitizer)
      mkdir -p "$WORK/sanitizer" && "$PYTHON" tests/gpu/sanitizer_subset.py --export "$WORK/sanitizer" &&
        CUDAEXEC_SANITIZER_PROGRAMS=$WORK/sanitizer exec compute-sanitizer --tool memcheck \
          --leak-check full --error-exitcode 9 "$PYTHON" tests/gpu/sanitizer_subset.py ;;
    cycles)
      export CUDAEXEC_CASES_TARGET=cuda
      pytests -m "gpu and alone" tests/gpu tests/cases ;;
    two) pytests -n 4 -m "gpu and two_gpus" tests/gpu ;;
    bench) exec "$PYTHON" benchmarks/bench_gpu.py ;;
    bench_call) exec "$PYTHON" benchmarks/bench_call.py ;;
    kv)
      pytests -n 8 -m "gpu and not alone" tests/gpu/test_gpu_kv.py tests/cuda_ops/test_device_kv.py
      ;;
    bench_kv)
      "$PYTHON" -m pytest -q -s -p no:cacheprovider -m "gpu and alone" tests/gpu/test_gpu_kv.py
      exec "$PYTHON" benchmarks/bench_kv.py ;;
    *) echo "no such stage: $1"; return 2 ;;
  esac
}

if [ "${1:-}" = --stage ]; then
  run_stage "$2"
  exit
fi

export DEFAULT_CXX=${CXX:-}
export CXX=/usr/bin/g++ CC=/usr/bin/gcc
export CUDAEXEC_CACHE=$WORK/cache CUDAEXEC_PCH=1 CUDAEXEC_GPU_SOURCES=$WORK/sources
export PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
mkdir -p "$OUT" "$WORK/logs" "$CUDAEXEC_CACHE" "$CUDAEXEC_GPU_SOURCES"
: > "$WORK/summary"
failed=0

for name in facts "$@"; do
  log=$WORK/logs/$name.log
  left=$((BUDGET - SECONDS))
  if [ "$left" -lt 10 ]; then
    echo "$name: not run, no time left" >> "$WORK/summary"
    failed=1
    continue
  fi
  begin=$SECONDS
  timeout -k 5 "$left" bash "$SELF" --stage "$name" > "$log" 2>&1 < /dev/null
  status=$?
  [ $status -ne 0 ] && failed=1
  [ $status -eq 124 ] && echo "[stopped after $left s]" >> "$log"
  echo "=== $name: status $status, $((SECONDS - begin)) s"
  lines=45
  [ "$name" = build ] && [ $status -eq 0 ] && lines=2
  tail -n $lines "$log" | cut -c1-200
  echo "$name: status $status, $((SECONDS - begin)) s" >> "$WORK/summary"
done

tail -c 15000000 "$WORK"/logs/*.log | gzip > "$OUT/logs.txt.gz"
[ $failed -ne 0 ] && tar -C "$WORK" -cJf - sources | head -c 16000000 > "$OUT/sources.tar.xz"
cp "$WORK/summary" "$OUT/summary.txt"
echo "=== summary"
cat "$WORK/summary"
exit $failed

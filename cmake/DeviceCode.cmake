# Compiles cuda/*.cu into fat binaries (sm_80, sm_90, PTX for newer GPUs) and puts them into a library as
# plain data; the driver loads them from memory. Only nvcc is used, no CUDA library and no header at run
# time. Without nvcc the library has no device code of its own and runs CPU programs only.

set(CUDAEXEC_CUDA AUTO CACHE STRING "Compile device code with nvcc: ON, OFF or AUTO (if nvcc is found)")
set_property(CACHE CUDAEXEC_CUDA PROPERTY STRINGS AUTO ON OFF)

set(CUDAEXEC_CUDA_GENCODE
    -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90
    -gencode arch=compute_80,code=compute_80)

function(_cudaexec_find_nvcc)
  set(_hints "$ENV{CUDA_HOME}/bin" "$ENV{CUDA_PATH}/bin" /usr/local/cuda/bin)
  foreach(_site IN LISTS _site_dirs)
    list(APPEND _hints "${_site}/nvidia/cu13/bin" "${_site}/nvidia/cuda_nvcc/bin")
  endforeach()
  find_program(CUDAEXEC_NVCC nvcc HINTS ${_hints})
endfunction()

# Adds the images and their list (device_images() of device/cuda/device_kernels.h) to `target`.
function(cudaexec_add_device_code target)
  include("${CMAKE_SOURCE_DIR}/cuda/sources.cmake")
  if(NOT CUDAEXEC_CUDA MATCHES "^(ON|OFF|AUTO)$")
    message(FATAL_ERROR "CUDAEXEC_CUDA is ${CUDAEXEC_CUDA}; it must be ON, OFF or AUTO")
  endif()
  set(_images "")
  if(CUDAEXEC_CUDA STREQUAL "OFF")
    message(STATUS "Device code: none (CUDAEXEC_CUDA=OFF)")
  else()
    _cudaexec_find_nvcc()
    if(CUDAEXEC_NVCC)
      set(_images ${CUDAEXEC_DEVICE_CODE})
      message(STATUS "Device code: sm_80, sm_90 and PTX by ${CUDAEXEC_NVCC}")
    elseif(CUDAEXEC_CUDA STREQUAL "ON")
      message(FATAL_ERROR "CUDAEXEC_CUDA=ON, but there is no nvcc; put it on PATH or set CUDA_HOME")
    else()
      message(STATUS "Device code: none (no nvcc)")
    endif()
  endif()

  set(_declarations "")
  set(_entries "")
  foreach(_source IN LISTS _images)
    get_filename_component(_stem "${_source}" NAME_WE)
    set(_fatbin "${CMAKE_CURRENT_BINARY_DIR}/device_code/${_stem}.fatbin")
    add_custom_command(
      OUTPUT "${_fatbin}"
      COMMAND "${CMAKE_COMMAND}" -E make_directory "${CMAKE_CURRENT_BINARY_DIR}/device_code"
      COMMAND "${CUDAEXEC_NVCC}" -fatbin -std=c++17 -O3 --compress-mode=none -Werror all-warnings
              -ccbin "${CMAKE_CXX_COMPILER}" ${CUDAEXEC_CUDA_GENCODE} -I "${CMAKE_SOURCE_DIR}/cpp"
              -MMD -MF "${_fatbin}.d" -o "${_fatbin}" "${CMAKE_SOURCE_DIR}/cuda/${_source}"
      DEPENDS "${CMAKE_SOURCE_DIR}/cuda/${_source}"
      DEPFILE "${_fatbin}.d"
      COMMENT "Device code ${_stem}" VERBATIM)
    string(APPEND _declarations "CUDAEXEC_IMAGE(${_stem}, \"${_fatbin}\")\n")
    string(APPEND _entries "    {\"${_stem}\", cudaexec_image_${_stem}},\n")
    list(APPEND _fatbins "${_fatbin}")
  endforeach()

  set(CUDAEXEC_IMAGE_DECLARATIONS "${_declarations}")
  set(CUDAEXEC_IMAGE_ENTRIES "${_entries}")
  set(_list "${CMAKE_CURRENT_BINARY_DIR}/generated/device_images.cpp")
  configure_file("${CMAKE_SOURCE_DIR}/cpp/device/cuda/device_images.cpp.in" "${_list}" @ONLY)
  if(_images)
    set_source_files_properties("${_list}" PROPERTIES OBJECT_DEPENDS "${_fatbins}")
  endif()
  target_sources(${target} PRIVATE "${_list}")
endfunction()

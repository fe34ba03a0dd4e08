# Runs flatc at build time: <build>/cpp/generated/format/{scalar_type,program,flat_tensor}_generated.h.
# Only cpp/format/*.cpp include these headers.

set(_generated "${CMAKE_CURRENT_BINARY_DIR}/generated/format")
set(_schemas "${CMAKE_CURRENT_SOURCE_DIR}/format/scalar_type.fbs"
             "${CMAKE_CURRENT_SOURCE_DIR}/format/program.fbs"
             "${CMAKE_CURRENT_SOURCE_DIR}/format/flat_tensor.fbs")
set(CUDAEXEC_FORMAT_GENERATED "${_generated}/scalar_type_generated.h"
                              "${_generated}/program_generated.h"
                              "${_generated}/flat_tensor_generated.h")
add_custom_command(
  OUTPUT ${CUDAEXEC_FORMAT_GENERATED}
  COMMAND "${CUDAEXEC_FLATC}" --cpp --cpp-std c++17 --scoped-enums -o "${_generated}" ${_schemas}
  DEPENDS ${_schemas}
  COMMENT "Generating the flatbuffers code of the file formats"
  VERBATIM)

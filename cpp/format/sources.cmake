# Sources of cpp/format, relative to cpp/.
set(CUDAEXEC_FORMAT_SOURCES
    format/delegate_payload.cpp
    format/expression.cpp
    format/format_fault.cpp
    format/json_value.cpp
    format/manifest.cpp
    format/manifest_method.cpp
    format/manifest_values.cpp
    format/mapped_file.cpp
    format/program_digest.cpp
    format/ptd_reader.cpp
    format/pte_method.cpp
    format/pte_reader.cpp
)

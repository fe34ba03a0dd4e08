# Sources of cpp/format, relative to cpp/.
set(CUDAEXEC_FORMAT_SOURCES
    format/delegate_payload.cpp
    format/expression.cpp
    format/format_fault.cpp
    format/json_value.cpp
    format/manifest.cpp
    format/manifest_kv.cpp
    format/manifest_method.cpp
    format/manifest_values.cpp
    format/mapped_file.cpp
    format/program_digest.cpp
    format/ptd_reader.cpp
    format/pte_method.cpp
    format/pte_reader.cpp
)
# GCC 12 at -O3 takes a string assignment for an overlapping copy (its bug 105651).
set_source_files_properties(format/manifest_method.cpp PROPERTIES COMPILE_OPTIONS -Wno-restrict)

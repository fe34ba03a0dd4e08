// Visibility of the names that libcudaexec_shims.so shows to the extension and to generated code.
#pragma once

#define CUDAEXEC_API __attribute__((visibility("default")))

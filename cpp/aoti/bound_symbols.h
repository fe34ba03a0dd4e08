// Which files the loader bound an open library's symbols to: the proof that generated code runs on
// our shims whatever else is in the process.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "aoti/shared_object.h"

namespace cudaexec {

using SymbolOwners = std::vector<std::pair<std::string, std::string>>;

/// (symbol, path of the file that holds the address it is bound to) for every relocation of
/// `library` against a symbol that it does not define itself; "" where the address is in no file.
CUDAEXEC_API SymbolOwners bound_symbol_owners(const SharedObject& library);

/// The same of a library that is in the process under `path`. Functions that are bound at their
/// first call and were not called yet count as bound to the library itself.
/// @throws InputError if it is not loaded.
CUDAEXEC_API SymbolOwners bound_symbol_owners(const std::string& path);

}  // namespace cudaexec

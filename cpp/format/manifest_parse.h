// The parts of the manifest's parser. Internal to cpp/format.
#pragma once

#include "format/json_value.h"
#include "format/manifest.h"

namespace cudaexec {

/// null, boolean, integer, float, text, or {"float": "nan" | "inf" | "-inf"}.
Scalar parse_scalar(const JsonCursor& json);

/// A tree, with num_leaves filled in at every node.
Tree parse_tree(const JsonCursor& json);

/// An integer, the name of one of `symbols`, or a list in postfix order.
Expression parse_expression(const JsonCursor& json, const std::vector<Symbol>& symbols);
/// Whether a symbol may not have this name.
bool is_operator_name(std::string_view name) noexcept;

/// One method; `manifest` holds the code and weights that it may refer to.
MethodSpec parse_method_spec(const JsonCursor& json, const Manifest& manifest);

/// The program's KV cache.
KvCacheSpec parse_kv_cache(const JsonCursor& json);
/// A method's use of `cache` (null: the program has none); the rest of `method` is known.
KvMethodSpec parse_kv_method(const JsonCursor& json, const KvCacheSpec* cache,
                             const MethodSpec& method);

Dtype parse_dtype(const JsonCursor& json);
/// "cpu" or "cuda" as torch's device type.
int32_t parse_device(const JsonCursor& json);

}  // namespace cudaexec

#include "format/manifest.h"

#include <algorithm>

#include "base/error.h"
#include "base/str.h"
#include "base/tree_hash.h"
#include "base/version.h"
#include "format/format_fault.h"
#include "format/manifest_parse.h"

namespace cudaexec {
namespace {

constexpr int64_t kManifestVersion = 1;
constexpr size_t kSha256Digits = 64;
constexpr size_t kTreeHashDigits = 32;

std::string parse_digest(const JsonCursor& json, size_t digits) {
  const std::string& text = json.text();
  const bool hex = std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  if (!hex || text.size() != digits)
    json.fail(str(quote(text), "; ", digits, " lower-case hexadecimal digits expected"));
  return text;
}

BlobDigest parse_blob(const JsonCursor& json, const char* digest_key, size_t digits) {
  BlobDigest blob;
  blob.nbytes = json.at("nbytes", [](const JsonCursor& n) { return n.count(); });
  blob.digest =
      json.at(digest_key, [&](const JsonCursor& digest) { return parse_digest(digest, digits); });
  return blob;
}

/// Texts by name; null means "not known" and is left out.
std::map<std::string, std::string> parse_texts(const JsonCursor& json) {
  std::map<std::string, std::string> result;
  json.members([&](const std::string& key, const JsonCursor& value) {
    if (!value.is_null()) result.emplace(key, value.text());
  });
  return result;
}

void check_format_and_version(const JsonCursor& json, const std::string& path, Manifest& manifest) {
  json.at("format", [](const JsonCursor& format) {
    if (format.text() != "cudaexec")
      format.fail(str(quote(format.text()), "; 'cudaexec' expected"));
  });
  manifest.version =
      json.at("version", [](const JsonCursor& v) { return v.integer(1, INT64_MAX); });
  if (manifest.version == kManifestVersion) return;
  std::string producer;
  json.if_there("producer", [&](const JsonCursor& p) {
    p.if_there("cudaexec", [&](const JsonCursor& name) { producer = name.text(); });
  });
  throw VersionError(str(path, ": manifest version ", manifest.version, ", written by cudaexec ",
                         producer.empty() ? "of an unknown version" : producer,
                         "; this is cudaexec ", kVersion, ", which reads version ",
                         kManifestVersion, ": update cudaexec or export the model again"));
}

void parse_weights(const JsonCursor& json, Manifest& manifest) {
  std::string lines;
  json.at("entries", [&](const JsonCursor& entries) {
    entries.members([&](const std::string& key, const JsonCursor& entry) {
      const BlobDigest blob = parse_blob(entry, "digest", kTreeHashDigits);
      lines += str(key, " ", blob.nbytes, " ", blob.digest, "\n");
      manifest.weights.emplace(key, blob);
    });
  });
  if (manifest.weights.empty()) return;
  json.at("digest", [&](const JsonCursor& digest) {
    manifest.weights_digest = parse_digest(digest, kTreeHashDigits);
    const std::string found = hash_hex(tree_hash(std::as_bytes(std::span(lines))));
    if (found != manifest.weights_digest)
      digest.fail(str("the entries have digest ", found, ", not ", manifest.weights_digest));
  });
}

void parse_aliases(const JsonCursor& json, Manifest& manifest) {
  json.members([&](const std::string& fqn, const JsonCursor& target) {
    const std::string& name = target.nonempty_text();
    const bool stored = manifest.weights.contains("cuda_fqn_weight:cpu:" + name) ||
                        manifest.weights.contains("cuda_fqn_weight:cuda:" + name);
    if (!stored) target.fail(str("alias target ", quote(name), " has no weights entry"));
    manifest.aliases.emplace(fqn, name);
  });
}

}  // namespace

Manifest parse_manifest(std::string_view text, const std::string& path) {
  const JsonValue root = parse_json(text, path);
  const JsonCursor json(root, path);
  Manifest manifest;
  check_format_and_version(json, path, manifest);
  json.if_there("producer", [&](const JsonCursor& p) { manifest.producer = parse_texts(p); });
  json.if_there("platform", [&](const JsonCursor& p) { manifest.platform = parse_texts(p); });
  json.at("code", [&](const JsonCursor& code) {
    code.members([&](const std::string& key, const JsonCursor& entry) {
      manifest.code.emplace(key, parse_blob(entry, "sha256", kSha256Digits));
    });
  });
  json.if_there("weights", [&](const JsonCursor& weights) { parse_weights(weights, manifest); });
  json.if_there("aliases", [&](const JsonCursor& aliases) { parse_aliases(aliases, manifest); });
  json.if_there("kv_cache", [&](const JsonCursor& kv) { manifest.kv_cache = parse_kv_cache(kv); });
  json.at("methods", [&](const JsonCursor& methods) {
    methods.each([&](const JsonCursor& method) {
      MethodSpec spec = parse_method_spec(method, manifest);
      const auto same_name = [&](const MethodSpec& other) { return other.name == spec.name; };
      if (std::ranges::any_of(manifest.methods, same_name))
        method.fail(str("method ", quote(spec.name), " occurs twice"));
      manifest.methods.push_back(std::move(spec));
    });
    if (manifest.methods.empty()) methods.fail("there are no methods");
  });
  return manifest;
}

}  // namespace cudaexec

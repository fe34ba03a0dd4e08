#include "format/pte_reader.h"

#include <unordered_set>

#include "base/checked_math.h"
#include "base/error.h"
#include "format/program_digest.h"
#include "format/pte_parse.h"

namespace cudaexec {
namespace {

namespace fb = executorch_flatbuffer;

constexpr uint64_t kIdentifierOffset = 4;
constexpr uint64_t kHeaderOffset = 8;
constexpr uint64_t kMinFileBytes = 12;
constexpr uint32_t kMinHeaderLength = 24;
constexpr uint32_t kHeaderLength = 32;
constexpr std::string_view kHeaderMagic = "eh00";
constexpr uint64_t kMaxProgramBytes = (uint64_t{1} << 31) - 1;

std::string_view text_at(std::span<const std::byte> bytes, uint64_t offset) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()) + offset, 4};
}

}  // namespace

/// Fills a PteFile step by step; each step relies on the ones before it.
class PteParser {
 public:
  explicit PteParser(PteFile& file)
      : out_(file), bytes_(file.file_->bytes()), path_(file.file_->path()) {}

  void parse() {
    check_identifier();
    parse_header();
    const auto program_bytes = bytes_.first(out_.header_.program_size);
    FlatbufferView view(program_bytes, path_);
    const fb::Program& program = verify(program_bytes);
    parse_segments(view, program);
    parse_named_data(view, program);
    parse_subsegments(view, program);
    ProgramContext context{view, program, out_.segments_, out_.constant_segment_,
                           out_.mutable_segments_};
    parse_methods(context);
  }

 private:
  [[noreturn]] void fail(uint64_t offset, const std::string& what) const {
    throw_format_error(path_, offset, what);
  }

  void check_identifier() const {
    if (bytes_.size() < kMinFileBytes)
      fail(bytes_.size(), str("the file ends here; a .pte program has at least ", kMinFileBytes,
                              " bytes; it is truncated: copy or export it again"));
    const std::string_view found = text_at(bytes_, kIdentifierOffset);
    if (found == "ET12") return;
    fail(kIdentifierOffset, str("file identifier ", quote(found), ", 'ET12' expected: ",
                                found == "FT01" ? "this is a .ptd data file, not a program"
                                                : "this is no .pte program"));
  }

  void parse_header() {
    PteHeader& header = out_.header_;
    if (text_at(bytes_, kHeaderOffset) != kHeaderMagic) {
      header.program_size = bytes_.size();
      return check_program_size();
    }
    header.present = true;
    if (bytes_.size() < kHeaderOffset + kMinHeaderLength)
      fail(bytes_.size(), "the file ends inside its header; it is truncated");
    header.length = read_number<uint32_t>(bytes_, 12);
    if (header.length < kMinHeaderLength)
      fail(12, str("header length ", header.length, "; at least ", kMinHeaderLength, " expected"));
    if (header.length > bytes_.size() - kHeaderOffset)
      fail(12, str("header length ", header.length, " in a file of ", bytes_.size(), " bytes"));
    header.program_size = read_number<uint64_t>(bytes_, 16);
    header.segment_base_offset = read_number<uint64_t>(bytes_, 24);
    if (header.program_size > bytes_.size() || header.program_size < kHeaderOffset + header.length)
      fail(16,
           str("program size ", header.program_size, " in a file of ", bytes_.size(),
               " bytes with a header of ", header.length, "; the file is truncated or damaged"));
    check_program_size();
    check_segment_area();
  }

  void check_program_size() const {
    if (out_.header_.program_size >= kMaxProgramBytes)
      fail(16, str("program of ", out_.header_.program_size, " bytes; below 2 GiB expected"));
  }

  void check_segment_area() {
    PteHeader& header = out_.header_;
    if (header.segment_base_offset == 0) {  // no segments
      if (header.length >= kHeaderLength && read_number<uint64_t>(bytes_, 32) != 0)
        fail(24, "segment data without a segment base");
      return;
    }
    if (header.segment_base_offset < header.program_size ||
        header.segment_base_offset > bytes_.size())
      fail(24, str("segment base ", header.segment_base_offset, "; between the program's end ",
                   header.program_size, " and the file's end ", bytes_.size(),
                   " expected; the file is truncated or damaged"));
    const uint64_t available = bytes_.size() - header.segment_base_offset;
    header.segment_data_size =
        header.length >= kHeaderLength ? read_number<uint64_t>(bytes_, 32) : available;
    if (header.segment_data_size > available)
      fail(32, str("segment data of ", header.segment_data_size, " bytes from ",
                   header.segment_base_offset, " in a file of ", bytes_.size(),
                   "; the file is truncated: copy or export it again"));
  }

  const fb::Program& verify(std::span<const std::byte> program_bytes) const {
    flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(program_bytes.data()),
                                   program_bytes.size(), verifier_options());
    if (!fb::VerifyProgramBuffer(verifier))
      fail(0, "the program's tables are damaged: an offset or a length points outside the file");
    const fb::Program& program = *fb::GetProgram(program_bytes.data());
    if (program.version() != 0)
      throw VersionError(str(path_, ": program schema version ", program.version(),
                             "; this cudaexec reads version 0; a newer one is needed"));
    return program;
  }

  void parse_segments(FlatbufferView& view, const fb::Program& program) {
    const auto* segments = program.segments();
    if (segments == nullptr) return;
    const PteHeader& header = out_.header_;
    out_.segments_.reserve(segments->size());
    for (const fb::DataSegment* segment : *segments) {
      if (!range_inside(segment->offset(), segment->size(), header.segment_data_size))
        view.fail(segment, str("segment ", out_.segments_.size(), " is ", segment->offset(), "+",
                               segment->size(), " in segment data of ", header.segment_data_size,
                               " bytes; the file is truncated or damaged"));
      const uint64_t offset = header.segment_base_offset + segment->offset();
      out_.segments_.push_back({bytes_.subspan(offset, segment->size()), offset});
    }
    check_segment_overlap(out_.segments_, path_);
  }

  void parse_named_data(FlatbufferView& view, const fb::Program& program) {
    const auto* entries = program.named_data();
    if (entries == nullptr) return;
    out_.named_data_.reserve(entries->size());
    for (const fb::NamedData* entry : *entries) {
      const std::string_view key = view.text(entry->key());
      if (key.empty()) view.fail(entry, "named data without a key");
      if (entry->segment_index() >= out_.segments_.size())
        view.fail(entry, str("named data ", quote(key), " in segment ", entry->segment_index(),
                             " of ", out_.segments_.size()));
      if (!out_.named_index_.emplace(key, out_.named_data_.size()).second)
        view.fail(entry, str("named data ", quote(key), " occurs twice"));
      out_.named_data_.push_back(
          {key, out_.segments_[entry->segment_index()], entry->segment_index()});
    }
  }

  PteSubsegments subsegments(FlatbufferView& view, const fb::SubsegmentOffsets* table,
                             const char* what) {
    if (table == nullptr) return {};
    const PteSubsegments result{table->segment_index(), view.numbers(table->offsets())};
    // One offset is the placeholder of an empty segment, which may not exist.
    if (result.offsets.size() <= 1 && result.segment_index >= out_.segments_.size()) return result;
    if (result.segment_index >= out_.segments_.size())
      view.fail(table, str(what, " segment ", result.segment_index, " of ", out_.segments_.size()));
    const uint64_t size = out_.segments_[result.segment_index].bytes.size();
    for (const uint64_t offset : result.offsets) {
      if (offset > size)
        view.fail(table, str(what, " tensor at ", offset, " in a segment of ", size, " bytes"));
    }
    return result;
  }

  void parse_subsegments(FlatbufferView& view, const fb::Program& program) {
    out_.constant_segment_ = subsegments(view, program.constant_segment(), "constant");
    if (program.mutable_data_segments() == nullptr) return;
    for (const fb::SubsegmentOffsets* table : *program.mutable_data_segments())
      out_.mutable_segments_.push_back(subsegments(view, table, "mutable data"));
  }

  void parse_methods(ProgramContext& context) {
    const auto* plans = context.program.execution_plan();
    if (plans == nullptr || plans->size() == 0)
      context.view.fail(&context.program, "the program has no methods");
    std::unordered_set<std::string_view> names;
    for (const fb::ExecutionPlan* plan : *plans) {
      out_.methods_.push_back(parse_method(*plan, context));
      if (!names.insert(out_.methods_.back().name).second)
        context.view.fail(plan, str("method ", quote(out_.methods_.back().name), " occurs twice"));
    }
  }

  PteFile& out_;
  std::span<const std::byte> bytes_;
  const std::string& path_;
};

std::shared_ptr<const PteFile> PteFile::open(const std::string& path) {
  std::shared_ptr<PteFile> file(new PteFile());
  file->file_ = MappedFile::open(path);
  PteParser(*file).parse();
  verify_program_digest(*file);
  return file;
}

const PteMethod* PteFile::find_method(std::string_view name) const noexcept {
  for (const PteMethod& method : methods_) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

const FileBlob* PteFile::find_named(std::string_view key) const noexcept {
  const auto found = named_index_.find(key);
  return found == named_index_.end() ? nullptr : &named_data_[found->second].blob;
}

}  // namespace cudaexec

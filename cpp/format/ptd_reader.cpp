#include "format/ptd_reader.h"

#include <bitset>

#include "base/checked_math.h"
#include "base/error.h"
#include "format/flat_tensor_generated.h"
#include "format/flatbuffer_view.h"

namespace cudaexec {
namespace {

namespace fb = flat_tensor_flatbuffer;

constexpr uint64_t kHeaderOffset = 8;
constexpr uint32_t kHeaderLength = 40;
constexpr size_t kMaxRank = 64;
constexpr uint64_t kMaxTableBytes = (uint64_t{1} << 31) - 1;

}  // namespace

/// Fills a PtdFile step by step; each step relies on the ones before it.
class PtdParser {
 public:
  explicit PtdParser(PtdFile& file)
      : out_(file), bytes_(file.file_->bytes()), path_(file.file_->path()) {}

  void parse() {
    check_magic();
    parse_header();
    const PtdHeader& header = out_.header_;
    const auto tables = bytes_.first(header.flatbuffer_offset + header.flatbuffer_size);
    FlatbufferView view(tables, path_);
    const fb::FlatTensor& root = verify(tables);
    parse_segments(view, root);
    parse_entries(view, root);
  }

 private:
  [[noreturn]] void fail(uint64_t offset, const std::string& what) const {
    throw_format_error(path_, offset, what);
  }

  [[nodiscard]] std::string_view text_at(uint64_t offset) const noexcept {
    return {reinterpret_cast<const char*>(bytes_.data()) + offset, 4};
  }

  void check_magic() const {
    if (bytes_.size() < kHeaderOffset + kHeaderLength)
      fail(bytes_.size(),
           str("the file ends here; a .ptd data file has at least ", kHeaderOffset + kHeaderLength,
               " bytes; it is truncated: copy or export it again"));
    if (text_at(4) != "FT01")
      fail(4, str("file identifier ", quote(text_at(4)), ", 'FT01' expected: ",
                  text_at(4) == "ET12" ? "this is a .pte program, not a data file"
                                       : "this is no .ptd data file"));
    if (text_at(kHeaderOffset) != "FH01")
      fail(kHeaderOffset, str("header magic ", quote(text_at(kHeaderOffset)), ", 'FH01' expected"));
  }

  void parse_header() {
    PtdHeader& header = out_.header_;
    header.length = read_number<uint32_t>(bytes_, 12);
    header.flatbuffer_offset = read_number<uint64_t>(bytes_, 16);
    header.flatbuffer_size = read_number<uint64_t>(bytes_, 24);
    header.segment_base_offset = read_number<uint64_t>(bytes_, 32);
    header.segment_data_size = read_number<uint64_t>(bytes_, 40);
    const uint64_t size = bytes_.size();
    if (header.length < kHeaderLength || header.length > size - kHeaderOffset)
      fail(12, str("header length ", header.length, "; ", kHeaderLength,
                   " or more expected in a file of ", size, " bytes"));
    if (header.flatbuffer_offset < kHeaderLength ||
        !range_inside(header.flatbuffer_offset, header.flatbuffer_size, size))
      fail(16, str("tables at ", header.flatbuffer_offset, "+", header.flatbuffer_size,
                   " in a file of ", size, " bytes; the file is truncated or damaged"));
    const uint64_t tables_end = header.flatbuffer_offset + header.flatbuffer_size;
    if (tables_end >= kMaxTableBytes)
      fail(24, str("tables of ", tables_end, " bytes; below 2 GiB expected"));
    if (header.segment_base_offset == 0 && header.segment_data_size == 0) return;
    if (header.segment_base_offset < tables_end ||
        !range_inside(header.segment_base_offset, header.segment_data_size, size))
      fail(32, str("segment data at ", header.segment_base_offset, "+", header.segment_data_size,
                   "; between the tables' end ", tables_end, " and the file's end ", size,
                   " expected; the file is truncated: copy or export it again"));
  }

  const fb::FlatTensor& verify(std::span<const std::byte> tables) const {
    flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(tables.data()), tables.size(),
                                   verifier_options());
    if (!fb::VerifyFlatTensorBuffer(verifier))
      fail(0, "the data file's tables are damaged: an offset or a length points outside the file");
    const fb::FlatTensor& root = *fb::GetFlatTensor(tables.data());
    if (root.version() != 0)
      throw VersionError(str(path_, ": data file schema version ", root.version(),
                             "; this cudaexec reads version 0; a newer one is needed"));
    return root;
  }

  void parse_segments(FlatbufferView& view, const fb::FlatTensor& root) {
    if (root.segments() == nullptr) return;
    const PtdHeader& header = out_.header_;
    out_.segments_.reserve(root.segments()->size());
    for (const fb::DataSegment* segment : *root.segments()) {
      if (!range_inside(segment->offset(), segment->size(), header.segment_data_size))
        view.fail(segment, str("segment ", out_.segments_.size(), " is ", segment->offset(), "+",
                               segment->size(), " in segment data of ", header.segment_data_size,
                               " bytes; the file is truncated or damaged"));
      const uint64_t offset = header.segment_base_offset + segment->offset();
      out_.segments_.push_back({bytes_.subspan(offset, segment->size()), offset});
    }
    check_segment_overlap(out_.segments_, path_);
  }

  void parse_entries(FlatbufferView& view, const fb::FlatTensor& root) {
    if (root.named_data() == nullptr) return;
    out_.entries_.reserve(root.named_data()->size());
    for (const fb::NamedData* table : *root.named_data()) {
      PtdEntry entry;
      entry.key = view.text(table->key());
      entry.segment_index = table->segment_index();
      if (entry.key.empty()) view.fail(table, "named data without a key");
      if (entry.segment_index >= out_.segments_.size())
        view.fail(table, str("named data ", quote(entry.key), " in segment ", entry.segment_index,
                             " of ", out_.segments_.size()));
      entry.blob = out_.segments_[entry.segment_index];
      if (table->tensor_layout() != nullptr)
        entry.layout = parse_layout(view, *table->tensor_layout(), entry);
      if (!out_.index_.emplace(entry.key, out_.entries_.size()).second)
        view.fail(table, str("named data ", quote(entry.key), " occurs twice"));
      out_.entries_.push_back(std::move(entry));
    }
  }

  PtdLayout parse_layout(FlatbufferView& view, const fb::TensorLayout& table,
                         const PtdEntry& entry) {
    const PtdLayout layout{static_cast<int32_t>(table.scalar_type()), view.numbers(table.sizes()),
                           view.numbers(table.dim_order())};
    const auto refuse = [&](const std::string& what) {
      view.fail(&table, str("layout of ", quote(entry.key), ": ", what));
    };
    if (!is_scalar_type(layout.scalar_type))
      refuse(str("unknown scalar type ", layout.scalar_type));
    const size_t rank = layout.sizes.size();
    if (rank > kMaxRank) refuse(str("rank ", rank, "; at most ", kMaxRank));
    std::optional<uint64_t> nbytes = scalar_type_size(layout.scalar_type);
    const bool whole_bytes = *nbytes != 0;
    for (const int32_t size : layout.sizes) {
      if (size < 0) refuse(str("sizes ", list_str(layout.sizes)));
      if (nbytes) nbytes = checked_mul<uint64_t>(*nbytes, static_cast<uint64_t>(size));
    }
    if (whole_bytes && nbytes != entry.blob.bytes.size())
      refuse(str("sizes ", list_str(layout.sizes), " do not fill the ", entry.blob.bytes.size(),
                 " bytes of its data"));
    std::bitset<kMaxRank> seen;
    for (const uint8_t dim : layout.dim_order) {
      if (dim < rank) seen.set(dim);
    }
    if (!layout.dim_order.empty() && (layout.dim_order.size() != rank || seen.count() != rank))
      refuse("the order of dimensions is no permutation");
    return layout;
  }

  PtdFile& out_;
  std::span<const std::byte> bytes_;
  const std::string& path_;
};

std::shared_ptr<const PtdFile> PtdFile::open(const std::string& path) {
  std::shared_ptr<PtdFile> file(new PtdFile());
  file->file_ = MappedFile::open(path);
  PtdParser(*file).parse();
  return file;
}

const PtdEntry* PtdFile::find(std::string_view key) const noexcept {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

}  // namespace cudaexec

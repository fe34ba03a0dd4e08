#include "runtime/weight_cache.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/fork_mutex.h"

namespace cudaexec {
namespace {

using TableKey = std::tuple<DeviceType, int32_t, std::string, std::string>;

struct Table {
  ForkMutex mutex;
  std::map<TableKey, Storage*> storages;  // without a reference; the entry's Ticket removes it
};

/// Outlives static destruction as long as a weight does: every Ticket holds it.
const std::shared_ptr<Table>& table() {
  static const std::shared_ptr<Table> instance = std::make_shared<Table>();
  return instance;
}

/// What a weight's storage keeps alive. It goes with the storage, and the table's entry with it.
struct Ticket {
  std::shared_ptr<Table> table;
  TableKey key;
  Storage* storage = nullptr;
  std::shared_ptr<const void> mapping;
  StoragePtr copy;

  Ticket() = default;
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket() {
    if (table == nullptr) return;
    const std::lock_guard lock(table->mutex);
    const auto found = table->storages.find(key);
    // A newer storage may have taken the place while this one was on its way out.
    if (found != table->storages.end() && found->second == storage) table->storages.erase(found);
  }
};

StoragePtr make_storage(const std::shared_ptr<Ticket>& ticket, Device device,
                        std::span<const std::byte> bytes, size_t alignment) {
  // The mapping is read-only; nothing writes to a storage that is marked constant.
  void* data = const_cast<std::byte*>(bytes.data());
  if (reinterpret_cast<uintptr_t>(data) % alignment != 0) {
    ticket->copy = Storage::allocate(bytes.size(), device, cpu_allocator(), {});
    if (!bytes.empty()) std::memcpy(ticket->copy->data(), bytes.data(), bytes.size());
    data = ticket->copy->data();
    ticket->mapping.reset();
  }
  return Storage::borrow(data, bytes.size(), device, ticket);
}

TableKey table_key(const WeightKey& key) {
  return {key.device.type, key.device.index, key.fqn, key.digest};
}

/// Enters `made` into the table, or gives the storage that is there already.
StoragePtr enter(const WeightKey& key, const std::shared_ptr<Ticket>& ticket, StoragePtr made) {
  made->mark_constant();
  if (key.digest.empty()) return made;
  ticket->key = table_key(key);
  const auto& shared = table();
  // Made outside the lock: a storage that turns out to be superfluous runs its destructor after it.
  const std::lock_guard lock(shared->mutex);
  Storage*& entry = shared->storages[ticket->key];
  if (entry != nullptr && entry->try_add_ref()) return StoragePtr(entry);
  entry = made.get();
  ticket->storage = made.get();
  ticket->table = shared;
  return made;
}

}  // namespace

StoragePtr shared_weight(const WeightKey& key, std::span<const std::byte> bytes, size_t alignment,
                         std::shared_ptr<const void> mapping) {
  auto ticket = std::make_shared<Ticket>();
  ticket->mapping = std::move(mapping);
  return enter(key, ticket, make_storage(ticket, key.device, bytes, alignment));
}

StoragePtr find_shared_weight(const WeightKey& key) {
  if (key.digest.empty()) return {};
  const auto& shared = table();
  const std::lock_guard lock(shared->mutex);
  const auto found = shared->storages.find(table_key(key));
  if (found == shared->storages.end() || !found->second->try_add_ref()) return {};
  return StoragePtr(found->second);
}

StoragePtr share_weight(const WeightKey& key, StoragePtr filled) {
  auto ticket = std::make_shared<Ticket>();
  ticket->copy = std::move(filled);
  const Storage& copy = *ticket->copy;
  return enter(key, ticket,
               Storage::borrow(copy.data(), copy.nbytes(), copy.device(), ticket, copy.stream()));
}

size_t shared_weight_count() {
  const std::lock_guard lock(table()->mutex);
  return table()->storages.size();
}

}  // namespace cudaexec

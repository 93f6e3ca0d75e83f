// Values that kernels of several graphs use alike: made once, shared while one of them lives.

#ifndef SPILLWAY_HOST_SHARED_VALUES_H_
#define SPILLWAY_HOST_SHARED_VALUES_H_

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

namespace spillway::host {

// Thread-safe; one maker at a time. Make one with `new` that is never destroyed: kernels may
// outlive statics.
template <typename Key, typename Value>
class SharedValues {
 public:
  // The value of `key` while somebody has it, else what `make` returns: a
  // std::shared_ptr<const Value>.
  template <typename Make>
  std::shared_ptr<const Value> Get(const Key& key, const Make& make) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::weak_ptr<const Value>& known = values_[key];
    if (std::shared_ptr<const Value> value = known.lock()) return value;
    const std::shared_ptr<const Value> value = make();
    known = value;
    ForgetTheDead();
    return value;
  }

 private:
  // Seldom enough to cost nothing, often enough that at most half are dead.
  void ForgetTheDead() {
    if (values_.size() < 2 * alive_) return;
    std::erase_if(values_, [](const auto& entry) { return entry.second.expired(); });
    alive_ = values_.size() + 8;
  }

  std::mutex mutex_;
  std::map<Key, std::weak_ptr<const Value>> values_;
  size_t alive_ = 8;  // about; when they were last counted
};

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_SHARED_VALUES_H_

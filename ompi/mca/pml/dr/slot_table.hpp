/// \file
/// Numbers for requests that travel over the wire and come back: an index and a generation, so that
/// a stale or invented number finds nothing and no pointer ever leaves the process.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace ft::dr {

/// Not synchronised: lives under its peer's lock.
template <class T>
class SlotTable {
  public:
    /// \return a number that is never 0; 0 when there is no memory
    std::uint64_t add(T *object) noexcept
    {
        if (free_ == none) {
            try {
                slots_.push_back({nullptr, none, 1});
            } catch (...) {
                return 0;
            }
            free_ = static_cast<std::uint32_t>(slots_.size() - 1);
        }
        const std::uint32_t index = free_;
        Slot &slot = slots_[index];
        free_ = slot.next_free;
        slot.object = object;
        ++count_;
        return std::uint64_t{slot.generation} << 32 | index;
    }
    /// \return nullptr when the number is not, or no longer, given out
    T *find(std::uint64_t number) const noexcept
    {
        const auto index = static_cast<std::uint32_t>(number);
        if (index >= slots_.size() || slots_[index].generation != number >> 32) {
            return nullptr;
        }
        return slots_[index].object;
    }
    void remove(std::uint64_t number) noexcept
    {
        if (find(number) == nullptr) {
            return;
        }
        const auto index = static_cast<std::uint32_t>(number);
        Slot &slot = slots_[index];
        slot.object = nullptr;
        --count_;
        slot.generation = slot.generation == UINT32_MAX ? 1 : slot.generation + 1;
        slot.next_free = free_;
        free_ = index;
    }
    bool empty() const noexcept { return count_ == 0; }
    /// Memory that it has allocated beside itself.
    std::size_t allocated_bytes() const noexcept { return slots_.capacity() * sizeof(Slot); }
    /// Whether `which` holds of an object that has a number.
    template <class Which>
    bool any(Which which) const noexcept
    {
        return std::any_of(slots_.begin(), slots_.end(), [&](const Slot &slot) {
            return slot.object != nullptr && which(*slot.object);
        });
    }
    /// Every object that has a number.
    std::vector<T *> objects() const
    {
        std::vector<T *> all;
        for (const Slot &slot : slots_) {
            if (slot.object != nullptr) {
                all.push_back(slot.object);
            }
        }
        return all;
    }
    /// Takes every object out.
    std::vector<T *> take_all()
    {
        std::vector<T *> all;
        for (std::uint32_t i = 0; i < slots_.size(); ++i) {
            if (slots_[i].object != nullptr) {
                all.push_back(slots_[i].object);
                remove(std::uint64_t{slots_[i].generation} << 32 | i);
            }
        }
        return all;
    }

  private:
    static constexpr std::uint32_t none = UINT32_MAX;
    struct Slot {
        T *object;
        std::uint32_t next_free;
        std::uint32_t generation;
    };
    std::vector<Slot> slots_;
    std::uint32_t free_ = none;
    std::uint32_t count_ = 0;
};

} // namespace ft::dr

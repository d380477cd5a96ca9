/// \file
/// How long fragments are copied into shared memory.
///
/// A usual store waits until the line is in no other core's cache. Between cores that share their
/// last cache that is short; between others a copy of 32 KiB takes 10 us and more, where stores
/// past the caches take 1, and leave to the receiver to read from memory what near cores would pass
/// on quicker (docs/speed.md, "Where the time of a long message goes"). Which it is cannot be
/// asked: a virtual machine does not say it, and moves its processors. So the copies are timed.
#pragma once
#include <cstddef>
#include <cstdint>

#include "opal/ft/base/time.hpp"

namespace ft::dr {

/// Of one path. Guarded by the peer's lock.
class CopyWay {
  public:
    struct Next {
        bool past_caches = false;
        bool timed = false; ///< `took` is to be told
    };
    /// For the next fragment.
    Next next() noexcept
    {
        const bool due = ++since_ >= (past_caches_ ? looks_past_caches : looks_through_caches);
        if (due) {
            since_ = 0;
        }
        return {past_caches_ && !due, due};
    }

    /// A copy through the caches of so many bytes, without their sum. What was slow because the
    /// process was put aside is slow once only.
    void took(std::size_t bytes, base::Duration time) noexcept
    {
        const bool slow = time.ns() * slow_bytes_per_ns > static_cast<std::int64_t>(bytes);
        if (slow == past_caches_) {
            against_ = 0;
        } else if (++against_ == enough) {
            against_ = 0;
            past_caches_ = slow;
        }
    }

  private:
    /// Near cores copy 18 to 40, far ones 2 to 4. What goes past the caches arrives at 8 to 12.
    static constexpr std::int64_t slow_bytes_per_ns = 8;
    static constexpr std::uint8_t looks_through_caches = 8;
    /// Each of these takes as long as ten others.
    static constexpr std::uint8_t looks_past_caches = 64;
    static constexpr std::uint8_t enough = 3;

    std::uint8_t since_ = 0;
    std::uint8_t against_ = 0; ///< so many looks in a row spoke for the other way
    bool past_caches_ = false;
};

} // namespace ft::dr

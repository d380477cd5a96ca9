/// Messages of the protocol that a daemon did not use, by the reason. Pure values, one thread.
#pragma once

#include "opal/ft/membership/stabilizer.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ft::radixft {

class Drops {
  public:
    enum class Why : std::uint8_t {
        malformed,  ///< no message at all
        forged,     ///< its tag is wrong, or it speaks in another's name
        stale,      ///< of an old epoch, attempt or life, or from before the job began
        duplicate,  ///< taken before
        foreign,    ///< from one that is no member, or from another job
        unexpected, ///< means nothing in the state in which it finds its receiver
        no_room,    ///< as many as can be kept were waiting
    };
    static constexpr std::size_t reasons = static_cast<std::size_t>(Why::no_room) + 1;

    void count(Why why) { ++counts_[static_cast<std::size_t>(why)]; }
    std::uint64_t of(Why why) const { return counts_[static_cast<std::size_t>(why)]; }

    /// These and what the engine has dropped.
    Drops with(const membership::Counters &engine) const;

    std::uint64_t total() const;
    /// Those that no daemon of the job sends: somebody else does, or the network changes what it
    /// carries.
    std::uint64_t strange() const { return of(Why::malformed) + of(Why::forged); }
    /// "3 malformed, 5 forged": what is not zero; empty when all is.
    std::string text() const;

  private:
    std::array<std::uint64_t, reasons> counts_{};
};

} // namespace ft::radixft

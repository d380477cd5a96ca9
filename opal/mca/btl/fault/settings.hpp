/// \file
/// What the user asked btl/fault to do, read from the text of its MCA parameters.
///
/// Every parameter is registered as a string and read here: Open MPI's own conversion of numbers
/// takes what it understands and says nothing of the rest. No Open MPI header, no state.
#pragma once

#include "opal/ft/base/time.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ft::fault {

/// Which fragments are subject to faults.
enum class What : std::uint8_t {
    data, ///< everything that is not an acknowledgement
    acks, ///< acknowledgements of pml/dr
    all
};

enum class Direction : std::uint8_t { send, receive };

/// The text of each parameter as the user gave it; an empty text means not given.
struct Parameters {
    std::string drop;
    std::string duplicate;
    std::string corrupt;
    std::string reorder;
    std::string delay_us;
    std::string delay_percent;
    std::string kill_after;
    std::string kill_error;
    std::string kill_btl;
    std::string revive_after_ms;
    std::string only;
    std::string what;
    std::string direction;
    std::string seed;
    std::string ranks;
    std::string count_interval_ms;
    bool count = false;
};

/// Inclusive range of ranks.
struct RankRange {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
};

/// The same, understood. Percentages are kept as chances, 0 to 1.
struct Settings {
    double drop = 0;
    double duplicate = 0;
    double corrupt = 0;
    double reorder = 0;
    double delay = 0;
    base::Duration delay_time;
    /// Fragments in one direction that still pass before the path dies; 0: it does not.
    std::uint64_t kill_after = 0;
    bool kill_reports = false;     ///< the BTL's error is reported when the path dies
    std::string kill_btl;          ///< component name of the path that dies; empty: the first
    unsigned kill_instance = 0;    ///< which module of that component, from 0
    base::Duration revive_after;   ///< zero: dead for good
    std::vector<std::string> only; ///< component names; empty: all but self
    What what = What::all;
    bool on_send = true;
    bool on_receive = true;
    std::uint64_t seed = 1;
    std::vector<RankRange> ranks; ///< empty: all
    bool count = false;
    base::Duration count_interval; ///< zero: the counters are printed at the end only

    /// True when at least one fault can occur.
    [[nodiscard]] bool any_fault() const noexcept
    {
        return drop > 0 || duplicate > 0 || corrupt > 0 || reorder > 0 || delay > 0 ||
               kill_after > 0;
    }
    /// Whichever path first carries that many fragments is the one that dies.
    [[nodiscard]] bool kills_any() const noexcept { return kill_btl == "any"; }
    [[nodiscard]] bool has_rank(std::uint32_t rank) const noexcept;
    /// Whether the BTL component of that name is subject to faults.
    [[nodiscard]] bool has_btl(std::string_view name) const noexcept;
};

/// Why a parameter cannot be used; the three parts of the message that the user sees.
struct Complaint {
    std::string parameter; ///< without the prefix btl_fault_
    std::string value;
    std::string wanted; ///< what it may be, as the end of a sentence "It must be ..."
};

/// Reads `parameters` into `settings`.
/// \return true, or false with the first thing that is wrong in `complaint`; `settings` is then
/// unspecified.
[[nodiscard]] bool read_settings(const Parameters &parameters, Settings &settings,
                                 Complaint &complaint);

} // namespace ft::fault

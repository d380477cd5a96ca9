/// \file
/// The queue of shared-memory fragments that each process has under btl/vader, and what is missing
/// in it when a writer died between the two steps of adding to it.
///
/// Whoever adds a fragment puts its place into the queue's `tail` first, and then into the link of
/// the fragment that was the last before, or into `head` where there was none. One that dies
/// between both leaves a gap: what is behind it is never read. Worse, the owner waits for the link
/// in a loop of btl/vader's that nothing ends, once it comes there: it hangs in its progress
/// engine, for a death of somebody it may never have talked to. Of several hundred deaths on a
/// crowded node one does that.
///
/// What is behind the gap cannot be found, but for the last: its place is the tail. So that becomes
/// what follows the gap, and fragments between both are lost. pml/dr sends them again.
///
/// Vader's headers are not installed, so the layout is repeated here (Open MPI 4.1, 64 bits): a
/// place is the local rank of a segment's owner above 32 bits of offset in that segment; a segment
/// begins with 8 bytes of Open MPI's own, the second half of which is the owner's process number,
/// and then the queue; a fragment begins with its link.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ft::radixft {

class VaderQueue {
  public:
    using Place = std::int64_t;
    using Link = Place *;
    static constexpr Place nobody = -2;

    /// One process's segment as it is mapped here; begin is nullptr where it is not.
    struct Segment {
        std::byte *begin = nullptr;
        std::size_t bytes = 0;
        std::ptrdiff_t shift = 0; ///< of `begin` from where btl/vader has it mapped
    };
    /// Code of btl/vader in this process.
    struct Code {
        std::uintptr_t begin = 0;
        std::uintptr_t end = 0;
    };

    /// Of the process with local rank `own`, whose segment is one of these, by local rank.
    VaderQueue(std::vector<Segment> segments, std::size_t own, Code code);

    /// What a job's processes have mapped, by the text of /proc/self/maps: segments by local rank.
    struct Mapped {
        std::vector<Segment> segments;
        Code code;
    };
    static Mapped mapped(std::string_view maps, std::uint32_t jobid);
    /// Whose segment begins at an address, if any does.
    static std::optional<std::size_t> owner_at(std::string_view maps, std::uint32_t jobid,
                                               const std::byte *begin);

    /// As this process has mapped them, for as long as btl/vader does not unmap them, which
    /// MPI_Finalize does. Not usable() when this process has no such segment: without btl/vader, or
    /// with segments that have no name.
    static VaderQueue of(std::string_view maps, std::uint32_t jobid, std::uint32_t local_rank);

    bool usable() const noexcept { return head_ != nullptr; }

    struct Finding {
        enum Kind {
            whole,  ///< nothing is missing
            moving, ///< somebody was at it: look again
            gap,    ///< a link is missing, of a writer that is dead or has not got so far yet
        };
        Kind kind = whole;
        /// The missing one; nullptr: the head's, or that of the fragment that the owner has just
        /// taken and waits for, which stands in none but its registers.
        Link link = nullptr;
        Place tail = nobody;
        bool same_gap(const Finding &other) const noexcept
        {
            return kind == gap && other.kind == gap && link == other.link;
        }
    };
    /// Any thread, while others use the queue.
    Finding look() const noexcept;

    /// The link of a fragment that btl/vader has at `address`, if there may be one whose link is
    /// missing before `tail`; nullptr if not. Async-signal-safe.
    Link missing_at(std::uintptr_t address, Place tail) const noexcept;
    bool is_code(std::uintptr_t address) const noexcept
    {
        return address >= code_.begin && address < code_.end;
    }
    Link head() const noexcept { return head_; }
    /// The link of the fragment at a place; nullptr when there can be none.
    Link at(Place place) const noexcept;

    /// Puts in what was missing. \return false when it is there meanwhile
    static bool put(Link link, Place place) noexcept;

    /// The processes of the other segments.
    std::vector<std::int64_t> neighbours() const;

  private:
    std::vector<Segment> segments_;
    std::size_t own_;
    Code code_;
    Link head_ = nullptr;
    Link tail_ = nullptr;
};

} // namespace ft::radixft

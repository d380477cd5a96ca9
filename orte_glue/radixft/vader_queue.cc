#include "orte_glue/radixft/vader_queue.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace ft::radixft {

namespace {

constexpr std::size_t segment_head = 8; ///< opal_shmem_seg_hdr_t
constexpr std::size_t process_at = 4;
constexpr std::size_t queue_bytes = 128; ///< fragments begin behind it
constexpr std::size_t header_bytes = 48;
constexpr unsigned offset_bits = 32;
/// More than all fragments of a node's processes: who goes on longer goes round in circles.
constexpr int most_steps = 1 << 20;

VaderQueue::Place load(VaderQueue::Link link) noexcept
{
    return std::atomic_ref(*link).load(std::memory_order_acquire);
}

/// One line of /proc/self/maps: BEGIN-END PERMISSIONS OFFSET DEVICE INODE PATH.
struct Mapping {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    bool code = false;
    std::string_view path;
};

std::optional<Mapping> parse(std::string_view line)
{
    Mapping found;
    const char *const end = line.data() + line.size();
    const auto first = std::from_chars(line.data(), end, found.begin, 16);
    if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') {
        return std::nullopt;
    }
    const auto second = std::from_chars(first.ptr + 1, end, found.end, 16);
    const std::size_t path = line.find('/');
    if (second.ec != std::errc() || end - second.ptr < 5 || path == std::string_view::npos) {
        return std::nullopt;
    }
    found.code = second.ptr[3] == 'x';
    found.path = line.substr(path);
    return found;
}

template <typename Function>
void for_each_mapping(std::string_view maps, Function function)
{
    for (std::size_t at = 0; at < maps.size();) {
        const std::size_t end = std::min(maps.find('\n', at), maps.size());
        if (const auto mapping = parse(maps.substr(at, end - at))) {
            function(*mapping);
        }
        at = end + 1;
    }
}

/// The local rank of the segment's owner, of a file vader_segment.NODE.UID.JOB.RANK of this job.
std::optional<std::size_t> owner(std::string_view path, std::uint32_t jobid)
{
    constexpr std::string_view deleted = " (deleted)";
    constexpr std::string_view start = "/vader_segment.";
    if (path.ends_with(deleted)) {
        path.remove_suffix(deleted.size());
    }
    const std::size_t name = path.rfind('/');
    const std::size_t rank_dot = path.rfind('.');
    const std::size_t job_dot = path.rfind('.', rank_dot - 1);
    if (rank_dot == std::string_view::npos || job_dot == std::string_view::npos ||
        !path.substr(name).starts_with(start)) {
        return std::nullopt;
    }
    std::uint32_t job = 0;
    std::size_t rank = 0;
    std::from_chars(path.data() + job_dot + 1, path.data() + rank_dot, job, 16);
    const auto number =
        std::from_chars(path.data() + rank_dot + 1, path.data() + path.size(), rank);
    return number.ec == std::errc() && job == jobid ? std::optional(rank) : std::nullopt;
}

} // namespace

VaderQueue::VaderQueue(std::vector<Segment> segments, std::size_t own, Code code)
    : segments_(std::move(segments)), own_(own), code_(code)
{
    if (own < segments_.size() && segments_[own].begin != nullptr &&
        segments_[own].bytes > segment_head + queue_bytes) {
        head_ = reinterpret_cast<Link>(segments_[own].begin + segment_head);
        tail_ = head_ + 1;
    }
}

VaderQueue::Mapped VaderQueue::mapped(std::string_view maps, std::uint32_t jobid)
{
    constexpr std::size_t most_ranks = 65536; // vader's own limit is far below
    Mapped found;
    for_each_mapping(maps, [&found, jobid](const Mapping &mapping) {
        if (mapping.code && mapping.path.ends_with("/mca_btl_vader.so")) {
            found.code = {mapping.begin, mapping.end};
        }
        const auto rank = owner(mapping.path, jobid);
        if (rank && *rank < most_ranks) {
            found.segments.resize(std::max(found.segments.size(), *rank + 1));
            found.segments[*rank] = {reinterpret_cast<std::byte *>(mapping.begin),
                                     mapping.end - mapping.begin};
        }
    });
    return found;
}

std::optional<std::size_t> VaderQueue::owner_at(std::string_view maps, std::uint32_t jobid,
                                                const std::byte *begin)
{
    std::optional<std::size_t> found;
    for_each_mapping(maps, [&](const Mapping &mapping) {
        if (mapping.begin == reinterpret_cast<std::uintptr_t>(begin)) {
            found = owner(mapping.path, jobid);
        }
    });
    return found;
}

VaderQueue VaderQueue::of(std::string_view maps, std::uint32_t jobid, std::uint32_t local_rank)
{
    Mapped found = mapped(maps, jobid);
    return {std::move(found.segments), local_rank, found.code};
}

VaderQueue::Link VaderQueue::at(Place place) const noexcept
{
    const auto owner = static_cast<std::uint64_t>(place) >> offset_bits;
    const auto offset = static_cast<std::uint32_t>(place);
    if (owner >= segments_.size() || segments_[owner].begin == nullptr || offset < queue_bytes ||
        offset + segment_head + header_bytes > segments_[owner].bytes ||
        offset % sizeof(Place) != 0) {
        return nullptr;
    }
    return reinterpret_cast<Link>(segments_[owner].begin + segment_head + offset);
}

VaderQueue::Finding VaderQueue::look() const noexcept
{
    const Place head = load(head_);
    const Place tail = load(tail_);
    if (tail == nobody) {
        return {head == nobody ? Finding::whole : Finding::moving};
    }
    if (head == nobody) {
        return {Finding::gap, nullptr, tail};
    }
    Place place = head;
    for (int steps = 0; steps < most_steps; ++steps) {
        const Link link = at(place);
        if (link == nullptr) {
            break;
        }
        if (place == tail) {
            return {load(head_) == head ? Finding::whole : Finding::moving};
        }
        const Place next = load(link);
        if (next == nobody) {
            // What was walked along was the queue only if nobody has read on meanwhile.
            const bool still = load(tail_) == tail && load(head_) == head && load(link) == nobody;
            return still ? Finding{Finding::gap, link, tail} : Finding{Finding::moving};
        }
        place = next;
    }
    return {Finding::moving};
}

VaderQueue::Link VaderQueue::missing_at(std::uintptr_t address, Place tail) const noexcept
{
    for (std::size_t owner = 0; owner < segments_.size(); ++owner) {
        const auto begin = reinterpret_cast<std::uintptr_t>(segments_[owner].begin) -
                           static_cast<std::uintptr_t>(segments_[owner].shift);
        if (segments_[owner].begin == nullptr || address < begin + segment_head ||
            address >= begin + segments_[owner].bytes) {
            continue;
        }
        const Place place = static_cast<Place>(static_cast<std::uint64_t>(owner) << offset_bits |
                                               (address - begin - segment_head));
        const Link link = place == tail ? nullptr : at(place);
        return link != nullptr && load(link) == nobody ? link : nullptr;
    }
    return nullptr;
}

bool VaderQueue::put(Link link, Place place) noexcept
{
    Place missing = nobody;
    return std::atomic_ref(*link).compare_exchange_strong(missing, place);
}

std::vector<std::int64_t> VaderQueue::neighbours() const
{
    std::vector<std::int64_t> processes;
    for (std::size_t rank = 0; rank < segments_.size(); ++rank) {
        if (rank != own_ && segments_[rank].begin != nullptr) {
            std::int32_t process = 0;
            std::memcpy(&process, segments_[rank].begin + process_at, sizeof process);
            processes.push_back(process);
        }
    }
    return processes;
}

} // namespace ft::radixft

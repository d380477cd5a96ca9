#include "opal/ft/datagram/reassembly.hpp"

#include <algorithm>
#include <cstring>

namespace ft::dgram {

/// It is not among the unfinished ones any more; its bytes stay until the next one begins.
void Reassembly::end(ByAge::iterator fragment) noexcept
{
    bytes_ -= fragment->bytes.size();
    places_.erase(fragment->key);
    spare_.clear();
    spare_.splice(spare_.begin(), unfinished_, fragment);
}

/// For a fragment that begins.
void Reassembly::make_room(const Header &header) noexcept
{
    const auto give_up = [this](ByAge::iterator fragment) {
        end(fragment);
        ++given_up_;
    };
    const auto first = places_.lower_bound({header.sender, 0});
    std::size_t its = 0;
    auto oldest = first;
    for (auto at = first; at != places_.end() && at->first.sender == header.sender; ++at, ++its) {
        if (at->second->age < oldest->second->age) {
            oldest = at;
        }
    }
    if (its >= most_of_a_sender) {
        give_up(oldest->second);
    }
    while (!unfinished_.empty() && bytes_ + header.total > most_bytes) {
        give_up(unfinished_.begin());
    }
}

Reassembly::Unfinished &Reassembly::begin(const Header &header)
{
    make_room(header);
    ByAge one;
    // A small one that may stay for long does not keep a large one's memory.
    if (spare_.empty() || spare_.front().bytes.capacity() > 2 * std::size_t{header.total}) {
        spare_.clear();
        one.emplace_back();
    } else {
        one.splice(one.begin(), spare_);
    }
    Unfinished &fragment = one.front();
    fragment.key = {header.sender, header.number};
    fragment.age = ++begun_;
    fragment.tag = header.tag;
    fragment.have = 0;
    fragment.bytes.resize(header.total);
    fragment.offsets.clear();
    places_.emplace(fragment.key, one.begin());
    bytes_ += fragment.bytes.size();
    unfinished_.splice(unfinished_.end(), one);
    return fragment;
}

std::span<const std::byte> Reassembly::take(const Header &header,
                                            std::span<const std::byte> payload)
{
    const auto place = places_.find({header.sender, header.number});
    Unfinished &fragment = place == places_.end() ? begin(header) : *place->second;
    if (fragment.bytes.size() != header.total || fragment.tag != header.tag ||
        std::find(fragment.offsets.begin(), fragment.offsets.end(), header.offset) !=
            fragment.offsets.end()) {
        return {};
    }
    fragment.offsets.push_back(header.offset);
    std::memcpy(fragment.bytes.data() + header.offset, payload.data(), payload.size());
    fragment.have += static_cast<std::uint32_t>(payload.size());
    // Parts that overlap come from no sender of ours; what they make is no worse than corruption,
    // which the layer above must bear, and it cannot grow beyond the fragment.
    if (fragment.have < header.total) {
        return {};
    }
    end(places_.find(fragment.key)->second);
    return spare_.front().bytes;
}

} // namespace ft::dgram

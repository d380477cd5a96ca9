#include "opal/ft/datagram/reassembly.hpp"

#include <algorithm>
#include <cstring>

namespace ft::dgram {

std::span<const std::byte> Reassembly::take(const Header &header,
                                            std::span<const std::byte> payload)
{
    auto slot = std::find_if(slots_.begin(), slots_.end(), [&](const Slot &s) {
        return s.used && s.sender == header.sender && s.number == header.number;
    });
    if (slot == slots_.end()) {
        slot = slots_.begin() + static_cast<std::ptrdiff_t>(next_);
        next_ = (next_ + 1) % slots_.size();
        given_up_ += slot->used ? 1 : 0;
        slot->used = false; // if there is no memory
        slot->bytes.resize(header.total);
        slot->used = true;
        slot->sender = header.sender;
        slot->number = header.number;
        slot->total = header.total;
        slot->tag = header.tag;
        slot->have = 0;
        slot->offsets.clear();
    }
    if (slot->total != header.total || slot->tag != header.tag ||
        std::find(slot->offsets.begin(), slot->offsets.end(), header.offset) !=
            slot->offsets.end()) {
        return {};
    }
    slot->offsets.push_back(header.offset);
    std::memcpy(slot->bytes.data() + header.offset, payload.data(), payload.size());
    slot->have += static_cast<std::uint32_t>(payload.size());
    // Parts that overlap come from no sender of ours; what they make is no worse than corruption,
    // which the layer above must bear, and it cannot grow beyond the fragment.
    if (slot->have < slot->total) {
        return {};
    }
    slot->used = false;
    return {slot->bytes.data(), slot->total};
}

} // namespace ft::dgram

// What links do to fragments, and transports to descriptors.
#include <algorithm>

#include "opal/ft/base/assert.hpp"
#include "opal/ft/reliability/compressed.hpp"
#include "test/sim/reliability/world.hpp"

namespace ft::sim {

using namespace ft::base::literals;
using base::Duration;
using base::Time;
using reliability::Kind;

namespace {

bool strikes(What what, Kind kind, bool retransmission, bool last)
{
    const bool payload = kind == Kind::ordered || kind == Kind::data;
    switch (what) {
    case What::all:
        return true;
    case What::data:
        return payload;
    case What::acks:
        return kind == Kind::ack;
    case What::ordered:
        return kind == Kind::ordered;
    case What::probes:
        return kind == Kind::probe || kind == Kind::probe_reply;
    case What::last:
        return payload && last;
    case What::retransmissions:
        return payload && retransmission;
    }
    return false;
}

Duration up_to(base::Rng &rng, Duration most)
{
    return Duration::from_ns(
        static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(most.ns()) + 1)));
}

} // namespace

bool World::has_room(Way &way)
{
    const Transport &transport = way.link->transport[way.direction];
    if (way.descriptors >= transport.room) {
        return false;
    }
    return !(faulty && transport.refuse > 0 && way.rng.chance(transport.refuse));
}

void World::transmit(unsigned id, std::span<const std::byte> bytes, Kind kind, bool retransmission,
                     bool last)
{
    Way &way = ways[id];
    const LinkPlan &link = *way.link;
    const Faults &faults = link.faults[way.direction];
    ++packets_sent;
    const bool hit_by_pattern = pattern.active && pattern.next < pattern.length &&
                                (pattern.mask >> pattern.next++ & 1U) != 0;
    const double waiting =
        static_cast<double>((std::max(now, way.free_at) - now).ns()) * link.bandwidth;
    if (link.queue_bytes != 0 && waiting > static_cast<double>(link.queue_bytes)) {
        if (trace) {
            say("  link %u: its queue ran over", id);
        }
        return;
    }
    const Time departure =
        std::max(now, way.free_at) + Duration::from_ns(static_cast<std::int64_t>(
                                         static_cast<double>(bytes.size()) / link.bandwidth));
    way.free_at = departure;
    const bool struck = faulty && strikes(faults.what, kind, retransmission, last);
    bool drop = way.dead || hit_by_pattern;
    if (faulty && now >= faults.dark_from && now < faults.dark_until) {
        drop = true;
    }
    if (struck) {
        ++way.count;
        if (way.burst_left != 0) {
            --way.burst_left;
            drop = true;
        } else if (faults.burst > 0 && way.rng.chance(faults.burst)) {
            way.burst_left = faults.burst_length - 1;
            drop = true;
        }
        drop = drop || (faults.drop > 0 && way.rng.chance(faults.drop)) ||
               (faults.drop_nth != 0 && way.count % faults.drop_nth == 0);
    }
    if (drop) {
        if (trace) {
            say("  link %u: lost on the way", id);
        }
        return;
    }
    Duration latency = link.latency;
    if (faulty && now >= faults.slow_from) {
        latency = latency * faults.slow_factor;
    }
    Time arrival = departure + latency;
    if (faulty && faults.jitter > Duration{}) {
        arrival += up_to(way.rng, faults.jitter);
    }
    if (link.fifo) {
        arrival = std::max(arrival, way.last_arrival);
        way.last_arrival = arrival;
    }
    if (struck && faults.reorder > 0 && way.rng.chance(faults.reorder)) {
        arrival += up_to(way.rng, faults.reorder_delay); // later ones overtake it
    }
    const bool damage = struck && faults.corrupt > 0 && way.rng.chance(faults.corrupt);
    if (struck && faults.duplicate > 0 && way.rng.chance(faults.duplicate)) {
        deliver_later(id, bytes, kind, arrival + up_to(way.rng, faults.duplicate_delay),
                      damage && way.rng.chance(0.5));
    }
    deliver_later(id, bytes, kind, arrival, damage);
}

void World::deliver_later(unsigned id, std::span<const std::byte> bytes, Kind kind, Time when,
                          bool damage)
{
    std::uint32_t slot = 0;
    if (free_packets_.empty()) {
        slot = static_cast<std::uint32_t>(packets_.size());
        packets_.emplace_back();
    } else {
        slot = free_packets_.back();
        free_packets_.pop_back();
    }
    Packet &packet = packets_[slot];
    packet.kind = kind;
    packet.bytes.assign(bytes.begin(), bytes.end());
    if (damage) {
        Way &way = ways[id];
        spoil(way, packet.bytes, way.link->faults[way.direction].hit);
        if (trace) {
            say("  link %u: damaged on the way", id);
        }
    }
    in_transit_ += counts(kind) ? 1U : 0U;
    at(when, Type::arrival, id, slot);
}

void World::spoil(Way &way, std::vector<std::byte> &bytes, Hit hit)
{
    constexpr std::size_t header = reliability::header_bytes;
    const auto flip = [&](std::size_t from, std::size_t to) {
        if (from >= to) {
            return;
        }
        const std::uint64_t bit = way.rng.below((to - from) * 8);
        bytes[from + bit / 8] ^= std::byte{static_cast<unsigned char>(1U << bit % 8)};
    };
    if (reliability::is_compressed(bytes) || reliability::is_brief(bytes)) {
        // No part of it has a checksum of its own.
        if (hit == Hit::truncation) {
            bytes.resize(way.rng.below(bytes.size()));
        } else {
            flip(0, bytes.size());
        }
        return;
    }
    const std::size_t upper = header + std::to_integer<std::size_t>(bytes[37]);
    switch (hit) {
    case Hit::header:
        flip(0, 44);
        break;
    case Hit::payload_checksum:
        flip(44, 48);
        break;
    case Hit::header_checksum:
        flip(48, header);
        break;
    case Hit::upper:
        flip(header, std::min(upper, bytes.size()));
        break;
    case Hit::payload:
        flip(std::min(upper, bytes.size()), bytes.size());
        break;
    case Hit::burst: {
        const std::size_t begin = std::min(upper, bytes.size());
        if (begin < bytes.size()) {
            const std::size_t first = begin + way.rng.below(bytes.size() - begin);
            for (std::size_t i = first; i < std::min(first + 4, bytes.size()); ++i) {
                bytes[i] ^= std::byte{static_cast<unsigned char>(way.rng.between(1, 255))};
            }
        }
        break;
    }
    case Hit::truncation:
        bytes.resize(way.rng.below(bytes.size()));
        break;
    case Hit::anywhere:
        flip(0, bytes.size());
        break;
    }
}

std::uint32_t World::new_descriptor()
{
    if (!free_descriptors_.empty()) {
        const std::uint32_t slot = free_descriptors_.back();
        free_descriptors_.pop_back();
        return slot;
    }
    descriptors.emplace_back();
    return static_cast<std::uint32_t>(descriptors.size() - 1);
}

void World::depart(std::uint32_t slot)
{
    Way &way = ways[descriptors[slot].way];
    const Transport &transport = way.link->transport[way.direction];
    ++way.descriptors;
    if (way.stuck) {
        way.parked.push_back(slot);
        return;
    }
    if (transport.complete == Duration{} && transport.complete_late == 0) {
        complete(slot);
        return;
    }
    Time when = way.free_at + transport.complete;
    if (faulty && transport.complete_late > 0 && way.rng.chance(transport.complete_late)) {
        when += 1_ms + up_to(way.rng, 99_ms);
    }
    at(when, Type::completion, slot);
}

void World::complete(std::uint32_t slot)
{
    const Descriptor &descriptor = descriptors[slot];
    FT_ASSERT(descriptor.live);
    Way &way = ways[descriptor.way];
    if (way.stuck) {
        way.parked.push_back(slot);
        return;
    }
    FT_ASSERT(way.descriptors > 0);
    --way.descriptors;
    endpoints[way.from]->complete(slot);
    descriptors[slot].live = false;
    free_descriptors_.push_back(slot);
}

void World::release_parked(Way &way)
{
    way.stuck = false;
    const std::vector<std::uint32_t> parked = std::move(way.parked);
    way.parked.clear();
    for (const std::uint32_t slot : parked) {
        at(now, Type::completion, slot);
    }
}

void World::die(unsigned link_id)
{
    const LinkPlan &link = *links_[link_id];
    say("link %u dies (kind %u)", link_id, static_cast<unsigned>(link.death));
    for (unsigned direction = 0; direction < 2; ++direction) {
        Way &way = ways[2 * link_id + direction];
        way.dead = true;
        const bool told = link.death == Death::error ||
                          (link.death == Death::error_one_side && direction == (link_id & 1U));
        if (link.death == Death::silent_stuck) {
            way.stuck = way.was_stuck = true;
        } else if (link.death == Death::error_on_use) {
            way.error_on_use = true;
        } else if (told) {
            way.told = way.was_told = true;
            endpoints[way.from]->path_error(way.path_at_from);
        }
        if ((told || link.death == Death::error_on_use) && link.pending[direction] != 0) {
            way.stuck = way.was_stuck = true; // 1: completed when the path returns; 2: never
        }
    }
    for (unsigned direction = 0; direction < 2; ++direction) {
        endpoints[ways[2 * link_id + direction].from]->pump(true);
    }
    ++deaths_[link_id];
    if (link.dead_for != Duration::max()) {
        at(now + link.dead_for, Type::come_back, link_id);
    }
}

void World::come_back(unsigned link_id)
{
    const LinkPlan &link = *links_[link_id];
    say("link %u comes back", link_id);
    for (unsigned direction = 0; direction < 2; ++direction) {
        Way &way = ways[2 * link_id + direction];
        way.dead = false;
        way.error_on_use = false;
        if (way.stuck && link.pending[direction] == 2 && way.told) {
            // The transport forgot them; its successor starts empty.
            way.descriptors -= static_cast<unsigned>(way.parked.size());
            way.parked.clear();
            way.stuck = false;
        } else {
            release_parked(way);
        }
        if (way.told) {
            way.told = false;
            endpoints[way.from]->path_revived(way.path_at_from);
        }
    }
    for (unsigned direction = 0; direction < 2; ++direction) {
        endpoints[ways[2 * link_id + direction].from]->pump(true);
    }
    if (deaths_[link_id] < link.deaths) {
        at(now + link.dead_for, Type::die, link_id);
    }
}

void World::heal()
{
    say("faults end");
    faulty = false;
    for (auto &endpoint : endpoints) {
        if (polls_at(endpoint->id()) == now) {
            endpoint->pump(true);
        }
    }
}

} // namespace ft::sim

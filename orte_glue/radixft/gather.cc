#include "orte_glue/radixft/gather.hpp"

#include "opal/ft/base/wire.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace ft::radixft {

namespace {

/// Longest wait between two sendings of a contribution, in ticks.
constexpr unsigned longest_wait = 128;
/// For so long after it has become the root, another one may have released what it collects.
constexpr unsigned new_root_ticks = 32;
/// A release goes to all that take part directly when it is no more than this, to all together.
constexpr std::size_t most_at_once = std::size_t{4} << 20;
/// Else to so many of them, and each passes it on to as many.
constexpr std::size_t fan_out = 4;
/// Ticks that a release has, and one for so many bytes, to come to all that way before those who
/// have not got it are given it directly; and how many bytes of that there are in a tick.
constexpr unsigned passing_ticks = 8;
constexpr std::size_t passed_in_a_tick = std::size_t{4} << 20;
constexpr std::size_t most_repeated = std::size_t{32} << 20;

Bytes encode(const Bytes &signature, std::uint32_t number, std::span<const NodeId> participants,
             const Bytes &data, std::span<const NodeId> pass_on = {})
{
    Bytes body(4 + signature.size() + 4 + 4 + 4 * participants.size() + 4 + 4 * pass_on.size() + 8 +
               data.size());
    base::WireWriter out(body);
    out.u32(static_cast<std::uint32_t>(signature.size()));
    out.bytes(signature);
    out.u32(number);
    for (const auto &nodes : {participants, pass_on}) {
        out.u32(static_cast<std::uint32_t>(nodes.size()));
        for (const NodeId node : nodes) {
            out.u32(node);
        }
    }
    out.u64(data.size());
    out.bytes(data);
    return body;
}

struct Decoded {
    Bytes signature;
    std::uint32_t number = 0;
    std::vector<NodeId> participants;
    std::vector<NodeId> pass_on; ///< who is to have it from the receiver
    Bytes data;
};

Bytes copy(std::span<const std::byte> bytes)
{
    return {bytes.begin(), bytes.end()};
}

bool decode(std::span<const std::byte> body, Decoded &out)
{
    base::WireReader in(body);
    out.signature = copy(in.bytes(in.u32()));
    out.number = in.u32();
    for (std::vector<NodeId> *const nodes : {&out.participants, &out.pass_on}) {
        const std::uint32_t count = in.u32();
        if (count > in.remaining() / 4) {
            return false;
        }
        for (std::uint32_t i = 0; i < count; ++i) {
            nodes->push_back(in.u32());
        }
    }
    out.data = copy(in.bytes(in.u64()));
    return in.complete();
}

} // namespace

void Gather::on_root(NodeId root)
{
    if (root == root_) {
        // Who is gone may have had to pass a release on.
        for (auto &[signature, what] : last_) {
            if (const unsigned until = what.spread_again_until; is_root() && now_ < until) {
                spread(signature, what);
                what.spread_again_until = until;
            }
        }
        recheck();
        return;
    }
    new_root_until_ = root_ == no_node ? 0 : now_ + new_root_ticks;
    root_ = root;
    if (!is_root()) {
        // What a root that is one no more has collected comes to the new one from those who sent
        // it.
        collecting_.clear();
    }
    for (auto &[key, now] : collecting_) {
        now.ticks = 0;
        now.wait = 1;
    }
    // Copied: releasing one's own contribution removes it from the map.
    const auto pending = pending_;
    for (const auto &[key, mine] : pending) {
        send_contribution(key, mine);
    }
    recheck();
}

std::uint32_t Gather::contribute(const Bytes &signature, std::span<const NodeId> participants,
                                 Bytes data)
{
    const std::uint32_t number = counts_[signature].next++;
    const Key key{signature, number};
    Pending mine{{participants.begin(), participants.end()}, std::move(data)};
    pending_[key] = mine;
    if (root_ != no_node) {
        send_contribution(key, mine);
    }
    return number;
}

void Gather::send_contribution(const Key &key, const Pending &pending)
{
    if (is_root()) {
        take_part(self_, key, pending.participants, pending.data);
        return;
    }
    outgoing_.push_back({root_, Type::contribution,
                         encode(key.first, key.second, pending.participants, pending.data)});
}

void Gather::take_part(NodeId from, const Key &key, std::vector<NodeId> participants, Bytes data)
{
    if (completed(key.first) > key.second) {
        // Only the last one is kept: who asks for an older one has completed it and is merely late.
        if (const auto it = last_.find(key.first);
            it != last_.end() && it->second.number == key.second) {
            it->second.unused = 0;
            if (from == self_) {
                complete(key, it->second);
            } else {
                repeat(from, key.first, it->second);
            }
        }
        return;
    }
    const auto [it, fresh] = collecting_.try_emplace(key);
    Collecting &now = it->second;
    if (fresh && now_ < new_root_until_) {
        now.wait = 1;
    }
    if (now.participants.empty()) {
        now.participants = std::move(participants);
    }
    now.parts[from] = std::move(data);
    check(key);
}

void Gather::check(const Key &key)
{
    const auto it = collecting_.find(key);
    if (it == collecting_.end() || !is_root()) {
        return;
    }
    Collecting &now = it->second;
    for (const NodeId node : now.participants) {
        if (!now.parts.contains(node) && !gone_(node, key.first, key.second)) {
            return;
        }
    }
    Released what{key.second, {}, now.participants};
    for (const auto &[node, part] : now.parts) {
        what.data.insert(what.data.end(), part.begin(), part.end());
    }
    collecting_.erase(it);
    release(key, what);
}

void Gather::release(const Key &key, Released what)
{
    spread(key.first, what);
    complete(key, what);
}

void Gather::spread(const Bytes &signature, Released &what)
{
    std::set<NodeId> others(what.participants.begin(), what.participants.end());
    others.erase(self_);
    what.spread_again_until = now_;
    if (give_to(signature, what, others)) {
        what.spread_again_until = what.repeated_from + longest_wait;
    }
}

/// \return whether some of them get it from others of them
bool Gather::give_to(const Bytes &signature, Released &what, const std::set<NodeId> &others)
{
    what.repeated_from = now_;
    if (others.size() * what.data.size() <= most_at_once) {
        for (const NodeId node : others) {
            send_release(node, Type::release, signature, what);
        }
        return false;
    }
    // Or the root would have to hold and send everybody's data as often as there are daemons, and
    // say nothing else meanwhile. In this order it is always the lower one of two that opens a
    // connection.
    const std::vector<NodeId> in_order(others.begin(), others.end());
    what.repeated_from +=
        passing_ticks + static_cast<unsigned>(what.data.size() / passed_in_a_tick);
    pass_on(signature, what, in_order);
    return true;
}

/// To the first of each of a few parts of `others`, who passes it on to the rest of that part.
void Gather::pass_on(const Bytes &signature, const Released &what, std::span<const NodeId> others)
{
    for (std::size_t parts = fan_out; parts > 0 && !others.empty(); --parts) {
        auto part = others.first((others.size() + parts - 1) / parts);
        others = others.subspan(part.size());
        while (!part.empty() && gone_(part.front(), signature, what.number)) {
            part = part.subspan(1);
        }
        if (!part.empty()) {
            outgoing_.push_back(
                {part.front(), Type::release,
                 encode(signature, what.number, what.participants, what.data, part.subspan(1))});
        }
    }
}

/// For one that has not got it, as it says, or had not when it said so.
void Gather::repeat(NodeId to, const Bytes &signature, Released &what)
{
    if (now_ < what.repeated_from) {
        return; // it is on its way; or it will be said again
    }
    if (repeated_ != 0 && repeated_ + what.data.size() > most_repeated) {
        what.waiting.insert(to);
        return;
    }
    repeated_ += what.data.size();
    send_release(to, Type::release, signature, what);
}

/// Those who have had to wait get it together, from each other where that is what all got it by.
void Gather::serve_waiting(const Bytes &signature, Released &what)
{
    if (what.waiting.empty() || now_ < what.repeated_from) {
        return;
    }
    give_to(signature, what, std::exchange(what.waiting, {}));
}

void Gather::complete(const Key &key, const Released &what)
{
    std::uint32_t &count = counts_[key.first].completed;
    if (count < what.number + 1) {
        count = what.number + 1;
        last_[key.first] = what;
    }
    if (pending_.erase(key) != 0) {
        done_.push_back({key.first, key.second, what.data});
    }
}

void Gather::send_release(NodeId to, Type type, const Bytes &signature, const Released &what)
{
    outgoing_.push_back({to, type, encode(signature, what.number, what.participants, what.data)});
}

bool Gather::on_message(NodeId from, Type type, std::span<const std::byte> body)
{
    Decoded m;
    if (!decode(body, m)) {
        return false;
    }
    const Key key{m.signature, m.number};
    switch (type) {
    case Type::contribution:
        // Whoever takes this daemon for the root may know of a view that has not come here yet:
        // kept.
        take_part(from, key, std::move(m.participants), std::move(m.data));
        return true;
    case Type::release:
    case Type::released: {
        const Released what{m.number, std::move(m.data), std::move(m.participants)};
        const bool news = collecting_.erase(key) != 0;
        if (!m.pass_on.empty()) {
            pass_on(m.signature, what, m.pass_on);
        }
        if (is_root() && news) {
            release(key, what);
        } else {
            complete(key, what);
        }
        return true;
    }
    case Type::wanted:
        if (const auto it = last_.find(key.first);
            it != last_.end() && it->second.number == key.second) {
            it->second.unused = 0;
            send_release(from, Type::released, key.first, it->second);
        } else if (const auto mine = pending_.find(key); mine != pending_.end() && from == root_) {
            send_contribution(key, mine->second);
        }
        return true;
    default:
        return false;
    }
}

void Gather::recheck()
{
    std::vector<Key> keys;
    for (const auto &[key, now] : collecting_) {
        keys.push_back(key);
    }
    for (const Key &key : keys) {
        check(key);
    }
}

/// A few of those that are missed, and four times as many the next time: who has the release
/// answers with all of its data.
void Gather::ask_missing(const Key &key, Collecting &now)
{
    std::vector<NodeId> missing;
    for (const NodeId node : now.participants) {
        if (node != self_ && !now.parts.contains(node)) {
            missing.push_back(node);
        }
    }
    const std::size_t count = std::min(now.asked_at_once, missing.size());
    for (std::size_t i = 0; i < count; ++i) {
        outgoing_.push_back({missing[(now.asked + i) % missing.size()], Type::wanted,
                             encode(key.first, key.second, {}, {})});
    }
    now.asked += count;
    if (count < missing.size()) {
        now.asked_at_once *= 4;
        now.wait = std::max(now.wait * 2, wait_for_answers);
    } else {
        now.wait = std::min(std::max(now.wait, first_wait) * 2, longest_wait);
    }
}

void Gather::tick()
{
    ++now_;
    repeated_ = 0;
    if (root_ == no_node) {
        return;
    }
    if (is_root()) {
        for (auto &[signature, what] : last_) {
            serve_waiting(signature, what);
        }
        for (auto &[key, now] : collecting_) {
            if (++now.ticks >= now.wait) {
                now.ticks = 0;
                ask_missing(key, now);
            }
        }
        return;
    }
    for (auto &[key, mine] : pending_) {
        if (++mine.ticks >= mine.wait) {
            mine.ticks = 0;
            mine.wait = std::min(mine.wait * 2, longest_wait);
            send_contribution(key, mine);
        }
    }
}

void Gather::forget(const std::function<bool(const Bytes &)> &over)
{
    for (auto it = last_.begin(); it != last_.end();) {
        it->second.unused = over(it->first) ? it->second.unused + 1 : 0;
        it = it->second.unused > 1 ? last_.erase(it) : std::next(it);
    }
}

std::uint32_t Gather::completed(const Bytes &signature) const
{
    const auto it = counts_.find(signature);
    return it == counts_.end() ? 0 : it->second.completed;
}

} // namespace ft::radixft

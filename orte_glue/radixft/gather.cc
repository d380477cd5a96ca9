#include "orte_glue/radixft/gather.hpp"

#include "opal/ft/base/wire.hpp"

#include <algorithm>

namespace ft::radixft {

namespace {

/// Longest wait between two sendings of a contribution, in ticks.
constexpr unsigned longest_wait = 128;

Bytes encode(const Bytes &signature, std::uint32_t number, std::span<const NodeId> participants,
             const Bytes &data)
{
    Bytes body(4 + signature.size() + 4 + 4 + 4 * participants.size() + 8 + data.size());
    base::WireWriter out(body);
    out.u32(static_cast<std::uint32_t>(signature.size()));
    out.bytes(signature);
    out.u32(number);
    out.u32(static_cast<std::uint32_t>(participants.size()));
    for (const NodeId node : participants) {
        out.u32(node);
    }
    out.u64(data.size());
    out.bytes(data);
    return body;
}

struct Decoded {
    Bytes signature;
    std::uint32_t number = 0;
    std::vector<NodeId> participants;
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
    const std::uint32_t count = in.u32();
    if (count > in.remaining() / 4) {
        return false;
    }
    for (std::uint32_t i = 0; i < count; ++i) {
        out.participants.push_back(in.u32());
    }
    out.data = copy(in.bytes(in.u64()));
    return in.complete();
}

} // namespace

void Gather::on_root(NodeId root)
{
    if (root == root_) {
        recheck();
        return;
    }
    root_ = root;
    if (!is_root()) {
        // What a root that is one no more has collected comes to the new one from those who sent
        // it.
        collecting_.clear();
        for (const auto &[signature, what] : last_) {
            send_release(root_, Type::released, signature, what);
        }
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
    const std::uint32_t number = next_[signature]++;
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
    if (const auto it = last_.find(key.first);
        it != last_.end() && it->second.number >= key.second) {
        // Only the last one is kept: who asks for an older one has completed it and is merely late.
        if (it->second.number == key.second) {
            if (from == self_) {
                complete(key, it->second);
            } else {
                send_release(from, Type::release, key.first, it->second);
            }
        }
        return;
    }
    Collecting &now = collecting_[key];
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
        if (!now.parts.contains(node) && !gone_(node, key.first)) {
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

void Gather::release(const Key &key, const Released &what)
{
    for (const NodeId node : what.participants) {
        if (node != self_) {
            send_release(node, Type::release, key.first, what);
        }
    }
    complete(key, what);
}

void Gather::complete(const Key &key, const Released &what)
{
    if (auto it = last_.find(key.first); it == last_.end() || it->second.number <= what.number) {
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
        complete(key, what);
        if (type == Type::released && is_root() && news) {
            release(key, what);
        }
        return true;
    }
    case Type::wanted:
        if (const auto it = last_.find(key.first);
            it != last_.end() && it->second.number == key.second) {
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

void Gather::tick()
{
    if (root_ == no_node) {
        return;
    }
    if (is_root()) {
        for (auto &[key, now] : collecting_) {
            if (++now.ticks < now.wait) {
                continue;
            }
            now.ticks = 0;
            now.wait = std::min(now.wait * 2, longest_wait);
            for (const NodeId node : now.participants) {
                if (node != self_ && !now.parts.contains(node)) {
                    outgoing_.push_back(
                        {node, Type::wanted, encode(key.first, key.second, {}, {})});
                }
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

std::uint32_t Gather::completed(const Bytes &signature) const
{
    const auto it = last_.find(signature);
    return it == last_.end() ? 0 : it->second.number + 1;
}

} // namespace ft::radixft

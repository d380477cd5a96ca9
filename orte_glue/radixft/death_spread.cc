#include "orte_glue/radixft/death_spread.hpp"

#include "opal/ft/base/wire.hpp"

#include <algorithm>

namespace ft::radixft {

namespace {

constexpr std::size_t death_bytes = 4 + 4 + 4 + 1 + 4 + 8 + 8 + 8;
constexpr std::size_t most_per_message = 4096;
/// Messages that are kept for a view that is on its way.
constexpr std::size_t most_early = 64;

void write(base::WireWriter &out, const RankDeath &d)
{
    out.u32(d.who.jobid);
    out.u32(d.who.vpid);
    out.u32(d.host);
    out.u8(static_cast<std::uint8_t>(d.cause));
    out.u32(static_cast<std::uint32_t>(d.exit_code));
    out.u64(d.epoch);
    out.u64(static_cast<std::uint64_t>(d.noticed_us));
    out.u64(static_cast<std::uint64_t>(d.stabilized_us));
}

RankDeath read(base::WireReader &in)
{
    RankDeath d;
    d.who.jobid = in.u32();
    d.who.vpid = in.u32();
    d.host = in.u32();
    const std::uint8_t cause = in.u8();
    if (cause > static_cast<std::uint8_t>(last_cause)) {
        in.fail();
    } else {
        d.cause = static_cast<Cause>(cause);
    }
    d.exit_code = static_cast<std::int32_t>(in.u32());
    d.epoch = in.u64();
    d.noticed_us = static_cast<std::int64_t>(in.u64());
    d.stabilized_us = static_cast<std::int64_t>(in.u64());
    return d;
}

/// Reads `count` deaths that must fill the rest of the message.
bool read_all(base::WireReader &in, std::uint32_t count, std::vector<RankDeath> &out)
{
    if (!in.ok() || in.remaining() != count * death_bytes) {
        return false;
    }
    for (std::uint32_t i = 0; i < count; ++i) {
        out.push_back(read(in));
    }
    return in.complete();
}

} // namespace

void DeathSpread::on_view(Epoch epoch, NodeId root, std::span<const NodeId> children)
{
    // Who was the root, and had done its asking.
    const bool knows_all = root_ == root && !collecting_;
    term_ = epoch;
    root_ = root;
    children_.clear();
    for (const NodeId child : children) {
        children_[child] = {};
    }
    parent_ = no_node;
    acked_ = 0;
    list_.clear();
    place_.clear();
    collecting_ = collected_ = false;
    asker_ = no_node;
    gathered_.clear();
    whole_.clear();
    if (!is_root()) {
        send_reports();
    } else if (knows_all) {
        // What was announced, for those who joined and those to whom a message was lost.
        for (const auto &[who, death] : known_) {
            append(death);
        }
        append_pending();
    } else {
        collect();
    }
    for (const Early &m : std::exchange(early_, {})) {
        if (m.term >= term_) {
            on_message(m.from, m.type, m.body);
        }
    }
}

void DeathSpread::append_pending()
{
    for (const auto &[who, death] : std::exchange(pending_, {})) {
        append(death);
    }
    send_news();
}

/// Asks the subtree what was announced before this term.
void DeathSpread::collect()
{
    collecting_ = true;
    gathered_ = known_;
    for (const auto &[id, child] : children_) {
        ask(id);
    }
    finish_collecting();
}

void DeathSpread::ask(NodeId child)
{
    Bytes body(8 + 4);
    base::WireWriter out(body);
    out.u64(term_);
    out.u32(static_cast<std::uint32_t>(children_.at(child).heard));
    send(child, Type::ranks_known_ask, std::move(body));
}

void DeathSpread::finish_collecting()
{
    if (!collecting_ || std::any_of(children_.begin(), children_.end(),
                                    [](const auto &c) { return !c.second.told_all; })) {
        return;
    }
    collecting_ = false;
    collected_ = true;
    if (is_root()) {
        // What was announced with an epoch and a cause keeps them, whatever was reported here.
        for (const auto &[who, death] : std::exchange(gathered_, {})) {
            pending_[who] = death;
        }
        append_pending();
        return;
    }
    for (const auto &[who, death] : std::exchange(gathered_, {})) {
        whole_.push_back(death);
    }
    answer(0);
}

void DeathSpread::answer(std::size_t from)
{
    do {
        const std::size_t count = std::min(most_per_message, whole_.size() - from);
        Bytes body(8 + 4 + 4 + 4 + count * death_bytes);
        base::WireWriter out(body);
        out.u64(term_);
        out.u32(static_cast<std::uint32_t>(whole_.size()));
        out.u32(static_cast<std::uint32_t>(from));
        out.u32(static_cast<std::uint32_t>(count));
        for (std::size_t i = 0; i < count; ++i) {
            write(out, whole_[from + i]);
        }
        from += count;
        send(asker_, Type::ranks_known, std::move(body));
    } while (from < whole_.size());
}

bool DeathSpread::keep(NodeId from, Type type, Epoch term, std::span<const std::byte> body)
{
    // A view's commit goes another way down than what its root says next, and may come later.
    if (term <= term_) {
        return false;
    }
    if (early_.size() == most_early) {
        early_.erase(early_.begin()); // it is said again
    }
    early_.push_back({from, type, term, Bytes(body.begin(), body.end())});
    return true;
}

bool DeathSpread::on_ask(NodeId from, std::span<const std::byte> body)
{
    base::WireReader in(body);
    const Epoch term = in.u64();
    const std::uint32_t have = in.u32();
    if (!in.complete()) {
        return false;
    }
    if (term != term_) {
        return keep(from, Type::ranks_known_ask, term, body);
    }
    if (is_root() || have > whole_.size()) {
        return false;
    }
    asker_ = from;
    if (collected_) {
        repeating_ = true;
        answer(have);
        repeating_ = false;
    } else if (!collecting_) {
        collect();
    }
    return true;
}

bool DeathSpread::on_known(NodeId from, std::span<const std::byte> body)
{
    base::WireReader in(body);
    const Epoch term = in.u64();
    const std::uint32_t total = in.u32();
    const std::uint32_t first = in.u32();
    const std::uint32_t count = in.u32();
    std::vector<RankDeath> deaths;
    const auto it = children_.find(from);
    if (!read_all(in, count, deaths) || term != term_ || it == children_.end() || first > total ||
        count > total - first || !(collecting_ || collected_)) {
        return false;
    }
    Child &child = it->second;
    if (!collecting_ || first != child.heard) {
        return true; // said twice, or after something that was lost and is asked for again
    }
    child.heard += count;
    child.told_all = child.heard == total;
    for (const RankDeath &death : deaths) {
        gathered_.emplace(death.who, death);
    }
    finish_collecting();
    return true;
}

void DeathSpread::report(std::span<const RankDeath> deaths)
{
    std::vector<RankDeath> mine(deaths.begin(), deaths.end());
    for (RankDeath &death : mine) {
        if (death.epoch == 0) {
            death.epoch = term_;
        }
    }
    enqueue(mine);
}

void DeathSpread::enqueue(std::span<const RankDeath> deaths)
{
    bool fresh = false;
    for (const RankDeath &death : deaths) {
        if (known_.contains(death.who) || pending_.contains(death.who)) {
            continue;
        }
        fresh = true;
        pending_[death.who] = death;
    }
    if (!fresh) {
        return;
    }
    if (!is_root()) {
        if (root_ != no_node) {
            send_reports();
        }
    } else if (!collecting_) {
        append_pending();
    }
}

void DeathSpread::append(RankDeath death)
{
    if (place_.contains(death.who)) {
        return;
    }
    if (const auto it = known_.find(death.who); it != known_.end()) {
        death = it->second;
    }
    place_[death.who] = list_.size();
    list_.push_back(death);
    learn(death);
}

/// What the children were not sent yet, to each at once.
void DeathSpread::send_news()
{
    for (const auto &[id, child] : children_) {
        send_list(id, child.sent);
    }
}

void DeathSpread::learn(const RankDeath &death)
{
    pending_.erase(death.who);
    if (known_.emplace(death.who, death).second) {
        news_.push_back(death);
    }
}

void DeathSpread::send(NodeId to, Type type, Bytes body)
{
    ++counts_.sent;
    counts_.again += repeating_ ? 1 : 0;
    outgoing_.push_back({to, type, std::move(body)});
}

void DeathSpread::send_reports()
{
    for (auto it = pending_.begin(); it != pending_.end();) {
        const std::size_t count = std::min<std::size_t>(
            most_per_message, static_cast<std::size_t>(std::distance(it, pending_.end())));
        Bytes body(4 + count * death_bytes);
        base::WireWriter out(body);
        out.u32(static_cast<std::uint32_t>(count));
        for (std::size_t i = 0; i < count; ++i, ++it) {
            write(out, it->second);
        }
        send(root_, Type::rank_died, std::move(body));
    }
}

void DeathSpread::send_list(NodeId child, std::size_t from)
{
    Child &state = children_.at(child);
    while (from < list_.size()) {
        const std::size_t count = std::min(most_per_message, list_.size() - from);
        Bytes body(8 + 4 + 4 + count * death_bytes);
        base::WireWriter out(body);
        out.u64(term_);
        out.u32(static_cast<std::uint32_t>(from));
        out.u32(static_cast<std::uint32_t>(count));
        for (std::size_t i = 0; i < count; ++i) {
            write(out, list_[from + i]);
        }
        from += count;
        send(child, Type::ranks_dead, std::move(body));
    }
    state.sent = std::max(state.sent, from);
}

void DeathSpread::tick()
{
    if (root_ == no_node) {
        return;
    }
    repeating_ = true;
    if (!is_root() && !pending_.empty()) {
        send_reports();
    }
    for (auto &[id, child] : children_) {
        if (child.acked < list_.size()) {
            send_list(id, child.acked);
        }
        if (collecting_ && !child.told_all) {
            ask(id);
        }
    }
    repeating_ = false;
}

bool DeathSpread::on_message(NodeId from, Type type, std::span<const std::byte> body)
{
    switch (type) {
    case Type::rank_died:
        return on_report(body);
    case Type::ranks_dead:
        return on_list(from, body);
    case Type::ranks_dead_ack:
        return on_ack(from, body);
    case Type::ranks_known_ask:
        return on_ask(from, body);
    case Type::ranks_known:
        return on_known(from, body);
    default:
        return false;
    }
}

bool DeathSpread::on_report(std::span<const std::byte> body)
{
    base::WireReader in(body);
    std::vector<RankDeath> deaths;
    const std::uint32_t count = in.u32();
    if (!read_all(in, count, deaths)) {
        return false;
    }
    // The sender takes this daemon for the root: perhaps the view that says so is on its way.
    enqueue(deaths);
    return true;
}

bool DeathSpread::on_list(NodeId from, std::span<const std::byte> body)
{
    base::WireReader in(body);
    const Epoch term = in.u64();
    const std::uint32_t first = in.u32();
    const std::uint32_t count = in.u32();
    std::vector<RankDeath> deaths;
    if (!read_all(in, count, deaths)) {
        return false;
    }
    if (term != term_) {
        return keep(from, Type::ranks_dead, term, body);
    }
    if (is_root()) {
        return false;
    }
    const std::size_t before = list_.size();
    // A gap is left to the repetition that follows the acknowledgement of what there is.
    if (first <= list_.size()) {
        for (std::size_t i = list_.size() - first; i < deaths.size(); ++i) {
            const RankDeath &death = deaths[i];
            place_[death.who] = list_.size();
            list_.push_back(death);
            learn(death);
        }
        send_news();
    }
    parent_ = from;
    // What is new is acknowledged when it has arrived below too; what is not, again.
    if (list_.size() == before || reached() > acked_) {
        repeating_ = list_.size() == before;
        send_ack();
        repeating_ = false;
    }
    return true;
}

bool DeathSpread::on_ack(NodeId from, std::span<const std::byte> body)
{
    base::WireReader in(body);
    const Epoch term = in.u64();
    const std::uint32_t count = in.u32();
    const auto it = children_.find(from);
    if (!in.complete() || term != term_ || it == children_.end() || count > list_.size()) {
        return false;
    }
    it->second.acked = std::max<std::size_t>(it->second.acked, count);
    if (parent_ != no_node && reached() > acked_) {
        send_ack();
    }
    return true;
}

std::size_t DeathSpread::reached() const
{
    std::size_t least = list_.size();
    for (const auto &[id, child] : children_) {
        least = std::min(least, child.acked);
    }
    return least;
}

void DeathSpread::send_ack()
{
    acked_ = reached();
    Bytes ack(8 + 4);
    base::WireWriter out(ack);
    out.u64(term_);
    out.u32(static_cast<std::uint32_t>(acked_));
    send(parent_, Type::ranks_dead_ack, std::move(ack));
}

} // namespace ft::radixft

#include "orte_glue/radixft/wind_down.hpp"

#include "opal/ft/base/wire.hpp"

#include <algorithm>

namespace ft::radixft {

namespace {

constexpr std::size_t longest_why = 400;

} // namespace

void WindDown::on_view(NodeId root, std::span<const NodeId> members)
{
    const std::map<NodeId, RanksAre> before = std::exchange(others_, {});
    root_ = root;
    if (root_ == self_) {
        for (const NodeId id : members) {
            if (id != self_) {
                const auto it = before.find(id);
                others_[id] = it == before.end() ? RanksAre::running : it->second;
            }
        }
    }
    say();
    check();
}

void WindDown::report(RanksAre state, const std::string &why)
{
    if (state <= state_) {
        return;
    }
    state_ = state;
    if (why_.empty()) {
        why_ = why.substr(0, longest_why);
    }
    say();
    check();
}

void WindDown::say()
{
    if (root_ == no_node || root_ == self_ || state_ == RanksAre::running || leaving_) {
        return;
    }
    Bytes body(1 + why_.size());
    base::WireWriter out(body);
    out.u8(static_cast<std::uint8_t>(state_));
    out.bytes(std::as_bytes(std::span(why_)));
    outgoing_.push_back({root_, Type::ranks_are, std::move(body)});
}

void WindDown::check()
{
    if (root_ != self_ || leaving_) {
        return;
    }
    const auto all = [this](auto holds) {
        return holds(state_) && std::all_of(others_.begin(), others_.end(),
                                            [&](const auto &other) { return holds(other.second); });
    };
    const bool nobody_ends = all([](RanksAre s) { return s != RanksAre::to_end; });
    if (nobody_ends && !all([](RanksAre s) { return s != RanksAre::running; })) {
        return;
    }
    leaving_ = true;
    for (const auto &[id, state] : others_) {
        outgoing_.push_back({id, Type::leave, {}});
    }
}

bool WindDown::on_message(NodeId from, Type type, std::span<const std::byte> body)
{
    base::WireReader in(body);
    if (type == Type::leave) {
        if (!in.complete() || root_ == no_node) {
            return false;
        }
        leaving_ = true;
        return true;
    }
    const std::uint8_t said = in.u8();
    const auto text = in.rest();
    if (type != Type::ranks_are || !in.complete() || said == 0 ||
        said > static_cast<std::uint8_t>(RanksAre::to_end) || text.size() > longest_why) {
        return false;
    }
    const auto it = others_.find(from);
    if (it == others_.end()) {
        return false; // it takes this daemon for the root too early, and will say so again
    }
    it->second = std::max(it->second, static_cast<RanksAre>(said));
    if (why_.empty()) {
        why_.assign(reinterpret_cast<const char *>(text.data()), text.size());
    }
    if (leaving_) {
        outgoing_.push_back({from, Type::leave, {}});
    }
    check();
    return true;
}

void WindDown::has_left(NodeId id)
{
    if (leaving_) {
        others_.erase(id);
    }
}

void WindDown::tick()
{
    say();
    if (root_ == self_ && leaving_ && patience_ > 0) {
        --patience_;
        for (const auto &[id, state] : others_) {
            outgoing_.push_back({id, Type::leave, {}});
        }
    }
}

bool WindDown::may_leave() const
{
    return leaving_ && (root_ != self_ || others_.empty() || patience_ == 0);
}

} // namespace ft::radixft

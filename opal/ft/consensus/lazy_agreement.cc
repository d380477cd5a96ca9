#include "opal/ft/consensus/lazy_agreement.hpp"

#include "opal/ft/base/assert.hpp"

#include <algorithm>
#include <bit>

namespace ft::consensus {

namespace {

// As in agreement_sweeps.cc.
constexpr std::uint32_t heard_above = std::uint32_t{1} << most_fan_out;
constexpr std::uint8_t went_up = 1;
constexpr std::uint8_t went_down = 2;

/// Where the tag fits, too.
bool plain(const Message &m)
{
    return m.kind == Kind::exchange && m.unconfirmed.empty() && m.acknowledged.empty();
}

} // namespace

void LazyAgreement::begin(Rank self, InstanceId id, const Settings &settings,
                          const std::shared_ptr<const TreeShape> &shape)
{
    FT_ASSERT(shape != nullptr && self < shape->size());
    FT_ASSERT(settings.fan_out - 1 < most_fan_out);
    self_ = self;
    id_ = id;
    settings_ = settings;
    if (shape_ != shape) {
        shape_ = shape;
    }
    alive_ = shape->size();
    place_ = shape->position_of(self);
    tag_ = tag_positions_ = {};
    plain_ = settings.algorithm != Algorithm::paper && settings.mutation == Mutation::none &&
             alive_ <= most_plain;
    started_ = decided_ = false;
    steps_ = static_cast<std::uint8_t>(std::bit_width(alive_ - 1));
    sent_[0] = sent_[1] = 0;
    got_[0] = got_[1] = early_[0] = early_[1] = 0;
    flags_ = brought_ = ~std::uint64_t{0};
    done_ = heard_before_ = 0;
    heard_.clear();
    engine_.reset();
}

/// The engine, built when it is asked for first and told of all there was.
Agreement &LazyAgreement::engine(Actions &out)
{
    if (engine_) {
        return *engine_;
    }
    plain_ = false;
    engine_.emplace(self_, id_, settings_, shape_);
    Actions said;
    if (!tag_.empty()) {
        engine_->on_suspects(tag_, Certainty::confirmed, said);
    }
    for (std::size_t i = 0; i <= heard_.size(); ++i) {
        if (started_ && i == heard_before_) {
            Contribution brought;
            brought.suspects = tag_;
            brought.flags = brought_;
            engine_->start(brought, said);
        }
        if (i < heard_.size()) {
            engine_->on_message(heard_[i].from, message_of(id_, tag_, heard_[i].step), said);
        }
    }
    FT_ASSERT_SLOW(said.size() == done_);
    for (std::size_t i = done_; i < said.size(); ++i) {
        out.push_back(std::move(said[i]));
    }
    return *engine_;
}

void LazyAgreement::do_as_actions(const PlainSteps &steps, Actions &out) const
{
    for (const auto &[to, step] : steps) {
        out.push_back({Action::Kind::send, to, message_of(id_, tag_, step)});
    }
    if (decided_) { // nothing plain is done after that
        out.emplace_back().kind = Action::Kind::decide;
    }
}

void LazyAgreement::start(const Contribution &brought, Actions &out)
{
    PlainSteps steps;
    if (brought.unconfirmed.empty() && brought.acknowledged.empty() &&
        leave_out(brought.suspects) && start_plain(brought.flags, steps)) {
        do_as_actions(steps, out);
        return;
    }
    engine(out).start(brought, out);
}

void LazyAgreement::on_message(Rank from, const Message &message, Actions &out)
{
    PlainSteps steps;
    if (plain(message) &&
        on_plain(from, message.suspects, {message.stage, message.step, message.flags}, steps)) {
        do_as_actions(steps, out);
        return;
    }
    engine(out).on_message(from, message, out);
}

void LazyAgreement::on_suspects(const RankSet &who, Certainty certainty, Actions &out)
{
    if (certainty != Certainty::confirmed || !leave_out(who)) {
        engine(out).on_suspects(who, certainty, out);
    }
}

/// Confirmed failures that are known before anything else is: the steps go around those left. False
/// if it is too late for that.
bool LazyAgreement::leave_out(const RankSet &dead)
{
    if (dead.is_subset_of(tag_)) {
        return plain_;
    }
    if (!plain_ || started_ || !heard_.empty() || dead.contains(self_) ||
        dead.runs().back().end > shape_->size()) {
        return false;
    }
    tag_.unite(dead);
    tag_positions_ = shape_->positions(tag_);
    alive_ = shape_->size() - tag_.count();
    const Rank at = shape_->position_of(self_);
    place_ = at - tag_positions_.count_below(at);
    steps_ = static_cast<std::uint8_t>(std::bit_width(alive_ - 1));
    return true;
}

bool LazyAgreement::start_plain(std::uint64_t flags, PlainSteps &out)
{
    if (!plain_) {
        return false;
    }
    FT_ASSERT(!started_);
    started_ = true;
    brought_ = flags;
    flags_ = flags;
    heard_before_ = heard_.size();
    advance(out);
    // What came before the call is heard behind it, one by one, as an engine does it.
    for (std::size_t i = 0; i < heard_before_; ++i) {
        take(heard_[i]);
        advance(out);
    }
    done_ = out.size() + (decided_ ? 1 : 0);
    return true;
}

bool LazyAgreement::on_plain(Rank from, const RankSet &tag, const PlainStep &step, PlainSteps &out)
{
    if (!plain_ || decided_ || tag != tag_) {
        return false;
    }
    const Heard heard{from, step};
    const std::uint32_t bit = bit_of(heard);
    if (bit == 0) {
        return false;
    }
    std::uint32_t &known = started_ ? got_[sweep(step)] : early_[sweep(step)];
    if ((known & bit) != 0) {
        return false; // once more: it is not for here to say whether that matters
    }
    heard_.push_back(heard);
    if (!started_) {
        known |= bit;
        return true;
    }
    take(heard);
    advance(out);
    done_ += out.size() + (decided_ ? 1 : 0);
    return true;
}

/// Which step of a sweep it is, as a bit; 0 if none that this process waits for from there.
std::uint32_t LazyAgreement::bit_of(const Heard &heard) const
{
    const auto &[from, step] = heard;
    if (step.stage == Stage::commit && settings_.semantics == Semantics::loose) {
        return 0;
    }
    if (tag_.contains(from)) {
        return 0;
    }
    const Rank at = shape_->position_of(from);
    const Rank place = at - tag_positions_.count_below(at);
    if (settings_.algorithm != Algorithm::tree) {
        return step.step < steps_ && place_after(place, step.step) == place_
                   ? std::uint32_t{1} << step.step
                   : 0;
    }
    if (step.step == step_down) {
        return place_ != 0 && place == place_above() ? heard_above : 0;
    }
    if (step.step != step_up || place < first_below() || place >= first_below() + count_below()) {
        return 0;
    }
    return std::uint32_t{1} << (place - first_below());
}

void LazyAgreement::take(const Heard &heard)
{
    got_[sweep(heard.step)] |= bit_of(heard);
    if (heard.step.stage == Stage::ballot) {
        flags_ &= heard.step.flags;
    }
}

void LazyAgreement::advance(PlainSteps &out)
{
    const bool along_tree = settings_.algorithm == Algorithm::tree;
    for (const Stage stage : {Stage::ballot, Stage::commit}) {
        if (stage == Stage::commit && settings_.semantics == Semantics::loose) {
            break;
        }
        if (!(along_tree ? advance_tree(stage, out) : advance_ring(stage, out))) {
            return;
        }
    }
    value_ = {};
    value_.failed = tag_;
    value_.flags = flags_;
    decided_ = true;
}

bool LazyAgreement::advance_ring(Stage stage, PlainSteps &out)
{
    std::uint8_t &sent = sent_[static_cast<unsigned>(stage)];
    const int heard = std::countr_one(got_[static_cast<unsigned>(stage)]);
    while (sent < steps_ && sent <= heard) {
        out.add(at_place(place_after(place_, sent)), stage, sent, flags_in(stage));
        ++sent;
    }
    return heard >= steps_;
}

bool LazyAgreement::advance_tree(Stage stage, PlainSteps &out)
{
    std::uint8_t &sent = sent_[static_cast<unsigned>(stage)];
    const std::uint32_t got = got_[static_cast<unsigned>(stage)];
    const std::uint32_t below = count_below();
    const std::uint32_t all_below = (std::uint32_t{1} << below) - 1;
    if ((got & all_below) != all_below) {
        return false;
    }
    if (place_ != 0) {
        if ((sent & went_up) == 0) {
            sent |= went_up;
            out.add(at_place(place_above()), stage, step_up, flags_in(stage));
        }
        if ((got & heard_above) == 0) {
            return false;
        }
    }
    if ((sent & went_down) == 0) {
        sent |= went_down;
        for (std::uint32_t i = 0; i < below; ++i) {
            out.add(at_place(first_below() + i), stage, step_down, flags_in(stage));
        }
    }
    return true;
}

} // namespace ft::consensus

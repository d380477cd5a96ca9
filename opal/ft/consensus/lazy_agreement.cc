#include "opal/ft/consensus/lazy_agreement.hpp"

#include "opal/ft/base/assert.hpp"

#include <algorithm>
#include <bit>

namespace ft::consensus {

namespace {

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
    place_ = self;
    tag_ = {};
    plain_ = settings.algorithm != Algorithm::paper && settings.mutation == Mutation::none &&
             alive_ <= most_plain;
    started_ = accepted_ = decided_ = false;
    steps_ = static_cast<std::uint8_t>(std::bit_width(alive_ - 1));
    sweeps_done_ = {};
    early_[0] = early_[1] = 0;
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
    alive_ = shape_->size() - tag_.count();
    place_ = self_ - tag_.count_below(self_);
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
    const std::uint32_t bit = bit_of(from, step);
    if (bit == 0) {
        return false;
    }
    std::uint32_t &known = started_ ? sweeps_done_.got[sweep(step)] : early_[sweep(step)];
    if ((known & bit) != 0) {
        return false; // once more: it is not for here to say whether that matters
    }
    heard_.push_back({from, bit, step});
    if (!started_) {
        known |= bit;
        return true;
    }
    take(heard_.back());
    advance(out);
    done_ += out.size() + (decided_ ? 1 : 0);
    return true;
}

/// Which step of a sweep it is, as a bit; 0 if none that this process waits for from there.
std::uint32_t LazyAgreement::bit_of(Rank from, const PlainStep &step) const
{
    if (step.stage == Stage::commit && !strict()) {
        return 0;
    }
    if (tag_.contains(from)) {
        return 0;
    }
    const Rank place = from - tag_.count_below(from);
    if (along_tree()) {
        return sweeps().heard(step.stage, step.step, place);
    }
    return step.step < steps_ && place_after(place, step.step) == place_
               ? std::uint32_t{1} << step.step
               : 0;
}

void LazyAgreement::take(const Heard &heard)
{
    sweeps_done_.got[sweep(heard.step)] |= heard.bit;
    if (carries_value(heard.step.stage, heard.step.step)) {
        flags_ &= heard.step.flags;
    }
}

void LazyAgreement::advance(PlainSteps &out)
{
    decided_ = along_tree() ? advance_tree(out) : advance_ring(out);
}

void LazyAgreement::accept()
{
    if (!accepted_) {
        accepted_ = true;
        value_ = {};
        value_.failed = tag_;
        value_.flags = flags_;
    }
}

bool LazyAgreement::advance_ring(PlainSteps &out)
{
    if (!advance_ring(Stage::ballot, out)) {
        return false;
    }
    accept();
    return !strict() || advance_ring(Stage::commit, out);
}

void LazyAgreement::add(Rank place, Stage stage, std::uint8_t step, PlainSteps &out) const
{
    out.add(at_place(place), stage, step, carries_value(stage, step) ? flags_ : ~std::uint64_t{0});
}

bool LazyAgreement::advance_ring(Stage stage, PlainSteps &out)
{
    std::uint8_t &sent = sweeps_done_.sent[static_cast<unsigned>(stage)];
    const int heard = std::countr_one(sweeps_done_.got[static_cast<unsigned>(stage)]);
    while (sent < steps_ && sent <= heard) {
        add(place_after(place_, sent), stage, sent, out);
        ++sent;
    }
    return heard >= steps_;
}

bool LazyAgreement::advance_tree(PlainSteps &out)
{
    struct Host {
        LazyAgreement &self;
        PlainSteps &out;
        static bool fence() { return true; } // nobody is doubted here
        void accept() const { self.accept(); }
        void send(Rank place, Stage stage, std::uint8_t step) const
        {
            self.add(place, stage, step, out);
        }
    };
    return sweeps().advance(sweeps_done_, strict(), Host{*this, out});
}

} // namespace ft::consensus

// Suspicions, probes, reports, and what those without a quorum do.

#include "opal/ft/base/assert.hpp"
#include "opal/ft/membership/stabilizer.hpp"

#include <algorithm>

namespace ft::membership {

using base::Duration;
using base::Time;

Stabilizer::Suspect *Stabilizer::find_suspect(NodeId id)
{
    const auto at = std::lower_bound(suspects_.begin(), suspects_.end(), id,
                                     [](const Suspect &s, NodeId x) { return s.who.id < x; });
    return at != suspects_.end() && at->who.id == id ? &*at : nullptr;
}

const Stabilizer::Suspect *Stabilizer::find_suspect(NodeId id) const
{
    return const_cast<Stabilizer *>(this)->find_suspect(id);
}

bool Stabilizer::believed(NodeId id) const
{
    const Suspect *s = find_suspect(id);
    return s != nullptr && s->believed;
}

std::vector<Removed> Stabilizer::believed_dead() const
{
    std::vector<Removed> list;
    for (const Suspect &s : suspects_) {
        if (s.believed) {
            list.push_back({s.who.id, s.who.incarnation, s.grade, s.witness});
        }
    }
    return list;
}

/// Whether some of the view may have gone on without this node, so that a proof of a death that
/// comes now does not say that the dead one has not. Somebody is silent, here or to whoever
/// reported it, or a neighbour in the tree that is not known to be dead holds no lease any more, or
/// one, other than `but`, said so of its own side of the tree. A view of just now is as good as a
/// lease. A death that was doubted once stays doubtful as long as the view.
bool Stabilizer::doubts_proofs(Time now, NodeId but) const
{
    if (config_.mutation == Mutation::no_doubt) {
        return false;
    }
    return std::any_of(suspects_.begin(), suspects_.end(),
                       [](const Suspect &s) {
                           return s.grade == Grade::doubtful ||
                                  (s.grade == Grade::suspected && s.silent);
                       }) ||
           heartbeat_.out_of_touch(now, view_since_, but, [&](const detector::Heartbeat::Peer &p) {
               const Suspect *s = find_suspect(p.id);
               return s != nullptr && s->grade >= Grade::proven;
           });
}

void Stabilizer::on_suspicion(Time now, NodeId id, Output &out)
{
    now = tick(now);
    if (view_ && (state_ == State::member || state_ == State::suspended)) {
        const Suspect *const known = find_suspect(id);
        const bool silent = known != nullptr && known->silent;
        suspect(now, id, Grade::suspected, no_node, out, nobody);
        if (Suspect *s = find_suspect(id)) {
            s->silent = silent; // a connection that broke: it has had no time to answer
        }
    }
}

void Stabilizer::on_proof(Time now, NodeId id, ProofKind kind, Output &out)
{
    prove(tick(now), id, kind, out);
}

void Stabilizer::prove(Time now, NodeId id, ProofKind kind, Output &out)
{
    if (!view_ || (state_ != State::member && state_ != State::suspended) || id == self_.id) {
        return;
    }
    if (!view_->contains(id)) {
        if (kind != ProofKind::rails_gone && account_for(id)) {
            maybe_start(now, out);
        }
        return;
    }
    if (kind == ProofKind::rails_gone) {
        suspect(now, id, Grade::suspected, no_node, out, nobody);
        believe(now, id, out);
        return;
    }
    const bool clean = config_.mutation == Mutation::no_fence ||
                       heartbeat_.clean(now, {id, view_->incarnation_of(id)});
    suspect(now, id, Grade::proven, clean ? self_.id : no_node, out, nobody);
}

void Stabilizer::suspect(Time now, NodeId id, Grade grade, NodeId witness, Output &out,
                         const Reporter &reporter)
{
    if (!view_ || id == self_.id || !view_->contains(id)) {
        return;
    }
    if (grade == Grade::proven && witness == no_node && doubts_proofs(now)) {
        grade = Grade::doubtful;
    }
    Suspect *s = find_suspect(id);
    if (s == nullptr) {
        Suspect fresh;
        fresh.who = {id, view_->incarnation_of(id)};
        fresh.since = now;
        fresh.next = now;
        fresh.believe_at = now + config_.probe_timeout;
        const auto at = std::lower_bound(suspects_.begin(), suspects_.end(), id,
                                         [](const Suspect &x, NodeId y) { return x.who.id < y; });
        s = &*suspects_.insert(at, std::move(fresh));
        if (!changing_) {
            changing_ = true;
            changing_since_ = now;
        }
    }
    if (reporter.id != no_node) {
        const auto known = std::find_if(s->reporters.begin(), s->reporters.end(),
                                        [&](const Reporter &r) { return r.id == reporter.id; });
        if (known == s->reporters.end()) {
            s->reporters.push_back(reporter);
        } else {
            known->heard = std::max(known->heard, reporter.heard);
        }
    }
    const bool better = grade > s->grade;
    s->grade = std::max(s->grade, grade);
    s->silent |= grade == Grade::suspected;
    if (better && id == gives_way_to_ && !retry_at_.is_never()) {
        retry_at_ = now; // it needs no time any more
    }
    // A witness counts only while it goes on itself.
    const bool seen = grade != Grade::suspected && witness != no_node && witness != s->witness &&
                      (s->witness == no_node || witness == self_.id || believed(s->witness) ||
                       !view_->contains(s->witness));
    if (seen) {
        s->witness = witness;
    }
    if (s->believed) {
        if (better && acting_root() != self_.id) {
            s->report_at = now; // the root wants to know the proof
        } else if (better || seen) {
            maybe_start(now, out); // what was no quorum may be one now
        }
        return;
    }
    if (s->grade >= Grade::proven ||
        (config_.mutation == Mutation::no_probe && reporter.id != no_node)) {
        believe(now, id, out);
    } else if (s->next == now) {
        service_suspects(now, out);
    }
}

void Stabilizer::believe(Time now, NodeId id, Output &out)
{
    Suspect *s = find_suspect(id);
    if (s == nullptr || s->believed) {
        return;
    }
    if (config_.mutation == Mutation::believe_nothing && s->grade == Grade::suspected) {
        suspects_.erase(suspects_.begin() + (s - suspects_.data()));
        return;
    }
    s->believed = true;
    s->silent |= s->grade == Grade::suspected;
    s->next = now + config_.reprobe;
    out.events.push_back({Event::Kind::believed, view_, nullptr, s->who, s->grade, now - s->since});
    if (acting_root() == self_.id) {
        maybe_start(now, out);
        return;
    }
    // The parent reports at once; the others give it time, so that the root is told once.
    const bool first = view_->parent(id) == self_.id;
    s->report_at = first ? now : now + config_.report_stagger;
    if (first) {
        service_suspects(now, out);
    }
}

void Stabilizer::on_sign_of_life(Time now, const Identity &who, Output &out)
{
    heartbeat_.on_heard(now, {who.id, who.incarnation});
    const Suspect *s = find_suspect(who.id);
    if (s != nullptr && s->grade == Grade::suspected && !s->link && s->who == who) {
        clear_suspect(now, who.id, out);
    }
}

void Stabilizer::clear_suspect(Time now, NodeId id, Output &out)
{
    Suspect *s = find_suspect(id);
    const Suspect was = *s;
    suspects_.erase(suspects_.begin() + (s - suspects_.data()));
    std::vector<std::uint64_t> answers;
    for (const Reporter &reporter : was.reporters) {
        Message m = make(Type::failure_det_ack, reporter.id);
        m.status = Status::alive;
        m.hint = id;
        send(now, std::move(m), out);
        answers.push_back(sequence_);
    }
    if (was.believed && was.grade == Grade::suspected && !was.link) {
        // The others' ways may come back later than ours (settles() says why).
        troubled_until_ = std::max(troubled_until_, now + piece_by_piece(now - was.since));
    }
    if (was.believed || was.contested || !was.reporters.empty()) {
        out.events.push_back(
            {Event::Kind::refuted, view_, nullptr, was.who, was.grade, now - was.since});
    }
    if (was.believed) {
        // An attempt of ours that would evict it can still be taken back: only we can commit it.
        if (attempt_ && attempt_->coordinator() == self_.id && !attempt_->target->contains(id)) {
            abort_attempt();
        }
    }
    for (std::size_t i = 0; i < answers.size(); ++i) {
        count_refutation(now, id, was.reporters[i], answers[i], out);
    }
    if (suspects_.empty()) {
        drop_pending([](const Pending &p) { return p.purpose == Purpose::report; });
        changing_ = attempt_ != nullptr;
        if (state_ == State::suspended) {
            resume(now, out);
        }
    }
    if (was.believed) {
        maybe_start(now, out);
    }
}

/// How long everybody has been in doubt whom `change` evicts without proof; zero if nobody may
/// object: the death of one was contested before, or is no matter of hearing (a bad link, another's
/// attempt).
Duration Stabilizer::doubted_for(Time now, const Change &change) const
{
    Duration shortest = Duration::from_s(3600);
    for (const Removed &r : change.removed) {
        if (r.grade != Grade::suspected) {
            continue;
        }
        const Suspect *s = find_suspect(r.id);
        if (s == nullptr || s->link || s->contested) {
            return Duration::zero();
        }
        shortest = std::min(shortest, now - s->since);
    }
    return shortest;
}

/// Whom the proposal in `m` would evict although this node has heard them since they were doubted.
/// A message's way makes that look shorter than it is, so that nothing from before counts.
std::vector<Removed> Stabilizer::wronged(Time now, const Message &m) const
{
    std::vector<Removed> list;
    if (!view_ || objections_ == most_objections || config_.mutation == Mutation::no_objection) {
        return list;
    }
    const std::uint64_t us = std::min<std::uint64_t>(m.beat, 3'600'000'000U);
    const Time since = now - Duration::from_us(static_cast<std::int64_t>(us));
    for (const Removed &r : m.proposal->change.removed) {
        if (r.grade == Grade::suspected && find_suspect(r.id) == nullptr &&
            heartbeat_.heard_after(since, {r.id, r.incarnation})) {
            list.push_back(r);
        }
    }
    return list;
}

/// A voter hears whom this coordinator gave up: each is probed once more, and no more than once.
void Stabilizer::on_objection(Time now, const Message &m, Output &out)
{
    bool again = false;
    for (const Removed &a : m.accused) {
        Suspect *s = find_suspect(a.id);
        if (s != nullptr && s->who == Identity{a.id, a.incarnation} && s->believed &&
            s->grade == Grade::suspected && !s->link && !s->contested) {
            s->contested = true;
            s->believed = false;
            s->respites = 0;
            s->report_at = Time::never();
            s->next = now;
            s->believe_at = now + config_.probe_timeout;
            again = true;
        }
    }
    if (again) {
        service_suspects(now, out);
    }
}

/// Of two coordinators that do not hear each other each takes the other's votes away, by a higher
/// number, before the leases let the voters vote. So the higher one lets the lower one have its
/// time: until the leases are over and an objection is settled.
void Stabilizer::on_refused(Time now, const Message &m, Output &out)
{
    if (m.status == Status::low_number) {
        max_number_ = std::max(max_number_, m.number);
    } else if (m.status == Status::heard) {
        on_objection(now, m, out);
    } else if (m.view) {
        adopt(now, m.view, out);
    }
    if (attempt_ && attempt_->coordinator() == self_.id && attempt_->number() == m.beat) {
        abort_attempt();
        // Not all at the same time again.
        retry_at_ = now + config_.repeat / 8 * (1 + self_.id % 7);
        const Suspect *const rival = find_suspect(m.coordinator);
        if (m.status == Status::low_number && m.coordinator < self_.id && rival != nullptr &&
            rival->grade == Grade::suspected && config_.mutation != Mutation::no_giving_way) {
            gives_way_to_ = m.coordinator;
            retry_at_ = now + config_.heartbeat.fence + config_.probe_timeout + config_.give_up;
        }
    }
}

void Stabilizer::count_refutation(Time now, NodeId accused, const Reporter &accuser,
                                  std::uint64_t answer, Output &out)
{
    const bool counts_all = config_.mutation == Mutation::old_accusations;
    if (acting_root() != self_.id || !view_->contains(accuser.id) ||
        (now < troubled_until_ && !counts_all)) {
        return;
    }
    // An accuser that begins anew is silent for as long as the detector and the probe take:
    // tenfold, on a machine that is busy.
    const std::uint64_t heard = counts_all ? answer : accuser.heard;
    const Duration memory = (config_.heartbeat.suspicion.ceiling + config_.probe_timeout) * 10;
    if (!refutations_.counts(now, memory, accused, accuser.id, heard, answer)) {
        return;
    }
    // Both live, but not for each other, and the tree needs every link: as the paper, a link
    // failure counts as a node failure, and the higher id goes.
    const NodeId b = std::max(accused, accuser.id);
    suspect(now, b, Grade::suspected, no_node, out, nobody);
    if (Suspect *s = find_suspect(b)) {
        s->link = true;
        believe(now, b, out);
    }
}

void Stabilizer::service_suspects(Time now, Output &out)
{
    bool report_now = false;
    // Believing may start an attempt, which leaves the list alone, or alone in the view, which
    // clears it.
    for (std::size_t i = 0; i < suspects_.size(); ++i) {
        Suspect &s = suspects_[i];
        if (s.report_at <= now) {
            s.report_at = Time::never();
            report_now = true;
        }
        if (s.next > now) {
            continue;
        }
        if (!s.believed && now >= s.believe_at) {
            believe(now, s.who.id, out);
            i = 0; // the list may have changed: look at all again; nothing is due twice
            if (suspects_.empty()) {
                break;
            }
            --i;
            continue;
        }
        if (s.believed) {
            // Still not gone: the root may have changed, or not know.
            s.next = now + config_.reprobe;
            report_now = true;
        } else {
            s.next = std::min(s.believe_at, now + config_.probe_timeout / 2);
        }
        if (s.grade == Grade::suspected) {
            Message m = make(Type::how_are_you, s.who.id);
            m.beat = ++questions_;
            send(now, std::move(m), out);
        }
    }
    if (report_now) {
        report(now, out);
    }
}

void Stabilizer::report(Time now, Output &out)
{
    const NodeId root = acting_root();
    if (root == self_.id) {
        maybe_start(now, out);
        return;
    }
    std::vector<Removed> dead = believed_dead();
    if (dead.empty()) {
        return;
    }
    const bool asked = std::any_of(pending_.begin(), pending_.end(), [&](const Pending &p) {
        return p.purpose == Purpose::report && p.message.to == root && p.message.accused == dead;
    });
    if (asked) {
        return; // and not answered yet: it is being repeated
    }
    const bool root_too = std::any_of(dead.begin(), dead.end(),
                                      [&](const Removed &r) { return r.id == view_->root(); });
    Message m = make(root_too ? Type::root_failure : Type::node_failure, root);
    m.accused = std::move(dead);
    m.beat = root == refuted_by_ ? refuted_by_message_ : 0;
    drop_pending([](const Pending &p) { return p.purpose == Purpose::report; });
    ask(now, Purpose::report, std::move(m), out);
}

void Stabilizer::on_report(Time now, const Message &m, Output &out)
{
    Message ack = make(Type::failure_det_ack, m.from);
    ack.status = state_ == State::suspended ? Status::no_quorum : Status::received;
    // Who is accused here and fine, or newcomers that the reporter's attempt waits for in vain.
    for (const Removed &a : m.accused) {
        if (a.id == self_.id) {
            ack.status = Status::alive;
            ack.hint = self_.id;
        }
    }
    const bool for_us =
        std::none_of(view_->members().begin(), view_->members().end(), [&](NodeId id) {
            return id < self_.id && !believed(id) &&
                   std::none_of(m.accused.begin(), m.accused.end(),
                                [&](const Removed &a) { return a.id == id; });
        });
    if (!for_us) {
        ack.status = Status::not_root;
        ack.hint = acting_root();
    }
    send(now, std::move(ack), out);
    for (const Removed &a : m.accused) {
        if (a.id == self_.id) {
            continue;
        }
        if (!view_->contains(Identity{a.id, a.incarnation})) {
            if (attempt_ && attempt_->coordinator() == self_.id && m.number == attempt_->number() &&
                attempt_->target->contains(Identity{a.id, a.incarnation})) {
                shunned_.push_back({a.id, a.incarnation});
                abort_attempt();
                maybe_start(now, out);
            }
            continue; // gone already: acknowledged and otherwise disregarded
        }
        suspect(now, a.id, a.grade, a.witness, out, {m.from, m.beat});
    }
}

void Stabilizer::on_det_ack(Time now, const Message &m, Output &out)
{
    if (state_ == State::leaving) {
        drop_pending(Purpose::goodbye, m.from);
        if (pending_.empty()) {
            become(State::left, Event::Kind::left, out);
        }
        return;
    }
    switch (m.status) {
    case Status::alive: {
        refuted_by_message_ =
            m.from == refuted_by_ ? std::max(refuted_by_message_, m.sequence) : m.sequence;
        refuted_by_ = m.from;
        // The root hears whom we accused. We begin anew: if we go on not hearing it, the root will
        // see a pattern.
        const Suspect *s = find_suspect(m.hint);
        if (s != nullptr && s->grade == Grade::suspected) {
            heartbeat_.on_life(now, {s->who.id, s->who.incarnation});
            clear_suspect(now, m.hint, out);
        }
        drop_pending(Purpose::report, m.from);
        break;
    }
    case Status::no_quorum:
        drop_pending(Purpose::report, m.from);
        // Else it answers what has been settled meanwhile, or who waits already.
        if (state_ == State::member && !suspects_.empty()) {
            suspend(now, out);
        }
        break;
    case Status::not_root:
        // It knows of a lower member that lives, or we know of deaths that it does not. Keep
        // asking.
        break;
    default:
        drop_pending(Purpose::report, m.from);
        if (state_ == State::suspended) {
            resume(now, out);
        }
        break;
    }
}

void Stabilizer::on_goodbye(Time now, const Message &m, Output &out)
{
    reply(now, m, Type::failure_det_ack, Status::received, out);
    suspect(now, m.from, m.status == Status::none ? Grade::farewell : Grade::proven, no_node, out,
            nobody);
}

/// How long after the first sign of life the last one may come, when somebody was silent for
/// `doubted` and more: a network comes back piece by piece, and TCP, which doubles its waits, tries
/// anew only after as long as it was gone.
Duration Stabilizer::piece_by_piece(Duration doubted) const
{
    return doubted * 2 + config_.probe_timeout;
}

/// Whether this coordinator, which had no quorum and has one again, still waits for those that are
/// silent. The last quarter of the minority's wait is left to those who began it earlier.
bool Stabilizer::settles(Time now, const Change &change)
{
    Time first = Time::never();
    for (const Removed &r : change.removed) {
        const Suspect *s = r.grade == Grade::suspected ? find_suspect(r.id) : nullptr;
        if (s != nullptr && !s->link) {
            first = std::min(first, s->since);
        }
    }
    if (first.is_never() || settled_) {
        return false;
    }
    if (settle_until_.is_never()) {
        settle_until_ =
            now + std::min(piece_by_piece(now - first), (minority_deadline_ - now) * 3 / 4);
    }
    return now < settle_until_;
}

void Stabilizer::announce_minority(Time now, const View &target, const std::vector<Removed> &dead,
                                   Output &out)
{
    std::vector<NodeId> children;
    Sweep(target, self_.id).children(self_.id, children);
    for (const NodeId id : children) {
        Message m = make(Type::minority, id);
        m.coordinator = self_.id;
        m.number = sequence_ + 1;
        m.accused = dead;
        send(now, std::move(m), out);
    }
}

void Stabilizer::on_minority(Time now, const Message &m, Output &out)
{
    // Not believed as such: whoever is said to be out of reach is probed here too, and reported to
    // the coordinator in turn, which answers that there is no quorum.
    bool news = false;
    Change change;
    for (const Removed &a : m.accused) {
        if (view_->contains(Identity{a.id, a.incarnation}) && a.id != self_.id) {
            news |= find_suspect(a.id) == nullptr;
            change.removed.push_back(a);
        }
    }
    if (!news || m.epoch != epoch()) {
        return;
    }
    const ViewPtr target = pool_->apply(view_, epoch() + 1, change);
    if (target && target->contains(self_.id) && target->contains(m.coordinator)) {
        std::vector<NodeId> children;
        Sweep(*target, m.coordinator).children(self_.id, children);
        for (const NodeId id : children) {
            Message pass = m;
            pass.from = self_.id;
            pass.from_incarnation = self_.incarnation;
            pass.to = id;
            pass.to_incarnation = incarnation_of(id);
            send(now, std::move(pass), out);
        }
    }
    for (const Removed &a : change.removed) {
        suspect(now, a.id, a.grade, a.witness, out, nobody);
    }
}

} // namespace ft::membership

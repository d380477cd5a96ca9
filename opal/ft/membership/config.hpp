/// The parameters of the membership engine, and the switches that break it on purpose for tests.
#pragma once

#include "opal/ft/base/time.hpp"
#include "opal/ft/detector/heartbeat.hpp"
#include "opal/ft/membership/view.hpp"

#include <string>

namespace ft::membership {

/// Ways to break the engine, so that each checker of an invariant is proven able to fail. Tests
/// only.
enum class Mutation : std::uint8_t {
    none,
    no_quorum,        ///< whoever can be reached is enough
    no_ambiguous,     ///< forget votes at once
    no_fence,         ///< every proven death counts as clean
    reuse_epoch,      ///< every attempt takes the next epoch, also after others took it
    no_dedup,         ///< take messages again
    deliver_any_view, ///< the gate lets everything through
    keep_evicted,     ///< ignore that one was evicted
    no_self_check,    ///< install views without oneself
    no_repeat,        ///< never ask again
    no_probe,         ///< believe every accusation
    believe_nothing,  ///< never believe a silent node dead
    chatter,          ///< send every vote to the whole view
    trust_clock,      ///< take every step of the clock for time that has passed
    no_objection,     ///< vote for whatever is proposed, also against who is heard
    no_giving_way,    ///< coordinators that do not hear each other outbid each other for ever
    no_doubt,         ///< who was out of touch takes every proof of death as if it had not been
    untold_doubt,     ///< heartbeats do not say that their sender is out of touch
    promise_always,  ///< echo the heartbeats of whom an attempt leaves out, although the vote comes
    old_accusations, ///< accusations count against a link although they were made before it healed
};

struct Config {
    /// Children of a member: a power of two, 2 .. 1024. Higher: fewer levels, but inner members
    /// have more to send.
    unsigned arity = 2;
    TreeMode mode = TreeMode::rebuild;
    /// Localised: a view takes some hundred bytes however many nodes there are, and 8 bytes for
    /// each gap in their ids, instead of 8 bytes for each node; a look-up takes the logarithm of
    /// the gaps. Only with `rebuild`.
    ViewForm form = ViewForm::full;
    /// First wait before an unanswered message is repeated; doubles each time up to `repeat_max`.
    /// Shorter: faster over a lossy channel, but more messages when the machine is loaded.
    base::Duration repeat = base::Duration::from_ms(50);
    base::Duration repeat_max = base::Duration::from_ms(400);
    /// Who has answered nothing for this long is probed, then accused.
    base::Duration give_up = base::Duration::from_ms(250);
    /// How long an accused node has to answer HOW_ARE_YOU. Shorter: silent deaths are believed
    /// sooner, slow nodes evicted more often.
    base::Duration probe_timeout = base::Duration::from_ms(150);
    /// How much later than its parent the other neighbours of a dead node report it.
    base::Duration report_stagger = base::Duration::from_ms(20);
    /// How long a voter waits for the commit before it asks.
    base::Duration commit_wait = base::Duration::from_ms(500);
    /// Between questions to nodes believed dead without proof: how soon a healed network is
    /// noticed.
    base::Duration reprobe = base::Duration::from_ms(250);
    /// How long those without a quorum wait for the network to heal before they end; zero: they end
    /// at once.
    base::Duration minority_wait = base::Duration::from_s(5);
    /// How long an exile without sign of life keeps the view closed to newcomers. Longer than
    /// minority_wait.
    base::Duration exile_hold = base::Duration::from_s(10);
    /// A coordinator waits this long after a restart of its attempt for further reports to combine.
    base::Duration combine = base::Duration::from_ms(1);
    detector::HeartbeatConfig heartbeat;
    Mutation mutation = Mutation::none;

    /// Empty if the values make sense together; else what is wrong and what to do, for the user.
    std::string fault() const;
};

} // namespace ft::membership

#include "opal/ft/membership/messages.hpp"

#include <array>

namespace ft::membership {

namespace {

constexpr std::array<const char *, type_count> names{
    "?",
    "HOW_ARE_YOU",
    "I_AM_WELL",
    "NODE_FAILURE",
    "ROOT_FAILURE",
    "FAILURE_DET_ACK",
    "FAILED_NODE",
    "ROOT_DEAD",
    "ROOT_AND_NODE_FAILURE",
    "FAILURE_ACK",
    "NEW_NODE",
    "NODE_ALIVE",
    "JOIN_DET_ACK",
    "NEW_NODE_JOIN",
    "ALIVE_NODE_JOIN",
    "NEW_NODE_JOIN_ACK",
    "ALIVE_NODE_JOIN_ACK",
    "WORKING",
    "REFUSED",
    "VIEW_COMMIT",
    "COMMIT_ACK",
    "FETCH_VIEW",
    "VIEW_STATE",
    "EVICTED",
    "EVICTED_ACK",
    "GOODBYE",
    "MINORITY",
    "HEARTBEAT",
};

constexpr std::array<const char *, status_count> status_names{
    "",        "received", "alive",      "no quorum", "not root", "pending",
    "welcome", "denied",   "low number", "old base",  "heard",    "in doubt"};

bool same(const ViewPtr &a, const ViewPtr &b)
{
    return a == b || (a && b && a->epoch() == b->epoch() && a->members() == b->members() &&
                      a->incarnations() == b->incarnations() && a->exiles() == b->exiles());
}

bool same(const std::shared_ptr<const Proposal> &a, const std::shared_ptr<const Proposal> &b)
{
    return a == b || (a && b && a->number == b->number && a->coordinator == b->coordinator &&
                      a->base == b->base && a->base_digest == b->base_digest &&
                      a->target_digest == b->target_digest && a->change == b->change);
}

void append(std::string &out, const std::vector<Removed> &list)
{
    for (const Removed &r : list) {
        out += ' ' + std::to_string(r.id);
        if (r.incarnation != 0) {
            out += '.' + std::to_string(r.incarnation);
        }
        switch (r.grade) {
        case Grade::suspected:
            out += " (silent)";
            break;
        case Grade::proven:
            out += r.witness == no_node ? " (dead)"
                                        : " (dead, witness " + std::to_string(r.witness) + ")";
            break;
        case Grade::doubtful:
            out += " (dead, in doubt)";
            break;
        case Grade::farewell:
            out += " (left)";
            break;
        }
    }
}

} // namespace

const char *name(Type type)
{
    const auto i = static_cast<unsigned>(type);
    return i < type_count ? names[i] : names[0];
}

bool is_proposal(Type type)
{
    return type == Type::failed_node || type == Type::root_dead ||
           type == Type::root_and_node_failure || type == Type::new_node_join ||
           type == Type::alive_node_join;
}

bool is_vote(Type type)
{
    return type == Type::failure_ack || type == Type::new_node_join_ack ||
           type == Type::alive_node_join_ack;
}

Type vote_for(Type type)
{
    switch (type) {
    case Type::new_node_join:
        return Type::new_node_join_ack;
    case Type::alive_node_join:
        return Type::alive_node_join_ack;
    default:
        return Type::failure_ack;
    }
}

bool equal(const Message &a, const Message &b)
{
    if (a.type != b.type || a.status != b.status || a.from != b.from || a.to != b.to ||
        a.from_incarnation != b.from_incarnation || a.to_incarnation != b.to_incarnation ||
        a.sequence != b.sequence || a.epoch != b.epoch || a.number != b.number ||
        a.coordinator != b.coordinator || a.hint != b.hint || a.beat != b.beat ||
        a.echo != b.echo || a.accused != b.accused || !same(a.view, b.view) ||
        !same(a.proposal, b.proposal)) {
        return false;
    }
    const std::size_t na = a.ambiguous ? a.ambiguous->size() : 0;
    const std::size_t nb = b.ambiguous ? b.ambiguous->size() : 0;
    if (na != nb) {
        return false;
    }
    for (std::size_t i = 0; i < na; ++i) {
        if ((*a.ambiguous)[i].coordinator != (*b.ambiguous)[i].coordinator ||
            !same((*a.ambiguous)[i].target, (*b.ambiguous)[i].target)) {
            return false;
        }
    }
    return true;
}

std::string describe(const Message &m)
{
    std::string out = std::to_string(m.from);
    if (m.from_incarnation != 0) {
        out += '.' + std::to_string(m.from_incarnation);
    }
    out += " -> " + std::to_string(m.to) + ' ' + name(m.type);
    if (m.status != Status::none) {
        out += std::string(" (") + status_names[static_cast<unsigned>(m.status)] + ')';
    }
    if (m.number != 0) {
        out += " view " + std::to_string(m.number);
    }
    if (m.hint != no_node) {
        out += " hint " + std::to_string(m.hint);
    }
    if (!m.accused.empty()) {
        out += ":";
        append(out, m.accused);
    }
    if (m.proposal) {
        const Proposal &p = *m.proposal;
        out += " after " + std::to_string(p.base);
        if (!p.change.removed.empty()) {
            out += ", without";
            append(out, p.change.removed);
        }
        if (!p.change.joined.empty()) {
            out += ", with";
            for (const Identity &j : p.change.joined) {
                out += ' ' + std::to_string(j.id);
                if (j.incarnation != 0) {
                    out += '.' + std::to_string(j.incarnation);
                }
            }
        }
    }
    if (m.ambiguous && !m.ambiguous->empty()) {
        out += ", voted before for";
        for (const Ambiguous &a : *m.ambiguous) {
            out += ' ' + std::to_string(a.target->epoch());
        }
    }
    if (m.view) {
        out += " [view " + std::to_string(m.view->epoch()) + ": " + std::to_string(m.view->size()) +
               " members, root " + std::to_string(m.view->root()) + ']';
    }
    return out;
}

} // namespace ft::membership

// The bytes of messages. Everything from the wire is checked before it is believed.

#include "opal/ft/base/assert.hpp"
#include "opal/ft/base/wire.hpp"
#include "opal/ft/membership/messages.hpp"

#include <algorithm>

namespace ft::membership {

namespace {

using base::WireReader;
using base::WireWriter;

constexpr std::uint8_t wire_version = 1;

constexpr std::uint8_t has_proposal = 1;
constexpr std::uint8_t has_accused = 2;
constexpr std::uint8_t has_ambiguous = 4;
constexpr std::uint8_t has_view = 8;

constexpr std::size_t fixed_size = 80;

/// Members are runs of consecutive ids mostly: a view of a million with a few dead is a few runs.
std::size_t run_count(const MemberList &members)
{
    std::size_t runs = 0;
    members.for_each_run([&runs](NodeId, Position) { ++runs; });
    return runs;
}

std::size_t size_of(const View &v)
{
    return 32 + 8 * run_count(v.members()) + 8 * v.incarnations().size() + 4 * v.exiles().size() +
           (v.mode() == TreeMode::paper ? 4 * v.members().size() : 0);
}

std::uint32_t count_of(std::size_t n)
{
    return static_cast<std::uint32_t>(n);
}

void put(WireWriter &w, const View &v)
{
    w.u64(v.epoch());
    w.u16(static_cast<std::uint16_t>(v.arity()));
    w.u8(static_cast<std::uint8_t>(v.mode()));
    w.u32(count_of(run_count(v.members())));
    v.members().for_each_run([&w](NodeId first, Position length) {
        w.u32(first);
        w.u32(length);
    });
    w.u32(count_of(v.incarnations().size()));
    for (const Identity &i : v.incarnations()) {
        w.u32(i.id);
        w.u32(i.incarnation);
    }
    w.u32(count_of(v.exiles().size()));
    for (const NodeId id : v.exiles()) {
        w.u32(id);
    }
    if (v.mode() == TreeMode::paper) {
        for (const NodeId id : v.members()) {
            w.u32(v.parent(id));
        }
    }
}

/// A list's length, checked against what is left so that it cannot make us allocate without bound.
std::size_t take_count(WireReader &r, std::size_t bytes_each)
{
    const std::uint32_t n = r.u32();
    if (n > r.remaining() / bytes_each) {
        r.fail();
        return 0;
    }
    return n;
}

/// `ids_left` is what the views of this message may still take up, by their highest ids: a few
/// bytes stand for a view of millions, and a list of such views must not become a list of
/// allocations.
ViewPtr take_view(WireReader &r, NodeId &ids_left)
{
    const Epoch epoch = r.u64();
    const unsigned arity = r.u16();
    const std::uint8_t mode = r.u8();
    MemberList members(ViewForm::localised); // whoever adopts the view gives it his form
    const std::size_t runs = take_count(r, 8);
    for (std::size_t i = 0; i < runs && r.ok(); ++i) {
        const NodeId first = r.u32();
        const std::uint32_t length = r.u32();
        // Runs that ascend without touching: the one spelling of a set, and a bound on its size.
        if (length == 0 || length > ids_left || first > ids_left - length ||
            (!members.empty() && first <= members.back() + 1)) {
            r.fail();
            break;
        }
        members.append(first, length);
    }
    ids_left -= members.empty() ? 0 : members.back() + 1;
    std::vector<Identity> incarnations(take_count(r, 8));
    for (Identity &i : incarnations) {
        i.id = r.u32();
        i.incarnation = r.u32();
    }
    std::vector<NodeId> exiles(take_count(r, 4));
    for (NodeId &id : exiles) {
        id = r.u32();
        if (id >= max_nodes) {
            r.fail();
        }
    }
    std::vector<NodeId> parents;
    if (mode == static_cast<std::uint8_t>(TreeMode::paper)) {
        if (members.size() > r.remaining() / 4) {
            r.fail();
        }
        for (std::size_t i = 0; i < members.size() && r.ok(); ++i) {
            parents.push_back(r.u32());
        }
    }
    if (!r.ok() || mode > static_cast<std::uint8_t>(TreeMode::paper)) {
        r.fail();
        return nullptr;
    }
    ViewPtr v = View::from_parts(epoch, std::move(members), std::move(incarnations),
                                 std::move(exiles), arity, static_cast<TreeMode>(mode), parents);
    if (!v) {
        r.fail();
    }
    return v;
}

void put(WireWriter &w, const std::vector<Removed> &list)
{
    w.u32(count_of(list.size()));
    for (const Removed &x : list) {
        w.u32(x.id);
        w.u32(x.incarnation);
        w.u8(static_cast<std::uint8_t>(x.grade));
        w.u32(x.witness);
    }
}

constexpr std::size_t removed_size = 13;

std::vector<Removed> take_removed(WireReader &r)
{
    std::vector<Removed> list(take_count(r, removed_size));
    for (std::size_t i = 0; i < list.size(); ++i) {
        list[i].id = r.u32();
        list[i].incarnation = r.u32();
        const std::uint8_t grade = r.u8();
        list[i].witness = r.u32();
        if (grade > static_cast<std::uint8_t>(Grade::farewell) ||
            (i != 0 && list[i].id <= list[i - 1].id)) {
            r.fail();
        }
        list[i].grade = static_cast<Grade>(grade);
    }
    return list;
}

void put(WireWriter &w, const Proposal &p)
{
    w.u64(p.number);
    w.u32(p.coordinator);
    w.u64(p.base);
    w.u64(p.base_digest);
    w.u64(p.target_digest);
    put(w, p.change.removed);
    w.u32(count_of(p.change.joined.size()));
    for (const Identity &j : p.change.joined) {
        w.u32(j.id);
        w.u32(j.incarnation);
    }
    w.u32(count_of(p.change.settled.size()));
    for (const NodeId id : p.change.settled) {
        w.u32(id);
    }
}

std::shared_ptr<const Proposal> take_proposal(WireReader &r)
{
    auto p = std::make_shared<Proposal>();
    p->number = r.u64();
    p->coordinator = r.u32();
    p->base = r.u64();
    p->base_digest = r.u64();
    p->target_digest = r.u64();
    p->change.removed = take_removed(r);
    p->change.joined.resize(take_count(r, 8));
    NodeId last = no_node;
    for (Identity &j : p->change.joined) {
        j.id = r.u32();
        j.incarnation = r.u32();
        if (j.id >= max_nodes || (last != no_node && j.id <= last)) {
            r.fail();
        }
        last = j.id;
    }
    p->change.settled.resize(take_count(r, 4));
    for (NodeId &id : p->change.settled) {
        id = r.u32();
    }
    if (!std::is_sorted(p->change.settled.begin(), p->change.settled.end()) ||
        p->number <= p->base) {
        r.fail();
    }
    return p;
}

std::size_t size_of(const Message &m)
{
    std::size_t n = fixed_size + 4 + removed_size * m.accused.size();
    if (m.proposal) {
        const Change &c = m.proposal->change;
        n += 52 + removed_size * c.removed.size() + 8 * c.joined.size() + 4 * c.settled.size();
    }
    if (m.ambiguous) {
        n += 4;
        for (const Ambiguous &a : *m.ambiguous) {
            n += 4 + size_of(*a.target);
        }
    }
    return m.view ? n + size_of(*m.view) : n;
}

bool has_what_it_needs(const Message &m)
{
    if (is_proposal(m.type)) {
        return m.proposal != nullptr;
    }
    switch (m.type) {
    case Type::node_failure:
    case Type::root_failure:
    case Type::minority:
        return !m.accused.empty();
    case Type::view_state:
        return m.view != nullptr;
    case Type::join_det_ack:
        return m.status != Status::pending || m.view != nullptr;
    case Type::refused:
        return (m.status != Status::old_base || m.view != nullptr) &&
               (m.status != Status::heard || !m.accused.empty());
    default:
        return true;
    }
}

} // namespace

std::vector<std::byte> encode(const Message &m)
{
    std::vector<std::byte> out(size_of(m));
    WireWriter w(out);
    w.u8(wire_version);
    w.u8(static_cast<std::uint8_t>(m.type));
    w.u8(static_cast<std::uint8_t>(m.status));
    w.u8(static_cast<std::uint8_t>((m.proposal ? has_proposal : 0) |
                                   (m.accused.empty() ? 0 : has_accused) |
                                   (m.ambiguous ? has_ambiguous : 0) | (m.view ? has_view : 0)));
    w.u32(m.from);
    w.u32(m.to);
    w.u32(m.from_incarnation);
    w.u32(m.to_incarnation);
    w.u64(m.sequence);
    w.u64(m.epoch);
    w.u64(m.number);
    w.u32(m.coordinator);
    w.u32(m.hint);
    w.u64(m.beat);
    w.u64(m.echo);
    if (m.proposal) {
        put(w, *m.proposal);
    }
    if (!m.accused.empty()) {
        put(w, m.accused);
    }
    if (m.ambiguous) {
        w.u32(count_of(m.ambiguous->size()));
        for (const Ambiguous &a : *m.ambiguous) {
            w.u32(a.coordinator);
            put(w, *a.target);
        }
    }
    if (m.view) {
        put(w, *m.view);
    }
    FT_ASSERT(w.ok());
    out.resize(w.position());
    return out;
}

std::optional<Message> decode(std::span<const std::byte> data, NodeId most_ids)
{
    WireReader r(data);
    NodeId ids_left = most_ids;
    Message m;
    const std::uint8_t version = r.u8();
    const std::uint8_t type = r.u8();
    const std::uint8_t status = r.u8();
    const std::uint8_t parts = r.u8();
    if (version != wire_version || type == 0 || type >= type_count || status >= status_count ||
        parts > (has_proposal | has_accused | has_ambiguous | has_view)) {
        return std::nullopt;
    }
    m.type = static_cast<Type>(type);
    m.status = static_cast<Status>(status);
    m.from = r.u32();
    m.to = r.u32();
    m.from_incarnation = r.u32();
    m.to_incarnation = r.u32();
    m.sequence = r.u64();
    m.epoch = r.u64();
    m.number = r.u64();
    m.coordinator = r.u32();
    m.hint = r.u32();
    m.beat = r.u64();
    m.echo = r.u64();
    if ((parts & has_proposal) != 0) {
        m.proposal = take_proposal(r);
    }
    if ((parts & has_accused) != 0) {
        m.accused = take_removed(r);
    }
    if ((parts & has_ambiguous) != 0) {
        auto list = std::make_shared<std::vector<Ambiguous>>();
        const std::size_t n = take_count(r, 28);
        for (std::size_t i = 0; i < n && r.ok(); ++i) {
            Ambiguous a;
            a.coordinator = r.u32();
            a.target = take_view(r, ids_left);
            list->push_back(std::move(a));
        }
        m.ambiguous = std::move(list);
    }
    if ((parts & has_view) != 0) {
        m.view = take_view(r, ids_left);
    }
    if (!r.complete() || m.from >= most_ids || m.to >= most_ids || !has_what_it_needs(m)) {
        return std::nullopt;
    }
    return m;
}

} // namespace ft::membership

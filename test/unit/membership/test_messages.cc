#include "opal/ft/base/rng.hpp"
#include "opal/ft/base/wire.hpp"
#include "opal/ft/membership/config.hpp"
#include "opal/ft/membership/inbox.hpp"
#include "opal/ft/membership/messages.hpp"
#include "opal/ft/membership/seal.hpp"
#include "opal/ft/membership/stabilizer.hpp"
#include "test/unit/cmocka.hpp"

#include <cstring>
#include <memory>

using namespace ft::membership;

namespace {

Key counting_key()
{
    Key k;
    for (std::size_t i = 0; i < k.size(); ++i) {
        k[i] = std::byte(i);
    }
    return k;
}

/// The vectors of the reference implementation: key 00..0f, input 00..n-1.
void siphash_vectors(void **)
{
    std::vector<std::byte> in;
    const auto next = [&] {
        const std::uint64_t h = siphash24(counting_key(), in);
        in.push_back(std::byte(in.size()));
        return h;
    };
    assert_true(next() == 0x726fdb47dd0e0e31U);
    assert_true(next() == 0x74f839c593dc67fdU);
    assert_true(next() == 0x0d6c8009d9a94f5aU);
    while (in.size() < 15) {
        next();
    }
    assert_true(siphash24(counting_key(), in) == 0xa129ca6149be45e5U); // the paper's appendix
}

/// One message of every type with every part that it can have.
std::vector<Message> specimens()
{
    std::vector<Message> all;
    for (unsigned t = 1; t < type_count; ++t) {
        Message m;
        m.type = static_cast<Type>(t);
        m.status = static_cast<Status>(t % status_count);
        m.from = t;
        m.to = 1000 + t;
        m.from_incarnation = t * 3;
        m.to_incarnation = t * 5;
        m.sequence = 0x0102030405060708U + t;
        m.epoch = 77;
        m.number = 78;
        m.coordinator = 3;
        m.hint = 9;
        m.beat = 55;
        m.echo = 54;
        auto p = std::make_shared<Proposal>();
        p->number = 78;
        p->coordinator = 3;
        p->base = 77;
        p->base_digest = 1;
        p->target_digest = 2;
        p->change.removed = {{4, 0, Grade::proven, 3}, {9, 2, Grade::suspected, no_node}};
        p->change.joined = {{4, 1}};
        p->change.settled = {1, 2};
        m.proposal = p;
        m.accused = {{1, 0, Grade::farewell, no_node}};
        Change c;
        c.removed.push_back({2, 0, Grade::suspected, no_node});
        c.joined.push_back({20, 7});
        m.view = View::initial(9, 4, t % 2 == 0 ? TreeMode::paper : TreeMode::rebuild)->apply(5, c);
        m.ambiguous = std::make_shared<const std::vector<Ambiguous>>(
            std::vector<Ambiguous>{{3, m.view}, {4, View::initial(2, 4, TreeMode::rebuild)}});
        all.push_back(m);
    }
    return all;
}

void every_type_survives_its_bytes(void **)
{
    bool good = true;
    for (const Message &m : specimens()) {
        const auto back = decode(encode(m));
        good &= back && equal(*back, m) && !describe(*back).empty();
    }
    assert_true(good);
}

void a_cut_or_longer_message_is_refused(void **)
{
    bool good = true;
    for (const Message &m : specimens()) {
        auto bytes = encode(m);
        for (std::size_t n = 0; n < bytes.size(); ++n) {
            good &= !decode(std::span(bytes).first(n));
        }
        bytes.push_back(std::byte{0});
        good &= !decode(bytes);
    }
    assert_true(good);
}

/// Random damage never crashes (the sanitizer build says so), and what decodes encodes to itself
/// again.
void damage_is_refused_or_harmless(void **)
{
    ft::base::Rng rng(7);
    bool good = true;
    const auto all = specimens();
    for (int i = 0; i < 6000; ++i) {
        // A view of millions is checked member by member where assertions are on: most damage is
        // read by who takes as many ids as a job has.
        const NodeId most_ids = i % 64 == 0 ? max_nodes : 4096;
        auto bytes = encode(all[rng.below(all.size())]);
        for (std::uint64_t k = rng.between(1, 4); k > 0; --k) {
            bytes[rng.below(bytes.size())] = std::byte(rng.below(256));
        }
        const auto m = decode(bytes, most_ids);
        if (m) {
            const auto again = decode(encode(*m), most_ids);
            good &= again && equal(*again, *m);
        }
    }
    assert_true(good);
}

void only_the_right_key_opens(void **)
{
    const Sealer ours(counting_key());
    Key other = counting_key();
    other[5] ^= std::byte{1};
    const Sealer theirs(other);
    const Message m = specimens()[4];
    auto sealed = ours.seal(m);
    Sealer::Fault fault{};
    const auto opened = ours.open(sealed, &fault);
    const bool right = opened && equal(*opened, m) && fault == Sealer::Fault::none;
    const bool wrong_key = !theirs.open(sealed, &fault) && fault == Sealer::Fault::bad_tag;
    bool flipped = true;
    for (std::size_t i = 0; i < sealed.size() * 8; ++i) {
        sealed[i / 8] ^= std::byte(1U << (i % 8));
        flipped &= !ours.open(sealed, &fault) && fault == Sealer::Fault::bad_tag;
        sealed[i / 8] ^= std::byte(1U << (i % 8));
    }
    const bool short_one =
        !ours.open(std::span(sealed).first(7), &fault) && fault == Sealer::Fault::too_short;
    std::vector<std::byte> junk(8);
    const std::uint64_t tag = siphash24(counting_key(), {});
    std::memcpy(junk.data(), &tag, 8);
    const bool malformed = !ours.open(junk, &fault) && fault == Sealer::Fault::malformed;
    assert_true(right);
    assert_true(wrong_key);
    assert_true(flipped);
    assert_true(short_one);
    assert_true(malformed);
}

/// Byte for byte what test/cluster/forger.py sends daemons, but for the tag, which is its zeros, or
/// the one that only who has the key can make.
std::vector<std::byte> forgery(Type type, NodeId from, NodeId to, Epoch number, bool with_key)
{
    std::vector<std::byte> bytes(68 + Sealer::tag_size);
    ft::base::WireWriter w(bytes);
    w.u8(1);
    w.u8(static_cast<std::uint8_t>(type));
    w.zeros(2);
    w.u32(from);
    w.u32(to);
    w.zeros(8);
    w.u64(std::uint64_t{1} << 40U);
    w.u64(0);
    w.u64(number);
    w.u32(no_node);
    w.u32(no_node);
    w.zeros(16);
    w.u64(with_key ? siphash24(counting_key(), std::span(bytes).first(68)) : 0);
    return bytes;
}

/// So it is the tag that stops them on the virtual cluster, where the key cannot be had.
void what_the_forger_sends_is_believed_with_the_right_tag(void **)
{
    const auto now = ft::base::Time::zero() + ft::base::Duration::from_ms(100);
    const auto pool = std::make_shared<ViewPool>();
    const ViewPtr view = View::initial(3, 2, TreeMode::rebuild);
    const Sealer ours(counting_key());
    Stabilizer accused(Config(), pool, {1, 0}, view, ft::base::Time::zero());
    Stabilizer root(Config(), pool, {0, 0}, view, ft::base::Time::zero());
    Output out;
    Sealer::Fault fault{};
    const auto refused = [&](Type type, NodeId from, NodeId to, Epoch number) {
        return !ours.open(forgery(type, from, to, number, false), &fault) &&
               fault == Sealer::Fault::bad_tag;
    };
    const bool stopped = refused(Type::evicted, 0, 1, 1000) && refused(Type::goodbye, 2, 0, 0);
    const auto eviction = ours.open(forgery(Type::evicted, 0, 1, 1000, true));
    const bool evicted = eviction &&
                         accused.on_message(now, *eviction, out) == Stabilizer::Verdict::taken &&
                         accused.state() == State::evicted;
    out.clear();
    const auto farewell = ours.open(forgery(Type::goodbye, 2, 0, 0, true));
    const bool left = farewell &&
                      root.on_message(now, *farewell, out) == Stabilizer::Verdict::taken &&
                      out.events.size() == 1 && out.events[0].kind == Event::Kind::believed &&
                      out.events[0].who.id == 2 && out.events[0].grade == Grade::farewell;
    out = Output();
    assert_true(stopped);
    assert_true(evicted);
    assert_true(left);
}

void an_inbox_takes_each_number_once(void **)
{
    Inbox in;
    const Identity a{1, 0};
    assert_true(in.accept(a, 5));
    assert_false(in.accept(a, 5));
    assert_true(in.accept(a, 4));
    assert_true(in.accept(a, 68));
    assert_false(in.accept(a, 4));
    assert_true(in.accept(a, 6)); // 62 behind
    assert_true(in.accept(a, 200));
    assert_false(in.accept(a, 136)); // 64 behind: too old to tell
    assert_true(in.accept(a, 137));
    assert_true(in.accept({2, 0}, 5));
    assert_true(in.accept({1, 1}, 5)); // a new life counts anew
    assert_false(in.accept(a, 300));   // the old one is over
}

void bad_parameters_are_named(void **)
{
    Config c;
    assert_true(c.fault().empty());
    c.arity = 3;
    assert_true(c.fault().find("arity") != std::string::npos);
    c = Config();
    c.heartbeat.suspicion.floor = ft::base::Duration::from_ms(150);
    assert_true(c.fault().find("heartbeat interval") != std::string::npos);
    c = Config();
    c.exile_hold = ft::base::Duration::zero();
    assert_true(c.fault().find("exile_hold") != std::string::npos);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(siphash_vectors),
        cmocka_unit_test(every_type_survives_its_bytes),
        cmocka_unit_test(a_cut_or_longer_message_is_refused),
        cmocka_unit_test(damage_is_refused_or_harmless),
        cmocka_unit_test(only_the_right_key_opens),
        cmocka_unit_test(what_the_forger_sends_is_believed_with_the_right_tag),
        cmocka_unit_test(an_inbox_takes_each_number_once),
        cmocka_unit_test(bad_parameters_are_named),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Two ports of one process whose endpoints are connected one to one, over UCX's tcp. What goes over
// the line can be lost, late or come twice; the clock is the test's own, and stands where a message
// that the kernel still has must come first.
#include "opal/mca/btl/ucx/message.hpp"
#include "opal/mca/btl/ucx/wires.hpp"
#include "test/unit/cmocka.hpp"

#include <algorithm>
#include <chrono>
#include <functional>

using namespace ft;
using namespace ft::ucx;

namespace {

constexpr std::uint32_t fragment = 65528;
constexpr auto patience = std::chrono::seconds(30);
constexpr base::Duration tick = base::Duration::from_ms(1);
constexpr std::uint64_t cookie_a = 0xaaaa'aaaa'aaaa'0000;
constexpr std::uint64_t cookie_b = 0xbbbb'bbbb'bbbb'0000;

/// Calls turn until the condition holds, or for as long as one has patience.
template <typename Condition, typename Turn>
bool turn_until(Condition done, Turn turn)
{
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!done() && std::chrono::steady_clock::now() < end) {
        turn();
    }
    return done();
}

std::unique_ptr<Port> open_port()
{
    const std::vector<Resource> all = resources();
    for (const Resource &resource : all) {
        std::string why;
        if (resource.transport == "tcp" && resource.device == "lo") {
            return Port::open(resource, all, ConnectBy::endpoints, fragment, why);
        }
    }
    return nullptr;
}

/// One of the two processes, as btl/ucx's module is.
class End final : private PortEvents, private WireEvents, private LineEvents {
  public:
    explicit End(std::uint64_t cookie)
        : cookie_(cookie), port(open_port()), wires(*port, cookie, *this)
    {
        port->tell(*this);
        port->tell_of_line(this);
    }
    ~End() override
    {
        if (way != nullptr) {
            drop(true);
        }
    }
    /// Begins to connect, or takes what is there.
    bool call(End &other, base::Time now, base::Duration limit = base::Duration::max())
    {
        ucs_status_t status = UCS_OK;
        wire = wires.take_way(other.cookie_, other.port->line_address(), now, limit, status);
        way = wire == nullptr ? nullptr : wire->way;
        return way != nullptr;
    }
    void drop(bool leaving)
    {
        if (leaving && wire->open) {
            const std::uint64_t goodbye = Header{wire->cookie, Kind::goodbye, 0}.packed();
            static_cast<void>(uct_ep_am_short(way, message_id, goodbye, &cookie_, sizeof cookie_));
        }
        wires.let_go(*wire, way, leaving);
        uct_ep_destroy(way);
        way = nullptr;
    }
    bool send(std::uint64_t number)
    {
        if (way == nullptr || !wire->open) {
            return false;
        }
        const bool taken =
            uct_ep_am_short(way, message_id, number, &number, sizeof number) == UCS_OK;
        if (taken) {
            Wires::note_used(*wire);
        }
        return taken;
    }
    void turn(base::Time now)
    {
        port->progress();
        port->look_for_connections();
        if (wires.busy()) {
            wires.work(now);
        }
        if (lost) {
            lost = false;
            drop(false);
        }
        wires.bury();
    }
    /// What came over the line, again.
    void replay()
    {
        for (const Bytes &bytes : heard) {
            wires.line_take(bytes);
        }
    }

  private:
    void take(std::span<const std::byte> message) noexcept override
    {
        std::uint64_t number = 0;
        std::memcpy(&number, message.data(), sizeof number);
        if (Header::of(number).kind == Kind::goodbye && (number >> 48) != 0) {
            ++goodbyes;
        } else {
            got.push_back(number);
        }
    }
    void broken(uct_ep_h endpoint, ucs_status_t status) noexcept override
    {
        if (deaf) {
            return;
        }
        if (endpoint == way && way != nullptr) {
            wire_broken(endpoint, status);
        } else {
            wires.broken(endpoint);
        }
    }
    void wire_broken(uct_ep_h /*way*/, ucs_status_t status) noexcept override
    {
        breaks += lost ? 0 : 1; // the line may have broken, too
        failures += leaves + goodbyes == 0 ? 1 : 0;
        last = status;
        lost = true;
    }
    void wire_leaves(std::uint64_t /*cookie*/) noexcept override { ++leaves; }
    void line_take(std::span<const std::byte> message) noexcept override
    {
        heard.emplace_back(message.begin(), message.end());
        const unsigned times = copies ? copies(heard.size()) : 1;
        for (unsigned i = 0; i < times; ++i) {
            wires.line_take(message);
        }
    }
    void line_broken(uct_ep_h endpoint, ucs_status_t status) noexcept override
    {
        wires.line_broken(endpoint, status);
    }

    const std::uint64_t cookie_;

  public:
    std::unique_ptr<Port> port;
    Wires wires;
    Wire *wire = nullptr;
    uct_ep_h way = nullptr;
    bool lost = false;
    bool deaf = false; ///< UCX says nothing, as rc while it has nothing to send
    int breaks = 0;
    int failures = 0; ///< of those, without a word before
    int leaves = 0;
    int goodbyes = 0;
    ucs_status_t last = UCS_OK;
    std::vector<std::uint64_t> got;
    std::vector<Bytes> heard;
    std::function<unsigned(std::size_t)> copies; ///< of the nth message of the line
};

struct Pair {
    End a{cookie_a};
    End b{cookie_b};
    base::Time now;
    std::function<bool()> stands; ///< whether the clock does; it goes if there is none

    template <typename Condition>
    bool until(Condition done)
    {
        return turn_until(done, [&] {
            now += stands && stands() ? base::Duration() : tick;
            a.turn(now);
            b.turn(now);
        });
    }
    /// A message each way, each once. \return what is wrong
    std::string talk()
    {
        if (a.way == nullptr && !a.call(b, now)) {
            return "a has no way";
        }
        if (b.way == nullptr && !b.call(a, now)) {
            return "b has no way";
        }
        a.got.clear();
        b.got.clear();
        bool sent_a = false;
        bool sent_b = false;
        until([&] {
            sent_a = sent_a || a.send(11);
            sent_b = sent_b || b.send(22);
            return sent_a && sent_b && !a.got.empty() && !b.got.empty();
        });
        const bool right =
            a.got == std::vector<std::uint64_t>{22} && b.got == std::vector<std::uint64_t>{11};
        return right           ? ""
               : !a.wire->open ? "a is not open"
               : !b.wire->open ? "b is not open"
                               : "what was sent did not come";
    }
    [[nodiscard]] std::string unbroken() const
    {
        return a.breaks + b.breaks == 0 ? "" : "something broke";
    }
};

std::string one_side()
{
    Pair pair;
    pair.stands = [] { return true; }; // nothing is said twice
    pair.a.call(pair.b, pair.now);
    if (!pair.until([&] { return pair.a.wire->open; })) {
        return "it does not open";
    }
    bool sent = false;
    pair.until([&] { return (sent = sent || pair.a.send(5)) && !pair.b.got.empty(); });
    if (pair.b.got != std::vector<std::uint64_t>{5}) {
        return "it does not carry";
    }
    // The other side takes the same pair, and that takes no message any more.
    const std::size_t messages = pair.a.heard.size() + pair.b.heard.size();
    const std::string wrong = pair.talk();
    if (!wrong.empty() || messages != 3 || pair.a.heard.size() + pair.b.heard.size() != 3) {
        return wrong + " after " + std::to_string(messages) + " messages";
    }
    return pair.unbroken();
}

std::string both_at_once()
{
    Pair pair;
    pair.a.call(pair.b, pair.now);
    pair.b.call(pair.a, pair.now);
    uct_ep_h ways[]{pair.a.way, pair.b.way};
    std::string wrong = pair.talk();
    if (wrong.empty() &&
        (pair.a.way != ways[0] || pair.b.way != ways[1] || pair.a.wires.counters().opened != 1 ||
         pair.b.wires.counters().opened != 1)) {
        wrong = "more than one pair was made";
    }
    return wrong + pair.unbroken();
}

/// \param fate copies of the nth message
std::string under(const std::function<unsigned(std::size_t)> &fate, bool both)
{
    Pair pair;
    pair.a.copies = pair.b.copies = fate;
    pair.a.call(pair.b, pair.now);
    if (both) {
        pair.b.call(pair.a, pair.now);
    }
    std::string wrong = pair.talk();
    pair.a.copies = pair.b.copies = nullptr;
    pair.a.replay();
    pair.b.replay();
    wrong += pair.talk();
    return wrong + pair.unbroken();
}

std::string renewed(bool by_both, bool replayed)
{
    Pair pair;
    std::string wrong = pair.talk();
    for (int round = 0; round < 3 && wrong.empty(); ++round) {
        pair.a.drop(false);
        if (by_both) {
            pair.b.drop(false);
        }
        if (replayed) {
            pair.a.replay();
            pair.b.replay();
        }
        pair.a.call(pair.b, pair.now);
        wrong = pair.until([&] { return pair.a.wire->open; }) ? pair.talk() : "not open again";
        if (pair.a.breaks != 0 || (by_both && pair.b.breaks != 0)) {
            wrong += "a new one broke";
        }
    }
    return wrong;
}

/// UCX tells one side alone that the connection is gone.
std::string told_by_the_peer()
{
    Pair pair;
    std::string wrong = pair.talk();
    pair.b.deaf = true;
    pair.a.drop(false);
    pair.a.call(pair.b, pair.now);
    if (!wrong.empty() || !pair.until([&] { return pair.a.wire->open; })) {
        return wrong + " not open again";
    }
    return pair.b.breaks != 1 ? "the other end is taken for good" : pair.talk();
}

/// A call that was under way while the endpoint that it tells of ended.
std::string late_call()
{
    Pair pair;
    std::string wrong = pair.talk();
    auto late = WireMessage::of(pair.a.heard.back());
    if (!wrong.empty() || !late) {
        return wrong + " nothing was heard";
    }
    late->yours = 0;
    late->open = false;
    pair.a.drop(false);
    const Bytes bytes = late->packed();
    static_cast<LineEvents &>(pair.a.wires).line_take(bytes);
    pair.a.turn(pair.now);
    if (pair.a.wire->way != nullptr) {
        return "an endpoint was made for one that is gone";
    }
    pair.a.call(pair.b, pair.now);
    return pair.until([&] { return pair.a.wire->open; }) ? pair.talk() : "not open again";
}

/// An answer to the call of an endpoint that ended before it came.
std::string late_answer()
{
    Pair pair;
    pair.a.copies = [](std::size_t) { return 0U; };
    pair.a.call(pair.b, pair.now);
    if (!pair.until([&] { return !pair.a.heard.empty(); })) {
        return "no answer";
    }
    pair.a.drop(false);
    pair.a.copies = nullptr;
    pair.a.call(pair.b, pair.now);
    pair.a.replay();
    const std::string wrong =
        pair.until([&] { return pair.a.wire->open; }) ? pair.talk() : "not open";
    return wrong + (pair.a.breaks == 0 ? "" : "it was connected to one that has another");
}

std::string no_answer()
{
    Pair pair;
    pair.b.copies = [](std::size_t) { return 0U; };
    const base::Time began = pair.now;
    pair.stands = [&] { // until b has heard as many calls as are due by now
        std::size_t due = 0;
        for (std::int64_t at = 0, pause = 20; at <= (pair.now - began).ms(); ++due) {
            at += pause;
            pause = std::min<std::int64_t>(2 * pause, 1280);
        }
        return pair.b.heard.size() < due;
    };
    pair.a.call(pair.b, pair.now, base::Duration::from_s(5));
    if (!pair.until([&] { return pair.a.breaks != 0; })) {
        return "nobody is told";
    }
    const std::int64_t after = (pair.now - began).ms();
    if (pair.a.last != UCS_ERR_TIMED_OUT || after < 5000 || after > 5002 ||
        pair.b.heard.size() < 5 || pair.b.heard.size() > 10) {
        return "after " + std::to_string(after) + " ms and " + std::to_string(pair.b.heard.size()) +
               " messages: " + ucs_status_string(pair.a.last);
    }
    pair.b.copies = nullptr;
    pair.stands = nullptr;
    return pair.talk(); // and when it answers it is no worse for that
}

std::string stranger()
{
    Pair pair;
    End other(0xcccc'cccc'cccc'0000);
    // Whom a takes for b is somebody else by now.
    ucs_status_t status = UCS_OK;
    pair.stands = [&] { return other.wires.counters().strangers == 0; };
    pair.a.wire = pair.a.wires.take_way(cookie_b, other.port->line_address(), pair.now,
                                        base::Duration::from_s(3), status);
    pair.a.way = pair.a.wire->way;
    pair.until([&] {
        other.turn(pair.now);
        return pair.a.breaks != 0;
    });
    return pair.a.last != UCS_ERR_TIMED_OUT               ? "nobody is told"
           : other.wires.counters().strangers == 0        ? "nobody was counted"
           : other.breaks + other.wires.counters().opened ? "the stranger was connected"
                                                          : "";
}

std::string nobody_there()
{
    Pair pair;
    ucs_status_t status = UCS_OK;
    Address gone;
    {
        const End other(0xcccc'cccc'cccc'0000);
        gone = other.port->line_address();
    }
    pair.a.wire =
        pair.a.wires.take_way(0xcccc'cccc'cccc'0000, gone, pair.now, base::Duration::max(), status);
    pair.a.way = pair.a.wire->way;
    pair.until([&] { return pair.a.breaks != 0; });
    return pair.a.breaks == 1 ? "" : "nobody is told";
}

/// One side ends while they connect, or after that.
std::string leaving(bool open)
{
    Pair pair;
    pair.b.copies = [&](std::size_t) { return open ? 1U : 0U; };
    pair.a.call(pair.b, pair.now);
    pair.b.call(pair.a, pair.now);
    if (!open) {
        pair.until([&] { return !pair.b.heard.empty(); });
        pair.b.copies = nullptr;
    } else if (const std::string wrong = pair.talk(); !wrong.empty()) {
        return wrong;
    }
    pair.a.drop(true);
    pair.until([&] { return pair.b.breaks != 0; });
    return pair.b.breaks != 1     ? "it is not seen"
           : pair.b.failures != 0 ? "it is taken for a failure"
                                  : "";
}

/// Who never sent anything is not taken for dead when it ends.
std::string silent_side_ends()
{
    auto pair = std::make_unique<Pair>();
    pair->a.call(pair->b, pair->now);
    bool sent = false;
    pair->until([&] { return (sent = sent || pair->a.send(5)) && !pair->b.got.empty(); });
    if (pair->b.got.empty()) {
        return "it does not carry";
    }
    End third(0xdddd'dddd'dddd'0000);
    third.call(pair->b, pair->now);
    pair->until([&] {
        third.turn(pair->now);
        return third.wire->open;
    });
    base::Time now = pair->now;
    pair.reset();
    turn_until([&] { return third.breaks != 0; }, [&] { third.turn(now += tick); });
    return third.breaks != 1     ? "the end is not seen"
           : third.failures != 0 ? "it is taken for a failure"
                                 : "";
}

void one_side_calls(void **)
{
    assert_string_equal(one_side().c_str(), "");
}
void both_sides_call_at_once(void **)
{
    for (int i = 0; i < 20; ++i) {
        assert_string_equal(both_at_once().c_str(), "");
    }
}
void messages_may_be_lost_or_come_twice(void **)
{
    const std::function<unsigned(std::size_t)> fates[]{
        [](std::size_t n) { return n <= 3 ? 0U : 1U; },
        [](std::size_t n) { return n % 2 == 1 ? 0U : 1U; },
        [](std::size_t n) { return n % 2 == 1 ? 1U : 0U; },
        [](std::size_t) { return 2U; },
        [](std::size_t n) { return n == 2 ? 0U : 3U; },
    };
    for (const auto &fate : fates) {
        for (const bool both : {false, true}) {
            assert_string_equal(under(fate, both).c_str(), "");
        }
    }
}
void a_way_is_made_anew(void **)
{
    for (const bool by_both : {false, true}) {
        for (const bool replayed : {false, true}) {
            assert_string_equal(renewed(by_both, replayed).c_str(), "");
        }
    }
    assert_string_equal(told_by_the_peer().c_str(), "");
    assert_string_equal(late_call().c_str(), "");
    assert_string_equal(late_answer().c_str(), "");
}
void who_does_not_answer_is_given_up(void **)
{
    assert_string_equal(no_answer().c_str(), "");
}
void a_stranger_is_not_connected(void **)
{
    assert_string_equal(stranger().c_str(), "");
}
void who_is_gone_is_told(void **)
{
    assert_string_equal(nobody_there().c_str(), "");
}
void an_end_is_no_failure(void **)
{
    assert_string_equal(leaving(false).c_str(), "");
    assert_string_equal(leaving(true).c_str(), "");
    assert_string_equal(silent_side_ends().c_str(), "");
}

void messages_survive_the_way(void **)
{
    WireMessage sent;
    sent.to = cookie_a;
    sent.from = cookie_b;
    sent.open = true;
    sent.mine = 7;
    sent.yours = 9;
    sent.line = {Bytes(16, std::byte{1}), Bytes(2, std::byte{2})};
    sent.device = Bytes(255, std::byte{3});
    sent.endpoint = Bytes{};
    const Bytes bytes = sent.packed();
    const auto got = WireMessage::of(bytes);
    const bool same = got && got->to == sent.to && got->from == sent.from && got->open &&
                      got->kind == WireMessage::Kind::call && got->mine == 7 && got->yours == 9 &&
                      got->line == sent.line && got->device == sent.device && got->endpoint.empty();
    std::size_t accepted = 0;
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        accepted += WireMessage::of(std::span(bytes).first(size)) ? 1 : 0;
    }
    Bytes other = bytes;
    other[20] = std::byte{2}; // no such kind
    accepted += WireMessage::of(other) ? 1 : 0;
    other = bytes;
    other.push_back({});
    accepted += WireMessage::of(other) ? 1 : 0;
    assert_true(same);
    assert_int_equal(accepted, 0);
}

} // namespace

int main()
{
    silence_ucx();
    const CMUnitTest tests[] = {
        cmocka_unit_test(messages_survive_the_way),
        cmocka_unit_test(one_side_calls),
        cmocka_unit_test(both_sides_call_at_once),
        cmocka_unit_test(messages_may_be_lost_or_come_twice),
        cmocka_unit_test(a_way_is_made_anew),
        cmocka_unit_test(who_does_not_answer_is_given_up),
        cmocka_unit_test(a_stranger_is_not_connected),
        cmocka_unit_test(who_is_gone_is_told),
        cmocka_unit_test(an_end_is_no_failure),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

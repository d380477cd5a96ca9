#include "opal/mca/btl/ucx/wires.hpp"

#include <algorithm>
#include <cstring>

#include "opal/mca/btl/ucx/message.hpp"

namespace ft::ucx {

namespace {

/// A message is sent again after 20 ms, then twice as late each time, at most 1280 ms.
constexpr base::Duration first_pause = base::Duration::from_ms(20);
constexpr base::Duration longest_pause = base::Duration::from_ms(1280);
/// A line that breaks is made anew so often before the way counts as broken.
constexpr std::uint8_t most_lines = 3;

std::size_t copy(void *to, void *from)
{
    const Bytes &bytes = *static_cast<const Bytes *>(from);
    std::memcpy(to, bytes.data(), bytes.size());
    return bytes.size();
}

} // namespace

Wires::Wires(Port &port, std::uint64_t cookie, WireEvents &events)
    : port_(port), cookie_(cookie), events_(events)
{
    port_.tell_of_line(this);
}

Wires::~Wires()
{
    for (const auto &[key, wire] : all_) {
        if (wire->way != nullptr && wire->theirs != 0) {
            // What breaks at the peer when the endpoint goes is no failure.
            const std::uint64_t header = Header{wire->cookie, Kind::goodbye, 0}.packed();
            static_cast<void>(
                uct_ep_am_short(wire->way, message_id, header, &cookie_, sizeof cookie_));
        }
        if (wire->way != nullptr) {
            uct_ep_h way = wire->way;
            let_go(*wire, way, true);
            dead_.push_back(way);
        }
    }
    bury();
    port_.tell_of_line(nullptr);
}

Wire &Wires::find_or_make(std::uint64_t cookie, const Address &line)
{
    Key key{cookie, line};
    const auto found = all_.find(key);
    if (found != all_.end()) {
        return *found->second;
    }
    auto fresh = std::make_unique<Wire>();
    fresh->cookie = cookie;
    fresh->line_address = line;
    // What is noted of wires later must not fail for want of memory.
    const std::size_t count = all_.size() + 1;
    listed_.reserve(count);
    turn_.reserve(count);
    dead_.reserve(dead_.size() + 4 * count);
    return *all_.emplace(std::move(key), std::move(fresh)).first->second;
}

void Wires::list(Wire &wire) noexcept
{
    if (!wire.listed) {
        listed_.push_back(&wire);
        wire.listed = true;
    }
}

bool Wires::make_way(Wire &wire, ucs_status_t &status)
{
    wire.way = port_.make_endpoint(status);
    if (wire.way == nullptr) {
        return false;
    }
    wire.mine = ++last_number_;
    wire.theirs = 0;
    wire.open = false;
    wire.used = false;
    wire.failed = false;
    wire.lines_lost = 0;
    return true;
}

Wire *Wires::take_way(std::uint64_t cookie, const Address &line, base::Time now,
                      base::Duration limit, ucs_status_t &status)
{
    Wire &wire = find_or_make(cookie & Header::cookie_mask, line);
    if (wire.way == nullptr && !make_way(wire, status)) {
        return nullptr;
    }
    wire.taken = true;
    if (!wire.open) {
        wire.pause = first_pause;
        wire.next = now;
        wire.deadline = now + limit;
        list(wire);
    }
    return &wire;
}

void Wires::let_go(Wire &wire, uct_ep_h way, bool leaving) noexcept
{
    if (way == nullptr || wire.way != way) {
        return; // there is another one by now, which is the peer's beginning
    }
    if (leaving && wire.line != nullptr) {
        try {
            static_cast<void>(post(wire, WireMessage::Kind::leave));
        } catch (...) {
            wire.owes = false; // it will see that nothing comes
        }
    }
    forget(wire);
}

/// The endpoint is somebody else's matter from now on, and the peer's that it led to is no use.
void Wires::forget(Wire &wire) noexcept
{
    wire.least = std::max(wire.least, wire.theirs == 0 ? 0 : wire.theirs + 1);
    wire.way = nullptr;
    wire.taken = wire.open = wire.owes = wire.failed = false;
    wire.cut = UCS_OK;
    wire.mine = wire.theirs = 0;
    wire.deadline = base::Time::never();
    if (wire.line != nullptr) {
        dead_.push_back(wire.line);
        wire.line = nullptr;
    }
}

void Wires::fail(Wire &wire, ucs_status_t status) noexcept
{
    if (wire.way == nullptr || wire.failed) {
        return;
    }
    if (wire.taken) {
        wire.failed = true;
        events_.wire_broken(wire.way, status);
        return;
    }
    dead_.push_back(wire.way);
    forget(wire);
}

void Wires::broken(uct_ep_h way) noexcept
{
    for (const auto &[key, wire] : all_) {
        if (wire->way == way && !wire->taken) {
            fail(*wire, UCS_ERR_CONNECTION_RESET);
            return;
        }
    }
}

void Wires::line_take(std::span<const std::byte> message) noexcept
try {
    inbox_.emplace_back(message.begin(), message.end());
    // UCX may tell of what it broke before there is time to read the rest.
    const auto read = WireMessage::of(message);
    if (read && read->kind == WireMessage::Kind::leave &&
        ((read->to ^ cookie_) & Header::cookie_mask) == 0) {
        events_.wire_leaves(read->from & Header::cookie_mask);
    }
} catch (...) {
    ++counters_.malformed; // no memory: it is sent again
}

void Wires::line_broken(uct_ep_h endpoint, ucs_status_t status) noexcept
{
    // UCX has endpoints of its own, too, for peers that nothing was sent to yet.
    for (const auto &[key, wire] : all_) {
        if (wire->line == endpoint) {
            lose_line(*wire, status);
            return;
        }
    }
}

void Wires::lose_line(Wire &wire, ucs_status_t status) noexcept
{
    if (wire.line == nullptr) {
        return; // UCX told so itself, within the call that failed
    }
    dead_.push_back(wire.line);
    wire.line = nullptr;
    wire.owes = false;
    wire.cut = status;
    list(wire); // what came before that is read first
}

/// Once UCX has taken something it tells itself of what breaks. An endpoint that is open without
/// that may still wait for the other's first sign, which UCX does without a limit.
void Wires::judge_cut(Wire &wire) noexcept
{
    const ucs_status_t status = std::exchange(wire.cut, UCS_OK);
    const bool again = !wire.open && ++wire.lines_lost <= most_lines;
    if (wire.taken && !wire.used && !again) {
        fail(wire, status);
    }
}

ssize_t Wires::post(Wire &wire, WireMessage::Kind kind)
{
    WireMessage message;
    message.to = wire.cookie;
    message.from = cookie_;
    message.kind = kind;
    message.open = wire.open;
    message.mine = wire.mine;
    message.yours = wire.theirs;
    message.line = port_.line_address();
    message.device = port_.address().device;
    message.endpoint = port_.endpoint_address(wire.way);
    Bytes bytes = message.packed();
    return uct_ep_am_bcopy(wire.line, line_message_id, copy, &bytes, 0);
}

void Wires::say(Wire &wire, base::Time now)
{
    if (wire.line == nullptr) {
        ucs_status_t status = UCS_OK;
        wire.line = port_.connect_line(wire.line_address, status);
        if (wire.line == nullptr) {
            fail(wire, status);
            return;
        }
    }
    const ssize_t sent = post(wire, WireMessage::Kind::call);
    if (sent == UCS_ERR_NO_RESOURCE) {
        return; // at the next pass
    }
    if (sent < 0) {
        lose_line(wire, static_cast<ucs_status_t>(sent));
    }
    wire.owes = false;
    wire.next = now + wire.pause;
    wire.pause = std::min(wire.pause + wire.pause, longest_pause);
}

/// Connects to the endpoint of the message. \return false when it must not, or cannot
bool Wires::join(Wire &wire, const WireMessage &message)
{
    ucs_status_t status = UCS_OK;
    if (wire.way == nullptr && !make_way(wire, status)) {
        return false; // it is sent again
    }
    status = port_.connect_endpoint(wire.way, message.device, message.endpoint);
    if (status != UCS_OK) {
        fail(wire, status);
        return false;
    }
    wire.theirs = wire.least = message.mine;
    return true;
}

void Wires::hear(const WireMessage &message, base::Time now)
{
    const std::uint64_t sender = message.from & Header::cookie_mask;
    if (((message.to ^ cookie_) & Header::cookie_mask) != 0) {
        ++counters_.strangers;
        return;
    }
    if (message.device.size() != port_.address().device.size() ||
        message.endpoint.size() != port_.attributes().ep_addr_len ||
        !port_.line_reaches(message.line)) {
        ++counters_.malformed;
        return;
    }
    Wire &wire = find_or_make(sender, message.line);
    if (message.mine < wire.least || wire.failed) {
        return; // of an endpoint that is gone
    }
    if (message.kind == WireMessage::Kind::leave) {
        // What goes by an open way comes before it breaks, and UCX tells of that.
        if (!wire.open || (wire.taken && !wire.used)) {
            fail(wire, UCS_ERR_CONNECTION_RESET);
        }
        return;
    }
    if (wire.theirs != 0 && message.mine > wire.theirs) {
        fail(wire, UCS_ERR_CONNECTION_RESET); // the peer has another one: mine leads nowhere
        if (wire.way != nullptr) {
            return; // until it is let go
        }
    }
    if (wire.theirs == 0 &&
        ((message.yours != 0 && message.yours != wire.mine) || !join(wire, message))) {
        return;
    }
    if (message.yours == wire.mine && !wire.open) {
        wire.open = true;
        ++counters_.opened;
    }
    if (!message.open) {
        wire.owes = true;
        wire.pause = first_pause;
        wire.next = now;
        list(wire);
    }
}

void Wires::work(base::Time now) noexcept
{
    std::vector<Bytes> came;
    std::swap(came, inbox_);
    for (const Bytes &bytes : came) {
        try {
            if (const auto message = WireMessage::of(bytes)) {
                hear(*message, now);
            } else {
                ++counters_.malformed;
            }
        } catch (...) {
            continue; // no memory: it is sent again
        }
    }
    std::swap(turn_, listed_);
    for (Wire *wire : turn_) {
        wire->listed = false;
        if (wire->cut != UCS_OK) {
            judge_cut(*wire);
        }
        const auto waits = [&] {
            return wire->way != nullptr && !wire->failed &&
                   (wire->owes || (wire->taken && !wire->open));
        };
        if (waits() && wire->taken && !wire->open && now >= wire->deadline) {
            fail(*wire, UCS_ERR_TIMED_OUT);
        }
        try {
            if (waits() && now >= wire->next) {
                say(*wire, now);
            }
        } catch (...) {
            wire->next = now + wire->pause;
        }
        if (waits()) {
            list(*wire);
        }
    }
    turn_.clear();
}

void Wires::bury() noexcept
{
    std::vector<uct_ep_h> dead;
    std::swap(dead, dead_);
    for (uct_ep_h endpoint : dead) {
        uct_ep_destroy(endpoint);
    }
    if (dead_.capacity() < dead.capacity()) {
        dead.clear();
        std::swap(dead, dead_); // its room
    }
}

} // namespace ft::ucx

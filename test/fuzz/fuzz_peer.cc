/// A whole Peer, fed by somebody hostile who knows how to compute checksums.
///
/// The input is a list of commands: submit, let time pass, complete, lose a path, and above all
/// fragments: either arbitrary headers with right checksums, or what another, honest Peer has just
/// said, with a byte changed. Whatever comes, the engine keeps its bounds, hands each VFRAG back
/// once, and its counters add up; a peer that lies may only harm itself.
#include "opal/ft/reliability/compressed.hpp"
#include "opal/ft/reliability/peer.hpp"
#include "test/fuzz/fuzz_require.hpp"

#include "opal/ft/base/crc32c.hpp"
#include "opal/ft/base/wire.hpp"

#include <array>
#include <deque>
#include <vector>

using namespace ft::reliability;
using namespace ft::base::literals;
using ft::base::Time;

namespace {

struct Box {
    Vfrag vfrag;
    std::array<FragmentRecord, max_fragments> records{};
    bool out = false;
};

Config small_config()
{
    Config c;
    c.fragment_bytes = 256;
    c.window_bytes = 64 * 256;
    c.window_vfrags = 40;
    c.ack_every = 32;
    c.path_depth = 8;
    c.reorder_bytes = 4096;
    c.give_up = 5_s;
    return c;
}

enum class Ways {
    several,   ///< three, the last of datagrams
    datagrams, ///< that one alone: fragments go out in runs
    trusting,  ///< three, the first of them not acknowledged
    trusted,   ///< that one alone
};

/// One process: its engine, and who uses it.
class Side {
  public:
    Side(const Config &config, std::uint32_t rank, Ways ways)
        : config_(config),
          peer_(config, Name{1, rank}),
          paths_(ways == Ways::several || ways == Ways::trusting ? 3 : 1),
          trusts_(ways == Ways::trusting || ways == Ways::trusted)
    {
        for (unsigned i = 0; i < paths_; ++i) {
            PathInfo info;
            info.max_fragment_bytes = 256;
            info.acknowledged = !trusts_ || i != 0;
            info.unreliable = i + 1 == paths_ && info.acknowledged;
            (void)peer_.add_path(info, Time{});
        }
    }
    PathId path(unsigned number) const { return static_cast<PathId>(number % paths_); }

    void submit(bool ordered, unsigned count, Time now)
    {
        const std::uint64_t length = ordered ? count : std::uint64_t{count} * 16;
        if (boxes_.size() > 300 || !peer_.has_room(length, ordered)) {
            return;
        }
        Box &box = boxes_.emplace_back();
        box.vfrag.ordered = ordered;
        box.vfrag.fragment_bytes = ordered ? 256 : 16;
        box.vfrag.length = length;
        box.vfrag.fragments =
            std::span(box.records).first(Vfrag::count_for(length, box.vfrag.fragment_bytes));
        box.vfrag.user = &box;
        box.out = true;
        const bool open = peer_.lane_takes(length, now);
        FUZZ_REQUIRE(!open || peer_.express_path(length, now) == peer_.lane_path());
        const bool lane = open && ordered && count % 4 == 1;
        const PathId path = ordered && count % 2 != 0 ? peer_.express_path(length, now) : no_path;
        if (path == no_path) {
            peer_.submit(box.vfrag, now);
            return;
        }
        FragHeader header = peer_.express_header(box.vfrag, path, now,
                                                 count % 4 == 1 ? Form::compressed : Form::full);
        FUZZ_REQUIRE(!lane || (path == peer_.lane_path() && header.form == Form::compressed &&
                               peer_.lane_numbers() == numbers_of(header)));
        say(write(header));
        const Time by = lane ? peer_.sent_on_lane(box.vfrag, true, now)
                             : peer_.sent_express(box.vfrag, path, header, now);
        FUZZ_REQUIRE(by >= peer_.next_deadline());
        if (header.form == Form::full && count % 8 == 3 && peer_.paths()[path].info.acknowledged) {
            const Time kept_by = peer_.kept(box.vfrag, path, now);
            FUZZ_REQUIRE(kept_by >= peer_.next_deadline());
            held_.push_back({&box.vfrag, 0, path, now});
        }
        box.out = peer_.paths()[path].info.acknowledged; // else nothing of it is kept
    }

    /// A whole fragment with a payload of zeros.
    static std::vector<std::byte> write(FragHeader &header)
    {
        const std::vector<std::byte> payload(header.payload_bytes);
        header.flags |= flag_payload_checksummed;
        header.payload_crc = ft::base::crc32c(payload);
        if (header.form == Form::compressed) {
            std::vector<std::byte> bytes(compressed_bytes + payload.size());
            write_compressed(header, short_upper, bytes);
            return bytes;
        }
        if (header.form == Form::brief) {
            header.flags |= flag_header_checksummed;
            std::vector<std::byte> bytes(brief_bytes + payload.size());
            write_brief(header, short_upper, bytes);
            return bytes;
        }
        std::vector<std::byte> bytes(header_bytes + payload.size());
        write_header(header, bytes);
        seal(bytes);
        return bytes;
    }
    void say(std::vector<std::byte> &&bytes)
    {
        if (said.size() < 200) {
            said.push_back(std::move(bytes));
        }
    }

    /// Sends what there is to send; the fragments are kept for the other side.
    void pump(Time now, bool complete)
    {
        peer_.unblock();
        Transmit t;
        for (unsigned i = 0; i < 400 && peer_.next_transmit(t, now); ++i) {
            std::vector<std::byte> bytes(max_control_bytes);
            if (t.what == Transmit::What::fragment) {
                FUZZ_REQUIRE(static_cast<Box *>(t.choice.vfrag->user)->out);
                const unsigned count = complete ? peer_.run(t, now) : 1;
                FUZZ_REQUIRE(count >= 1 && t.choice.index + count <= t.choice.vfrag->count());
                if (count > 1) {
                    for (unsigned j = 0; j < count; ++j) {
                        FragHeader header = t.header;
                        header.index = static_cast<std::uint8_t>(t.header.index + j);
                        header.tx = (t.header.tx + j) & tx_mask;
                        header.payload_bytes = t.choice.vfrag->bytes_of(header.index);
                        say(write(header));
                    }
                    peer_.sent_run(t, count, now);
                    continue;
                }
                bytes = write(t.header);
                if (!complete) {
                    held_.push_back({t.choice.vfrag, t.choice.index, t.path, now});
                }
            } else {
                bytes.resize(peer_.write_control(t, bytes));
            }
            peer_.sent(t, now, complete);
            say(std::move(bytes));
        }
        finish();
    }

    void finish()
    {
        while (Vfrag *v = peer_.next_finished()) {
            Box &box = *static_cast<Box *>(v->user);
            FUZZ_REQUIRE(box.out);
            FUZZ_REQUIRE(v->acknowledged() || peer_.unreachable());
            box.out = false;
        }
        PathEvent event;
        while (peer_.next_event(event)) {
        }
    }

    /// \param carried the transport has sent it
    void complete_one(bool carried, Time now)
    {
        if (held_.empty()) {
            return;
        }
        const Held held = held_.front();
        held_.pop_front();
        if (static_cast<Box *>(held.vfrag->user)->out) {
            peer_.locally_complete(*held.vfrag, held.index, held.path, held.sent_at, now, carried);
        } else {
            peer_.descriptor_released(held.path, held.sent_at);
        }
        finish();
    }

    /// Of the forms without room for the upper header the full one is made.
    bool read(std::vector<std::byte> &bytes, FragHeader &h) const
    {
        const bool compressed = is_compressed(bytes);
        if (!compressed && !is_brief(bytes)) {
            return parse_header(bytes, true, h) == ParseStatus::ok;
        }
        std::uint64_t upper = 0;
        if ((compressed ? parse_compressed(bytes, peer_.foretold(), 1, h, upper)
                        : parse_brief(bytes, 1, true, h, upper)) != ParseStatus::ok) {
            return false;
        }
        h.upper_bytes = 0;
        h.flags &= static_cast<std::uint8_t>(~flag_payload_checksummed);
        std::vector<std::byte> whole(header_bytes + h.payload_bytes);
        write_header(h, whole);
        seal(whole);
        bytes.swap(whole);
        return true;
    }

    void take(std::vector<std::byte> bytes, PathId arrival, Time now)
    {
        FragHeader h;
        Numbers numbers;
        if (is_compressed(bytes) && bytes.size() >= compressed_bytes && peer_.awaits(numbers)) {
            if (const Awaited it = read_awaited(bytes, numbers); it.whole) {
                const auto payload = static_cast<std::uint32_t>(it.payload.size());
                FUZZ_REQUIRE(!read(bytes, h) || (peer_.is_next(h) && numbers == numbers_of(h) &&
                                                 h.payload_bytes == payload));
                peer_.accept_awaited(numbers, payload, arrival, now);
                finish();
                return;
            }
        }
        if (!read(bytes, h)) {
            return;
        }
        const bool match = h.kind == Kind::ordered && (h.flags & ~brief_flags) == 0 &&
                           h.payload_bytes <= most_brief_payload &&
                           payload_is_whole(h, payload_of(h, bytes));
        if (match && peer_.is_next(h)) {
            (void)peer_.accept_next(h, arrival, now);
            finish();
            return;
        }
        if (h.kind != Kind::ordered && h.kind != Kind::data) {
            peer_.on_control(h, bytes, arrival, now);
        } else {
            const Verdict verdict = peer_.on_fragment(h, arrival, now);
            if (verdict == Verdict::fresh || verdict == Verdict::early) {
                if (!payload_is_whole(h, payload_of(h, bytes))) {
                    peer_.reject_payload(h);
                } else if (verdict == Verdict::early) {
                    peer_.hold(h, bytes, now);
                } else {
                    peer_.accept(h, now);
                    std::vector<std::byte> ready;
                    while (h.kind == Kind::ordered && peer_.next_ready(ready)) {
                        FUZZ_REQUIRE(ready.size() >= header_bytes);
                    }
                }
            }
        }
        finish();
    }

    void time(Time now)
    {
        peer_.on_time(now);
        FUZZ_REQUIRE(peer_.next_deadline() > now);
        finish();
    }

    void check() const
    {
        FUZZ_REQUIRE(peer_.sender().window_bytes() <= config_.window_bytes);
        FUZZ_REQUIRE(peer_.sender().window_vfrags() <= config_.window_vfrags);
        // What came over a path that is not acknowledged is never dropped: only its numbers bound
        // it.
        FUZZ_REQUIRE(peer_.receiver().held_bytes() <=
                     config_.reorder_bytes + (trusts_ ? std::uint64_t{max_window} * 256 : 0));
        std::uint64_t in_flight = 0;
        for (const Box &box : boxes_) {
            for (unsigned i = 0; box.out && i < box.vfrag.count(); ++i) {
                in_flight += box.records[i].state == FragmentState::in_flight ? 1 : 0;
            }
        }
        const Counters &c = peer_.counters();
        FUZZ_REQUIRE(c.fragments_sent + c.acknowledged_late ==
                     c.fragments_acknowledged + c.declared_lost + in_flight);
    }

    Peer &peer() { return peer_; }
    std::deque<std::vector<std::byte>> said;

  private:
    static constexpr std::uint64_t short_upper = 0x0123456789abcdefULL;
    struct Held {
        Vfrag *vfrag;
        unsigned index;
        PathId path;
        Time sent_at;
    };
    const Config &config_;
    Peer peer_;
    unsigned paths_;
    bool trusts_;
    std::deque<Box> boxes_;
    std::deque<Held> held_;
};

/// A fragment out of the input, with right checksums.
std::vector<std::byte> forge(ft::base::WireReader &in)
{
    FragHeader h;
    h.kind = static_cast<Kind>(in.u8() % 5 + 1);
    h.flags = static_cast<std::uint8_t>(in.u8() & 0x0f);
    h.count = static_cast<std::uint8_t>(h.kind == Kind::data ? in.u8() % max_fragments + 1 : 1);
    h.index = static_cast<std::uint8_t>(in.u8() % h.count);
    // Near the numbers in use, or anywhere.
    const std::uint8_t far = in.u8();
    h.sequence = (far & 1) != 0 ? in.u32() : in.u8();
    h.order = (far & 2) != 0 ? in.u32() : in.u8();
    h.cumulative = (far & 4) != 0 ? in.u32() : in.u8();
    h.tx = (far & 8) != 0 ? in.u32() & tx_mask : in.u8();
    h.timestamp = in.u32();
    h.echo_timestamp = (far & 16) != 0 ? in.u32() : in.u8();
    h.path = static_cast<std::uint8_t>(in.u8() % max_paths);
    h.echo_path = static_cast<std::uint8_t>(in.u8() % max_paths);
    h.echo_delay_us = in.u16();
    const auto payload = in.bytes(std::min<std::size_t>(in.u8(), in.remaining()));
    h.payload_bytes = static_cast<std::uint32_t>(payload.size());
    h.payload_crc = ft::base::crc32c(payload);
    const unsigned form = far >> 5 & 3U;
    if (form < 2 && h.kind == Kind::ordered) {
        h.flags |= flag_header_checksummed;
        const std::size_t front = form == 0 ? compressed_bytes : brief_bytes;
        std::vector<std::byte> bytes(front);
        bytes.insert(bytes.end(), payload.begin(), payload.end());
        if (form == 0) {
            write_compressed(h, 0, bytes);
        } else {
            write_brief(h, 0, bytes);
        }
        return bytes;
    }
    std::vector<std::byte> bytes(header_bytes);
    write_header(h, bytes);
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    seal(bytes);
    return bytes;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    const Config config = small_config();
    ft::base::WireReader in(std::as_bytes(std::span(data, size)));
    const std::uint8_t first = in.u8();
    const unsigned kind = first >> 1U;
    const Ways ways = kind == 0x51   ? Ways::datagrams
                      : kind == 0x52 ? Ways::trusting
                      : kind == 0x53 ? Ways::trusted
                                     : Ways::several;
    Side a(config, 0, ways);
    Side b(config, 1, ways);
    Time now = Time::from_ns(1'000'000);
    if ((first & 1) != 0) {
        a.peer().start_at(0xfffffffe, 0xfffffffd, 0xfffffe);
        b.peer().start_at(0xfffffffe, 0xfffffffd, 0xfffffe);
    }
    for (unsigned steps = 0; steps < 200 && in.remaining() > 0; ++steps) {
        const std::uint8_t command = in.u8();
        const std::uint8_t operand = in.u8();
        Side &side = (command & 0x80) != 0 ? b : a;
        Side &other = (command & 0x80) != 0 ? a : b;
        const auto arrival = operand % 4 == 3 ? no_path : side.path(operand % 4);
        switch (command % 11) {
        case 0:
            side.submit(true, operand, now);
            break;
        case 1:
            side.submit(false, operand % 64 + 1, now);
            break;
        case 2:
            side.pump(now, operand % 2 == 0);
            break;
        case 3:
            now += ft::base::Duration::from_us(std::int64_t{operand} * operand * operand / 16);
            side.time(now);
            break;
        case 4:
            side.complete_one(operand % 8 != 7, now);
            break;
        case 5: // what the other has said comes
        case 6: // ... with a byte changed
        case 7: // ... and comes again later
            if (!other.said.empty()) {
                std::vector<std::byte> bytes = std::move(other.said.front());
                other.said.pop_front();
                if (command % 11 == 6) {
                    bytes[in.u8() % bytes.size()] ^= std::byte{operand};
                    if (!is_compressed(bytes) && !is_brief(bytes) && bytes.size() >= header_bytes &&
                        bytes.size() >= header_bytes + std::to_integer<std::size_t>(bytes[37])) {
                        seal(bytes);
                    }
                }
                side.take(bytes, arrival, now);
                if (command % 11 == 7) {
                    other.said.push_back(std::move(bytes));
                }
            }
            break;
        case 8:
            side.take(forge(in), arrival, now);
            break;
        case 9:
            if (operand % 4 == 3) {
                side.peer().path_revived(side.path(operand / 4 % 3), now);
            } else if (operand % 4 == 2 && operand >= 0x80) {
                side.peer().path_replaced(side.path(operand / 4 % 3), now);
            } else if (operand % 4 == 2 && operand >= 0x40) {
                side.peer().path_not_connected(side.path(operand / 4 % 3), now);
            } else if (operand % 4 == 2) {
                side.peer().path_error(side.path(operand / 4 % 3), now);
            } else {
                side.peer().blocked(side.path(operand / 4 % 3));
            }
            side.finish();
            break;
        default:
            side.peer().flush_acks();
            break;
        }
        side.check();
    }
    return 0;
}

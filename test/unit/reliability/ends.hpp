/// \file
/// Two ends of a pair, and the wire between them in the hand of the test: it sees each fragment,
/// and decides what becomes of it.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "opal/ft/base/crc32c.hpp"
#include "opal/ft/reliability/compressed.hpp"
#include "opal/ft/reliability/peer.hpp"

namespace ft::test {

using namespace ft::reliability;
using namespace ft::base::literals;
using base::Duration;
using base::Time;

/// A VFRAG with its storage.
struct Box {
    Vfrag vfrag;
    std::array<FragmentRecord, max_fragments> records{};
};

/// A fragment on the wire.
struct Frame {
    std::vector<std::byte> bytes;
    Transmit::What what{};
    PathId path = 0;
    std::uint32_t sequence = 0;
    unsigned index = 0;
    Form form = Form::full;
    bool again = false;
    Vfrag *vfrag = nullptr;
};

/// What the layer above does before it asks what is to be sent.
inline void wake(Peer &peer, Time now)
{
    if (now >= peer.next_deadline()) {
        peer.on_time(now);
    }
    peer.unblock();
}

struct End {
    End(const Config &config, std::uint32_t rank) : peer(config, Name{1, rank}) {}

    void add_paths(unsigned count, Time now)
    {
        for (unsigned i = 0; i < count; ++i) {
            PathInfo info;
            info.max_fragment_bytes = 1 << 20;
            (void)peer.add_path(info, now);
        }
    }
    Vfrag &submit(bool ordered, std::uint64_t length, std::uint32_t fragment_bytes, Time now)
    {
        Box &box = boxes.emplace_back();
        box.vfrag.ordered = ordered;
        box.vfrag.length = length;
        box.vfrag.fragment_bytes = fragment_bytes;
        box.vfrag.fragments =
            std::span(box.records).first(Vfrag::count_for(length, fragment_bytes));
        peer.submit(box.vfrag, now);
        return box.vfrag;
    }
    /// What `t` says is to be sent, or the so manyth one behind it in a run.
    static Frame frame_of(const Transmit &t, unsigned ahead)
    {
        Frame f;
        f.what = t.what;
        f.path = t.path;
        f.vfrag = t.choice.vfrag;
        f.index = t.choice.index + ahead;
        f.again = t.choice.retransmission;
        FragHeader header = t.header;
        header.index = static_cast<std::uint8_t>(f.index);
        header.tx = (header.tx + ahead) & tx_mask;
        header.payload_bytes = f.vfrag->bytes_of(f.index);
        f.sequence = header.sequence;
        const std::vector<std::byte> payload(header.payload_bytes, std::byte{0x5a});
        header.flags |= flag_payload_checksummed;
        header.payload_crc = base::crc32c(payload);
        f.bytes.resize(header_bytes);
        write_header(header, f.bytes);
        f.bytes.insert(f.bytes.end(), payload.begin(), payload.end());
        seal(f.bytes);
        return f;
    }
    /// Everything that wants to go out now.
    std::vector<Frame> pump(Time now, bool complete = true)
    {
        wake(peer, now);
        std::vector<Frame> frames;
        Transmit t;
        while (peer.next_transmit(t, now)) {
            if (t.what == Transmit::What::fragment) {
                // Looked at where single fragments are sent, too: it must not change anything.
                const unsigned allowed = peer.run(t, now);
                const unsigned count = in_runs && complete ? allowed : 1;
                longest_run = std::max(longest_run, count);
                for (unsigned i = 0; i < count; ++i) {
                    frames.push_back(frame_of(t, i));
                }
                t.header.flags |= flag_payload_checksummed;
                if (in_runs && complete) {
                    peer.sent_run(t, count, now);
                    continue;
                }
            } else {
                Frame &f = frames.emplace_back();
                f.what = t.what;
                f.path = t.path;
                f.bytes.resize(max_control_bytes);
                f.bytes.resize(peer.write_control(t, f.bytes));
            }
            peer.sent(t, now, complete);
        }
        while (Vfrag *v = peer.next_finished()) {
            (v->acknowledged() ? done : failed).push_back(v);
        }
        return frames;
    }
    /// The short way of one ordered VFRAG. \return no frame when there is none
    std::vector<Frame> express(std::uint64_t length, Time now, Form best = Form::full)
    {
        Box &box = boxes.emplace_back();
        box.vfrag.ordered = true;
        box.vfrag.length = length;
        box.vfrag.fragment_bytes = static_cast<std::uint32_t>(length);
        box.vfrag.fragments = std::span(box.records).first(1);
        const bool open = peer.lane_takes(length, now);
        const bool lane = open && best == Form::compressed;
        const PathId path = peer.express_path(length, now);
        std::vector<Frame> frames;
        if (path == no_path) {
            FT_ASSERT(!open);
            return frames;
        }
        FragHeader header = peer.express_header(box.vfrag, path, now, best);
        // What the lane does not look at would have said the same.
        FT_ASSERT(!lane || (path == peer.lane_path() && header.form == Form::compressed &&
                            peer.lane_numbers() == numbers_of(header)));
        const std::vector<std::byte> payload(length, std::byte{0x5a});
        header.flags |= flag_payload_checksummed;
        header.payload_crc = base::crc32c(payload);
        Frame &f = frames.emplace_back();
        f.what = Transmit::What::fragment;
        f.path = path;
        f.vfrag = &box.vfrag;
        f.sequence = header.sequence;
        f.form = header.form;
        if (f.form == Form::full) {
            f.bytes.resize(header_bytes);
            write_header(header, f.bytes);
            f.bytes.insert(f.bytes.end(), payload.begin(), payload.end());
            seal(f.bytes);
        } else {
            f.bytes.resize(f.form == Form::brief ? brief_bytes : compressed_bytes);
            f.bytes.insert(f.bytes.end(), payload.begin(), payload.end());
            if (f.form == Form::brief) {
                header.flags |= flag_header_checksummed;
                write_brief(header, 0, f.bytes);
            } else {
                write_compressed(header, 0, f.bytes);
            }
        }
        if (lane) {
            ++on_lane;
            (void)peer.sent_on_lane(box.vfrag, true, now);
        } else {
            (void)peer.sent_express(box.vfrag, path, header, now);
        }
        return frames;
    }
    /// Reads what came; of a short form the full one is made.
    [[gnu::noinline]] bool read(std::vector<std::byte> &bytes, FragHeader &h) const
    {
        const bool compressed = is_compressed(bytes);
        if (!compressed && !is_brief(bytes)) {
            return parse_header(bytes, true, h) == ParseStatus::ok;
        }
        std::uint64_t upper = 0;
        if ((compressed ? parse_compressed(bytes, peer.foretold(), 1, h, upper)
                        : parse_brief(bytes, 1, true, h, upper)) != ParseStatus::ok) {
            return false;
        }
        h.upper_bytes = 0;
        std::vector<std::byte> whole(bytes.begin() + (compressed ? compressed_bytes : brief_bytes),
                                     bytes.end());
        h.payload_crc = base::crc32c(whole);
        whole.insert(whole.begin(), header_bytes, std::byte{});
        write_header(h, whole);
        seal(whole);
        bytes.swap(whole);
        return true;
    }
    /// One in the compressed form that is the next of all.
    bool take_awaited(const Frame &frame, Time now)
    {
        Numbers numbers;
        if (!peer.awaits(numbers)) {
            return false;
        }
        const Awaited it = read_awaited(frame.bytes, numbers);
        if (!it.whole) {
            return false;
        }
        // Read as any other it is the same.
        FragHeader h;
        std::vector<std::byte> bytes = frame.bytes;
        FT_ASSERT(read(bytes, h) && peer.is_next(h) && numbers == numbers_of(h) &&
                  h.payload_bytes == it.payload.size());
        ++awaited;
        peer.accept_awaited(numbers, static_cast<std::uint32_t>(it.payload.size()), frame.path,
                            now);
        delivered.push_back(numbers.sequence);
        deliver_early();
        return true;
    }
    /// A short message that asks for nothing, in whatever form it came.
    static bool is_match(const FragHeader &h, const std::vector<std::byte> &bytes)
    {
        return h.kind == Kind::ordered && (h.flags & ~brief_flags) == 0 &&
               h.payload_bytes <= most_brief_payload && payload_is_whole(h, payload_of(h, bytes));
    }
    /// What the layer above does with a fragment that came.
    [[gnu::noinline]] Verdict take(const Frame &frame, Time now)
    {
        FragHeader h;
        std::vector<std::byte> bytes = frame.bytes;
        if (is_compressed(bytes) && bytes.size() >= compressed_bytes && take_awaited(frame, now)) {
            return Verdict::fresh;
        }
        if (!read(bytes, h)) {
            ++broken;
            return Verdict::refused;
        }
        if (is_match(h, bytes) && peer.is_next(h)) {
            (void)peer.accept_next(h, frame.path, now);
            delivered.push_back(h.sequence);
            deliver_early();
            return Verdict::fresh;
        }
        if (h.kind != Kind::ordered && h.kind != Kind::data) {
            peer.on_control(h, bytes, frame.path, now);
            return Verdict::refused;
        }
        const Verdict verdict = peer.on_fragment(h, frame.path, now);
        if (verdict != Verdict::fresh && verdict != Verdict::early) {
            return verdict;
        }
        if (!payload_is_whole(h, payload_of(h, bytes))) {
            peer.reject_payload(h);
        } else if (verdict == Verdict::early) {
            peer.hold(h, bytes, now);
        } else {
            peer.accept(h, now);
            delivered.push_back(h.sequence);
            if (h.kind == Kind::ordered) {
                deliver_early();
            }
        }
        return verdict;
    }
    void deliver_early()
    {
        std::vector<std::byte> ready;
        while (peer.next_ready(ready)) {
            FragHeader next;
            (void)parse_header(ready, true, next);
            delivered.push_back(next.sequence);
        }
    }
    /// Everything of `frames` that is not null comes here.
    void take_all(const std::vector<Frame> &frames, Time now)
    {
        for (const Frame &frame : frames) {
            (void)take(frame, now);
        }
    }

    Peer peer;
    std::deque<Box> boxes;
    std::vector<std::uint32_t> delivered; ///< VFRAG numbers, one entry a fragment
    std::vector<Vfrag *> done;
    std::vector<Vfrag *> failed;
    unsigned broken = 0;
    unsigned on_lane = 0; ///< sent so
    unsigned awaited = 0; ///< taken so
    bool in_runs = false; ///< several fragments at a time where it may
    unsigned longest_run = 0;
};

inline Config quick_config()
{
    Config c;
    c.fragment_bytes = 1024;
    c.rto_initial = 10_ms;
    c.rto_min = 1_ms;
    c.rto_max = 80_ms;
    c.ack_delay = 100_us;
    c.give_up = 2_s;
    c.probe_interval = 20_ms;
    c.hold_down = 50_ms;
    return c;
}

/// Two ends that know each other over `paths` paths.
struct Two {
    explicit Two(unsigned paths = 1, const Config &c = quick_config())
        : config(c), a(config, 0), b(config, 1)
    {
        a.add_paths(paths, now);
        b.add_paths(paths, now);
    }
    /// Both talk, nothing is lost, `step` each way, until nothing is left to say or `rounds`
    /// passed.
    void settle(unsigned rounds = 20, Duration step = 10_us)
    {
        for (unsigned i = 0; i < rounds; ++i) {
            const auto there = a.pump(now);
            now += step;
            b.take_all(there, now);
            b.peer.flush_acks();
            const auto back = b.pump(now);
            now += step;
            a.take_all(back, now);
            a.peer.flush_acks();
        }
        (void)a.pump(now);
    }
    Config config;
    Time now = Time::from_ns(1'000'000);
    End a;
    End b;
};

} // namespace ft::test

#include "test/sim/congestion/job.hpp"

#include <algorithm>
#include <utility>

namespace ft::sim {

using namespace reliability;

namespace {

/// As pml/dr has it.
constexpr unsigned most_in_a_run = 16;

} // namespace

Job::Job(Link &link, const Config &config, std::uint64_t window)
    : link_(link),
      sender_(config, 0),
      receiver_(config, 1),
      fragment_(config.fragment_bytes),
      window_(window)
{
    PathInfo info;
    info.max_fragment_bytes = fragment_;
    info.latency = base::Duration::from_us(30);
    info.unreliable = true;
    static_cast<void>(sender_.peer.add_path(info, link.now()));
    static_cast<void>(receiver_.peer.add_path(info, link.now()));
}

void Job::begin()
{
    to_submit_ = window_;
    pump(sender_);
}

void Job::stop_receiver(base::Duration length)
{
    stopped_until_ = link_.now() + length;
    link_.at(stopped_until_, [this] {
        // As a process that runs again does: it looks for what has come before its timers.
        for (const auto &arrival : std::exchange(waiting_, {})) {
            arrival();
        }
        pump(receiver_);
    });
}

Job::Piece &Job::piece(End &end)
{
    if (end.idle.empty()) {
        end.storage.push_back(std::make_unique<Piece>());
        end.idle.push_back(end.storage.back().get());
    }
    Piece &one = *end.idle.back();
    end.idle.pop_back();
    one.vfrag.user = &one;
    return one;
}

void Job::fill_window()
{
    while (to_submit_ != 0) {
        const std::uint64_t most = std::uint64_t{fragment_} * max_fragments;
        const std::uint64_t bytes = std::min(to_submit_, most);
        if (!sender_.peer.has_room(bytes, false)) {
            return;
        }
        Piece &one = piece(sender_);
        one.vfrag.ordered = false;
        one.vfrag.fragment_bytes = fragment_;
        one.vfrag.length = bytes;
        one.vfrag.fragments = std::span(one.records).first(Vfrag::count_for(bytes, fragment_));
        to_submit_ -= bytes;
        sender_.peer.submit(one.vfrag, link_.now());
    }
}

void Job::reply()
{
    Piece &one = piece(receiver_);
    one.vfrag.ordered = true;
    one.vfrag.fragment_bytes = fragment_;
    one.vfrag.length = 1;
    one.vfrag.fragments = std::span(one.records).first(1);
    receiver_.peer.submit(one.vfrag, link_.now());
}

void Job::pump(End &end)
{
    if (stands_still(end)) {
        return;
    }
    const bool sends = &end == &sender_;
    if (link_.now() >= end.peer.next_deadline()) {
        end.peer.on_time(link_.now());
    }
    bool more = true;
    while (more) {
        more = false;
        if (sends) {
            fill_window();
        }
        Transmit t;
        while (end.peer.next_transmit(t, link_.now())) {
            more = true;
            std::vector<std::byte> control;
            unsigned count = 1;
            if (t.what != Transmit::What::fragment) {
                control.resize(max_control_bytes);
                control.resize(end.peer.write_control(t, control));
            } else {
                t.header.flags |= flag_payload_checksummed;
                count = std::min(end.peer.run(t, link_.now()), most_in_a_run);
            }
            End &other = sends ? receiver_ : sender_;
            for (unsigned i = 0; i < count; ++i) {
                Transmit each = t;
                if (i != 0) {
                    each.choice.index = static_cast<std::uint8_t>(t.choice.index + i);
                    each.header.index = each.choice.index;
                    each.header.tx = (t.header.tx + i) & tx_mask;
                    each.header.payload_bytes = t.choice.vfrag->bytes_of(each.choice.index);
                }
                const auto arrival = [this, &other, each, control] {
                    arrive(other, each, control);
                };
                if (sends) {
                    static_cast<void>(link_.send(t.what == Transmit::What::fragment
                                                     ? fragment_ + headers
                                                     : control.size() + 60,
                                                 arrival));
                } else {
                    link_.send_back(arrival);
                }
            }
            if (t.what == Transmit::What::fragment) {
                end.peer.sent_run(t, count, link_.now());
            } else {
                end.peer.sent(t, link_.now(), true);
            }
        }
        while (Vfrag *done = end.peer.next_finished()) {
            end.idle.push_back(static_cast<Piece *>(done->user));
            more = true;
        }
    }
    PathEvent event;
    while (end.peer.next_event(event)) {
    }
    const base::Time deadline = end.peer.next_deadline();
    if (deadline < end.wakes_at || end.wakes_at <= link_.now()) {
        end.wakes_at = deadline;
        if (!deadline.is_never()) {
            link_.at(std::max(deadline, link_.now()), [this, &end] {
                if (end.wakes_at <= link_.now()) {
                    end.wakes_at = base::Time::never();
                    pump(end);
                }
            });
        }
    }
}

void Job::arrive(End &end, const Transmit &t, const std::vector<std::byte> &control)
{
    const base::Time now = link_.now();
    if (stands_still(end)) {
        waiting_.emplace_back([this, &end, t, control] { arrive(end, t, control); });
        return;
    }
    if (t.what != Transmit::What::fragment) {
        FragHeader header;
        if (parse_header(control, true, header) == ParseStatus::ok) {
            end.peer.on_control(header, control, 0, now);
        }
    } else {
        const Verdict verdict = end.peer.on_fragment(t.header, 0, now);
        if (verdict == Verdict::fresh) {
            end.peer.accept(t.header, now);
            if (&end == &receiver_) {
                came_ += t.header.payload_bytes;
                if (came_ == window_) {
                    came_ = 0;
                    reply();
                }
            } else {
                to_submit_ = window_;
            }
        }
    }
    pump(end);
}

} // namespace ft::sim

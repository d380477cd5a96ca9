#include "orte_glue/radixft/session.hpp"

#include <charconv>
#include <istream>
#include <ostream>
#include <sstream>
#include <utility>

namespace ft::radixft {

using membership::Event;
using membership::Message;

namespace {

constexpr std::string_view digits = "0123456789abcdef";

std::string hex(std::span<const std::byte> bytes)
{
    std::string text;
    text.reserve(2 * bytes.size());
    for (const std::byte b : bytes) {
        text += digits[std::to_integer<unsigned>(b) >> 4];
        text += digits[std::to_integer<unsigned>(b) & 15];
    }
    return text;
}

bool unhex(std::string_view text, std::vector<std::byte> &out)
{
    if (text.size() % 2 != 0) {
        return false;
    }
    for (std::size_t i = 0; i < text.size(); i += 2) {
        const auto high = digits.find(text[i]);
        const auto low = digits.find(text[i + 1]);
        if (high == digits.npos || low == digits.npos) {
            return false;
        }
        out.push_back(static_cast<std::byte>(high << 4 | low));
    }
    return true;
}

std::string describe(const Event &e)
{
    std::ostringstream text;
    text << "event " << static_cast<unsigned>(e.kind) << ' ' << (e.view ? e.view->epoch() : 0)
         << ' ' << (e.view ? e.view->digest() : 0) << ' ' << e.who.id << ' ' << e.who.incarnation
         << ' ' << static_cast<unsigned>(e.grade) << ' ' << e.elapsed.ns() << ' ' << e.messages;
    return text.str();
}

std::string settings(const membership::Config &c)
{
    std::ostringstream text;
    text << c.arity << ' ' << static_cast<unsigned>(c.mode) << ' ' << c.repeat.ns() << ' '
         << c.repeat_max.ns() << ' ' << c.give_up.ns() << ' ' << c.probe_timeout.ns() << ' '
         << c.report_stagger.ns() << ' ' << c.commit_wait.ns() << ' ' << c.reprobe.ns() << ' '
         << c.minority_wait.ns() << ' ' << c.exile_hold.ns() << ' ' << c.combine.ns() << ' '
         << c.heartbeat.interval.ns() << ' ' << c.heartbeat.fence.ns() << ' '
         << c.heartbeat.suspicion.floor.ns() << ' ' << c.heartbeat.suspicion.ceiling.ns();
    return text.str();
}

bool read_settings(std::istream &in, membership::Config &c)
{
    unsigned mode = 0;
    in >> c.arity >> mode;
    c.mode = static_cast<membership::TreeMode>(mode);
    for (base::Duration *d :
         {&c.repeat, &c.repeat_max, &c.give_up, &c.probe_timeout, &c.report_stagger, &c.commit_wait,
          &c.reprobe, &c.minority_wait, &c.exile_hold, &c.combine, &c.heartbeat.interval,
          &c.heartbeat.fence, &c.heartbeat.suspicion.floor, &c.heartbeat.suspicion.ceiling}) {
        std::int64_t ns = 0;
        in >> ns;
        *d = base::Duration::from_ns(ns);
    }
    return static_cast<bool>(in) && mode <= 1 && c.fault().empty();
}

} // namespace

Session::Session(const membership::Config &config, membership::NodeId self, std::uint32_t daemons,
                 base::Time now, std::ostream *log)
    : engine_(config, std::make_shared<membership::ViewPool>(), {self, 0},
              membership::View::initial(daemons, config.arity, config.mode), now),
      log_(log)
{
    if (log_ != nullptr) {
        *log_ << now.ns() << " start " << self << ' ' << daemons << ' ' << settings(config) << '\n';
    }
}

void Session::record(base::Time now, const std::string &call, std::size_t messages,
                     std::size_t events)
{
    if (log_ == nullptr) {
        return;
    }
    *log_ << now.ns() << ' ' << call << '\n';
    for (std::size_t i = messages; i < output_.messages.size(); ++i) {
        *log_ << "> message " << hex(membership::encode(output_.messages[i])) << '\n';
    }
    for (std::size_t i = events; i < output_.events.size(); ++i) {
        *log_ << "> " << describe(output_.events[i]) << '\n';
    }
    // A daemon may be killed at any moment, and its log is wanted all the more then.
    log_->flush();
}

membership::Stabilizer::Verdict Session::message(base::Time now, const Message &m)
{
    const std::size_t messages = output_.messages.size();
    const std::size_t events = output_.events.size();
    const auto verdict = engine_.on_message(now, m, output_);
    record(now, log_ == nullptr ? std::string() : "message " + hex(membership::encode(m)), messages,
           events);
    return verdict;
}

void Session::time(base::Time now)
{
    const std::size_t messages = output_.messages.size();
    const std::size_t events = output_.events.size();
    engine_.on_time(now, output_);
    record(now, "time", messages, events);
}

void Session::suspicion(base::Time now, membership::NodeId id)
{
    const std::size_t messages = output_.messages.size();
    const std::size_t events = output_.events.size();
    engine_.on_suspicion(now, id, output_);
    record(now, "suspicion " + std::to_string(id), messages, events);
}

void Session::proof(base::Time now, membership::NodeId id, membership::ProofKind kind)
{
    const std::size_t messages = output_.messages.size();
    const std::size_t events = output_.events.size();
    engine_.on_proof(now, id, kind, output_);
    record(now, "proof " + std::to_string(id) + ' ' + std::to_string(static_cast<unsigned>(kind)),
           messages, events);
}

void Session::leave(base::Time now)
{
    const std::size_t messages = output_.messages.size();
    const std::size_t events = output_.events.size();
    engine_.leave(now, output_);
    record(now, "leave", messages, events);
}

membership::Output Session::take()
{
    return std::exchange(output_, {});
}

namespace {

/// Makes the call that `line` describes; false when it describes none.
bool call(Session &session, const std::string &line)
{
    std::istringstream in(line);
    std::int64_t ns = 0;
    std::string what;
    in >> ns >> what;
    const base::Time now = base::Time::from_ns(ns);
    membership::NodeId id = 0;
    if (what == "time") {
        session.time(now);
    } else if (what == "leave") {
        session.leave(now);
    } else if (what == "suspicion") {
        in >> id;
        session.suspicion(now, id);
    } else if (what == "proof") {
        unsigned kind = 0;
        in >> id >> kind;
        session.proof(now, id, static_cast<membership::ProofKind>(kind));
    } else if (what == "message") {
        std::string text;
        std::vector<std::byte> bytes;
        in >> text;
        std::optional<Message> m;
        if (!unhex(text, bytes) || !(m = membership::decode(bytes))) {
            return false;
        }
        session.message(now, *m);
    } else {
        return false;
    }
    return static_cast<bool>(in);
}

} // namespace

Replay replay(std::istream &log)
{
    Replay result;
    std::string line;
    std::size_t number = 1;
    if (!std::getline(log, line)) {
        result.difference = "the log is empty";
        return result;
    }
    std::istringstream start(line);
    std::int64_t ns = 0;
    std::string word;
    membership::NodeId self = 0;
    std::uint32_t daemons = 0;
    membership::Config config;
    start >> ns >> word >> self >> daemons;
    if (!start || word != "start" || self >= daemons || !read_settings(start, config)) {
        result.difference = "line 1 is not the start of a log: " + line;
        return result;
    }
    std::ostringstream again;
    Session session(config, self, daemons, base::Time::from_ns(ns), &again);
    std::vector<std::string> want;
    const auto compare = [&] {
        session.take();
        std::istringstream got(again.str());
        again.str({});
        std::string mine;
        for (const std::string &old : want) {
            if (!std::getline(got, mine) || mine != old) {
                result.difference = "before line " + std::to_string(number) + ": the log has \"" +
                                    old + "\", the replay gave \"" + mine + '"';
                return false;
            }
            result.messages += old.starts_with("> message") ? 1 : 0;
            result.events += old.starts_with("> event") ? 1 : 0;
        }
        if (std::getline(got, mine)) {
            result.difference = "before line " + std::to_string(number) + ": the replay gave \"" +
                                mine + "\", the log has nothing";
            return false;
        }
        want.clear();
        return true;
    };
    want.push_back(line);
    while (std::getline(log, line)) {
        ++number;
        if (line.starts_with("> ")) {
            want.push_back(line);
            continue;
        }
        if (!compare()) {
            return result;
        }
        want.push_back(line);
        if (!call(session, line)) {
            result.difference = "line " + std::to_string(number) + " is no call: " + line;
            return result;
        }
        ++result.calls;
    }
    ++number;
    compare();
    return result;
}

} // namespace ft::radixft

#include "orte_glue/radixft/session.hpp"

#include <istream>
#include <iterator>
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

std::string describe(const RankDeath &d)
{
    std::ostringstream text;
    text << d.who.jobid << ' ' << d.who.vpid << ' ' << d.host << ' '
         << static_cast<unsigned>(d.cause) << ' ' << d.exit_code << ' ' << d.epoch << ' '
         << d.noticed_us << ' ' << d.stabilized_us;
    return text.str();
}

bool read_death(std::istream &in, RankDeath &d)
{
    unsigned cause = 0;
    in >> d.who.jobid >> d.who.vpid >> d.host >> cause >> d.exit_code >> d.epoch >> d.noticed_us >>
        d.stabilized_us;
    d.cause = static_cast<Cause>(cause);
    return static_cast<bool>(in) && cause <= static_cast<unsigned>(last_cause);
}

std::string settings(const membership::Config &c)
{
    std::ostringstream text;
    text << c.arity << ' ' << static_cast<unsigned>(c.mode) << ' ' << static_cast<unsigned>(c.form)
         << ' ' << c.repeat.ns() << ' ' << c.repeat_max.ns() << ' ' << c.give_up.ns() << ' '
         << c.probe_timeout.ns() << ' ' << c.report_stagger.ns() << ' ' << c.commit_wait.ns() << ' '
         << c.reprobe.ns() << ' ' << c.minority_wait.ns() << ' ' << c.exile_hold.ns() << ' '
         << c.combine.ns() << ' ' << c.heartbeat.interval.ns() << ' ' << c.heartbeat.fence.ns()
         << ' ' << c.heartbeat.suspicion.floor.ns() << ' ' << c.heartbeat.suspicion.ceiling.ns();
    return text.str();
}

bool read_settings(std::istream &in, membership::Config &c)
{
    unsigned mode = 0;
    unsigned form = 0;
    in >> c.arity >> mode >> form;
    c.form = static_cast<membership::ViewForm>(form);
    c.mode = static_cast<membership::TreeMode>(mode);
    for (base::Duration *d :
         {&c.repeat, &c.repeat_max, &c.give_up, &c.probe_timeout, &c.report_stagger, &c.commit_wait,
          &c.reprobe, &c.minority_wait, &c.exile_hold, &c.combine, &c.heartbeat.interval,
          &c.heartbeat.fence, &c.heartbeat.suspicion.floor, &c.heartbeat.suspicion.ceiling}) {
        std::int64_t ns = 0;
        in >> ns;
        *d = base::Duration::from_ns(ns);
    }
    return static_cast<bool>(in) && mode <= 1 && form <= 1 && c.fault().empty();
}

} // namespace

Session::Session(NodeId self) : self_(self), deaths_(self)
{
    deaths_.on_view(0, 0, {});
    write("log " + std::to_string(self) + '\n');
}

void Session::log_to(std::ostream *log)
{
    log_ = log;
    decided_ = true;
    if (log_ != nullptr) {
        write(early_);
    }
    early_.clear();
}

void Session::write(const std::string &lines)
{
    if (log_ == nullptr) {
        early_ += lines;
        return;
    }
    // A daemon may be killed at any moment, and its log is wanted all the more then.
    *log_ << lines << std::flush;
}

/// The spreading of deaths hears of a view before anything else happens in it.
void Session::follow_views(std::size_t from)
{
    for (std::size_t i = from; i < output_.events.size(); ++i) {
        const Event &e = output_.events[i];
        if (e.kind == Event::Kind::installed) {
            std::vector<NodeId> children;
            e.view->children(self_, children);
            deaths_.on_view(e.view->epoch(), e.view->root(), children);
        }
    }
}

/// Makes the call that `text` describes, and writes what comes out behind it.
template <class Call>
auto Session::run(base::Time now, const std::string &text, Call call)
{
    const std::size_t messages = output_.messages.size();
    const std::size_t events = output_.events.size();
    const std::size_t outgoing = outgoing_.size();
    const std::size_t news = news_.size();
    const auto result = call();
    follow_views(events);
    for (Outgoing &m : deaths_.take_outgoing()) {
        outgoing_.push_back(std::move(m));
    }
    for (const RankDeath &d : deaths_.take_news()) {
        news_.push_back(d);
    }
    if (!logging() || text.empty()) {
        return result;
    }
    std::string lines = std::to_string(now.ns()) + ' ' + text + '\n';
    for (std::size_t i = messages; i < output_.messages.size(); ++i) {
        lines += "> message " + hex(membership::encode(output_.messages[i])) + '\n';
    }
    for (std::size_t i = events; i < output_.events.size(); ++i) {
        lines += "> " + describe(output_.events[i]) + '\n';
    }
    for (std::size_t i = outgoing; i < outgoing_.size(); ++i) {
        lines += "> spread " + std::to_string(outgoing_[i].to) + ' ' +
                 std::to_string(static_cast<unsigned>(outgoing_[i].type)) + ' ' +
                 hex(outgoing_[i].body) + '\n';
    }
    for (std::size_t i = news; i < news_.size(); ++i) {
        lines += "> dead " + describe(news_[i]) + '\n';
    }
    write(lines);
    return result;
}

void Session::begin(base::Time now, const membership::Config &config, std::uint32_t daemons)
{
    run(now, "start " + std::to_string(daemons) + ' ' + settings(config), [&] {
        engine_.emplace(
            config, std::make_shared<membership::ViewPool>(), membership::Identity{self_, 0},
            membership::View::initial(daemons, config.arity, config.mode, config.form), now);
        std::vector<NodeId> children;
        engine_->view()->children(self_, children);
        deaths_.on_view(engine_->epoch(), engine_->view()->root(), children);
        return true;
    });
}

void Session::begin_joiner(base::Time now, const membership::Config &config,
                           std::uint32_t incarnation, const std::vector<NodeId> &known)
{
    std::string ids;
    for (const NodeId id : known) {
        ids += ' ' + std::to_string(id);
    }
    run(now, "join " + std::to_string(incarnation) + ' ' + settings(config) + ids, [&] {
        engine_.emplace(config, std::make_shared<membership::ViewPool>(),
                        membership::Identity{self_, incarnation}, known, now);
        return true;
    });
}

membership::Stabilizer::Verdict Session::message(base::Time now, const Message &m)
{
    return run(now, logging() ? "message " + hex(membership::encode(m)) : std::string(),
               [&] { return engine_->on_message(now, m, output_); });
}

void Session::time(base::Time now)
{
    run(now, "time", [&] {
        engine_->on_time(now, output_);
        return true;
    });
}

void Session::suspicion(base::Time now, NodeId id)
{
    run(now, "suspicion " + std::to_string(id), [&] {
        engine_->on_suspicion(now, id, output_);
        return true;
    });
}

void Session::proof(base::Time now, NodeId id, membership::ProofKind kind)
{
    run(now, "proof " + std::to_string(id) + ' ' + std::to_string(static_cast<unsigned>(kind)),
        [&] {
            engine_->on_proof(now, id, kind, output_);
            return true;
        });
}

void Session::turn_away(base::Time now, const membership::Identity &who)
{
    run(now, "turn_away " + std::to_string(who.id) + ' ' + std::to_string(who.incarnation), [&] {
        engine_->turn_away(now, who, output_);
        return true;
    });
}

void Session::leave(base::Time now)
{
    run(now, "leave", [&] {
        engine_->leave(now, output_);
        return true;
    });
}

void Session::report(base::Time now, std::span<const RankDeath> deaths)
{
    if (deaths.empty()) {
        return;
    }
    std::string text;
    for (const RankDeath &death : deaths) {
        text += ' ' + describe(death);
    }
    run(now, "report" + text, [&] {
        deaths_.report(deaths);
        return true;
    });
}

bool Session::spread(base::Time now, NodeId from, Type type, std::span<const std::byte> body)
{
    return run(now,
               logging() ? "spread " + std::to_string(from) + ' ' +
                               std::to_string(static_cast<unsigned>(type)) + ' ' + hex(body)
                         : std::string(),
               [&] { return deaths_.on_message(from, type, body); });
}

void Session::tick(base::Time now)
{
    // Ten a second, of which hardly one does anything.
    const bool idle = !deaths_.reports_pending() && deaths_.everybody_knows();
    run(now, idle ? std::string() : "tick", [&] {
        deaths_.tick();
        return true;
    });
}

membership::Output Session::take()
{
    return std::exchange(output_, {});
}

std::vector<Outgoing> Session::take_outgoing()
{
    return std::exchange(outgoing_, {});
}

std::vector<RankDeath> Session::take_news()
{
    return std::exchange(news_, {});
}

namespace {

std::optional<std::vector<std::byte>> read_hex(std::istream &in)
{
    std::string text;
    std::vector<std::byte> bytes;
    in >> text;
    if (!unhex(text, bytes)) {
        return std::nullopt;
    }
    return bytes;
}

/// The calls of the engine, once it is there.
bool call_engine(Session &session, base::Time now, const std::string &what, std::istream &in)
{
    membership::NodeId id = 0;
    if (what == "time") {
        session.time(now);
    } else if (what == "leave") {
        session.leave(now);
    } else if (what == "suspicion") {
        in >> id;
        session.suspicion(now, id);
    } else if (what == "turn_away") {
        std::uint32_t incarnation = 0;
        in >> id >> incarnation;
        session.turn_away(now, {id, incarnation});
    } else if (what == "proof") {
        unsigned kind = 0;
        in >> id >> kind;
        session.proof(now, id, static_cast<membership::ProofKind>(kind));
    } else if (what == "message") {
        const auto bytes = read_hex(in);
        const auto m = bytes ? membership::decode(*bytes) : std::nullopt;
        if (!m) {
            return false;
        }
        session.message(now, *m);
    } else {
        return false;
    }
    return static_cast<bool>(in);
}

/// Makes the call that `line` describes; false when it describes none.
bool call(Session &session, NodeId self, const std::string &line)
{
    std::istringstream in(line);
    std::int64_t ns = 0;
    std::string what;
    in >> ns >> what;
    const base::Time now = base::Time::from_ns(ns);
    if (what == "start") {
        std::uint32_t daemons = 0;
        membership::Config config;
        in >> daemons;
        if (!read_settings(in, config) || self >= daemons || session.begun()) {
            return false;
        }
        session.begin(now, config, daemons);
    } else if (what == "join") {
        std::uint32_t incarnation = 0;
        membership::Config config;
        in >> incarnation;
        if (!read_settings(in, config) || session.begun()) {
            return false;
        }
        const std::vector<NodeId> known{std::istream_iterator<NodeId>(in), {}};
        session.begin_joiner(now, config, incarnation, known);
        return true; // the list has no end but the line's
    } else if (what == "report") {
        std::vector<RankDeath> deaths;
        do {
            if (!read_death(in, deaths.emplace_back())) {
                return false;
            }
        } while (!(in >> std::ws).eof());
        session.report(now, deaths);
        return true; // it was read to its end
    } else if (what == "spread") {
        NodeId from = 0;
        unsigned type = 0;
        in >> from >> type;
        const auto body = read_hex(in);
        if (!body || type > 0xff) {
            return false;
        }
        session.spread(now, from, static_cast<Type>(type), *body);
        return true; // the body may be nothing
    } else if (what == "tick") {
        session.tick(now);
    } else {
        return session.begun() && call_engine(session, now, what, in);
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
    std::string word;
    NodeId self = 0;
    start >> word >> self;
    if (!start || word != "log") {
        result.difference = "line 1 is not the start of a log: " + line;
        return result;
    }
    std::ostringstream again;
    Session session(self);
    session.log_to(&again);
    std::vector<std::string> want;
    const auto compare = [&] {
        for (const Event &e : session.take().events) {
            result.views += e.kind == Event::Kind::installed ? 1 : 0;
        }
        session.take_outgoing();
        session.take_news();
        std::istringstream got(again.str());
        again.str({});
        std::string mine;
        for (const std::string &old : want) {
            if (!std::getline(got, mine) || mine != old) {
                result.difference = "before line " + std::to_string(number) + ": the log has \"" +
                                    old + "\", the replay gave \"" + mine + '"';
                return false;
            }
            const bool message = old.starts_with("> message") || old.starts_with("> spread");
            result.messages += message ? 1 : 0;
            result.events += !message && old.starts_with("> ") ? 1 : 0;
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
        if (!call(session, self, line)) {
            result.difference = "line " + std::to_string(number) + " is no call: " + line;
            return result;
        }
        ++result.calls;
    }
    ++number;
    compare();
    result.deaths = session.deaths().known().size();
    result.told = session.deaths().counts();
    if (session.begun() && session.engine().view()) {
        result.arity = session.engine().view()->arity();
        result.sent = session.engine().counters().for_changes;
        result.again = session.engine().counters().for_changes_again;
    }
    return result;
}

} // namespace ft::radixft

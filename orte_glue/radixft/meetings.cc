#include "orte_glue/radixft/meetings.hpp"

#include <array>
#include <optional>

namespace ft::radixft {

namespace {

constexpr std::size_t acceptor = 0;
constexpr std::size_t connector = 1;
/// The ends of the keys of names (ompi/dpm/dpm.c), by side.
constexpr std::array<std::string_view, 2> names_end{":accept", ":connect"};
/// Of a number's key (ompi/communicator/comm_cid.c): the last step, and what stands for the side
/// that publishes it.
constexpr std::string_view last_step = "activate";
constexpr std::array<std::string_view, 2> number_side{"recv", "send"};

/// Takes apart PORT:accept or :connect, or PORT:STEP:recv:NUMBER or :send:.
struct Key {
    std::string_view port;
    std::size_t side = acceptor;
    bool names = false;
    bool last = false;
};

std::string_view cut(std::string_view &text)
{
    const std::size_t at = text.rfind(':');
    const std::string_view word = at == text.npos ? text : text.substr(at + 1);
    text = at == text.npos ? std::string_view() : text.substr(0, at);
    return word;
}

std::optional<Key> parse(std::string_view text)
{
    for (const std::size_t side : {acceptor, connector}) {
        if (text.ends_with(names_end[side])) {
            text.remove_suffix(names_end[side].size());
            return Key{text, side, true, false};
        }
    }
    cut(text);
    const std::string_view whose = cut(text);
    const std::string_view step = cut(text);
    if (text.empty() || (whose != number_side[acceptor] && whose != number_side[connector])) {
        return std::nullopt;
    }
    return Key{text, whose == number_side[acceptor] ? acceptor : connector, false,
               step == last_step};
}

std::string names_key(const std::string &port, std::size_t side)
{
    return port + std::string(names_end[side]);
}

/// Whether one of these is among the others; a vpid of every_rank stands for all of its job.
bool overlap(const std::vector<Rank> &these, const std::vector<Rank> &others)
{
    return std::any_of(these.begin(), these.end(), [&others](const Rank &one) {
        return std::any_of(others.begin(), others.end(), [&one](const Rank &other) {
            return one.jobid == other.jobid &&
                   (one.vpid == other.vpid || one.vpid == every_rank || other.vpid == every_rank);
        });
    });
}

} // namespace

std::string_view Meetings::port_of(std::string_view key)
{
    const auto what = parse(key);
    return what ? what->port : std::string_view();
}

std::string Meetings::names_other_side(std::string_view key)
{
    const auto what = parse(key);
    return what && what->names ? names_key(std::string(what->port), 1 - what->side) : std::string();
}

void Meetings::on_names(Rank owner, std::string_view key, std::vector<Rank> ranks, std::string text)
{
    const auto what = parse(key);
    if (!what || !what->names) {
        return;
    }
    const std::string port(what->port);
    Visits &visits = ports_[port];
    for (Visit &before : visits) {
        if (before.side == what->side && overlap(before.ranks, ranks)) {
            lose(port, before);
            before.over = true;
        }
    }
    visits.push_back({owner, what->side, std::move(ranks), std::move(text)});
    const auto reader = std::find_if(visits.begin(), visits.end(),
                                     [key](const Visit &visit) { return visit.asked == key; });
    if (reader != visits.end()) {
        reader->asked.clear();
        pair(*reader, visits.back());
    }
    forget();
}

bool Meetings::on_number(Rank owner, std::string_view key)
{
    const auto what = parse(key);
    const auto at = what && !what->names ? ports_.find(what->port) : ports_.end();
    if (at == ports_.end()) {
        return true;
    }
    const auto mine = std::find_if(at->second.rbegin(), at->second.rend(), [&](const Visit &visit) {
        return visit.side == what->side && visit.root == owner && visit.met;
    });
    if (mine == at->second.rend()) {
        return true;
    }
    if (mine->broken || mine->alone) {
        return false;
    }
    if (mine->peer == nullptr || mine->peer->asked != key) {
        mine->told.emplace(key);
        return true;
    }
    mine->peer->asked.clear();
    mine->peer->over = what->last;
    forget();
    return true;
}

std::optional<Meetings::Answer> Meetings::on_lookup(std::uint32_t jobid, std::string_view key)
{
    const auto what = parse(key);
    const auto at = what ? ports_.find(what->port) : ports_.end();
    if (at == ports_.end()) {
        return std::nullopt;
    }
    const auto answer = what->names ? look_for_names(at->second, 1 - what->side, jobid, key)
                                    : look_for_number(at->second, 1 - what->side, key, what->last);
    forget();
    return answer;
}

std::optional<Meetings::Answer> Meetings::look_for_names(Visits &visits, std::size_t side,
                                                         std::uint32_t jobid, std::string_view key)
{
    const auto reader = std::find_if(visits.begin(), visits.end(), [&](const Visit &visit) {
        return visit.side == side && visit.root.jobid == jobid && !visit.over && !visit.met &&
               visit.asked.empty();
    });
    if (reader == visits.end()) {
        return Answer::refusal; // one that is gone: it would take what is meant for others
    }
    if (reader->broken) {
        reader->over = true;
        return Answer::refusal;
    }
    const auto owner = std::find_if(visits.begin(), visits.end(), [side](const Visit &visit) {
        return visit.side != side && visit.offered;
    });
    if (owner == visits.end()) {
        reader->asked = key;
    } else {
        pair(*reader, *owner);
    }
    return std::nullopt;
}

std::optional<Meetings::Answer> Meetings::look_for_number(Visits &visits, std::size_t side,
                                                          std::string_view key, bool last)
{
    // Who has not met anybody asks for no numbers.
    const auto reader = std::find_if(visits.rbegin(), visits.rend(), [side](const Visit &visit) {
        return visit.side == side && visit.met && !visit.over;
    });
    if (reader == visits.rend()) {
        return Answer::number; // as above
    }
    if (reader->broken || reader->alone) {
        reader->over = last;
        return Answer::number;
    }
    if (reader->peer != nullptr && reader->peer->told.erase(std::string(key)) > 0) {
        reader->over = last;
    } else {
        reader->asked = key;
    }
    return std::nullopt;
}

void Meetings::pair(Visit &reader, Visit &owner)
{
    owner.offered = false;
    reader.met = true;
    if (reader.peer == nullptr && owner.peer == nullptr) {
        reader.peer = &owner;
        owner.peer = &reader;
    }
}

/// One of its ranks is dead. Of a visit that is through, or was alone before, nobody waits for
/// anything.
void Meetings::lose(const std::string &port, Visit &visit)
{
    if (std::exchange(visit.broken, true)) {
        return;
    }
    if (std::exchange(visit.offered, false)) {
        actions_.push_back({Action::What::take_back, names_key(port, visit.side), visit.root});
    }
    if (Visit *const other = std::exchange(visit.peer, nullptr)) {
        other->peer = nullptr;
        if (other->met) {
            if (std::exchange(other->offered, false)) {
                actions_.push_back(
                    {Action::What::take_back, names_key(port, other->side), other->root});
            }
            leave_alone(*other);
        } else {
            other->offered = true;
            actions_.push_back(
                {Action::What::restore, names_key(port, other->side), other->root, other->names});
        }
    }
    take_back(visit);
    if (!visit.asked.empty()) {
        if (visit.met) {
            stand_in(visit);
        } else {
            refuse(visit);
        }
    }
}

/// Of two that were to exchange numbers the other one is broken.
void Meetings::leave_alone(Visit &visit)
{
    visit.alone = true;
    take_back(visit);
    if (!visit.asked.empty()) {
        stand_in(visit);
    }
}

/// Tells a side that nobody comes. It returns with that.
void Meetings::refuse(Visit &visit)
{
    actions_.push_back({Action::What::refuse, std::exchange(visit.asked, {})});
    visit.over = true;
}

/// Answers the number for which it waits; with the last one it is through.
void Meetings::stand_in(Visit &visit)
{
    visit.over = parse(visit.asked)->last;
    actions_.push_back({Action::What::number, std::exchange(visit.asked, {})});
}

void Meetings::take_back(Visit &visit)
{
    for (const std::string &key : visit.told) {
        actions_.push_back({Action::What::take_back, key, visit.root});
    }
    visit.told.clear();
}

/// Those who are over, unless the other has still to read what they told.
void Meetings::forget()
{
    for (auto &[port, visits] : ports_) {
        for (Visit &visit : visits) {
            if (visit.over && visit.peer != nullptr && visit.peer->over) {
                visit.peer->peer = nullptr;
                visit.peer = nullptr;
            }
        }
        std::erase_if(visits,
                      [](const Visit &visit) { return visit.over && visit.peer == nullptr; });
    }
    std::erase_if(ports_, [](const auto &entry) { return entry.second.empty(); });
}

} // namespace ft::radixft

#include "orte_glue/radixft/meetings.hpp"

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

} // namespace

std::string_view Meetings::port_of(std::string_view key)
{
    const auto what = parse(key);
    return what ? what->port : std::string_view();
}

void Meetings::on_names(Rank owner, std::string_view key, std::vector<Rank> ranks)
{
    const auto what = parse(key);
    if (!what || !what->names) {
        return;
    }
    Sides &sides = ports_[std::string(what->port)];
    Side &mine = sides[what->side];
    Side &other = sides[1 - what->side];
    if (mine.over) {
        other = {}; // it is through the last meeting too
    }
    mine = {};
    mine.ranks = std::move(ranks);
    mine.root = owner;
    if (other.asked == key) {
        other.asked.clear();
        other.met = mine.read = true;
    }
}

bool Meetings::on_number(Rank owner, std::string_view key)
{
    const auto what = parse(key);
    const auto at = what && !what->names ? ports_.find(what->port) : ports_.end();
    if (at == ports_.end()) {
        return true;
    }
    Side &mine = at->second[what->side];
    Side &other = at->second[1 - what->side];
    if (mine.broken && owner == mine.root) {
        return false;
    }
    mine.through = mine.through || what->last;
    if (other.asked == key) {
        other.asked.clear();
        mine.over = mine.over || what->last;
    } else {
        mine.told.emplace(key);
    }
    return true;
}

void Meetings::on_lookup(std::string_view key)
{
    const auto what = parse(key);
    const auto at = what ? ports_.find(what->port) : ports_.end();
    if (at == ports_.end()) {
        return;
    }
    Side &wanted = at->second[what->side];
    Side &asking = at->second[1 - what->side];
    if (what->names && !wanted.ranks.empty() && !wanted.read) {
        wanted.read = asking.met = true;
        return;
    }
    if (const auto told = wanted.told.find(key); told != wanted.told.end()) {
        wanted.told.erase(told);
        wanted.over = wanted.over || what->last;
        return;
    }
    asking.asked = key;
    if (what->names && asking.broken) {
        actions_.push_back({Action::What::refuse, std::exchange(asking.asked, {}), {}});
    } else if (!what->names && (asking.alone || (asking.broken && wanted.through))) {
        stand_in(at->second, 1 - what->side);
    }
}

void Meetings::lose(const std::string &port, std::size_t side)
{
    Sides &sides = ports_[port];
    Side &mine = sides[side];
    Side &other = sides[1 - side];
    mine.broken = true;
    if (!mine.read && !mine.met) {
        actions_.push_back({Action::What::take_back, names_key(port, side), mine.root});
        mine.ranks.clear();
        if (mine.asked == names_key(port, 1 - side)) {
            actions_.push_back({Action::What::refuse, std::exchange(mine.asked, {}), {}});
        }
        return;
    }
    other.alone = true;
    if (!mine.met && !std::exchange(other.read, true)) {
        // Whose root may be dead; if it lives and asks, it is refused.
        actions_.push_back({Action::What::take_back, names_key(port, 1 - side), other.root});
    }
    if (mine.alone) {
        take_back(mine);
    }
    if (const auto what = parse(other.asked); what && !what->names) {
        stand_in(sides, 1 - side);
    }
}

/// Answers the number for which this side waits; with the last one it is through.
void Meetings::stand_in(Sides &sides, std::size_t waiting)
{
    const std::string key = std::exchange(sides[waiting].asked, {});
    actions_.push_back({Action::What::number, key, {}});
    if (parse(key)->last) {
        // Unless that one has begun anew.
        sides[1 - waiting].over = sides[1 - waiting].broken;
        take_back(sides[acceptor]);
        take_back(sides[connector]);
    }
}

/// What was not read by the time is not there any more, and counts as not told.
void Meetings::orphan(Side &side)
{
    side.orphaned = true;
    take_back(side);
}

void Meetings::take_back(Side &side)
{
    for (const std::string &key : side.told) {
        actions_.push_back({Action::What::take_back, key, side.root});
    }
    side.told.clear();
}

} // namespace ft::radixft

#include "script.hpp"

#include "opal/ft/base/assert.hpp"
#include "opal/ft/consensus/agreement.hpp"
#include "opal/ft/consensus/describe.hpp"

#include <deque>
#include <sstream>
#include <stdexcept>

namespace {

using namespace ft::consensus;

RankSet set_of(const std::string &text)
{
    RankSet set;
    std::stringstream in(text);
    std::string part;
    while (std::getline(in, part, ',')) {
        const auto dash = part.find('-');
        const auto first = static_cast<Rank>(std::stoul(part));
        const auto last = dash == std::string::npos
                              ? first
                              : static_cast<Rank>(std::stoul(part.substr(dash + 1)));
        set.unite(RankSet::range(first, last + 1));
    }
    return set;
}

class Player {
  public:
    std::string play(const std::string &script)
    {
        std::stringstream in(script);
        std::string line;
        while (std::getline(in, line)) {
            if (line.starts_with("    ")) {
                continue;
            }
            out_ += line + "\n";
            if (!line.empty() && line[0] != '#') {
                act(line);
            }
        }
        return out_;
    }

  private:
    struct Flight {
        Rank from;
        Rank to;
        Message message;
    };

    void act(const std::string &line)
    {
        std::stringstream in(line);
        std::string first;
        in >> first;
        if (first == "group") {
            make_group(line);
            return;
        }
        if (line == "all hear all") {
            while (!wire_.empty()) {
                arrive(0);
            }
            return;
        }
        const auto who = static_cast<Rank>(std::stoul(first));
        std::string verb;
        in >> verb;
        Actions actions;
        if (verb.starts_with("calls")) {
            engines_.at(who).start(brought(line), actions);
        } else if (verb == "dies") {
            dead_.insert(who);
        } else if (verb == "hears") {
            Rank from = 0;
            in >> from;
            arrive(find(from, who));
        } else if (verb == "to") {
            Rank to = 0;
            in >> to;
            wire_.erase(wire_.begin() + static_cast<std::ptrdiff_t>(find(who, to)));
        } else if (verb == "suspects") {
            Rank whom = 0;
            in >> whom;
            engines_.at(who).on_suspect(whom, Certainty::unconfirmed, actions);
        } else if (verb == "is") {
            std::string sure;
            std::string of;
            Rank whom = 0;
            in >> sure >> of >> whom;
            engines_.at(who).on_suspect(whom, Certainty::confirmed, actions);
        } else {
            throw std::runtime_error("script: what is \"" + line + "\"?");
        }
        carry_out(who, actions);
    }

    static std::string after(const std::string &line, const std::string &word)
    {
        const auto at = line.find(word);
        if (at == std::string::npos) {
            return {};
        }
        const auto begin = at + word.size();
        return line.substr(begin, line.find(", ", begin) - begin);
    }

    static Contribution brought(const std::string &line)
    {
        Contribution c;
        c.unconfirmed = set_of(after(line, "doubting "));
        c.suspects = set_of(after(line, "knowing ")).united(c.unconfirmed);
        c.acknowledged = set_of(after(line, "having acknowledged "));
        for (const Rank bit : set_of(after(line, "flags not ")).members()) {
            c.flags &= ~(std::uint64_t{1} << bit);
        }
        return c;
    }

    void make_group(const std::string &line)
    {
        const auto size = static_cast<Rank>(std::stoul(line.substr(line.find("of ") + 3)));
        Settings settings;
        settings.algorithm = line.find("paper") != std::string::npos  ? Algorithm::paper
                             : line.find("tree") != std::string::npos ? Algorithm::tree
                                                                      : Algorithm::fast;
        if (const std::string fan_out = after(line, "fan-out "); !fan_out.empty()) {
            settings.fan_out = static_cast<std::uint32_t>(std::stoul(fan_out));
        }
        settings.semantics =
            line.find("loose") != std::string::npos ? Semantics::loose : Semantics::strict;
        settings.majority = line.find("majority") != std::string::npos;
        const auto shape = TreeShape::binomial(size);
        for (Rank rank = 0; rank < size; ++rank) {
            engines_.emplace_back(rank, InstanceId{1, 1}, settings, shape);
        }
    }

    std::size_t find(Rank from, Rank to) const
    {
        for (std::size_t i = 0; i < wire_.size(); ++i) {
            if (wire_[i].from == from && wire_[i].to == to) {
                return i;
            }
        }
        throw std::runtime_error("script: nothing is on its way from " + std::to_string(from) +
                                 " to " + std::to_string(to));
    }

    void arrive(std::size_t at)
    {
        const Flight flight = wire_[at];
        wire_.erase(wire_.begin() + static_cast<std::ptrdiff_t>(at));
        if (dead_.contains(flight.to)) {
            return;
        }
        Actions actions;
        engines_.at(flight.to).on_message(flight.from, flight.message, actions);
        carry_out(flight.to, actions);
    }

    void carry_out(Rank who, Actions &actions)
    {
        for (Action &action : actions) {
            out_ += "    " + std::to_string(who);
            switch (action.kind) {
            case Action::Kind::decide: {
                const Value &value = *engines_.at(who).decision();
                out_ += " returns " + describe(value.failed);
                if (value.flags != ~std::uint64_t{0} || !value.acknowledged.empty()) {
                    Message words(Kind::decide);
                    words.accepted = Accepted{{}, value};
                    const std::string text = describe(words);
                    const auto rest = text.find(" flags ") != std::string::npos
                                          ? text.find(" flags ")
                                          : text.find(" acknowledged ");
                    out_ += "," + text.substr(rest);
                }
                break;
            }
            case Action::Kind::stop:
                out_ += " stops";
                break;
            case Action::Kind::send: {
                out_ += " to " + std::to_string(action.to) + ": " + describe(action.message);
                // Over the wire format, as in a real run.
                auto read = decode(encode(action.message), static_cast<Rank>(engines_.size()));
                if (!read || *read != action.message) {
                    out_ += " (DOES NOT SURVIVE ENCODING)";
                }
                wire_.push_back({who, action.to, std::move(action.message)});
                break;
            }
            }
            out_ += "\n";
        }
    }

    std::deque<Agreement> engines_;
    std::deque<Flight> wire_;
    RankSet dead_;
    std::string out_;
};

} // namespace

std::string play(const std::string &script)
{
    return Player().play(script);
}

#include "opal/mca/btl/fault/settings.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

namespace ft::fault {

namespace {

constexpr std::uint64_t most_fragments = 1'000'000'000'000;
constexpr std::uint64_t most_us = 60'000'000;
constexpr std::uint64_t most_ms = 3'600'000;

template <typename Number>
std::optional<Number> number(std::string_view text)
{
    Number value{};
    const char *end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (text.empty() || error != std::errc{} || stop != end) {
        return std::nullopt;
    }
    return value;
}

/// Collects the first complaint; every reader leaves its default alone when the text is empty.
class Reader {
  public:
    explicit Reader(Complaint &complaint) : complaint_(complaint) {}

    [[nodiscard]] bool good() const { return good_; }

    void complain(std::string_view name, std::string_view value, std::string wanted)
    {
        if (good_) {
            good_ = false;
            complaint_ = Complaint{std::string(name), std::string(value), std::move(wanted)};
        }
    }

    void chance(std::string_view name, const std::string &text, double &out)
    {
        if (text.empty()) {
            return;
        }
        const auto percent = number<double>(text);
        if (!percent || !std::isfinite(*percent) || *percent < 0 || *percent > 100) {
            complain(name, text, "a percentage of fragments, from 0 to 100, like 2.5");
            return;
        }
        out = *percent / 100;
    }

    void integer(std::string_view name, const std::string &text, std::uint64_t most,
                 const std::string &kind, std::uint64_t &out)
    {
        if (text.empty()) {
            return;
        }
        const auto value = number<std::uint64_t>(text);
        if (!value || *value > most) {
            complain(name, text, kind + ", from 0 to " + std::to_string(most));
            return;
        }
        out = *value;
    }

  private:
    Complaint &complaint_;
    bool good_ = true;
};

std::vector<std::string_view> split(std::string_view text)
{
    std::vector<std::string_view> parts;
    for (;;) {
        const std::size_t comma = text.find(',');
        parts.push_back(text.substr(0, comma));
        if (comma == std::string_view::npos) {
            return parts;
        }
        text.remove_prefix(comma + 1);
    }
}

void read_kill(const Parameters &parameters, Reader &reader, Settings &settings)
{
    std::uint64_t after = 0;
    std::uint64_t error = 0;
    reader.integer("kill_after", parameters.kill_after, most_fragments,
                   "a whole number of fragments", after);
    reader.integer("kill_error", parameters.kill_error, most_fragments,
                   "a whole number of fragments", error);
    if (after != 0 && error != 0) {
        reader.complain("kill_error", parameters.kill_error,
                        "0 or not given while btl_fault_kill_after is set: a path dies either "
                        "without a word or with an error");
    }
    settings.kill_after = std::max(after, error);
    settings.kill_reports = error != 0;

    if (!parameters.kill_btl.empty()) {
        const std::string_view text = parameters.kill_btl;
        const std::size_t colon = text.find(':');
        std::optional<unsigned> instance = 0;
        if (colon != std::string_view::npos) {
            instance = number<unsigned>(text.substr(colon + 1));
        }
        if (!instance || colon == 0) {
            reader.complain("kill_btl", text,
                            "the name of a BTL, alone or with the number of one of its modules "
                            "counted from 0, like tcp or tcp:1; or any");
        } else if (settings.kill_after == 0) {
            reader.complain("kill_btl", text,
                            "used together with btl_fault_kill_after or btl_fault_kill_error");
        } else {
            settings.kill_btl = text.substr(0, colon);
            settings.kill_instance = *instance;
        }
    }

    std::uint64_t revive_ms = 0;
    reader.integer("revive_after_ms", parameters.revive_after_ms, most_ms,
                   "a whole number of milliseconds", revive_ms);
    if (revive_ms != 0 && settings.kill_after == 0) {
        reader.complain("revive_after_ms", parameters.revive_after_ms,
                        "used together with btl_fault_kill_after or btl_fault_kill_error");
    }
    settings.revive_after = base::Duration::from_ms(static_cast<std::int64_t>(revive_ms));
}

void read_delay(const Parameters &parameters, Reader &reader, Settings &settings)
{
    std::uint64_t delay_us = 0;
    reader.integer("delay_us", parameters.delay_us, most_us, "a whole number of microseconds",
                   delay_us);
    settings.delay_time = base::Duration::from_us(static_cast<std::int64_t>(delay_us));
    settings.delay = 1;
    reader.chance("delay_percent", parameters.delay_percent, settings.delay);
    if (delay_us == 0) {
        if (!parameters.delay_percent.empty() && settings.delay > 0) {
            reader.complain("delay_percent", parameters.delay_percent,
                            "used together with btl_fault_delay_us, the time to delay by");
        }
        settings.delay = 0;
    }
}

void read_words(const Parameters &parameters, Reader &reader, Settings &settings)
{
    if (parameters.what == "data") {
        settings.what = What::data;
    } else if (parameters.what == "acks") {
        settings.what = What::acks;
    } else if (!parameters.what.empty() && parameters.what != "all") {
        reader.complain("what", parameters.what, "one of data, acks, all");
    }
    if (parameters.direction == "send") {
        settings.on_receive = false;
    } else if (parameters.direction == "receive") {
        settings.on_send = false;
    } else if (!parameters.direction.empty() && parameters.direction != "both") {
        reader.complain("direction", parameters.direction, "one of send, receive, both");
    }
}

void read_ranks(const Parameters &parameters, Reader &reader, Settings &settings)
{
    if (parameters.ranks.empty() || parameters.ranks == "all") {
        return;
    }
    for (const std::string_view part : split(parameters.ranks)) {
        const std::size_t dash = part.find('-');
        const auto first = number<std::uint32_t>(part.substr(0, dash));
        const auto last =
            dash == std::string_view::npos ? first : number<std::uint32_t>(part.substr(dash + 1));
        if (!first || !last || *first > *last) {
            reader.complain("ranks", parameters.ranks,
                            "all, or ranks and ranges of ranks separated by commas, like 0,2-3");
            return;
        }
        settings.ranks.push_back(RankRange{*first, *last});
    }
}

} // namespace

bool Settings::has_rank(std::uint32_t rank) const noexcept
{
    return ranks.empty() || std::any_of(ranks.begin(), ranks.end(), [rank](const RankRange &r) {
               return r.first <= rank && rank <= r.last;
           });
}

bool Settings::has_btl(std::string_view name) const noexcept
{
    if (name == "fault") {
        return false;
    }
    if (only.empty()) {
        return name != "self";
    }
    return std::find(only.begin(), only.end(), name) != only.end();
}

bool read_settings(const Parameters &parameters, Settings &settings, Complaint &complaint)
{
    settings = Settings{};
    settings.count = parameters.count;
    Reader reader(complaint);
    reader.chance("drop", parameters.drop, settings.drop);
    reader.chance("duplicate", parameters.duplicate, settings.duplicate);
    reader.chance("corrupt", parameters.corrupt, settings.corrupt);
    reader.chance("reorder", parameters.reorder, settings.reorder);
    read_delay(parameters, reader, settings);
    read_kill(parameters, reader, settings);
    read_words(parameters, reader, settings);
    read_ranks(parameters, reader, settings);
    std::uint64_t interval_ms = 0;
    reader.integer("count_interval_ms", parameters.count_interval_ms, most_ms,
                   "a whole number of milliseconds", interval_ms);
    settings.count_interval = base::Duration::from_ms(static_cast<std::int64_t>(interval_ms));
    reader.integer("seed", parameters.seed, std::numeric_limits<std::uint64_t>::max(),
                   "a whole number", settings.seed);
    if (!parameters.only.empty()) {
        for (const std::string_view name : split(parameters.only)) {
            if (name.empty() || name == "fault") {
                reader.complain("only", parameters.only,
                                "names of other BTLs separated by commas, like tcp,vader");
                break;
            }
            settings.only.emplace_back(name);
        }
    }
    return reader.good();
}

} // namespace ft::fault

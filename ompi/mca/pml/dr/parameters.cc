#include "ompi/mca/pml/dr/parameters.hpp"

#include <array>
#include <cstdio>
#include <vector>

#include "ompi/mca/pml/dr/fragment_size.hpp"
#include "ompi/mca/pml/dr/progress.hpp"
#include "ompi/mca/pml/dr/progress_mode.hpp"
#include "opal/mca/misread.hpp"
#include "opal/mca/show_help.hpp"

namespace ft::dr {

namespace {

using Number = unsigned long long;

constexpr Number kibi = 1024;
constexpr Number mebi = 1024 * kibi;

/// One numeric parameter: everything that ompi_info, the range check and the manual say of it.
struct Entry {
    const char *name;
    Number value; ///< starts as the default, then what the user set
    Number least;
    Number most;
    mca_base_var_info_lvl_t level;
    const char *help;
};

enum Index : std::size_t {
    fragment_bytes,
    window_bytes,
    process_window_bytes,
    window_vfrags,
    eager_limit,
    eager_window_bytes,
    unexpected_bytes,
    path_depth,
    rto_initial_us,
    rto_min_us,
    rto_max_ms,
    ack_delay_us,
    ack_every,
    reorder_threshold,
    reorder_bytes,
    path_retries,
    stripe_memory,
    probe_interval_ms,
    probe_confirm,
    hold_down_ms,
    give_up_ms,
    keepalive_ms,
    drain_ms,
    reconnect_ms,
    stats,
    stats_interval_ms,
    verbose,
    count
};

std::array<Entry, Index::count> table{{
    {"fragment_bytes", default_fragment_bytes, 256, 16 * mebi, OPAL_INFO_LVL_4,
     "Largest payload of one fragment (S_max), bytes; what a BTL cannot carry (its max_send_size) "
     "is cut further. "
     "64 fragments are acknowledged together. Too low: more headers and more work per byte. "
     "Too high: one lost or broken fragment costs more to send again."},
    {"window_bytes", 16 * mebi, 4 * kibi, 4096 * mebi, OPAL_INFO_LVL_4,
     "Most payload to one peer that is sent and not yet acknowledged, bytes; at least "
     "fragment_bytes. Too low: the sender waits for acknowledgements on a long or fast network. "
     "Too high: memory for small messages that wait for their acknowledgement."},
    {"process_window_bytes", 1024 * mebi, 4 * kibi, 1024 * 1024 * mebi, OPAL_INFO_LVL_4,
     "Most payload of long messages to all peers together that is under way and not yet "
     "acknowledged, bytes; a peer to which nothing is under way gets one fragment in any case. Too "
     "low: peers wait for each other's acknowledgements. Too high: memory of the BTLs, and copies "
     "of "
     "what is not contiguous, where many peers are slow at once."},
    {"window_vfrags", 256, 2, 1024, OPAL_INFO_LVL_5,
     "Most VFRAGs (small messages, or groups of 64 fragments) to one peer that are sent and not "
     "yet acknowledged. Too low: small messages wait for acknowledgements. Too high: memory, and "
     "longer lists after a loss."},
    {"eager_limit", 0, 0, 16 * mebi, OPAL_INFO_LVL_4,
     "Longest message that is copied and sent without asking the receiver first, payload bytes; "
     "0 takes the smallest eager limit of the BTLs to that peer, through shared memory 8 KiB at "
     "least. A message never exceeds one fragment. Too low: a round trip more for medium messages. "
     "Too high: copies, and memory at receivers that are late."},
    {"eager_window_bytes", 4 * mebi, 0, 4096 * mebi, OPAL_INFO_LVL_4,
     "Most bytes of short messages to one peer that no receive has taken yet, payload and 256 for "
     "each; beyond, the receiver is asked first. 0: it is always asked first. Too low: a round "
     "trip more for bursts of short messages. Too high: memory at receivers that are late."},
    {"unexpected_bytes", 1024 * mebi, 0, 1024 * 1024 * mebi, OPAL_INFO_LVL_4,
     "Most bytes of short messages that one process keeps for receives to come, from all processes "
     "of a job together: each sends at most its part of it unasked, and never more than "
     "eager_window_bytes. Too low: a round trip more for bursts of short messages in large jobs. "
     "Too high: memory at receivers that are late."},
    {"path_depth", 16, 1, reliability::max_path_depth, OPAL_INFO_LVL_6,
     "Most fragments that one path's BTL holds at a time. Too low: the BTL runs dry. Too high: "
     "much to send again when the path dies, and late adaptation between paths."},
    {"rto_initial_us", 50000, 1, 60000000, OPAL_INFO_LVL_6,
     "Time until an unacknowledged fragment is sent again before the first round trip was "
     "measured, microseconds. Too low: needless repetition during start-up. Too high: a first "
     "message that is lost waits that long."},
    {"rto_min_us", 2000, 1, 10000000, OPAL_INFO_LVL_5,
     "Floor of the measured retransmission timeout, microseconds. Too low: a receiver that the "
     "system did not schedule is taken for a loss. Too high: the last fragment of a message, "
     "when lost, waits that long."},
    {"rto_max_ms", 2000, 1, 600000, OPAL_INFO_LVL_6,
     "Ceiling of the retransmission timeout after doublings, milliseconds. Too low: a network "
     "that is down is pestered, and below the real round trip everything is sent twice. Too high: "
     "slow to resume when it is back."},
    {"ack_delay_us", 500, 0, 1000000, OPAL_INFO_LVL_5,
     "Longest time that an acknowledgement waits for a message going back or for others of its "
     "kind, microseconds. Too low: more acknowledgements. Too high: senders' windows fill."},
    {"ack_every", 96, 1, 1024, OPAL_INFO_LVL_6,
     "VFRAGs after which an acknowledgement is sent without waiting; what is more than "
     "window_vfrags counts as that. Too low: more acknowledgements, which a reply would have taken "
     "along. Too high: the sender's window fills in bursts."},
    {"reorder_threshold", 3, 1, 255, OPAL_INFO_LVL_6,
     "Later fragments on the same path that must have arrived until one is held for lost; grows "
     "when it was wrong. Too low: reordered fragments are sent twice. Too high: losses are "
     "noticed late."},
    {"reorder_bytes", 4 * mebi, 4 * kibi, 4096 * mebi, OPAL_INFO_LVL_6,
     "Most payload from one peer that is kept since it arrived before its turn, bytes; at least "
     "fragment_bytes. Too low: early fragments are dropped and sent again. Too high: memory."},
    {"path_retries", 5, 1, 100, OPAL_INFO_LVL_4,
     "Unanswered tries after which a path is taken out while another path answers. Too low: a "
     "short disturbance costs a path for hold_down_ms. Too high: a dead path is used longer."},
    {"stripe_memory", 0, 0, 1, OPAL_INFO_LVL_5,
     "1: fragments to a process of the same node are striped over all paths to it by measured "
     "bandwidth; 0: they go through shared memory alone while it carries, and over the others when "
     "it does not. 0: what a network card between two processes of a node would add is not used, "
     "and silence of shared memory is borne with for about rto_max_ms, for it is that of a peer "
     "that computes. 1: where that is the kernel's loopback, the same cores do both, one slower: "
     "with an earlier version 1 MiB over vader and tcp moved at 6.8 GB/s, over vader alone at 9.2; "
     "and each pass of progress looks at "
     "sockets from the first fragment on, 1 us a time."},
    {"probe_interval_ms", 500, 1, 3600000, OPAL_INFO_LVL_5,
     "Time between probes of a path that is down, and silence in the middle of a long message "
     "after "
     "which the peer is asked for a sign of life, milliseconds. Too low: needless traffic. Too "
     "high: a repaired path stays unused longer."},
    {"probe_confirm", 3, 1, 100, OPAL_INFO_LVL_6,
     "Answered probes in a row that bring a path back. Too low: a path that flaps comes back too "
     "early. Too high: a repaired path stays unused longer."},
    {"hold_down_ms", 1000, 0, 3600000, OPAL_INFO_LVL_5,
     "Least time that a path stays down, milliseconds; doubles each time it fails again, up to "
     "64 times. Too low: flapping. Too high: a repaired path stays unused longer."},
    {"give_up_ms", 600000, 10, 86400000, OPAL_INFO_LVL_4,
     "Silence of a peer with data outstanding after which it is unreachable (MPIX_ERR_UNREACHABLE),"
     " milliseconds; above rto_max_ms. Too low: a process that computes without calling MPI is "
     "given up. Too high: requests to a peer that is gone without a word hang that long."},
    {"keepalive_ms", 0, 0, 86400000, OPAL_INFO_LVL_5,
     "Silence after which a peer that was met is asked for a sign of life although nothing is "
     "outstanding, milliseconds; 0 never. Without: a receive from a peer whose every path died in "
     "silence waits for ever. Too low: traffic. With it, a peer that computes for give_up_ms "
     "without calling MPI is given up by all who know it."},
    {"drain_ms", 10000, 0, 3600000, OPAL_INFO_LVL_4,
     "Longest time that MPI_Finalize waits for what is unacknowledged, milliseconds. Too low: the "
     "last messages may be lost. Too high: a dead peer delays the end that long."},
    {"reconnect_ms", 60000, 0, 3600000, OPAL_INFO_LVL_4,
     "Time for which a broken TCP connection, when no other path to the peer is up and data waits, "
     "is tried to be made anew, milliseconds; then the path is gone. 0: it is gone at once. Too "
     "low: a peer whose only connection stays broken for longer is unreachable. Too high: so much "
     "later is a process that died noticed, unless the runtime tells."},
    {"stats", 0, 0, 2, OPAL_INFO_LVL_3,
     "Summary on standard error at MPI_Finalize: 0 none, 1 one line for each process, 2 also one "
     "for each peer and path. Costs nothing before MPI_Finalize."},
    {"stats_interval_ms", 0, 0, 3600000, OPAL_INFO_LVL_4,
     "Time after which the sums of pml_dr_stats, with the words so far, are printed again and "
     "again "
     "while there is traffic, milliseconds; 0: at MPI_Finalize only. Too low: output that slows "
     "the "
     "job. Too high: old news."},
    {"verbose", 0, 0, 100, OPAL_INFO_LVL_3,
     "1 and above: every change of a path's state is printed as it happens; 2 and above: in "
     "MPI_Init also what each parameter that is a number came to, and whether locks are taken. 0: "
     "nothing. Costs a line for each."},
}};

char *checksum_text = nullptr;
char *protection_text = nullptr;
char *disable_text = nullptr;
char *progress_text = nullptr;
char *congestion_text = nullptr;

int register_text(const mca_base_component_t &component, const char *name, const char *help,
                  mca_base_var_info_lvl_t level, const char *initial, char **storage)
{
    *storage = const_cast<char *>(initial);
    return mca_base_component_var_register(&component, name, help, MCA_BASE_VAR_TYPE_STRING,
                                           nullptr, 0, MCA_BASE_VAR_FLAG_SETTABLE, level,
                                           MCA_BASE_VAR_SCOPE_LOCAL, storage);
}

void bad_word(const char *parameter, std::string_view word, const char *allowed)
{
    const std::string text(word);
    ft::mca::show_help("help-pml-dr.txt", "bad word", parameter, text.c_str(), allowed);
}

std::vector<std::string_view> split(std::string_view text)
{
    std::vector<std::string_view> words;
    while (!text.empty()) {
        const auto comma = text.find(',');
        const auto word = text.substr(0, comma);
        if (!word.empty()) {
            words.push_back(word);
        }
        text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    }
    return words;
}

bool in_range()
{
    for (const Entry &entry : table) {
        const auto misread = mca::misread_number(std::string("pml_dr_") + entry.name, true);
        if (misread || entry.value < entry.least || entry.value > entry.most) {
            const std::string given =
                misread.value_or(std::to_string(static_cast<long long>(entry.value)));
            const std::string least = std::to_string(entry.least);
            const std::string most = std::to_string(entry.most);
            ft::mca::show_help("help-pml-dr.txt", "out of range", entry.name, given.c_str(),
                               least.c_str(), most.c_str());
            return false;
        }
    }
    return true;
}

} // namespace

base::Lasting<Parameters> the_parameters;

int Parameters::register_all(const mca_base_component_t &component) noexcept
{
    mca::add_help_dir();
    for (Entry &entry : table) {
        const int rc = mca_base_component_var_register(
            &component, entry.name, entry.help, MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, nullptr, 0,
            MCA_BASE_VAR_FLAG_SETTABLE, entry.level, MCA_BASE_VAR_SCOPE_LOCAL, &entry.value);
        if (rc < 0) {
            return rc;
        }
    }
    int rc = register_text(
        component, "checksum",
        "What CRC32C protects: full (header and payload), header, or none; behind it, payloads of "
        "single BTLs, as in full,vader:none or header,tcp:full. Without: a bit that flips on the "
        "way reaches the application. With, as measured on one machine: some 10 ns for 8 bytes, 65 "
        "ns for 2 KiB; over vader 4 MiB move at 1.53 of ob1's rate instead of 1.93, over tcp at "
        "0.89 instead of 0.98.",
        OPAL_INFO_LVL_3, "full", &checksum_text);
    if (rc < 0) {
        return rc;
    }
    rc = register_text(
        component, "protection",
        "How single BTLs are protected, as in vader:none or vader:ack,tcp:ack+crc: ack+crc, "
        "acknowledged and sent again, and payloads summed; ack, without the sum; none, neither, "
        "only for vader, which stays within a node. It overrides pml_dr_checksum for that BTL; "
        "those that are not named have ack+crc, or ack if that says so. self may be named and "
        "changes nothing: a message to oneself is copied in memory. none: what is lost within the "
        "node, or under way when vader fails, is not sent again. ack+crc: see pml_dr_checksum.",
        OPAL_INFO_LVL_3, "", &protection_text);
    if (rc < 0) {
        return rc;
    }
    rc = register_text(component, progress_name, progress_help, progress_level, "app",
                       &progress_text);
    if (rc < 0) {
        return rc;
    }
    rc = register_text(
        component, "congestion",
        "What makes the congestion window of a path with unreliable datagrams shrink: hybrid, "
        "loss while a queue stands on the way and else only loss far above the usual; cubic, "
        "any loss, as TCP (RFC 9438); delay, a queue that stands. hybrid: full rate where "
        "packets are lost by chance. cubic: as slow as TCP there. delay: next to nothing "
        "beside a flow that fills queues.",
        OPAL_INFO_LVL_5, "hybrid", &congestion_text);
    if (rc < 0) {
        return rc;
    }
    rc = register_text(
        component, "test_disable",
        "For developers: mechanisms to switch off, so that a test can show that it needs them: "
        "retransmit, checksum, duplicate, failover, order, copies, leftovers, turns. Messages "
        "are lost or spoilt then, or the process crashes.",
        OPAL_INFO_LVL_9, "", &disable_text);
    return rc < 0 ? rc : OMPI_SUCCESS;
}

bool Parameters::load() noexcept
try {
    if (!in_range() || !parse_checksum() || !parse_protection() || !parse_progress() ||
        !parse_congestion() || !parse_disable()) {
        return false;
    }
    const auto number = [](Index i) { return table[i].value; };
    const auto number32 = [&](Index i) { return static_cast<std::uint32_t>(number(i)); };
    const auto us = [&](Index i) {
        return base::Duration::from_us(static_cast<std::int64_t>(number(i)));
    };
    const auto ms = [&](Index i) {
        return base::Duration::from_ms(static_cast<std::int64_t>(number(i)));
    };
    engine.absence = absence();
    engine.fragment_bytes = number32(Index::fragment_bytes) & ~std::uint32_t{15};
    engine.window_bytes = number(Index::window_bytes);
    process_window = number(Index::process_window_bytes);
    engine.window_vfrags = number32(Index::window_vfrags);
    engine.path_depth = number32(Index::path_depth);
    engine.rto_initial = us(Index::rto_initial_us);
    engine.rto_min = us(Index::rto_min_us);
    engine.rto_max = ms(Index::rto_max_ms);
    engine.ack_delay = us(Index::ack_delay_us);
    engine.ack_every = std::min(number32(Index::ack_every), engine.window_vfrags);
    engine.reorder_threshold = number32(Index::reorder_threshold);
    engine.reorder_bytes = number(Index::reorder_bytes);
    engine.path_retries = number32(Index::path_retries);
    engine.stripe_memory = number32(Index::stripe_memory) != 0;
    engine.probe_interval = ms(Index::probe_interval_ms);
    engine.probe_confirm = number32(Index::probe_confirm);
    engine.hold_down = ms(Index::hold_down_ms);
    engine.give_up = ms(Index::give_up_ms);
    eager_limit = number32(Index::eager_limit);
    keepalive = ms(Index::keepalive_ms);
    eager_window =
        std::min(number(Index::eager_window_bytes),
                 number(Index::unexpected_bytes) / std::max(ompi_process_info.num_procs, 1U));
    drain = ms(Index::drain_ms);
    reconnect = ms(Index::reconnect_ms);
    stats = number32(Index::stats);
    stats_interval = base::Duration::from_ms(number32(Index::stats_interval_ms));
    verbose = number32(Index::verbose);
    // Each by itself is in range; some bound each other.
    if (const char *field = engine.check(); field != nullptr) {
        ft::mca::show_help("help-pml-dr.txt", "contradiction", field);
        return false;
    }
    if (verbose >= 2) {
        print();
    }
    return true;
} catch (...) {
    return false;
}

void Parameters::print() const noexcept
{
    const auto us = [](base::Duration d) { return static_cast<Number>(d.us()); };
    const auto ms = [](base::Duration d) { return static_cast<Number>(d.ms()); };
    struct Loaded {
        Index of;
        Number value;
    };
    // unexpected_bytes has gone into eager_window_bytes.
    const std::array loaded{
        Loaded{Index::fragment_bytes, engine.fragment_bytes},
        Loaded{Index::window_bytes, engine.window_bytes},
        Loaded{Index::process_window_bytes, process_window},
        Loaded{Index::window_vfrags, engine.window_vfrags},
        Loaded{Index::eager_limit, eager_limit},
        Loaded{Index::eager_window_bytes, eager_window},
        Loaded{Index::path_depth, engine.path_depth},
        Loaded{Index::rto_initial_us, us(engine.rto_initial)},
        Loaded{Index::rto_min_us, us(engine.rto_min)},
        Loaded{Index::rto_max_ms, ms(engine.rto_max)},
        Loaded{Index::ack_delay_us, us(engine.ack_delay)},
        Loaded{Index::ack_every, engine.ack_every},
        Loaded{Index::reorder_threshold, engine.reorder_threshold},
        Loaded{Index::reorder_bytes, engine.reorder_bytes},
        Loaded{Index::path_retries, engine.path_retries},
        Loaded{Index::stripe_memory, engine.stripe_memory ? 1U : 0U},
        Loaded{Index::probe_interval_ms, ms(engine.probe_interval)},
        Loaded{Index::probe_confirm, engine.probe_confirm},
        Loaded{Index::hold_down_ms, ms(engine.hold_down)},
        Loaded{Index::give_up_ms, ms(engine.give_up)},
        Loaded{Index::keepalive_ms, ms(keepalive)},
        Loaded{Index::drain_ms, ms(drain)},
        Loaded{Index::reconnect_ms, ms(reconnect)},
        Loaded{Index::stats, stats},
        Loaded{Index::stats_interval_ms, ms(stats_interval)},
        Loaded{Index::verbose, verbose},
    };
    for (const Loaded &one : loaded) {
        std::fprintf(stderr, "pml/dr[rank %u] loaded: %s=%llu\n", OMPI_PROC_MY_NAME->vpid,
                     table[one.of].name, one.value);
    }
}

bool Parameters::requires_sealed_headers()
{
    std::string_view level = "full";
    for (const auto word : split(checksum_text == nullptr ? "" : checksum_text)) {
        level = word.find(':') == std::string_view::npos ? word : level;
    }
    return level != "none";
}

bool Parameters::parse_checksum()
{
    constexpr const char *allowed = "full, header, none, and NAME:full or NAME:none";
    const std::string_view text = checksum_text == nullptr ? "" : checksum_text;
    per_btl_ = ",";
    for (const auto word : split(text)) {
        const auto colon = word.find(':');
        if (colon != std::string_view::npos) {
            const auto level = word.substr(colon + 1);
            if (colon == 0 || (level != "full" && level != "none")) {
                bad_word("checksum", word, allowed);
                return false;
            }
            per_btl_.append(word).append(",");
        } else if (word == "full" || word == "header" || word == "none") {
            engine.checksum_payload = word == "full";
        } else {
            bad_word("checksum", word, allowed);
            return false;
        }
    }
    engine.checksum_header = requires_sealed = requires_sealed_headers();
    return true;
}

bool Parameters::parse_protection()
{
    protection_ = ",";
    for (const auto word : split(protection_text == nullptr ? "" : protection_text)) {
        const auto colon = word.find(':');
        const auto level = colon == std::string_view::npos ? "" : word.substr(colon + 1);
        if (colon == 0 || (level != "none" && level != "ack" && level != "ack+crc")) {
            bad_word("protection", word, "NAME:none, NAME:ack and NAME:ack+crc");
            return false;
        }
        // Nothing is lost on the way from one process's memory to another's; and messages to
        // oneself have no way at all.
        const auto name = word.substr(0, colon);
        if (level == "none" && name != "vader" && name != "self") {
            const std::string text(name);
            ft::mca::show_help("help-pml-dr.txt", "leaves the node", text.c_str(), text.c_str());
            return false;
        }
        protection_.append(word).append(",");
    }
    return true;
}

namespace {

/// What a list ",name:word,name:word," says of a name, the last one if several do; empty: nothing.
std::string_view word_for(std::string_view list, std::string_view name)
{
    const std::string key = "," + std::string(name) + ":";
    const auto at = list.rfind(key);
    if (at == std::string_view::npos) {
        return {};
    }
    const auto word = list.substr(at + key.size());
    return word.substr(0, word.find(','));
}

} // namespace

bool Parameters::checksum_payload(std::string_view btl_name) const
{
    if (const auto level = word_for(protection_, btl_name); !level.empty()) {
        return level == "ack+crc";
    }
    const auto word = word_for(per_btl_, btl_name);
    return word.empty() ? engine.checksum_payload : word == "full";
}

bool Parameters::acknowledged(std::string_view btl_name) const
{
    return word_for(protection_, btl_name) != "none";
}

std::vector<Parameters::NamedBtl> Parameters::named_btls() const
{
    std::vector<NamedBtl> named;
    const auto add = [&named](const char *parameter, std::string_view list) {
        for (const auto word : split(list)) {
            named.push_back({parameter, std::string(word.substr(0, word.find(':')))});
        }
    };
    add("checksum", per_btl_);
    add("protection", protection_);
    return named;
}

bool Parameters::parse_progress()
{
    const std::string_view text = progress_text == nullptr ? "" : progress_text;
    if (text != progress_app && text != progress_thread) {
        bad_word("progress", text, "app, thread");
        return false;
    }
    helper = text == progress_thread;
    return true;
}

bool Parameters::parse_congestion()
{
    using reliability::CongestionControl;
    const std::string_view text = congestion_text == nullptr ? "" : congestion_text;
    if (text == "hybrid") {
        engine.congestion = CongestionControl::hybrid;
    } else if (text == "cubic") {
        engine.congestion = CongestionControl::cubic;
    } else if (text == "delay") {
        engine.congestion = CongestionControl::delay;
    } else {
        bad_word("congestion", text, "hybrid, cubic, delay");
        return false;
    }
    return true;
}

bool Parameters::parse_disable()
{
    for (const auto word : split(disable_text == nullptr ? "" : disable_text)) {
        if (word == "retransmit") {
            engine.disable_retransmit = true;
        } else if (word == "checksum") {
            disable.checksum = true;
        } else if (word == "duplicate") {
            engine.disable_duplicate = true;
        } else if (word == "failover") {
            engine.disable_failover = true;
        } else if (word == "order") {
            engine.disable_order = true;
        } else if (word == "copies") {
            disable.copies = true;
        } else if (word == "leftovers") {
            disable.leftovers = true;
        } else if (word == "turns") {
            disable.turns = true;
        } else {
            bad_word("test_disable", word,
                     "retransmit, checksum, duplicate, failover, order, copies, leftovers, turns");
            return false;
        }
    }
    return true;
}

} // namespace ft::dr

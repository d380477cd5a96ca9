#include "test/sim/reliability/pairs.hpp"

#include <array>
#include <cstring>
#include <initializer_list>

namespace ft::sim {

namespace {

/// `x` can occur, `-` cannot.
struct Table {
    const char *name;
    std::array<const char *, 8> rows;
    std::array<const char *, 16> columns;
    std::array<const char *, 8> expect;
};

constexpr std::array<Table, table_count> tables{{
    {"fragment: state x event",
     {"unsent", "in flight", "lost", "acked"},
     {"sent", "ack.cumul", "ack.whole", "ack.mask", "left out", "nack", "gap", "failover",
      "ack timer", "watchdog", "path gone", "completed", "peer lost"},
     // Nothing of a VFRAG that is not sent whole is acknowledged as whole, and its ACK timer does
     // not run. A fragment that was found whole is not asked for again in the same breath, but an
     // old NACK may come late.
     {"x---x---xx--x", //
      "-xxxxxxxxxxxx", //
      "xxxxxx--xxxxx", //
      "-xxxxx--xxxxx"}},
    {"VFRAG: state x event",
     {"queued", "sending", "waiting", "draining"},
     {"sent", "repeated", "ack part", "ack all", "ack timer", "watchdog", "completed", "path gone",
      "peer lost"},
     {"x------xx", //
      "xxx-xxxxx", //
      "-xxxxxxxx", //
      "--xx-xxxx"}},
    {"path: state x event",
     {"up", "suspect", "down", "probing", "gone"},
     {"fragment", "ack", "probe", "reply", "timeout", "life", "answer", "late answ", "blocked",
      "error", "revived"},
     {"xx-xxx-xxx-", //
      "xxxxxxxxxx-", //
      "xxxxxxxxxx-", //
      "xxxxxxxxxx-", //
      "----xx-x--x"}},
    {"path: from x to",
     {"up", "suspect", "down", "probing", "gone"},
     {"up", "suspect", "down", "probing", "gone"},
     {"-x--x", //
      "x-x-x", //
      "x--xx", //
      "x-x-x", //
      "---x-"}},
    {"receiver: place x fragment",
     {"unseen", "part, new", "part, dup", "whole ahead", "past"},
     {"ordered", "ord again", "data", "data again"},
     {"xxxx", //
      "--xx", //
      "--xx", //
      "xxxx", //
      "xxxx"}},
    {"receiver: verdict x payload",
     {"fresh", "early", "duplicate", "refused"},
     {"ord whole", "ord broken", "dat whole", "dat broken"},
     {"xxxx", //
      "xx--", //
      "xxxx", //
      "xx--"}},
    {"parsed x kind as sent",
     {"ok", "truncated", "malformed", "checksum"},
     {"ordered", "data", "ack", "probe", "reply"},
     // With the header's checksum, nothing malformed gets as far as being called so.
     {"xxxxx", //
      "xxxxx", //
      "-----", //
      "xxxxx"}},
    {"loss: reason x transmission, and acknowledged after all",
     {"timeout", "watchdog", "gap", "tail", "nack", "failover"},
     {"first", "repeated", "acked late"},
     {"xxx", //
      "xxx", //
      "xxx", //
      "xxx", //
      "xxx", //
      "xxx"}},
    {"peer: state x event",
     {"idle", "outstanding", "unreachable"},
     {"ordered", "data", "ack", "ack broken", "probe", "reply", "deadline", "late desc",
      "pathError", "flush"},
     {"xxxxxxxxxx", //
      "xxxxxxxxxx", //
      "xxxxxx-xxx"}},
}};

} // namespace

void Pairs::add(const Pairs &other)
{
    for (unsigned t = 0; t < table_count; ++t) {
        for (unsigned r = 0; r < 8; ++r) {
            for (unsigned c = 0; c < 16; ++c) {
                counts_[t][r][c] += other.counts_[t][r][c];
            }
        }
    }
}

void Pairs::totals(unsigned &possible, unsigned &reached) const
{
    possible = reached = 0;
    for (unsigned t = 0; t < table_count; ++t) {
        for (unsigned r = 0; r < 8 && tables[t].rows[r] != nullptr; ++r) {
            for (unsigned c = 0; c < 16 && tables[t].columns[c] != nullptr; ++c) {
                if (tables[t].expect[r][c] == 'x') {
                    ++possible;
                    reached += counts_[t][r][c] != 0 ? 1U : 0U;
                }
            }
        }
    }
}

unsigned Pairs::report(std::FILE *out, bool complete) const
{
    unsigned wrong = 0;
    for (unsigned t = 0; t < table_count; ++t) {
        const Table &table = tables[t];
        std::fprintf(out, "#\n# %s\n# %-12s", table.name, "");
        for (unsigned c = 0; c < 16 && table.columns[c] != nullptr; ++c) {
            std::fprintf(out, " %10s", table.columns[c]);
        }
        std::fprintf(out, "\n");
        for (unsigned r = 0; r < 8 && table.rows[r] != nullptr; ++r) {
            std::fprintf(out, "# %-12s", table.rows[r]);
            for (unsigned c = 0; c < 16 && table.columns[c] != nullptr; ++c) {
                const std::uint64_t n = counts_[t][r][c];
                const bool can = table.expect[r][c] == 'x';
                const bool bad = can ? complete && n == 0 : n != 0;
                wrong += bad ? 1U : 0U;
                if (!can && n == 0) {
                    std::fprintf(out, " %10s", ".");
                } else {
                    std::fprintf(out, " %9llu%c", static_cast<unsigned long long>(n),
                                 bad ? '!' : ' ');
                }
            }
            std::fprintf(out, "\n");
        }
    }
    return wrong;
}

} // namespace ft::sim

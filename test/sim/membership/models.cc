#include "test/sim/membership/models.hpp"

#include <algorithm>
#include <sstream>

namespace sim {

using ft::membership::RadixTree;

unsigned torus_hops(NodeId a, NodeId b)
{
    const auto ring = [](unsigned x, unsigned y) {
        const unsigned d = x > y ? x - y : y - x;
        return std::min(d, 8 - d);
    };
    const unsigned midplane = a / 512 > b / 512 ? a / 512 - b / 512 : b / 512 - a / 512;
    return std::max(1U, ring(a % 8, b % 8) + ring(a / 8 % 8, b / 8 % 8) +
                            ring(a / 64 % 8, b / 64 % 8) + midplane);
}

std::optional<ContentionTable> ContentionTable::parse(const std::string &text, std::string &why)
{
    ContentionTable table;
    std::istringstream in(text);
    std::string line;
    for (unsigned number = 1; std::getline(in, line); ++number) {
        if (line.empty() || line[0] == '#' || (line[0] >= 'a' && line[0] <= 'z')) {
            continue;
        }
        const std::string where = "line " + std::to_string(number) + ": ";
        std::replace(line.begin(), line.end(), ',', ' ');
        std::istringstream fields(line);
        Line next{};
        unsigned columns = 0;
        fields >> next.nodes;
        while (columns < next.us.size() && fields >> next.us[columns]) {
            if (!(next.us[columns] > 0)) {
                why = where + "a latency must be above 0";
                return std::nullopt;
            }
            ++columns;
        }
        fields.clear();
        std::string rest;
        if (columns < 3 || fields >> rest) {
            why = where + "not nodes and three or four latencies in microseconds";
            return std::nullopt;
        }
        if (!table.lines_.empty() && next.nodes <= table.lines_.back().nodes) {
            why = where + "the numbers of nodes must rise";
            return std::nullopt;
        }
        table.columns_ = table.lines_.empty() ? columns : std::min(columns, table.columns_);
        table.lines_.push_back(next);
    }
    if (table.lines_.size() < 2) {
        why = "at least two lines are needed";
        return std::nullopt;
    }
    return table;
}

double ContentionTable::latency_us(Position nodes, unsigned arity) const
{
    const unsigned wanted = arity >= 8 ? 3 : arity >= 4 ? 2 : 1;
    const unsigned column = std::min(wanted, columns_ - 1);
    if (nodes <= lines_.front().nodes) {
        return lines_.front().us[column];
    }
    std::size_t above = 1;
    while (above + 1 < lines_.size() && lines_[above].nodes < nodes) {
        ++above;
    }
    const Line &a = lines_[above - 1];
    const Line &b = lines_[above];
    const double slope = (b.us[column] - a.us[column]) / (b.nodes - a.nodes);
    return b.us[column] + slope * (static_cast<double>(nodes) - b.nodes);
}

double base_model(Position n, unsigned arity, const Machine &machine)
{
    const unsigned h = RadixTree(arity).height(n);
    return 2 * machine.latency_us * (h - 1) + machine.compute_us * h;
}

double distance_model(Position n, unsigned arity, const Machine &machine)
{
    const RadixTree shape(arity);
    const unsigned h = shape.height(n);
    std::vector<unsigned> longest(h);
    unsigned depth = 0;
    std::uint64_t next_level = 1; // the first position of the level below
    for (Position p = 1; p < n; ++p) {
        if (p == next_level) {
            ++depth;
            next_level = shape.first_child(p);
        }
        longest[depth] = std::max(longest[depth], torus_hops(p, shape.parent(p)));
    }
    double sum = 0;
    for (const unsigned d : longest) {
        sum += d;
    }
    return 2 * machine.latency_us * sum + machine.compute_us * h;
}

double contention_model(Position n, unsigned arity, const Machine &machine,
                        const ContentionTable &table)
{
    return base_model(n, arity, {table.latency_us(n, arity), machine.compute_us});
}

} // namespace sim

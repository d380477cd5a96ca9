/// The paper's models of the time for stabilisation, and the latencies they rest on.
///
/// Varma et al. 2006: equations 1 and 2 (section 4), the distance model (7.1), the contention model
/// (7.2). All times in microseconds. Plain values and functions.
#pragma once

#include "opal/ft/membership/radix_tree.hpp"

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace sim {

using ft::membership::NodeId;
using ft::membership::Position;

/// The machine: a message's latency over one hop, and what forming the tree anew costs a node.
struct Machine {
    double latency_us;
    double compute_us;
};
/// Section 7.1: L and O_cp of MPI on BlueGene/L.
inline constexpr Machine blue_gene{4.6, 2.0};
/// Section 7.2: of TCP over a Gigabit switch on XTORC.
inline constexpr Machine xtorc{118.0, 2.0};

/// Hops between two nodes of an 8 x 8 x 8 torus that they fill in order, as sums of coordinate
/// differences; further tori stand side by side in x. At least 1.
unsigned torus_hops(NodeId a, NodeId b);

/// Latency by the number of nodes that talk at once over one switch: what figure 7 shows, measured.
class ContentionTable {
  public:
    /// Reads lines "nodes,pairs,two_children,four_children[,eight_children]" in microseconds, nodes
    /// rising; "#" begins a comment, and a line of words names the columns. Empty, with `why`, when
    /// the text is none.
    static std::optional<ContentionTable> parse(const std::string &text, std::string &why);

    /// For trees of `arity`: its own column or, without one, that of the next smaller arity.
    /// Between the lines by straight lines, beyond the last along the last two, as the paper does.
    double latency_us(Position nodes, unsigned arity) const;

  private:
    struct Line {
        Position nodes;
        std::array<double, 4> us; // pairs, 2, 4, 8 children
    };
    std::vector<Line> lines_;
    unsigned columns_ = 0;
};

/// Equations 1 and 2 for `n` survivors: T_s = 2 L (H - 1) + O_cp H.
double base_model(Position n, unsigned arity, const Machine &machine);

/// The distance model: 2 L times the sum over the levels of the longest way on that level, and
/// O_cp H. (The formula as printed has (H - 1) as a further factor, which neither the text beside
/// it nor the figures bear out.)
double distance_model(Position n, unsigned arity, const Machine &machine);

/// The contention model: equation 1 with the latency that `table` gives for `n` nodes.
double contention_model(Position n, unsigned arity, const Machine &machine,
                        const ContentionTable &table);

} // namespace sim

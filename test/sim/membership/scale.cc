// Time for stabilisation against the number of nodes: the engine in virtual time against the
// paper's models.
//
//   scale --check
//       TAP: the simulation is the base and the contention model, keeps within the distance model,
//       and grows with the logarithm up to 1,048,576 nodes; a localised view of one's own takes
//       each of them no more than some KiB, and the same time.
//   scale --csv FOLDER [--contention FILE] [--latency US] [--most NODES]
//       TAP and the data of the paper's figures 4, 5, 6 and 8 and of arity 8, in microseconds, into
//       FOLDER. FILE is what figure 7 shows, measured: "nodes,pairs,two_children,four_children
//       [,eight_children]"; without it the contention columns stay empty. US is the switch's
//       latency in the base model, 118 as on the paper's machine by default. NODES: 1048576.

#include "test/sim/membership/calm.hpp"
#include "test/sim/membership/models.hpp"

#include "opal/ft/base/rng.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include <malloc.h>
#include <sys/resource.h>

namespace {

using namespace sim;

constexpr Position million = 1U << 20;

/// Of `n` + 1 nodes the last dies: a single failure that leaves `n`.
Measured single_failure(Position n, unsigned arity, std::function<double(NodeId, NodeId)> latency,
                        const Machine &machine)
{
    Calm net(n + 1, arity, TreeMode::rebuild, {std::move(latency), machine.compute_us, 0});
    return net.fail(n);
}

Measured on_one_hop(Position n, unsigned arity, const Machine &machine)
{
    return single_failure(
        n, arity, [us = machine.latency_us](NodeId, NodeId) { return us; }, machine);
}

Measured on_torus(Position n, unsigned arity, const Machine &machine)
{
    return single_failure(
        n, arity, [us = machine.latency_us](NodeId a, NodeId b) { return us * torus_hops(a, b); },
        machine);
}

Measured on_switch(Position n, unsigned arity, const Machine &machine, const ContentionTable &table)
{
    return on_one_hop(n, arity, {table.latency_us(n, arity), machine.compute_us});
}

bool equals(double a, double b)
{
    // Virtual time counts nanoseconds, rounded once a message.
    return std::abs(a - b) < 0.1;
}

/// Every number of nodes where the curves have steps, few where they are long.
Position after(Position n)
{
    return n < 128 ? n + 1 : n < 1024 ? std::min<Position>(n + n / 16, 1024) : n * 2;
}

class Tap {
  public:
    void ok(bool good, const std::string &what)
    {
        failed_ |= !good;
        std::printf("%s %d - %s\n", good ? "ok" : "not ok", ++count_, what.c_str());
        std::fflush(stdout);
    }
    int done() const
    {
        std::printf("1..%d\n", count_);
        return failed_ ? 1 : 0;
    }

  private:
    int count_ = 0;
    bool failed_ = false;
};

/// Machines joined by a torus: figures 4 and 5. `most_simulated` bounds what the engine runs.
void torus_figure(Tap &tap, const std::string &file, unsigned arity, Position most)
{
    std::ofstream out(file);
    out << "# microseconds, arity " << arity << ", L " << blue_gene.latency_us << ", O_cp "
        << blue_gene.compute_us << "\n"
        << "nodes,base_model,simulated,distance_model,simulated_torus,installed\n";
    bool good = true;
    for (Position n = 2; n <= most; n = after(n)) {
        const Measured flat = on_one_hop(n, arity, blue_gene);
        const Measured torus = on_torus(n, arity, blue_gene);
        const double base = base_model(n, arity, blue_gene);
        const double distance = distance_model(n, arity, blue_gene);
        out << n << ',' << base << ',' << flat.stabilized_us << ',' << distance << ','
            << torus.stabilized_us << ',' << flat.installed_us << '\n';
        good &= flat.complete && torus.complete && equals(flat.stabilized_us, base) &&
                torus.stabilized_us < distance + 0.1;
    }
    tap.ok(good && out.flush().good(), "wrote " + file);
}

/// TCP over one switch: figures 6 and 8.
void switch_figure(Tap &tap, const std::string &file, unsigned arity, Position most,
                   const Machine &machine, const std::optional<ContentionTable> &table)
{
    std::ofstream out(file);
    out << "# microseconds, arity " << arity << ", L " << machine.latency_us << ", O_cp "
        << machine.compute_us << "; contention: L by the table given\n"
        << "nodes,base_model,simulated,contention_model,simulated_contention\n";
    bool good = true;
    for (Position n = 2; n <= std::min<Position>(most, 1024); n = after(n)) {
        const Measured flat = on_one_hop(n, arity, machine);
        const double base = base_model(n, arity, machine);
        out << n << ',' << base << ',' << flat.stabilized_us << ',';
        good &= flat.complete && equals(flat.stabilized_us, base);
        if (table) {
            const double model = contention_model(n, arity, machine, *table);
            const Measured contended = on_switch(n, arity, machine, *table);
            out << model << ',' << contended.stabilized_us << '\n';
            good &= contended.complete && equals(contended.stabilized_us, model);
        } else {
            out << ",\n";
        }
    }
    tap.ok(good && out.flush().good(), "wrote " + file);
}

int csv(const std::string &folder, Position most, const Machine &behind_switch,
        const std::optional<ContentionTable> &table)
{
    Tap tap;
    torus_figure(tap, folder + "/fig4.csv", 2, most);
    torus_figure(tap, folder + "/fig5.csv", 4, most);
    torus_figure(tap, folder + "/torus8.csv", 8, most);
    switch_figure(tap, folder + "/fig6.csv", 2, most, behind_switch, table);
    switch_figure(tap, folder + "/fig8.csv", 4, most, behind_switch, table);
    switch_figure(tap, folder + "/switch8.csv", 8, most, behind_switch, table);
    return tap.done();
}

/// The last position of a full tree of `height` levels, and one.
Position full_tree(unsigned arity, unsigned height)
{
    Position n = 0;
    for (unsigned level = 0; level < height; ++level) {
        n = n * arity + 1;
    }
    return n;
}

/// T_s of full trees, one level more each time, costs the same more each time: it grows with the
/// logarithm of the number of nodes, and on the way to the next level not at all.
bool grows_with_logarithm(unsigned arity)
{
    const double step = 2 * blue_gene.latency_us + blue_gene.compute_us;
    double before = on_one_hop(1, arity, blue_gene).stabilized_us;
    bool good = true;
    for (unsigned height = 2; full_tree(arity, height) <= 40000; ++height) {
        const Position full = full_tree(arity, height);
        const Measured m = on_one_hop(full, arity, blue_gene);
        const Measured first = on_one_hop(full_tree(arity, height - 1) + 1, arity, blue_gene);
        good &= m.complete && first.complete && equals(m.stabilized_us - before, step) &&
                equals(first.stabilized_us, m.stabilized_us);
        before = m.stabilized_us;
    }
    return good;
}

/// Made up, with the course that the paper's text tells of: level up to twelve nodes, then a
/// straight line, the steeper the more children.
constexpr const char *sample_table = "# us\n"
                                     "nodes,pairs,two_children,four_children\n"
                                     "2,118,130,150\n12,118,180,260\n47,150,320,510\n";

bool contention_holds()
{
    std::string why;
    const auto table = ContentionTable::parse(sample_table, why);
    if (!table) {
        return false;
    }
    bool good = equals(table->latency_us(1, 2), 130) && equals(table->latency_us(7, 2), 155) &&
                equals(table->latency_us(47, 4), 510) && equals(table->latency_us(82, 2), 460) &&
                equals(table->latency_us(12, 8), 260);
    for (const unsigned arity : {2U, 4U, 8U}) {
        for (const Position n : {2U, 5U, 12U, 21U, 22U, 47U, 64U, 512U}) {
            const Measured m = on_switch(n, arity, xtorc, *table);
            good &=
                m.complete && equals(m.stabilized_us, contention_model(n, arity, xtorc, *table));
        }
    }
    for (const char *bad : {"", "2,1,1,1\n", "2,1,1\n3,1,1\n", "3,1,1,1\n2,1,1,1\n",
                            "2,1,1,1\n3,1,0,1\n", "2,1,1,x\n3,1,1,1\n", "2,1,1,1,1,1\n3,1,1,1\n"}) {
        why.clear();
        good &= !ContentionTable::parse(bad, why) && !why.empty();
    }
    return good;
}

std::size_t heap_in_use()
{
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/// A million members, none of which shares its view with another.
void localised_million(Tap &tap)
{
    const std::size_t before = heap_in_use();
    Calm net(million + 1, 2, TreeMode::rebuild,
             {[](NodeId, NodeId) { return blue_gene.latency_us; }, blue_gene.compute_us, 0},
             ViewForm::localised);
    const Measured big = net.fail(million / 3);
    const double each = static_cast<double>(heap_in_use() - before) / million;
    std::printf(
        "# 1048576 nodes, arity 2, each with a localised view of its own: T_s %.1f us, %.0f "
        "bytes a member after the change, of which the view %zu\n",
        big.stabilized_us, each, net.view().bytes());
    tap.ok(big.complete && equals(big.stabilized_us, base_model(million, 2, blue_gene)),
           "1,048,576 nodes with localised views: all have the view, in the base model's time");
    tap.ok(each < 4096, "... and a member keeps less than 4 KiB in all");
}

/// What a view of a million takes in both forms while random members die.
void forms_while_members_die(Tap &tap)
{
    ft::base::Rng rng(1);
    ViewPtr full = View::initial(million, 2, TreeMode::rebuild);
    ViewPtr localised = View::initial(million, 2, TreeMode::rebuild, ViewForm::localised);
    bool good = true;
    for (const Position dead : {0U, 1U, 100U, 10000U, 100000U, 500000U}) {
        Change c;
        std::vector<NodeId> victims;
        while (full->size() - victims.size() > million - dead) {
            const auto id = static_cast<NodeId>(rng.below(million));
            if (full->contains(id)) {
                victims.push_back(id);
            }
            if (full->size() - victims.size() == million - dead) {
                std::sort(victims.begin(), victims.end());
                victims.erase(std::unique(victims.begin(), victims.end()), victims.end());
            }
        }
        for (const NodeId id : victims) {
            c.removed.push_back({id, 0, Grade::proven, no_node});
        }
        full = full->apply(full->epoch() + 1, c);
        localised = localised->apply(localised->epoch() + 1, c);
        good &= full && localised && full->agrees(*localised);
        std::printf("# 1048576 nodes, %6u of them dead at random: a full view takes %8zu bytes, a "
                    "localised one %8zu\n",
                    dead, full->bytes(), localised->bytes());
    }
    tap.ok(good, "both forms of a view of 1,048,576 agree while half of them die");
}

int check()
{
    Tap tap;
    for (const unsigned arity : {2U, 4U, 8U}) {
        const std::string which = "arity " + std::to_string(arity) + ": ";
        bool exact = true;
        bool bounded = true;
        for (const Position n : {1U, 2U, 3U, 5U, 6U, 21U, 22U, 64U, 512U, 1024U, 4096U, 32768U}) {
            const Measured flat = on_one_hop(n, arity, blue_gene);
            exact &= flat.complete && equals(flat.stabilized_us, base_model(n, arity, blue_gene));
            const Measured torus = on_torus(n, arity, blue_gene);
            // It adds up the longest way of each level, and no branch need have them all.
            bounded &=
                torus.complete && torus.stabilized_us <= distance_model(n, arity, blue_gene) + 0.1;
        }
        tap.ok(exact, which + "the simulation is the base model");
        tap.ok(bounded, which + "on a torus it keeps within the distance model");
        tap.ok(grows_with_logarithm(arity), which + "T_s grows with the logarithm");
    }
    tap.ok(contention_holds(), "with a switch's latencies the simulation is the contention model");
    for (const unsigned arity : {8U, 4U, 2U}) {
        const Measured big = on_one_hop(million, arity, blue_gene);
        rusage used{};
        getrusage(RUSAGE_SELF, &used);
        std::printf("# 1048576 nodes, arity %u: T_s %.1f us, installed everywhere %.1f us, %.2f "
                    "messages a member, at most %llu by one; engine %zu bytes and at most %.0f "
                    "bytes in all a member\n",
                    arity, big.stabilized_us, big.installed_us,
                    static_cast<double>(big.messages) / million,
                    static_cast<unsigned long long>(big.most_sent), sizeof(Stabilizer),
                    static_cast<double>(used.ru_maxrss) * 1024 / million);
        tap.ok(big.complete && equals(big.stabilized_us, base_model(million, arity, blue_gene)),
               "1,048,576 nodes, arity " + std::to_string(arity) +
                   ": all have the view, in the base model's time");
    }
    localised_million(tap);
    forms_while_members_die(tap);
    return tap.done();
}

int usage(const std::string &why)
{
    std::fprintf(stderr,
                 "scale: %s\nusage: scale --check | scale --csv FOLDER [--contention FILE] "
                 "[--latency US] [--most NODES]\n",
                 why.c_str());
    return 2;
}

} // namespace

int main(int argc, char **argv)
{
    std::string folder;
    std::optional<ContentionTable> table;
    Machine behind_switch = xtorc;
    Position most = million;
    if (argc == 2 && std::strcmp(argv[1], "--check") == 0) {
        return check();
    }
    for (int i = 1; i < argc; i += 2) {
        const std::string option = argv[i];
        if (i + 1 == argc) {
            return usage(option + " wants a value");
        }
        if (option == "--csv") {
            folder = argv[i + 1];
        } else if (option == "--most") {
            most = static_cast<Position>(std::strtoul(argv[i + 1], nullptr, 10));
            if (most < 2 || most >= max_nodes) {
                return usage("--most is a number of nodes from 2 to " + std::to_string(max_nodes));
            }
        } else if (option == "--latency") {
            behind_switch.latency_us = std::strtod(argv[i + 1], nullptr);
            if (!(behind_switch.latency_us > 0 && behind_switch.latency_us < 1e6)) {
                return usage("--latency is a time in microseconds, up to 1000000");
            }
        } else if (option == "--contention") {
            std::ifstream in(argv[i + 1]);
            std::stringstream text;
            text << in.rdbuf();
            std::string why = "cannot be read";
            table = in ? ContentionTable::parse(text.str(), why) : std::nullopt;
            if (!table) {
                return usage(std::string(argv[i + 1]) + ": " + why);
            }
        } else {
            return usage("unknown option " + option);
        }
    }
    return folder.empty() ? usage("nothing to do") : csv(folder, most, behind_switch, table);
}

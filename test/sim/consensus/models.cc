#include "models.hpp"

#include <bit>

namespace sim {

Time latency(Rank size, Algorithm algorithm, Semantics semantics, const Costs &costs)
{
    Settings settings;
    settings.algorithm = algorithm;
    settings.semantics = semantics;
    Plan plan = calm_plan(size, settings);
    plan.costs = costs;
    return World(plan).run().last_return;
}

namespace {

/// The largest value of `knob` at which `measure()` does not exceed `wanted`.
template <typename Measure>
void fit(Time &knob, Time wanted, Measure measure)
{
    Time low = 0;
    Time high = 50000;
    while (high - low > 1) {
        knob = (low + high) / 2;
        (measure() <= wanted ? low : high) = knob;
    }
    knob = low;
}

} // namespace

Costs calibrate()
{
    Costs costs;
    costs.send = 800;
    costs.receive = 800;
    // Loose is two sweeps down and one up, strict one of each more: twice loose less strict is one
    // sweep down, in which no answers are handled. That fits the wire; then strict fits the
    // answers.
    const auto set_wire = [&](Time wire) { costs.wire = costs.wire_near = wire; };
    Time wire = 0;
    fit(wire, 2 * paper_loose - paper_strict, [&] {
        set_wire(wire);
        return 2 * latency(paper_size, Algorithm::paper, Semantics::loose, costs) -
               latency(paper_size, Algorithm::paper, Semantics::strict, costs);
    });
    set_wire(wire);
    fit(costs.merge, paper_strict,
        [&] { return latency(paper_size, Algorithm::paper, Semantics::strict, costs); });
    return costs;
}

Time collectives(Rank size, const Costs &costs)
{
    const auto depth = static_cast<Time>(std::bit_width(size - 1));
    return 5 * depth * (costs.send + costs.wire + costs.receive);
}

} // namespace sim

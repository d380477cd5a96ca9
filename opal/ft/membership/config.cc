#include "opal/ft/membership/config.hpp"

namespace ft::membership {

using base::Duration;

std::string Config::fault() const
{
    if (!RadixTree::valid_arity(arity)) {
        return "the arity of the tree is " + std::to_string(arity) +
               ", but it must be a power of two from 2 to " + std::to_string(RadixTree::max_arity);
    }
    if (mode == TreeMode::paper && form == ViewForm::localised) {
        return "a localised view cannot keep the links of a tree that is repaired step by step: "
               "choose one of the two";
    }
    for (const Duration d : {repeat, repeat_max, give_up, probe_timeout, commit_wait, reprobe}) {
        if (d <= Duration::zero()) {
            return "the waits for repeat, give-up, probe, commit and re-probe must be positive";
        }
    }
    if (report_stagger < Duration::zero() || minority_wait < Duration::zero() ||
        combine < Duration::zero()) {
        return "the report stagger, the minority's wait and the combining delay must not be "
               "negative";
    }
    if (repeat_max < repeat) {
        return "the longest wait before a repeat is below the first one: raise it";
    }
    if (exile_hold < minority_wait) {
        return "exile_hold (" + std::to_string(exile_hold.ms()) +
               " ms) must not be below minority_wait (" + std::to_string(minority_wait.ms()) +
               " ms): an evicted side could still be waiting when newcomers are admitted";
    }
    return heartbeat.fault();
}

} // namespace ft::membership

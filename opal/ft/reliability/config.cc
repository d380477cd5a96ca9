#include "opal/ft/reliability/config.hpp"

namespace ft::reliability {

const char *Config::check() const noexcept
{
    const base::Duration zero{};
    if (fragment_bytes < 256 || fragment_bytes > (16U << 20)) {
        return "fragment_bytes";
    }
    if (window_bytes < fragment_bytes) {
        return "window_bytes";
    }
    // Half the window must still hold an ordered VFRAG beside a data one.
    if (window_vfrags < 2 || window_vfrags > max_window) {
        return "window_vfrags";
    }
    if (path_depth < 1 || path_depth > max_path_depth) {
        return "path_depth";
    }
    if (rto_min <= zero) {
        return "rto_min";
    }
    if (rto_max < rto_min) {
        return "rto_max";
    }
    if (rto_initial < rto_min || rto_initial > rto_max) {
        return "rto_initial";
    }
    if (ack_delay < zero || ack_delay > rto_max) {
        return "ack_delay";
    }
    if (ack_every < 1 || ack_every > window_vfrags) {
        return "ack_every";
    }
    if (reorder_threshold < 1 || reorder_threshold > 255) {
        return "reorder_threshold";
    }
    if (path_retries < 1 || path_retries > 100) {
        return "path_retries";
    }
    if (probe_interval <= zero) {
        return "probe_interval";
    }
    if (probe_confirm < 1 || probe_confirm > 100) {
        return "probe_confirm";
    }
    if (hold_down < zero) {
        return "hold_down";
    }
    if (give_up <= rto_max) {
        return "give_up";
    }
    if (reorder_bytes < fragment_bytes) {
        return "reorder_bytes";
    }
    return nullptr;
}

} // namespace ft::reliability

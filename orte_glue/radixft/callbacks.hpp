/// The functions of radixft that the runtime calls, and the tags of its messages. No exception
/// leaves them.
#pragma once

#include "orte_glue/radixft/daemon.hpp"

#include <functional>

namespace ft::radixft {

/// Messages of the membership protocol, sealed.
inline constexpr orte_rml_tag_t protocol_tag = ORTE_RML_TAG_MAX + 71;
/// Messages of DeathSpread and Gather, and farewells; sealed too.
inline constexpr orte_rml_tag_t glue_tag = ORTE_RML_TAG_MAX + 72;
/// READY and GO.
inline constexpr orte_rml_tag_t launch_tag = ORTE_RML_TAG_MAX + 73;

/// One byte that means nothing, for the connection that it makes the channel open.
inline constexpr orte_rml_tag_t opening_tag = ORTE_RML_TAG_MAX + 74;

/// The first word of READY and GO: "radx".
inline constexpr std::uint32_t magic = 0x78646172;

struct Callbacks {
    static void received(int status, orte_process_name_t *sender, opal_buffer_t *buffer,
                         orte_rml_tag_t tag, void *data) noexcept;
    static void sent(int status, orte_process_name_t *peer, opal_buffer_t *buffer,
                     orte_rml_tag_t tag, void *data) noexcept;
    /// What a stand-in for mpirun gets in its place: output of ranks, and requests.
    static void output(int status, orte_process_name_t *sender, opal_buffer_t *buffer,
                       orte_rml_tag_t tag, void *data) noexcept;
    static void request(int status, orte_process_name_t *sender, opal_buffer_t *buffer,
                        orte_rml_tag_t tag, void *data) noexcept;
    /// In place of the runtime's function for signals to its ranks.
    static int signalled(const orte_process_name_t *rank, std::int32_t number) noexcept;
    /// In place of the runtime's function that ends ranks.
    static int ended(opal_pointer_array_t *ranks) noexcept;
    /// At mpirun, in place of the runtime's function for the moment at which all daemons have
    /// called.
    static void vm_ready(int fd, short flags, void *data) noexcept;
    /// In place of the runtime's function for a daemon that calls.
    static void daemon_called(int status, orte_process_name_t *sender, opal_buffer_t *buffer,
                              orte_rml_tag_t tag, void *data) noexcept;
    /// In place of the runtime's function for a daemon that tells its hardware.
    static void hardware_told(int status, orte_process_name_t *sender, opal_buffer_t *buffer,
                              orte_rml_tag_t tag, void *data) noexcept;
    /// In place of the launcher's function.
    static void launch_daemons(int fd, short flags, void *data) noexcept;
    /// A line of one of the ranks broke.
    static void line_broke(int fd, short flags, void *data) noexcept;
    static void timer(int fd, short flags, void *data) noexcept;
    /// Calls `what` from the event base, after whatever runs now.
    static void later(std::function<void()> what) noexcept;
    /// The same, not before `delay` has passed.
    static void after(base::Duration delay, std::function<void()> what) noexcept;
    /// The same, once, when the file can be read.
    static void when_readable(int file, std::function<void()> what) noexcept;
};

} // namespace ft::radixft

/// errmgr/radixft: the error manager under which a job outlives its dead ranks and daemons.
///
/// One component fills three roles: in mpirun and in the daemons it notices failures and hands them
/// to ft::radixft::Daemon, which agrees on them with the others; in a rank it receives the events
/// and records the deaths in ft::process, where the PML and the collectives find them.
#pragma once

#include "orte_glue/orte_prelude.hpp"

#include "orte_glue/radixft/death_board.hpp"

#include <array>
#include <cstdarg>
#include <optional>

extern "C" {
extern orte_errmgr_base_component_t mca_errmgr_radixft_component;
}

namespace ft::radixft {

extern orte_errmgr_base_module_t mpirun_module;
extern orte_errmgr_base_module_t daemon_module;
extern orte_errmgr_base_module_t rank_module;

/// Keeps the PMIx server of this process from what it does wrong with clients that break off. From
/// the error manager's init.
void mind_broken_clients() noexcept;

/// The performance variables of a job that asked for radixft.
int register_pvars(const mca_base_component_t *component) noexcept;

/// In a rank: where its daemon writes deaths. Whoever sees news there takes them.
extern DeathReader death_board;
void take_from_board() noexcept;

/// In a rank: the self-checking thread, if the job wants one. True when its function, with which
/// each turn of the progress engine begins, looks at the board too.
bool start_self_check() noexcept;
void stop_self_check() noexcept;

/// In a rank: takes the place of the runtime's PMIx_Connect, and gives it back. From init,
/// finalize.
void connect_by_oneself() noexcept;
void connect_as_usual() noexcept;
/// The same for fences of named processes.
void meet_those_who_live() noexcept;
void meet_as_usual() noexcept;

/// In mpirun and in a daemon: from init, begins what Daemon does, with what is to be called for
/// errors of jobs and of processes.
int start_daemon(orte_state_cbfunc_t on_job_error, orte_state_cbfunc_t on_proc_error) noexcept;
/// The table of either, which differ in these two.
orte_errmgr_base_module_t module_beside_daemon(orte_errmgr_base_module_init_fn_t init,
                                               orte_errmgr_base_module_abort_fn_t abort) noexcept;

/// What a state of failure of a local rank says about how it died; false for states in which it has
/// not failed (it had finalized, or was ended by command).
bool failed_rank(const orte_proc_t &rank, orte_proc_state_t state);
/// Whether `state` is one in which the channel reports trouble with a peer.
bool channel_trouble(orte_proc_state_t state);
/// The runtime calls for the end, for trouble from which it knows no way out. What it says; nothing
/// when nothing is to be done: the end has begun, or the channel to one peer broke, of which Daemon
/// is told. The runtime calls for that when a write meets a connection that the peer has just
/// closed, which is no reason to end anything.
std::optional<std::array<char, 512>> fatal_trouble(const char *format, va_list arguments) noexcept
    __attribute__((format(printf, 1, 0)));
/// Tells Daemon of a local rank that failed in `state`.
void report_rank(const orte_proc_t &rank, orte_proc_state_t state) noexcept;

} // namespace ft::radixft

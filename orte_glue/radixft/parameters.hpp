/// The parameters of errmgr/radixft, from one table.
#pragma once

#include "orte_glue/orte_prelude.hpp"

#include "opal/ft/detector/self_check.hpp"
#include "opal/ft/membership/config.hpp"

#include <string>

namespace ft::radixft {

/// Bits of Parameters::tell: how ranks learn of deaths.
inline constexpr int tell_by_board = 1;
inline constexpr int tell_by_event = 2;

/// The values in force. Durations are in milliseconds, as the user gives them.
struct Parameters {
    int arity = 2;
    int repair = 0;
    int localised_view = 0;
    int heartbeat_ms = 100;
    int suspect_floor_ms = 500;
    int suspect_ceiling_ms = 5000;
    int probe_ms = 150;
    int minority_wait_ms = 5000;
    int launch_wait_ms = 30000;
    int start_without = 0;
    int failed_exit_code = 0;
    int self_check_ms = 500;
    int hang_limit_ms = 10000;
    int stop_limit_ms = 5000;
    int announce_ms = 0;
    int tell = tell_by_board | tell_by_event;
    int life_line = 1;
    char *log_dir = nullptr;
    char *output_dir = nullptr;

    /// As the engine wants them.
    membership::Config engine() const;
    detector::SelfCheckConfig self_check() const;
    /// Empty if the values make sense; else what is wrong with which parameter, and what to do.
    std::string fault() const;
};

Parameters &parameters() noexcept;

/// Registers the table with the component; to be called from its register function.
int register_parameters(const mca_base_component_t *component) noexcept;

/// What is wrong with a number from the command line or the environment that the runtime has read
/// without a word: it takes "2s" for 2, and "two" for 0. Empty when all are numbers.
std::string misread_parameter();

/// At mpirun, before there are applications or launchers: what was read from a parameter file holds
/// for the whole job, as what the user said, with errmgr radixft itself. Others have no such file
/// perhaps.
void hand_on_parameters() noexcept;

/// True if this job asked for errmgr radixft, however it did (command line, environment, file), and
/// Open MPI is of the series that this was built for.
/// The routed and grpcomm components stay out of every other job.
bool requested() noexcept;

/// What those two answer when they are asked for their module: they have one for mpirun and the
/// daemons.
int offer_to_daemons(void *module, mca_base_module_t **answer, int *priority) noexcept;

} // namespace ft::radixft

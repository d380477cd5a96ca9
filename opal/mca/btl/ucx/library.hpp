/// \file
/// Between the component and the library that does its work.
///
/// Open MPI loads every component that it finds when a job names none, and a process that has UCX
/// loaded is not as it was: UCX puts handlers of its own on SIGSEGV and the like. So the component
/// is linked without UCX; what needs UCX is in libompi_ft_ucx, which it loads when a job names it.
#pragma once
#include "opal/mca/opal_prelude.hpp"

#include <string>

#include "opal/mca/btl/ucx/connect_by.hpp"

extern "C" {
/// What Open MPI looks for in the shared object.
extern mca_btl_base_component_t mca_btl_ucx_component;
}

namespace ft::ucx {

/// What the user set; filled before the library is asked for modules.
struct Settings {
    std::string transports;
    std::string if_include;
    std::string if_exclude;
    std::uint32_t fragment = 0;
    std::uint32_t check_interval_ms = 0;
    std::uint32_t verdict_ms = 0;
    std::uint32_t wire_ms = 0;
    std::uint32_t bandwidth = 0;
    std::uint32_t latency = 0;
    ConnectBy connect = ConnectBy::automatic;
    bool reconnect = false;
    bool stats = false;
    bool verbose = false;
};

/// The library's only symbol is one of these, called "ompi_ft_ucx".
struct Library {
    /// Opens what the settings ask for and publishes it. \param component whose modules they are;
    /// \param settings must outlive them. \return a list for Open MPI, nullptr after saying why
    mca_btl_base_module_t **(*init)(mca_btl_base_component_t &component, const Settings &settings,
                                    int &count) noexcept;
    int (*progress)() noexcept;
};

inline constexpr const char *library_symbol = "ompi_ft_ucx";
inline constexpr const char *help_file = "help-btl-ucx.txt";

} // namespace ft::ucx

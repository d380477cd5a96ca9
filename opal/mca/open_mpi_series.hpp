/// \file
/// Whether the Open MPI that loads a component is one that it was built for.
///
/// Open MPI compares the version of a framework's interface when it loads a component, and that may
/// be the same in two series, as in 4.0 and 4.1, which also share the names of their libraries.
/// Their structures are not the same: a component that was built for one series reads what another
/// one has put elsewhere. So each component asks here before it does anything else.
///
/// The series has to be the same, major and minor version. Within a series Open MPI keeps its
/// binary interface, the internal one as a rule too, and `configure` takes any release of it; were
/// the release compared as well, each update of a distribution would end every job that names a
/// component. What has no version that can be read is another series.
#pragma once

#include "opal/mca/listed.hpp"
#include "opal/mca/opal_prelude.hpp"
#include "opal/mca/show_help.hpp"
#include "opal/mca/tell_once.hpp"

#include <charconv>
#include <cstdio>
#include <string_view>

namespace ft::mca {

/// Whether `version`, such as "4.1.4" or "4.1.5rc2", is of the series `major`.`minor`.
constexpr bool of_series(std::string_view version, int major, int minor) noexcept
{
    const auto takes = [&version](int wanted) {
        int number = -1;
        const char *const end = version.data() + version.size();
        const auto [rest, error] = std::from_chars(version.data(), end, number);
        version.remove_prefix(static_cast<std::size_t>(rest - version.data()));
        return error == std::errc() && number == wanted;
    };
    if (!takes(major) || !version.starts_with('.')) {
        return false;
    }
    version.remove_prefix(1);
    return takes(minor) && (version.empty() || version.front() < '0' || version.front() > '9');
}

/// Whether this process runs an Open MPI of the series that this was built for.
inline bool open_mpi_fits() noexcept
{
    return of_series(opal_version_string, OPAL_MAJOR_VERSION, OPAL_MINOR_VERSION);
}

/// The same, for a component to ask first. Where it does not and the user has asked for the
/// component, one process of each host says so; where nobody has, nobody is told.
inline bool open_mpi_fits(const mca_base_framework_t &framework, const char *component) noexcept
{
    if (open_mpi_fits()) {
        return true;
    }
    if (is_listed(framework, component)) {
        char what[128];
        std::snprintf(what, sizeof what, "series-%s-%s", framework.framework_name, component);
        tell_once(what, [&] {
            show_help("help-ompi-ft.txt", "another open mpi", component, framework.framework_name,
                      OPAL_MAJOR_VERSION, OPAL_MINOR_VERSION, opal_version_string,
                      opal_process_info.nodename == nullptr ? "this host"
                                                            : opal_process_info.nodename,
                      OPAL_MAJOR_VERSION, OPAL_MINOR_VERSION, framework.framework_name);
        });
    }
    return false;
}

} // namespace ft::mca

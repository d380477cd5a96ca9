#include "opal/mca/btl/ucx/library.hpp"

#include <dlfcn.h>

#include <array>

#include "opal/mca/btl/base/component.hpp"
#include "opal/mca/btl/base/parameters.hpp"
#include "opal/mca/btl/base/set_up.hpp"
#include "opal/mca/listed.hpp"
#include "opal/mca/open_mpi_series.hpp"

namespace ft::ucx {

namespace {

Settings settings;
const Library *library = nullptr;

std::array<btl::NumberParameter<Settings>, 6> numbers{{
    {"fragment", &Settings::fragment, 65528, 1024, 65528, OPAL_INFO_LVL_4,
     "Largest fragment, bytes with btl/ucx's own 8, 1024 to 65528, default 65528; a transport that "
     "carries less sets the limit itself. Low: more work for each byte. High: 4 MiB of receive "
     "memory in each process for shared memory"},
    {"check_interval_ms", &Settings::check_interval_ms, 1000, 0, 3600000, OPAL_INFO_LVL_5,
     "Time between looks whether a peer still lives, over transports that do not find out by "
     "themselves (shared memory), milliseconds, 0 to 3600000, default 1000; 0 never looks. Low: "
     "reads of /proc for each peer. High: a peer that died is noticed by silence alone"},
    {"verdict_ms", &Settings::verdict_ms, 5000, 0, 3600000, OPAL_INFO_LVL_5,
     "Time from when a connection breaks until a PML that sends again what is lost (dr) is told "
     "that the path is gone, milliseconds, 0 to 3600000, default 5000. 0: at once, and a dead peer "
     "may be unreachable before it is known to be dead. High: fragments are lost for that long"},
    {"wire_ms", &Settings::wire_ms, 600000, 0, 86400000, OPAL_INFO_LVL_5,
     "Time that a peer may take to answer before its endpoint and ours are connected, where they "
     "are "
     "connected one to one (rc), milliseconds, 0 to 86400000, default 600000; 0 is without a "
     "limit. "
     "Then the path counts as broken, under a PML that sends again what is lost (dr); another one "
     "waits, as for a receiver. Low: a process that computes without calling MPI is given up. "
     "High: a path that does not come about is waited for"},
    {"bandwidth", &Settings::bandwidth, 0, 0, 4000000, OPAL_INFO_LVL_5,
     "What a module is believed to carry until it was measured, Mbit/s, 0 to 4000000; 0 (default) "
     "is 40000 for shared memory and 10000 for networks. Low: other paths are preferred at the "
     "start. High: this one is"},
    {"latency", &Settings::latency, 0, 0, 1000000, OPAL_INFO_LVL_5,
     "What a fragment is believed to take until it was measured, microseconds, 0 to 1000000; 0 "
     "(default) is 1 for shared memory and 30 for networks. Low: preferred for small messages at "
     "the start. High: other paths are"},
}};

char *transports = nullptr;
char *if_include = nullptr;
char *if_exclude = nullptr;
char *connect_by = nullptr;

int register_parameters() noexcept
{
    if (!mca::open_mpi_fits(opal_btl_base_framework, "ucx")) {
        return OPAL_ERR_NOT_AVAILABLE;
    }
    const btl::Registrar parameters(mca_btl_ucx_component.btl_version);
    parameters.text(
        "transports",
        "Transports of UCX to use, separated by commas, like tcp,posix; each device of each is a "
        "module. auto (default) stands for the first of posix and sysv and the first of dc_mlx5, "
        "ud_mlx5, ud_verbs and tcp that the host has; ud, rc and dc for what each device has of "
        "ud_mlx5 and ud_verbs, rc_mlx5 and rc_verbs, dc_mlx5, the first one. Few: fewer paths. "
        "Many: more to look at in "
        "every progress, and shared memory twice",
        OPAL_INFO_LVL_2, &transports, "auto");
    parameters.text(
        "if_include",
        "Network devices or IPv4 networks to use, separated by commas, like eth0,10.1.0.0/16 or "
        "mlx5_0:1; shared memory is not concerned. Default: all that are up, but not loopback "
        "unless there is no other. Few: fewer paths. Many: more sockets to look at",
        OPAL_INFO_LVL_2, &if_include, "");
    parameters.text(
        "if_exclude",
        "Network devices or IPv4 networks not to use; only without btl_ucx_if_include. Default "
        "none. One that reaches no peer costs nothing but its sockets",
        OPAL_INFO_LVL_2, &if_exclude, "");
    parameters.text(
        "connect",
        "How endpoints are connected. auto (default): to the peer's interface where the transport "
        "can, else one to one after an exchange of messages (rc). iface: a transport that cannot "
        "connect to interfaces is refused. ep: one to one wherever the transport can (tcp, too), "
        "for those who develop this; all processes alike",
        OPAL_INFO_LVL_9, &connect_by, "auto");
    parameters.numbers<Settings>(numbers);
    parameters.flag(
        "reconnect",
        "Try to make a connection that broke anew within btl_ucx_verdict_ms. False (default): its "
        "path is gone for good, and other paths carry on. True: it may come back, and what is "
        "sent that way meanwhile is lost and sent again; the less tested of the two",
        OPAL_INFO_LVL_3, &settings.reconnect);
    parameters.flag(
        "stats",
        "Print at the end, on standard error, one line for each module with what it sent, "
        "received and dropped. Default false",
        OPAL_INFO_LVL_3, &settings.stats);
    parameters.flag(
        "verbose",
        "Say on standard error when a way to a peer breaks, and what UCX says about it. Default "
        "false: the PML says what becomes of it",
        OPAL_INFO_LVL_3, &settings.verbose);
    return OPAL_SUCCESS;
}

bool load_settings()
{
    settings.transports = transports == nullptr ? "" : transports;
    settings.if_include = if_include == nullptr ? "" : if_include;
    settings.if_exclude = if_exclude == nullptr ? "" : if_exclude;
    const auto complain = [](const char *name, const std::string &value, const std::string &range) {
        btl::complain(help_file, "bad-parameter", name, value.c_str(), range.c_str(), name);
    };
    const std::string how = connect_by == nullptr ? "" : connect_by;
    if (how != "auto" && how != "iface" && how != "ep") {
        complain("connect", how, "auto, iface or ep");
        return false;
    }
    settings.connect = how == "ep"      ? ConnectBy::endpoints
                       : how == "iface" ? ConnectBy::interfaces
                                        : ConnectBy::automatic;
    return btl::take_numbers<Settings>("btl_ucx_", numbers, settings, complain);
}

/// Loads the library, and UCX with it. UCX would put its own handlers on the signals of a crash as
/// it is loaded; who wants that says so by UCX_HANDLE_ERRORS.
bool load_library() noexcept
{
    constexpr const char *handlers = "UCX_HANDLE_ERRORS";
    constexpr const char *file = FT_LIBDIR "/libompi_ft_ucx.so";
    const bool ours = std::getenv(handlers) == nullptr && setenv(handlers, "none", 1) == 0;
    // UCX is not made to be unloaded.
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const char *why = handle == nullptr ? dlerror() : nullptr;
    if (ours) {
        unsetenv(handlers);
    }
    if (handle != nullptr) {
        library = static_cast<const Library *>(dlsym(handle, library_symbol));
    }
    if (library == nullptr) {
        mca::show_help(help_file, "no-library", opal_process_info.nodename,
                       why == nullptr ? "it is another one of that name" : why);
    }
    return library != nullptr;
}

mca_btl_base_module_t **init(int *count, bool /*progress*/, bool /*threads*/) noexcept
try {
    *count = 0;
    if (!mca::is_listed(opal_btl_base_framework, "ucx") || !load_settings() || !load_library()) {
        return nullptr;
    }
    return library->init(mca_btl_ucx_component, settings, *count);
} catch (...) {
    *count = 0;
    return nullptr;
}

int progress() noexcept
{
    return library == nullptr ? 0 : library->progress();
}

} // namespace

} // namespace ft::ucx

extern "C" {

mca_btl_base_component_t mca_btl_ucx_component =
    ft::btl::component("ucx", ft::ucx::register_parameters, ft::ucx::init, ft::ucx::progress);

} // extern "C"

#include "opal/mca/btl/dgram/dgram.hpp"

#include "opal/mca/btl/base/component.hpp"
#include "opal/mca/btl/base/entry_points.hpp"
#include "opal/mca/btl/base/parameters.hpp"
#include "opal/mca/btl/base/set_up.hpp"
#include "opal/mca/btl/dgram/providers.hpp"
#include "opal/mca/listed.hpp"
#include "opal/mca/open_mpi_series.hpp"

namespace ft::dgram {

namespace {

Settings settings;

constexpr std::uint32_t mebi = 1024 * 1024;

std::array<btl::NumberParameter<Settings>, 7> numbers{{
    {"max_datagram", &Settings::max_datagram, 0, least_datagram, most_datagram_bytes,
     OPAL_INFO_LVL_4,
     "Largest datagram, bytes with btl/dgram's own header, 548 to 65507; 0 (default) takes what "
     "the interface carries in one packet. Low: more datagrams and more work per byte. Above the "
     "interface's packet: the kernel fragments, and one lost piece loses all",
     true},
    {"receive_buffer", &Settings::receive_buffer, 8 * mebi, 4096, 1024 * mebi, OPAL_INFO_LVL_4,
     "Socket buffer of each module for what arrives while the process computes, bytes, default "
     "8388608; the kernel grants net.core.rmem_max to who is not root. Low: bursts overrun it and "
     "are sent again. High: memory of the kernel"},
    {"send_buffer", &Settings::send_buffer, 4 * mebi, 4096, 1024 * mebi, OPAL_INFO_LVL_5,
     "Socket buffer of each module and peer for what the network has not taken yet, bytes, default "
     "4194304; the kernel grants net.core.wmem_max to who is not root. Low: the sender is stopped "
     "often. High: memory of the kernel, and long queues"},
    {"batch", &Settings::batch, 64, 1, 128, OPAL_INFO_LVL_5,
     "Fragments to one peer that are gathered before they are given to the network together, 1 to "
     "128, default 64; made whole pieces of the kernel's offload, 44 of Ethernet's packets each, "
     "unless it is less than one. 1: one call into the kernel for each. High: fewer calls, longer "
     "bursts"},
    {"size_interval_ms", &Settings::size_interval_ms, 1000, 0, 3600000, OPAL_INFO_LVL_5,
     "Time between looks whether datagrams of full size still pass, milliseconds, default 1000; 0 "
     "never looks. Low: two datagrams more each time and peer. High: a way that silently became "
     "narrower loses everything large for that long"},
    {"bandwidth", &Settings::bandwidth, 10000, 1, 4000000, OPAL_INFO_LVL_5,
     "What a module is believed to carry until it was measured, Mbit/s, default 10000. Low: other "
     "paths are preferred at the start. High: this one is"},
    {"latency", &Settings::latency, 30, 0, 1000000, OPAL_INFO_LVL_5,
     "What a fragment is believed to take until it was measured, microseconds, default 30. Low: "
     "preferred for small messages at the start. High: other paths are"},
}};

char *provider = nullptr;
char *if_include = nullptr;
char *if_exclude = nullptr;

int register_parameters() noexcept
{
    if (!mca::open_mpi_fits(opal_btl_base_framework, "dgram")) {
        return OPAL_ERR_NOT_AVAILABLE;
    }
    const btl::Registrar parameters(mca_btl_dgram_component.btl_version);
    parameters.text(
        "provider",
        "What carries the datagrams: udp, sockets of the kernel; ofi:NAME, that provider of "
        "libfabric (fi_info -t FI_EP_DGRAM lists them); ofi, the first of those; auto (default), "
        "the "
        "faster one: a provider of libfabric that drives an adapter from user space (verbs, efa, "
        "psm2, psm3, opx, usnic) where there is one that can be opened, else udp. Processes with "
        "different ones do not reach each other",
        OPAL_INFO_LVL_3, &provider, "auto");
    parameters.text(
        "if_include",
        "Interfaces or IP networks to use, one module each, separated by commas, like "
        "eth0,10.1.0.0/16. Default: all that are up, but not loopback unless there is no other. "
        "Few: fewer paths. Many: more sockets to look at in every progress",
        OPAL_INFO_LVL_2, &if_include, "");
    parameters.text(
        "if_exclude",
        "Interfaces or IP networks not to use; only without btl_dgram_if_include. Default none. "
        "One that reaches no peer costs nothing but its socket",
        OPAL_INFO_LVL_2, &if_exclude, "");
    parameters.numbers<Settings>(numbers);
    parameters.flag(
        "offload",
        "Let the kernel or the network card cut one large piece into datagrams and put arriving "
        "ones together (UDP_SEGMENT, UDP_GRO). Default true. Off: more calls, for networks or "
        "tests that spoil large pieces",
        OPAL_INFO_LVL_5, &settings.offload);
    parameters.flag(
        "stats",
        "Print at the end, on standard error, one line for each module with what it sent, received "
        "and dropped. Default false",
        OPAL_INFO_LVL_3, &settings.stats);
    return OPAL_SUCCESS;
}

bool load_settings()
{
    settings.provider = provider == nullptr ? "" : provider;
    settings.if_include = if_include == nullptr ? "" : if_include;
    settings.if_exclude = if_exclude == nullptr ? "" : if_exclude;
    const auto complain = [](const char *name, const std::string &value, const std::string &range) {
        btl::complain(help_file, "bad-parameter", name, value.c_str(), range.c_str(), name);
    };
    if (!btl::take_numbers<Settings>("btl_dgram_", numbers, settings, complain)) {
        return false;
    }
    if (!is_provider(settings.provider)) {
        btl::complain(help_file, "no-provider", opal_process_info.nodename,
                      settings.provider.c_str(), "it is none of auto, udp, ofi and ofi:NAME");
        return false;
    }
    if (const std::string why = unusable(settings.provider); !why.empty()) {
        btl::complain_of_host(help_file, "no-provider", opal_process_info.nodename,
                              settings.provider.c_str(), why.c_str());
        return false;
    }
    return true;
}

/// Tells of those that have no module any more. \param left their names, empty when none
void tell_left_out(const std::string &left)
{
    if (!left.empty()) {
        btl::complain_of_host(help_file, "too-many", static_cast<int>(most_modules),
                              opal_process_info.nodename, left.c_str());
    }
}

bool pick_interfaces(std::vector<Interface> &wanted)
{
    const std::vector<Interface> all = btl::local_interfaces();
    if (!btl::choose_interfaces(settings.if_include, settings.if_exclude, all, help_file,
                                "names of interfaces, or networks like 10.1.0.0/16 or fd00:1::/64, "
                                "separated by commas",
                                wanted)) {
        return false;
    }
    if (wanted.size() > most_modules) {
        tell_left_out(btl::listed(std::span(wanted).subspan(most_modules)));
        wanted.resize(most_modules);
    }
    if (wanted.empty()) {
        mca::show_help(help_file, "no-interface", opal_process_info.nodename,
                       settings.if_include.empty() ? "(all)" : settings.if_include.c_str(),
                       btl::listed(all).c_str());
        return false;
    }
    btl::tell_unmatched(settings.if_include, all, {}, help_file);
    return true;
}

/// The same as all_modules once they are set up: asked millions of times a second.
const std::vector<std::unique_ptr<Module>> *modules_there = nullptr;

int progress() noexcept
{
    int events = 0;
    if (OPAL_UNLIKELY(modules_there == nullptr)) {
        return events;
    }
    for (const auto &module : *modules_there) {
        events += module->progress();
    }
    return events;
}

/// What auto stands for is taken where it can be opened, and else what always can: a limit of
/// locked memory or a port of another kind is not to leave a process without any way.
std::vector<Opened> open_wanted(const std::vector<Interface> &wanted, std::string &why)
{
    const UdpSettings udp{settings.receive_buffer, settings.send_buffer, settings.max_datagram,
                          settings.offload};
    const bool automatic = settings.provider == "auto";
    if (automatic) {
        settings.provider = fastest_provider();
    }
    std::vector<Opened> all = open_transports(settings.provider, wanted, udp, why);
    if (all.empty() && automatic && settings.provider != udp_provider()) {
        btl::complain_of_host(help_file, "fell-back", opal_process_info.nodename,
                              settings.provider.c_str(), why.c_str());
        settings.provider = udp_provider();
        all = open_transports(settings.provider, wanted, udp, why);
    }
    return all;
}

/// Opens a transport for each address and publishes them. \return false after saying why
bool set_up()
{
    std::vector<Interface> wanted;
    if (!load_settings() || !pick_interfaces(wanted)) {
        return false;
    }
    const std::uint64_t cookie = btl::fresh_cookie();
    auto &modules = btl::all_modules<Module>();
    modules_there = &modules;
    std::string why;
    std::string left;
    for (Opened &opened : open_wanted(wanted, why)) {
        if (opened.transport->largest() < least_datagram) {
            why +=
                (why.empty() ? "" : "; ") + opened.interface.name + ": its packets are too small";
            continue;
        }
        if (modules.size() < most_modules) {
            const auto index = static_cast<unsigned>(modules.size());
            modules.push_back(std::make_unique<Module>(
                opened.interface, std::move(opened.transport), settings, cookie, index));
        } else {
            left += (left.empty() ? "" : ", ") + opened.interface.name; // a provider's own
        }
    }
    tell_left_out(left);
    if (!why.empty()) {
        mca::show_help(help_file, "no-transport", opal_process_info.nodename,
                       settings.provider.c_str(), why.c_str());
    }
    return !modules.empty() && publish_modules(cookie);
}

mca_btl_base_module_t **init(int *count, bool /*progress*/, bool /*threads*/) noexcept
try {
    *count = 0;
    if (!mca::is_listed(opal_btl_base_framework, "dgram") || !set_up()) {
        btl::drop_all_modules<Module>();
        return nullptr;
    }
    return btl::list_of_modules<Module>(*count);
} catch (...) {
    btl::drop_all_modules<Module>();
    *count = 0;
    return nullptr;
}

} // namespace

} // namespace ft::dgram

extern "C" {

mca_btl_base_component_t mca_btl_dgram_component = ft::btl::component(
    "dgram", ft::dgram::register_parameters, ft::dgram::init, ft::dgram::progress);

} // extern "C"

// What happens once: what is there is looked up, opened and published.
#include "opal/mca/btl/ucx/ucx.hpp"

#include <sys/random.h>

#include "opal/ft/base/wire.hpp"
#include "opal/mca/show_help.hpp"

namespace ft::ucx {

namespace {

constexpr std::uint32_t modex_magic = 0x55435831; // "UCX1"
constexpr std::size_t most_modules = 16;
constexpr std::size_t most_address_bytes = 255;

/// All ranks have the same parameters: rank 0 speaks.
template <typename... Arguments>
void complain(const char *topic, Arguments... arguments) noexcept
{
    if (OPAL_PROC_MY_NAME.vpid == 0) {
        mca::show_help(help_file, topic, arguments...);
    }
}

/// The networks of this host that the user wants, by the names of their interfaces.
bool wanted_networks(const Settings &settings, const std::vector<dgram::Interface> &all,
                     std::vector<dgram::Interface> &wanted)
{
    std::vector<dgram::Selector> include;
    std::vector<dgram::Selector> exclude;
    std::string bad;
    const bool first = dgram::parse_selectors(settings.if_include, include, bad);
    if (!first || !dgram::parse_selectors(settings.if_exclude, exclude, bad)) {
        const char *name = first ? "if_exclude" : "if_include";
        complain("bad-parameter", name, bad.c_str(),
                 "names of devices, or IPv4 networks like 10.1.0.0/16, separated by commas", name);
        return false;
    }
    wanted = dgram::choose(all, include, exclude);
    return true;
}

bool names(const std::string &list, const std::string &device)
{
    return ("," + list + ",").find("," + device + ",") != std::string::npos;
}

/// Devices that are no network interfaces of the kernel, like mlx5_0:1, are chosen by name alone.
bool wanted(const Resource &resource, const Settings &settings,
            const std::vector<dgram::Interface> &all, const std::vector<dgram::Interface> &chosen,
            dgram::Interface &network)
{
    if (resource.shared_memory) {
        return true;
    }
    const auto is_it = [&](const dgram::Interface &i) { return i.name == resource.device; };
    if (std::none_of(all.begin(), all.end(), is_it)) {
        return settings.if_include.empty() ? !names(settings.if_exclude, resource.device)
                                           : names(settings.if_include, resource.device);
    }
    const auto found = std::find_if(chosen.begin(), chosen.end(), is_it);
    if (found == chosen.end()) {
        return false;
    }
    network = *found;
    return true;
}

bool publish(mca_btl_base_component_t &component, std::uint64_t cookie)
{
    std::size_t bytes = 16;
    for (const auto &module : modules()) {
        const Port &port = module->port();
        bytes += 12 + port.resource().transport.size() + port.device_address().size() +
                 port.interface_address().size();
    }
    std::vector<std::byte> blob(bytes);
    base::WireWriter writer(blob);
    const auto put = [&](std::span<const std::byte> what) {
        writer.u8(static_cast<std::uint8_t>(what.size()));
        writer.bytes(what);
    };
    writer.u32(modex_magic);
    writer.u32(static_cast<std::uint32_t>(modules().size()));
    writer.u64(cookie);
    for (const auto &module : modules()) {
        const Port &port = module->port();
        put(std::as_bytes(std::span(port.resource().transport)));
        put(port.device_address());
        put(port.interface_address());
        writer.u32(module->network().address);
        writer.u32(module->network().mask);
        writer.u8(module->network().loopback ? 1 : 0);
    }
    int rc = OPAL_SUCCESS;
    OPAL_MODEX_SEND(rc, OPAL_PMIX_GLOBAL, &component.btl_version, blob.data(),
                    static_cast<int>(blob.size()));
    return rc == OPAL_SUCCESS;
}

/// Opens what is wanted. \return false after saying why
bool set_up(mca_btl_base_component_t &component, const Settings &settings)
{
    silence_ucx();
    const std::vector<Resource> all = resources();
    std::vector<std::string> unknown;
    const std::vector<Resource> chosen = choose(all, settings.transports, unknown);
    if (!unknown.empty() || settings.transports.empty()) {
        complain("unknown-transport", settings.transports.c_str(),
                 unknown.empty() ? "(nothing)" : unknown.front().c_str(),
                 opal_process_info.nodename, listed(all).c_str());
        return false;
    }
    const std::vector<dgram::Interface> networks = dgram::local_interfaces();
    std::vector<dgram::Interface> use;
    if (!wanted_networks(settings, networks, use)) {
        return false;
    }
    std::uint64_t cookie = 0;
    while (getrandom(&cookie, sizeof cookie, 0) != sizeof cookie ||
           (cookie & Header::cookie_mask) == 0) {
    }
    for (const Resource &resource : chosen) {
        dgram::Interface network;
        if (modules().size() >= most_modules ||
            !wanted(resource, settings, networks, use, network)) {
            continue;
        }
        std::string why;
        std::unique_ptr<Port> port = Port::open(resource, settings.fragment, why);
        if (port != nullptr && (port->device_address().size() > most_address_bytes ||
                                port->interface_address().size() > most_address_bytes)) {
            why = "its address is longer than btl/ucx can publish";
            port.reset();
        }
        if (port == nullptr) {
            mca::show_help(help_file, "cannot-open", opal_process_info.nodename,
                           resource.transport.c_str(), resource.device.c_str(), why.c_str());
            continue;
        }
        const auto index = static_cast<unsigned>(modules().size());
        modules().push_back(
            std::make_unique<Module>(std::move(port), network, component, settings, cookie, index));
    }
    if (modules().empty()) {
        mca::show_help(help_file, "nothing-to-use", opal_process_info.nodename,
                       settings.transports.c_str(),
                       settings.if_include.empty() ? "(all)" : settings.if_include.c_str(),
                       listed(all).c_str());
        return false;
    }
    return publish(component, cookie);
}

mca_btl_base_module_t **init(mca_btl_base_component_t &component, const Settings &settings,
                             int &count) noexcept
try {
    count = 0;
    if (!set_up(component, settings)) {
        modules().clear();
        return nullptr;
    }
    auto **list = static_cast<mca_btl_base_module_t **>(
        std::malloc(modules().size() * sizeof(mca_btl_base_module_t *)));
    if (list == nullptr) {
        return nullptr;
    }
    for (const auto &module : modules()) {
        list[count++] = module.get();
    }
    return list;
} catch (...) {
    count = 0;
    return nullptr;
}

int progress() noexcept
{
    int events = 0;
    const bool alone = modules().size() == 1;
    for (const auto &module : modules()) {
        events += module->progress(alone);
    }
    return events;
}

} // namespace

std::vector<std::unique_ptr<Module>> &modules() noexcept
{
    static std::vector<std::unique_ptr<Module>> all;
    return all;
}

bool published_by(mca_btl_base_component_t &component, opal_proc_t *process, Published &out)
{
    void *blob = nullptr;
    std::size_t bytes = 0;
    int rc = OPAL_SUCCESS;
    OPAL_MODEX_RECV(rc, &component.btl_version, &process->proc_name, &blob, &bytes);
    if (rc != OPAL_SUCCESS || blob == nullptr) {
        return false;
    }
    base::WireReader reader({static_cast<const std::byte *>(blob), bytes});
    const auto get = [&] {
        const auto view = reader.bytes(reader.u8());
        return Bytes(view.begin(), view.end());
    };
    const std::uint32_t magic = reader.u32();
    const std::uint32_t count = reader.u32();
    out.cookie = reader.u64();
    if (magic != modex_magic || count > most_modules) {
        reader.fail();
    }
    for (std::uint32_t i = 0; reader.ok() && i < count; ++i) {
        Published::Place place;
        const Bytes name = get();
        place.transport.assign(reinterpret_cast<const char *>(name.data()), name.size());
        place.device = get();
        place.interface = get();
        place.ipv4 = reader.u32();
        place.mask = reader.u32();
        place.loopback = reader.u8() != 0;
        out.places.push_back(std::move(place));
    }
    const bool sensible = reader.complete();
    std::free(blob);
    return sensible && out.cookie != 0;
}

} // namespace ft::ucx

extern "C" {

/// What the component looks for.
OPAL_DECLSPEC extern const ft::ucx::Library ompi_ft_ucx;
const ft::ucx::Library ompi_ft_ucx{ft::ucx::init, ft::ucx::progress};

} // extern "C"

// What happens once: what is there is looked up, opened and published.
#include "opal/mca/btl/ucx/ucx.hpp"

#include "opal/mca/btl/base/entry_points.hpp"
#include "opal/mca/btl/base/set_up.hpp"

namespace ft::ucx {

namespace {

bool names(const std::string &list, const std::string &device)
{
    std::vector<btl::Selector> words;
    std::string bad;
    return btl::parse_selectors(list, words, bad) &&
           std::any_of(words.begin(), words.end(),
                       [&](const btl::Selector &word) { return word.name == device; });
}

/// Network devices that are no interfaces of the kernel, each once.
std::vector<std::string> other_devices(const std::vector<Resource> &all,
                                       const std::vector<btl::Interface> &networks)
{
    std::vector<std::string> devices;
    for (const Resource &resource : all) {
        const auto is_it = [&](const btl::Interface &i) { return i.name == resource.device; };
        if (!resource.shared_memory && std::none_of(networks.begin(), networks.end(), is_it) &&
            std::find(devices.begin(), devices.end(), resource.device) == devices.end()) {
            devices.push_back(resource.device);
        }
    }
    return devices;
}

/// Devices that are no network interfaces of the kernel, like mlx5_0:1, are chosen by name alone.
bool wanted(const Resource &resource, const Settings &settings,
            const std::vector<btl::Interface> &all, const std::vector<btl::Interface> &chosen,
            btl::Interface &network)
{
    if (resource.shared_memory) {
        return true;
    }
    const auto is_it = [&](const btl::Interface &i) { return i.name == resource.device; };
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

/// Whether the lengths of its addresses fit into a byte.
bool publishable(const Port &port)
{
    const auto fits = [](std::size_t bytes) { return bytes <= most_address_bytes; };
    const auto both_fit = [&](const Address &address) {
        return fits(address.device.size()) && fits(address.interface.size());
    };
    return both_fit(port.address()) && both_fit(port.line_address()) &&
           fits(port.attributes().ep_addr_len);
}

/// Opens what is wanted. \return false after saying why
bool set_up(mca_btl_base_component_t &component, const Settings &settings)
{
    silence_ucx();
    const std::vector<Resource> all = resources();
    std::vector<std::string> unknown;
    const std::vector<Resource> chosen = choose(all, settings.transports, unknown);
    if (!unknown.empty() || settings.transports.empty()) {
        btl::complain_of_host(help_file, "unknown-transport", settings.transports.c_str(),
                              unknown.empty() ? "(nothing)" : unknown.front().c_str(),
                              opal_process_info.nodename, listed(all).c_str());
        return false;
    }
    const std::vector<btl::Interface> networks = btl::local_interfaces();
    std::vector<btl::Interface> use;
    if (!btl::choose_interfaces(settings.if_include, settings.if_exclude, networks, help_file,
                                "names of devices, or networks like 10.1.0.0/16, separated by "
                                "commas",
                                use)) {
        return false;
    }
    const std::uint64_t cookie = btl::fresh_cookie(Header::cookie_mask);
    auto &modules = btl::all_modules<Module>();
    std::string left;
    for (const Resource &resource : chosen) {
        btl::Interface network;
        if (!wanted(resource, settings, networks, use, network)) {
            continue;
        }
        if (modules.size() >= most_modules) {
            left += (left.empty() ? "" : ", ") + resource.transport + " over " + resource.device;
            continue;
        }
        std::string why;
        std::unique_ptr<Port> port =
            Port::open(resource, all, settings.connect, settings.fragment, why);
        if (port != nullptr && !publishable(*port)) {
            why = "its address is longer than btl/ucx can publish";
            port.reset();
        }
        if (port == nullptr) {
            mca::show_help(help_file, "cannot-open", opal_process_info.nodename,
                           resource.transport.c_str(), resource.device.c_str(), why.c_str());
            continue;
        }
        const auto index = static_cast<unsigned>(modules.size());
        modules.push_back(
            std::make_unique<Module>(std::move(port), network, component, settings, cookie, index));
    }
    if (!left.empty()) {
        btl::complain_of_host(help_file, "too-many", static_cast<int>(most_modules),
                              opal_process_info.nodename, left.c_str());
    }
    if (modules.empty()) {
        mca::show_help(help_file, "nothing-to-use", opal_process_info.nodename,
                       settings.transports.c_str(),
                       settings.if_include.empty() ? "(all)" : settings.if_include.c_str(),
                       listed(all).c_str());
        return false;
    }
    btl::tell_unmatched(settings.if_include, networks, other_devices(all, networks), help_file);
    return publish_modules(component, cookie);
}

mca_btl_base_module_t **init(mca_btl_base_component_t &component, const Settings &settings,
                             int &count) noexcept
try {
    count = 0;
    if (!set_up(component, settings)) {
        btl::drop_all_modules<Module>();
        return nullptr;
    }
    return btl::list_of_modules<Module>(count);
} catch (...) {
    btl::drop_all_modules<Module>();
    count = 0;
    return nullptr;
}

int progress() noexcept
{
    int events = 0;
    const auto &modules = btl::all_modules<Module>();
    const bool alone = modules.size() == 1;
    for (const auto &module : modules) {
        events += module->progress(alone);
    }
    return events;
}

} // namespace

} // namespace ft::ucx

extern "C" {

/// What the component looks for.
OPAL_DECLSPEC extern const ft::ucx::Library ompi_ft_ucx;
const ft::ucx::Library ompi_ft_ucx{ft::ucx::init, ft::ucx::progress};

} // extern "C"

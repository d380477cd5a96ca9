#include "opal/mca/btl/dgram/dgram.hpp"

#include <dlfcn.h>
#include <sys/random.h>

#include <cinttypes>

#include "opal/ft/base/wire.hpp"
#include "opal/mca/btl/dgram/providers.hpp"
#include "opal/mca/show_help.hpp"

namespace ft::dgram {

namespace {

constexpr const char *help_file = "help-btl-dgram.txt";
constexpr auto no_flags = static_cast<mca_base_var_flag_t>(0);
constexpr std::uint32_t modex_magic = 0x44475232; // "DGR2"
constexpr std::size_t provider_bytes = 32;        ///< of its name, zeros after it
constexpr std::size_t place_bytes = Address::most_bytes + 14 + provider_bytes;
constexpr std::size_t most_modules = 16;

Settings settings;

/// A parameter that is a number; ompi_info shows `help`.
struct NumberParameter {
    const char *name;
    std::uint32_t Settings::*member;
    std::uint32_t value;
    std::uint32_t least;
    std::uint32_t most;
    mca_base_var_info_lvl_t level;
    const char *help;
};

constexpr std::uint32_t mebi = 1024 * 1024;

std::array<NumberParameter, 7> numbers{{
    {"max_datagram", &Settings::max_datagram, 0, 0, 65507, OPAL_INFO_LVL_4,
     "Largest datagram, bytes with btl/dgram's own header, 548 to 65507; 0 (default) takes what "
     "the interface carries in one packet. Low: more datagrams and more work per byte. Above the "
     "interface's packet: the kernel fragments, and one lost piece loses all"},
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
     "128, default 64. 1: one call into the kernel for each. High: fewer calls, longer bursts"},
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
    const auto text = [](const char *name, const char *help, mca_base_var_info_lvl_t level,
                         char **storage, const char *value) {
        *storage = const_cast<char *>(value);
        mca_base_component_var_register(&mca_btl_dgram_component.btl_version, name, help,
                                        MCA_BASE_VAR_TYPE_STRING, nullptr, 0, no_flags, level,
                                        MCA_BASE_VAR_SCOPE_READONLY, storage);
    };
    text(
        "provider",
        "What carries the datagrams: udp, sockets of the kernel; ofi:NAME, that provider of "
        "libfabric (fi_info -t FI_EP_DGRAM lists them); ofi, the first of those; auto (default), a "
        "provider of libfabric where there is an adapter that is driven from user space, else udp. "
        "Processes with different ones do not reach each other",
        OPAL_INFO_LVL_3, &provider, "auto");
    text("if_include",
         "Interfaces or IPv4 networks to use, one module each, separated by commas, like "
         "eth0,10.1.0.0/16. Default: all that are up, but not loopback unless there is no other. "
         "Few: fewer paths. Many: more sockets to look at in every progress",
         OPAL_INFO_LVL_2, &if_include, "");
    text("if_exclude",
         "Interfaces or IPv4 networks not to use; only without btl_dgram_if_include. Default none. "
         "One that reaches no peer costs nothing but its socket",
         OPAL_INFO_LVL_2, &if_exclude, "");
    for (NumberParameter &number : numbers) {
        mca_base_component_var_register(&mca_btl_dgram_component.btl_version, number.name,
                                        number.help, MCA_BASE_VAR_TYPE_UNSIGNED_INT, nullptr, 0,
                                        no_flags, number.level, MCA_BASE_VAR_SCOPE_READONLY,
                                        &number.value);
    }
    mca_base_component_var_register(
        &mca_btl_dgram_component.btl_version, "offload",
        "Let the kernel or the network card cut one large piece into datagrams and put arriving "
        "ones together (UDP_SEGMENT, UDP_GRO). Default true. Off: more calls, for networks or "
        "tests that spoil large pieces",
        MCA_BASE_VAR_TYPE_BOOL, nullptr, 0, no_flags, OPAL_INFO_LVL_5, MCA_BASE_VAR_SCOPE_READONLY,
        &settings.offload);
    mca_base_component_var_register(
        &mca_btl_dgram_component.btl_version, "stats",
        "Print at the end, on standard error, one line for each module with what it sent, received "
        "and dropped. Default false",
        MCA_BASE_VAR_TYPE_BOOL, nullptr, 0, no_flags, OPAL_INFO_LVL_3, MCA_BASE_VAR_SCOPE_READONLY,
        &settings.stats);
    return OPAL_SUCCESS;
}

int open_component() noexcept
{
    mca::add_help_dir();
    return OPAL_SUCCESS;
}

int close_component() noexcept
{
    return OPAL_SUCCESS;
}

/// In the list of the parameter btl, by its own name.
bool named() noexcept
{
    const char *selection = opal_btl_base_framework.framework_selection;
    if (selection == nullptr || selection[0] == '^') {
        return false;
    }
    char **list = opal_argv_split(selection, ',');
    bool found = false;
    for (char **name = list; name != nullptr && *name != nullptr; ++name) {
        found = found || std::strcmp(*name, "dgram") == 0;
    }
    opal_argv_free(list);
    return found;
}

/// All ranks have the same parameters: rank 0 speaks.
template <typename... Arguments>
void complain(const char *topic, Arguments... arguments) noexcept
{
    if (OPAL_PROC_MY_NAME.vpid == 0) {
        mca::show_help(help_file, topic, arguments...);
    }
}

bool load_settings()
{
    settings.provider = provider == nullptr ? "" : provider;
    settings.if_include = if_include == nullptr ? "" : if_include;
    settings.if_exclude = if_exclude == nullptr ? "" : if_exclude;
    for (const NumberParameter &number : numbers) {
        const bool zero = number.least == 0 && number.value == 0;
        const std::uint32_t least =
            number.member == &Settings::max_datagram ? least_datagram : number.least;
        if (!zero && (number.value < least || number.value > number.most)) {
            const std::string value = std::to_string(number.value);
            const std::string range = std::string(number.least == 0 ? "0, or " : "") +
                                      std::to_string(least) + " to " + std::to_string(number.most);
            complain("bad-parameter", number.name, value.c_str(), range.c_str(), number.name);
            return false;
        }
        settings.*number.member = number.value;
    }
    const std::string why = is_provider(settings.provider)
                                ? unusable(settings.provider)
                                : "it is none of auto, udp, ofi and ofi:NAME";
    if (!why.empty()) {
        complain("no-provider", settings.provider.c_str(), why.c_str());
        return false;
    }
    if (settings.provider == "auto") {
        settings.provider = fastest_provider();
    }
    return true;
}

bool pick_interfaces(std::vector<Interface> &wanted)
{
    std::vector<Selector> include;
    std::vector<Selector> exclude;
    std::string bad;
    const bool first = parse_selectors(settings.if_include, include, bad);
    if (!first || !parse_selectors(settings.if_exclude, exclude, bad)) {
        const char *name = first ? "if_exclude" : "if_include";
        complain("bad-parameter", name, bad.c_str(),
                 "names of interfaces, or IPv4 networks like 10.1.0.0/16, separated by commas",
                 name);
        return false;
    }
    const std::vector<Interface> all = local_interfaces();
    wanted = choose(all, include, exclude);
    if (wanted.size() > most_modules) {
        wanted.resize(most_modules);
    }
    if (wanted.empty()) {
        std::string there;
        for (const Interface &i : all) {
            there += (there.empty() ? "" : ", ") + i.name + " (" + printed(i.address) + ")";
        }
        mca::show_help(help_file, "no-interface", opal_process_info.nodename,
                       settings.if_include.empty() ? "(all)" : settings.if_include.c_str(),
                       there.empty() ? "none" : there.c_str());
        return false;
    }
    return true;
}

bool publish(std::uint64_t cookie)
{
    std::vector<std::byte> blob(16 + modules().size() * place_bytes);
    base::WireWriter writer(blob);
    writer.u32(modex_magic);
    writer.u32(static_cast<std::uint32_t>(modules().size()));
    writer.u64(cookie);
    for (const auto &module : modules()) {
        const Address &address = module->transport().address();
        std::array<std::byte, provider_bytes> name{};
        const std::string &given = module->transport().provider();
        std::memcpy(name.data(), given.data(), std::min(given.size(), name.size() - 1));
        writer.bytes(name);
        writer.bytes(address.bytes);
        writer.u8(address.length);
        writer.u32(module->interface().address);
        writer.u32(module->interface().mask);
        writer.u32(static_cast<std::uint32_t>(module->transport().largest()));
        writer.u8(module->interface().loopback ? 1 : 0);
    }
    int rc = OPAL_SUCCESS;
    OPAL_MODEX_SEND(rc, OPAL_PMIX_GLOBAL, &mca_btl_dgram_component.btl_version, blob.data(),
                    static_cast<int>(blob.size()));
    return rc == OPAL_SUCCESS;
}

int progress() noexcept
{
    int events = 0;
    for (const auto &module : modules()) {
        events += module->progress();
    }
    return events;
}

/// Opens a transport for each address and publishes them. \return false after saying why
bool set_up()
{
    std::vector<Interface> wanted;
    if (!load_settings() || !pick_interfaces(wanted)) {
        return false;
    }
    std::uint64_t cookie = 0;
    while (getrandom(&cookie, sizeof cookie, 0) != sizeof cookie || cookie == 0) {
    }
    const UdpSettings udp{settings.receive_buffer, settings.send_buffer, settings.max_datagram,
                          settings.offload};
    std::string why;
    for (Opened &opened : open_transports(settings.provider, wanted, udp, why)) {
        if (opened.transport->largest() < least_datagram) {
            why +=
                (why.empty() ? "" : "; ") + opened.interface.name + ": its packets are too small";
            continue;
        }
        if (modules().size() < most_modules) {
            const auto index = static_cast<unsigned>(modules().size());
            modules().push_back(std::make_unique<Module>(
                opened.interface, std::move(opened.transport), settings, cookie, index));
        }
    }
    if (!why.empty()) {
        mca::show_help(help_file, "no-transport", opal_process_info.nodename,
                       settings.provider.c_str(), why.c_str());
    }
    return !modules().empty() && publish(cookie);
}

mca_btl_base_module_t **init(int *count, bool /*progress*/, bool /*threads*/) noexcept
try {
    *count = 0;
    if (!named() || !set_up()) {
        modules().clear();
        return nullptr;
    }
    auto **list = static_cast<mca_btl_base_module_t **>(
        std::malloc(modules().size() * sizeof(mca_btl_base_module_t *)));
    if (list == nullptr) {
        return nullptr;
    }
    for (const auto &module : modules()) {
        list[(*count)++] = module.get();
    }
    return list;
} catch (...) {
    *count = 0;
    return nullptr;
}

} // namespace

std::vector<std::unique_ptr<Module>> &modules() noexcept
{
    static std::vector<std::unique_ptr<Module>> all;
    return all;
}

bool published_by(opal_proc_t *process, Published &out)
{
    void *blob = nullptr;
    std::size_t bytes = 0;
    int rc = OPAL_SUCCESS;
    OPAL_MODEX_RECV(rc, &mca_btl_dgram_component.btl_version, &process->proc_name, &blob, &bytes);
    if (rc != OPAL_SUCCESS || blob == nullptr) {
        return false;
    }
    base::WireReader reader({static_cast<const std::byte *>(blob), bytes});
    const std::uint32_t magic = reader.u32();
    const std::uint32_t count = reader.u32();
    out.cookie = reader.u64();
    if (magic != modex_magic || count > most_modules) {
        reader.fail();
    }
    for (std::uint32_t i = 0; reader.ok() && i < count; ++i) {
        Published::Place place;
        const auto name = reader.bytes(provider_bytes);
        const auto *text = reinterpret_cast<const char *>(name.data());
        place.provider.assign(text, std::find(text, text + name.size(), '\0'));
        const auto address = reader.bytes(Address::most_bytes);
        std::copy(address.begin(), address.end(), place.address.bytes.begin());
        place.address.length = reader.u8();
        place.ipv4 = reader.u32();
        place.mask = reader.u32();
        place.largest = reader.u32();
        place.loopback = reader.u8() != 0;
        if (place.address.length <= Address::most_bytes && place.largest >= least_datagram) {
            out.places.push_back(place);
        }
    }
    const bool sensible = reader.complete();
    std::free(blob);
    return sensible && out.cookie != 0;
}

bool pml_retransmits() noexcept
{
    // A PML is chosen before it asks for peers, and after the BTLs are initialised. This library
    // does not know of PMLs, but in a process of MPI the name is there.
    static const bool does = [] {
        const auto *component = static_cast<const mca_base_component_t *>(
            dlsym(RTLD_DEFAULT, "mca_pml_base_selected_component"));
        if (component == nullptr || std::strcmp(component->mca_component_name, "dr") == 0) {
            return true;
        }
        complain("wrong-pml", component->mca_component_name);
        return false;
    }();
    return does;
}

} // namespace ft::dgram

extern "C" {

mca_btl_base_component_t mca_btl_dgram_component = [] {
    mca_btl_base_component_t component{};
    // C++ wants every member named or none; what is not set here is zero.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
    component.btl_version = {
        MCA_BTL_BASE_VERSION_3_1_0,
        .mca_component_name = "dgram",
        MCA_BASE_MAKE_VERSION(component, FT_VERSION_MAJOR, FT_VERSION_MINOR, FT_VERSION_RELEASE),
        .mca_open_component = ft::dgram::open_component,
        .mca_close_component = ft::dgram::close_component,
        .mca_register_component_params = ft::dgram::register_parameters};
#pragma GCC diagnostic pop
    component.btl_data.param_field = MCA_BASE_METADATA_PARAM_CHECKPOINT;
    component.btl_init = ft::dgram::init;
    component.btl_progress = ft::dgram::progress;
    return component;
}();

} // extern "C"

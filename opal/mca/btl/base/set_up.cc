#include "opal/mca/btl/base/set_up.hpp"

#include <sys/random.h>

namespace ft::btl {

std::uint64_t fresh_cookie(std::uint64_t mask) noexcept
{
    std::uint64_t cookie = 0;
    while (getrandom(&cookie, sizeof cookie, 0) != sizeof cookie || (cookie & mask) == 0) {
    }
    return cookie;
}

bool choose_interfaces(const std::string &include, const std::string &exclude,
                       const std::vector<Interface> &all, const char *help_file, const char *wanted,
                       std::vector<Interface> &chosen)
{
    std::vector<Selector> in;
    std::vector<Selector> out;
    std::string bad;
    const bool first = parse_selectors(include, in, bad);
    if (!first || !parse_selectors(exclude, out, bad)) {
        const char *name = first ? "if_exclude" : "if_include";
        complain(help_file, "bad-parameter", name, bad.c_str(), wanted, name);
        return false;
    }
    chosen = choose(all, in, out);
    return true;
}

void tell_unmatched(const std::string &include, const std::vector<Interface> &all,
                    const std::vector<std::string> &devices, const char *help_file)
{
    std::vector<Selector> list;
    std::string bad;
    if (!parse_selectors(include, list, bad)) {
        return; // who chose by it has said so
    }
    std::string words;
    for (const std::string &word : unmatched(list, all, devices)) {
        words += (words.empty() ? "" : ", ") + word;
    }
    if (words.empty()) {
        return;
    }
    std::string there = all.empty() && !devices.empty() ? "" : listed(all);
    for (const std::string &device : devices) {
        there += (there.empty() ? "" : ", ") + device;
    }
    complain_of_host(help_file, "unmatched", opal_process_info.nodename, words.c_str(),
                     there.c_str());
}

std::string listed(std::span<const Interface> some)
{
    std::string list;
    for (const Interface &i : some) {
        list += (list.empty() ? "" : ", ") + i.name + " (" + printed(i.address) + ")";
    }
    return list.empty() ? "none" : list;
}

bool publish(const mca_base_component_t &component, std::span<const std::byte> blob) noexcept
{
    int rc = OPAL_SUCCESS;
    OPAL_MODEX_SEND(rc, OPAL_PMIX_GLOBAL, &component, const_cast<std::byte *>(blob.data()),
                    static_cast<int>(blob.size()));
    return rc == OPAL_SUCCESS;
}

std::vector<std::byte> published_by(const mca_base_component_t &component, opal_proc_t *process)
{
    void *blob = nullptr;
    std::size_t bytes = 0;
    int rc = OPAL_SUCCESS;
    OPAL_MODEX_RECV(rc, &component, &process->proc_name, &blob, &bytes);
    if (rc != OPAL_SUCCESS || blob == nullptr) {
        return {};
    }
    const auto *first = static_cast<const std::byte *>(blob);
    std::vector<std::byte> copy(first, first + bytes);
    std::free(blob);
    return copy;
}

void write_address(base::WireWriter &writer, const IpAddress &address)
{
    writer.bytes(std::as_bytes(std::span(address.bytes)));
}

const NetworkStack &own_stack() noexcept
{
    static const NetworkStack own = NetworkStack::own();
    return own;
}

NetworkStack read_stack(base::WireReader &reader)
{
    std::array<std::byte, NetworkStack::bytes> name{};
    const auto bytes = reader.bytes(name.size());
    std::copy(bytes.begin(), bytes.end(), name.begin());
    return NetworkStack(name);
}

bool on_this_host(const opal_proc_t *process, const NetworkStack &its) noexcept
{
    return OPAL_PROC_ON_LOCAL_NODE(process->proc_flags) || own_stack().same(its);
}

IpAddress read_address(base::WireReader &reader)
{
    IpAddress address;
    const auto bytes = reader.bytes(address_bytes);
    if (bytes.size() == address_bytes) {
        std::memcpy(address.bytes.data(), bytes.data(), address_bytes);
    }
    return address;
}

} // namespace ft::btl

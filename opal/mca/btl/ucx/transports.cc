#include "opal/mca/btl/ucx/transports.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

namespace ft::ucx {

namespace {

/// What auto takes, the best first. rc is not among them: it needs a queue for each peer, and was
/// never run.
constexpr std::array<std::string_view, 4> networks{"dc_mlx5", "ud_mlx5", "ud_verbs", "tcp"};
constexpr std::array<std::string_view, 2> memories{"posix", "sysv"};
/// Through shared memory, but without active messages: they read the memory of a peer.
constexpr std::array<std::string_view, 2> without_messages{"cma", "knem"};

/// Words that stand for several transports of an adapter, the best first; UCX_TLS has the same.
struct Alias {
    std::string_view word;
    std::array<std::string_view, 2> transports;
};
constexpr std::array<Alias, 3> aliases{{
    {"ud", {"ud_mlx5", "ud_verbs"}},
    {"rc", {"rc_mlx5", "rc_verbs"}},
    {"dc", {"dc_mlx5", "dc_mlx5"}},
}};

bool is_one_of(std::string_view name, std::span<const std::string_view> names)
{
    return std::find(names.begin(), names.end(), name) != names.end();
}

void add_domain(uct_component_h component, const char *domain, std::vector<Resource> &out)
{
    uct_md_config_t *config = nullptr;
    uct_md_h opened = nullptr;
    if (uct_md_config_read(component, nullptr, nullptr, &config) != UCS_OK) {
        return;
    }
    const ucs_status_t status = uct_md_open(component, domain, config, &opened);
    uct_config_release(config);
    if (status != UCS_OK) {
        return;
    }
    uct_tl_resource_desc_t *list = nullptr;
    unsigned count = 0;
    if (uct_md_query_tl_resources(opened, &list, &count) == UCS_OK) {
        for (unsigned i = 0; i < count; ++i) {
            const bool memory = list[i].dev_type == UCT_DEVICE_TYPE_SHM;
            if ((memory || list[i].dev_type == UCT_DEVICE_TYPE_NET) &&
                !is_one_of(list[i].tl_name, without_messages)) {
                out.push_back({component, domain, list[i].tl_name, list[i].dev_name, memory});
            }
        }
        uct_release_tl_resource_list(list);
    }
    uct_md_close(opened);
}

void add_component(uct_component_h component, std::vector<Resource> &out)
{
    uct_component_attr_t attributes{};
    attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
    if (uct_component_query(component, &attributes) != UCS_OK ||
        attributes.md_resource_count == 0) {
        return;
    }
    std::vector<uct_md_resource_desc_t> domains(attributes.md_resource_count);
    attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    attributes.md_resources = domains.data();
    if (uct_component_query(component, &attributes) != UCS_OK) {
        return;
    }
    for (const uct_md_resource_desc_t &domain : domains) {
        add_domain(component, domain.md_name, out);
    }
}

void add_once(const Resource &resource, std::vector<Resource> &out)
{
    const bool twice = std::any_of(out.begin(), out.end(), [&](const Resource &other) {
        return other.transport == resource.transport && other.device == resource.device;
    });
    if (!twice) {
        out.push_back(resource);
    }
}

bool add(const std::vector<Resource> &all, std::string_view transport, std::vector<Resource> &out)
{
    bool found = false;
    for (const Resource &resource : all) {
        if (resource.transport == transport) {
            found = true;
            add_once(resource, out);
        }
    }
    return found;
}

/// Of each device the best transport that the word stands for.
bool add_alias(const std::vector<Resource> &all, const Alias &alias, std::vector<Resource> &out)
{
    const auto rank = [&](const Resource &resource) {
        return std::find(alias.transports.begin(), alias.transports.end(), resource.transport) -
               alias.transports.begin();
    };
    bool found = false;
    for (const Resource &resource : all) {
        const bool wanted = is_one_of(resource.transport, alias.transports);
        const bool second = std::any_of(all.begin(), all.end(), [&](const Resource &other) {
            return other.device == resource.device && rank(other) < rank(resource);
        });
        if (wanted && !second) {
            found = true;
            add_once(resource, out);
        }
    }
    return found;
}

} // namespace

std::vector<Resource> resources()
{
    std::vector<Resource> all;
    uct_component_h *components = nullptr;
    unsigned count = 0;
    if (uct_query_components(&components, &count) != UCS_OK) {
        return all;
    }
    for (unsigned i = 0; i < count; ++i) {
        add_component(components[i], all);
    }
    uct_release_component_list(components);
    return all;
}

std::vector<Resource> choose(const std::vector<Resource> &all, const std::string &list,
                             std::vector<std::string> &unknown)
{
    std::vector<Resource> chosen;
    std::string_view rest = list;
    while (!rest.empty()) {
        const std::string_view word = rest.substr(0, rest.find(','));
        rest.remove_prefix(std::min(word.size() + 1, rest.size()));
        if (word == "auto") {
            const auto first = [&](std::span<const std::string_view> names) {
                static_cast<void>(std::any_of(names.begin(), names.end(),
                                              [&](auto name) { return add(all, name, chosen); }));
            };
            first(memories);
            first(networks);
            continue;
        }
        const auto alias = std::find_if(aliases.begin(), aliases.end(),
                                        [&](const Alias &one) { return one.word == word; });
        if (alias == aliases.end() ? !add(all, word, chosen) : !add_alias(all, *alias, chosen)) {
            unknown.emplace_back(word);
        }
    }
    return chosen;
}

const Resource *line_for(const std::vector<Resource> &all, const Resource &resource)
{
    constexpr std::array<std::string_view, 3> able{"ud_mlx5", "ud_verbs", "tcp"};
    for (const std::string_view transport : able) {
        const auto found = std::find_if(all.begin(), all.end(), [&](const Resource &other) {
            return other.transport == transport && other.device == resource.device;
        });
        if (found != all.end()) {
            return &*found;
        }
    }
    return nullptr;
}

std::string listed(const std::vector<Resource> &all)
{
    std::string text;
    std::vector<std::string> seen;
    for (const Resource &resource : all) {
        if (std::find(seen.begin(), seen.end(), resource.transport) != seen.end()) {
            continue;
        }
        seen.push_back(resource.transport);
        text += (text.empty() ? "" : ", ") + resource.transport;
        if (resource.shared_memory) {
            continue;
        }
        std::string devices;
        for (const Resource &other : all) {
            if (other.transport == resource.transport) {
                devices += (devices.empty() ? "" : ", ") + other.device;
            }
        }
        text += " (" + devices + ")";
    }
    return text.empty() ? "none" : text;
}

} // namespace ft::ucx

#include "test/unit/dgram/ofi_guise.hpp"

#include <rdma/fi_errno.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace ft::test {

namespace {

struct FreeInfo {
    void operator()(fi_info *info) const noexcept { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

constexpr const char *verbs = "verbs";

/// What our domains are called by the real provider.
std::string real_domain;

bool guised()
{
    const OfiFaults &faults = ofi_faults();
    return faults.prefix != 0 || faults.registers != 0 || faults.domains != 0 ||
           faults.single != 0 || faults.verbs != 0;
}

bool of_ip(std::uint32_t format)
{
    return format == FI_SOCKADDR || format == FI_SOCKADDR_IN || format == FI_SOCKADDR_IN6;
}

void rename(char *&place, const std::string &name)
{
    std::free(place);
    place = strdup(name.c_str());
}

/// The first endpoint at the address of loopback as one of each domain, the first domain twice, as
/// a provider lists what it has in several ways; then what other providers have.
fi_info *of_several_domains(const fi_info &one, std::uint64_t count)
{
    fi_info *all = nullptr;
    fi_info **end = &all;
    real_domain = one.domain_attr->name;
    for (std::uint64_t i = 0; i <= count; ++i) {
        *end = fi_dupinfo(&one);
        rename((*end)->domain_attr->name, "domain" + std::to_string(i == 0 ? 0 : i - 1));
        (*end)->addr_format = FI_ADDR_EFA;
        end = &(*end)->next;
    }
    for (const fi_info *other = one.next; other != nullptr; other = other->next) {
        if (std::strcmp(other->fabric_attr->prov_name, one.fabric_attr->prov_name) != 0) {
            *end = fi_dupinfo(other);
            end = &(*end)->next;
        }
    }
    return all;
}

struct Region {
    fid_mr object{}; ///< first: it is what others know
    fi_ops ops{};
    const std::byte *begin = nullptr;
    std::size_t bytes = 0;
    std::uint64_t access = 0;
};

/// By their descriptors.
class Regions {
  public:
    Region &add()
    {
        auto fresh = std::make_unique<Region>();
        Region &region = *fresh;
        const std::lock_guard guard(lock_);
        all_.emplace(&region, std::move(fresh));
        return region;
    }
    void remove(const void *descriptor)
    {
        const std::lock_guard guard(lock_);
        all_.erase(descriptor);
    }
    bool hold(const Message &message, std::uint64_t access)
    {
        const std::lock_guard guard(lock_);
        const auto found = all_.find(message.descriptor);
        if (found == all_.end()) {
            return false;
        }
        const Region &region = *found->second;
        return (region.access & access) != 0 && message.bytes >= region.begin &&
               message.bytes + message.length <= region.begin + region.bytes;
    }

  private:
    std::mutex lock_;
    std::map<const void *, std::unique_ptr<Region>> all_;
};
Regions regions;

int close_region(fid *object)
{
    ++ofi_counts().released;
    regions.remove(object);
    return 0;
}

} // namespace

int info_in_guise(GetInfo *own, std::uint32_t version, const char *node, const char *service,
                  std::uint64_t flags, const fi_info *hints, fi_info **info)
{
    if (!guised()) {
        return own(version, node, service, flags, hints, info);
    }
    const OfiFaults &faults = ofi_faults();
    const Info wanted(hints == nullptr ? fi_allocinfo() : fi_dupinfo(hints));
    const bool lacks_prefix = faults.prefix != 0 && (wanted->mode & FI_MSG_PREFIX) == 0;
    const bool lacks_registration =
        faults.registers != 0 && (wanted->domain_attr->mr_mode & FI_MR_LOCAL) == 0;
    const bool by_ip = node != nullptr || of_ip(wanted->addr_format);
    const bool not_there = faults.domains != 0 && faults.heedless == 0 && by_ip;
    const bool threads = faults.single != 0 && wanted->domain_attr->threading == FI_THREAD_SAFE;
    if (lacks_prefix || lacks_registration || not_there || threads) {
        return -FI_ENODATA;
    }
    if (faults.verbs != 0) {
        if (const char *name = wanted->fabric_attr->prov_name; name != nullptr) {
            rename(wanted->fabric_attr->prov_name, own_name(name));
        }
    }
    if (faults.domains != 0) {
        wanted->addr_format = FI_SOCKADDR_IN;
        node = "127.0.0.1";
        flags |= FI_SOURCE;
    }
    int rc = own(version, node, service, flags, wanted.get(), info);
    if (rc != 0) {
        return rc;
    }
    if (faults.domains != 0) {
        const Info real(*info);
        *info = of_several_domains(*real, faults.domains);
    }
    for (fi_info *one = *info; one != nullptr; one = one->next) {
        if (faults.prefix != 0) {
            one->mode |= FI_MSG_PREFIX;
            one->ep_attr->msg_prefix_size = faults.prefix;
        }
        if (faults.registers != 0) {
            one->domain_attr->mr_mode |= FI_MR_LOCAL;
        }
        if (faults.single != 0) {
            one->domain_attr->threading = FI_THREAD_DOMAIN;
        }
        if (faults.verbs != 0 && std::strcmp(one->fabric_attr->prov_name, "udp") == 0) {
            rename(one->fabric_attr->prov_name, verbs);
        }
    }
    return 0;
}

fi_info *info_without_guise(const fi_info &info)
{
    const OfiFaults &faults = ofi_faults();
    fi_info *real = fi_dupinfo(&info);
    if (faults.prefix != 0) {
        real->mode &= ~FI_MSG_PREFIX;
        real->ep_attr->msg_prefix_size = 0;
    }
    if (faults.registers != 0) {
        real->domain_attr->mr_mode &= ~FI_MR_LOCAL;
    }
    if (faults.single != 0) {
        real->domain_attr->threading = FI_THREAD_SAFE;
    }
    if (real->fabric_attr->prov_name != nullptr) {
        rename(real->fabric_attr->prov_name, own_name(info.fabric_attr->prov_name));
    }
    if (faults.domains != 0) {
        real->addr_format = FI_SOCKADDR_IN;
        rename(real->domain_attr->name, real_domain);
    }
    return real;
}

const char *own_name(const char *provider)
{
    const bool guise = ofi_faults().verbs != 0 && provider != nullptr;
    return guise && std::strcmp(provider, verbs) == 0 ? "udp" : provider;
}

int register_memory(fid *, const void *memory, std::size_t bytes, std::uint64_t access,
                    std::uint64_t, std::uint64_t, std::uint64_t, fid_mr **out, void *context)
{
    if (const std::uint64_t error = ofi_faults().memory_error; error != 0) {
        ++ofi_counts().failed;
        return -static_cast<int>(error);
    }
    Region &region = regions.add();
    region.begin = static_cast<const std::byte *>(memory);
    region.bytes = bytes;
    region.access = access;
    region.ops.size = sizeof region.ops;
    region.ops.close = close_region;
    region.object.fid.fclass = FI_CLASS_MR;
    region.object.fid.context = context;
    region.object.fid.ops = &region.ops;
    region.object.mem_desc = &region;
    *out = &region.object;
    ++ofi_counts().registered;
    return 0;
}

bool take_message(Message &message, std::uint64_t access)
{
    const OfiFaults &faults = ofi_faults();
    if (faults.registers != 0) {
        if (access != 0 && !regions.hold(message, access)) {
            ++ofi_counts().unregistered;
            return false;
        }
        message.descriptor = nullptr; // the real provider knows none
    }
    if (message.length < faults.prefix) {
        ++ofi_counts().without_prefix;
        return false;
    }
    std::memset(message.bytes, 0xee, faults.prefix);
    message.bytes += faults.prefix;
    message.length -= faults.prefix;
    return true;
}

} // namespace ft::test

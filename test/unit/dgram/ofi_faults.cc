#include "test/unit/dgram/ofi_faults.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "test/unit/dgram/ofi_guise.hpp"

namespace ft::test {

namespace {

struct Name {
    std::string_view name;
    std::uint64_t OfiFaults::*value;
};
constexpr std::array names{
    Name{"inject", &OfiFaults::inject},
    Name{"queue", &OfiFaults::queue},
    Name{"send_error", &OfiFaults::send_error},
    Name{"receive_error", &OfiFaults::receive_error},
    Name{"after", &OfiFaults::after},
    Name{"count", &OfiFaults::count},
    Name{"send_queue_error", &OfiFaults::send_queue_error},
    Name{"receive_queue_error", &OfiFaults::receive_queue_error},
    Name{"post_error", &OfiFaults::post_error},
    Name{"addresses", &OfiFaults::addresses},
    Name{"nothing", &OfiFaults::nothing},
    Name{"prefix", &OfiFaults::prefix},
    Name{"registers", &OfiFaults::registers},
    Name{"domains", &OfiFaults::domains},
    Name{"heedless", &OfiFaults::heedless},
    Name{"single", &OfiFaults::single},
    Name{"verbs", &OfiFaults::verbs},
    Name{"memory_error", &OfiFaults::memory_error},
};

const char *rank_of_job()
{
    const char *rank = std::getenv("OMPI_COMM_WORLD_RANK");
    return rank == nullptr ? "-" : rank;
}

OfiFaults from_environment()
{
    OfiFaults faults;
    const char *given = std::getenv("FT_OFI_FAULTS");
    std::string_view rest = given == nullptr ? "" : given;
    while (!rest.empty()) {
        const std::string word(rest.substr(0, rest.find(',')));
        rest.remove_prefix(std::min(rest.size(), word.size() + 1));
        const std::size_t equal = std::min(word.find('='), word.size() - 1);
        const std::string_view name(word.data(), equal);
        const char *value = word.c_str() + equal + 1;
        if (name == "rank" && std::strcmp(value, rank_of_job()) != 0) {
            return {}; // meant for another process
        }
        for (const Name &known : names) {
            if (known.name == name) {
                faults.*known.value = std::strtoull(value, nullptr, 10);
            }
        }
    }
    return faults;
}

/// Says at the end of a process of a job what it did there.
struct Report {
    ~Report()
    {
        if (std::getenv("FT_OFI_FAULTS") != nullptr) {
            const OfiCounts &c = ofi_counts();
            std::fprintf(stderr,
                         "ofi_faults[rank %s]: sends=%" PRIu64 " injects=%" PRIu64
                         " no_room=%" PRIu64 " failed=%" PRIu64 " refused=%" PRIu64
                         " registered=%" PRIu64 " released=%" PRIu64 " unregistered=%" PRIu64
                         " without_prefix=%" PRIu64 " overlaps=%" PRIu64 "\n",
                         rank_of_job(), c.sends, c.injects, c.no_room, c.failed, c.refused,
                         c.registered, c.released, c.unregistered, c.without_prefix, c.overlaps);
        }
    }
};
const Report report;

template <typename Function>
Function *real(const char *name)
{
    return reinterpret_cast<Function *>(dlsym(RTLD_NEXT, name));
}

/// Who is in a domain.
using Inside = std::atomic<int>;

/// One call into it.
class Call {
  public:
    explicit Call(const std::shared_ptr<Inside> &domain) : domain_(domain)
    {
        if (ofi_faults().single == 0) {
            return;
        }
        if (domain_->fetch_add(1) != 0) {
            ++std::atomic_ref(ofi_counts().overlaps);
        }
        // Stays for long enough that another one would be met, but gives nobody its core.
        for (int i = 0; i < 500; ++i) {
            static_cast<void>(domain_->load());
        }
    }
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;
    ~Call()
    {
        if (ofi_faults().single != 0) {
            domain_->fetch_sub(1);
        }
    }

  private:
    const std::shared_ptr<Inside> domain_;
};

/// A send that waits for its completion queue to be looked at.
struct Waiting {
    Message message;
    fi_addr_t peer;
    void *context;
};

/// An endpoint's message operations, its own and ours.
struct Endpoint {
    fid_ep *object = nullptr;
    fi_ops *own_fid = nullptr;
    fi_ops fid{};
    fi_ops_msg *own = nullptr;
    fi_ops_msg messages{};
    std::deque<Waiting> waiting;
    std::shared_ptr<Inside> domain;
};

struct Completion {
    fi_cq_msg_entry entry{};
    int error = 0;
};

struct Queue {
    fi_ops_cq *own = nullptr;
    fi_ops_cq ops{};
    Endpoint *sends = nullptr; ///< whose sends it completes; nullptr: it completes receives
    std::deque<Completion> done;
    std::shared_ptr<Inside> domain;
};

struct Addresses {
    fi_ops_av *own = nullptr;
    fi_ops_av ops{};
    std::shared_ptr<Inside> domain;
};

/// Domains and fabrics, which only open other things.
struct Opener {
    fi_ops_fabric *own_fabric = nullptr;
    fi_ops_fabric fabric{};
    fi_ops_domain *own_domain = nullptr;
    fi_ops_domain domain{};
    fi_ops_mr memory{};
    std::shared_ptr<Inside> inside = std::make_shared<Inside>(); ///< of a domain
};

/// By the provider's objects. What was closed is kept until another lies in its place: the provider
/// may still use the operations.
template <typename State>
class Register {
  public:
    State &fresh(const void *object)
    {
        const std::lock_guard guard(lock_);
        auto &place = all_[object];
        place = std::make_unique<State>();
        return *place;
    }
    State &of(const void *object)
    {
        const std::lock_guard guard(lock_);
        return *all_.at(object);
    }

  private:
    std::mutex lock_;
    std::unordered_map<const void *, std::unique_ptr<State>> all_;
};
Register<Endpoint> endpoints;
Register<Queue> queues;
Register<Addresses> vectors;
Register<Opener> openers;

/// The space in front of a message is the provider's to write to, also of one that is sent.
std::byte *writable(const void *bytes)
{
    return static_cast<std::byte *>(const_cast<void *>(bytes));
}

ssize_t send(fid_ep *object, const void *bytes, std::size_t length, void *descriptor,
             fi_addr_t peer, void *context)
{
    Endpoint &endpoint = endpoints.of(object);
    const Call call(endpoint.domain);
    const OfiFaults &faults = ofi_faults();
    if (faults.post_error != 0 && ofi_counts().sends >= faults.after) {
        ++ofi_counts().failed;
        return -static_cast<ssize_t>(faults.post_error);
    }
    if (faults.queue != 0 && endpoint.waiting.size() >= faults.queue) {
        ++ofi_counts().no_room;
        return -FI_EAGAIN;
    }
    Message message{writable(bytes), length, descriptor};
    if (!take_message(message, FI_SEND)) {
        return -FI_EINVAL;
    }
    ++ofi_counts().sends;
    if (faults.queue == 0) {
        return endpoint.own->send(object, message.bytes, message.length, message.descriptor, peer,
                                  context);
    }
    endpoint.waiting.push_back({message, peer, context});
    return 0;
}

ssize_t inject(fid_ep *object, const void *bytes, std::size_t length, fi_addr_t peer)
{
    Endpoint &endpoint = endpoints.of(object);
    const Call call(endpoint.domain);
    Message message{writable(bytes), length, nullptr};
    if (length > ofi_faults().inject || !take_message(message, 0)) {
        return -FI_EINVAL;
    }
    ++ofi_counts().injects;
    return endpoint.own->inject(object, message.bytes, message.length, peer);
}

ssize_t receive(fid_ep *object, void *room, std::size_t length, void *descriptor, fi_addr_t peer,
                void *context)
{
    Endpoint &endpoint = endpoints.of(object);
    const Call call(endpoint.domain);
    Message message{static_cast<std::byte *>(room), length, descriptor};
    if (!take_message(message, FI_RECV)) {
        return -FI_EINVAL;
    }
    ++ofi_counts().receives;
    return endpoint.own->recv(object, message.bytes, message.length, message.descriptor, peer,
                              context);
}

void move_on(Endpoint &endpoint)
{
    while (!endpoint.waiting.empty()) {
        const Waiting &one = endpoint.waiting.front();
        if (endpoint.own->send(endpoint.object, one.message.bytes, one.message.length,
                               one.message.descriptor, one.peer, one.context) != 0) {
            return;
        }
        endpoint.waiting.pop_front();
    }
}

ssize_t read(fid_cq *object, void *room, std::size_t count)
{
    Queue &queue = queues.of(object);
    const Call call(queue.domain);
    const OfiFaults &faults = ofi_faults();
    const bool sends = queue.sends != nullptr;
    std::uint64_t &so_far =
        sends ? ofi_counts().send_completions : ofi_counts().receive_completions;
    const std::uint64_t broken = sends ? faults.send_queue_error : faults.receive_queue_error;
    if (broken != 0 && so_far >= faults.after) {
        ++ofi_counts().failed;
        return -static_cast<ssize_t>(broken);
    }
    if (sends) {
        move_on(*queue.sends);
    }
    std::array<fi_cq_msg_entry, 16> fresh;
    const ssize_t came =
        queue.own->read(object, fresh.data(), std::min<std::size_t>(count, fresh.size()));
    const std::uint64_t error = sends ? faults.send_error : faults.receive_error;
    for (ssize_t i = 0; i < came; ++i, ++so_far) {
        const bool fails =
            error != 0 && so_far >= faults.after && so_far - faults.after < faults.count;
        ofi_counts().failed += fails ? 1 : 0;
        fresh[static_cast<std::size_t>(i)].len += sends ? 0 : faults.prefix;
        queue.done.push_back(
            {fresh[static_cast<std::size_t>(i)], fails ? static_cast<int>(error) : 0});
    }
    if (queue.done.empty()) {
        return came;
    }
    std::size_t given = 0;
    while (given < count && !queue.done.empty() && queue.done.front().error == 0) {
        static_cast<fi_cq_msg_entry *>(room)[given++] = queue.done.front().entry;
        queue.done.pop_front();
    }
    return given == 0 ? -FI_EAVAIL : static_cast<ssize_t>(given);
}

ssize_t readerr(fid_cq *object, fi_cq_err_entry *room, std::uint64_t flags)
{
    Queue &queue = queues.of(object);
    const Call call(queue.domain);
    if (queue.done.empty() || queue.done.front().error == 0) {
        return queue.own->readerr(object, room, flags);
    }
    if (ofi_faults().mute) {
        return -FI_EIO;
    }
    const Completion &front = queue.done.front();
    room->op_context = front.entry.op_context;
    room->flags = front.entry.flags;
    room->len = 0;
    room->err = front.error;
    queue.done.pop_front();
    return 1;
}

int bind(fid *object, fid *other, std::uint64_t flags)
{
    Endpoint &endpoint = endpoints.of(object);
    if (other->fclass == FI_CLASS_CQ && (flags & FI_TRANSMIT) != 0) {
        queues.of(other).sends = &endpoint;
    }
    return endpoint.own_fid->bind(object, other, flags);
}

int open_endpoint(fid_domain *domain, fi_info *info, fid_ep **out, void *context)
{
    fi_info *real = info_without_guise(*info);
    const int rc = openers.of(domain).own_domain->endpoint(domain, real, out, context);
    fi_freeinfo(real);
    if (rc == 0) {
        fid_ep *object = *out;
        Endpoint &endpoint = endpoints.fresh(object);
        endpoint.object = object;
        endpoint.domain = openers.of(domain).inside;
        endpoint.own_fid = object->fid.ops;
        endpoint.fid = *object->fid.ops;
        endpoint.fid.bind = bind;
        object->fid.ops = &endpoint.fid;
        endpoint.own = object->msg;
        endpoint.messages = *object->msg;
        endpoint.messages.send = send;
        endpoint.messages.inject = inject;
        endpoint.messages.recv = receive;
        object->msg = &endpoint.messages;
    }
    return rc;
}

int insert(fid_av *object, const void *address, std::size_t count, fi_addr_t *place,
           std::uint64_t flags, void *context)
{
    const Call call(vectors.of(object).domain);
    OfiCounts &counts = ofi_counts();
    if (counts.addresses + count > ofi_faults().addresses) {
        counts.refused += count;
        return 0;
    }
    counts.addresses += count;
    return vectors.of(object).own->insert(object, address, count, place, flags, context);
}

int remove(fid_av *object, fi_addr_t *places, std::size_t count, std::uint64_t flags)
{
    const Addresses &vector = vectors.of(object);
    const Call call(vector.domain);
    return vector.own->remove(object, places, count, flags);
}

int open_vector(fid_domain *domain, fi_av_attr *attributes, fid_av **out, void *context)
{
    const int rc = openers.of(domain).own_domain->av_open(domain, attributes, out, context);
    if (rc == 0) {
        Addresses &vector = vectors.fresh(*out);
        vector.own = (*out)->ops;
        vector.ops = *(*out)->ops;
        vector.ops.insert = insert;
        vector.ops.remove = remove;
        vector.domain = openers.of(domain).inside;
        (*out)->ops = &vector.ops;
    }
    return rc;
}

int open_queue(fid_domain *domain, fi_cq_attr *attributes, fid_cq **out, void *context)
{
    const int rc = openers.of(domain).own_domain->cq_open(domain, attributes, out, context);
    if (rc == 0) {
        Queue &queue = queues.fresh(*out);
        if (attributes->format != FI_CQ_FORMAT_MSG) {
            return rc; // btl/ofi's, with entries that only its context fits
        }
        queue.domain = openers.of(domain).inside;
        queue.own = (*out)->ops;
        queue.ops = *(*out)->ops;
        queue.ops.read = read;
        queue.ops.readerr = readerr;
        (*out)->ops = &queue.ops;
    }
    return rc;
}

int open_domain(fid_fabric *fabric, fi_info *info, fid_domain **out, void *context)
{
    fi_info *real = info_without_guise(*info);
    const int rc = openers.of(fabric).own_fabric->domain(fabric, real, out, context);
    fi_freeinfo(real);
    if (rc == 0) {
        Opener &opener = openers.fresh(*out);
        opener.own_domain = (*out)->ops;
        opener.domain = *(*out)->ops;
        opener.domain.av_open = open_vector;
        opener.domain.cq_open = open_queue;
        opener.domain.endpoint = open_endpoint;
        (*out)->ops = &opener.domain;
        if (ofi_faults().registers != 0) {
            opener.memory.size = sizeof opener.memory;
            opener.memory.reg = register_memory;
            (*out)->mr = &opener.memory;
        }
    }
    return rc;
}

} // namespace

OfiFaults &ofi_faults() noexcept
{
    static OfiFaults faults = from_environment();
    return faults;
}

OfiCounts &ofi_counts() noexcept
{
    static OfiCounts counts;
    return counts;
}

} // namespace ft::test

// In place of libfabric's own.
extern "C" {

int fi_getinfo(std::uint32_t version, const char *node, const char *service, std::uint64_t flags,
               const fi_info *hints, fi_info **info)
{
    static auto *const own = ft::test::real<decltype(fi_getinfo)>("fi_getinfo");
    if (ft::test::ofi_faults().nothing != 0) {
        return -FI_ENODATA;
    }
    const int rc = ft::test::info_in_guise(own, version, node, service, flags, hints, info);
    for (fi_info *one = rc == 0 ? *info : nullptr; one != nullptr; one = one->next) {
        one->tx_attr->inject_size =
            std::min<std::size_t>(one->tx_attr->inject_size, ft::test::ofi_faults().inject);
    }
    return rc;
}

/// By which the folder of adapters is opened.
int openat(int folder, const char *path, int flags, ...)
{
    static auto *const own = ft::test::real<decltype(openat)>("openat");
    mode_t mode = 0;
    if (__OPEN_NEEDS_MODE(flags)) {
        std::va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    const bool adapters = std::strcmp(path, "/sys/class/infiniband") == 0;
    return own(folder, adapters && ft::test::ofi_faults().verbs != 0 ? "/" : path, flags, mode);
}

int fi_fabric(fi_fabric_attr *attributes, fid_fabric **out, void *context)
{
    static auto *const own = ft::test::real<decltype(fi_fabric)>("fi_fabric");
    fi_fabric_attr real = *attributes;
    real.prov_name = const_cast<char *>(ft::test::own_name(attributes->prov_name));
    const int rc = own(&real, out, context);
    if (rc == 0) {
        auto &opener = ft::test::openers.fresh(*out);
        opener.own_fabric = (*out)->ops;
        opener.fabric = *(*out)->ops;
        opener.fabric.domain = ft::test::open_domain;
        (*out)->ops = &opener.fabric;
    }
    return rc;
}

} // extern "C"

// The channel decides to connect in one event (send_nb of oob/tcp, or an address that has refused)
// and does so in another one (mca_oob_tcp_peer_try_connect). If it takes the peer's own connection
// in between, the second closes that one's socket and leaves its events behind. So such an event is
// taken from the queue when the channel says that there is a connection.
#include "orte_glue/radixft/connecting.hpp"

#include <exception>
#include <vector>

#include <dlfcn.h>

namespace ft::radixft {

namespace {

/// As far as they are of interest, the objects of oob/tcp, whose header is not installed: a peer,
/// and an attempt to connect to it.
struct Peer {
    opal_list_item_t super;
    orte_process_name_t name;
};
struct Attempt {
    opal_object_t super;
    Peer *peer;
    opal_event_t event;
};

/// What tells these objects from others. All null, and nothing is found, where the channel is
/// another one.
struct Marks {
    const void *try_connect = nullptr;
    const void *attempt_class = nullptr;
    const void *peer_class = nullptr;

    Marks()
    {
        // It is loaded: it has just told of a connection.
        void *const tcp = dlopen("mca_oob_tcp.so", RTLD_LAZY | RTLD_NOLOAD);
        const auto find = [tcp](const char *name) {
            return dlsym(tcp != nullptr ? tcp : RTLD_DEFAULT, name);
        };
        try_connect = find("mca_oob_tcp_peer_try_connect");
        attempt_class = find("mca_oob_tcp_conn_op_t_class");
        peer_class = find("mca_oob_tcp_peer_t_class");
        if (tcp != nullptr) {
            dlclose(tcp);
        }
    }
};

/// The attempt that an event is to make; null for every other event.
Attempt *attempt_of(const opal_event_t *event, const Marks &marks)
{
    if (marks.try_connect == nullptr ||
        reinterpret_cast<const void *>(event_get_callback(event)) != marks.try_connect) {
        return nullptr;
    }
    auto *const attempt = static_cast<Attempt *>(event_get_callback_arg(event));
    const bool as_known = attempt != nullptr && &attempt->event == event &&
                          attempt->super.obj_class == marks.attempt_class &&
                          attempt->peer != nullptr &&
                          attempt->peer->super.super.obj_class == marks.peer_class;
    return as_known ? attempt : nullptr;
}

struct Search {
    const Marks &marks;
    const orte_process_name_t &peer;
    std::vector<Attempt *> found;
};

int look_at(const struct event_base *, const struct event *event, void *data) noexcept
{
    auto &search = *static_cast<Search *>(data);
    if (Attempt *const attempt = attempt_of(event, search.marks);
        attempt != nullptr && attempt->peer->name.jobid == search.peer.jobid &&
        attempt->peer->name.vpid == search.peer.vpid) {
        search.found.push_back(attempt);
    }
    return 0;
}

} // namespace

bool drop_attempts(const orte_process_name_t &peer) noexcept
try {
    static const Marks marks;
    Search search{.marks = marks, .peer = peer, .found = {}};
    event_base_foreach_event(orte_event_base, look_at, &search);
    for (Attempt *attempt : search.found) {
        opal_event_del(&attempt->event);
        OBJ_RELEASE(attempt);
    }
    return !search.found.empty();
} catch (const std::exception &) {
    return false;
}

} // namespace ft::radixft

// What OobPeer does with the objects of Open MPI's own oob/tcp, against that component itself: a
// part of the runtime's that it needs is put up here, and the other daemon is played by the test.
#include "orte_glue/radixft/oob_tcp.hpp"
#include "orte_glue/radixft/oob_tcp_objects.hpp"
#include "test/unit/cmocka.hpp"

#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>

using ft::radixft::OobHeader;
using ft::radixft::OobPeer;

namespace {

constexpr int patience_ms = 30'000;
constexpr int priorities = 8; // as the runtime has

/// mca_oob_tcp_module, whose header is not installed.
struct Module {
    void (*accept_connection)(int, const sockaddr *);
    void (*ping)(const orte_process_name_t *);
};

mca_oob_base_component_t *tcp = nullptr;
const Module *module = nullptr;
int server = -1;
std::string uri;

orte_process_name_t daemon(orte_vpid_t vpid)
{
    return {.jobid = ORTE_PROC_MY_NAME->jobid, .vpid = vpid};
}

/// The channel decides to connect to a daemon that it knows, and will do so when the loop runs.
void decide_to_connect(orte_vpid_t vpid)
{
    orte_process_name_t name = daemon(vpid);
    std::array<char *, 2> uris{uri.data(), nullptr};
    tcp->set_addr(&name, uris.data());
    module->ping(&name);
}

/// How many connections the channel opens when the loop runs. They stay open: of one that breaks it
/// would tell the rest of the runtime, which is not there.
int connections()
{
    event_base_loop(orte_event_base, EVLOOP_NONBLOCK);
    int count = 0;
    pollfd door{.fd = server, .events = POLLIN, .revents = 0};
    while (poll(&door, 1, count == 0 ? patience_ms : 0) == 1) {
        count += accept(server, nullptr, nullptr) >= 0 ? 1 : 0;
    }
    return count;
}

void an_attempt_connects(void **)
{
    decide_to_connect(1);
    decide_to_connect(2);
    assert_int_equal(connections(), 2);
}

void one_that_is_dropped_does_not(void **)
{
    decide_to_connect(3);
    decide_to_connect(4);
    const bool known = OobPeer::find(5).has_value();
    auto peer = OobPeer::find(3);
    assert_true(peer.has_value());
    const bool dropped = peer->drop_attempts();
    const bool again = peer->drop_attempts();
    assert_false(known);
    assert_true(dropped);
    assert_false(again);
    assert_int_equal(connections(), 1);
}

constexpr orte_rml_tag_t tag = 4711;

/// The other end of a connection that the channel has opened to daemon `id`. It stays open too.
struct Far {
    int socket = -1;

    explicit Far(orte_vpid_t id)
    {
        decide_to_connect(id);
        event_base_loop(orte_event_base, EVLOOP_NONBLOCK);
        socket = accept4(server, nullptr, nullptr, SOCK_CLOEXEC);
        // Its own greeting, with the names exchanged, is what it wants to hear.
        std::array<char, ft::radixft::oob_greeting_bytes> greeting{};
        run_until([&] { return readable() >= static_cast<int>(greeting.size()); });
        assert_int_equal(recv(socket, greeting.data(), greeting.size(), MSG_WAITALL),
                         greeting.size());
        OobHeader header{};
        std::memcpy(&header, greeting.data(), sizeof header);
        std::swap(header.origin, header.destination);
        std::memcpy(greeting.data(), &header, sizeof header);
        write({greeting.data(), greeting.size()});
        run_until([id] { return !(OobPeer::find(id)->ports() == ft::radixft::Ports{}); });
    }

    void write(std::string_view bytes) const
    {
        assert_int_equal(send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL), bytes.size());
    }
    int readable() const
    {
        int bytes = 0;
        assert_int_equal(ioctl(socket, FIONREAD, &bytes), 0);
        return bytes;
    }
    template <typename Condition>
    static void run_until(Condition condition)
    {
        for (int i = 0; i < patience_ms && !condition(); ++i) {
            event_base_loop(orte_event_base, EVLOOP_NONBLOCK);
            poll(nullptr, 0, condition() ? 0 : 1);
        }
        assert_true(condition());
    }
};

/// A message of daemon `from`, as the channel writes it.
std::string message(orte_vpid_t from, std::string_view text)
{
    OobHeader header{};
    header.origin = daemon(from);
    header.destination = *ORTE_PROC_MY_NAME;
    ORTE_PROCESS_NAME_HTON(header.origin);
    ORTE_PROCESS_NAME_HTON(header.destination);
    header.tag = ORTE_RML_TAG_HTON(tag);
    header.bytes = htonl(static_cast<std::uint32_t>(text.size()));
    header.type = 4; // of a user
    return std::string(reinterpret_cast<const char *>(&header), sizeof header).append(text);
}

/// What the channel has delivered since the last time.
std::vector<std::string> delivered()
{
    event_base_loop(orte_event_base, EVLOOP_NONBLOCK);
    std::vector<std::string> found;
    while (opal_list_item_t *item = opal_list_remove_first(&orte_rml_base.unmatched_msgs)) {
        const auto &one = *reinterpret_cast<orte_rml_recv_t *>(item);
        found.emplace_back(static_cast<const char *>(one.iov.iov_base), one.iov.iov_len);
        OBJ_RELEASE(item);
    }
    return found;
}

using Texts = std::vector<std::string>;

void the_rest_of_an_old_connection_is_taken(void **)
{
    const Far far(6);
    const std::string first = message(6, "first");
    const std::string second = message(6, std::string(20'000, 's')); // in several pieces
    const std::string third = message(6, "third");
    far.write(first.substr(0, 20));
    auto peer = OobPeer::find(6);
    Far::run_until([&] { return peer->progress().has_value(); });
    delivered(); // the channel has the first 20 bytes
    far.write(first.substr(20) + second + third.substr(0, third.size() - 1));
    const auto old = peer->socket();
    const std::uint64_t all = first.size() + second.size() + third.size() - 1;
    // The loop does not run, or the channel would read it by itself.
    int unread = 0;
    for (int i = 0; i < patience_ms && unread != static_cast<int>(all) - 20; ++i) {
        poll(nullptr, 0, 1);
        assert_int_equal(ioctl(old.number(), FIONREAD, &unread), 0);
    }
    const std::uint64_t had = peer->take_rest(old.number());
    assert_int_equal(had, all);
    Texts texts;
    for (const std::string &text : delivered()) {
        texts.push_back(text);
    }
    assert_true((texts == Texts{"first", std::string(20'000, 's')}));
    assert_true(peer->open());
    // And the next one, with the one again that was cut in two.
    peer->begin_anew();
    far.write(third);
    Far::run_until([&] {
        for (const std::string &text : delivered()) {
            texts.push_back(text);
        }
        return texts.size() > 2;
    });
    assert_true((texts == Texts{"first", std::string(20'000, 's'), "third"}));
}

void nothing_comes_over_one_that_is_given_up(void **)
{
    const Far far(7);
    auto peer = OobPeer::find(7);
    const bool stalled = peer->break_off_stalled();
    const bool given_up = peer->give_up();
    const auto old = peer->socket();
    far.write(message(7, "too late"));
    int unacknowledged = 0;
    for (int i = 0; i < 20 && unacknowledged == 0; ++i) {
        assert_int_equal(ioctl(far.socket, TIOCOUTQ, &unacknowledged), 0);
    }
    const std::uint64_t had = peer->take_rest(old.number());
    assert_false(stalled);
    assert_true(given_up);
    assert_int_not_equal(unacknowledged, 0);
    assert_int_equal(had, 0);
}

void tcp_tries_again_each_second(void **)
{
    const Far far(8);
    auto peer = OobPeer::find(8);
    constexpr int rto_max_ms = 44; // TCP_RTO_MAX_MS of Linux 6.15
    const auto another = peer->socket();
    const int at_first = 120'000;
    const bool can = setsockopt(another.number(), IPPROTO_TCP, rto_max_ms, &at_first,
                                sizeof at_first) == 0; // else the kernel is an earlier one
    const bool does = peer->keep_trying();
    const auto option = [&](int number) {
        int value = 0;
        socklen_t size = sizeof value;
        getsockopt(another.number(), IPPROTO_TCP, number, &value, &size);
        return value;
    };
    assert_int_equal(does, can);
    assert_int_equal(option(rto_max_ms), can ? 1000 : 0);
    assert_int_equal(option(TCP_USER_TIMEOUT), can ? 924'600 : 0);
}

int start(void **)
{
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (opal_init_util(nullptr, nullptr) != OPAL_SUCCESS ||
        bind(server, reinterpret_cast<const sockaddr *>(&address), size) != 0 ||
        listen(server, priorities) != 0 ||
        getsockname(server, reinterpret_cast<sockaddr *>(&address), &size) != 0) {
        return -1;
    }
    uri = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    ORTE_PROC_MY_NAME->jobid = 4711U << 16U;
    ORTE_PROC_MY_NAME->vpid = 0;
    // What the channel tells of a connection, and where it leaves what comes.
    orte_routed.update_route = [](char *, orte_process_name_t *, orte_process_name_t *) -> int {
        return ORTE_SUCCESS;
    };
    OBJ_CONSTRUCT(&orte_oob_base.peers, opal_hash_table_t);
    opal_hash_table_init(&orte_oob_base.peers, 128);
    OBJ_CONSTRUCT(&orte_rml_base.posted_recvs, opal_list_t);
    OBJ_CONSTRUCT(&orte_rml_base.unmatched_msgs, opal_list_t);
    orte_event_base = event_base_new();
    event_base_priority_init(orte_event_base, priorities);
    const std::string path = std::string(mca_base_system_default_path) + "/mca_oob_tcp.so";
    void *const object = dlopen(path.c_str(), RTLD_NOW);
    if (object == nullptr) {
        print_error("%s\n", dlerror());
        return -1;
    }
    tcp = static_cast<mca_oob_base_component_t *>(dlsym(object, "mca_oob_tcp_component"));
    module = static_cast<const Module *>(dlsym(object, "mca_oob_tcp_module"));
    return tcp != nullptr && module != nullptr &&
                   tcp->oob_base.mca_register_component_params() == OPAL_SUCCESS &&
                   tcp->oob_base.mca_open_component() == OPAL_SUCCESS
               ? 0
               : -1;
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(an_attempt_connects),
        cmocka_unit_test(one_that_is_dropped_does_not),
        cmocka_unit_test(the_rest_of_an_old_connection_is_taken),
        cmocka_unit_test(tcp_tries_again_each_second),
        // Last: the loop would find that connection ended, and tell the rest of the runtime.
        cmocka_unit_test(nothing_comes_over_one_that_is_given_up),
    };
    return cmocka_run_group_tests(tests, start, nullptr);
}

// Attempts of Open MPI's own oob/tcp to connect, which drop_attempts() finds by what it knows of
// that component's objects.
#include "orte_glue/radixft/connecting.hpp"
#include "test/unit/cmocka.hpp"

#include <array>
#include <string>

#include <dlfcn.h>
#include <poll.h>

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
    return {.jobid = 4711U << 16U, .vpid = vpid};
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
    const bool unknown = ft::radixft::drop_attempts(daemon(5));
    const bool dropped = ft::radixft::drop_attempts(daemon(3));
    const bool again = ft::radixft::drop_attempts(daemon(3));
    assert_false(unknown);
    assert_true(dropped);
    assert_false(again);
    assert_int_equal(connections(), 1);
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
    };
    return cmocka_run_group_tests(tests, start, nullptr);
}

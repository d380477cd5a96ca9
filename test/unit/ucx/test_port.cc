// Two ports of one process, over each transport that every machine has.
#include "opal/mca/btl/ucx/port.hpp"
#include "test/unit/cmocka.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

using namespace ft::ucx;

namespace {

constexpr std::uint32_t fragment = 65528;
constexpr int passes = 1'000'000;

struct Events final : PortEvents {
    void take(std::span<const std::byte> message) noexcept override
    {
        ++messages;
        last.assign(message.begin(), message.end());
    }
    void broken(uct_ep_h, ucs_status_t) noexcept override { ++breaks; }
    int messages = 0;
    int breaks = 0;
    Bytes last;
};

std::unique_ptr<Port> open(const char *transport, std::string &why)
{
    const std::vector<Resource> all = resources();
    for (const Resource &resource : all) {
        if (resource.transport == transport &&
            (resource.shared_memory || resource.device == "lo")) {
            return Port::open(resource, all, ConnectBy::automatic, fragment, why);
        }
    }
    why = "no such transport here";
    return nullptr;
}

template <typename Condition>
bool turn(Port &a, Port &b, Condition done)
{
    for (int pass = 0; pass < passes && !done(); ++pass) {
        a.progress();
        b.progress();
        a.look_for_connections();
        b.look_for_connections();
    }
    return done();
}

std::size_t pack(void *to, void *from)
{
    const auto &bytes = *static_cast<const Bytes *>(from);
    std::memcpy(to, bytes.data(), bytes.size());
    return bytes.size();
}

/// What went wrong, empty when nothing did.
std::string talk(const char *transport)
{
    std::string why;
    Events here;
    Events there;
    const std::unique_ptr<Port> one = open(transport, why);
    const std::unique_ptr<Port> two = open(transport, why);
    if (one == nullptr || two == nullptr) {
        return why;
    }
    if (one->largest() < fragment) {
        return "messages of " + std::to_string(one->largest()) + " bytes, not what was asked for";
    }
    one->tell(here);
    two->tell(there);
    if (!one->reaches(two->address())) {
        return "out of reach";
    }
    ucs_status_t status = UCS_OK;
    uct_ep_h way = one->connect(two->address(), status);
    if (way == nullptr) {
        return ucs_status_string(status);
    }
    for (const std::size_t size :
         {std::size_t{8}, std::size_t{9}, std::size_t{5000}, std::size_t{fragment}}) {
        Bytes bytes(size);
        for (std::size_t i = 0; i < size; ++i) {
            bytes[i] = static_cast<std::byte>(i * 7 + size);
        }
        const int before = there.messages;
        ssize_t sent = UCS_ERR_NO_RESOURCE;
        turn(*one, *two, [&] {
            sent = sent == UCS_ERR_NO_RESOURCE ? uct_ep_am_bcopy(way, message_id, pack, &bytes, 0)
                                               : sent;
            return sent != UCS_ERR_NO_RESOURCE;
        });
        if (!turn(*one, *two, [&] { return there.messages > before; }) || there.last != bytes) {
            why = std::to_string(size) + " bytes did not arrive as they were sent";
        }
    }
    uct_ep_destroy(way);
    return why.empty() && here.messages + here.breaks + there.breaks != 0 ? "something else came"
                                                                          : why;
}

void tcp_carries(void **)
{
    assert_string_equal(talk("tcp").c_str(), "");
}
void posix_carries(void **)
{
    assert_string_equal(talk("posix").c_str(), "");
}
void sysv_carries(void **)
{
    assert_string_equal(talk("sysv").c_str(), "");
}

/// A port of that transport which is gone: its address leads nowhere.
std::string refusal()
{
    std::string why;
    Events events;
    const std::unique_ptr<Port> one = open("tcp", why);
    std::unique_ptr<Port> two = open("tcp", why);
    if (one == nullptr || two == nullptr) {
        return why;
    }
    one->tell(events);
    const Address address = two->address();
    two.reset();
    ucs_status_t status = UCS_OK;
    uct_ep_h way = one->connect(address, status);
    bool told = way == nullptr;
    for (int pass = 0; pass < passes && !told; ++pass) {
        Bytes bytes(8);
        const ssize_t sent = uct_ep_am_bcopy(way, message_id, pack, &bytes, 0);
        told = events.breaks != 0 || (sent < 0 && sent != UCS_ERR_NO_RESOURCE);
        one->progress();
    }
    if (way != nullptr) {
        uct_ep_destroy(way);
    }
    return told ? "" : "nobody was told";
}

void who_is_gone_is_told(void **)
{
    assert_string_equal(refusal().c_str(), "");
}

/// What is said when endpoints cannot be connected as they would have to be.
std::string no_line()
{
    std::string why;
    for (const Resource &resource : resources()) {
        if (resource.transport == "tcp" && resource.device == "lo") {
            // Of all that there is: nothing that could carry the line.
            const auto port = Port::open(resource, {}, ConnectBy::endpoints, fragment, why);
            return port == nullptr ? why : "it opened";
        }
    }
    return "no tcp here";
}

void a_port_without_a_line_is_refused(void **)
{
    assert_non_null(std::strstr(no_line().c_str(), "btl/ucx needs ud on the same device"));
}

void a_line_is_there_when_it_is_needed_alone(void **)
{
    const std::vector<Resource> all = resources();
    const auto line_of = [&](const char *transport, ConnectBy connect) {
        for (const Resource &resource : all) {
            std::string why;
            if (resource.transport == transport &&
                (resource.shared_memory || resource.device == "lo")) {
                const auto port = Port::open(resource, all, connect, fragment, why);
                return port == nullptr ? why : port->has_line() ? port->line_transport() : "none";
            }
        }
        return std::string("no such transport here");
    };
    assert_string_equal(line_of("tcp", ConnectBy::automatic).c_str(), "none");
    assert_string_equal(line_of("tcp", ConnectBy::interfaces).c_str(), "none");
    assert_string_equal(line_of("tcp", ConnectBy::endpoints).c_str(), "tcp");
    assert_string_equal(line_of("posix", ConnectBy::endpoints).c_str(), "none");
}

/// The descriptors that a program gets which is started now.
std::string handed_down()
{
    std::string all;
    if (FILE *const list = popen("ls /proc/self/fd | tr '\\n' ' '", "r")) {
        char text[512] = "";
        while (std::fgets(text, sizeof text, list) != nullptr) {
            all += text;
        }
        pclose(list);
    }
    return all;
}

/// \param between what happens when one port has begun to send to another \return what went wrong
template <typename Between>
std::string sends_over_tcp(Between between)
{
    std::string why;
    Events here;
    Events there;
    const std::unique_ptr<Port> one = open("tcp", why);
    const std::unique_ptr<Port> two = open("tcp", why);
    if (one == nullptr || two == nullptr) {
        return why;
    }
    one->tell(here);
    two->tell(there);
    ucs_status_t status = UCS_OK;
    uct_ep_h way = one->connect(two->address(), status);
    if (way == nullptr) {
        return ucs_status_string(status);
    }
    between(*one, *two);
    Bytes bytes(100);
    bool sent = false;
    const bool came = turn(*one, *two, [&] {
        sent = sent || uct_ep_am_bcopy(way, message_id, pack, &bytes, 0) >= 0;
        return there.messages == 1;
    });
    why = came ? handed_down() : "it did not come";
    uct_ep_destroy(way);
    return why;
}

void programs_that_are_started_get_no_descriptor_of_ucx(void **)
{
    const std::string before = handed_down();
    const std::string after = sends_over_tcp([](Port &, Port &) {});
    assert_string_equal(after.c_str(), before.c_str());
}

void nor_those_of_shared_memory(void **)
{
    for (const char *transport : {"posix", "sysv"}) {
        const std::string before = handed_down();
        std::string why;
        const std::unique_ptr<Port> port = open(transport, why);
        assert_string_equal(why.c_str(), "");
        assert_string_equal(handed_down().c_str(), before.c_str());
    }
}

void nor_those_of_endpoints_that_are_connected_one_to_one(void **)
{
    const std::vector<Resource> all = resources();
    const auto tcp = std::find_if(all.begin(), all.end(), [](const Resource &resource) {
        return resource.transport == "tcp" && resource.device == "lo";
    });
    assert_true(tcp != all.end());
    const std::string before = handed_down();
    std::string why;
    const auto one = Port::open(*tcp, all, ConnectBy::endpoints, fragment, why);
    const auto two = Port::open(*tcp, all, ConnectBy::endpoints, fragment, why);
    assert_string_equal(why.c_str(), "");
    ucs_status_t status = UCS_OK;
    uct_ep_h here = one->make_endpoint(status);
    uct_ep_h there = two->make_endpoint(status);
    assert_int_equal(status, UCS_OK);
    for (int i = 0; i < 2; ++i) { // one of them opens a connection
        const bool first = i == 0;
        Port &peer = first ? *two : *one;
        status = (first ? *one : *two)
                     .connect_endpoint(first ? here : there, peer.address().device,
                                       peer.endpoint_address(first ? there : here));
        assert_int_equal(status, UCS_OK);
    }
    assert_string_equal(handed_down().c_str(), before.c_str());
    uct_ep_destroy(here);
    uct_ep_destroy(there);
}

/// \return a socket that listens at 127.0.0.1, and its port as an address of UCX has it
std::pair<int, Bytes> listener()
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in bound{};
    bound.sin_family = AF_INET;
    bound.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof bound;
    assert_int_equal(bind(fd, reinterpret_cast<sockaddr *>(&bound), length), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, reinterpret_cast<sockaddr *>(&bound), &length), 0);
    Bytes address(sizeof bound.sin_port);
    std::memcpy(address.data(), &bound.sin_port, address.size());
    return {fd, address};
}

bool marked(int fd)
{
    return (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
}

void what_others_open_during_a_set_up_is_theirs(void **)
{
    Listeners listeners;
    std::pair<int, Bytes> mine;
    std::pair<int, Bytes> other;
    std::vector<int> others;
    int set = -1;
    listeners.during([&] {
        other = listener();
        mine = listener();
        set = epoll_create1(0);
        int ends[2] = {-1, -1};
        assert_int_equal(pipe(ends), 0);
        others.insert(others.end(), ends, ends + 2);
        assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
        others.insert(others.end(), ends, ends + 2);
        others.push_back(socket(AF_INET, SOCK_STREAM, 0));
        others.push_back(eventfd(0, 0));
        return 0;
    });
    others.push_back(other.first);
    listeners.adopt(mine.second);
    assert_true(marked(mine.first));
    assert_true(marked(set));
    assert_int_equal(std::count_if(others.begin(), others.end(), marked), 0);
    assert_int_equal(listeners.any(), mine.first);
    close(mine.first);
    close(set);
    for (const int fd : others) {
        close(fd);
    }
}

void a_number_that_is_another_files_now_is_left_alone(void **)
{
    int ends[2] = {-1, -1};
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    for (const bool looks : {true, false}) {
        Listeners listeners;
        std::pair<int, Bytes> mine;
        listeners.during([&] {
            mine = listener();
            return 0;
        });
        listeners.adopt(mine.second);
        assert_int_equal(listeners.any(), mine.first);
        assert_int_equal(listeners.waiting(), 0);
        assert_int_equal(dup2(ends[0], mine.first), mine.first); // closed, and used again
        assert_int_equal(looks ? static_cast<int>(listeners.waiting()) : listeners.any() + 1, 0);
        assert_true(listeners.none());
        close(mine.first);
    }
    close(ends[0]);
    close(ends[1]);
}

/// It is taken when there is one: UCX would end the process. Until then it is told.
void a_connection_waits_while_no_descriptor_is_free(void **)
{
    const std::string before = handed_down();
    int told = 0;
    const std::string after = sends_over_tcp([&](Port &one, Port &two) {
        rlimit limit{};
        getrlimit(RLIMIT_NOFILE, &limit);
        const rlimit few{std::min<rlim_t>(limit.rlim_cur, 256), limit.rlim_max};
        setrlimit(RLIMIT_NOFILE, &few);
        std::vector<int> held;
        for (int fd = 0; (fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)) >= 0;) {
            held.push_back(fd);
        }
        for (int pass = 0; pass < 1000; ++pass) {
            one.progress();
            two.progress();
            told += two.look_for_connections() ? 0 : 1;
        }
        for (const int fd : held) {
            close(fd);
        }
        setrlimit(RLIMIT_NOFILE, &limit);
    });
    assert_string_equal(after.c_str(), before.c_str());
    assert_true(told > 0);
}

} // namespace

int main()
{
    silence_ucx();
    const CMUnitTest tests[] = {
        cmocka_unit_test(tcp_carries),
        cmocka_unit_test(posix_carries),
        cmocka_unit_test(sysv_carries),
        cmocka_unit_test(who_is_gone_is_told),
        cmocka_unit_test(a_port_without_a_line_is_refused),
        cmocka_unit_test(a_line_is_there_when_it_is_needed_alone),
        cmocka_unit_test(programs_that_are_started_get_no_descriptor_of_ucx),
        cmocka_unit_test(nor_those_of_shared_memory),
        cmocka_unit_test(nor_those_of_endpoints_that_are_connected_one_to_one),
        cmocka_unit_test(what_others_open_during_a_set_up_is_theirs),
        cmocka_unit_test(a_number_that_is_another_files_now_is_left_alone),
        cmocka_unit_test(a_connection_waits_while_no_descriptor_is_free),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

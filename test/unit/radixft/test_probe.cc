// Knocks at a port of this host's, on an event base of the test's own.
#include "orte_glue/radixft/probe.hpp"
#include "test/unit/cmocka.hpp"

#include <optional>

#include <fcntl.h>
#include <sys/resource.h>

using namespace ft;
using namespace ft::radixft;

namespace {

constexpr auto patience = base::Duration::from_s(30);

int server = -1;
sockaddr_storage open_door{};
sockaddr_storage closed_door{};

Knock answer(const std::vector<sockaddr_storage> &addresses)
{
    std::optional<Knock> said;
    knock(addresses, patience, [&said](Knock what) { said = what; });
    while (!said) {
        event_base_loop(orte_event_base, EVLOOP_ONCE);
    }
    return *said;
}

/// No file can be opened while it lives.
class NoFiles {
  public:
    NoFiles()
    {
        getrlimit(RLIMIT_NOFILE, &before_);
        const int next = fcntl(0, F_DUPFD, 0);
        close(next);
        const rlimit none{.rlim_cur = static_cast<rlim_t>(next), .rlim_max = before_.rlim_max};
        setrlimit(RLIMIT_NOFILE, &none);
    }
    ~NoFiles() { setrlimit(RLIMIT_NOFILE, &before_); }
    NoFiles(const NoFiles &) = delete;
    NoFiles &operator=(const NoFiles &) = delete;

  private:
    rlimit before_{};
};

void a_port_answers(void **)
{
    assert_true(answer({open_door}) == Knock::accepted);
    assert_true(answer({closed_door}) == Knock::refused);
    assert_true(answer({closed_door, open_door}) == Knock::accepted);
    assert_true(answer({}) == Knock::silent);
}

void without_a_socket_nothing_is_said_of_the_host(void **)
{
    Knock one{};
    Knock none{};
    std::vector<Knock> each;
    {
        const NoFiles now;
        one = answer({open_door, closed_door});
        none = answer({});
        bool done = false;
        knock_at_each({open_door}, patience, [&](std::vector<Knock> answers) {
            each = std::move(answers);
            done = true;
        });
        while (!done) {
            event_base_loop(orte_event_base, EVLOOP_ONCE);
        }
    }
    assert_true(one == Knock::unasked);
    assert_true(none == Knock::silent);
    assert_true(each == std::vector{Knock::unasked});
    assert_true(answer({open_door}) == Knock::accepted);
}

bool bound(int fd, sockaddr_storage &name)
{
    auto &address = reinterpret_cast<sockaddr_in &>(name);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    return bind(fd, reinterpret_cast<const sockaddr *>(&address), size) == 0 &&
           getsockname(fd, reinterpret_cast<sockaddr *>(&address), &size) == 0;
}

int start(void **)
{
    orte_event_base = event_base_new();
    event_base_priority_init(orte_event_base, 8); // as the runtime has
    server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    // Bound, so that nobody else gets it, and not listened at.
    const int closed = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return bound(server, open_door) && listen(server, 64) == 0 && bound(closed, closed_door) ? 0
                                                                                             : -1;
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_port_answers),
        cmocka_unit_test(without_a_socket_nothing_is_said_of_the_host),
    };
    return cmocka_run_group_tests_name("probe", tests, start, nullptr);
}

// What btl/dgram asks of the kernel's UDP sockets, in how many calls, and what it makes of a kernel
// that takes no more, or has no way to a peer for a time. Over the loopback interface.
#include "opal/mca/btl/dgram/transport_udp.hpp"
#include "test/unit/cmocka.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <vector>

using namespace ft::dgram;

namespace {

constexpr std::size_t plenty = 1U << 30U;

struct Kernel {
    std::size_t room = plenty; ///< messages that its send buffers take before they are full
    int full = EAGAIN;         ///< what it says then
    std::size_t sent = 0;      ///< messages
    std::size_t longest = 0;   ///< bytes of the longest piece that came
    bool cuts = true;          ///< messages apart
    int shut = 0;              ///< what it says of the way to a peer, 0: there is one
    unsigned attempts = 0;     ///< to connect to one
    std::int64_t second = 0;   ///< at which its clock stands, 0: it goes

    /// \param wanted messages \return how many of them may go, or -1 and errno
    int admit(unsigned wanted) const noexcept
    {
        if (room == 0) {
            errno = full;
            return -1;
        }
        return static_cast<int>(std::min<std::size_t>(wanted, room));
    }
    long note(long messages) noexcept
    {
        if (messages > 0) {
            room -= static_cast<std::size_t>(messages);
            sent += static_cast<std::size_t>(messages);
        }
        return messages;
    }
    void came(long bytes) noexcept
    {
        longest = std::max(longest, static_cast<std::size_t>(std::max(bytes, 0L)));
    }
};
Kernel kernel;

} // namespace

// In place of the C library's own.

extern "C" long syscall(long number, ...) noexcept
{
    using Call = long (*)(long, ...);
    static const auto real = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "syscall"));
    std::array<long, 6> words{}; // whatever call it is, as the C library's own takes them
    va_list list;
    va_start(list, number);
    for (long &word : words) {
        word = va_arg(list, long);
    }
    va_end(list);
    if (number == SYS_sendto && kernel.admit(1) < 0) {
        return -1;
    }
    const long result = real(number, words[0], words[1], words[2], words[3], words[4], words[5]);
    if (number == SYS_sendto) {
        kernel.note(result < 0 ? -1 : 1);
    } else if (number == SYS_recvfrom) {
        kernel.came(result);
    }
    return result;
}

extern "C" ssize_t sendmsg(int fd, const msghdr *message, int flags)
{
    if (kernel.admit(1) < 0) {
        return -1;
    }
    const long result = syscall(SYS_sendmsg, fd, message, flags);
    kernel.note(result < 0 ? -1 : 1);
    return result;
}

extern "C" int sendmmsg(int fd, mmsghdr *messages, unsigned count, int flags)
{
    if (!kernel.cuts && messages[0].msg_hdr.msg_controllen != 0) {
        errno = EIO;
        return -1;
    }
    const int some = kernel.admit(count);
    return some < 0
               ? -1
               : static_cast<int>(kernel.note(syscall(SYS_sendmmsg, fd, messages, some, flags)));
}

extern "C" int connect(int fd, const sockaddr *name, socklen_t length)
{
    ++kernel.attempts;
    if (kernel.shut != 0) {
        errno = kernel.shut;
        return -1;
    }
    return static_cast<int>(syscall(SYS_connect, fd, name, length));
}

extern "C" int clock_gettime(clockid_t clock, timespec *time) noexcept
{
    const auto result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
    if (kernel.second != 0) {
        *time = {kernel.second, 0};
    }
    return result;
}

extern "C" int recvmmsg(int fd, mmsghdr *messages, unsigned count, int flags, timespec *end)
{
    const auto got = static_cast<int>(syscall(SYS_recvmmsg, fd, messages, count, flags, end));
    for (int i = 0; i < got; ++i) {
        kernel.came(messages[i].msg_len);
    }
    return got;
}

namespace {

constexpr std::size_t each = 1400;
/// Datagrams of that size that the kernel cuts out of one message.
constexpr std::size_t in_one_message = 65507 / each;

struct Kept final : Sink {
    std::vector<std::vector<std::byte>> datagrams;
    [[nodiscard]] std::size_t
    length_of_first(std::span<const std::byte> stretch) const noexcept override
    {
        return std::min(stretch.size(), each);
    }
    void take(std::span<const std::byte> datagram) noexcept override
    {
        datagrams.emplace_back(datagram.begin(), datagram.end());
    }
};

std::unique_ptr<Transport> opened(bool offload)
{
    UdpSettings settings;
    settings.offload = offload;
    std::string why;
    for (const Interface &interface : ft::btl::local_interfaces()) {
        if (interface.loopback && interface.address.is_v4()) {
            return open_udp(interface, settings, why);
        }
    }
    return nullptr;
}

/// A number of datagrams, no two alike, on their way from one transport to another.
struct Journey {
    std::unique_ptr<Transport> here;
    std::unique_ptr<Transport> there;
    std::unique_ptr<Channel> channel;
    std::vector<std::vector<std::byte>> contents;
    std::vector<Outgoing> out;
    Kept kept;

    Journey(std::size_t count, bool sends_offloaded, bool receives_joined = true)
        : here(opened(sends_offloaded)), there(opened(receives_joined))
    {
        kernel = {};
        std::string why;
        channel = here->connect(there->address(), why);
        contents.resize(count, std::vector<std::byte>(each));
        out.resize(count);
        for (std::size_t i = 0; i < count; ++i) {
            for (std::size_t j = 0; j < each; ++j) {
                contents[i][j] = static_cast<std::byte>(i * 7 + j * 31 + (i >> 8));
            }
            out[i].pieces[0] = {contents[i].data(), each};
        }
    }
    Journey(const Journey &) = delete;
    Journey &operator=(const Journey &) = delete;
    ~Journey() { kernel = {}; }

    SendResult send(std::size_t from, std::size_t count, std::size_t &taken)
    {
        taken = 0;
        return channel->send(std::span(out).subspan(from, count), taken);
    }
    /// Waits for so many. \return whether it is those that were sent first, in their order
    bool came(std::size_t count)
    {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (kept.datagrams.size() < count && std::chrono::steady_clock::now() < end) {
            static_cast<void>(there->receive(kept));
        }
        return kept.datagrams.size() == count &&
               std::equal(kept.datagrams.begin(), kept.datagrams.end(), contents.begin());
    }
};

/// System calls that it takes to send so many; 0 if they do not go, or do not come.
std::uint64_t calls_for(std::size_t count, bool offload)
{
    Journey journey(count, offload);
    std::size_t taken = 0;
    const bool went = journey.send(0, count, taken) == SendResult::ok && taken == count;
    return went && journey.came(count) ? journey.here->counters().calls_send : 0;
}

void many_go_in_one_call_where_the_kernel_cuts_them_apart(void **)
{
    const std::uint64_t cut = calls_for(128, true);
    const std::uint64_t singly = calls_for(128, false);
    assert_int_equal(cut, 1);
    assert_int_equal(singly, 8); // sixteen messages in each
}

/// How long the longest piece is as which they come; 0 if they do not go, or do not come.
std::size_t longest_piece(bool joined)
{
    Journey journey(128, true, joined);
    std::size_t taken = 0;
    const bool went = journey.send(0, 128, taken) == SendResult::ok && taken == 128;
    return went && journey.came(128) ? kernel.longest : 0;
}

/// How many it joins is the kernel's to decide; on the way over loopback nobody cuts a message
/// apart but for a socket that did not ask for joined ones.
void they_come_joined_where_that_is_asked_for(void **)
{
    const std::size_t joined = longest_piece(true);
    const std::size_t singly = longest_piece(false);
    assert_in_range(joined, 2 * each, in_one_message * each);
    assert_int_equal(joined % each, 0);
    assert_int_equal(singly, each);
}

constexpr std::array full_errors{EAGAIN, ENOBUFS, ENOMEM};

/// A send buffer with room for three messages each time. \return whether all that was as it is to
/// be
bool goes_by_threes(bool offload, int error)
{
    constexpr std::size_t all = 200;
    constexpr std::size_t messages = 3;
    const std::size_t fits = messages * (offload ? in_one_message : 1);
    Journey journey(all, offload);
    kernel.full = error;
    std::size_t done = 0;
    bool right = true;
    while (done < all && right) {
        kernel.room = messages;
        const std::size_t rest = all - done;
        std::size_t taken = 0;
        const SendResult result = journey.send(done, rest, taken);
        right = result == (rest > fits ? SendResult::full : SendResult::ok) &&
                taken == std::min(rest, fits);
        done += taken;
        right = right && journey.came(done);
    }
    const std::size_t needed = offload ? (all + in_one_message - 1) / in_one_message : all;
    // What would come twice would have gone twice.
    return right && kernel.sent == needed && journey.channel->trouble().empty() &&
           journey.here->counters().datagrams_sent == all && journey.here->counters().refused == 0;
}

void a_full_buffer_is_told_and_all_go_once_and_in_order(void **)
{
    for (const int error : full_errors) {
        for (const bool offload : {true, false}) {
            assert_true(goes_by_threes(offload, error));
        }
    }
}

/// One by itself goes into the kernel another way, and one in two pieces by a third.
bool waits_for_room(bool two_pieces, int error)
{
    Journey journey(2, true);
    kernel.full = error;
    Outgoing &first = journey.out.front();
    if (two_pieces) {
        first.pieces[0].iov_len = 100;
        first.pieces[1] = {journey.contents.front().data() + 100, each - 100};
    }
    std::size_t taken = 1;
    bool right = true;
    for (int i = 0; i < 3; ++i) {
        kernel.room = 0;
        right = right && journey.send(0, 1, taken) == SendResult::full && taken == 0;
    }
    right = right && kernel.sent == 0;
    kernel.room = 2;
    for (std::size_t i = 0; i < 2; ++i) {
        right = right && journey.send(i, 1, taken) == SendResult::ok && taken == 1;
    }
    return right && journey.came(2) && kernel.sent == 2 && journey.channel->trouble().empty();
}

void a_single_one_waits_for_room_as_well(void **)
{
    for (const int error : full_errors) {
        for (const bool two_pieces : {false, true}) {
            assert_true(waits_for_room(two_pieces, error));
        }
    }
}

/// What the kernel says of a single datagram that an earlier one's error, or a route, kept back.
void what_no_way_takes_at_present_is_lost_and_the_next_goes(void **)
{
    for (const int error : {EINVAL, ENOPROTOOPT, EHOSTUNREACH, ENETUNREACH, EACCES, ENOKEY,
                            EDESTADDRREQ, EIO, ECONNABORTED, ETIMEDOUT, ENETRESET}) {
        bool right = true;
        {
            Journey journey(100, true);
            kernel.full = error;
            std::size_t taken = 0;
            for (const std::size_t count : {1U, 100U}) {
                kernel.room = 0;
                right = right && journey.send(0, count, taken) == SendResult::ok && taken == count;
            }
            right = right && journey.here->counters().refused == 101 && kernel.sent == 0;
            kernel.room = plenty;
            right = right && journey.send(0, 100, taken) == SendResult::ok && taken == 100 &&
                    journey.came(100) && journey.channel->trouble().empty();
        }
        assert_true(right);
    }
}

void a_socket_of_no_use_is_told(void **)
{
    for (const int error : {EBADF, EPIPE, ENOSYS}) {
        bool right = true;
        {
            Journey journey(100, true);
            kernel.full = error;
            for (const std::size_t count : {1U, 100U}) {
                kernel.room = 0;
                std::size_t taken = 1;
                right = right && journey.send(0, count, taken) == SendResult::broken &&
                        taken == 0 && journey.channel->trouble().starts_with("send: ");
            }
        }
        assert_true(right);
    }
}

/// \return whether what is sent before the way can be opened is lost, and goes once it can be,
/// which is tried again each second
bool opens_later(int error)
{
    Journey journey(100, true);
    kernel = {};
    kernel.shut = error;
    kernel.second = 1000;
    std::string why;
    journey.channel = journey.here->connect(journey.there->address(), why);
    bool right = journey.channel != nullptr && why.starts_with("connect: ");
    std::size_t taken = 0;
    const auto lost = [&](std::size_t count, unsigned attempts) {
        const std::uint64_t before = journey.here->counters().refused;
        right = right && journey.send(0, count, taken) == SendResult::ok && taken == count &&
                journey.here->counters().refused == before + count && kernel.attempts == attempts;
    };
    lost(1, 1);
    lost(100, 1);
    kernel.second = 1001;
    lost(1, 2);
    kernel.shut = 0;
    lost(1, 2); // not yet
    kernel.second = 1002;
    right = right && journey.send(0, 100, taken) == SendResult::ok && taken == 100;
    kernel.second = 0;
    return right && journey.came(100) && kernel.attempts == 3 && journey.channel->trouble().empty();
}

void a_way_that_cannot_be_opened_yet_loses_what_is_sent(void **)
{
    for (const int error : {ENETUNREACH, EHOSTUNREACH, EACCES, EINVAL, EADDRNOTAVAIL, EAGAIN,
                            EMFILE, ENOBUFS, ENOMEM}) {
        assert_true(opens_later(error));
    }
}

void a_way_that_never_opens_is_told(void **)
{
    bool none = false;
    bool ended = false;
    {
        Journey journey(1, true);
        std::string why;
        kernel.shut = EAFNOSUPPORT;
        none = journey.here->connect(journey.there->address(), why) == nullptr &&
               why.starts_with("connect: ");
        kernel.shut = ENETUNREACH;
        kernel.second = 1000;
        journey.channel = journey.here->connect(journey.there->address(), why);
        kernel.shut = EAFNOSUPPORT;
        kernel.second = 1001;
        std::size_t taken = 0;
        ended = journey.channel != nullptr && journey.send(0, 1, taken) == SendResult::broken &&
                taken == 0 && journey.channel->trouble().starts_with("connect: ");
    }
    assert_true(none && ended);
}

/// \return how many descriptors this process has
std::size_t descriptors()
{
    std::size_t count = 0;
    for (int fd = 0; fd < 256; ++fd) {
        count += fcntl(fd, F_GETFD) >= 0 ? 1U : 0U;
    }
    return count;
}

/// What was sent before comes, and what is sent afterwards.
void a_way_that_rests_has_no_socket_until_the_next_send(void **)
{
    std::size_t rests = 0;
    std::size_t sends = 0;
    bool right = true;
    unsigned attempts = 0;
    {
        Journey journey(3, true);
        const std::size_t before = descriptors();
        std::size_t taken = 0;
        right = journey.send(0, 1, taken) == SendResult::ok && taken == 1;
        journey.channel->rest();
        journey.channel->rest();
        rests = before - descriptors();
        right = right && journey.send(1, 2, taken) == SendResult::ok && taken == 2;
        sends = before - descriptors();
        right = right && journey.came(3) && journey.here->counters().refused == 0;
        attempts = kernel.attempts;
    }
    assert_true(right);
    assert_int_equal(rests, 1);
    assert_int_equal(sends, 0);
    assert_int_equal(attempts, 2);
}

/// A route over a device that cannot cut messages apart is not for ever.
void a_kernel_that_would_not_cut_is_asked_again(void **)
{
    constexpr std::size_t all = 2 * in_one_message;
    std::size_t messages[3] = {};
    bool right = true;
    {
        Journey journey(all, true);
        const auto send = [&](std::int64_t second) {
            const std::size_t before = kernel.sent;
            kernel.second = second;
            std::size_t taken = 0;
            right = right && journey.send(0, all, taken) == SendResult::ok && taken == all;
            return kernel.sent - before;
        };
        kernel.cuts = false;
        messages[0] = send(1000);
        kernel.cuts = true;
        messages[1] = send(1009);
        messages[2] = send(1010);
        right = right && journey.here->counters().refused == 0;
    }
    assert_true(right);
    assert_int_equal(messages[0], all);
    assert_int_equal(messages[1], all);
    assert_int_equal(messages[2], 2);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(many_go_in_one_call_where_the_kernel_cuts_them_apart),
        cmocka_unit_test(they_come_joined_where_that_is_asked_for),
        cmocka_unit_test(a_full_buffer_is_told_and_all_go_once_and_in_order),
        cmocka_unit_test(a_single_one_waits_for_room_as_well),
        cmocka_unit_test(what_no_way_takes_at_present_is_lost_and_the_next_goes),
        cmocka_unit_test(a_socket_of_no_use_is_told),
        cmocka_unit_test(a_way_that_cannot_be_opened_yet_loses_what_is_sent),
        cmocka_unit_test(a_way_that_never_opens_is_told),
        cmocka_unit_test(a_way_that_rests_has_no_socket_until_the_next_send),
        cmocka_unit_test(a_kernel_that_would_not_cut_is_asked_again),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

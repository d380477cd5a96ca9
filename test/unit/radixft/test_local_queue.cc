#include "orte_glue/radixft/local_queue.hpp"
#include "test/unit/cmocka.hpp"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace ft::radixft;
using Finding = VaderQueue::Finding;
using Link = VaderQueue::Link;
using Place = VaderQueue::Place;

namespace {

constexpr std::uint32_t job = 0x2ab30001;
constexpr std::size_t bytes = 65536;
constexpr std::size_t before_offsets = 8;
constexpr Place fragment = 512; // of local rank 0

/// A segment as btl/vader maps it, in a file that is gone like that of a dead rank.
class Mapped {
  public:
    explicit Mapped(std::uint32_t rank)
    {
        char folder[] = "/tmp/local-queue-XXXXXX";
        const std::filesystem::path path = mkdtemp(folder);
        const std::filesystem::path name =
            path / ("vader_segment.n1.1000.2ab30001." + std::to_string(rank));
        const int file = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        assert_int_equal(ftruncate(file, bytes), 0);
        begin_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        std::filesystem::remove_all(path);
        assert_ptr_not_equal(begin_, MAP_FAILED);
        *at(0) = *at(before_offsets) = VaderQueue::nobody;
    }
    ~Mapped() { unmap(); }
    Mapped(const Mapped &) = delete;
    Mapped &operator=(const Mapped &) = delete;

    void unmap()
    {
        if (begin_ != nullptr) {
            munmap(std::exchange(begin_, nullptr), bytes);
        }
    }
    Link at(Place offset)
    {
        return reinterpret_cast<Link>(static_cast<std::byte *>(begin_) + before_offsets + offset);
    }
    /// A writer has added this fragment, and dies before it adds the next one as a whole.
    void leave_gap()
    {
        *at(fragment) = VaderQueue::nobody;
        *at(0) = fragment;
        *at(before_offsets) = 2 * fragment;
    }

  private:
    void *begin_ = nullptr;
};

void the_same_memory(void **)
{
    Mapped own(0);
    own.leave_gap();
    LocalQueue queue(job, 0);
    assert_true(queue.usable());
    const Finding found = queue.look();
    assert_int_equal(found.kind, Finding::gap);
    assert_ptr_not_equal(found.link, own.at(fragment));
    assert_true(VaderQueue::put(found.link, found.tail));
    assert_int_equal(*own.at(fragment), 2 * fragment);
    *own.at(0) = *own.at(before_offsets) = VaderQueue::nobody;
    assert_int_equal(queue.look().kind, Finding::whole);
}

/// The program goes through MPI_Finalize while its thread looks.
void unmapped_meanwhile(void **)
{
    Mapped own(0);
    Mapped other(1);
    own.leave_gap();
    LocalQueue queue(job, 0);
    own.unmap();
    other.unmap();
    const Finding found = queue.look();
    assert_int_equal(found.kind, Finding::gap);
    queue.note_neighbours();
    static_cast<void>(queue.neighbours_went_on());
    static_cast<void>(queue.awaited(found.tail));
    assert_true(VaderQueue::put(found.link, found.tail));
}

void unmapped_before(void **)
{
    Mapped own(0);
    own.unmap();
    const LocalQueue queue(job, 0);
    assert_false(queue.usable());
}

void nothing_stays_mapped(void **)
{
    Mapped own(0);
    {
        const LocalQueue queue(job, 0);
        assert_true(queue.usable());
    }
    own.unmap();
    const LocalQueue queue(job, 0);
    assert_false(queue.usable());
}

/// The address that a thread has in a register is where the program has the fragment.
void where_the_program_has_it(void **)
{
    Mapped own(0);
    own.leave_gap();
    const SegmentsAgain again(job);
    const VaderQueue queue(again.found().segments, 0, again.found().code);
    const Link program = own.at(fragment);
    const Link link = queue.missing_at(reinterpret_cast<std::uintptr_t>(program), 2 * fragment);
    assert_non_null(link);
    assert_ptr_equal(link, queue.at(fragment));
    assert_ptr_not_equal(link, program);
}

std::atomic<int> programs_own{0};

void on_own(int, siginfo_t *info, void *) noexcept
{
    programs_own += info->si_code == SI_TKILL ? 1 : 0;
}

/// The program has a use for the signal by which its threads are asked, and a thread that does not
/// answer, since it lets no signal through.
void a_signal_of_the_programs(void **)
{
    Mapped own(0);
    own.leave_gap();
    LocalQueue queue(job, 0);
    struct sigaction mine {};
    mine.sa_sigaction = on_own;
    mine.sa_flags = SA_SIGINFO;
    sigaction(SIGURG, &mine, nullptr);
    const auto is_asking = [] {
        struct sigaction now {};
        sigaction(SIGURG, nullptr, &now);
        return now.sa_sigaction != on_own;
    };
    std::atomic<bool> deaf{false};
    std::atomic<bool> over{false};
    std::thread silent([&] {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, nullptr);
        deaf = true;
        while (!over) {
        }
    });
    while (!deaf) {
    }
    std::atomic<bool> sent{false};
    // Begun later, it is asked later, while the other one's silence is waited for.
    std::thread sender([&] {
        while (!is_asking()) {
        }
        raise(SIGURG);
        sent = true;
    });
    bool answered = false;
    while (!sent) {
        answered = queue.awaited(2 * fragment).has_value() || answered;
    }
    over = true;
    silent.join();
    sender.join();
    const bool as_before = !is_asking();
    const int got = programs_own;
    std::signal(SIGURG, SIG_DFL);
    own.unmap();
    assert_int_equal(got, 1);
    assert_true(as_before);
    assert_false(answered);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_same_memory),          cmocka_unit_test(unmapped_meanwhile),
        cmocka_unit_test(unmapped_before),          cmocka_unit_test(nothing_stays_mapped),
        cmocka_unit_test(where_the_program_has_it), cmocka_unit_test(a_signal_of_the_programs),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

#include "orte_glue/radixft/local_queue.hpp"

#include "orte_glue/radixft/watch.hpp"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <semaphore>
#include <sstream>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

namespace ft::radixft {

namespace {

struct ThreadState {
    std::int64_t number = 0;
    char state = '?';
    std::int64_t ticks = 0; ///< of processor time
};

std::vector<ThreadState> threads_of(std::int64_t process)
{
    std::vector<ThreadState> threads;
    std::error_code error;
    const std::filesystem::path folder = "/proc/" + std::to_string(process) + "/task";
    for (const auto &entry : std::filesystem::directory_iterator(folder, error)) {
        const std::string name = entry.path().filename();
        ThreadState thread;
        std::from_chars(name.data(), name.data() + name.size(), thread.number);
        const std::string text = contents(entry.path() / "stat");
        // The second of its fields is the program's name, and may hold anything.
        const std::size_t behind = text.rfind(')');
        if (behind == std::string::npos) {
            continue;
        }
        std::istringstream rest(text.substr(behind + 1));
        const std::vector<std::string> words{std::istream_iterator<std::string>(rest), {}};
        constexpr std::size_t user_time = 14 - 3;
        constexpr std::size_t system_time = 15 - 3;
        if (words.size() > system_time) {
            thread.state = words[0][0];
            thread.ticks =
                std::atoll(words[user_time].c_str()) + std::atoll(words[system_time].c_str());
            threads.push_back(thread);
        }
    }
    return threads;
}

/// What the threads that were asked have answered. One is asked at a time.
struct Answers {
    const VaderQueue *queue = nullptr;
    VaderQueue::Place tail = VaderQueue::nobody;
    std::atomic<VaderQueue::Link> awaited{nullptr};
    /// Each question has a number of its own. The first one is an address here, so that no value
    /// that the program sends with a signal is taken for one.
    std::uintptr_t first = 0;
    std::atomic<std::uintptr_t> question{0};
    std::atomic<std::uintptr_t> answered{0}; ///< the question that was answered last
    std::counting_semaphore<> news{0};
    struct sigaction program {}; ///< what the program does with the signal
};
Answers *answers = nullptr;

void leave_to_program(int number, siginfo_t *info, void *context) noexcept
{
    const struct sigaction &program = answers->program;
    if (program.sa_handler == SIG_DFL || program.sa_handler == SIG_IGN) {
        return; // both ignore it
    }
    if ((program.sa_flags & SA_SIGINFO) != 0) {
        program.sa_sigaction(number, info, context);
    } else {
        program.sa_handler(number);
    }
}

/// On a thread of the program. One that waits in vader's loop for a link has its address in a
/// register.
void on_question(int signal, siginfo_t *info, void *context) noexcept
{
    const std::uintptr_t question = answers->question.load();
    const auto number = reinterpret_cast<std::uintptr_t>(info->si_value.sival_ptr);
    if (info->si_code != SI_QUEUE || info->si_pid != getpid() || number <= answers->first ||
        number > question) {
        leave_to_program(signal, info, context);
        return;
    }
    if (number != question) {
        return; // too late
    }
    const int error = errno;
#if defined(__x86_64__)
    const auto *state = static_cast<const ucontext_t *>(context);
    const greg_t *const registers = state->uc_mcontext.gregs;
    if (answers->queue->is_code(static_cast<std::uintptr_t>(registers[REG_RIP]))) {
        for (int i = REG_R8; i <= REG_RCX; ++i) {
            if (const auto link = answers->queue->missing_at(
                    static_cast<std::uintptr_t>(registers[i]), answers->tail)) {
                answers->awaited = link;
            }
        }
    }
#else
    static_cast<void>(context);
#endif
    answers->answered = number;
    answers->news.release();
    errno = error;
}

/// Asks one thread. False when it does not answer in time.
bool ask(std::int64_t thread)
{
    constexpr std::chrono::milliseconds patience{100};
    const auto end = std::chrono::steady_clock::now() + patience;
    const std::uintptr_t question = ++answers->question;
    siginfo_t info{};
    info.si_signo = SIGURG;
    info.si_code = SI_QUEUE;
    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value.sival_ptr = reinterpret_cast<void *>(question);
    if (syscall(SYS_rt_tgsigqueueinfo, getpid(), thread, SIGURG, &info) != 0) {
        return errno == ESRCH; // it has ended
    }
    while (answers->answered != question) {
        if (!answers->news.try_acquire_until(end)) {
            return answers->answered == question;
        }
    }
    return true;
}

} // namespace

SegmentsAgain::SegmentsAgain(std::uint32_t jobid)
    : found_(VaderQueue::mapped(contents("/proc/self/maps"), jobid))
{
    for (VaderQueue::Segment &segment : found_.segments) {
        // Of nothing, the kernel makes a second mapping and leaves the first. The file may be gone.
        void *const again = segment.begin == nullptr
                                ? MAP_FAILED
                                : mremap(segment.begin, 0, segment.bytes, MREMAP_MAYMOVE);
        if (again == MAP_FAILED) {
            segment = {};
            continue;
        }
        auto *const begin = static_cast<std::byte *>(again);
        segment.shift = begin - segment.begin;
        segment.begin = begin;
    }
    // Between both looks something else may have come to be there.
    const std::string maps = contents("/proc/self/maps");
    for (std::size_t rank = 0; rank < found_.segments.size(); ++rank) {
        VaderQueue::Segment &segment = found_.segments[rank];
        if (segment.begin != nullptr && VaderQueue::owner_at(maps, jobid, segment.begin) != rank) {
            munmap(segment.begin, segment.bytes);
            segment = {};
        }
    }
}

SegmentsAgain::~SegmentsAgain()
{
    for (const VaderQueue::Segment &segment : found_.segments) {
        if (segment.begin != nullptr) {
            munmap(segment.begin, segment.bytes);
        }
    }
}

LocalQueue::LocalQueue(std::uint32_t jobid, std::uint32_t local_rank)
    : segments_(jobid), queue_(segments_.found().segments, local_rank, segments_.found().code)
{
}

void LocalQueue::note_neighbours()
{
    had_run_.clear();
    for (const std::int64_t process : queue_.neighbours()) {
        for (const ThreadState &thread : threads_of(process)) {
            had_run_[thread.number] = thread.ticks;
        }
    }
}

bool LocalQueue::neighbours_went_on()
{
    for (const std::int64_t process : queue_.neighbours()) {
        for (const ThreadState &thread : threads_of(process)) {
            const auto before = had_run_.find(thread.number);
            const bool over = thread.state == 'S' || thread.state == 'Z' || thread.state == 'X';
            if (!over && before != had_run_.end() && before->second == thread.ticks) {
                return false;
            }
        }
    }
    return true;
}

std::optional<VaderQueue::Link> LocalQueue::awaited(VaderQueue::Place tail)
{
    // The kernel may bring a signal when nobody waits for it any more.
    static Answers asked;
    asked.queue = &queue_;
    asked.tail = tail;
    asked.awaited = nullptr;
    answers = &asked;
    if (asked.first == 0) {
        asked.first = asked.question = reinterpret_cast<std::uintptr_t>(&asked);
    }
    if (sigaction(SIGURG, nullptr, &asked.program) != 0) {
        return std::nullopt;
    }
    struct sigaction ours = asked.program;
    struct sigaction replaced {};
    ours.sa_sigaction = on_question;
    // The program's own handler may need its own stack.
    ours.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    if (sigaction(SIGURG, &ours, &replaced) != 0) {
        return std::nullopt;
    }
    // Unless the program has set another one between both.
    bool all_answered = replaced.sa_sigaction == asked.program.sa_sigaction;
    const auto self = static_cast<std::int64_t>(syscall(SYS_gettid));
    for (const ThreadState &thread : threads_of(getpid())) {
        if (thread.state == 'R' && thread.number != self) {
            all_answered = ask(thread.number) && all_answered;
        }
    }
    struct sigaction ending {};
    sigaction(SIGURG, &replaced, &ending);
    if (ending.sa_sigaction != on_question) {
        sigaction(SIGURG, &ending, nullptr); // the program has set it meanwhile
    }
    return all_answered ? std::optional(asked.awaited.load()) : std::nullopt;
}

} // namespace ft::radixft

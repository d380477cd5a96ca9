#include "orte_glue/radixft/life_lines.hpp"

#include "opal/process/quiet_thread.hpp"
#include "orte_glue/radixft/prompt.hpp"
#include "orte_glue/radixft/watch.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <new>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ft::radixft {

namespace {

/// Nobody can cut it short.
constexpr int wanted_seals = F_SEAL_SHRINK | F_SEAL_GROW;

static_assert(LifeLinesLayout::capacity + 1 <= FUTEX_WAITV_MAX);

SharedHead head_of(std::uint32_t family)
{
    return {.magic = LifeLinesLayout::expected_magic,
            .format = LifeLinesLayout::expected_format,
            .family = family};
}

std::uint64_t key(Rank who)
{
    return static_cast<std::uint64_t>(who.jobid) << 32 | who.vpid;
}

Rank rank_of(std::uint64_t owner)
{
    return {static_cast<std::uint32_t>(owner >> 32), static_cast<std::uint32_t>(owner)};
}

void tell_change(LifeLinesLayout &lines)
{
    lines.changes.fetch_add(1, std::memory_order_release);
    (void)syscall(SYS_futex, &lines.changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

/// By which numbers this process knows others: the same value, the same numbers. 0: not known.
std::uint64_t process_numbers()
{
    struct stat where {};
    return ::stat("/proc/self/ns/pid", &where) == 0 ? where.st_ino : 0;
}

/// False, with errno set, when there is no thread to be had.
template <class Body>
bool start_thread(std::thread &thread, Body body) noexcept
{
    const std::error_code failure = process::start_quiet_thread(thread, body);
    if (failure) {
        errno = failure.value();
    }
    return !failure;
}

} // namespace

bool LifeLines::start(std::uint32_t family, std::uint64_t number) noexcept
{
    // Asked with nothing to wait for: EINVAL where it exists.
    if (syscall(SYS_futex_waitv, nullptr, 0, 0, nullptr, 0) != -1 || errno != EINVAL) {
        return false;
    }
    void *const memory =
        memory_.make("ompi-ft-lines", sizeof(LifeLinesLayout), wanted_seals, number);
    if (memory == nullptr) {
        return false;
    }
    event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event_ < 0) {
        return false;
    }
    lines_ = new (memory) LifeLinesLayout;
    lines_->head = head_of(family);
    lines_->head.number = number;
    lines_->processes = process_numbers();
    if (!start_thread(thread_, [this] { watch(); })) {
        ::close(std::exchange(event_, -1));
        return false;
    }
    return true;
}

void LifeLines::stop() noexcept
{
    if (thread_.joinable()) {
        stop_ = true;
        tell_change(*lines_);
        thread_.join();
        ::close(std::exchange(event_, -1));
    }
}

/// Sets aside whose lines broke, and says it.
std::vector<LifeLines::Broken> LifeLines::collect() noexcept
{
    std::vector<Broken> found;
    for (LifeLinesLayout::Line &line : lines_->lines) {
        if ((line.word.load(std::memory_order_acquire) & FUTEX_OWNER_DIED) == 0) {
            continue;
        }
        // Against forget(): with its dead owner still there nobody else takes the line.
        const std::lock_guard lock(mutex_);
        std::uint32_t word = line.word.load(std::memory_order_acquire);
        if ((word & FUTEX_OWNER_DIED) != 0 && line.word.compare_exchange_strong(word, 0)) {
            if (const std::uint64_t owner = line.owner.exchange(0); owner != 0) {
                const std::uint32_t process = line.process.load(std::memory_order_relaxed);
                const int signal = process == 0 ? 0 : fatal_signal(process);
                const int status = process == 0 || signal != 0 ? -1 : exit_status(process);
                found.push_back(
                    broken_.emplace_back(Broken{rank_of(owner), process, signal, status}));
            }
        }
    }
    return found;
}

void LifeLines::watch() noexcept
{
    run_promptly();
    while (!stop_) {
        std::array<futex_waitv, LifeLinesLayout::capacity + 1> waits{};
        unsigned count = 0;
        const auto wait_for = [&](const std::atomic<std::uint32_t> &word, std::uint32_t value) {
            waits[count++] = {.val = value,
                              .uaddr = reinterpret_cast<std::uintptr_t>(&word),
                              .flags = FUTEX_32,
                              .__reserved = 0};
        };
        wait_for(lines_->changes, lines_->changes.load(std::memory_order_acquire));
        if (const std::vector<Broken> dying = collect(); !dying.empty()) {
            const std::uint64_t one = 1;
            [[maybe_unused]] const auto written = ::write(event_, &one, sizeof one);
            for (const Broken &its : dying) {
                if (its.signal != 0) {
                    give_way(static_cast<int>(its.process));
                }
            }
        }
        for (const LifeLinesLayout::Line &line : lines_->lines) {
            const std::uint32_t word = line.word.load(std::memory_order_acquire);
            if (line.owner.load(std::memory_order_acquire) != 0 && (word & FUTEX_OWNER_DIED) == 0) {
                wait_for(line.word, word);
            } else if ((word & FUTEX_OWNER_DIED) != 0) {
                waits[0].val = ~lines_->changes.load(); // broken since collect(): not to sleep
            }
        }
        if (!stop_ && syscall(SYS_futex_waitv, waits.data(), count, 0, nullptr, 0) < 0 &&
            errno != EAGAIN && errno != EINTR) {
            return;
        }
    }
}

std::vector<LifeLines::Broken> LifeLines::take() noexcept
{
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(event_, &count, sizeof count);
    const std::lock_guard lock(mutex_);
    return std::exchange(broken_, {});
}

bool LifeLines::held_by(Rank who) const noexcept
{
    return lines_ != nullptr &&
           std::any_of(lines_->lines.begin(), lines_->lines.end(), [who](const auto &line) {
               const std::uint32_t word = line.word.load(std::memory_order_acquire);
               return word != 0 && (word & FUTEX_OWNER_DIED) == 0 &&
                      line.owner.load(std::memory_order_acquire) == key(who);
           });
}

void LifeLines::forget(Rank who) noexcept
{
    if (lines_ == nullptr) {
        return;
    }
    const std::lock_guard lock(mutex_);
    for (LifeLinesLayout::Line &line : lines_->lines) {
        if (line.owner.load(std::memory_order_acquire) == key(who)) {
            line.word.store(0, std::memory_order_relaxed);
            line.owner.store(0, std::memory_order_release);
        }
    }
}

bool LifeLine::hold(const char *place, std::uint32_t family, Rank self) noexcept
{
    if (lines_ != nullptr) {
        return false;
    }
    lines_ = static_cast<LifeLinesLayout *>(
        map_daemon_memory(place, sizeof(LifeLinesLayout), wanted_seals, true, head_of(family)));
    if (lines_ == nullptr) {
        return false;
    }
    const auto mine = std::find_if(lines_->lines.begin(), lines_->lines.end(), [&](auto &line) {
        std::uint64_t nobody = 0;
        return line.owner.compare_exchange_strong(nobody, key(self), std::memory_order_acq_rel);
    });
    if (mine != lines_->lines.end()) {
        line_ = &*mine;
        const bool same_numbers = lines_->processes != 0 && lines_->processes == process_numbers();
        line_->process.store(same_numbers ? static_cast<std::uint32_t>(getpid()) : 0,
                             std::memory_order_relaxed);
        if (start_thread(thread_, [this] { run(); })) {
            held_yet_.wait(0);
            if (held_yet_ > 0) {
                return true;
            }
        } else {
            line_->owner.store(0, std::memory_order_release);
        }
    }
    release();
    return false;
}

void LifeLine::run() noexcept
{
    run_promptly();
    // The list is this thread's alone, and the C library has nothing in it: the thread locks no
    // mutex.
    entry_.next = &held_.list;
    held_.list.next = &entry_;
    held_.futex_offset = static_cast<long>(reinterpret_cast<std::intptr_t>(&line_->word) -
                                           reinterpret_cast<std::intptr_t>(&entry_));
    if (syscall(SYS_set_robust_list, &held_, sizeof held_) == 0) {
        line_->word.store(static_cast<std::uint32_t>(syscall(SYS_gettid)) | FUTEX_WAITERS,
                          std::memory_order_release);
        tell_change(*lines_);
        held_yet_ = 1;
        held_yet_.notify_one();
        stop_.wait(0);
        held_.list.next = &held_.list;
    }
    held_yet_ = -1;
    held_yet_.notify_one();
    line_->word.store(0, std::memory_order_relaxed);
    line_->owner.store(0, std::memory_order_release);
    tell_change(*lines_);
}

void LifeLine::release() noexcept
{
    if (thread_.joinable()) {
        stop_.store(1);
        stop_.notify_one();
        thread_.join();
        stop_ = held_yet_ = 0;
    }
    if (lines_ != nullptr) {
        ::munmap(std::exchange(lines_, nullptr), sizeof(LifeLinesLayout));
        line_ = nullptr;
    }
}

} // namespace ft::radixft

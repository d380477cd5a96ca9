#include "opal/process/deaths.hpp"

#include "opal/process/handlers.hpp"

#include <algorithm>
#include <mutex>
#include <unordered_set>
#include <vector>

namespace ft::process {

namespace {

std::uint64_t key(Name who)
{
    return (static_cast<std::uint64_t>(who.jobid) << 32) | who.vpid;
}

struct Book {
    std::mutex mutex;
    std::vector<Death> deaths;
    std::unordered_set<std::uint64_t> dead;
    /// Follows deaths.size(), so that asking costs no lock.
    std::atomic<std::size_t> count{0};
    std::atomic<std::uint64_t> epoch{0};
};

/// Never destroyed: components may ask while the process is torn down.
Book &book()
{
    static Book *const the_book = new Book;
    return *the_book;
}

} // namespace

namespace detail {

std::atomic<std::uint64_t> news{0};
std::atomic<std::uint64_t> handled{0};

void add_news() noexcept
{
    news.fetch_add(1, std::memory_order_release);
    news.notify_all();
}

} // namespace detail

bool declare_dead(const Death &death) noexcept
{
    Book &b = book();
    set_epoch(death.epoch);
    const std::lock_guard lock(b.mutex);
    if (!b.dead.insert(key(death.who)).second) {
        return false;
    }
    b.deaths.push_back(death);
    b.count.store(b.deaths.size(), std::memory_order_release);
    detail::add_news();
    return true;
}

std::size_t death_count() noexcept
{
    return book().count.load(std::memory_order_acquire);
}

Death death(std::size_t index) noexcept
{
    Book &b = book();
    const std::lock_guard lock(b.mutex);
    return index < b.deaths.size() ? b.deaths[index] : Death{};
}

bool is_dead(Name who) noexcept
{
    Book &b = book();
    if (b.count.load(std::memory_order_acquire) == 0) {
        return false;
    }
    const std::lock_guard lock(b.mutex);
    return b.dead.contains(key(who));
}

std::uint64_t epoch() noexcept
{
    return book().epoch.load(std::memory_order_acquire);
}

void set_epoch(std::uint64_t epoch) noexcept
{
    std::atomic<std::uint64_t> &now = book().epoch;
    std::uint64_t seen = now.load(std::memory_order_relaxed);
    while (seen < epoch && !now.compare_exchange_weak(seen, epoch, std::memory_order_release)) {
    }
}

} // namespace ft::process

#include "opal/process/standing.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace ft::process {

namespace {

struct Book {
    std::mutex mutex;
    std::map<std::pair<std::uint32_t, std::uint32_t>, Standing> ranks;
    std::set<std::uint32_t> revoked;
    std::set<std::uint32_t> standing_in;
    std::vector<Unreachable> unreachable;
    /// Followed by these, so that the usual answers cost no lock.
    std::atomic<std::size_t> rank_count{0};
    std::atomic<std::size_t> revoked_count{0};
    std::atomic<std::size_t> unreachable_count{0};
    std::atomic<bool> run_through{false};
};

/// Never destroyed: components may ask while the process is torn down.
Book &book()
{
    static Book *const the_book = new Book;
    return *the_book;
}

} // namespace

void set_standing(std::uint32_t context, std::uint32_t rank, Standing to) noexcept
{
    Book &b = book();
    const std::lock_guard lock(b.mutex);
    Standing &now = b.ranks[{context, rank}];
    if (now < to) {
        now = to;
        b.rank_count.store(b.ranks.size(), std::memory_order_release);
        detail::add_news();
    }
}

Standing standing(std::uint32_t context, std::uint32_t rank) noexcept
{
    Book &b = book();
    if (b.rank_count.load(std::memory_order_acquire) == 0) {
        return Standing::unknown;
    }
    const std::lock_guard lock(b.mutex);
    const auto found = b.ranks.find({context, rank});
    return found == b.ranks.end() ? Standing::unknown : found->second;
}

std::vector<std::uint32_t> recognised(std::uint32_t context)
{
    Book &b = book();
    std::vector<std::uint32_t> ranks;
    if (b.rank_count.load(std::memory_order_acquire) == 0) {
        return ranks;
    }
    const std::lock_guard lock(b.mutex);
    const auto end = b.ranks.upper_bound({context, ~std::uint32_t{0}});
    for (auto at = b.ranks.lower_bound({context, 0}); at != end; ++at) {
        if (at->second == Standing::recognised) {
            ranks.push_back(at->first.second);
        }
    }
    return ranks;
}

void revoke(std::uint32_t context) noexcept
{
    Book &b = book();
    const std::lock_guard lock(b.mutex);
    if (b.revoked.insert(context).second) {
        b.revoked_count.store(b.revoked.size(), std::memory_order_release);
        detail::add_news();
    }
}

bool is_revoked(std::uint32_t context) noexcept
{
    Book &b = book();
    if (b.revoked_count.load(std::memory_order_acquire) == 0) {
        return false;
    }
    const std::lock_guard lock(b.mutex);
    return b.revoked.contains(context);
}

void let_stand_in(std::uint32_t context) noexcept
{
    Book &b = book();
    const std::lock_guard lock(b.mutex);
    if (b.standing_in.insert(context).second) {
        detail::add_news();
    }
}

bool stands_in(std::uint32_t context) noexcept
{
    Book &b = book();
    const std::lock_guard lock(b.mutex);
    return b.standing_in.contains(context);
}

void forget_context(std::uint32_t context) noexcept
{
    Book &b = book();
    const std::lock_guard lock(b.mutex);
    b.ranks.erase(b.ranks.lower_bound({context, 0}),
                  b.ranks.upper_bound({context, ~std::uint32_t{0}}));
    b.rank_count.store(b.ranks.size(), std::memory_order_release);
    b.revoked.erase(context);
    b.standing_in.erase(context);
    b.revoked_count.store(b.revoked.size(), std::memory_order_release);
}

namespace {

/// The process's entry, made if there is none yet. The book is locked.
Unreachable &entry_of(Book &b, Name who)
{
    const auto found = std::find_if(b.unreachable.begin(), b.unreachable.end(),
                                    [&](const Unreachable &one) { return one.who == who; });
    if (found != b.unreachable.end()) {
        return *found;
    }
    b.unreachable.push_back({who, false, {}});
    b.unreachable_count.store(b.unreachable.size(), std::memory_order_release);
    return b.unreachable.back();
}

} // namespace

bool declare_unreachable(Name who) noexcept
{
    Book &b = book();
    const std::lock_guard lock(b.mutex);
    Unreachable &entry = entry_of(b, who);
    if (entry.own) {
        return false;
    }
    entry = {who, true, {}};
    detail::add_news();
    return true;
}

bool hear_unreachable(Name who, Name by) noexcept
{
    Book &b = book();
    const std::lock_guard lock(b.mutex);
    Unreachable &entry = entry_of(b, who);
    if (entry.own ||
        std::find(entry.said_by.begin(), entry.said_by.end(), by) != entry.said_by.end()) {
        return false;
    }
    entry.said_by.push_back(by);
    detail::add_news();
    return true;
}

std::vector<Unreachable> unreachable() noexcept
{
    Book &b = book();
    if (b.unreachable_count.load(std::memory_order_acquire) == 0) {
        return {};
    }
    const std::lock_guard lock(b.mutex);
    return b.unreachable;
}

void spread_news() noexcept
{
    detail::add_news();
}

void use_run_through() noexcept
{
    book().run_through.store(true, std::memory_order_release);
}

bool run_through() noexcept
{
    return book().run_through.load(std::memory_order_acquire);
}

} // namespace ft::process

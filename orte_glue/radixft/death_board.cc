#include "orte_glue/radixft/death_board.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>

namespace ft::radixft {

namespace {

/// No more and no less, and nobody's but the daemon's.
constexpr int wanted_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;

SharedHead head_of(std::uint32_t family)
{
    return {.magic = DeathBoardLayout::expected_magic,
            .format = DeathBoardLayout::expected_format,
            .family = family};
}

} // namespace

bool DeathBoard::make(std::uint32_t family, std::uint64_t number) noexcept
{
    void *const memory =
        memory_.make("ompi-ft-deaths", sizeof(DeathBoardLayout), wanted_seals, number);
    if (memory == nullptr) {
        return false;
    }
    board_ = new (memory) DeathBoardLayout;
    board_->head = head_of(family);
    board_->head.number = number;
    return true;
}

bool DeathBoard::post(const RankDeath &death) noexcept
{
    if (board_ == nullptr) {
        return false;
    }
    const std::uint64_t count = board_->count.load(std::memory_order_relaxed);
    if (count >= DeathBoardLayout::capacity) {
        return false;
    }
    board_->entries[count] = {.jobid = death.who.jobid,
                              .vpid = death.who.vpid,
                              .epoch = death.epoch,
                              .noticed_us = death.noticed_us,
                              .stabilized_us = death.stabilized_us,
                              .hung = ended_by_daemon(death.cause) ? 1U : 0U};
    board_->count.store(count + 1, std::memory_order_release);
    return true;
}

void DeathBoard::post(const Drops &drops) noexcept
{
    if (board_ != nullptr) {
        board_->dropped.store(drops.total(), std::memory_order_relaxed);
        board_->strange.store(drops.strange(), std::memory_order_relaxed);
    }
}

bool DeathReader::open(const char *place, std::uint32_t family) noexcept
{
    if (board_ != nullptr) {
        return false;
    }
    board_ = static_cast<const DeathBoardLayout *>(
        map_daemon_memory(place, sizeof(DeathBoardLayout), wanted_seals, false, head_of(family)));
    if (board_ == nullptr) {
        return false;
    }
    count_ = &board_->count;
    return true;
}

void DeathReader::close() noexcept
{
    if (board_ != nullptr) {
        count_ = &nothing;
        ::munmap(const_cast<DeathBoardLayout *>(std::exchange(board_, nullptr)),
                 sizeof(DeathBoardLayout));
    }
}

std::uint64_t DeathReader::dropped() const noexcept
{
    return board_ == nullptr ? 0 : board_->dropped.load(std::memory_order_relaxed);
}

std::uint64_t DeathReader::strange() const noexcept
{
    return board_ == nullptr ? 0 : board_->strange.load(std::memory_order_relaxed);
}

std::span<const DeathBoardLayout::Entry> DeathReader::take() noexcept
{
    const std::uint64_t count = std::min<std::uint64_t>(count_->load(std::memory_order_acquire),
                                                        DeathBoardLayout::capacity);
    const std::uint64_t before = std::min(seen_.exchange(count), count);
    if (board_ == nullptr) {
        return {};
    }
    return std::span(board_->entries).subspan(before, count - before);
}

} // namespace ft::radixft

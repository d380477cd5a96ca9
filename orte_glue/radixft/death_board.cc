#include "orte_glue/radixft/death_board.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <new>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ft::radixft {

namespace {

/// No more and no less, and nobody's but the daemon's.
constexpr int wanted_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;

/// What is mapped there if it is a board of this family with this number; null otherwise.
const DeathBoardLayout *map_checked(int file, std::uint32_t family, std::uint64_t number)
{
    struct stat facts {};
    if (::fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_uid != ::geteuid() ||
        facts.st_size != static_cast<off_t>(sizeof(DeathBoardLayout)) ||
        (::fcntl(file, F_GET_SEALS) & wanted_seals) != wanted_seals) {
        return nullptr;
    }
    void *const memory = ::mmap(nullptr, sizeof(DeathBoardLayout), PROT_READ, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        return nullptr;
    }
    const auto *const board = static_cast<const DeathBoardLayout *>(memory);
    if (board->magic != DeathBoardLayout::expected_magic ||
        board->format != DeathBoardLayout::expected_format || board->family != family ||
        board->number != number) {
        ::munmap(memory, sizeof(DeathBoardLayout));
        return nullptr;
    }
    return board;
}

} // namespace

DeathBoard::~DeathBoard()
{
    if (board_ != nullptr) {
        ::munmap(board_, sizeof *board_);
    }
    if (file_ >= 0) {
        ::close(file_);
    }
}

bool DeathBoard::make(std::uint32_t family, std::uint64_t number) noexcept
{
    if (file_ >= 0) {
        return false;
    }
    file_ = ::memfd_create("ompi-ft-deaths", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file_ < 0) {
        return false;
    }
    // Memory that was not there when it is written to would end this process.
    if (const int error = ::posix_fallocate(file_, 0, sizeof(DeathBoardLayout)); error != 0) {
        errno = error;
        return false;
    }
    void *const memory =
        ::mmap(nullptr, sizeof(DeathBoardLayout), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (memory == MAP_FAILED) {
        return false;
    }
    auto *const board = new (memory) DeathBoardLayout;
    board->family = family;
    board->number = number;
    if (::fcntl(file_, F_ADD_SEALS, wanted_seals | F_SEAL_SEAL) != 0) {
        ::munmap(memory, sizeof(DeathBoardLayout));
        return false;
    }
    board_ = board;
    place_ = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file_) + ":" +
             std::to_string(number);
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

bool DeathReader::open(const char *place, std::uint32_t family) noexcept
{
    const char *const colon = place == nullptr ? nullptr : std::strrchr(place, ':');
    if (board_ != nullptr || colon == nullptr) {
        return false;
    }
    std::uint64_t number = 0;
    const char *const end = colon + std::strlen(colon);
    if (const auto read = std::from_chars(colon + 1, end, number);
        read.ec != std::errc() || read.ptr != end) {
        return false;
    }
    const int file = ::open(std::string(place, colon).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) {
        return false;
    }
    board_ = map_checked(file, family, number);
    ::close(file);
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

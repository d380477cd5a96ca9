#include "orte_glue/radixft/daemon_memory.hpp"

#include <cerrno>
#include <charconv>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ft::radixft {

DaemonMemory::~DaemonMemory()
{
    if (memory_ != nullptr) {
        ::munmap(memory_, size_);
    }
    if (file_ >= 0) {
        ::close(file_);
    }
}

void *DaemonMemory::make(const char *name, std::size_t size, int seals,
                         std::uint64_t number) noexcept
{
    if (file_ >= 0) {
        return nullptr;
    }
    file_ = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file_ < 0) {
        return nullptr;
    }
    // Memory that was not there when it is written to would end this process.
    if (const int error = ::posix_fallocate(file_, 0, static_cast<off_t>(size)); error != 0) {
        errno = error;
        return nullptr;
    }
    void *const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (memory == MAP_FAILED) {
        return nullptr;
    }
    // A mapping that is older than a seal against writing stays writable.
    if (::fcntl(file_, F_ADD_SEALS, seals | F_SEAL_SEAL) != 0) {
        ::munmap(memory, size);
        return nullptr;
    }
    memory_ = memory;
    size_ = size;
    place_ = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file_) + ":" +
             std::to_string(number);
    return memory_;
}

void *map_daemon_memory(const char *place, std::size_t size, int seals, bool writable,
                        SharedHead head) noexcept
{
    const char *const colon = place == nullptr ? nullptr : std::strrchr(place, ':');
    if (colon == nullptr) {
        return nullptr;
    }
    const char *const end = colon + std::strlen(colon);
    if (const auto read = std::from_chars(colon + 1, end, head.number);
        read.ec != std::errc() || read.ptr != end) {
        return nullptr;
    }
    const int file = ::open(std::string(place, colon).c_str(),
                            (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) {
        return nullptr;
    }
    struct stat facts {};
    void *memory = MAP_FAILED;
    if (::fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == ::geteuid() &&
        facts.st_size == static_cast<off_t>(size) &&
        (::fcntl(file, F_GET_SEALS) & seals) == seals) {
        memory =
            ::mmap(nullptr, size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, file, 0);
    }
    ::close(file);
    if (memory == MAP_FAILED) {
        return nullptr;
    }
    if (*static_cast<const SharedHead *>(memory) != head) {
        ::munmap(memory, size);
        return nullptr;
    }
    return memory;
}

} // namespace ft::radixft

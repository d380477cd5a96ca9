// Tells a test what its program has come to.
#pragma once

#include <cstdio>
#include <ctime>
#include <string>

#include <fcntl.h>
#include <unistd.h>

namespace marks {

/// One event for the FIFO that test/lib/ftcluster.py reads, which stays open: its reader must never
/// see an end. Nothing without a FIFO.
inline void mark(const char *fifo, const std::string &text)
{
    if (fifo == nullptr) {
        return;
    }
    static const int fd = ::open(fifo, O_WRONLY);
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    char line[256];
    const int n = std::snprintf(line, sizeof line, "%lld.%09ld %s\n",
                                static_cast<long long>(t.tv_sec), t.tv_nsec, text.c_str());
    if (fd >= 0 && ::write(fd, line, static_cast<std::size_t>(n)) < 0) {
        std::perror("marks");
    }
}

} // namespace marks

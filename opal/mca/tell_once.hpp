/// \file
/// Who of the processes of a job on one host speaks for all of them.
#pragma once

#include "opal/mca/opal_prelude.hpp"

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ft::mca {

/// Calls `tell` in the first process of this job on this host that comes here with this `what`, a
/// part of a file's name. No other returns before it has been told: whoever ends the job next ends
/// that process, too, and what it was about to say would never be read. Without a folder of the
/// job, as in a daemon, or where the folder takes no file, the process of the lowest local rank
/// tells it, and nobody waits.
///
/// That it was told is noted in mpirun's folder, in which the job's is: the first process that
/// fails takes the job's with it, and one that starts late makes it anew.
template <typename Tell>
void tell_once(const char *what, Tell tell) noexcept
{
    int file = -1;
    if (const char *const folder = opal_process_info.job_session_dir; folder != nullptr) {
        char mark[PATH_MAX];
        const char *const slash = std::strrchr(folder, '/');
        const int outer = slash == nullptr ? 0 : static_cast<int>(slash - folder);
        const int length = std::snprintf(mark, sizeof mark, "%.*s/ompi-ft-%s-%s", outer, folder,
                                         folder + outer + (slash != nullptr), what);
        if (length > 0 && static_cast<std::size_t>(length) < sizeof mark) {
            file = open(mark, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        }
    }
    if (file < 0) {
        if (opal_process_info.my_local_rank <= 0) {
            tell();
        }
        return;
    }
    while (flock(file, LOCK_EX) != 0 && errno == EINTR) {
    }
    struct stat told {};
    if (fstat(file, &told) != 0 || told.st_size == 0) {
        tell();
        [[maybe_unused]] const ssize_t marked = write(file, "1", 1);
    }
    close(file);
}

} // namespace ft::mca

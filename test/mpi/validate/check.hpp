// What the programs of this folder have in common: TAP from whichever rank is the lowest that
// lives, deaths by SIGKILL, and waiting for them.
#pragma once
#include <mpi.h>

#include "ompi/mpi_ft/mpi_ft.h"

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include <unistd.h>

namespace check {

inline int me = 0;
inline int size = 0;
inline int failures = 0;

inline void start(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

/// Says at once, from any rank, what went wrong.
[[gnu::format(printf, 2, 3)]] inline bool that(bool good, const char *format, ...)
{
    if (!good) {
        ++failures;
        char text[512];
        va_list arguments;
        va_start(arguments, format);
        std::vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        std::fprintf(stderr, "rank %d: wrong: %s\n", me, text);
    }
    return good;
}

inline int class_of(int code)
{
    int cls = MPI_SUCCESS;
    MPI_Error_class(code, &cls);
    return cls;
}

inline bool is(int code, int wanted, const char *what)
{
    const int cls = code == MPI_SUCCESS ? MPI_SUCCESS : class_of(code);
    return that(cls == wanted, "%s: class %d instead of %d", what, cls, wanted);
}

/// Of MPI_COMM_WORLD, with errors that return.
inline MPI_Comm twin()
{
    MPI_Comm fresh = MPI_COMM_NULL;
    is(MPI_Comm_dup(MPI_COMM_WORLD, &fresh), MPI_SUCCESS, "dup");
    MPI_Comm_set_errhandler(fresh, MPI_ERRORS_RETURN);
    return fresh;
}

/// Rank to rank over MPI_COMM_WORLD: how one tells another that it has come to some point.
constexpr int word_tag = 6;

inline void send_word(int rank)
{
    is(MPI_Send(&me, 1, MPI_INT, rank, word_tag, MPI_COMM_WORLD), MPI_SUCCESS, "word");
}

inline void wait_for_word(int rank)
{
    int word = -1;
    is(MPI_Recv(&word, 1, MPI_INT, rank, word_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS,
       "wait for the word");
}

[[noreturn]] inline void die()
{
    std::fflush(nullptr);
    raise(SIGKILL);
    std::abort();
}

/// Everybody is through with what went before, and nobody of `doomed` dies earlier: else one that
/// is still in it would meet the failure.
inline void all_through(const std::set<int> &doomed, MPI_Comm comm = MPI_COMM_WORLD)
{
    int token = 0;
    for (const int rank : doomed) {
        if (rank != me) {
            is(MPI_Send(&token, 1, MPI_INT, rank, 9, comm), MPI_SUCCESS, "token");
        }
    }
    for (int rank = 0; doomed.count(me) != 0 && rank < size; ++rank) {
        if (rank != me) { // one that is doomed itself may be gone by now
            MPI_Recv(&token, 1, MPI_INT, rank, 9, comm, MPI_STATUS_IGNORE);
        }
    }
}

/// The ranks of "1,3" or "1-3"; empty for "none".
inline std::set<int> ranks_of(const std::string &text)
{
    std::set<int> ranks;
    for (std::size_t at = 0; at < text.size() && text != "none";) {
        std::size_t end = text.find(',', at);
        end = end == std::string::npos ? text.size() : end;
        const std::string word = text.substr(at, end - at);
        const std::size_t dash = word.find('-');
        const int first = std::atoi(word.c_str());
        const int last = dash == std::string::npos ? first : std::atoi(word.c_str() + dash + 1);
        for (int r = first; r <= last; ++r) {
            ranks.insert(r);
        }
        at = end + 1;
    }
    return ranks;
}

/// What this process knows of a rank.
inline int state(MPI_Comm comm, int rank)
{
    MPI_Rank_info info{};
    is(MPI_Comm_validate_rank(comm, rank, &info), MPI_SUCCESS, "MPI_Comm_validate_rank");
    return info.state;
}

/// Until this process has heard that all of them have failed.
inline void hear_of(MPI_Comm comm, const std::set<int> &dead)
{
    for (const int rank : dead) {
        while (state(comm, rank) == MPI_RANK_OK) {
        }
    }
}

/// The failed ranks of the communicator, as MPI_Comm_validate tells them.
inline std::set<int> failed(MPI_Comm comm)
{
    int count = 0;
    is(MPI_Comm_validate(comm, 0, &count, nullptr), MPI_SUCCESS, "MPI_Comm_validate");
    std::vector<MPI_Rank_info> infos(static_cast<std::size_t>(count));
    is(MPI_Comm_validate(comm, count, &count, infos.data()), MPI_SUCCESS, "MPI_Comm_validate");
    std::set<int> ranks;
    for (const MPI_Rank_info &info : infos) {
        ranks.insert(info.rank);
    }
    return ranks;
}

/// Whether this is so at all of a communicator that live.
inline bool everywhere(MPI_Comm comm, bool here)
{
    int flag = here ? 1 : 0;
    const int code = MPIX_Comm_agree(comm, &flag);
    that(code == MPI_SUCCESS || class_of(code) == MPIX_ERR_PROC_FAILED, "agree: %d", code);
    return flag == 1;
}

/// Of a call that makes a communicator: all that live and take part have one, or nobody has.
inline void all_or_nobody(MPI_Comm comm, bool has, bool takes_part = true)
{
    const bool all = everywhere(comm, has || !takes_part);
    const bool none = everywhere(comm, !has || !takes_part);
    that(all != none, "some have a communicator, and some have not");
}

inline std::string text_of(const std::set<int> &ranks)
{
    std::string text;
    for (const int rank : ranks) {
        text += (text.empty() ? "" : ",") + std::to_string(rank);
    }
    return text.empty() ? "none" : text;
}

/// One line for each rank; what main returns.
inline int finish()
{
    MPI_Finalize();
    std::printf("rank %d %s\n", me, failures == 0 ? "right" : "WRONG");
    std::fflush(stdout);
    return failures == 0 ? 0 : 1;
}

} // namespace check

/// \file
/// What the library's entry points have in common: checks of their arguments, waiting, requests.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include <atomic>
#include <functional>
#include <optional>

#include "ompi/mpi_ft/contexts.hpp"
#include "ompi/mpi_ft/mpi_ft.h"
#include "ompi/mpi_ft/service.hpp"

namespace ft::validate {

/// Calls the error handler of the communicator (MPI_COMM_WORLD's when it is none). \return the
/// error
int raise(ompi_communicator_t *comm, int error, const char *function) noexcept;

/// The record of the communicator, after the checks that all entry points make. \return nullptr
/// when one failed, with the error handler called and `error` set
Record *checked(ompi_communicator_t *comm, const char *function, int &error) noexcept;

/// A request of this library's own. It keeps its communicator.
class Pending {
  public:
    /// The lock is held. \return nullptr without memory
    static Pending *make(ompi_communicator_t *comm) noexcept;
    ompi_request_t *request() noexcept { return &request_; }
    /// Completes it; it may be gone afterwards.
    void complete(int error) noexcept;

  private:
    void destroy() noexcept;
    friend int free_pending(ompi_request_t **request) noexcept;
    ompi_request_t request_;
    bool freed_ = false;
    bool complete_ = false;
};

/// Waits in MPI's progress loop.
template <class Over>
void wait_for(const Over &over)
{
    while (!over()) {
        opal_progress();
    }
}

/// Before a local call answers: makes progress, so that a loop around the call learns something,
/// and so that the PML knows of what the call tells. Without the lock held.
void catch_up();

/// Agrees and waits. Without the lock held. \param attempt as of Record::agree
Value agree_now(Record &record, const Brought &brought, Attempt *attempt = nullptr);

/// What a call brings that comes after a failure.
constexpr std::uint64_t recovering(std::uint64_t flags)
{
    return (flags & all_ids) | all_recover | unrevoked;
}
/// What a call brings that makes a communicator.
constexpr std::uint64_t making(bool well, std::uint64_t flags = 0)
{
    return (flags & all_ids) | all_make | unrevoked | (well ? all_well : 0);
}

/// What agrees with context ids.
enum class Purpose : std::uint8_t {
    make,    ///< a communicator, and all is well here
    give_up, ///< the same, and all is not well
    recover,
};

/// Agrees, with as many tries as it takes to find context ids that are free everywhere; whether all
/// is well is part of the agreement.
struct Agreed {
    Value value;
    std::vector<std::uint32_t> contexts; ///< empty when `needed` said so
    bool enough = false;                 ///< false: there are no more context ids, as all find
    std::uint32_t window = 0;            ///< in which they were found
};
/// \param needed how many context ids a value asks for; the same answer everywhere
Agreed agree_with_contexts(Record &record, Purpose purpose,
                           const std::function<std::size_t(const Value &)> &needed);
/// The same without waiting. The service's lock is held, and again while `needed` and `then` are
/// called.
void agree_with_contexts_later(Record &record, Purpose purpose,
                               std::function<std::size_t(const Value &)> needed,
                               std::function<void(const Agreed &)> then);

/// Body of an entry point: nothing is thrown through C.
template <class Body>
int guarded(ompi_communicator_t *comm, const char *function, Body body) noexcept
{
    int error = MPI_SUCCESS;
    Record *record = checked(comm, function, error);
    if (record == nullptr) {
        return error;
    }
    try {
        error = body(*record);
    } catch (...) {
        error = MPI_ERR_NO_MEM;
    }
    return error == MPI_SUCCESS ? MPI_SUCCESS : raise(comm, error, function);
}

/// A group of these members, in this order.
int group_of(const Record &record, const std::vector<Rank> &members, MPI_Group *group) noexcept;

} // namespace ft::validate

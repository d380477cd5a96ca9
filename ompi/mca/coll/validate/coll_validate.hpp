/// \file
/// Collective operations of a communicator that may lose ranks.
///
/// As long as nobody of a communicator has failed, its table of collectives is what Open MPI made
/// of it, but for MPI_Allgatherv: a call costs nothing more. At the first failure in it, or
/// revocation, the functions in the table are replaced by this module's. A call that meets a
/// failure which is not recognised ends with MPI_ERR_RANK_FAIL_STOP. When MPI_Comm_validate_all has
/// recognised the failures, calls run on a communicator of the survivors, with the stock algorithms
/// and their arguments translated.
///
/// A collective that is under way at the first failure has been called by the stock table. The PML
/// fails its requests, with the right class, and the algorithm gives that back; where Open MPI's
/// functions on requests would make something else of it, coll_validate_requests.cc does not let
/// them. Some stock algorithms lose an error in the middle, but go on to another message of the
/// communicator, which the PML refuses then. One loses it at the end: an allgatherv by a gather and
/// a broadcast, which coll/tuned takes for short blocks, does not look at what the broadcast gave
/// back. So that function is this module's from the beginning: it calls the stock one, and when
/// that has succeeded looks whether the communicator is as before.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include <memory>
#include <optional>
#include <vector>

#include "ompi/mpi_ft/service.hpp"
#include "opal/process/standing.hpp"

namespace ft::coll {

using validate::Mode;
using validate::RankRun;
using validate::Record;

/// Takes a new communicator over: coll_module_enable of every module of this component.
int enable(mca_coll_base_module_t *base, ompi_communicator_t *comm) noexcept;

struct Module : mca_coll_base_module_t {
    /// What was in the table, once it has been diverted. Only functions are replaced there, one
    /// word each: another thread takes a function and its module from it in two steps.
    mca_coll_base_comm_coll_t below;
    /// MPI_Allgatherv's function and its module, which this module stands above from the beginning.
    mca_coll_base_module_allgatherv_fn_t stock_allgatherv;
    mca_coll_base_module_t *stock_allgatherv_module;
    bool diverted;
    bool settled;   ///< it is known whether this module is
    bool topmost;   ///< nobody of higher priority stands above it and calls it in turn
    int handing_on; ///< calls that are in what is below
    ompi_communicator_t *comm;
    Record *record;
    std::uint64_t stock_news; ///< as of which `mode` is known to be stock; none: no such number
    std::uint64_t news;       ///< as of which `mode` holds, and `among`
    Mode mode;
    ompi_communicator_t *among; ///< the survivors', once a collective has run among them

    static Module &of(mca_coll_base_module_t *module) noexcept
    {
        return *static_cast<Module *>(module);
    }
    static Module &of(ompi_communicator_t *comm) noexcept
    {
        mca_coll_base_module_t *ours = comm->c_coll->coll_barrier_init_module;
        return OPAL_LIKELY(is_one(ours)) ? of(ours) : searched(comm);
    }
    /// From now on calls come here; once more, if somebody has taken a place in the table since.
    /// The service's lock is held.
    void divert() noexcept;
    /// Calls what is below. Components write to the table in a collective: coll/han puts what it
    /// stands upon into its own place when it finds that it is of no use for the communicator. So
    /// when the call is back, what is in the table then is below.
    template <class Call>
    int hand_on(Call call) noexcept
    {
        settle();
        ++handing_on;
        const int rc = call();
        come_back();
        return rc;
    }
    /// Nobody has failed, and nothing has been heard since that was looked at: the stock collective
    /// is to be called.
    bool surely_stock() const noexcept { return stock_news == process::news(); }
    /// The same after a look, where there is something new.
    bool stock() noexcept
    {
        return (OPAL_LIKELY(news == process::news()) ? mode : look()) == Mode::stock;
    }
    /// Takes the news over. \return how collectives are to run
    Mode look() noexcept;
    /// What a call returns whose collective returned `rc`: whatever an algorithm makes of a
    /// failure, it is the class of a failed rank.
    int result(int rc) noexcept { return OPAL_LIKELY(rc == OMPI_SUCCESS) ? rc : failure(rc); }
    int failure(int rc) noexcept;
    /// What a call returns whose stock algorithm may have thrown an error away. The PML fails a
    /// message because of news, so who has such an error sees them here. A failure after the last
    /// message looks the same: a success that is none any more.
    int doubted(int rc) noexcept
    {
        return OPAL_LIKELY(rc != OMPI_SUCCESS || surely_stock()) ? rc : doubtful_success();
    }
    /// The same for a collective that goes on: its request ends with the class of a failed rank,
    /// and with the error handler of this communicator. `scratch` is released then.
    int watch(int rc, ompi_request_t **request, struct Scratch *scratch = nullptr) noexcept;

    /// Takes MPI_Allgatherv's place in the table over, with its module.
    void take_allgatherv() noexcept;

  private:
    int doubtful_success() noexcept;
    void stand_above() noexcept;
    bool stands_above() const noexcept;
    void settle() noexcept;
    void come_back() noexcept;
    static bool is_one(const mca_coll_base_module_t *module) noexcept
    {
        return module->coll_module_enable == enable;
    }
    /// The same where another component has put itself into its place.
    static Module &searched(ompi_communicator_t *comm) noexcept;
};

/// What a Scratch begins with and a request never does.
inline constexpr char scratch_mark = 0;

/// A datatype that a collective has made for itself. Messages that are still under way hold it too.
struct Unmake {
    void operator()(ompi_datatype_t *type) const noexcept { ompi_datatype_destroy(&type); }
};
using MadeType = std::unique_ptr<ompi_datatype_t, Unmake>;

/// Arguments of a collective among the survivors, kept until it has ended.
struct Scratch {
    const char *mark = &scratch_mark; ///< the first member
    ompi_request_t *request = nullptr;
    Module *module = nullptr;
    std::vector<int> counts[2];
    std::vector<int> places[2];
    std::vector<ompi_datatype_t *> types[2];
    MadeType made[2];
    std::unique_ptr<char[]> bytes;
    std::unique_ptr<char[]> more_bytes;
    /// What is to be copied to the program's buffer when the collective has succeeded.
    char *from = nullptr;
    char *into = nullptr;
    int count = 0;
    ompi_datatype_t *type = nullptr;
    /// Not null: `from` is so much for each of these ranks, `into` what all ranks have.
    const std::vector<RankRun> *blocks = nullptr;
    std::vector<RankRun> kept_blocks;
    void hand_over() const noexcept;
};

/// Copies the blocks that these ranks have in `all`, each of `count` elements, to `packed`, one
/// behind the other; and back.
void pack_blocks(const std::vector<RankRun> &runs, int count, ompi_datatype_t *type,
                 const char *all, char *packed) noexcept;
void unpack_blocks(const std::vector<RankRun> &runs, int count, ompi_datatype_t *type,
                   const char *packed, char *all) noexcept;

/// What stands in the table of a communicator that is diverted.
const mca_coll_base_comm_coll_t &diverted_functions() noexcept;

/// What a non-blocking collective's request ends with, by the error handler of its communicator.
void fail(ompi_request_t *request, int error) noexcept;
/// Whether it is one of those, failed or not.
bool of_a_collective(const ompi_request_t *request) noexcept;

/// The class of an error `rc` of a collective on this communicator: that of a failed rank or of a
/// revocation, if there is one that it knows of. Takes the service's lock.
int failure_on(ompi_communicator_t *comm, int rc) noexcept;

/// Sees to the errors of collectives that began with the stock table, from now on; and no more.
void watch_requests() noexcept;
void unwatch_requests() noexcept;

/// An empty module, to be released with OBJ_RELEASE.
Module *new_module() noexcept;

} // namespace ft::coll

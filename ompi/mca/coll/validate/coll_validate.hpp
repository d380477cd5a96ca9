/// \file
/// Collective operations of a communicator that may lose ranks.
///
/// The module stands above whatever modules were chosen and hands every call down to them as long
/// as nobody has failed. A call that meets a failure which is not recognised ends with
/// MPI_ERR_RANK_FAIL_STOP. When MPI_Comm_validate_all has recognised the failures, calls run on a
/// communicator of the survivors, with the stock algorithms and their arguments translated.
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

struct Module : mca_coll_base_module_t {
    mca_coll_base_comm_coll_t below; ///< what was there before this module
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
    /// Nobody has failed, and nothing has been heard since that was looked at: the stock collective
    /// is to be called. All that a collective costs more than without this module is this, a call
    /// and a look at what comes back.
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
    /// The same for a collective that goes on: its request ends with the class of a failed rank,
    /// and with the error handler of this communicator. `scratch` is released then.
    int watch(int rc, ompi_request_t **request, struct Scratch *scratch = nullptr) noexcept;
};

/// What a Scratch begins with and a request never does.
inline constexpr char scratch_mark = 0;

/// Arguments of a collective among the survivors, kept until it has ended.
struct Scratch {
    const char *mark = &scratch_mark; ///< the first member
    ompi_request_t *request = nullptr;
    Module *module = nullptr;
    std::vector<int> counts[2];
    std::vector<int> places[2];
    std::vector<ompi_datatype_t *> types[2];
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

/// Fills the function table of a module.
void set_functions(Module &module) noexcept;

/// An empty module, to be released with OBJ_RELEASE.
Module *new_module() noexcept;

} // namespace ft::coll

/// \file
/// A collective among the survivors: on which communicator, and with which arguments.
#pragma once
#include "ompi/mca/coll/validate/coll_validate.hpp"

namespace ft::coll {

using Type = ompi_datatype_t *;
using Types = ompi_datatype_t *const *;
using Op = ompi_op_t *;
using Comm = ompi_communicator_t *;
using Base = mca_coll_base_module_t *;
using Request = ompi_request_t **;

/// What a process brings to a collective that gathers.
struct Block {
    const void *bytes;
    int count;
    Type type;
};

/// The survivors' blocks where they have been before.
struct Blocks {
    const int *counts;
    const int *places;
    Type type;
};

/// One call among the survivors.
class Among {
  public:
    /// \param goes_on the call returns before the collective ends
    Among(Module &module, bool neighbours, bool goes_on)
        : comm(neighbours ? nullptr : module.among),
          module_(module),
          goes_on_(goes_on),
          ranks_(&module.record->survivor_ranks())
    {
        if (OPAL_LIKELY(comm != nullptr)) {
            return;
        }
        const validate::Lock lock;
        deserted = module.record->deserted();
        if (!deserted) {
            comm = neighbours ? module.record->neighbours()
                              : (module.among = module.record->survivors());
        }
    }
    Comm comm;
    bool deserted = false; ///< nobody is left on the other side of an intercommunicator
    /// Calls whose arguments are the survivors' as they are have none. What ends with the call
    /// takes no memory for it.
    Scratch &scratch()
    {
        if (scratch_ == nullptr) {
            if (goes_on_) {
                kept_ = std::make_unique<Scratch>();
            }
            scratch_ = goes_on_ ? kept_.get() : &here_.emplace();
        }
        return *scratch_;
    }
    const std::vector<int> &ranks() const { return *ranks_; }
    int size() const { return static_cast<int>(ranks_->size()); }
    bool has(int rank) const { return (*ranks_)[static_cast<std::size_t>(rank)] >= 0; }
    /// An intercommunicator's root is MPI_ROOT in its own group, and for the others of that
    /// MPI_PROC_NULL.
    bool has_root(int root) const { return root < 0 || has(root); }
    int root(int root) const { return root < 0 ? root : (*ranks_)[static_cast<std::size_t>(root)]; }
    /// Whether another group takes part, which is not told who the root is when that has failed.
    bool told_alone() const { return module_.record->inter(); }
    /// Whether this process is the root.
    bool here(int root) const
    {
        return module_.record->inter() ? root == MPI_ROOT : module_.comm->c_my_rank == root;
    }

    /// The survivors' entries of an array that has one for each rank.
    int *pick(std::vector<int> &into, const int *all)
    {
        for (int r = 0; r < size(); ++r) {
            if (has(r)) {
                into.push_back(all[r]);
            }
        }
        return into.data();
    }
    Types pick(std::vector<Type> &into, Types all)
    {
        for (int r = 0; r < size(); ++r) {
            if (has(r)) {
                into.push_back(all[r]);
            }
        }
        return into.data();
    }
    /// The same block for every survivor, each at its old place.
    Blocks spread(int side, int count, Type type)
    {
        return spread(side, stays(count) ? Block{nullptr, count, type} : whole(side, count, type));
    }
    /// The same of an allgather, where what this process brings may have to change with it. The
    /// algorithm is chosen by the size of the type that is brought, times the counts of what is
    /// received.
    Blocks spread(Block &own, int count, Type type)
    {
        const bool brings = own.bytes != MPI_IN_PLACE;
        if (stays(count) && (!brings || size_of(own.type) == size_of(type))) {
            return spread(1, Block{nullptr, count, type});
        }
        const Block each = whole(1, count, type);
        if (brings) {
            const bool alike = own.count == count && own.type == type;
            const Block one = alike ? each : whole(0, own.count, own.type);
            own = {own.bytes, one.count, one.type};
        }
        return spread(1, each);
    }
    /// The block that a process has which is not the root.
    Block lone_block(int root, int count, Type type)
    {
        const bool one = module_.record->inter() && root >= 0;
        return one ? whole(0, count, type) : Block{nullptr, count, type};
    }
    /// The survivors' blocks of `from`, one behind the other. \param counts of each block
    const void *pack(const void *from, const int *counts, Type type)
    {
        long long total = 0;
        for (int r = 0; r < size(); ++r) {
            total += has(r) ? counts[r] : 0;
        }
        ptrdiff_t gap = 0;
        const ptrdiff_t span =
            opal_datatype_span(&type->super, static_cast<std::size_t>(total), &gap);
        scratch().bytes = std::make_unique<char[]>(static_cast<std::size_t>(span) + 1);
        ptrdiff_t lower = 0;
        ptrdiff_t extent = 0;
        ompi_datatype_get_extent(type, &lower, &extent);
        char *const base = scratch().bytes.get() - gap;
        char *to = base;
        const char *at = static_cast<const char *>(from);
        for (int r = 0; r < size(); ++r) {
            if (has(r) && counts[r] != 0) {
                ompi_datatype_copy_content_same_ddt(type, counts[r], to, const_cast<char *>(at));
                to += extent * counts[r];
            }
            at += extent * counts[r];
        }
        return base;
    }

    /// Whether blocks of so many elements are few bytes in all. Then they are packed, and the stock
    /// components choose for equal blocks as they would in the smaller group. All ranks see it
    /// alike, but those of an intercommunicator that only look on. Elements of no bytes may be any
    /// number, and are not packed.
    bool small(int count, Type type) const
    {
        constexpr std::size_t most = 64 << 10;
        if (module_.record->inter()) {
            return false;
        }
        const std::size_t bytes =
            size_of(type) * static_cast<std::size_t>(count) * static_cast<std::size_t>(size());
        return bytes != 0 && bytes <= most;
    }
    /// Room for the survivors' blocks, of so many elements each.
    char *room(std::unique_ptr<char[]> &bytes, int count, Type type) const
    {
        const auto elements = static_cast<std::size_t>(count) * static_cast<std::size_t>(size());
        ptrdiff_t gap = 0;
        const ptrdiff_t span = opal_datatype_span(&type->super, elements, &gap);
        bytes = std::make_unique_for_overwrite<char[]>(static_cast<std::size_t>(span) + 1);
        return bytes.get() - gap;
    }
    /// The survivors' blocks of `from`.
    char *packed(std::unique_ptr<char[]> &bytes, const void *from, int count, Type type) const
    {
        char *const into = room(bytes, count, type);
        pack_blocks(module_.record->survivor_runs(), count, type, static_cast<const char *>(from),
                    into);
        return into;
    }
    /// The same of blocks to send. Those may overlap, and elsewhere than at their places one would
    /// write over another: such are sent as the bytes they are made of.
    Block packed_to_send(std::unique_ptr<char[]> &bytes, const void *from, int count,
                         Type type) const
    {
        ptrdiff_t lower = 0;
        ptrdiff_t extent = 0;
        ptrdiff_t span = 0;
        ompi_datatype_get_true_extent(type, &lower, &span);
        ompi_datatype_get_extent(type, &lower, &extent);
        if (OPAL_LIKELY(span <= extent)) {
            return {packed(bytes, from, count, type), count, type};
        }
        const int block = static_cast<int>(size_of(type)) * count;
        bytes = std::make_unique_for_overwrite<char[]>(static_cast<std::size_t>(block) *
                                                       static_cast<std::size_t>(size()));
        char *to = bytes.get();
        for (const RankRun &run : module_.record->survivor_runs()) {
            ompi_datatype_sndrcv(static_cast<const char *>(from) + run.first * extent * count,
                                 run.count * count, type, to, run.count * block, MPI_PACKED);
            to += run.count * block;
        }
        return {bytes.get(), block, MPI_PACKED};
    }
    /// What this process brings: `from`, or with MPI_IN_PLACE its block of `into`.
    Block own_block(const void *from, int send_count, Type send_type, const void *into, int count,
                    Type type) const
    {
        if (from != MPI_IN_PLACE) {
            return {from, send_count, send_type};
        }
        ptrdiff_t lower = 0;
        ptrdiff_t extent = 0;
        ompi_datatype_get_extent(type, &lower, &extent);
        return {static_cast<const char *>(into) + extent * count * module_.comm->c_my_rank, count,
                type};
    }
    /// When the call has succeeded, the blocks in `from` are put where the program wants them.
    void unpack_later(char *from, void *into, int count, Type type)
    {
        scratch().from = from;
        scratch().into = static_cast<char *>(into);
        scratch().count = count;
        scratch().type = type;
        // Until it ends, a validation that is under way may make others of them.
        scratch().kept_blocks = module_.record->survivor_runs();
        scratch().blocks = &scratch().kept_blocks;
    }

    /// For a reduction over the other group of an intercommunicator that is scattered over the own
    /// one. The other group does not know which elements were for failed ranks, so all are
    /// reduced; a survivor takes those for the failed behind it, and the first those before it.
    /// \param counts for each rank of the own group
    /// \return where the result goes instead of `into`
    char *absorb(const int *counts, char *into, Type type)
    {
        const std::vector<int> &own = module_.record->local_survivor_ranks();
        std::vector<int> &merged = scratch().counts[0];
        int before = 0;
        for (std::size_t r = 0; r < own.size(); ++r) {
            if (own[r] >= 0) {
                merged.push_back(counts[r] + (merged.empty() ? before : 0));
            } else if (merged.empty()) {
                before += counts[r];
            } else {
                merged.back() += counts[r];
            }
        }
        const auto self = static_cast<std::size_t>(module_.comm->c_my_rank);
        const auto place = static_cast<std::size_t>(own[self]);
        ptrdiff_t gap = 0;
        const ptrdiff_t span =
            opal_datatype_span(&type->super, static_cast<std::size_t>(merged[place]), &gap);
        scratch().bytes = std::make_unique<char[]>(static_cast<std::size_t>(span) + 1);
        ptrdiff_t lower = 0;
        ptrdiff_t extent = 0;
        ompi_datatype_get_extent(type, &lower, &extent);
        char *const base = scratch().bytes.get() - gap;
        scratch().from = base + (place == 0 ? before * extent : 0);
        scratch().into = into;
        scratch().count = counts[self];
        scratch().type = type;
        return base;
    }

    /// The end of the call.
    int end(int rc, Request request)
    {
        if (request != nullptr) {
            return module_.watch(rc, request, kept_.release());
        }
        if (rc == OMPI_SUCCESS && scratch_ != nullptr) {
            scratch_->hand_over();
        }
        return module_.result(rc);
    }
    int refuse(int error, Request request)
    {
        if (request != nullptr) {
            *request = &ompi_request_null.request;
        }
        return error;
    }

  private:
    /// Whether blocks stay so many elements each, and do not become one of a type made for them.
    /// Their places must be numbers that Open MPI's arrays can hold. The processes of an
    /// intercommunicator take each other's counts for counts of their own types, so there each
    /// block is one of something.
    bool stays(int count) const
    {
        int last = size() - 1;
        while (last > 0 && !has(last)) {
            --last;
        }
        return !module_.record->inter() && static_cast<long long>(last) * count <= INT_MAX;
    }
    static std::size_t size_of(Type type)
    {
        std::size_t bytes = 0;
        ompi_datatype_type_size(type, &bytes);
        return bytes;
    }
    /// A block as one element, of a type that lives as long as the call. For who sends or receives
    /// it at the other end nothing is changed.
    Block whole(int side, int count, Type type)
    {
        Type made = nullptr;
        if (ompi_datatype_create_contiguous(count, type, &made) != OMPI_SUCCESS) {
            throw std::bad_alloc();
        }
        scratch().made[side].reset(made);
        if (ompi_datatype_commit(&made) != OMPI_SUCCESS) {
            throw std::bad_alloc();
        }
        return {nullptr, 1, made};
    }
    Blocks spread(int side, const Block &each)
    {
        Scratch &s = scratch();
        for (int r = 0; r < size(); ++r) {
            if (has(r)) {
                s.counts[side].push_back(each.count);
                s.places[side].push_back(r * each.count);
            }
        }
        return {s.counts[side].data(), s.places[side].data(), each.type};
    }

    Module &module_;
    const bool goes_on_;
    Scratch *scratch_ = nullptr;
    std::optional<Scratch> here_;
    std::unique_ptr<Scratch> kept_;
    const std::vector<int> *ranks_;
};

} // namespace ft::coll

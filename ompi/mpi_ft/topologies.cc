// Communicators with a topology, made at every survivor or at none. Open MPI's own make a
// communicator first, in its own way that waits for ever when a process fails; here the topology is
// on the draft already. Ranks are never reordered, as Open MPI's component "basic" does not either.
#include "ompi/mpi_ft/communicators.hpp"

#include <cstdlib>
#include <numeric>

namespace ft::validate {

namespace {

/// Memory that Open MPI frees. \return nullptr for an empty list, too
int *copied(const int *from, std::size_t count)
{
    if (count == 0) {
        return nullptr;
    }
    auto *copy = static_cast<int *>(std::malloc(count * sizeof(int)));
    if (copy == nullptr) {
        throw std::bad_alloc();
    }
    std::copy_n(from, count, copy);
    return copy;
}

/// The draft's topology is of this type. \return nullptr without a component for it
mca_topo_base_module_t *add_topology(ompi_communicator_t *parent, Prepared comm, std::uint32_t type)
{
    mca_topo_base_module_t *module = nullptr;
    if (comm == nullptr ||
        mca_topo_base_comm_select(parent, nullptr, &module, type) != OMPI_SUCCESS) {
        return nullptr;
    }
    module->reorder = false;
    comm->c_topo = module; // which frees what is put on it now, even if it is not complete
    comm->c_flags |= type;
    return module;
}

template <class Data>
Data *data_of(mca_topo_base_module_t *module, opal_class_t *type)
{
    auto *data = reinterpret_cast<Data *>(opal_obj_new(type));
    if (data == nullptr) {
        throw std::bad_alloc();
    }
    module->mtc.cart = reinterpret_cast<mca_topo_base_comm_cart_2_2_0_t *>(data);
    return data;
}

bool add_cart(ompi_communicator_t *parent, Prepared comm, const std::vector<int> &dims,
              const std::vector<int> &periods)
try {
    mca_topo_base_module_t *module = add_topology(parent, comm, OMPI_COMM_CART);
    if (module == nullptr) {
        return false;
    }
    auto *cart = data_of<mca_topo_base_comm_cart_2_2_0_t>(
        module, OBJ_CLASS(mca_topo_base_comm_cart_2_2_0_t));
    cart->ndims = static_cast<int>(dims.size());
    cart->dims = copied(dims.data(), dims.size());
    cart->periods = copied(periods.data(), dims.size());
    cart->coords = copied(dims.data(), dims.size());
    int rank = comm->c_my_rank;
    for (std::size_t i = dims.size(); i-- > 0;) { // the last one runs fastest
        cart->coords[i] = rank % dims[i];
        rank /= dims[i];
    }
    return true;
} catch (...) {
    return false;
}

bool add_graph(ompi_communicator_t *parent, Prepared comm, int nodes, const int *index,
               const int *edges)
try {
    mca_topo_base_module_t *module = add_topology(parent, comm, OMPI_COMM_GRAPH);
    if (module == nullptr) {
        return false;
    }
    auto *graph = data_of<mca_topo_base_comm_graph_2_2_0_t>(
        module, OBJ_CLASS(mca_topo_base_comm_graph_2_2_0_t));
    const auto count = static_cast<std::size_t>(nodes);
    graph->nnodes = nodes;
    graph->index = copied(index, count);
    graph->edges = copied(edges, static_cast<std::size_t>(index[count - 1]));
    return true;
} catch (...) {
    return false;
}

/// One direction of the neighbours of a process.
struct Neighbours {
    int count;
    const int *ranks;
    const int *weights;

    int *copy_of(const int *list) const
    {
        return list == MPI_UNWEIGHTED || list == MPI_WEIGHTS_EMPTY
                   ? nullptr
                   : copied(list, static_cast<std::size_t>(count));
    }
};

bool add_neighbours(ompi_communicator_t *parent, Prepared comm, const Neighbours &in,
                    const Neighbours &out)
try {
    mca_topo_base_module_t *module = add_topology(parent, comm, OMPI_COMM_DIST_GRAPH);
    if (module == nullptr) {
        return false;
    }
    auto *graph = data_of<mca_topo_base_comm_dist_graph_2_2_0_t>(
        module, OBJ_CLASS(mca_topo_base_comm_dist_graph_2_2_0_t));
    graph->indegree = in.count;
    graph->outdegree = out.count;
    graph->weighted = in.weights != MPI_UNWEIGHTED || out.weights != MPI_UNWEIGHTED;
    graph->in = copied(in.ranks, static_cast<std::size_t>(in.count));
    graph->out = copied(out.ranks, static_cast<std::size_t>(out.count));
    graph->inw = in.copy_of(in.weights);
    graph->outw = out.copy_of(out.weights);
    return true;
} catch (...) {
    return false;
}

/// What a process says of its edges to the process at one end of them.
struct Edge {
    int incoming; ///< whether it ends there
    int peer;     ///< the other end
    int weight;
};

/// Everybody hears of its edges from whoever named them. Ranks that are recognised as failed have
/// named none, and what was named of them is not told to anybody.
bool gather_edges(ompi_communicator_t *comm, int count, const int *nodes, const int *degrees,
                  const int *targets, const int *weights, std::vector<Edge> &mine)
{
    const auto size = static_cast<std::size_t>(ompi_comm_size(comm));
    std::vector<std::vector<Edge>> told(size);
    int at = 0;
    for (int i = 0; i < count; ++i) {
        for (int j = 0; j < degrees[i]; ++j, ++at) {
            if (nodes[i] == MPI_PROC_NULL || targets[at] == MPI_PROC_NULL) {
                continue;
            }
            const int weight = weights == MPI_UNWEIGHTED ? 1 : weights[at];
            told[static_cast<std::size_t>(nodes[i])].push_back({0, targets[at], weight});
            told[static_cast<std::size_t>(targets[at])].push_back({1, nodes[i], weight});
        }
    }
    constexpr int ints = sizeof(Edge) / sizeof(int);
    std::vector<int> lengths[2] = {std::vector<int>(size, 0), std::vector<int>(size, 0)};
    std::vector<int> places[2] = {std::vector<int>(size, 0), std::vector<int>(size, 0)};
    std::vector<Edge> all;
    for (std::size_t rank = 0; rank < size; ++rank) {
        lengths[0][rank] = static_cast<int>(told[rank].size()) * ints;
        places[0][rank] = static_cast<int>(all.size()) * ints;
        all.insert(all.end(), told[rank].begin(), told[rank].end());
    }
    mca_coll_base_comm_coll_t &coll = *comm->c_coll;
    if (coll.coll_alltoall(lengths[0].data(), 1, MPI_INT, lengths[1].data(), 1, MPI_INT, comm,
                           coll.coll_alltoall_module) != OMPI_SUCCESS) {
        return false;
    }
    std::exclusive_scan(lengths[1].begin(), lengths[1].end(), places[1].begin(), 0);
    mine.resize(static_cast<std::size_t>(places[1].back() + lengths[1].back()) / ints);
    return coll.coll_alltoallv(all.data(), lengths[0].data(), places[0].data(), MPI_INT,
                               mine.data(), lengths[1].data(), places[1].data(), MPI_INT, comm,
                               coll.coll_alltoallv_module) == OMPI_SUCCESS;
}

/// A draft of the first ranks. Who is not among them takes part in the agreement.
Draft draft_of_first(ompi_communicator_t *comm, int count)
{
    Draft draft;
    draft.topology = true;
    if (comm->c_my_rank < count) {
        std::vector<int> ranks(static_cast<std::size_t>(count));
        std::iota(ranks.begin(), ranks.end(), 0);
        draft.comm = prepare_ranks(comm, ranks);
        draft.well = draft.comm != nullptr;
    }
    return draft;
}

/// What Open MPI's own accepts: it reports the rest.
bool cart_is_good(ompi_communicator_t *comm, int ndims, const int *dims, const int *periods)
{
    if (ndims < 0 || (ndims > 0 && (dims == nullptr || periods == nullptr))) {
        return false;
    }
    long long nodes = 1;
    for (int i = 0; i < ndims; ++i) {
        if (dims[i] <= 0) {
            return false;
        }
        nodes *= dims[i];
        if (nodes > ompi_comm_size(comm)) {
            return false;
        }
    }
    return true;
}

bool graph_is_good(ompi_communicator_t *comm, int nodes, const int *index, const int *edges)
{
    if (nodes <= 0 || nodes > ompi_comm_size(comm) || index == nullptr) {
        return false;
    }
    for (int i = 0; i < nodes; ++i) {
        if (index[i] < (i == 0 ? 0 : index[i - 1])) {
            return false;
        }
    }
    for (int i = 0; i < index[nodes - 1]; ++i) {
        if (edges == nullptr || edges[i] < 0 || edges[i] >= nodes) {
            return false;
        }
    }
    return true;
}

bool neighbours_are_good(ompi_communicator_t *comm, const Neighbours &side)
{
    if (side.count < 0 || (side.count > 0 && (side.ranks == nullptr || side.weights == nullptr))) {
        return false;
    }
    for (int i = 0; i < side.count; ++i) {
        if (side.ranks[i] != MPI_PROC_NULL &&
            (side.ranks[i] < 0 || side.ranks[i] >= ompi_comm_size(comm))) {
            return false;
        }
    }
    return true;
}

/// The edges of MPI_Dist_graph_create.
bool edges_are_good(ompi_communicator_t *comm, int count, const int *nodes, const int *degrees,
                    const int *targets, const int *weights)
{
    if (count < 0 || (count > 0 && (nodes == nullptr || degrees == nullptr || targets == nullptr ||
                                    weights == nullptr))) {
        return false;
    }
    const auto names = [&](int rank) {
        return rank == MPI_PROC_NULL || (rank >= 0 && rank < ompi_comm_size(comm));
    };
    for (int i = 0, at = 0; i < count; ++i) {
        if (!names(nodes[i]) || degrees[i] < 0) {
            return false;
        }
        for (int j = 0; j < degrees[i]; ++j, ++at) {
            if (!names(targets[at]) || (weights != MPI_UNWEIGHTED && weights[at] < 0)) {
                return false;
            }
        }
    }
    return true;
}

bool no_info(MPI_Info info) noexcept
{
    return info == MPI_INFO_NULL || info == nullptr;
}

} // namespace

} // namespace ft::validate

using namespace ft::validate;

extern "C" {

int PMPI_Cart_create(MPI_Comm comm, int ndims, const int dims[], const int periods[], int reorder,
                     MPI_Comm *newcomm)
{
    if (!ours(comm) || OMPI_COMM_IS_INTER(comm) || newcomm == nullptr ||
        !cart_is_good(comm, ndims, dims, periods)) {
        return FT_STOCK(MPI_Cart_create)(comm, ndims, dims, periods, reorder, newcomm);
    }
    return guarded(comm, "MPI_Cart_create", [&](Record &record) {
        *newcomm = MPI_COMM_NULL;
        const std::vector<int> sizes(dims, dims + ndims);
        const int nodes = std::accumulate(sizes.begin(), sizes.end(), 1, std::multiplies<>());
        Draft draft = draft_of_first(comm, nodes);
        draft.well = draft.well && (draft.comm == nullptr ||
                                    add_cart(comm, draft.comm, sizes, {periods, periods + ndims}));
        return finish(record, draft, newcomm);
    });
}

int PMPI_Cart_sub(MPI_Comm comm, const int remain[], MPI_Comm *newcomm)
{
    if (!ours(comm) || !OMPI_COMM_IS_CART(comm) || newcomm == nullptr || remain == nullptr) {
        return FT_STOCK(MPI_Cart_sub)(comm, remain, newcomm);
    }
    return guarded(comm, "MPI_Cart_sub", [&](Record &record) {
        *newcomm = MPI_COMM_NULL;
        const mca_topo_base_comm_cart_2_2_0_t &cart = *comm->c_topo->mtc.cart;
        std::vector<int> dims;
        std::vector<int> periods;
        // The ranks of the part, failed ones too: those that differ from this one only in what
        // remains. The last dimension runs fastest.
        std::vector<int> ranks{0};
        for (int i = 0; i < cart.ndims; ++i) {
            const bool stays = remain[i] != 0;
            if (stays) {
                dims.push_back(cart.dims[i]);
                periods.push_back(cart.periods[i]);
            }
            std::vector<int> further;
            for (const int rank : ranks) {
                for (int at = stays ? 0 : cart.coords[i];
                     at < (stays ? cart.dims[i] : cart.coords[i] + 1); ++at) {
                    further.push_back(rank * cart.dims[i] + at);
                }
            }
            std::swap(ranks, further);
        }
        Draft draft;
        draft.topology = true;
        draft.comm = prepare_ranks(comm, ranks);
        draft.well = add_cart(comm, draft.comm, dims, periods);
        return finish(record, draft, newcomm);
    });
}

int PMPI_Graph_create(MPI_Comm comm, int nodes, const int index[], const int edges[], int reorder,
                      MPI_Comm *newcomm)
{
    if (!ours(comm) || OMPI_COMM_IS_INTER(comm) || newcomm == nullptr ||
        !graph_is_good(comm, nodes, index, edges)) {
        return FT_STOCK(MPI_Graph_create)(comm, nodes, index, edges, reorder, newcomm);
    }
    return guarded(comm, "MPI_Graph_create", [&](Record &record) {
        *newcomm = MPI_COMM_NULL;
        Draft draft = draft_of_first(comm, nodes);
        draft.well = draft.well &&
                     (draft.comm == nullptr || add_graph(comm, draft.comm, nodes, index, edges));
        return finish(record, draft, newcomm);
    });
}

int PMPI_Dist_graph_create_adjacent(MPI_Comm comm, int indegree, const int sources[],
                                    const int sourceweights[], int outdegree,
                                    const int destinations[], const int destweights[],
                                    MPI_Info info, int reorder, MPI_Comm *newcomm)
{
    const Neighbours in{indegree, sources, sourceweights};
    const Neighbours out{outdegree, destinations, destweights};
    if (!ours(comm) || OMPI_COMM_IS_INTER(comm) || newcomm == nullptr ||
        !neighbours_are_good(comm, in) || !neighbours_are_good(comm, out)) {
        return FT_STOCK(MPI_Dist_graph_create_adjacent)(comm, indegree, sources, sourceweights,
                                                        outdegree, destinations, destweights, info,
                                                        reorder, newcomm);
    }
    const int code = guarded(comm, "MPI_Dist_graph_create_adjacent", [&](Record &record) {
        *newcomm = MPI_COMM_NULL;
        Draft draft = draft_of_first(comm, ompi_comm_size(comm));
        draft.well = draft.well && add_neighbours(comm, draft.comm, in, out);
        return finish(record, draft, newcomm);
    });
    return code == MPI_SUCCESS && !no_info(info) ? PMPI_Comm_set_info(*newcomm, info) : code;
}

int PMPI_Dist_graph_create(MPI_Comm comm, int count, const int nodes[], const int degrees[],
                           const int targets[], const int weights[], MPI_Info info, int reorder,
                           MPI_Comm *newcomm)
{
    if (!ours(comm) || OMPI_COMM_IS_INTER(comm) || newcomm == nullptr ||
        !edges_are_good(comm, count, nodes, degrees, targets, weights)) {
        return FT_STOCK(MPI_Dist_graph_create)(comm, count, nodes, degrees, targets, weights, info,
                                               reorder, newcomm);
    }
    const int code = guarded(comm, "MPI_Dist_graph_create", [&](Record &record) {
        *newcomm = MPI_COMM_NULL;
        std::vector<Edge> edges;
        const bool heard = gather_edges(comm, count, nodes, degrees, targets, weights, edges);
        Draft draft = draft_of_first(comm, ompi_comm_size(comm));
        std::vector<int> peers[2];
        std::vector<int> loads[2];
        for (const Edge &edge : edges) {
            peers[edge.incoming].push_back(edge.peer);
            loads[edge.incoming].push_back(edge.weight);
        }
        const auto side = [&](int which) {
            const bool plain = weights == MPI_UNWEIGHTED;
            return Neighbours{static_cast<int>(peers[which].size()), peers[which].data(),
                              plain ? MPI_UNWEIGHTED : loads[which].data()};
        };
        draft.well = draft.well && heard && add_neighbours(comm, draft.comm, side(1), side(0));
        return finish(record, draft, newcomm);
    });
    return code == MPI_SUCCESS && !no_info(info) ? PMPI_Comm_set_info(*newcomm, info) : code;
}

FT_BOTH_NAMES(MPI_Cart_create);
FT_BOTH_NAMES(MPI_Cart_sub);
FT_BOTH_NAMES(MPI_Graph_create);
FT_BOTH_NAMES(MPI_Dist_graph_create_adjacent);
FT_BOTH_NAMES(MPI_Dist_graph_create);

} // extern "C"

/// \file
/// Messages of a process to itself: no wire, no fragments, matched like all others.
#include "ompi/mca/pml/dr/comm.hpp"
#include "ompi/mca/pml/dr/errors.hpp"
#include "ompi/mca/pml/dr/recv.hpp"
#include "ompi/mca/pml/dr/send.hpp"
#include "ompi/mca/pml/dr/standing.hpp"

namespace ft::dr {

namespace {

/// Longer messages wait in the user's buffer for their receive.
constexpr std::size_t copied_at_most = 4096;

} // namespace

int send_to_self(SendRequest &request) noexcept
{
    ompi_communicator_t *comm = request.req_base.req_comm;
    CommState &state = *CommState::of(comm);
    const std::size_t bytes = request.req_bytes_packed;
    Arrival arrival;
    arrival.context = comm->c_contextid;
    arrival.source = comm->c_my_rank;
    arrival.tag = request.req_base.req_tag;
    arrival.length = bytes;
    arrival.local = &request;
    Completions done;
    RecvRequest *receiver = nullptr;
    {
        Guard guard(state.lock);
        if (OPAL_UNLIKELY(any_peer_failed())) {
            // Asked here, too: end_refused, which takes this lock, may be through by now.
            if (const int error = refusal(state, arrival.source, arrival.tag); error > 0) {
                finish(request, error, done);
                return OMPI_SUCCESS;
            }
        }
        receiver = state.match(arrival.source, arrival.tag);
        if (receiver == nullptr) {
            std::byte copy[copied_at_most];
            const bool wait = request.synchronous || bytes > copied_at_most;
            if (!wait) {
                pack(request, copy, bytes);
                arrival.local = nullptr;
                arrival.payload = {copy, bytes};
            }
            Unexpected *message = keep(arrival);
            if (message == nullptr) {
                request.error = MPI_ERR_NO_MEM;
                done.add(&request);
                return OMPI_SUCCESS;
            }
            state.add(message);
            if (!wait) {
                done.add(&request);
            }
        }
    }
    if (receiver != nullptr) {
        receive(*receiver, arrival, false, done, base::Time{});
    }
    return OMPI_SUCCESS;
}

} // namespace ft::dr

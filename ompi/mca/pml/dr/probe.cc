#include "ompi/mca/pml/dr/probe.hpp"

#include "ompi/mca/pml/dr/comm.hpp"
#include "ompi/mca/pml/dr/errors.hpp"
#include "ompi/mca/pml/dr/standing.hpp"
#include "opal/mca/hand_over.hpp"

namespace ft::dr {

namespace {

void fill(ompi_status_public_t *status, const Arrival &arrival) noexcept
{
    if (status == MPI_STATUS_IGNORE) {
        return;
    }
    status->MPI_SOURCE = arrival.source;
    status->MPI_TAG = arrival.tag;
    status->_ucount = arrival.length;
    status->_cancelled = 0;
}

/// Looks once. \param take whether the message leaves the lists
/// \param error the class that a wait for it would end with
Unexpected *look(int source, int tag, ompi_communicator_t *comm, bool take,
                 ompi_status_public_t *status, int &error) noexcept
{
    CommState &state = *CommState::of(comm);
    Guard guard(state.lock);
    if (OPAL_UNLIKELY(any_peer_failed())) {
        error = refusal(state, source, tag);
        if (error != MPI_SUCCESS) {
            if (error == as_proc_null && status != MPI_STATUS_IGNORE) {
                fill_as_proc_null(status);
            }
            return nullptr;
        }
    }
    Unexpected *message = state.find(source, tag);
    if (message == nullptr) {
        error = any_peer_failed() ? receive_error(comm, source) : MPI_SUCCESS;
        return nullptr;
    }
    fill(status, message->arrival);
    if (take) {
        state.take(message);
    }
    return message;
}

/// The message holds its communicator, which may be freed, until it is received (imrecv).
int hand_out(Unexpected *found, ompi_communicator_t *comm, ompi_message_t *message) noexcept
{
    mca::take_over(message);
    OBJ_RETAIN(comm);
    message->comm = comm;
    message->req_ptr = found;
    message->peer = found->arrival.source;
    message->count = found->arrival.length;
    return OMPI_SUCCESS;
}

} // namespace

int iprobe(int source, int tag, ompi_communicator_t *comm, int *matched,
           ompi_status_public_t *status) noexcept
{
    int error = MPI_SUCCESS;
    *matched = look(source, tag, comm, false, status, error) != nullptr ? 1 : 0;
    if (error == as_proc_null) {
        *matched = 1;
        return OMPI_SUCCESS;
    }
    if (*matched == 0 && error == MPI_SUCCESS) {
        opal_progress();
    }
    return error;
}

int probe(int source, int tag, ompi_communicator_t *comm, ompi_status_public_t *status) noexcept
{
    for (;;) {
        int error = MPI_SUCCESS;
        if (look(source, tag, comm, false, status, error) != nullptr) {
            return OMPI_SUCCESS;
        }
        if (error != MPI_SUCCESS) {
            return error == as_proc_null ? OMPI_SUCCESS : error;
        }
        opal_progress();
    }
}

int improbe(int source, int tag, ompi_communicator_t *comm, int *matched, ompi_message_t **message,
            ompi_status_public_t *status) noexcept
{
    *matched = 0;
    ompi_message_t *handle = ompi_message_alloc();
    if (handle == nullptr) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    int error = MPI_SUCCESS;
    Unexpected *found = look(source, tag, comm, true, status, error);
    if (found == nullptr) {
        ompi_message_return(handle);
        *message = MPI_MESSAGE_NULL;
        if (error == as_proc_null) {
            *matched = 1;
            *message = MPI_MESSAGE_NO_PROC;
            return OMPI_SUCCESS;
        }
        if (error == MPI_SUCCESS) {
            opal_progress();
        }
        return error;
    }
    *matched = 1;
    *message = handle;
    return hand_out(found, comm, handle);
}

int mprobe(int source, int tag, ompi_communicator_t *comm, ompi_message_t **message,
           ompi_status_public_t *status) noexcept
{
    ompi_message_t *handle = ompi_message_alloc();
    if (handle == nullptr) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    for (;;) {
        int error = MPI_SUCCESS;
        if (Unexpected *found = look(source, tag, comm, true, status, error); found != nullptr) {
            *message = handle;
            return hand_out(found, comm, handle);
        }
        if (error != MPI_SUCCESS) {
            ompi_message_return(handle);
            const bool nobody = error == as_proc_null;
            *message = nobody ? MPI_MESSAGE_NO_PROC : MPI_MESSAGE_NULL;
            return nobody ? OMPI_SUCCESS : error;
        }
        opal_progress();
    }
}

} // namespace ft::dr

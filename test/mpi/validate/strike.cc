#include "ompi/mca/ompi_prelude.hpp"

#include "opal/process/standing.hpp"
#include "strike.hpp"

#include <csignal>

namespace strike {

namespace {

mca_pml_base_module_t behind;
int seen = 0;
int deadly = 0;

bool agreements = false;

/// Only what has a tag of Open MPI's own is a collective's, and the agreements' is not.
void operation(int tag) noexcept
{
    if (tag >= 0 || tag == OMPI_ANY_TAG || (tag == ft::process::agreement_tag && !agreements)) {
        return;
    }
    if (++seen == deadly) {
        raise(SIGKILL);
    }
}

int send(const void *buffer, std::size_t count, ompi_datatype_t *type, int to, int tag,
         mca_pml_base_send_mode_t mode, ompi_communicator_t *comm) noexcept
{
    operation(tag);
    return behind.pml_send(buffer, count, type, to, tag, mode, comm);
}

int isend(const void *buffer, std::size_t count, ompi_datatype_t *type, int to, int tag,
          mca_pml_base_send_mode_t mode, ompi_communicator_t *comm,
          ompi_request_t **request) noexcept
{
    operation(tag);
    return behind.pml_isend(buffer, count, type, to, tag, mode, comm, request);
}

int recv(void *buffer, std::size_t count, ompi_datatype_t *type, int from, int tag,
         ompi_communicator_t *comm, ompi_status_public_t *status) noexcept
{
    operation(tag);
    return behind.pml_recv(buffer, count, type, from, tag, comm, status);
}

int irecv(void *buffer, std::size_t count, ompi_datatype_t *type, int from, int tag,
          ompi_communicator_t *comm, ompi_request_t **request) noexcept
{
    operation(tag);
    return behind.pml_irecv(buffer, count, type, from, tag, comm, request);
}

int isend_init(const void *buffer, std::size_t count, ompi_datatype_t *type, int to, int tag,
               mca_pml_base_send_mode_t mode, ompi_communicator_t *comm,
               ompi_request_t **request) noexcept
{
    operation(tag);
    return behind.pml_isend_init(buffer, count, type, to, tag, mode, comm, request);
}

int irecv_init(void *buffer, std::size_t count, ompi_datatype_t *type, int from, int tag,
               ompi_communicator_t *comm, ompi_request_t **request) noexcept
{
    operation(tag);
    return behind.pml_irecv_init(buffer, count, type, from, tag, comm, request);
}

} // namespace

void install(bool with_agreements)
{
    agreements = with_agreements;
    behind = mca_pml;
    mca_pml.pml_send = send;
    mca_pml.pml_isend = isend;
    mca_pml.pml_recv = recv;
    mca_pml.pml_irecv = irecv;
    mca_pml.pml_isend_init = isend_init;
    mca_pml.pml_irecv_init = irecv_init;
}

void arm(int k)
{
    seen = 0;
    deadly = k;
}

int counted()
{
    return seen;
}

} // namespace strike

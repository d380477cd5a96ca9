#include "orte_glue/radixft/spawn_requests.hpp"

#include "orte_glue/radixft/daemon.hpp"
#include "orte_glue/radixft/data_server.hpp"
#include "orte_glue/radixft/meetings.hpp"

#include <exception>
#include <utility>

namespace ft::radixft {

using data_server::take;

namespace {

/// A job of this mpirun's that there is not: it numbers them from 1 on, and gives this number to
/// none.
std::uint32_t no_job()
{
    return ORTE_CONSTRUCT_LOCAL_JOBID(ORTE_PROC_MY_NAME->jobid, UINT16_MAX);
}

} // namespace

void SpawnRequests::watch() noexcept
{
    if (std::exchange(watching_, true)) {
        return;
    }
    orte_rml.recv_cancel(ORTE_NAME_WILDCARD, ORTE_RML_TAG_LAUNCH_RESP);
    orte_rml.recv_buffer_nb(ORTE_NAME_WILDCARD, ORTE_RML_TAG_LAUNCH_RESP, ORTE_RML_PERSISTENT,
                            on_answer, this);
}

void SpawnRequests::on_answer(int /*status*/, orte_process_name_t * /*sender*/,
                              opal_buffer_t *buffer, orte_rml_tag_t /*tag*/, void *data) noexcept
{
    auto &self = *static_cast<SpawnRequests *>(data);
    std::int32_t error = ORTE_SUCCESS;
    orte_jobid_t job = ORTE_JOBID_INVALID;
    int room = 0;
    opal_hotel_t &requests = orte_pmix_server_globals.reqs;
    if (!take(*buffer, error, OPAL_INT32) || !take(*buffer, job, ORTE_JOBID) ||
        !take(*buffer, room, OPAL_INT) || room < 0 || room >= requests.num_rooms) {
        return;
    }
    void *occupant = nullptr;
    opal_hotel_knock(&requests, room, &occupant);
    auto *request = static_cast<pmix_server_req_t *>(occupant);
    if (request == nullptr || request->spcbfunc == nullptr) {
        return; // it was answered when mpirun had died
    }
    opal_hotel_checkout(&requests, room);
    if (error != ORTE_SUCCESS) {
        self.fail(*request, error);
    } else {
        self.remember(*request, false);
        request->spcbfunc(error, job, request->cbdata);
    }
    OBJ_RELEASE(request);
}

void SpawnRequests::fail(const pmix_server_req_t &request, int error)
{
    if (remember(request, true)) {
        story(2, "a spawn fails: who asks for the new ranks is told that nobody comes");
        request.spcbfunc(ORTE_SUCCESS, no_job(), request.cbdata);
    } else {
        request.spcbfunc(error, ORTE_JOBID_INVALID, request.cbdata);
    }
}

/// Whether the root will ask for the new ranks here.
bool SpawnRequests::remember(const pmix_server_req_t &request, bool failed)
try {
    if (orte_data_server_uri != nullptr || request.jdata == nullptr) {
        return false;
    }
    const std::string port = parent_port(*request.jdata);
    const auto root = asker(*request.jdata);
    if (port.empty() || !root) {
        return false;
    }
    std::erase_if(calls_, [](const auto &entry) {
        return orte_get_job_data_object(entry.second.caller) == nullptr;
    });
    calls_[port] = {root->jobid, failed};
    return true;
} catch (const std::exception &) {
    return false; // without memory it is as in Open MPI
}

bool SpawnRequests::refuses(std::uint32_t asker, const std::string &key)
{
    const auto call = calls_.find(Meetings::port_of(key));
    if (call == calls_.end() || call->second.caller != asker) {
        return false;
    }
    if (key != key_of_new_ranks(call->first)) {
        calls_.erase(call); // it has their names, and asks for more
        return false;
    }
    const bool refused = call->second.failed || ORTE_PROC_MY_HNP->vpid != 0;
    if (refused) {
        calls_.erase(call);
    }
    return refused;
}

} // namespace ft::radixft

#include "orte_glue/radixft/address_requests.hpp"

#include <utility>

namespace ft::radixft {

namespace {

/// Calls for which the place of an answered question is kept: ten seconds.
constexpr unsigned most_calls = 100;

} // namespace

void AddressRequests::refuse(const std::function<bool(Rank)> &dead)
{
    opal_hotel_t &requests = orte_pmix_server_globals.reqs;
    if (!orte_pmix_server_globals.initialized ||
        requests.last_unoccupied_room + 1 == requests.num_rooms) {
        refused_.clear();
        return;
    }
    std::map<pmix_server_req_t *, unsigned> refused;
    for (int room = 0; room < requests.num_rooms; ++room) {
        void *occupant = nullptr;
        opal_hotel_knock(&requests, room, &occupant);
        auto *request = static_cast<pmix_server_req_t *>(occupant);
        // Those of other daemons have the name of who asks.
        if (request == nullptr || request->proxy.jobid != ORTE_JOBID_INVALID ||
            !dead({request->target.jobid, request->target.vpid})) {
            continue;
        }
        if (request->mdxcbfunc != nullptr) {
            const auto answer = std::exchange(request->mdxcbfunc, nullptr);
            answer(OPAL_ERR_NOT_FOUND, nullptr, 0, request->cbdata, nullptr, nullptr);
            refused[request] = 0;
            continue;
        }
        const auto before = refused_.find(request);
        if (before == refused_.end()) {
            continue;
        }
        if (before->second < most_calls) {
            refused[request] = before->second + 1;
        } else {
            opal_hotel_checkout(&requests, room);
            OBJ_RELEASE(request);
        }
    }
    refused_ = std::move(refused);
}

} // namespace ft::radixft

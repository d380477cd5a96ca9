#include "orte_glue/radixft/publications.hpp"

#include "orte_glue/radixft/daemon.hpp"
#include "orte_glue/radixft/data_server.hpp"
#include "orte_glue/radixft/every_job.hpp"
#include "orte_glue/radixft/meetings.hpp"

#include "opal/ft/base/assert.hpp"

#include <exception>
#include <utility>

namespace ft::radixft {

using data_server::take;

namespace {

/// No request of this daemon's ranks waits for the answer.
constexpr int nobody = -1;

/// What is in the key of the last number that the two sides exchange (spawns.cc), behind the port.
constexpr char last_step[] = ":activate:";

orte_rml_API_send_buffer_nb_fn_t send_buffer = nullptr;
Publications *watching = nullptr;

/// Calls `each` with every request of this daemon's ranks that is not answered.
template <typename Each>
void for_every_request(Each each)
{
    opal_hotel_t &requests = orte_pmix_server_globals.reqs;
    for (int room = 0; room < requests.num_rooms; ++room) {
        void *occupant = nullptr;
        opal_hotel_knock(&requests, room, &occupant);
        if (occupant != nullptr) {
            each(*static_cast<pmix_server_req_t *>(occupant));
        }
    }
}

/// Whether those who wait at this port have spawned somebody.
bool spawned_at(std::string_view port)
{
    bool found = false;
    for_every_job([&](const orte_job_t &job) { found = found || parent_port(job) == port; });
    return found;
}

} // namespace

void Publications::watch() noexcept
{
    spawns_.watch();
    // With a server of the user's own nothing ends with mpirun.
    if (orte_data_server_uri == nullptr && watching == nullptr) {
        watching = this;
        send_buffer = std::exchange(orte_rml.send_buffer_nb, pass_on);
    }
}

void Publications::stop() noexcept
{
    if (std::exchange(watching, nullptr) != nullptr) {
        FT_ASSERT(orte_rml.send_buffer_nb == pass_on); // who came later has gone
        orte_rml.send_buffer_nb = send_buffer;
    }
    names_.clear();
}

int Publications::pass_on(orte_rml_conduit_t conduit, orte_process_name_t *peer,
                          opal_buffer_t *buffer, orte_rml_tag_t tag,
                          orte_rml_buffer_callback_fn_t done, void *data) noexcept
{
    if (tag == ORTE_RML_TAG_DATA_SERVER) {
        try {
            if (watching->note(buffer)) {
                done(ORTE_SUCCESS, peer, buffer, tag, data);
                return ORTE_SUCCESS;
            }
        } catch (const std::exception &) {
            // Without memory it is forgotten with mpirun.
        }
    }
    return send_buffer(conduit, peer, buffer, tag, done, data);
}

/// What is left of a message; that keeps it.
Publications::Buffer Publications::copy_of(opal_buffer_t *message)
{
    Buffer copy(OBJ_NEW(opal_buffer_t));
    opal_dss.copy_payload(copy.get(), message);
    return copy;
}

bool Publications::note(opal_buffer_t *message)
{
    const Buffer copy = copy_of(message);
    int room = 0;
    if (!take(*copy, room, OPAL_INT) || room == nobody) {
        return false;
    }
    Buffer request = copy_of(copy.get());
    const Question question = question_of(*request);
    if (spawns_.refuses(question.jobid, question.key)) {
        data_server::answer(*ORTE_PROC_MY_NAME, *message,
                            data_server::Value::text(question.key, data_server::refusal));
        return true;
    }
    tell_again(Meetings::names_other_side(question.key));
    std::uint8_t command = 0;
    opal_process_name_t owner;
    opal_pmix_data_range_t range = OPAL_PMIX_RANGE_UNDEF;
    int persistence = 0;
    if (!take(*copy, command, OPAL_UINT8) || command != ORTE_PMIX_PUBLISH_CMD ||
        !take(*copy, owner, OPAL_NAME) || !take(*copy, range, OPAL_PMIX_DATA_RANGE) ||
        !take(*copy, persistence, OPAL_INT)) {
        return false;
    }
    std::erase_if(names_, [](const auto &entry) {
        return orte_get_job_data_object(entry.second.jobid) == nullptr;
    });
    opal_value_t *value = nullptr;
    while (take(*copy, value, OPAL_VALUE)) {
        const std::string key = value->key == nullptr ? "" : value->key;
        OBJ_RELEASE(value);
        const std::string_view port = Meetings::port_of(key);
        if (port.empty()) {
            continue;
        }
        if (Meetings::names_other_side(key).empty()) {
            const orte_job_t *const job = orte_get_job_data_object(owner.jobid);
            if (job != nullptr && key.starts_with(std::string(port) + last_step) &&
                parent_port(*job) == port) {
                last_word_.insert(owner.jobid);
            }
            // A number: the two sides have met.
            std::erase_if(names_, [port](const auto &entry) {
                return Meetings::port_of(entry.first) == port;
            });
        } else {
            names_[key] = {std::move(request), owner.jobid, ORTE_PROC_MY_HNP->vpid};
        }
        break;
    }
    return false;
}

/// Before a root asks who is on the other side: the server that has its own names may be gone, also
/// when the question was not asked by then.
void Publications::tell_again(const std::string &key)
{
    const auto names = names_.find(key);
    if (names == names_.end() || names->second.server == ORTE_PROC_MY_HNP->vpid) {
        return;
    }
    story(2, "tells who stands in for mpirun: %s", key.c_str());
    names->second.server = ORTE_PROC_MY_HNP->vpid;
    send(nobody, names->second.request.get());
}

void Publications::send(int room, opal_buffer_t *request)
{
    opal_buffer_t *message = OBJ_NEW(opal_buffer_t);
    if (opal_dss.pack(message, &room, 1, OPAL_INT) != OPAL_SUCCESS ||
        opal_dss.copy_payload(message, request) != OPAL_SUCCESS ||
        orte_rml.send_buffer_nb(static_cast<orte_rml_conduit_t>(orte_mgmt_conduit),
                                ORTE_PROC_MY_HNP, message, ORTE_RML_TAG_DATA_SERVER,
                                orte_rml_send_callback, nullptr) != ORTE_SUCCESS) {
        OBJ_RELEASE(message);
    }
}

void Publications::on_new_server() noexcept
try {
    if (watching == nullptr || !orte_pmix_server_globals.initialized) {
        return;
    }
    orte_pmix_server_globals.server = *ORTE_PROC_MY_HNP;
    for_every_request([this](pmix_server_req_t &request) {
        const int room = request.room_num;
        if (!ask_again(request)) {
            opal_hotel_checkout(&orte_pmix_server_globals.reqs, room);
            pmix_server_req_t *done = &request;
            OBJ_RELEASE(done);
        }
    });
} catch (const std::exception &) {
    // Without memory they go on waiting, for ten minutes.
}

bool Publications::ask_again(pmix_server_req_t &request)
{
    if (request.spcbfunc != nullptr) {
        story(2, "a spawn was asked for, and mpirun is gone: fails");
        spawns_.fail(request, ORTE_ERR_NOT_SUPPORTED);
        return false;
    }
    if (request.range == OPAL_PMIX_RANGE_LOCAL ||
        (request.opcbfunc == nullptr && request.lkcbfunc == nullptr)) {
        return true;
    }
    if (request.lkcbfunc != nullptr) {
        return look_up_again(request);
    }
    send(request.room_num, &request.msg);
    return true;
}

Publications::Question Publications::question_of(opal_buffer_t &request)
{
    const Buffer copy = copy_of(&request);
    std::uint8_t command = 0;
    Question question;
    opal_pmix_data_range_t range = OPAL_PMIX_RANGE_UNDEF;
    std::uint32_t count = 0;
    char *text = nullptr;
    if (take(*copy, command, OPAL_UINT8) && command == ORTE_PMIX_LOOKUP_CMD &&
        take(*copy, question.jobid, ORTE_JOBID) && take(*copy, range, OPAL_PMIX_DATA_RANGE) &&
        take(*copy, count, OPAL_UINT32) && count != 0 && take(*copy, text, OPAL_STRING)) {
        question.key = text;
        std::free(text);
    }
    return question;
}

bool Publications::begun(const orte_job_t &job) const
{
    if (watching == nullptr || !last_word_.contains(job.jobid)) {
        return watching == nullptr; // with a server of the user's own nothing was lost
    }
    const std::string port = parent_port(job);
    bool asks = false;
    for_every_request([&](pmix_server_req_t &request) {
        const Question question = question_of(request.msg);
        asks = asks || (question.jobid == job.jobid && Meetings::port_of(question.key) == port);
    });
    return !asks;
}

bool Publications::look_up_again(pmix_server_req_t &request)
{
    const std::string key = question_of(request.msg).key;
    if (key.empty()) {
        return true;
    }
    const std::string mine = Meetings::names_other_side(key);
    const std::string_view port = Meetings::port_of(key);
    if (mine.empty() && !port.empty() && !spawned_at(port)) {
        story(2, "mpirun is gone in an exchange of numbers: fails %s", key.c_str());
        opal_list_t nothing;
        OBJ_CONSTRUCT(&nothing, opal_list_t);
        request.lkcbfunc(OPAL_ERR_NOT_FOUND, &nothing, request.cbdata);
        OPAL_LIST_DESTRUCT(&nothing);
        return false;
    }
    send(request.room_num, &request.msg);
    return true;
}

} // namespace ft::radixft

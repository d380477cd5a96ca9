#include "orte_glue/radixft/spawns.hpp"

#include "orte_glue/radixft/daemon.hpp"

#include <exception>

namespace ft::radixft {

namespace {

/// The end of the key under which new ranks publish who they are (ompi/dpm/dpm.c).
constexpr std::string_view their_key = ":connect";

/// The port of the ranks that spawned a job; empty if they do not wait for it.
std::string parent_port(const orte_job_t &job)
{
    const auto *const app =
        job.apps == nullptr
            ? nullptr
            : static_cast<const orte_app_context_t *>(opal_pointer_array_get_item(job.apps, 0));
    constexpr std::string_view variable = "OMPI_PARENT_PORT=";
    for (char **entry = app == nullptr ? nullptr : app->env; entry != nullptr && *entry != nullptr;
         ++entry) {
        std::string_view text(*entry);
        if (!text.starts_with(variable)) {
            continue;
        }
        text.remove_prefix(variable.size());
        if (text.size() > 1 && text.front() == '"') {
            text = text.substr(1, text.size() - 2);
        }
        return std::string(text);
    }
    return {};
}

template <typename T>
bool take(opal_buffer_t &from, T &what, opal_data_type_t type)
{
    std::int32_t one = 1;
    return opal_dss.unpack(&from, &what, &one, type) == OPAL_SUCCESS;
}

void add(opal_list_t &to, const char *key, opal_data_type_t type, opal_value_t *&value)
{
    value = OBJ_NEW(opal_value_t);
    value->key = strdup(key);
    value->type = type;
    opal_list_append(&to, &value->super);
}

} // namespace

void Spawns::watch() noexcept
{
    // With a server of the user's own, what is published does not come by here.
    if (orte_data_server_uri != nullptr || std::exchange(watching_, true)) {
        return;
    }
    orte_rml.recv_cancel(ORTE_NAME_WILDCARD, ORTE_RML_TAG_DATA_SERVER);
    orte_rml.recv_buffer_nb(ORTE_NAME_WILDCARD, ORTE_RML_TAG_DATA_SERVER, ORTE_RML_PERSISTENT,
                            on_message, this);
}

void Spawns::on_message(int status, orte_process_name_t *sender, opal_buffer_t *buffer,
                        orte_rml_tag_t tag, void *data) noexcept
{
    // The server reads the message itself.
    opal_buffer_t copy;
    OBJ_CONSTRUCT(&copy, opal_buffer_t);
    bool wanted = true;
    try {
        wanted = opal_dss.copy_payload(&copy, buffer) != OPAL_SUCCESS ||
                 static_cast<Spawns *>(data)->wanted(&copy);
    } catch (const std::exception &) {
        // Without memory it is passed on unread, as if nobody watched.
    }
    OBJ_DESTRUCT(&copy);
    if (wanted) {
        orte_data_server(status, sender, buffer, tag, nullptr);
    }
}

/// False for names of ranks whose spawn has failed: who looks them up is to get the refusal alone.
bool Spawns::wanted(opal_buffer_t *message)
{
    int room = 0;
    std::uint8_t command = 0;
    opal_process_name_t owner;
    opal_pmix_data_range_t range = OPAL_PMIX_RANGE_UNDEF;
    int persistence = 0;
    if (!take(*message, room, OPAL_INT) || !take(*message, command, OPAL_UINT8) ||
        command != ORTE_PMIX_PUBLISH_CMD || !take(*message, owner, OPAL_NAME) ||
        !take(*message, range, OPAL_PMIX_DATA_RANGE) || !take(*message, persistence, OPAL_INT) ||
        owner.jobid == ORTE_PROC_MY_NAME->jobid) {
        return true;
    }
    const orte_job_t *const job = orte_get_job_data_object(owner.jobid);
    if (job == nullptr || job->originator.jobid == ORTE_JOBID_INVALID) {
        return true;
    }
    const std::string key = parent_port(*job).append(their_key);
    opal_value_t *value = nullptr;
    while (take(*message, value, OPAL_VALUE)) {
        const bool theirs = value->key != nullptr && key == value->key;
        OBJ_RELEASE(value);
        if (theirs) {
            if (refused(owner.jobid)) {
                return false;
            }
            called_.insert(owner.jobid);
        }
    }
    return true;
}

bool Spawns::awaited(const orte_job_t &job)
{
    return watching_ && job.originator.jobid != ORTE_JOBID_INVALID &&
           !called_.contains(job.jobid) && !parent_port(job).empty();
}

void Spawns::refuse(orte_job_t &job)
{
    if (!refused_.insert(job.jobid).second) {
        return;
    }
    opal_list_t info;
    OBJ_CONSTRUCT(&info, opal_list_t);
    opal_value_t *value = nullptr;
    add(info, parent_port(job).append(their_key).c_str(), OPAL_STRING, value);
    value->data.string = strdup(spawn_refusal);
    add(info, OPAL_PMIX_USERID, OPAL_UINT32, value);
    value->data.uint32 = geteuid();
    // Read by one, which tells the others; gone then.
    add(info, OPAL_PMIX_PERSISTENCE, OPAL_PERSIST, value);
    value->data.integer = OPAL_PMIX_PERSIST_FIRST_READ;
    add(info, OPAL_PMIX_RANGE, OPAL_DATA_RANGE, value);
    value->data.uint = OPAL_PMIX_RANGE_SESSION;
    pmix_server_publish_fn(
        ORTE_PROC_MY_NAME, &info, [](int, void *) {}, nullptr);
    OPAL_LIST_DESTRUCT(&info);
}

} // namespace ft::radixft

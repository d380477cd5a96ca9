#include "orte_glue/radixft/spawns.hpp"

#include "orte_glue/radixft/callbacks.hpp"
#include "orte_glue/radixft/daemon.hpp"
#include "orte_glue/radixft/every_job.hpp"

#include <exception>

namespace ft::radixft {

namespace {

/// The end of the key under which new ranks publish who they are (ompi/dpm/dpm.c).
constexpr char their_key[] = ":connect";
/// And of the key under which those do who spawn them.
constexpr char callers_key[] = ":accept";
/// What is in the keys of the numbers that they publish (ompi/communicator/comm_cid.c), and how the
/// last one's goes on behind the port.
constexpr char their_side[] = ":send:";
constexpr char callers_side[] = ":recv:";
constexpr char last_step[] = ":activate:";

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

/// The ranks of a list of names as Open MPI publishes it: of each its name and its job's, and
/// behind one that stands for all ranks of a job how many these are.
std::vector<Rank> ranks_of(const char *list)
{
    std::vector<Rank> ranks;
    char **const words = opal_argv_split(list, ':');
    for (int i = 0, count = opal_argv_count(words); i + 1 < count; i += 2) {
        opal_process_name_t name;
        if (opal_convert_string_to_process_name(&name, words[i]) != OPAL_SUCCESS) {
            break;
        }
        const bool all = name.vpid == OPAL_VPID_WILDCARD;
        ranks.push_back({name.jobid, all ? every_rank : name.vpid});
        i += all ? 1 : 0;
    }
    opal_argv_free(words);
    return ranks;
}

/// Whether those who spawned a job wait for it at this port.
bool spawned_through(std::string_view port)
{
    bool found = false;
    for_every_job([&](const orte_job_t &job) {
        found = found || (job.originator.jobid != ORTE_JOBID_INVALID && port == parent_port(job));
    });
    return found;
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

/// Publishes a value that is read by one, who tells the others, and is gone then.
template <typename Fill>
void publish(const std::string &key, opal_data_type_t type, Fill &&fill)
{
    opal_list_t info;
    OBJ_CONSTRUCT(&info, opal_list_t);
    opal_value_t *value = nullptr;
    add(info, key.c_str(), type, value);
    fill(*value);
    add(info, OPAL_PMIX_USERID, OPAL_UINT32, value);
    value->data.uint32 = geteuid();
    add(info, OPAL_PMIX_PERSISTENCE, OPAL_PERSIST, value);
    value->data.integer = OPAL_PMIX_PERSIST_FIRST_READ;
    add(info, OPAL_PMIX_RANGE, OPAL_DATA_RANGE, value);
    value->data.uint = OPAL_PMIX_RANGE_SESSION;
    pmix_server_publish_fn(
        ORTE_PROC_MY_NAME, &info, [](int, void *) {}, nullptr);
    OPAL_LIST_DESTRUCT(&info);
}

/// Tells who publishes that it is done.
void acknowledge(const orte_process_name_t &sender, opal_buffer_t &message)
{
    int room = 0;
    if (!take(message, room, OPAL_INT)) {
        return;
    }
    int code = ORTE_SUCCESS;
    opal_buffer_t *answer = OBJ_NEW(opal_buffer_t);
    opal_dss.pack(answer, &room, 1, OPAL_INT);
    opal_dss.pack(answer, &code, 1, OPAL_INT);
    orte_process_name_t to = sender;
    if (orte_rml.send_buffer_nb(static_cast<orte_rml_conduit_t>(orte_mgmt_conduit), &to, answer,
                                ORTE_RML_TAG_DATA_CLIENT, orte_rml_send_callback, nullptr) < 0) {
        OBJ_RELEASE(answer);
    }
}

/// The number that ends an exchange soonest.
void publish_number(const std::string &key)
{
    int one = 1;
    opal_buffer_t packed;
    OBJ_CONSTRUCT(&packed, opal_buffer_t);
    opal_dss.pack(&packed, &one, 1, OPAL_INT);
    void *bytes = nullptr;
    std::int32_t size = 0;
    opal_dss.unload(&packed, &bytes, &size);
    OBJ_DESTRUCT(&packed);
    publish(key, OPAL_BYTE_OBJECT, [&](opal_value_t &value) {
        value.data.bo.bytes = static_cast<std::uint8_t *>(bytes);
        value.data.bo.size = size;
    });
}

void publish_refusal(const std::string &key)
{
    publish(key, OPAL_STRING,
            [](opal_value_t &value) { value.data.string = strdup(spawn_refusal); });
}

void take_back(Rank owner, const std::string &key)
{
    opal_process_name_t name;
    name.jobid = owner.jobid;
    name.vpid = owner.vpid;
    opal_list_t info;
    OBJ_CONSTRUCT(&info, opal_list_t);
    opal_value_t *value = nullptr;
    add(info, OPAL_PMIX_USERID, OPAL_UINT32, value);
    value->data.uint32 = geteuid();
    std::string text = key;
    char *keys[] = {text.data(), nullptr};
    pmix_server_unpublish_fn(
        &name, keys, &info, [](int, void *) {}, nullptr);
    OPAL_LIST_DESTRUCT(&info);
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
    } else {
        acknowledge(*sender, *buffer);
    }
    static_cast<Spawns *>(data)->act();
}

/// False for names of ranks whose spawn has failed: who looks them up is to get the refusal alone.
bool Spawns::wanted(opal_buffer_t *message)
{
    int room = 0;
    std::uint8_t command = 0;
    if (!take(*message, room, OPAL_INT) || !take(*message, command, OPAL_UINT8)) {
        return true;
    }
    if (command == ORTE_PMIX_LOOKUP_CMD) {
        looked_up(message);
    }
    return command != ORTE_PMIX_PUBLISH_CMD || published(message);
}

bool Spawns::published(opal_buffer_t *message)
{
    opal_process_name_t owner;
    opal_pmix_data_range_t range = OPAL_PMIX_RANGE_UNDEF;
    int persistence = 0;
    if (!take(*message, owner, OPAL_NAME) || !take(*message, range, OPAL_PMIX_DATA_RANGE) ||
        !take(*message, persistence, OPAL_INT) || owner.jobid == ORTE_PROC_MY_NAME->jobid) {
        return true;
    }
    const orte_job_t *const job = orte_get_job_data_object(owner.jobid);
    const std::string port = job == nullptr || job->originator.jobid == ORTE_JOBID_INVALID
                                 ? std::string()
                                 : parent_port(*job);
    opal_value_t *value = nullptr;
    while (take(*message, value, OPAL_VALUE)) {
        const std::string key = value->key == nullptr ? "" : value->key;
        const bool kept = callers_published({owner.jobid, owner.vpid}, key, *value);
        OBJ_RELEASE(value);
        if (!kept) {
            return false;
        }
        const bool names = !port.empty() && key == port + their_key;
        const bool number =
            !port.empty() && key.starts_with(port + ':') && key.find(their_side) != key.npos;
        if ((names || number) && refused(owner.jobid)) {
            return false;
        }
        if (names) {
            called_.insert(owner.jobid);
            Callbacks::later([] { Daemon::get().mind_callers(); });
        } else if (number) {
            told_[port] = key;
            if (key.starts_with(port + last_step)) {
                through_.insert(owner.jobid);
            }
        }
    }
    return true;
}

/// Any rank may: a job that was spawned may spawn another, and those that accept or connect do the
/// same. \return whether the value is of use
bool Spawns::callers_published(Rank owner, const std::string &key, const opal_value_t &value)
{
    const bool names = value.type == OPAL_STRING && value.data.string != nullptr;
    if (const auto last = key.find(last_step);
        last != key.npos && key.find(callers_side) != key.npos) {
        let_in_.insert(key.substr(0, last));
    }
    if (names && key.ends_with(callers_key)) {
        callers_[key.substr(0, key.size() + 1 - sizeof callers_key)] = ranks_of(value.data.string);
    }
    if (names) {
        if (!spawned_through(Meetings::port_of(key))) {
            meetings_.on_names(owner, key, ranks_of(value.data.string));
        }
        Callbacks::later([] { Daemon::get().mind_callers(); });
        return true;
    }
    return meetings_.on_number(owner, key);
}

void Spawns::on_deaths(const std::map<Rank, RankDeath> &dead)
{
    meetings_.on_deaths([&dead](Rank who) {
        const bool all = who.vpid == every_rank;
        const auto first = dead.lower_bound(all ? Rank{who.jobid, 0} : who);
        return first != dead.end() && (all ? first->first.jobid == who.jobid : first->first == who);
    });
    act();
}

void Spawns::act() noexcept
try {
    for (const Meetings::Action &action : meetings_.take_actions()) {
        story(2, "a rank is dead that was to accept or connect: %s %s",
              action.what == Meetings::Action::What::refuse   ? "nobody comes for"
              : action.what == Meetings::Action::What::number ? "answers"
                                                              : "takes back",
              action.key.c_str());
        switch (action.what) {
        case Meetings::Action::What::refuse:
            publish_refusal(action.key);
            break;
        case Meetings::Action::What::number:
            publish_number(action.key);
            break;
        case Meetings::Action::What::take_back:
            take_back(action.owner, action.key);
            break;
        }
    }
} catch (const std::exception &) {
    // Without memory they go on waiting.
}

void Spawns::looked_up(opal_buffer_t *message)
{
    orte_jobid_t job = ORTE_JOBID_INVALID;
    opal_pmix_data_range_t range = OPAL_PMIX_RANGE_UNDEF;
    std::uint32_t count = 0;
    if (!take(*message, job, ORTE_JOBID) || !take(*message, range, OPAL_PMIX_DATA_RANGE) ||
        !take(*message, count, OPAL_UINT32)) {
        return;
    }
    char *text = nullptr;
    for (; count > 0 && take(*message, text, OPAL_STRING); --count) {
        const std::string key(text);
        std::free(text);
        meetings_.on_lookup(key);
        if (key.find(their_side) == key.npos) {
            continue;
        }
        for_every_job([&](const orte_job_t &spawned) {
            if (spawned.originator.jobid == ORTE_JOBID_INVALID) {
                return;
            }
            const std::string port = parent_port(spawned);
            if (!port.empty() && key.starts_with(port + ':')) {
                asked_[port] = key;
                if (refused(spawned.jobid)) {
                    stand_in(port);
                }
            }
        });
    }
}

/// Answers the number that is waited for, if nobody has.
void Spawns::stand_in(const std::string &port)
{
    const auto asked = asked_.find(port);
    if (asked == asked_.end() || told_[port] == asked->second) {
        return;
    }
    told_[port] = asked->second;
    publish_number(asked->second);
}

bool Spawns::awaited(const orte_job_t &job)
{
    return watching_ && job.originator.jobid != ORTE_JOBID_INVALID &&
           !through_.contains(job.jobid) && !parent_port(job).empty();
}

std::vector<Rank> Spawns::waits_for(const orte_job_t &job)
{
    const std::string port = job.originator.jobid == ORTE_JOBID_INVALID ? "" : parent_port(job);
    if (!watching_ || port.empty() || !called_.contains(job.jobid) || let_in_.contains(port)) {
        return {};
    }
    const auto callers = callers_.find(port);
    return callers != callers_.end()
               ? callers->second
               : std::vector<Rank>{{job.originator.jobid, job.originator.vpid}};
}

bool Spawns::refuse(orte_job_t &job)
{
    refused_.insert(job.jobid);
    const std::string port = parent_port(job);
    if (called_.contains(job.jobid)) {
        stand_in(port);
        return false;
    }
    publish_refusal(port + their_key);
    return true;
}

} // namespace ft::radixft

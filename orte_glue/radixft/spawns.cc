#include "orte_glue/radixft/spawns.hpp"

#include "orte_glue/radixft/callbacks.hpp"
#include "orte_glue/radixft/daemon.hpp"
#include "orte_glue/radixft/data_server.hpp"
#include "orte_glue/radixft/every_job.hpp"
#include "orte_glue/radixft/jobs.hpp"

#include <exception>

namespace ft::radixft {

using data_server::take;
using data_server::Value;

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

} // namespace

std::optional<Rank> asker(const orte_job_t &job)
{
    orte_process_name_t name;
    orte_process_name_t *where = &name;
    if (!orte_get_attribute(const_cast<opal_list_t *>(&job.attributes), ORTE_JOB_LAUNCH_PROXY,
                            reinterpret_cast<void **>(&where), OPAL_NAME)) {
        return std::nullopt;
    }
    return Rank{name.jobid, name.vpid};
}

std::string parent_port(const orte_job_t &job)
{
    if (is_first(job.jobid)) {
        return {}; // whoever started mpirun may have been spawned
    }
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

std::string key_of_new_ranks(const std::string &port)
{
    return port + their_key;
}

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
    auto &self = *static_cast<Spawns *>(data);
    // The server reads the message itself.
    opal_buffer_t copy;
    OBJ_CONSTRUCT(&copy, opal_buffer_t);
    Verdict verdict;
    try {
        if (opal_dss.copy_payload(&copy, buffer) == OPAL_SUCCESS) {
            verdict = self.judge(&copy);
        }
    } catch (const std::exception &) {
        // Without memory it is passed on unread, as if nobody watched.
    }
    OBJ_DESTRUCT(&copy);
    self.act(); // first: what is taken back here is not to be read by this look-up
    if (verdict.answer) {
        data_server::answer(*sender, *buffer, *verdict.answer);
    } else if (verdict.wanted) {
        orte_data_server(status, sender, buffer, tag, nullptr);
    } else {
        data_server::acknowledge(*sender, *buffer);
    }
}

Spawns::Verdict Spawns::judge(opal_buffer_t *message)
{
    Verdict verdict;
    int room = 0;
    std::uint8_t command = 0;
    if (!take(*message, room, OPAL_INT) || !take(*message, command, OPAL_UINT8)) {
        return verdict;
    }
    opal_process_name_t owner;
    switch (command) {
    case ORTE_PMIX_LOOKUP_CMD:
        looked_up(message, verdict.answer);
        break;
    case ORTE_PMIX_PUBLISH_CMD:
        verdict.wanted = published(message);
        break;
    case ORTE_PMIX_PURGE_PROC_CMD:
        if (take(*message, owner, OPAL_NAME)) {
            meetings_.on_gone([&owner](Rank who) {
                return who.jobid == owner.jobid &&
                       (owner.vpid == ORTE_VPID_WILDCARD || who.vpid == owner.vpid);
            });
        }
        break;
    default:
        break;
    }
    return verdict;
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
    SpawnCalls::Call *const call = job == nullptr ? nullptr : call_of(*job);
    opal_value_t *value = nullptr;
    while (take(*message, value, OPAL_VALUE)) {
        const std::string key = value->key == nullptr ? "" : value->key;
        const bool kept = on_value({owner.jobid, owner.vpid}, key, *value,
                                   persistence == OPAL_PMIX_PERSIST_FIRST_READ) &&
                          (call == nullptr || on_new_ranks(*call, key));
        OBJ_RELEASE(value);
        if (!kept) {
            return false;
        }
    }
    return true;
}

/// What a rank of a spawned job publishes. \return whether the value is of use
bool Spawns::on_new_ranks(SpawnCalls::Call &call, const std::string &key)
{
    const bool names = key == key_of_new_ranks(call.port);
    const bool number = key.starts_with(call.port + ':') && key.find(their_side) != key.npos;
    if ((names || number) && call.refused) {
        return false;
    }
    if (names) {
        call.called = true;
        Callbacks::later([] { Daemon::get().mind_callers(); });
    } else if (number) {
        call.told = key;
        call.through = call.through || key.starts_with(call.port + last_step);
        SpawnCalls::settle(call);
    }
    return true;
}

/// What any rank publishes: a job that was spawned may spawn another, and those that accept or
/// connect do the same. \return whether the value is of use
bool Spawns::on_value(Rank owner, const std::string &key, const opal_value_t &value, bool once)
{
    if (!once) {
        return true; // MPI_Publish_name
    }
    if (value.type != OPAL_STRING || value.data.string == nullptr) {
        if (const auto last = key.find(last_step);
            last != key.npos && key.find(callers_side) != key.npos) {
            if (SpawnCalls::Call *const call = call_at(std::string_view(key).substr(0, last))) {
                call->let_in = true;
                SpawnCalls::settle(*call);
            }
        }
        return meetings_.on_number(owner, key);
    }
    // A stand-in for mpirun forgets a job when its own ranks of it have ended.
    const auto exists = [this](std::uint32_t id) {
        return taken_over_ || orte_get_job_data_object(id) != nullptr;
    };
    calls_.keep(exists);
    meetings_.on_gone([&exists](Rank who) { return !exists(who.jobid); });
    std::vector<Rank> ranks = ranks_of(value.data.string);
    SpawnCalls::Call *const call = call_at(Meetings::port_of(key));
    if (call == nullptr) {
        meetings_.on_names(owner, key, std::move(ranks), value.data.string);
    } else if (key.ends_with(callers_key)) {
        call->callers = std::move(ranks);
    }
    Callbacks::later([] { Daemon::get().mind_callers(); });
    return true;
}

void Spawns::on_deaths(const std::map<Rank, RankDeath> &dead)
{
    meetings_.on_deaths([&dead](Rank who) { return find_death(dead, who) != nullptr; });
    act();
}

void Spawns::act() noexcept
try {
    for (const Meetings::Action &action : meetings_.take_actions()) {
        using What = Meetings::Action::What;
        story(2, "a rank is dead that was to accept or connect: %s %s",
              action.what == What::refuse      ? "nobody comes for"
              : action.what == What::number    ? "answers"
              : action.what == What::take_back ? "takes back"
                                               : "publishes again",
              action.key.c_str());
        orte_process_name_t owner = *ORTE_PROC_MY_NAME;
        switch (action.what) {
        case What::refuse:
            data_server::publish(owner, Value::text(action.key, data_server::refusal));
            break;
        case What::number:
            data_server::publish(owner, Value::number(action.key));
            break;
        case What::take_back:
            data_server::take_back(action.owner, action.key);
            break;
        case What::restore:
            owner.jobid = action.owner.jobid;
            owner.vpid = action.owner.vpid;
            data_server::publish(owner, Value::text(action.key, action.text.c_str()));
            break;
        }
    }
} catch (const std::exception &) {
    // Without memory they go on waiting.
}

/// \param answer what this look-up is told, instead of being passed on
void Spawns::looked_up(opal_buffer_t *message, std::optional<Value> &answer)
{
    orte_jobid_t job = ORTE_JOBID_INVALID;
    opal_pmix_data_range_t range = OPAL_PMIX_RANGE_UNDEF;
    std::uint32_t count = 0;
    char *text = nullptr;
    // Roots ask for one thing at a time.
    if (!take(*message, job, ORTE_JOBID) || !take(*message, range, OPAL_PMIX_DATA_RANGE) ||
        !take(*message, count, OPAL_UINT32) || count != 1 || !take(*message, text, OPAL_STRING)) {
        return;
    }
    const std::string key(text);
    std::free(text);
    if (const auto told = meetings_.on_lookup(job, key)) {
        const bool number = *told == Meetings::Answer::number;
        story(2, "a rank is dead that was to accept or connect: tells who asks for %s %s",
              key.c_str(), number ? "a number" : "that nobody comes");
        answer.emplace(number ? Value::number(key) : Value::text(key, data_server::refusal));
        return;
    }
    if (key.find(their_side) == key.npos) {
        return;
    }
    if (SpawnCalls::Call *const call = call_at(key)) {
        call->asked = key;
        // Those who wait for the last number have the context id: nothing is said by it, and
        // mpirun may have taken it with it.
        if (call->refused || (taken_over_ && key.starts_with(call->port + last_step))) {
            stand_in(*call);
        }
    }
}

/// Answers the number that is waited for, if nobody has.
void Spawns::stand_in(SpawnCalls::Call &call)
{
    if (!call.asked.empty() && call.told != call.asked) {
        call.told = call.asked;
        data_server::publish(*ORTE_PROC_MY_NAME, Value::number(call.asked));
    }
}

/// Null when nobody waits for the ranks of this job.
SpawnCalls::Call *Spawns::call_of(const orte_job_t &job)
{
    const std::string port = parent_port(job);
    return port.empty() ? nullptr : &calls_.of(job.jobid, port);
}

/// Null when those who wait at the port of this key have spawned nobody.
SpawnCalls::Call *Spawns::call_at(std::string_view key)
{
    for_every_job([this](const orte_job_t &job) { call_of(job); });
    return calls_.at(key);
}

bool Spawns::awaited(const orte_job_t &job)
{
    const SpawnCalls::Call *const call = watching_ ? call_of(job) : nullptr;
    return call != nullptr && !call->through;
}

bool Spawns::refused(std::uint32_t jobid) const
{
    const SpawnCalls::Call *const call = calls_.find(jobid);
    return call != nullptr && call->refused;
}

std::vector<Rank> Spawns::waits_for(const orte_job_t &job)
{
    const SpawnCalls::Call *const call = watching_ ? call_of(job) : nullptr;
    if (call == nullptr || !call->called || call->let_in) {
        return {};
    }
    if (!call->callers.empty()) {
        return call->callers;
    }
    const auto root = asker(job);
    return root ? std::vector<Rank>{*root} : std::vector<Rank>{};
}

bool Spawns::refuse(orte_job_t &job)
{
    SpawnCalls::Call *const call = call_of(job);
    return call != nullptr && refuse(*call);
}

bool Spawns::refuse(SpawnCalls::Call &call)
{
    call.refused = true;
    if (call.called || !call.asked.empty()) {
        stand_in(call);
        return false;
    }
    data_server::publish(*ORTE_PROC_MY_NAME,
                         Value::text(key_of_new_ranks(call.port), data_server::refusal));
    return true;
}

void Spawns::take_over()
{
    taken_over_ = true;
    for_every_job([this](const orte_job_t &job) { call_of(job); });
}

void Spawns::refuse_all(const std::map<Rank, RankDeath> &dead)
{
    for_every_job([this](const orte_job_t &job) { call_of(job); });
    calls_.for_each([&dead](std::uint32_t jobid, SpawnCalls::Call &call) {
        if (!call.refused && find_death(dead, {jobid, every_rank}) != nullptr) {
            refuse(call);
        }
    });
}

} // namespace ft::radixft

// In a rank: how it takes part in a fence of named processes, with which MPI_Comm_disconnect ends.
//
// A PMIx server counts out those that die while it waits for them. Whoever has died before the
// first of the others comes to it is counted in, and waited for by all others of that node for
// ever. So a rank waits for the fence or for the death of one of those named, whichever is first:
// every rank hears of a death, so nobody is left behind. A call that was left alone stays in the
// library until the process ends.
//
// It is left alone late: the server ends a fence as soon as nobody is missing in it any more, also
// when several leave it, and frees it twice when two of these are noticed at once. Where it counts
// out the dead, the fence is over before that.
//
// Also each process is named once. Of an intracommunicator Open MPI names everybody as a member of
// both groups, and the server waits for twice as many as there are.
//
// PMIx 4.2.2, which Debian 12 has, src/server/pmix_server_ops.c (new_tracker).
#include "orte_glue/mca/errmgr/radixft/errmgr_radixft.hpp"

#include "opal/process/deaths.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace ft::radixft {

namespace {

/// What the server says when somebody died while it waited. Open MPI knows no such codes and hands
/// them on as they are.
constexpr int partial_success = -52;
constexpr int lost_connection = -61;

opal_pmix_base_module_fence_fn_t fence_all = nullptr;

/// How often who waits looks for deaths: it may be in nobody's progress that it waits, and the
/// daemon may tell of deaths by the board alone (errmgr_radixft_tell).
constexpr std::chrono::milliseconds look_every{2};

/// For so long a fence in which somebody has died is waited for. The whole of it passes only where
/// that was counted in and not known here, and where one who knew of it works on elsewhere.
constexpr std::chrono::milliseconds patience{2000};

struct Meeting {
    std::mutex mutex;
    std::condition_variable ended;
    bool over = false;
    int status = OPAL_ERROR; ///< valid when it is over
};

/// PMIx's thread.
void on_met(int status, void *data) noexcept
{
    const std::unique_ptr<std::shared_ptr<Meeting>> held(
        static_cast<std::shared_ptr<Meeting> *>(data));
    Meeting &meeting = **held;
    const std::lock_guard lock(meeting.mutex);
    meeting.status = status;
    meeting.over = true;
    meeting.ended.notify_all();
}

std::vector<process::Name> members_of(opal_list_t &named)
{
    std::vector<process::Name> members;
    for (opal_list_item_t *item = opal_list_get_first(&named); item != opal_list_get_end(&named);
         item = opal_list_get_next(item)) {
        const opal_process_name_t &name = reinterpret_cast<opal_namelist_t *>(item)->name;
        members.push_back({name.jobid, name.vpid});
    }
    const auto key = [](process::Name name) { return std::pair(name.jobid, name.vpid); };
    std::ranges::sort(members, {}, key);
    const auto twice = std::ranges::unique(members, {}, key);
    members.erase(twice.begin(), twice.end());
    return members;
}

int begin(const std::vector<process::Name> &members, int collect_data,
          const std::shared_ptr<Meeting> &meeting)
{
    opal_list_t once;
    OBJ_CONSTRUCT(&once, opal_list_t);
    for (const process::Name &member : members) {
        opal_namelist_t *const item = OBJ_NEW(opal_namelist_t);
        item->name.jobid = member.jobid;
        item->name.vpid = member.vpid;
        opal_list_append(&once, &item->super);
    }
    auto held = std::make_unique<std::shared_ptr<Meeting>>(meeting);
    const int rc = opal_pmix.fence_nb(&once, collect_data, on_met, held.get());
    OPAL_LIST_DESTRUCT(&once);
    if (rc == OPAL_SUCCESS) {
        (void)held.release(); // on_met's
    }
    return rc;
}

int meet(opal_list_t *named, int collect_data) noexcept
try {
    if (named == nullptr || opal_list_is_empty(named)) {
        return fence_all(named, collect_data); // of all of this job: the server counts who lives
    }
    const std::vector<process::Name> members = members_of(*named);
    const auto meeting = std::make_shared<Meeting>();
    const auto somebody_died = [&members] {
        if (death_board.news()) {
            take_from_board();
        }
        return std::ranges::any_of(members, process::is_dead);
    };
    if (somebody_died()) {
        return OPAL_SUCCESS;
    }
    if (const int rc = begin(members, collect_data, meeting); rc != OPAL_SUCCESS) {
        return rc;
    }
    std::unique_lock lock(meeting->mutex);
    auto until = std::chrono::steady_clock::time_point::max();
    while (!meeting->ended.wait_for(lock, look_every, [&meeting] { return meeting->over; })) {
        const auto now = std::chrono::steady_clock::now();
        if (now >= until) {
            return OPAL_SUCCESS;
        }
        until = until == until.max() && somebody_died() ? now + patience : until;
    }
    const bool lost = meeting->status == partial_success || meeting->status == lost_connection;
    return lost ? OPAL_SUCCESS : meeting->status;
} catch (const std::exception &) {
    return OPAL_ERR_OUT_OF_RESOURCE;
}

} // namespace

void meet_those_who_live() noexcept
{
    if (fence_all == nullptr && opal_pmix.fence != nullptr && opal_pmix.fence_nb != nullptr) {
        fence_all = std::exchange(opal_pmix.fence, meet);
    }
}

void meet_as_usual() noexcept
{
    if (fence_all != nullptr) {
        opal_pmix.fence = std::exchange(fence_all, nullptr);
    }
}

} // namespace ft::radixft

#include "orte_glue/orte_prelude.hpp"

#include "orte_glue/radixft/jobs.hpp"

#include "opal/ft/base/wire.hpp"
#include "orte_glue/radixft/every_job.hpp"

#include <algorithm>

namespace ft::radixft {

static_assert(every_rank == ORTE_VPID_WILDCARD);

void Jobs::learn()
{
    for_every_job([this](const orte_job_t &job) {
        if (job.jobid == ORTE_PROC_MY_NAME->jobid || job.map == nullptr || job.num_procs == 0 ||
            hosts_.contains(job.jobid)) {
            return;
        }
        std::vector<NodeId> hosts;
        for (orte_vpid_t v = 0; v < job.num_procs; ++v) {
            const auto *proc = static_cast<const orte_proc_t *>(
                opal_pointer_array_get_item(job.procs, static_cast<int>(v)));
            if (proc == nullptr || proc->node == nullptr || proc->node->daemon == nullptr) {
                break; // not mapped yet
            }
            hosts.push_back(proc->node->daemon->name.vpid);
        }
        if (hosts.size() == job.num_procs) {
            hosts_[job.jobid] = std::move(hosts);
        }
    });
}

NodeId Jobs::host(Rank who) const
{
    const auto it = hosts_.find(who.jobid);
    return it != hosts_.end() && who.vpid < it->second.size() ? it->second[who.vpid] : no_node;
}

NodeId Jobs::only_host(std::uint32_t jobid) const
{
    const auto it = hosts_.find(jobid);
    if (it == hosts_.end()) {
        return no_node;
    }
    const NodeId first = it->second.front();
    const bool only = std::all_of(it->second.begin(), it->second.end(),
                                  [first](NodeId host) { return host == first; });
    return only ? first : no_node;
}

std::size_t Jobs::size(std::uint32_t jobid) const
{
    const auto it = hosts_.find(jobid);
    return it == hosts_.end() ? 0 : it->second.size();
}

std::vector<Rank> Jobs::ranks_on(NodeId node) const
{
    std::vector<Rank> ranks;
    for (const auto &[jobid, hosts] : hosts_) {
        for (std::uint32_t v = 0; v < hosts.size(); ++v) {
            if (hosts[v] == node) {
                ranks.push_back({jobid, v});
            }
        }
    }
    return ranks;
}

std::vector<Rank> Jobs::ranks_on(NodeId node, std::span<const Rank> signature) const
{
    std::vector<Rank> ranks;
    for (const Rank &named : signature) {
        if (named.vpid != every_rank) {
            if (host(named) == node) {
                ranks.push_back(named);
            }
            continue;
        }
        const auto it = hosts_.find(named.jobid);
        for (std::uint32_t v = 0; it != hosts_.end() && v < it->second.size(); ++v) {
            if (it->second[v] == node) {
                ranks.push_back({named.jobid, v});
            }
        }
    }
    return ranks;
}

bool is_first(std::uint32_t jobid)
{
    return ORTE_LOCAL_JOBID(jobid) == 1;
}

Bytes encode_signature(std::span<const Rank> ranks)
{
    Bytes bytes(8 * ranks.size());
    base::WireWriter out(bytes);
    for (const Rank &rank : ranks) {
        out.u32(rank.jobid);
        out.u32(rank.vpid);
    }
    return bytes;
}

std::vector<Rank> decode_signature(const Bytes &signature)
{
    std::vector<Rank> ranks;
    base::WireReader in(signature);
    while (in.remaining() >= 8) {
        Rank rank;
        rank.jobid = in.u32();
        rank.vpid = in.u32();
        ranks.push_back(rank);
    }
    return ranks;
}

} // namespace ft::radixft

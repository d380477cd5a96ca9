#include "orte_glue/radixft/spawn_calls.hpp"

#include <algorithm>

namespace ft::radixft {

SpawnCalls::Call &SpawnCalls::of(std::uint32_t jobid, std::string_view port)
{
    Call &call = calls_[jobid];
    call.port = port;
    return call;
}

const SpawnCalls::Call *SpawnCalls::find(std::uint32_t jobid) const
{
    const auto it = calls_.find(jobid);
    return it == calls_.end() ? nullptr : &it->second;
}

SpawnCalls::Call *SpawnCalls::at(std::string_view key)
{
    const auto it = std::find_if(calls_.begin(), calls_.end(), [key](const auto &entry) {
        const std::string &port = entry.second.port;
        return key.starts_with(port) && (key.size() == port.size() || key[port.size()] == ':');
    });
    return it == calls_.end() ? nullptr : &it->second;
}

void SpawnCalls::settle(Call &call)
{
    if (call.through && call.let_in) {
        call.callers = {};
        call.asked = {};
        call.told = {};
    }
}

} // namespace ft::radixft

// Feeds logs of real runs (errmgr_radixft_log_dir) to the membership engine: each must give itself
// again. Prints what the daemon sent, too.
#include "orte_glue/radixft/session.hpp"

#include <cstdio>
#include <fstream>

int main(int argc, char **argv)
{
    int failed = argc < 2;
    for (int i = 1; i < argc; ++i) {
        std::ifstream log(argv[i]);
        const ft::radixft::Replay r = ft::radixft::replay(log);
        std::printf("%s: %zu calls, %zu messages, %zu events%s%s\n", argv[i], r.calls, r.messages,
                    r.events, r.difference.empty() ? "" : "; ", r.difference.c_str());
        std::printf(
            "  arity=%u views=%zu sent=%llu again=%llu deaths=%zu told=%llu told_again=%llu\n",
            r.arity, r.views, static_cast<unsigned long long>(r.sent),
            static_cast<unsigned long long>(r.again), r.deaths,
            static_cast<unsigned long long>(r.told.sent),
            static_cast<unsigned long long>(r.told.again));
        failed += r.difference.empty() ? 0 : 1;
    }
    return failed != 0;
}

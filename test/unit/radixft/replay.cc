// Feeds logs of real runs (errmgr_radixft_log_dir) to the membership engine: each must give itself
// again.
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
        failed += r.difference.empty() ? 0 : 1;
    }
    return failed != 0;
}

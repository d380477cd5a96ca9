/* Preloaded into the daemons of a job: those on the hosts that FT_OTHER_HARDWARE names (n2,n3) say
 * that their hardware is of another kind than mpirun's, and stop themselves (SIGSTOP) when they
 * have been asked for it and have not answered yet.
 */
#include <dlfcn.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

namespace {

bool is_meant()
{
    char host[256] = "";
    const char *const meant = std::getenv("FT_OTHER_HARDWARE");
    if (meant == nullptr || gethostname(host, sizeof host - 1) != 0) {
        return false;
    }
    std::istringstream names(meant);
    for (std::string name; std::getline(names, name, ',');) {
        if (name == host) {
            return true;
        }
    }
    return false;
}

template <typename Function>
Function *real(const char *name)
{
    return reinterpret_cast<Function *>(dlsym(RTLD_NEXT, name));
}

} // namespace

// Functions of Open MPI that its daemons call.
extern "C" {

char *opal_hwloc_base_get_topo_signature(void *topology)
{
    char *const own = real<char *(void *)>("opal_hwloc_base_get_topo_signature")(topology);
    if (!is_meant()) {
        return own;
    }
    char *const other = strdup(("other:" + std::string(own)).c_str());
    std::free(own);
    return other;
}

/// Nobody calls it but a daemon that was asked, last.
char *opal_hwloc_base_check_on_coprocessor()
{
    if (is_meant()) {
        std::raise(SIGSTOP);
    }
    return real<char *()>("opal_hwloc_base_check_on_coprocessor")();
}
}

#include "ompi/mca/pml/dr/local_help.hpp"

#include "ompi/mca/pml/dr/lock.hpp"

#include <cstdarg>
#include <memory>
#include <set>
#include <string>

namespace ft::dr {

namespace {

opal_show_help_fn_t elsewhere = nullptr;

/// Whether this is the first time. mpirun shows each text once as well.
bool first(const char *file, const char *topic) noexcept
try {
    static Mutex lock;
    static std::set<std::string> shown;
    Guard guard(lock);
    return shown.insert(std::string(file) + '\n' + topic).second;
} catch (...) {
    return true;
}

int show(const char *file, const char *topic, int header, ...) noexcept
{
    if (file == nullptr || topic == nullptr || !first(file, topic)) {
        return OPAL_SUCCESS;
    }
    // "This local MPI process will likely now behave unpredictably (it may even hang or crash)",
    // says btl/tcp of a connection that was reset, which under dr is not so.
    const bool reset =
        std::strcmp(file, "help-mpi-btl-tcp.txt") == 0 && std::strcmp(topic, "peer hung up") == 0;
    va_list arguments;
    va_start(arguments, header);
    const std::unique_ptr<char, decltype(&std::free)> text(
        reset ? opal_show_help_vstring("help-pml-dr.txt", "connection reset", 0, arguments)
              : opal_show_help_vstring(file, topic, header, arguments),
        std::free);
    va_end(arguments);
    if (text == nullptr) {
        return OPAL_ERR_NOT_FOUND;
    }
    std::fputs(text.get(), stderr);
    return OPAL_SUCCESS;
}

} // namespace

void show_help_here() noexcept
{
    if (opal_show_help != show) {
        elsewhere = opal_show_help;
        opal_show_help = show;
    }
}

void show_help_there_again() noexcept
{
    if (opal_show_help == show) {
        opal_show_help = elsewhere;
    }
}

} // namespace ft::dr

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
    va_list arguments;
    va_start(arguments, header);
    const std::unique_ptr<char, decltype(&std::free)> text(
        opal_show_help_vstring(file, topic, header, arguments), std::free);
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

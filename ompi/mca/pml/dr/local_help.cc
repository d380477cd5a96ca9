#include "ompi/mca/pml/dr/local_help.hpp"

#include "ompi/mca/ompi_prelude.hpp"

#include "opal/ft/base/lasting.hpp"

#include <cstdarg>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace ft::dr {

namespace {

opal_show_help_fn_t elsewhere = nullptr;
/// Of what was shown. The runtime's own threads show help, too.
std::mutex lock;
base::Lasting<std::set<std::string>> shown;

/// Whether this is the first time. mpirun shows each text once as well.
bool first(const char *file, const char *topic) noexcept
try {
    const std::lock_guard guard(lock);
    return shown.object.insert(std::string(file) + '\n' + topic).second;
} catch (...) {
    return true;
}

/// What dr says instead of btl/tcp, whose texts of a connection that failed foretell a job that
/// hangs or crashes, which under dr it does not; null: nothing. The texts take the same arguments.
const char *own_topic(const char *file, const char *topic) noexcept
{
    static constexpr std::pair<const char *, const char *> topics[] = {
        {"peer hung up", "connection reset"},
        {"client connect fail", "connection failed"},
        {"client handshake fail", "handshake failed"},
    };
    if (std::strcmp(file, "help-mpi-btl-tcp.txt") == 0) {
        for (const auto &[theirs, own] : topics) {
            if (std::strcmp(topic, theirs) == 0) {
                return own;
            }
        }
    }
    return nullptr;
}

int show(const char *file, const char *topic, int header, ...) noexcept
{
    if (file == nullptr || topic == nullptr || !first(file, topic)) {
        return OPAL_SUCCESS;
    }
    va_list arguments;
    va_start(arguments, header);
    const char *own = own_topic(file, topic);
    const std::unique_ptr<char, decltype(&std::free)> text(
        own != nullptr ? opal_show_help_vstring("help-pml-dr.txt", own, 0, arguments)
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
    const std::lock_guard guard(lock);
    shown.renew();
}

} // namespace ft::dr

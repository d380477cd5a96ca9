/// Shows a help text to the user from a rank, reliably.
///
/// What Open MPI's own opal_show_help does with it in a rank is to hand the text to PMIx, for
/// mpirun to print it once for all ranks. With an external PMIx (Debian 12 has 4.2) the server
/// there forwards memory that it does not own and that is freed meanwhile: in half of all runs
/// mpirun prints "Data unpack would read past end of buffer" or nothing instead of the text. So the
/// text is rendered by opal_show_help_string and goes to standard error, in one write.
#pragma once

#include "opal/mca/help_dir.hpp"
#include "opal/mca/opal_prelude.hpp"

namespace ft::mca {

/// Like opal_show_help with an error header: prints topic `topic` of file `file`, with `arguments`
/// in the place of its conversions. Any thread may call it.
template <typename... Arguments>
void show_help(const char *file, const char *topic, Arguments... arguments) noexcept
{
    add_help_dir();
    char *text = opal_show_help_string(file, topic, 1, arguments...);
    if (text == nullptr) {
        return; // the file or topic is missing, and Open MPI has said so
    }
    const char *rest = text;
    for (std::size_t left = strlen(text); left > 0;) {
        const ssize_t written = write(STDERR_FILENO, rest, left);
        if (written < 0 && errno != EINTR) {
            break;
        }
        if (written > 0) {
            rest += written;
            left -= static_cast<std::size_t>(written);
        }
    }
    free(text);
}

} // namespace ft::mca
